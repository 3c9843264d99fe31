/* SPDX-License-Identifier: MIT */
/* The scheduler thread; see scheduler.h for the order of a round. */
#include "engine/scheduler.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/fail.h"
#include "engine/cores.h"
#include "engine/job.h"
#include "engine/job_queue.h"
#include "engine/kv/disk.h"
#include "engine/kv/prefix.h"

enum {
    N_SERVED = 64,
    NEWS_MS = 10, /* longest wait for the disk: an end of a job from outside must not be late */
};

struct served_key {
    uint64_t fair_key, us;
};

struct sched {
    struct inbox in;
    struct batch batch;                 /* scheduler thread */
    struct served_key served[N_SERVED]; /* scheduler thread: keys admitted last */
    struct sched_params p;
    atomic_bool has_written; /* to the disk, all that it will */
    struct eng_job *solo;    /* the one job of the step that is running, or NULL; the inbox' lock */
};

/* ---- on any thread ------------------------------------------------------------------------- */

/* A job may start whenever slots and pages are free and no other waits for them. */
static bool starts_at_once(void *ctx, const struct backlog *waiting, struct eng_job *job)
{
    struct sched *s = ctx;
    job->waits = waiting->n_seqs >= atomic_load(&s->batch.n_free_slots) ||
                 waiting->n_pages + job->n_pages > atomic_load(&s->batch.n_free_pages);
    return !job->waits;
}

static int n_running(void *ctx, uint64_t fair_key)
{
    return batch_count_key(&((struct sched *)ctx)->batch, fair_key);
}

static void end_step(void *ctx)
{
    struct sched *s = ctx;
    if (s->solo) eng_job_cancel(s->solo);
    cores_give_way(s->p.member, false);
}

static void want_turn(void *ctx)
{
    struct sched *s = ctx;
    if (!inbox_is_spare(&s->in)) cores_give_way(s->p.member, false);
}

struct inbox *sched_inbox(struct sched *s)
{
    return &s->in;
}

bool sched_writes(const struct sched *s)
{
    return s->batch.p.disk && !atomic_load(&s->has_written);
}

void sched_disk_stats(struct sched *s, struct eng_kv_disk_stats *ret)
{
    if (s->batch.p.disk) kv_disk_stats(s->batch.p.disk, ret);
}

/* ---- the scheduler's thread ---------------------------------------------------------------- */

/* Copies the thread's own state for other threads. */
static void publish(struct sched *s)
{
    const struct batch *b = &s->batch;
    struct eng_stats *st = &s->batch.stats;
    st->n_running = b->n_running;
    st->n_spare = b->n_running - (batch_is_spare(b) ? 0 : batch_n_leading(b));
    st->n_pages_used = st->n_pages_total - kv_pages_free(s->p.batch.pages) - st->n_pages_cached;
    inbox_publish(&s->in, st);
}

/* Called by the disk's threads. */
static void tell_news(void *ctx)
{
    struct sched *s = ctx;
    inbox_tell(&s->in);
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
        inbox_await_news(&s->in, NEWS_MS);
    }
}

