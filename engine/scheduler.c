/* SPDX-License-Identifier: MIT */
/* The scheduler thread and its queue; see scheduler.h for the order of a round. */
#include "engine/scheduler.h"

#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/os_error.h"
#include "base/thread.h"
#include "engine/job.h"
#include "engine/job_queue.h"
#include "engine/kv_disk.h"
#include "engine/pool.h"
#include "engine/prefix.h"
#include "engine/cores.h"

/* Waiting sequences, jobs and tokens, and the pages they would reserve. */
struct backlog {
    int n_seqs;
    int n_jobs;       /* jobs that had to wait on arrival and of which no choice has started */
    int64_t n_tokens; /* their prompts */
    int64_t n_pages;
};

enum { N_SERVED = 64 };

struct served_key {
    uint64_t fair_key, us;
};

struct sched {
    struct batch batch;                 /* scheduler thread */
    struct served_key served[N_SERVED]; /* scheduler thread: keys admitted last */
    struct sched_params p;
    struct job_limits limits;
    atomic_uint_fast64_t n_submitted;
    atomic_bool closing;
    pthread_t thread;
    bool has_lock, has_wake, has_thread;

    pthread_mutex_t lock;   /* guards the fields below; held for a walk of the queue at most */
    pthread_cond_t wake;    /* new jobs, closing, resumed, news */
    struct queue queue;     /* jobs with choices that have not been admitted */
    struct eng_job *solo;   /* the one job of the step that is running, or NULL */
    struct eng_stats stats; /* snapshot of the batch's */
    bool draining, paused;
    bool news; /* of the disk */
};

/* ---- submitting, on any thread ------------------------------------------------------------- */

/* With the lock held. Cancelled jobs do not count: they end before the next step. */
static struct backlog count_waiting(const struct sched *s)
{
    struct backlog b = {0};
    for (const struct eng_job *job = s->queue.head; job; job = job->next) {
        if (atomic_load_explicit(&job->cancel, memory_order_relaxed)) continue;
        int n = job->p.n_choices - job->n_admitted;
        b.n_seqs += n;
        b.n_pages += (int64_t)n * job->n_pages;
        if (!job->waits || job->n_admitted > 0) continue;
        b.n_jobs++;
        b.n_tokens += job->p.n_prompt;
    }
    return b;
}

/* Checks the bounds of the queue. A job that can start at once is never refused. */
static int check_bounds(const struct sched *s, struct eng_job *job, char *err, size_t errlen)
{
    struct backlog b = count_waiting(s);
    if (s->draining || atomic_load(&s->closing)) {
        snprintf(err, errlen, "the engine is draining and takes no new jobs");
        return ENG_ECLOSED;
    }
    job->waits = b.n_seqs >= atomic_load(&s->batch.n_free_slots) ||
                 b.n_pages + job->n_pages > atomic_load(&s->batch.n_free_pages);
    if (!job->waits || job->p.continuation) return 0;
    int n_reserved = job_reserved_slots(job, s->p.max_queued_jobs);
    int64_t most_tokens = job_token_limit(job, s->p.max_queued_tokens);
    if (b.n_jobs + n_reserved >= s->p.max_queued_jobs) {
        snprintf(err, errlen,
                 "the queue is full: %d requests wait, %d slots are reserved, the limit is %d",
                 b.n_jobs, n_reserved, s->p.max_queued_jobs);
        return ENG_EQUEUEFULL;
    }
    if (job->p.n_prompt > most_tokens - b.n_tokens) {
        snprintf(err, errlen,
                 "the queue is full: %lld prompt tokens wait, %lld more exceed the limit of %lld",
                 (long long)b.n_tokens, (long long)job->p.n_prompt, (long long)most_tokens);
        return ENG_EQUEUEFULL;
    }
    return 0;
}

int sched_submit(struct sched *s, const struct eng_job_params *params, struct eng_job **ret,
                 char *err, size_t errlen)
{
    struct eng_job *job;
    uint64_t serial = atomic_fetch_add(&s->n_submitted, 1) + 1;
    int rc = job_create(&job, params, &s->limits, serial, err, errlen);
    if (rc) return rc;
    pthread_mutex_lock(&s->lock);
    rc = check_bounds(s, job, err, errlen);
    if (!rc) {
        queue_insert(&s->queue, job);
        *ret = job; /* before the scheduler can see the job and call back */
        pthread_cond_signal(&s->wake);
    }
    pthread_mutex_unlock(&s->lock);
    if (rc) {
        job_unref(job);
        job_unref(job);
    }
    return rc;
}

