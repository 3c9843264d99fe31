/* SPDX-License-Identifier: MIT */
/*
 * A complete request and its handler: dispatched by the HTTP thread, run by a text worker or at
 * once, woken, and done. See endpoint.h for what a handler may do, and request.h for the rules.
 */
#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/heap.h"
#include "base/json_reader.h"
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
    if (held) srv_request_unref(req);
}

/*
 * The name of the model that a request asks for, owned; NULL: none, or it cannot be read. The
 * handler reads the body again, and says what is wrong with it.
 */
static char *find_model_name(struct srv_request *req)
{
    const char *asked = srv_request_query(req, "model"), *text = NULL, *key;
    size_t len = 0, skipped;
    char *name = NULL, err[64];
    bool first = true;
    struct jr r;
    jr_init(&r, req->facts.body, req->facts.body_len, 0, err, sizeof(err));
    int rc = jr_peek(&r) == '{' ? jr_open(&r, '{') : -1;
    while (!rc && !text && jr_more(&r, '}', &first) == 1) {
        rc = jr_key(&r, &key, &len);
        bool found = !rc && len == 5 && !memcmp(key, "model", 5) && jr_peek(&r) == '"';
        if (found)
            rc = jr_string(&r, &text, &len);
        else if (!rc)
            rc = jr_skip(&r, &key, &skipped);
    }
    if (text && !rc)
        name = strndup(text, len);
    else if (asked)
        name = strdup(asked);
    jr_finish(&r);
    return name;
}

/* Before the handler runs: the reference to the model that the request is for. */
static void take_model(struct srv_request *req)
{
    struct srv_models *models = &req->server->app.models;
    if (req->route->flags & (SRV_ROUTE_EARLY | SRV_ROUTE_OPERATOR)) return;
    char *name = req->server->config->n_more ? find_model_name(req) : NULL;
    req->facts.model = srv_models_take(models, name);
    free(name);
}

static void run_item(struct srv_work_item *item)
{
    struct srv_request *req =
        (struct srv_request *)(void *)((char *)item - offsetof(struct srv_request, work));
    bool is_new = item->class != SRV_WORK_WAKE;
    pthread_mutex_lock(&req->lock);
    assert(req->run == SRV_RUN_QUEUED); /* never two runs of one request */
    req->run = SRV_RUN_ACTIVE;
    void (*on_wake)(void *) = req->callbacks.on_wake;
    bool runs = req->api_held && !(is_new && req->gone); /* else dropped before it started */
    pthread_mutex_unlock(&req->lock);
    if (runs && is_new) {
        take_model(req);
        req->route->handle(req);
    } else if (runs) {
        on_wake(req->api_data);
    }
    /* The tree of a large body was many small pieces, which stay in the heap otherwise. */
    if (item->class == SRV_WORK_LARGE) heap_trim();

    pthread_mutex_lock(&req->lock);
    assert(req->run == SRV_RUN_ACTIVE || req->run == SRV_RUN_AGAIN);
    bool again = req->run == SRV_RUN_AGAIN && req->api_held;
    bool waits = req->callbacks.on_wake != NULL;
    req->run = again ? SRV_RUN_QUEUED : SRV_RUN_IDLE;
    if (again) srv_request_push(req, SRV_WORK_WAKE);
    pthread_mutex_unlock(&req->lock);
    if (!waits) srv_request_done(req);
    if (!again) srv_request_unref(req);
}

enum srv_poll srv_request_poll(struct srv_request *req)
{
    enum srv_poll poll = SRV_POLL_WAIT;
    pthread_mutex_lock(&req->lock);
    if (req->gone)
        poll = SRV_POLL_GONE;
    else if (req->answer != SRV_ANSWER_NONE)
        poll = SRV_POLL_READY;
    else
        req->transport->suspend(req);
    pthread_mutex_unlock(&req->lock);
    return poll;
}

enum srv_poll srv_request_dispatch(struct srv_request *req)
{
    bool is_inline = req->route->flags & SRV_ROUTE_INLINE;
    bool is_large = req->body.len > SRV_SMALL_BODY_BYTES;
    pthread_mutex_lock(&req->lock);
    assert(req->http_held && !req->api_held && req->run == SRV_RUN_IDLE);
    req->api_held = true;
    req->facts.body = req->body.data ? req->body.data : "";
    req->facts.body_len = req->body.len;
    atomic_fetch_add(&req->n_refs, 2); /* the API side's, and that of the run */
    req->run = SRV_RUN_QUEUED;
    req->work.run = run_item;
    req->work.class = SRV_WORK_SMALL;
    if (!is_inline) srv_request_push(req, is_large ? SRV_WORK_LARGE : SRV_WORK_SMALL);
    pthread_mutex_unlock(&req->lock);
    if (is_inline) run_item(&req->work);
    return srv_request_poll(req);
}