static void reap_queue(struct sched *s)
{
    struct eng_job *job;
    enum eng_finish finish;
    while ((job = inbox_take_ended(&s->in, s->batch.now_us, &finish))) {
        int n = job_n_waiting(job);
        assert(n > 0);
        while (n-- > 0) /* with the last one the job may be freed */
            batch_choice_done(&s->batch, job, job_take_choice(job), finish, -1, NULL);
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
static void note_served(struct sched *s, uint64_t fair_key)
{
    struct served_key *at = s->served;
    for (int i = 0; i < N_SERVED && at->fair_key != fair_key; i++)
        if (s->served[i].fair_key == fair_key || s->served[i].us < at->us) at = &s->served[i];
    *at = (struct served_key){fair_key, s->batch.now_us};
}

/*
 * With a global priority: a job that has waited long while its key was not served comes next. Of
 * several keys the one that was served longest ago, of its jobs the oldest.
 */
static void serve_starving(struct sched *s)
{
    const struct eng_job *head = inbox_first(&s->in);
    struct eng_job *best = NULL;
    uint64_t best_us = 0;
    if (!head || head->rank == QUEUE_PROMOTED) return;
    for (struct eng_job *job = s->in.queue.head; job; job = job->next) {
        uint64_t us = last_served_us(s, job->p.fair_key);
        uint64_t since_us = us > job->usage.submitted_us ? us : job->usage.submitted_us;
        if (job->p.fair_key == head->p.fair_key || s->batch.now_us - since_us < s->p.starving_us ||
            job->p.spare || inbox_holds_back(&s->in, job))
            continue;
        if (best && (us > best_us || (us == best_us && job->serial > best->serial))) continue;
        best = job;
        best_us = us;
    }
    if (best) queue_promote(&s->in.queue, best);
}

/* Parks spare sequences if that makes room for a sequence. With the inbox' lock held. */
static void make_room(struct sched *s, int n_pages)
{
    struct batch *b = &s->batch;
    if (atomic_load(&b->n_free_slots) == 0 || n_pages > atomic_load(&b->n_free_pages)) return;
    while (!batch_has_room(b, n_pages))
        queue_park(&s->in.queue, batch_park(b));
}

/* Takes the next choice of the first waiting job that its key has a slot for, if there is room for
 * it; else returns NULL. */
static struct eng_job *take_choice(struct sched *s, int *ret_choice)
{
    HOLD(&s->in.lock);
    s->batch.now_us = clock_now_us(); /* jobs may have arrived since the round began */
    if (s->in.queue.global_priority) serve_starving(s);
    struct eng_job *job = inbox_first(&s->in);
    if (job && !job->p.spare) make_room(s, job->n_pages);
    if (job && !batch_has_room(&s->batch, job->n_pages)) job = NULL;
    if (job) {
        if (!job->p.spare) note_served(s, job->p.fair_key);
        batch_claim(&s->batch, job->p.spare ? 0 : job->p.fair_key);
        *ret_choice = job_take_choice(job);
        if (job_n_waiting(job) == 0) queue_remove(&s->in.queue, job);
    }
    bool spare = batch_is_spare(&s->batch) && (!s->in.queue.head || inbox_is_spare(&s->in));
    if (!job) cores_give_way(s->p.member, spare);
    return job;
}

static void admit(struct sched *s)
{
    struct eng_job *job;
    int choice;
    while ((job = take_choice(s, &choice))) {
        if (atomic_load(&job->stop[choice])) { /* it does not have to run at all */
            batch_claim(&s->batch, 0);
            batch_choice_done(&s->batch, job, choice, ENG_FINISH_STOP, -1, NULL);
        } else {
            batch_admit(&s->batch, job, choice);
        }
    }
}

/* Sets the job that closing must cancel to end the step at once. */
static void set_solo(struct sched *s, struct eng_job *job)
{
    HOLD(&s->in.lock);
    s->solo = job;
    if (job && atomic_load(&s->in.closing)) eng_job_cancel(job);
}

static void step(struct sched *s)
{
    bool complete = true;
    cores_enter(s->p.member);
    batch_build(&s->batch);
    if (s->batch.n_segs > 0) {
        set_solo(s, batch_solo_job(&s->batch));
        complete = batch_compute(&s->batch, &s->in.closing);
        set_solo(s, NULL);
        if (complete) batch_deliver(&s->batch);
    }
    if (complete) batch_make_masks(&s->batch);
    if (complete) batch_catch_up(&s->batch);
    s->batch.shared = cores_leave(s->p.member, s->batch.n_running > 0);
}

static void *run(void *arg)
{
    struct sched *s = arg;
    while (inbox_await(&s->in, s->batch.n_running > 0)) {
        s->batch.now_us = clock_now_us();
        batch_reap(&s->batch, atomic_load(&s->in.closing));
        reap_queue(s);
        admit(s);
        publish(s);
        step(s);
        if (batch_awaits_pages(&s->batch)) inbox_await_news(&s->in, NEWS_MS);
        feed_disk(s, false);
        publish(s);
    }
    feed_disk(s, true);
    publish(s);
    atomic_store(&s->has_written, true);
    return NULL;
}

/* ---- lifecycle ----------------------------------------------------------------------------- */

static int open_disk(struct sched *s, char *err, size_t errlen)
{
    if (!s->p.disk) return 0;
    struct kv_disk_params params = *s->p.disk;
    s->p.disk = NULL;
    params.wake = tell_news;
    params.wake_ctx = s;
    return kv_disk_create(&s->batch.p.disk, &params, err, errlen);
}

static struct inbox_params inbox_params(struct sched *s, const struct sched_params *p)
{
    struct inbox_params in = p->in;
    in.limits.vocab = p->batch.model.vocab;
    in.limits.ctx = p->batch.ctx;
    in.starts_at_once = starts_at_once;
    in.n_running = n_running;
    in.on_submit = want_turn;
    in.on_stop = end_step;
    in.ctx = s;
    return in;
}

int sched_create(struct sched **ret, const struct sched_params *params, char *err, size_t errlen)
{
    struct sched *s = calloc(1, sizeof(*s));
    if (!s) return fail_with(ENG_ENOMEM, err, errlen, "no memory for the scheduler");
    s->p = *params;
    struct inbox_params in = inbox_params(s, params);
    inbox_init(&s->in, &in);
    int rc = batch_init(&s->batch, &params->batch, err, errlen);
    if (!rc) rc = open_disk(s, err, errlen);
    if (!rc) publish(s);
    if (!rc) rc = inbox_start(&s->in, "hearth-sched", run, s, err, errlen);
    if (rc)
        sched_destroy(s);
    else
        *ret = s;
    return rc;
}

void sched_destroy(struct sched *s)
{
    if (!s) return;
    inbox_stop(&s->in);
    kv_disk_destroy(s->batch.p.disk);
    batch_finish(&s->batch);
    inbox_finish(&s->in);
    free(s);
}
