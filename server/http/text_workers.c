/* SPDX-License-Identifier: MIT */
/*
 * The text workers. One mutex guards all queues; each item wakes one worker. The queue of wakes is
 * first in, first out; the other two are sorted by turn, which is one more than that of the key's
 * last item, queued or taken, and at least that of the item taken last. So the first item of a key
 * waits for none of a key that was just served.
 */
#include "server/http/text_workers.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/fail.h"
#include "base/os_error.h"
#include "base/thread.h"
#include "server/bounds.h"

enum { KEY_GROUPS = 256 };

struct queue {
    struct srv_work_item *first, *last;
    uint64_t turn;             /* of the item taken last */
    uint64_t next[KEY_GROUPS]; /* one more than that, of the item taken last of a group of keys */
};

struct srv_work {
    pthread_mutex_t lock; /* guards everything below */
    pthread_cond_t wake;
    struct queue queues[SRV_WORK_CLASSES];
    int n_busy[SRV_WORK_CLASSES]; /* workers inside an item of the class */
    bool small_is_next;           /* used if one worker serves new requests of both sizes */
    bool stopping;
    int n_workers; /* started */
    int max_large; /* workers inside an item of a large body */
    pthread_t *threads;
};

static uint64_t next_turn(const struct queue *q, const struct srv_work_item *item)
{
    uint64_t next = q->next[item->key % KEY_GROUPS], turn = next > q->turn ? next : q->turn;
    if (item->class == SRV_WORK_WAKE) return 0;
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
    q->turn = item->turn;
    q->next[item->key % KEY_GROUPS] = item->turn + 1;
    if (!q->first) q->last = NULL;
    assert(item->next || !q->first);
    item->next = NULL;
    return item;
}

/* Returns true if a new request of this size may begin. Of n workers n - 1 are for new requests,
 * and max_large of them for large ones. */
static bool may_begin(const struct srv_work *w, enum srv_work_class class)
{
    int n_new = w->n_busy[SRV_WORK_SMALL] + w->n_busy[SRV_WORK_LARGE];
    int max_new = w->n_workers > 1 ? w->n_workers - 1 : 1;
    if (!w->queues[class].first || n_new >= max_new) return false;
    return class == SRV_WORK_SMALL || w->n_busy[SRV_WORK_LARGE] < w->max_large;
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
    HOLD(&w->lock);
    return run_next(w);
}

static void *worker(void *arg)
{
    struct srv_work *w = arg;
    HOLD(&w->lock);
    for (;;) {
        if (run_next(w)) continue;
        if (w->stopping && is_empty(w)) break;
        pthread_cond_wait(&w->wake, &w->lock);
    }
    pthread_cond_broadcast(&w->wake);
    return NULL;
}

int srv_work_create(struct srv_work **ret, int n_workers, char *err, size_t errlen)
{
    struct srv_work *w = calloc(1, sizeof(*w));
    if (!w) return fail_with(-1, err, errlen, "no memory for the text workers");
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->wake, NULL);
    w->max_large = srv_large_texts(n_workers);
    w->threads = calloc((size_t)n_workers + 1, sizeof(*w->threads)); /* of 0 may be NULL */
    int failed = w->threads ? 0 : ENOMEM;
    pthread_mutex_lock(&w->lock);
    for (int i = 0; i < n_workers && !failed; i++) {
        failed = thread_start(&w->threads[i], "hearth-text", SRV_WORKER_STACK_BYTES, worker, w);
        w->n_workers += !failed;
    }
    pthread_mutex_unlock(&w->lock);
    if (failed) {
        srv_work_destroy(w);
        return fail_with(-1, err, errlen, "text worker thread: %s%s", strerror(failed),
                         os_error_remedy(failed));
    }
    *ret = w;
    return 0;
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
    HOLD(&w->lock);
    assert(!item->next && item->class < SRV_WORK_CLASSES);
    insert(&w->queues[item->class], item);
    pthread_cond_signal(&w->wake);
}
