/* SPDX-License-Identifier: MIT */
/* See inbox.h. */
#include "engine/inbox.h"

#include <assert.h>
#include <string.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/os_error.h"
#include "base/thread.h"
#include "engine/eng_error.h"

/* ---- submitting ---------------------------------------------------------------------------- */

bool inbox_holds_back(const struct inbox *in, const struct eng_job *job)
{
    const struct eng_job_params *p = &job->p;
    return p->key_slots > 0 && in->p.n_running(in->p.ctx, p->fair_key) >= p->key_slots;
}

struct eng_job *inbox_first(const struct inbox *in)
{
    struct eng_job *job = in->queue.head;
    while (job && inbox_holds_back(in, job))
        job = job->next;
    return job;
}

bool inbox_is_spare(const struct inbox *in)
{
    return in->queue.head && in->queue.head->p.spare;
}

/* With the lock held. */
static struct backlog count_waiting(const struct inbox *in)
{
    struct backlog b = {0};
    for (const struct eng_job *job = in->queue.head; job; job = job->next) {
        if (job->p.spare || atomic_load_explicit(&job->cancel, memory_order_relaxed)) continue;
        int n = job->p.n_choices - job->n_admitted;
        if (inbox_holds_back(in, job)) {
            b.n_held += n;
        } else {
            b.n_seqs += n;
            b.n_pages += (int64_t)n * job->n_pages;
        }
        if (!job->waits || job->n_admitted > 0) continue;
        b.n_jobs++;
        b.n_tokens += job->p.n_prompt;
    }
    return b;
}

/* A key's own bound. Those of its jobs that free slots of it are for do not wait. */
static int check_key(const struct inbox *in, const struct eng_job *job, char *err, size_t errlen)
{
    const struct eng_job_params *p = &job->p;
    int most = 4 * p->key_slots;
    if (!p->key_slots) return 0;
    int n = in->p.n_running(in->p.ctx, p->fair_key) - p->key_slots;
    for (const struct eng_job *j = in->queue.head; j; j = j->next)
        n += j->p.fair_key == p->fair_key && j->n_admitted == 0 && !atomic_load(&j->cancel);
    if (n < most) return 0;
    return fail_with(
        ENG_EQUEUEFULL, err, errlen,
        "the queue is full for this key: %d of its requests wait, and the limit is %d, "
        "four for each of its slots",
        n, most);
}

/* A job that can start at once is never refused. */
static int check_bounds(const struct inbox *in, struct eng_job *job, char *err, size_t errlen)
{
    struct backlog b = count_waiting(in);
    if (in->draining || atomic_load(&in->closing))
        return fail_with(ENG_ECLOSED, err, errlen, "the engine is draining and takes no new jobs");
    if (job->p.spare) return 0;
    bool starts = in->p.starts_at_once(in->p.ctx, &b, job) && !inbox_holds_back(in, job);
    job->waits |= !starts;
    if (job->p.n_for_others == ENG_BEFORE_OTHERS) return 0;
    int rc = check_key(in, job, err, errlen);
    if (rc || starts) return rc;
    int max = in->p.max_jobs, n_left = job->p.n_for_others, most_left = max - max / 4;
    if (n_left > most_left) n_left = most_left;
    int64_t most_tokens =
        in->p.max_tokens - in->p.max_tokens / max * n_left - in->p.max_tokens % max * n_left / max;
    if (b.n_jobs - in->p.n_step_jobs + n_left >= max)
        return fail_with(
            ENG_EQUEUEFULL, err, errlen,
            "the queue is full: %d requests wait, %d slots are reserved, the limit is %d", b.n_jobs,
            n_left, max);
    if (job->p.n_prompt > most_tokens - b.n_tokens)
        return fail_with(
            ENG_EQUEUEFULL, err, errlen,
            "the queue is full: %lld prompt tokens wait, %lld more exceed the limit of %lld",
            (long long)b.n_tokens, (long long)job->p.n_prompt, (long long)most_tokens);
    return 0;
}

int inbox_submit(struct inbox *in, const struct eng_job_params *params, struct eng_job **ret,
                 char *err, size_t errlen)
{
    struct eng_job *job;
    uint64_t serial = atomic_fetch_add(&in->n_submitted, 1) + 1;
    int rc = job_create(&job, params, &in->p.limits, serial, err, errlen);
    if (rc) return rc;
    pthread_mutex_lock(&in->lock);
    rc = check_bounds(in, job, err, errlen);
    if (!rc) {
        queue_insert(&in->queue, job);
        if (in->p.on_submit) in->p.on_submit(in->p.ctx);
        *ret = job; /* before the scheduler can see the job and call back */
        pthread_cond_signal(&in->wake);
    }
    pthread_mutex_unlock(&in->lock);
    if (rc) {
        eng_job_release(job);
        eng_job_release(job);
    }
    return rc;
}

