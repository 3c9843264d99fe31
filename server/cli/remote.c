/* SPDX-License-Identifier: MIT */
#include "server/cli/remote.h"

#include <string.h>

#include "base/thread.h"

static bool take_body(void *ctx, const char *data, size_t len)
{
    struct remote_call *c = ctx;
    buf_add(c->answer, data, len);
    return !c->answer->failed;
}

static void *run(void *arg)
{
    struct remote_call *c = arg;
    struct remote *r = c->remote;
    const char *key = r->address.authorization;
    char url[TRANSFER_URL_MAX_BYTES];
    bool below = strncmp(c->target, "/v1/", 4) == 0; /* the base, which ends with that */
    snprintf(url, sizeof(url), "%s%s", r->address.base, below ? c->target + 3 : "");
    if (!below) transfer_url_join(url, c->target, url, sizeof(url));
    const char *headers[] = {"Content-Type: application/json", *key ? key : NULL, NULL};
    const struct transfer_exchange x = {.url = url,
                                        .headers = headers,
                                        .body = c->body,
                                        .body_len = c->len,
                                        .on_body = take_body,
                                        .ctx = c,
                                        .stop = &r->stop};
    c->end = transfer_run(c->transfer, &x);
    atomic_store(&c->ended, true);
    r->wake(r->ctx);
    return NULL;
}

int remote_begin(struct remote *r, struct remote_call *c, const char *target, const char *body,
                 size_t len, struct buf *answer)
{
    *c = (struct remote_call){
        .remote = r, .target = target, .body = body, .len = len, .answer = answer};
    c->transfer = r->n_idle ? r->idle[--r->n_idle] : transfer_create(&r->address.settings);
    if (c->transfer && !thread_start(&c->thread, "hearth-remote", 0, run, c)) return 0;
    transfer_destroy(c->transfer);
    c->remote = NULL;
    return -1;
}

void remote_end(struct remote_call *c)
{
    struct remote *r = c->remote;
    pthread_join(c->thread, NULL);
    r->idle[r->n_idle++] = c->transfer;
    c->remote = NULL;
}

void remote_close(struct remote *r)
{
    while (r->n_idle)
        transfer_destroy(r->idle[--r->n_idle]);
    explicit_bzero(&r->address, sizeof(r->address));
}
