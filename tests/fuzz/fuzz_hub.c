/* SPDX-License-Identifier: MIT */
/*
 * Fuzzes what a model hub sends: a page of its listing, the listing of the cache, an index, and the
 * header fields Link, Content-Range, Retry-After and RateLimit. Every path that is accepted must be
 * safe, and a listing that was accepted must be read back equal.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "server/hub/client.h"
#include "server/hub/listing.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_read_back(const struct hub_listing *l)
{
    char err[HUB_ERR_SIZE] = "";
    size_t len;
    struct hub_listing again = {0};
    if (l->odd_xet) return;
    char *text = hub_listing_write(l, &len);
    if (!text) return;
    if (hub_listing_add_tree(&again, text, len, err)) abort();
    if (hub_listing_sort(&again, err) || again.n != l->n) abort();
    for (size_t i = 0; i < l->n; i++)
        if (strcmp(l->files[i].path, again.files[i].path) != 0) abort();
    hub_listing_finish(&again);
    free(text);
}

static void check_listing(const char *text, size_t len, bool is_page)
{
    char err[HUB_ERR_SIZE] = "";
    struct hub_listing l = {0};
    int rc = is_page ? hub_listing_add_page(&l, text, len, err)
                     : hub_listing_add_tree(&l, text, len, err);
    if (rc && !err[0]) abort();
    if (!rc && hub_listing_sort(&l, err) == 0) {
        for (size_t i = 0; i < l.n; i++)
            if (!hub_path_is_safe(l.files[i].path, strlen(l.files[i].path))) abort();
        hub_choose(&l, &(struct hub_name){.repo = "org/name"}, err);
        check_read_back(&l);
    }
    hub_listing_finish(&l);
}

static bool take_shard(void *ctx, const char *name)
{
    (void)ctx;
    if (strchr(name, '/') || strcmp(name, "..") == 0) abort();
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char url[256], err[HUB_ERR_SIZE] = "", *text = malloc(size + 1);
    if (!text) return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    check_listing(text, size, true);
    check_listing(text, size, false);
    hub_shards_visit(text, size, take_shard, NULL, err);
    if (hub_link_next(text, url, sizeof(url)) == 0 && strlen(url) >= sizeof(url)) abort();
    hub_commit_read(text, size, err);
    hub_range_is(text, 10, 100);
    if (hub_retry_after(text, 1000000000) < -1 || hub_rate_limit(text) < -1) abort();
    free(text);
    return 0;
}
