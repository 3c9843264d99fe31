/* SPDX-License-Identifier: MIT */
/*
 * The compile queue; see compile_queue.h. The source of a wait is borrowed while it is compiled, so
 * a wait that is `running` is done when its compilation has ended, even if it is left before.
 */
#include "server/grammars/compile_queue.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/thread.h"
#include "server/bounds.h"

enum {
    SHARE = 4,         /* one core's part that compiling takes while an engine computes */
    SLICE_US = 1000,   /* of processor time between two rests */
    CREDIT_US = 10000, /* at most so much of a rest that lasted too long is made up for */
};

struct compile_queue {
    bool (*busy)(void *ctx);
    void *ctx;
    pthread_t thread;
    uint64_t slice_cpu_us, slice_us; /* the thread's: when its slice began, by both clocks */

    pthread_mutex_t lock; /* guards all below, and the queue's fields of a wait */
    pthread_cond_t changed;
    struct compile_wait *line;    /* in the order of arrival */
    struct compile_wait *running; /* being compiled */
    uint64_t turn;                /* of the one taken last */
    bool closed, ending, has_thread;
};

/* ---- the line, with the lock held ---------------------------------------------------------- */

/* One behind the last of its tenant, and not before the one taken last. */
static uint64_t next_turn(const struct compile_queue *q, const struct compile_wait *w)
{
    uint64_t turn = q->turn;
    if (q->running && q->running->tenant == w->tenant) turn = q->running->turn + 1;
    for (const struct compile_wait *i = q->line; i; i = i->next)
        if (i->tenant == w->tenant) turn = i->turn + 1;
    return turn;
}

/* The first of those with the lowest turn, or NULL. */
static struct compile_wait *take(struct compile_queue *q)
{
    struct compile_wait **first = &q->line, *w;
    for (struct compile_wait **at = first; *at; at = &(*at)->next)
        if ((*at)->turn < (*first)->turn) first = at;
    w = *first;
    if (!w) return NULL;
    q->turn = w->turn;
    *first = w->next;
    return w;
}

/* Returns true if someone waits for what is being compiled. */
static bool is_wanted(const struct compile_queue *q)
{
    const struct compile_wait *r = q->running, *w = q->line;
    if (!r->left) return true;
    while (w &&
           (w->cache != r->cache || memcmp(w->source.key, r->source.key, sizeof(r->source.key))))
        w = w->next;
    return w;
}

/* ---- ending waits -------------------------------------------------------------------------- */

/* Waits of which any of this is true; a field that is 0 says nothing. */
struct ended {
    const struct compile_wait *which;
    const struct grammar_cache *cache;
    uint64_t late_us; /* their deadline is not after it */
    bool all;
};

static bool ends(const struct compile_wait *w, const struct ended *e)
{
    return e->all || w == e->which || w->cache == e->cache ||
           (w->deadline_us && e->late_us >= w->deadline_us);
}

static void end_waits(struct compile_queue *q, const struct ended *ended, enum compile_end how)
{
    struct compile_wait *out = NULL, *w;
    pthread_mutex_lock(&q->lock);
    for (struct compile_wait **at = &q->line; (w = *at);) {
        if (!ends(w, ended)) {
            at = &w->next;
            continue;
        }
        *at = w->next;
        w->end = how;
        w->next = out;
        out = w;
    }
    if (q->running && !q->running->left && ends(q->running, ended)) {
        q->running->left = true;
        q->running->end = how;
        pthread_cond_signal(&q->changed);
    }
    pthread_mutex_unlock(&q->lock);
    while ((w = out)) {
        out = w->next;
        w->done(w); /* it may be gone now */
    }
}

void compile_leave(struct compile_queue *q, const struct compile_wait *w,
                   const struct grammar_cache *cache)
{
    end_waits(q, &(struct ended){.which = w, .cache = cache}, COMPILE_LEFT);
}

void compile_queue_close(struct compile_queue *q)
{
    pthread_mutex_lock(&q->lock);
    q->closed = true;
    pthread_mutex_unlock(&q->lock);
    end_waits(q, &(struct ended){.all = true}, COMPILE_LEFT);
}

/* ---- the compile thread -------------------------------------------------------------------- */

static uint64_t cpu_now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* Until a time, or until the compilation is to stop. */
static void rest(struct compile_queue *q, uint64_t until_us)
{
    const struct timespec until = {(time_t)(until_us / 1000000), (long)(until_us % 1000000 * 1000)};
    int rc = 0;
    HOLD(&q->lock);
    while (!rc && (!q->running || is_wanted(q)))
        rc = pthread_cond_timedwait(&q->changed, &q->lock, &until);
}

