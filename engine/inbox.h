/* SPDX-License-Identifier: MIT */
/*
 * The jobs that wait for a scheduler, and the thread that takes them: what the scheduler of
 * generation (scheduler.h) and that of encoders (encode_queue.h) have in common.
 *
 * Any thread submits, under a short lock; the scheduler's thread sleeps here while there is nothing
 * to do, and takes out of the queue what it admits and what must end.
 *
 * Threads: any, unless a function says that it belongs to the scheduler's thread. Fields below
 * `lock` are guarded by it.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/job.h"
#include "engine/job_queue.h"
#include "engine/job_types.h"

/* Waiting sequences, jobs and tokens, and the pages they would reserve. Cancelled ones do not
 * count: they end before the next step. */
struct backlog {
    int n_held;       /* sequences of keys that have all their slots, */
    int n_seqs;       /* and others: the pages are theirs */
    int n_jobs;       /* jobs that had to wait on arrival and of which no choice has started */
    int64_t n_tokens; /* their prompts */
    int64_t n_pages;
};

struct inbox_params {
    /* Of the engine: */
    int max_jobs;             /* that wait */
    int64_t max_tokens;       /* of prompts that wait */
    bool global_priority;     /* as in eng_params */
    struct job_limits limits; /* vocab and ctx are the scheduler's */
    /* Of the scheduler: */
    int n_step_jobs; /* of those that wait, which the next step takes and which do not count */
    /* Called with the lock held. Returns true if the job, which is not in the queue yet, can start
     * with the next step: then it is never refused. May set job->waits. */
    bool (*starts_at_once)(void *ctx, const struct backlog *waiting, struct eng_job *job);
    int (*n_running)(void *ctx, uint64_t fair_key); /* the same: sequences of that key */
    void (*on_submit)(void *ctx);                   /* the same: a job is in the queue; or NULL */
    void (*on_stop)(void *ctx); /* the same: `closing` is set; the running step is to end */
    void *ctx;
};

struct inbox {
    struct inbox_params p;
    atomic_uint_fast64_t n_submitted;
    atomic_bool closing;
    pthread_t thread;
    bool has_thread;

    pthread_mutex_t lock;   /* held for a walk of the queue at most */
    pthread_cond_t wake;    /* new jobs, closing, resumed, news */
    struct queue queue;     /* jobs with choices that have not been admitted */
    struct eng_stats stats; /* of the scheduler, as other threads see them */
    bool draining, paused;
    bool news; /* see inbox_tell */
};

void inbox_init(struct inbox *in, const struct inbox_params *params);
/* Starts the scheduler's thread. Returns 0 or ENG_ENOMEM. */
int inbox_start(struct inbox *in, const char *name, void *(*run)(void *arg), void *arg, char *err,
                size_t errlen);
/* Ends waiting and running jobs as cancelled: from now on none is taken. */
void inbox_close(struct inbox *in);
/* The same, and joins. Not on the scheduler's thread. */
void inbox_stop(struct inbox *in);
void inbox_finish(struct inbox *in);

/* As the functions of the same names in engine.h. */
int inbox_submit(struct inbox *in, const struct eng_job_params *params, struct eng_job **ret,
                 char *err, size_t errlen);
void inbox_stats(struct inbox *in, struct eng_stats *ret);
void inbox_drain(struct inbox *in);
void inbox_pause(struct inbox *in, bool paused);

/* Wakes the scheduler's thread: something that is not a job has come. */
void inbox_tell(struct inbox *in);

/* ---- the scheduler's thread ---------------------------------------------------------------- */

/* Sleeps while nothing runs, waits or is told. Returns false at the end. */
bool inbox_await(struct inbox *in, bool running);
/* Sleeps until something is told, for at most ms. */
void inbox_await_news(struct inbox *in, int ms);

/* Whether the job waits for a slot of its key. With the lock held. */
bool inbox_holds_back(const struct inbox *in, const struct eng_job *job);
/* The first waiting job that does not, or NULL. With the lock held. */
struct eng_job *inbox_first(const struct inbox *in);

/* Whether jobs wait, and all are spare. With the lock held. */
bool inbox_is_spare(const struct inbox *in);

/* Takes out of the queue a job that must end now. Returns NULL if there is none. */
struct eng_job *inbox_take_ended(struct inbox *in, uint64_t now_us, enum eng_finish *ret_finish);

/* Makes stats those that other threads see. */
void inbox_publish(struct inbox *in, const struct eng_stats *stats);