void sched_stats(struct sched *s, struct eng_stats *ret_stats)
{
    pthread_mutex_lock(&s->lock);
    struct backlog b = count_waiting(s);
    *ret_stats = s->stats;
    ret_stats->n_waiting = b.n_seqs;
    ret_stats->n_waiting_tokens = b.n_tokens;
    pthread_mutex_unlock(&s->lock);
    if (s->batch.p.disk) kv_disk_stats(s->batch.p.disk, &ret_stats->kv_disk);
}

void sched_kv_allow(struct sched *s, const uint8_t *owner, bool allowed)
{
    if (s->batch.p.disk) kv_disk_allow(s->batch.p.disk, owner, allowed);
}

void sched_drain(struct sched *s)
{
    pthread_mutex_lock(&s->lock);
    s->draining = true;
    pthread_mutex_unlock(&s->lock);
}

void sched_set_twin(struct sched *s, const struct draft_source *twin)
{
    self_draft_set(&s->batch.self, twin);
}

void sched_set_draft_model(struct sched *s, const struct draft_source *model)
{
    self_draft_set(&s->batch.smaller, model);
}

bool sched_draft_model_failed(const struct sched *s)
{
    return atomic_load(&s->batch.smaller.failed);
}

void sched_pause(struct sched *s, bool paused)
{
    pthread_mutex_lock(&s->lock);
    s->paused = paused;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
}

/* ---- the scheduler's thread ---------------------------------------------------------------- */

static bool idle(const struct sched *s)
{
    return s->batch.n_running == 0 && !s->queue.head;
}

/* Copies the thread's own state for other threads. With the lock held. */
static void publish(struct sched *s)
{
    struct eng_stats *st = &s->batch.stats;
    int n_idle = prefix_n_idle(s->batch.cache);
    st->n_running = s->batch.n_running;
    st->n_pages_cached = n_idle;
    st->n_pages_kept = prefix_n_kept(s->batch.cache);
    st->n_pages_used = st->n_pages_total - kv_pages_free(s->p.batch.pages) - n_idle;
    prefix_count_snapshots(s->batch.cache, st);
    s->stats = *st;
}

/* Publishes the state and sleeps while there is nothing to do. Returns false at the end. */
static bool wait_for_work(struct sched *s)
{
    pthread_mutex_lock(&s->lock);
    publish(s);
    while ((s->paused || (idle(s) && !s->news)) && !atomic_load(&s->closing))
        pthread_cond_wait(&s->wake, &s->lock);
    s->news = false;
    bool end = idle(s) && atomic_load(&s->closing);
    pthread_mutex_unlock(&s->lock);
    return !end;
}

/* Called by the disk's threads. */
static void tell_news(void *ctx)
{
    struct sched *s = ctx;
    pthread_mutex_lock(&s->lock);
    s->news = true;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
}

/* Waits for news, but not so long that an end of a job from outside is late. */
static void await_news(struct sched *s)
{
    enum { MOST_MS = 10 };
    struct timespec until = clock_after_ms(MOST_MS);
    pthread_mutex_lock(&s->lock);
    if (!s->news) pthread_cond_timedwait(&s->wake, &s->lock, &until);
    s->news = false;
    pthread_mutex_unlock(&s->lock);
}

/*
 * Hands pages to the disk's writer: one between two steps, all that it wants if nothing runs. At
 * the end it is given some seconds for what it has not written.
 */
static void feed_disk(struct sched *s, bool at_end)
{
    enum { END_SECONDS = 10 };
    struct kv_disk *d = s->batch.p.disk;
    uint64_t end = clock_now_us() + (uint64_t)END_SECONDS * 1000000;
    if (!d) return;
    int n = s->batch.n_running > 0 ? 1 : EXTENT_PAGES;
    kv_disk_pump(d, s->batch.cache, s->p.batch.pages, n);
    while (at_end && kv_disk_busy(d) && clock_now_us() < end) {
        kv_disk_pump(d, s->batch.cache, s->p.batch.pages, n);
        await_news(s);
    }
}

