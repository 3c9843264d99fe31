/* SPDX-License-Identifier: MIT */
#include "server/cli/offline.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/sha256.h"
#include "base/thread.h"
#include "server/models/loader.h"

enum {
    MAX_PIECE_BYTES = 64 << 20, /* of an answer, since the last look */
    LOOK_MS = 20,               /* how often the stop flag is looked at */
};

/* Waits for the models of the start. */
static int load(struct srv_core *c, char *err, size_t errlen)
{
    uint64_t count;
    if (srv_core_create(c, err, errlen) ||
        srv_loader_start(&c->loader, &c->app, c->cores, c->loaded_fd, err, errlen))
        return -1;
    struct pollfd fd = {.fd = c->loaded_fd, .events = POLLIN};
    while (read(c->loaded_fd, &count, sizeof(count)) != sizeof(count)) /* the loader has ended */
        poll(&fd, 1, -1);
    return srv_loader_result(c->loader, err, errlen) ? -1 : 0;
}

int offline_open(struct offline *o, const struct srv_config *config, char *err, size_t errlen)
{
    *o = (struct offline){.config = *config};
    o->config.queue_timeout_ms = o->config.request_timeout_ms = o->config.max_connections = 0;
    o->config.pull = false; /* it was done */
    srv_core_init(&o->core, &o->config);
    pthread_mutex_init(&o->lock, NULL);
    thread_cond_init(&o->changed);
    o->is_open = true;
    return o->config.chat_url ? 0 : load(&o->core, err, errlen);
}

void offline_close(struct offline *o)
{
    if (!o->is_open) return;
    /* Requests whose answer is there may still be ending their jobs. */
    while (atomic_load(&o->core.server.n_requests) > 0)
        usleep(100);
    if (!srv_core_close(&o->core)) _exit(EXIT_FAILURE);
    pthread_cond_destroy(&o->changed);
    pthread_mutex_destroy(&o->lock);
    o->is_open = false;
}

void offline_wake(void *ctx)
{
    struct offline *o = ctx;
    HOLD(&o->lock);
    o->woken = true;
    pthread_cond_signal(&o->changed);
}

void offline_wait(struct offline *o, int ms)
{
    struct timespec until = clock_after_ms(ms);
    pthread_mutex_lock(&o->lock);
    if (!o->woken) pthread_cond_timedwait(&o->changed, &o->lock, &until);
    o->woken = false;
    pthread_mutex_unlock(&o->lock);
    srv_models_tick(&o->core.app.models);
}

int offline_post(struct offline *o, const struct offline_post *p)
{
    struct srv_local request = {.wake = offline_wake, .ctx = o};
    uint8_t digest[SHA256_BYTES];
    AUTO(buf_finish) struct buf piece = {.max = MAX_PIECE_BYTES};
    bool whole = false, more = true;
    int status = 0;
    if (getrandom(digest, sizeof(digest), 0) != sizeof(digest))
        sha256(digest, &(uint64_t){clock_now_ns()}, sizeof(uint64_t));
    if (srv_local_begin(&request, &o->core.server, p->url, p->body, strlen(p->body), digest,
                        clock_date_ms() / 1000))
        return -1;
    while (more && !whole && !atomic_load(p->stop)) {
        whole = srv_local_take(&request, &piece);
        if (whole || piece.len) status = srv_local_status(&request);
        if (piece.len) more = p->take(p->ctx, &request, piece.data, piece.len) && !piece.failed;
        buf_clear(&piece);
        if (more && !whole) offline_wait(o, LOOK_MS);
    }
    srv_local_end(&request, whole);
    return status;
}