void inbox_stats(struct inbox *in, struct eng_stats *ret)
{
    HOLD(&in->lock);
    struct backlog b = count_waiting(in);
    *ret = in->stats;
    ret->n_waiting = b.n_seqs + b.n_held;
    ret->n_waiting_tokens = b.n_tokens;
}

void inbox_drain(struct inbox *in)
{
    HOLD(&in->lock);
    in->draining = true;
}

void inbox_pause(struct inbox *in, bool paused)
{
    HOLD(&in->lock);
    in->paused = paused;
    pthread_cond_signal(&in->wake);
}

void inbox_tell(struct inbox *in)
{
    HOLD(&in->lock);
    in->news = true;
    pthread_cond_signal(&in->wake);
}

/* ---- the scheduler's thread ---------------------------------------------------------------- */

bool inbox_await(struct inbox *in, bool running)
{
    HOLD(&in->lock);
    while ((in->paused || (!running && !in->queue.head && !in->news)) && !atomic_load(&in->closing))
        pthread_cond_wait(&in->wake, &in->lock);
    in->news = false;
    return running || in->queue.head || !atomic_load(&in->closing);
}

void inbox_await_news(struct inbox *in, int ms)
{
    struct timespec until = clock_after_ms(ms);
    HOLD(&in->lock);
    if (!in->news) pthread_cond_timedwait(&in->wake, &in->lock, &until);
    in->news = false;
}

/* The reason why a waiting job must end now, or 0. */
static enum eng_finish waiting_verdict(const struct eng_job *job, bool closing, uint64_t now_us)
{
    enum eng_finish finish = job_verdict(job, closing, now_us);
    if (finish) return finish;
    if (job->p.n_choices == 1 && atomic_load_explicit(&job->stop[0], memory_order_relaxed))
        return ENG_FINISH_STOP;
    uint64_t end_us = job->n_admitted == 0 ? job->p.queue_deadline_us : 0;
    return end_us && now_us >= end_us ? ENG_FINISH_QUEUE_TIMEOUT : 0;
}

struct eng_job *inbox_take_ended(struct inbox *in, uint64_t now_us, enum eng_finish *ret_finish)
{
    bool closing = atomic_load(&in->closing);
    HOLD(&in->lock);
    struct eng_job *job = in->queue.head;
    while (job && !(*ret_finish = waiting_verdict(job, closing, now_us)))
        job = job->next;
    if (job) queue_remove(&in->queue, job);
    return job;
}

void inbox_publish(struct inbox *in, const struct eng_stats *stats)
{
    HOLD(&in->lock);
    in->stats = *stats;
}

/* ---- lifecycle ----------------------------------------------------------------------------- */

void inbox_init(struct inbox *in, const struct inbox_params *params)
{
    *in = (struct inbox){.p = *params, .queue = {.global_priority = params->global_priority}};
    pthread_mutex_init(&in->lock, NULL);
    thread_cond_init(&in->wake);
}

int inbox_start(struct inbox *in, const char *name, void *(*run)(void *arg), void *arg, char *err,
                size_t errlen)
{
    int failed = thread_start(&in->thread, name, 0, run, arg);
    in->has_thread = failed == 0;
    if (!failed) return 0;
    return fail_with(ENG_ENOMEM, err, errlen, "the scheduler's thread cannot be started: %s%s",
                     strerror(failed), os_error_remedy(failed));
}

void inbox_close(struct inbox *in)
{
    HOLD(&in->lock);
    atomic_store(&in->closing, true);
    in->p.on_stop(in->p.ctx);
    pthread_cond_signal(&in->wake);
}

void inbox_stop(struct inbox *in)
{
    if (!in->has_thread) return;
    assert(!pthread_equal(pthread_self(), in->thread)); /* it would wait for itself */
    inbox_close(in);
    pthread_join(in->thread, NULL);
    in->has_thread = false;
    assert(!in->queue.head);
}

void inbox_finish(struct inbox *in)
{
    inbox_stop(in);
    pthread_cond_destroy(&in->wake);
    pthread_mutex_destroy(&in->lock);
}
