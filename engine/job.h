/* SPDX-License-Identifier: MIT */
/*
 * One job: a copy of the parameters it was submitted with, requests to end it, and its events.
 *
 * Threads: created and checked on the caller's thread; `cancel` and `stop` are atomics that any
 * thread sets; the place in the queue and n_admitted are guarded by the scheduler's lock while the
 * job waits; everything else belongs to the scheduler thread from submission on. The caller's
 * handle and the scheduler each hold a reference; the last one frees.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/draft.h"
#include "engine/job_types.h"
#include "engine/kv/prefix.h"

struct eng_end_ids;

/* The limits that a job is checked against. */
struct job_limits {
    int32_t vocab;
    int64_t ctx;
    int max_choices;
    bool no_prefix_cache;
    bool reads_only; /* the model makes no tokens */
    bool only_pools; /* and every job must have want_pooled */
    bool pools_last; /* its pooling needs the last row alone */
    bool pads;       /* ids pad_id at the end of a prompt are not looked at */
    int32_t pad_id;
    bool no_loras; /* the engine has no memory for adapters */
};

/* A choice of a spare job that gave way, as far as its ids and its guide do not say. */
struct job_parked {
    bool waits; /* for a slot */
    bool slow;  /* as in struct seq, and so on */
    int32_t untaken;
    int64_t n_generated, n_reached;
    struct draft draft;
};

struct eng_job {
    atomic_int refs;
    atomic_bool cancel;
    struct eng_job_params p; /* pointers point into this allocation */

    struct eng_job *next, *prev; /* in the queue */
    bool waits;                  /* counted by the queue's bounds */

    uint64_t serial; /* order of submission */
    int rank;        /* smaller goes first; see job_queue.h */
    uint64_t turn, place;
    int64_t max_new; /* tokens each choice may generate */
    int n_pages;     /* KV pages each choice reserves */
    struct prefix_scope scope;
    bool publishes;  /* full pages may be found in scope */
    bool needs_rows; /* every prompt row must be computed and sent */

    struct job_parked *parked; /* [n_choices] NULL: not spare */
    int32_t *parked_ids;       /* [n_choices][max_new] */

    int n_admitted;         /* choices that have left the queue */
    int n_parked;           /* those that are there again */
    int n_done;             /* choices that have ended */
    int64_t n_rows_out;     /* prompt rows sent so far, for needs_rows */
    bool cancelled, failed; /* some choice ended that way */
    uint64_t mask_turn;     /* when a mask of it last began in a lane, see masks.h */
    struct eng_usage usage;

    atomic_bool stop[]; /* [n_choices] */
};

/*
 * Checks and copies; serial (>= 1) is unique and in order of submission. Returns owned with two
 * references (eng_job_release), or a negative enum eng_error and a sentence.
 */
int job_create(struct eng_job **ret, const struct eng_job_params *params,
               const struct job_limits *limits, uint64_t serial, char *err, size_t errlen);

/* Choices that are in the queue, and the next of them, which leaves it. */
int job_n_waiting(const struct eng_job *job);
int job_take_choice(struct eng_job *job);

/* Returns true if id ends a choice, by the job's own list or the model's. */
bool job_is_stop_id(const struct eng_job *job, const struct eng_end_ids *eos, int32_t id);

/* Returns true if a goes before the older b: both have one key and rank, and a is more urgent. */
bool job_passes(const struct eng_job *a, const struct eng_job *b);

/* The reason why a job must end now: closing, cancelled or past its deadline; else 0. */
enum eng_finish job_verdict(const struct eng_job *job, bool closing, uint64_t now_us);

/* Returns true if its sequences may take cached pages: not while prompt rows must still be sent. */
bool job_reads_cache(const struct eng_job *job);

/* ---- events, on the scheduler thread ------------------------------------------------------- */

/* The caller sets the fields of the type but now_us, and stop_id of a choice; the others are 0. */
void job_emit(struct eng_job *job, struct eng_event *event, uint64_t now_us);

void job_emit_started(struct eng_job *job, uint64_t now_us);

/* A text's numbers. Returns false, and sends nothing, if one is not finite. */
bool job_emit_pooled(struct eng_job *job, const float *row, int n, uint64_t now_us);

/* One choice ended. Returns true if it was the last: then JOB_DONE has been delivered. */
bool job_emit_choice_done(struct eng_job *job, int choice, enum eng_finish finish, int32_t stop_id,
                          const char *error, uint64_t now_us);
