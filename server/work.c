/* SPDX-License-Identifier: MIT */
/* The text workers. One mutex guards both queues; each item wakes one worker. */
#include "server/work.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/limits.h"

struct queue {
    struct srv_work_item *first, *last;
};

struct srv_work {
    pthread_mutex_t lock;     /* guards everything below */
    pthread_cond_t wake;
    struct queue wakes, news;
    int n_busy_with_new;      /* workers inside a new request */
    bool stopping;
    int n_workers;            /* started */
    pthread_t *threads;
};

static void append(struct queue *q, struct srv_work_item *item)
{
    item->next = NULL;
    if (q->last) q->last->next = item;
    else q->first = item;
    q->last = item;
}

static struct srv_work_item *take_first(struct queue *q)
{
    struct srv_work_item *item = q->first;
    if (!item) return NULL;
    q->first = item->next;
    if (!q->first) q->last = NULL;
    return item;
}

/* The next item this worker may run, or NULL. Called with the lock held. */
static struct srv_work_item *take(struct srv_work *w)
{
    struct srv_work_item *item = take_first(&w->wakes);
    bool may_begin = w->n_workers == 1 || w->n_busy_with_new < w->n_workers - 1;
    if (!item && may_begin) item = take_first(&w->news);
    return item;
}

static void *worker(void *arg)
{
    struct srv_work *w = arg;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        struct srv_work_item *item = take(w);
        if (!item) {
            if (w->stopping && !w->news.first) break;
            pthread_cond_wait(&w->wake, &w->lock);
            continue;
        }
        bool is_new = item->is_new;
        w->n_busy_with_new += is_new;
        pthread_mutex_unlock(&w->lock);
        item->run(item); /* the item may be gone afterwards */
        pthread_mutex_lock(&w->lock);
        w->n_busy_with_new -= is_new;
        /* A new request may have been held back for this worker's sake. */
        if (is_new && w->news.first) pthread_cond_signal(&w->wake);
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
    w->threads = calloc((size_t)n_workers, sizeof(*w->threads));
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
    for (int i = 0; i < w->n_workers; i++) pthread_join(w->threads[i], NULL);
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    free(w->threads);
    free(w);
}

void srv_work_push(struct srv_work *w, struct srv_work_item *item)
{
    pthread_mutex_lock(&w->lock);
    append(item->is_new ? &w->news : &w->wakes, item);
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
}
