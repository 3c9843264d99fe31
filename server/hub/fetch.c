/* SPDX-License-Identifier: MIT */
/* Files from the hub; see fetch.h. */
#include "server/hub/fetch.h"

#include <stdio.h>
#include <string.h>

#include "server/hub/blob.h"

/* A file being fetched. */
struct job {
    const struct hub_fetch *fetch;
    const struct hub_file *file;
    struct hub_blob blob;
    int rc;         /* of writing, while a try runs */
    bool bad_range; /* the answer is a different part than requested */
    char err[HUB_ERR_SIZE];
};

static void report(const struct job *j, int64_t n_new)
{
    j->fetch->on_bytes(j->fetch->ctx, j->file, j->blob.n_bytes, n_new);
}

static int restart(struct job *j)
{
    j->rc = hub_blob_restart(&j->blob, j->err);
    report(j, 0);
    return j->rc;
}

/* 206 with exactly the rest, or 200 with all of it. */
static bool take_head(void *ctx, struct transfer *t)
{
    struct job *j = ctx;
    int status = transfer_status(t);
    const char *range = transfer_header(t, "Content-Range");
    if (status == 200) return j->blob.n_bytes == 0 || restart(j) == 0;
    j->bad_range = status != 206 || j->blob.n_bytes == 0 || !range ||
                   !hub_range_is(range, j->blob.n_bytes, j->file->size);
    return !j->bad_range;
}

/* Bytes beyond the listed size are refused. */
static bool take_body(void *ctx, const char *data, size_t len)
{
    struct job *j = ctx;
    int64_t before = j->blob.n_bytes;
    j->rc = hub_blob_write(&j->blob, data, len, j->err);
    if (j->rc) return false;
    report(j, j->blob.n_bytes - before);
    return j->blob.n_bytes - before == (int64_t)len;
}

static void explain(const struct job *j, struct hub_failure *f, const char *reason)
{
    snprintf(f->err, sizeof(f->err), "%.200s: %.360s", j->file->path, reason);
}

/* Makes one try. Afterwards all bytes have been received, or *f is the reason. */
static void try_once(struct job *j, const char *url, struct hub_failure *f)
{
    struct hub_request r = {
        .url = url,
        .what = j->file->path,
        .from = j->blob.n_bytes,
        .on_head = take_head,
        .on_body = take_body,
        .ctx = j,
    };
    j->rc = 0;
    j->bad_range = false;
    hub_client_try(j->fetch->client, &r, f);
    bool whole = j->blob.n_bytes == j->file->size;
    if (f->refused && !j->rc && whole && !j->bad_range) *f = (struct hub_failure){0};
    if (f->refused && j->rc) {
        f->rc = j->rc;
        explain(j, f, j->err);
    } else if (f->refused) {
        *f = (struct hub_failure){.rc = HUB_ENETWORK, .again = true, .retry_after_s = -1};
        explain(j, f, "another part than the one asked for came");
    } else if (f->rc == 0 && !whole) {
        char reason[80];
        snprintf(reason, sizeof(reason), "ended early, with %lld of %lld bytes",
                 (long long)j->blob.n_bytes, (long long)j->file->size);
        *f = (struct hub_failure){.rc = HUB_ENETWORK, .again = true, .retry_after_s = -1};
        explain(j, f, reason);
    } else if (f->rc == HUB_ENETWORK) {
        char reason[HUB_ERR_SIZE];
        snprintf(reason, sizeof(reason), "%s", f->err);
        explain(j, f, reason);
    }
    if (f->again && (j->bad_range || f->status == 416) && restart(j)) {
        *f = (struct hub_failure){.rc = j->rc};
        explain(j, f, j->err);
    }
}

/* Tries until all bytes have been received. */
static int fetch_bytes(struct job *j, const char *url)
{
    struct hub_tries tries = {.best = j->blob.n_bytes};
    struct hub_failure f;
    if (j->blob.n_bytes == j->file->size && j->file->size > 0) return 0;
    do {
        try_once(j, url, &f);
        if (f.rc == 0) return 0;
    } while (hub_client_wait(j->fetch->client, &tries, j->blob.n_bytes, j->file->path, &f) == 0);
    snprintf(j->err, sizeof(j->err), "%s", f.err);
    return f.rc;
}

static int say_wrong(struct job *j)
{
    const struct hub_file *f = j->file;
    snprintf(j->err, sizeof(j->err),
             "%.200s: wrong %s twice (%.8s\u2026 expected, %.8s\u2026 came)", f->path,
             f->is_lfs ? "SHA-256" : "SHA-1", f->etag, j->blob.digest);
    return HUB_EWRONG;
}

