/* SPDX-License-Identifier: MIT */
/*
 * The text workers, and the API side of a request that they run. One mutex guards all queues; each
 * item wakes one worker. The queue of wakes is first in, first out; the other two are sorted by
 * turn, which is one more than that of the key's last item, and at least that of the first item in
 * the queue.
 */
#include "server/http/text_workers.h"

#include <assert.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/bounds.h"
#include "server/http/request.h"
#include "server/http/server.h"
#include "server/log.h"

struct queue {
    struct srv_work_item *first, *last;
};

struct srv_work {
    pthread_mutex_t lock; /* guards everything below */
    pthread_cond_t wake;
    struct queue queues[SRV_WORK_CLASSES];
    int n_busy[SRV_WORK_CLASSES]; /* workers inside an item of the class */
    bool small_is_next;           /* used if one worker serves new requests of both sizes */
    bool stopping;
    int n_workers; /* started */
    pthread_t *threads;
};

static uint64_t next_turn(const struct queue *q, const struct srv_work_item *item)
{
    uint64_t turn = q->first ? q->first->turn : 0;
    if (item->class == SRV_WORK_WAKE) return turn;
    for (const struct srv_work_item *i = q->first; i; i = i->next)
        if (i->key == item->key) turn = i->turn + 1;
    return turn;
}

static void insert(struct queue *q, struct srv_work_item *item)
{
    item->turn = next_turn(q, item);
    struct srv_work_item **at = &q->first;
    if (q->last && q->last->turn <= item->turn) at = &q->last->next;
    while (*at && (*at)->turn <= item->turn)
        at = &(*at)->next;
    assert(*at != item); /* a request is in one queue, once */
    item->next = *at;
    *at = item;
    if (!item->next) q->last = item;
    assert(q->first && q->last && !q->last->next);
}

static struct srv_work_item *take_first(struct queue *q)
{
    struct srv_work_item *item = q->first;
    if (!item) return NULL;
    q->first = item->next;
    if (!q->first) q->last = NULL;
    assert(item->next || !q->first);
    item->next = NULL;
    return item;
}

/*
 * Returns true if a new request of this size may begin. Of n workers n - 1 are for new requests,
 * and n - 2 of them for large ones, but one at least.
 */
static bool may_begin(const struct srv_work *w, enum srv_work_class class)
{
    int n_new = w->n_busy[SRV_WORK_SMALL] + w->n_busy[SRV_WORK_LARGE];
    int max_new = w->n_workers > 1 ? w->n_workers - 1 : 1;
    int max_large = w->n_workers > 3 ? w->n_workers - 2 : 1;
    if (!w->queues[class].first || n_new >= max_new) return false;
    return class == SRV_WORK_SMALL || w->n_busy[SRV_WORK_LARGE] < max_large;
}

/* The next item this worker may run, or NULL. Called with the lock held. */
static struct srv_work_item *take(struct srv_work *w)
{
    struct srv_work_item *item = take_first(&w->queues[SRV_WORK_WAKE]);
    if (item) return item;
    bool small = may_begin(w, SRV_WORK_SMALL), large = may_begin(w, SRV_WORK_LARGE);
    /* Large ones first, as they cannot take the last worker for new requests if there are two. */
    if (small && large && w->n_workers < 3) large = !w->small_is_next;
    if (small || large) w->small_is_next = large;
    if (large) return take_first(&w->queues[SRV_WORK_LARGE]);
    return small ? take_first(&w->queues[SRV_WORK_SMALL]) : NULL;
}

static bool is_empty(const struct srv_work *w)
{
    for (int i = 0; i < SRV_WORK_CLASSES; i++)
        if (w->queues[i].first) return false;
    return true;
}

/* With the lock held, which is given up while the item runs. */
static bool run_next(struct srv_work *w)
{
    struct srv_work_item *item = take(w);
    if (!item) return false;
    enum srv_work_class class = item->class;
    w->n_busy[class]++;
    pthread_mutex_unlock(&w->lock);
    item->run(item); /* the item may be freed by now */
    pthread_mutex_lock(&w->lock);
    w->n_busy[class]--;
    assert(w->n_busy[class] >= 0);
    /* A new request may have waited for this worker to end. */
    if (class != SRV_WORK_WAKE) pthread_cond_signal(&w->wake);
    return true;
}

bool srv_work_run_next(struct srv_work *w)
{
    pthread_mutex_lock(&w->lock);
    bool ran = run_next(w);
    pthread_mutex_unlock(&w->lock);
    return ran;
}

static void *worker(void *arg)
{
    struct srv_work *w = arg;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        if (run_next(w)) continue;
        if (w->stopping && is_empty(w)) break;
        pthread_cond_wait(&w->wake, &w->lock);
    }
    pthread_cond_broadcast(&w->wake);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

int srv_work_create(struct srv_work **ret, int n_workers, char *err, size_t errlen)
{
    struct srv_work *w = calloc(1, sizeof(*w));
    pthread_attr_t attr;
    int rc = -1;
    snprintf(err, errlen, "no memory for the text workers");
    if (!w || pthread_mutex_init(&w->lock, NULL) || pthread_cond_init(&w->wake, NULL)) {
        free(w);
        return -1;
    }
    w->threads = calloc((size_t)n_workers + 1, sizeof(*w->threads)); /* of 0 may be NULL */
    if (!w->threads || pthread_attr_init(&attr)) goto out;
    pthread_attr_setstacksize(&attr, SRV_WORKER_STACK_BYTES);
    pthread_mutex_lock(&w->lock);
    int failed = 0;
    for (int i = 0; i < n_workers && !failed; i++) {
        failed = pthread_create(&w->threads[i], &attr, worker, w);
        if (!failed) pthread_setname_np(w->threads[w->n_workers++], "hearth-text");
    }
    pthread_mutex_unlock(&w->lock);
    pthread_attr_destroy(&attr);
    if (failed) {
        snprintf(err, errlen, "text worker thread: %s", strerror(failed));
        goto out;
    }
    *ret = w;
    w = NULL;
    rc = 0;
out:
    srv_work_destroy(w);
    return rc;
}

void srv_work_destroy(struct srv_work *w)
{
    if (!w) return;
    pthread_mutex_lock(&w->lock);
    w->stopping = true;
    pthread_cond_broadcast(&w->wake);
    pthread_mutex_unlock(&w->lock);
    for (int i = 0; i < w->n_workers; i++)
        pthread_join(w->threads[i], NULL);
    assert(is_empty(w));
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    free(w->threads);
    free(w);
}

void srv_work_push(struct srv_work *w, struct srv_work_item *item)
{
    pthread_mutex_lock(&w->lock);
    assert(!item->next && item->class < SRV_WORK_CLASSES);
    insert(&w->queues[item->class], item);
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
}

/* ---- the API side of a request -------------------------------------------------------------- */

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
    if (!(req->route->flags & (SRV_ROUTE_EARLY | SRV_ROUTE_OPERATOR)))
        req->facts.model = srv_models_take(&req->server->app.models);
    atomic_fetch_add(&req->n_refs, 2); /* the API side's, and that of the run */
    req->run = SRV_RUN_QUEUED;
    req->work.run = run_item;
    req->work.class = SRV_WORK_SMALL;
    if (!is_inline) push(req, is_large ? SRV_WORK_LARGE : SRV_WORK_SMALL);
    pthread_mutex_unlock(&req->lock);
    if (is_inline) run_item(&req->work);
    return srv_request_poll(req);
}
