/* SPDX-License-Identifier: MIT */
/*
 * A complete request and its handler: dispatched by the HTTP thread, run by a text worker or at
 * once, woken, and done. See endpoint.h for what a handler may do, and request.h for the rules.
 */
#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "base/auto.h"
#include "base/heap.h"
#include "server/bounds.h"
#include "server/http/request.h"
#include "server/http/server.h"
#include "server/log.h"

static void reply_unanswered(struct srv_request *req)
{
    srv_log(SRV_LOG_ERROR, "request %s ended without an answer", req->facts.id);
    srv_reply_error(req, SRV_ERR_INTERNAL, NULL, "The server gave no answer (request %s).",
                    req->facts.id);
}

void srv_request_done(struct srv_request *req)
{
    pthread_mutex_lock(&req->lock);
    bool held = req->api_held;
    bool unanswered = held && req->answer == SRV_ANSWER_NONE && !req->gone;
    req->api_held = false;
    if (req->answer >= SRV_ANSWER_PIECES) req->stream_closed = true;
    if (!unanswered) req->transport->resume(req);
    pthread_mutex_unlock(&req->lock);
    if (unanswered) reply_unanswered(req);
    if (!held) return;
    srv_request_unref_api(req);
    srv_request_unref(req);
}

static enum srv_work_class class_of(const struct srv_request *req)
{
    return req->body.len > SRV_SMALL_BODY_BYTES ? SRV_WORK_LARGE : SRV_WORK_SMALL;
}

static void run_item(struct srv_work_item *item)
{
    struct srv_request *req =
        (struct srv_request *)(void *)((char *)item - offsetof(struct srv_request, work));
    bool is_large = item->class == SRV_WORK_LARGE;
    pthread_mutex_lock(&req->lock);
    bool is_new = item->class != SRV_WORK_WAKE && !req->yields;
    req->yields = false;
    assert(req->run == SRV_RUN_QUEUED); /* never two runs of one request */
    req->run = SRV_RUN_ACTIVE;
    void (*on_wake)(void *) = req->callbacks.on_wake;
    bool runs = req->api_held && !(is_new && req->gone); /* else dropped before it started */
    pthread_mutex_unlock(&req->lock);
    if (runs && is_new)
        req->server->gate->enter(req);
    else if (runs)
        on_wake(req->api_data);

    pthread_mutex_lock(&req->lock);
    assert(req->run == SRV_RUN_ACTIVE || req->run == SRV_RUN_AGAIN);
    bool again = req->run == SRV_RUN_AGAIN && req->api_held;
    bool waits = req->callbacks.on_wake != NULL, yields = req->yields && req->api_held;
    req->run = again || yields ? SRV_RUN_QUEUED : SRV_RUN_IDLE;
    if (again)
        srv_request_push(req, SRV_WORK_WAKE);
    else if (yields)
        srv_request_push(req, class_of(req));
    pthread_mutex_unlock(&req->lock);
    if (!waits) srv_request_done(req);
    if (!again && !yields) {
        srv_request_unref_api(req);
        srv_request_unref(req);
    }
    /* The tree of a large body was many small pieces, which stay in the heap otherwise. */
    if (is_large && !yields) heap_trim();
}

static void run_piece(struct srv_work_item *item)
{
    struct srv_request *req =
        (struct srv_request *)(void *)((char *)item - offsetof(struct srv_request, work));
    const struct srv_sink *sink = req->route->arg;
    size_t n = sink->take(req, req->body.data, req->body.len);
    pthread_mutex_lock(&req->lock);
    req->n_kept = req->body.len -= n;
    memmove(req->body.data, req->body.data + n, req->n_kept + 1); /* with its NUL */
    req->run = SRV_RUN_IDLE;
    req->transport->resume(req);
    pthread_mutex_unlock(&req->lock);
    srv_request_unref(req);
}

enum srv_poll srv_request_piece(struct srv_request *req, bool full)
{
    HOLD(&req->lock);
    if (req->gone) return SRV_POLL_GONE;
    if (req->run == SRV_RUN_IDLE && !full) return SRV_POLL_READY;
    if (req->run == SRV_RUN_IDLE) {
        req->run = SRV_RUN_QUEUED;
        req->work.run = run_piece;
        srv_request_ref(req);
        srv_request_push(req, SRV_WORK_LARGE);
    }
    req->transport->suspend(req);
    return SRV_POLL_WAIT;
}

enum srv_poll srv_request_poll(struct srv_request *req)
{
    enum srv_poll poll = SRV_POLL_WAIT;
    HOLD(&req->lock);
    if (req->gone)
        poll = SRV_POLL_GONE;
    else if (req->answer != SRV_ANSWER_NONE)
        poll = SRV_POLL_READY;
    else
        req->transport->suspend(req);
    return poll;
}

enum srv_poll srv_request_dispatch(struct srv_request *req)
{
    bool is_inline = req->route->flags & SRV_ROUTE_INLINE;
    pthread_mutex_lock(&req->lock);
    assert(req->http_held && !req->api_held && req->run == SRV_RUN_IDLE);
    req->api_held = true;
    req->facts.body = req->body.data ? req->body.data : "";
    req->facts.body_len = req->body.len;
    atomic_fetch_add(&req->n_refs, 2); /* the API side's, and that of the run */
    atomic_fetch_add(&req->n_api_refs, 2);
    req->run = SRV_RUN_QUEUED;
    req->work.run = run_item;
    req->work.class = SRV_WORK_SMALL;
    if (!is_inline) srv_request_push(req, class_of(req));
    pthread_mutex_unlock(&req->lock);
    if (is_inline) run_item(&req->work);
    return srv_request_poll(req);
}