/* *ret_wrong: the content is wrong, not another part of the answer. */
static int fetch_and_check(struct job *j, const char *url, bool *ret_wrong)
{
    j->blob.digest[0] = '\0';
    int rc = fetch_bytes(j, url);
    if (!rc) rc = hub_blob_finish(&j->blob, j->err);
    *ret_wrong = rc == HUB_EWRONG && j->blob.digest[0];
    return rc;
}

/* Wrong content is fetched once more, from the beginning. */
static int fetch_right(struct job *j, const char *url)
{
    struct hub_client *c = j->fetch->client;
    bool wrong;
    char reason[HUB_PATH_MAX + 40];
    int rc = fetch_and_check(j, url, &wrong);
    if (!wrong) return rc;
    snprintf(reason, sizeof(reason), "%s: wrong content came", j->file->path);
    if (c->on_retry) c->on_retry(c->ctx, j->file->path, reason, 2, 0);
    rc = restart(j);
    if (!rc) rc = fetch_and_check(j, url, &wrong);
    if (rc != HUB_EWRONG || !wrong) return rc;
    hub_blob_drop(&j->blob);
    return say_wrong(j);
}

static int make_url(const struct hub_fetch *fetch, const struct hub_file *f, char *url, size_t size,
                    char *err)
{
    char middle[HUB_COMMIT_LEN + 16];
    snprintf(middle, sizeof(middle), "/resolve/%s/", fetch->commit);
    if (hub_client_url(fetch->client, url, size, "/", middle, f->path, false) == 0) return 0;
    return hub_fail(err, HUB_EWRONG, "the address of %.200s is too long", f->path);
}

int hub_fetch_blob(const struct hub_fetch *fetch, const struct hub_file *f, char *err)
{
    struct job j = {.fetch = fetch, .file = f};
    const struct hub_client *c = fetch->client;
    char url[TRANSFER_URL_MAX_BYTES];
    int rc = make_url(fetch, f, url, sizeof(url), err);
    if (rc) return rc;
    mode_t mode = 0666 & ~c->settings->umask;
    rc = hub_blob_begin(&j.blob, fetch->cache, f, mode, fetch->force, c->stop, fetch->on_wait,
                        fetch->ctx, j.err);
    if (rc == 0) {
        report(&j, 0);
        rc = fetch_right(&j, url);
    } else if (rc == 1) {
        fetch->on_bytes(fetch->ctx, f, f->size, 0);
        rc = 0;
    }
    hub_blob_end(&j.blob);
    if (rc) snprintf(err, HUB_ERR_SIZE, "%s", j.err);
    return rc;
}

/* ---- into memory ---------------------------------------------------------------------------- */

static bool take_text_head(void *ctx, struct transfer *t)
{
    buf_clear(ctx);
    return transfer_status(t) == 200;
}

static bool take_text(void *ctx, const char *data, size_t len)
{
    struct buf *b = ctx;
    buf_add(b, data, len);
    return !b->failed;
}

static bool is_content_of(const struct hub_file *f, const struct buf *b)
{
    char digest[HUB_ETAG_SIZE];
    return (int64_t)b->len == f->size && !hub_hash_text(b->data, b->len, f->is_lfs, digest) &&
           strcmp(digest, f->etag) == 0;
}

int hub_fetch_text(const struct hub_fetch *fetch, const struct hub_file *f, struct buf *ret,
                   char *err)
{
    char url[TRANSFER_URL_MAX_BYTES];
    struct hub_tries tries = {0};
    struct hub_failure failure;
    int rc = make_url(fetch, f, url, sizeof(url), err);
    if (rc) return rc;
    struct hub_request r = {
        .url = url,
        .what = f->path,
        .on_head = take_text_head,
        .on_body = take_text,
        .ctx = ret,
    };
    do {
        hub_client_try(fetch->client, &r, &failure);
        if (failure.rc == 0 && is_content_of(f, ret)) return 0;
        if (failure.rc == 0 || failure.refused) {
            failure = (struct hub_failure){.rc = HUB_EWRONG, .again = true, .retry_after_s = -1};
            snprintf(failure.err, sizeof(failure.err), "%.200s: the content is not the one listed",
                     f->path);
        }
    } while (hub_client_wait(fetch->client, &tries, 0, f->path, &failure) == 0);
    snprintf(err, HUB_ERR_SIZE, "%s", failure.err);
    return failure.rc;
}
