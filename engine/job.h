/* SPDX-License-Identifier: MIT */
/*
 * One job: the parameters it was submitted with, copied; what the outside asks of it; its events.
 *
 * Threads: created and checked on the caller's thread; `cancel` and `stop` are atomics that any
 * thread sets; the place in the queue and n_admitted are guarded by the scheduler's lock while the
 * job waits; all else belongs to the scheduler thread from submission on. Two owners hold a
 * reference: the caller's handle and the scheduler; the last one frees.
 */
#ifndef HEARTH_ENGINE_JOB_H
#define HEARTH_ENGINE_JOB_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/engine.h"
#include "engine/prefix.h"

/* What a job is checked against. */
struct job_limits {
    int32_t vocab;
    int64_t ctx;
    int max_choices;
    bool no_prefix_cache;
};

struct eng_job {
    atomic_int refs;
    atomic_bool cancel;
    struct eng_job_params p; /* pointers lead into this allocation */

    struct eng_job *next, *prev; /* in the queue */
    bool waits;                  /* counted by the queue's bounds */

    uint64_t serial; /* order of submission */
    int rank;        /* smaller goes first; see job_queue.h */
    uint64_t turn, place;
    int64_t max_new; /* tokens each choice may generate */
    int n_pages;     /* KV pages each choice reserves */
    struct prefix_scope scope;
    bool publishes;  /* full pages may be found in scope */
    bool needs_rows; /* every prompt row must be computed and given out */

    int n_admitted;         /* choices that have left the queue */
    int n_done;             /* choices that have ended */
    int64_t n_rows_out;     /* prompt rows given out so far, for needs_rows */
    bool cancelled, failed; /* some choice ended that way */
    struct eng_usage usage;

    atomic_bool stop[]; /* [n_choices] */
};

/*
 * Checks and copies; serial (>= 1) is unique and in order of submission. Returns owned with two
 * references, or a negative enum eng_error and a sentence.
 */
int job_create(struct eng_job **ret, const struct eng_job_params *params,
               const struct job_limits *limits, uint64_t serial, char *err, size_t errlen);
void job_unref(struct eng_job *job);

/* Whether id ends a choice, by the job's own list or the model's. */
bool job_is_stop_id(const struct eng_job *job, const int32_t *eos_ids, int n_eos_ids, int32_t id);

/* Whether a goes before b, which is older: both are of one key and rank, and a is more urgent. */
bool job_passes(const struct eng_job *a, const struct eng_job *b);

/* Whether its sequences may take pages of the cache: not while prompt rows are still owed. */
bool job_reads_cache(const struct eng_job *job);

/* ---- events, on the scheduler thread ------------------------------------------------------- */

/* Fills nothing in but the type's own fields; the rest of the event is zero, stop_id is -1. */
void job_emit(struct eng_job *job, struct eng_event *event);

void job_emit_started(struct eng_job *job, uint64_t now_us);

/* One choice is over. Returns true when that was the last: then JOB_DONE has been delivered. */
bool job_emit_choice_done(struct eng_job *job, int choice, enum eng_finish finish, int32_t stop_id,
                          const char *error, uint64_t now_us);

#endif