/* The reason why a waiting job must end now, or 0. */
static enum eng_finish waiting_verdict(const struct eng_job *job, bool closing, uint64_t now)
{
    enum eng_finish finish = batch_verdict(job, closing, now);
    if (finish || job->n_admitted > 0 || !job->p.queue_deadline_us) return finish;
    return now >= job->p.queue_deadline_us ? ENG_FINISH_QUEUE_TIMEOUT : 0;
}

/* Takes a job that must end out of the queue, or returns NULL. */
static struct eng_job *take_ended(struct sched *s, bool closing, uint64_t now,
                                  enum eng_finish *ret_finish)
{
    pthread_mutex_lock(&s->lock);
    struct eng_job *job = s->queue.head;
    while (job && !(*ret_finish = waiting_verdict(job, closing, now)))
        job = job->next;
    if (job) queue_remove(&s->queue, job);
    pthread_mutex_unlock(&s->lock);
    return job;
}

static void reap_queue(struct sched *s, bool closing, uint64_t now)
{
    struct eng_job *job;
    enum eng_finish finish;
    while ((job = take_ended(s, closing, now, &finish))) {
        int n = job->p.n_choices - job->n_admitted;
        assert(n > 0);
        while (n-- > 0) /* with the last one the job may be freed */
            batch_choice_done(&s->batch, job, job->n_admitted++, finish, -1, NULL, now);
    }
}

/* When a job of the key was last admitted; 0: not among the last N_SERVED keys. */
static uint64_t last_served_us(const struct sched *s, uint64_t fair_key)
{
    for (int i = 0; i < N_SERVED; i++)
        if (s->served[i].fair_key == fair_key) return s->served[i].us;
    return 0;
}

/* Replaces the entry of the key, or the one that was served longest ago. */
static void note_served(struct sched *s, uint64_t fair_key, uint64_t now)
{
    struct served_key *at = s->served;
    for (int i = 0; i < N_SERVED && at->fair_key != fair_key; i++)
        if (s->served[i].fair_key == fair_key || s->served[i].us < at->us) at = &s->served[i];
    *at = (struct served_key){fair_key, now};
}

/*
 * With a global priority: a job that has waited long while its key was not served comes next. Of
 * several keys the one that was served longest ago, of its jobs the oldest.
 */
static void serve_starving(struct sched *s, uint64_t now)
{
    const struct eng_job *head = s->queue.head;
    struct eng_job *best = NULL;
    uint64_t best_us = 0;
    if (!head || head->rank == QUEUE_PROMOTED) return;
    for (struct eng_job *job = s->queue.head; job; job = job->next) {
        uint64_t us = last_served_us(s, job->p.fair_key);
        uint64_t since_us = us > job->usage.submitted_us ? us : job->usage.submitted_us;
        if (job->p.fair_key == head->p.fair_key || now - since_us < s->p.starving_us) continue;
        if (best && (us > best_us || (us == best_us && job->serial > best->serial))) continue;
        best = job;
        best_us = us;
    }
    if (best) queue_promote(&s->queue, best);
}

/* Takes the next choice of the first waiting job if there is room for it, else returns NULL. */
static struct eng_job *take_choice(struct sched *s, int *ret_choice, uint64_t *ret_now)
{
    pthread_mutex_lock(&s->lock);
    uint64_t now = clock_now_us(); /* jobs may have arrived since the round began */
    if (s->queue.global_priority) serve_starving(s, now);
    struct eng_job *job = s->queue.head;
    if (job && !batch_has_room(&s->batch, job->n_pages)) job = NULL;
    if (job) {
        note_served(s, job->p.fair_key, now);
        assert(job->n_admitted < job->p.n_choices);
        *ret_choice = job->n_admitted++;
        if (job->n_admitted == job->p.n_choices) queue_remove(&s->queue, job);
    }
    pthread_mutex_unlock(&s->lock);
    *ret_now = now;
    return job;
}

static void admit(struct sched *s)
{
    struct eng_job *job;
    int choice;
    uint64_t now;
    while ((job = take_choice(s, &choice, &now))) {
        if (atomic_load(&job->stop[choice])) /* it does not have to run at all */
            batch_choice_done(&s->batch, job, choice, ENG_FINISH_STOP, -1, NULL, now);
        else
            batch_admit(&s->batch, job, choice, now);
    }
}

/* Sets the job that closing must cancel to end the step at once. */
static void set_solo(struct sched *s, struct eng_job *job)
{
    pthread_mutex_lock(&s->lock);
    s->solo = job;
    if (job && atomic_load(&s->closing)) eng_job_cancel(job);
    pthread_mutex_unlock(&s->lock);
}

