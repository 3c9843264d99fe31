/* SPDX-License-Identifier: MIT */
/* Runs the API side of a request, on the HTTP thread or on a text worker, and ends it. */
#include "server/http/request.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "server/http/server.h"
#include "server/log.h"

/* Queues the request for a text worker. With the lock held. */
static void push(struct srv_request *req, enum srv_work_class class)
{
    req->work.class = class;
    memcpy(&req->work.key, req->facts.tenant, sizeof(req->work.key));
    srv_work_push(req->server->work, &req->work);
}

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
    if (held) srv_request_unref(req);
}

static void run_item(struct srv_work_item *item)
{
    struct srv_request *req =
        (struct srv_request *)(void *)((char *)item - offsetof(struct srv_request, work));
    bool is_new = item->class != SRV_WORK_WAKE;
    pthread_mutex_lock(&req->lock);
    assert(req->run == SRV_RUN_QUEUED); /* never two runs of one request */
    req->run = SRV_RUN_ACTIVE;
    void (*callback)(struct srv_request *) = is_new ? req->route->handle : req->callbacks.on_wake;
    if ((is_new && req->gone) || !req->api_held) callback = NULL; /* dropped before it started */
    pthread_mutex_unlock(&req->lock);
    if (callback) callback(req);

    pthread_mutex_lock(&req->lock);
    assert(req->run == SRV_RUN_ACTIVE || req->run == SRV_RUN_AGAIN);
    bool again = req->run == SRV_RUN_AGAIN && req->api_held;
    bool waits = req->callbacks.on_wake != NULL;
    req->run = again ? SRV_RUN_QUEUED : SRV_RUN_IDLE;
    if (again) push(req, SRV_WORK_WAKE);
    pthread_mutex_unlock(&req->lock);
    if (!waits) srv_request_done(req);
    if (!again) srv_request_unref(req);
}

void srv_request_wake(struct srv_request *req)
{
    pthread_mutex_lock(&req->lock);
    if (req->api_held && req->callbacks.on_wake) {
        if (req->run == SRV_RUN_ACTIVE) req->run = SRV_RUN_AGAIN;
        if (req->run == SRV_RUN_IDLE) {
            req->run = SRV_RUN_QUEUED;
            srv_request_ref(req);
            push(req, SRV_WORK_WAKE);
        }
    }
    pthread_mutex_unlock(&req->lock);
}

/* With the lock held. */
static enum srv_poll poll_answer(struct srv_request *req)
{
    if (req->gone) return SRV_POLL_GONE;
    if (req->answer != SRV_ANSWER_NONE) return SRV_POLL_READY;
    req->transport->suspend(req);
    return SRV_POLL_WAIT;
}

enum srv_poll srv_request_poll(struct srv_request *req)
{
    pthread_mutex_lock(&req->lock);
    enum srv_poll poll = poll_answer(req);
    pthread_mutex_unlock(&req->lock);
    return poll;
}

enum srv_poll srv_request_dispatch(struct srv_request *req)
{
    enum srv_poll poll = SRV_POLL_WAIT;
    pthread_mutex_lock(&req->lock);
    assert(req->http_held && !req->api_held && req->run == SRV_RUN_IDLE);
    req->api_held = true;
    req->facts.body = req->body.data ? req->body.data : "";
    req->facts.body_len = req->body.len;
    atomic_fetch_add(&req->n_refs, 2); /* the API side's, and that of the run */
    bool is_inline = req->route->flags & SRV_ROUTE_INLINE;
    req->run = SRV_RUN_QUEUED;
    req->work.run = run_item;
    if (!is_inline) {
        poll = poll_answer(req);
        push(req, req->body.len > SRV_SMALL_BODY_BYTES ? SRV_WORK_LARGE : SRV_WORK_SMALL);
    }
    pthread_mutex_unlock(&req->lock);
    if (!is_inline) return poll;
    req->work.class = SRV_WORK_SMALL;
    run_item(&req->work);
    return srv_request_poll(req);
}