/*
 * Once a slice is over: ends the waits that are late, and rests while an engine computes. A rest
 * that was cut short is owed, one that lasted too long is made up for, so that the share is exact.
 */
static void end_slice(struct compile_queue *q)
{
    uint64_t cpu_us = cpu_now_us() - q->slice_cpu_us, now_us = clock_now_us();
    uint64_t until_us = q->slice_us + SHARE * cpu_us;
    if (cpu_us < SLICE_US) return;
    end_waits(q, &(struct ended){.late_us = now_us}, COMPILE_LATE);
    if (until_us > now_us && q->busy(q->ctx)) {
        rest(q, until_us);
        now_us = clock_now_us();
    } else {
        until_us = now_us;
    }
    q->slice_us = now_us > until_us + CREDIT_US ? now_us - CREDIT_US : until_us;
    q->slice_cpu_us += cpu_us;
}

/* gram_options.stop: called while compiling. */
static bool look(void *arg)
{
    struct compile_queue *q = arg;
    end_slice(q);
    HOLD(&q->lock);
    return !is_wanted(q);
}

static void compile(struct compile_queue *q, struct compile_wait *w)
{
    grammar_cache_compile(w->cache, &w->source, w->tenant, look, q, &w->result);
    pthread_mutex_lock(&q->lock);
    q->running = NULL;
    pthread_mutex_unlock(&q->lock);
    if (w->left) {
        grammar_cache_put(w->cache, w->result.gram);
        w->result.gram = NULL;
    }
    w->done(w); /* it may be gone now */
}

static void *run(void *arg)
{
    struct compile_queue *q = arg;
    pthread_mutex_lock(&q->lock);
    while (!q->ending) {
        struct compile_wait *w = q->running = take(q);
        if (!w) {
            pthread_cond_wait(&q->changed, &q->lock);
            continue;
        }
        pthread_mutex_unlock(&q->lock);
        compile(q, w);
        end_slice(q);
        pthread_mutex_lock(&q->lock);
    }
    pthread_mutex_unlock(&q->lock);
    return NULL;
}

/* ---- from outside -------------------------------------------------------------------------- */

void compile_ask(struct compile_queue *q, struct compile_wait *w)
{
    pthread_mutex_lock(&q->lock);
    bool waits = !q->closed;
    w->next = NULL;
    w->left = false;
    w->end = q->closed ? COMPILE_LEFT : COMPILE_DONE;
    if (waits && !q->has_thread) { /* the first one: most commands at a terminal have none */
        waits = q->has_thread =
            !thread_start(&q->thread, "hearth-compile", SRV_WORKER_STACK_BYTES, run, q);
        w->result = (struct grammar_result){
            .error = {.code = GRAM_ENOMEM, .message = "No thread can be started to compile it."}};
    }
    if (waits) {
        struct compile_wait **at = &q->line;
        w->turn = next_turn(q, w);
        while (*at)
            at = &(*at)->next;
        *at = w;
        pthread_cond_signal(&q->changed);
    }
    pthread_mutex_unlock(&q->lock);
    if (!waits) w->done(w);
}

int compile_queue_length(struct compile_queue *q)
{
    HOLD(&q->lock);
    int n = q->running && !q->running->left;
    for (const struct compile_wait *w = q->line; w; w = w->next)
        n++;
    return n;
}

int compile_queue_create(struct compile_queue **ret, bool (*busy)(void *ctx), void *ctx, char *err,
                         size_t errlen)
{
    struct compile_queue *q = calloc(1, sizeof(*q));
    if (!q) return fail_with(-1, err, errlen, "no memory for the compile queue");
    q->busy = busy;
    q->ctx = ctx;
    pthread_mutex_init(&q->lock, NULL);
    thread_cond_init(&q->changed);
    *ret = q;
    return 0;
}

void compile_queue_destroy(struct compile_queue *q)
{
    if (!q) return;
    pthread_mutex_lock(&q->lock);
    assert(!q->line && !q->running);
    q->ending = true;
    pthread_cond_signal(&q->changed);
    pthread_mutex_unlock(&q->lock);
    if (q->has_thread) pthread_join(q->thread, NULL);
    pthread_cond_destroy(&q->changed);
    pthread_mutex_destroy(&q->lock);
    free(q);
}