static void step(struct sched *s)
{
    uint64_t now;
    bool complete = true;
    cores_enter(s->p.seat);
    batch_build(&s->batch);
    if (s->batch.n_segs > 0) {
        set_solo(s, batch_solo_job(&s->batch));
        complete = batch_compute(&s->batch, &s->closing, &now);
        set_solo(s, NULL);
        if (complete) batch_deliver(&s->batch, now);
    }
    if (complete) batch_make_masks(&s->batch);
    if (complete) batch_catch_up(&s->batch);
    s->batch.shared = cores_leave(s->p.seat, s->batch.n_running > 0);
}

static void *run(void *arg)
{
    struct sched *s = arg;
    while (wait_for_work(s)) {
        uint64_t now = clock_now_us();
        bool closing = atomic_load(&s->closing);
        batch_reap(&s->batch, closing, now);
        reap_queue(s, closing, now);
        admit(s);
        pthread_mutex_lock(&s->lock);
        publish(s);
        pthread_mutex_unlock(&s->lock);
        step(s);
        if (batch_awaits_pages(&s->batch)) await_news(s);
        feed_disk(s, false);
    }
    feed_disk(s, true);
    return NULL;
}

/* ---- lifecycle ----------------------------------------------------------------------------- */

static int init_sync(struct sched *s)
{
    s->has_lock = pthread_mutex_init(&s->lock, NULL) == 0;
    s->has_wake = thread_cond_init(&s->wake) == 0;
    return s->has_lock && s->has_wake ? 0 : -1;
}

static int open_disk(struct sched *s, char *err, size_t errlen)
{
    if (!s->p.disk) return 0;
    struct kv_disk_params params = *s->p.disk;
    s->p.disk = NULL;
    params.wake = tell_news;
    params.wake_ctx = s;
    return kv_disk_create(&s->batch.p.disk, &params, err, errlen);
}

int sched_create(struct sched **ret, const struct sched_params *params, char *err, size_t errlen)
{
    int rc = ENG_ENOMEM;
    struct sched *s = calloc(1, sizeof(*s));
    if (!s || init_sync(s)) {
        snprintf(err, errlen, "no memory for the scheduler");
        goto out;
    }
    s->p = *params;
    s->queue.global_priority = params->global_priority;
    s->limits = (struct job_limits){
        .vocab = params->batch.model.vocab,
        .ctx = params->batch.ctx,
        .max_choices = params->max_choices,
        .no_prefix_cache = params->no_prefix_cache,
        .reads_only = params->reads_only,
        .pools_last = params->pools_last,
        .pads = params->pads,
        .pad_id = params->pad_id,
    };
    atomic_init(&s->n_submitted, 0);
    atomic_init(&s->closing, false);
    rc = batch_init(&s->batch, &params->batch, err, errlen);
    if (!rc) rc = open_disk(s, err, errlen);
    if (rc) goto out;
    publish(s);
    int thread_errno = thread_start(&s->thread, "hearth-sched", 0, run, s);
    s->has_thread = thread_errno == 0;
    if (thread_errno) {
        snprintf(err, errlen, "the scheduler's thread cannot be started: %s%s",
                 strerror(thread_errno), os_error_remedy(thread_errno));
        rc = ENG_ENOMEM;
        goto out;
    }
    *ret = s;
    s = NULL;
out:
    sched_destroy(s);
    return rc;
}

void sched_stop(struct sched *s)
{
    if (!s->has_thread) return;
    assert(!pthread_equal(pthread_self(), s->thread)); /* it would wait for itself */
    pthread_mutex_lock(&s->lock);
    atomic_store(&s->closing, true);
    if (s->solo) eng_job_cancel(s->solo);
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    s->has_thread = false;
    assert(idle(s));
    pthread_mutex_lock(&s->lock);
    publish(s);
    pthread_mutex_unlock(&s->lock);
}

void sched_destroy(struct sched *s)
{
    if (!s) return;
    sched_stop(s);
    kv_disk_destroy(s->batch.p.disk);
    batch_finish(&s->batch);
    if (s->has_wake) pthread_cond_destroy(&s->wake);
    if (s->has_lock) pthread_mutex_destroy(&s->lock);
    free(s);
}
