/* SPDX-License-Identifier: MIT */
/*
 * The running sequences, and the steps that compute them.
 *
 * batch.c          slots, admission against the reserved pages, ending, building a step: one row
 *                  per decoding sequence, then up to chunk_tokens prompt rows in order. Spare
 *                  sequences have the steps when no other runs, and of those in which others
 *                  only decode the rows that hardly lengthen them.
 * batch_deliver.c  results of a step: positions advance, pages are published, tokens drawn, events
 *                  sent.
 *
 * The reservations of the running sequences never exceed the number of pages, whatever they share;
 * other pages are at most idle ones of the prefix cache, which can be evicted. So an admitted
 * sequence always gets its pages. Only spare sequences are preempted: see scheduler.h.
 *
 * Threads: the scheduler thread only. Nothing is allocated after batch_init.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/batch_model.h"
#include "engine/draft.h"
#include "engine/drafter.h"
#include "engine/forward.h"
#include "engine/job_types.h"
#include "engine/kv/kv.h"
#include "engine/masks.h"
#include "engine/params.h"
#include "engine/kv/prefix.h"
#include "engine/sequence.h"
#include "engine/state.h"

struct eng_job;
struct kern;
struct pool;
struct sampler;

/*
 * A step may compute one row of logits per sequence and this many more: of prompts, and of drafts,
 * whose rows come on top of those of tokens and prompts too.
 */
enum { BATCH_EXTRA_LOGIT_ROWS = 32 };

/* Everything is borrowed as long as the batch lives. */
struct batch_params {
    struct batch_model model;
    const struct kern *kern;
    struct pool *pool; /* draws the tokens of a step on all its threads; NULL: on this one */
    struct kv_pages *pages;
    size_t page_bytes;
    struct state_layout states;
    int n_snapshots; /* of states, in the prefix cache */
    uint64_t hash_seed;
    int n_parallel;
    int chunk_tokens;
    int64_t ctx;
    enum eng_speculate speculate;
    struct kv_disk *disk;      /* NULL: none */
    struct drafters *drafters; /* NULL: none */
};

/* One token to be drawn from one row of logits. */
struct batch_draw {
    struct seq *seq;
    int row;
    int n_left; /* rows of the draft after it */
    const float *logits;
    int32_t id; /* the argmax; after drawing, the token or SAMPLE_NOTHING */
    bool finite;
    bool plain;   /* the argmax is the token */
    bool refused; /* the guide did not take the token: a fault of the guide */
    float logprob;
    int n_top;
    struct eng_logprob top[ENG_MAX_LOGPROBS];
};

struct batch {
    struct batch_params p;
    void *memory; /* of all lists */
    struct prefix *cache;
    uint64_t now_us;    /* of events; the scheduler sets it before it calls, a step when it ends */
    struct seq *slots;  /* [n_parallel] */
    struct seq **order; /* [n_parallel] running: by rank, admission, within a key priority */
    int n_running;
    int n_reserved; /* pages */
    /* For other threads; when a client sees the end of a job, its slot is already counted. What
     * spare sequences have counts as free. */
    atomic_int n_free_slots;
    atomic_int n_free_pages;   /* not reserved */
    atomic_ullong *keys;       /* [n_parallel] fair_key of the sequence in each slot; 0: free */
    struct sampler **samplers; /* one per thread of the pool */
    int n_samplers;
    struct eng_logprob listed[ENG_MAX_LISTED]; /* of the token that is delivered */
    struct masks masks;
    /* the current step */
    struct fwd_segment *segs; /* [n_parallel] */
    struct seq **seg_seqs;    /* [n_parallel] */
    int n_segs;
    int n_extra_rows; /* of logits, more than one per segment */
    int n_prompt_rows;
    int n_restoring; /* sequences whose pages are being read */
    double step_us;  /* the time it took */
    bool shared;     /* another engine waits for its turn: at most turn_rows prompt rows */
    int turn_rows;
    int n_draft_segs;    /* the first segments, which drafts by a second model may lengthen */
    int n_spare_rows;    /* of spare sequences, in a step in which others decode, */
    int most_spare_rows; /* and in the last such step that had any */
    double spare_us;     /* that such rows may lengthen steps by */
    uint64_t others_us;  /* when a sequence that is not spare ran last; 0: never */
    struct draft_cost cost;
    uint64_t *draft_mask;     /* of the id that a drafter draws */
    struct batch_draw *draws; /* [n_parallel] */
    int n_draws;
    int n_decoded;          /* tokens drawn for sequences that were decoding */
    struct eng_stats stats; /* without the counts of waiting jobs, which the scheduler adds */
    double prompt_tokens, prompt_us, generated_tokens,
        generated_us; /* decayed sums for the rates */
};

/* 0 or ENG_ENOMEM; call batch_finish in either case. */
int batch_init(struct batch *b, const struct batch_params *params, char *err, size_t errlen);
void batch_finish(struct batch *b);

/*
 * The prompt rows of the next step while another engine waits, after one of n rows (most: chunk)
 * that took so long: fewer if it took more than 10 ms, more if it took less than half of that.
 */
int batch_fit_turn(int n, int most, double step_us);

/* Bytes that batch_init takes, but for states and snapshots, for the memory plan. */
int64_t batch_bytes(int n_parallel, int n_threads, int64_t n_pages, int64_t ctx, int32_t vocab,
                    int d_model);

/* Returns true if a slot and n_pages unreserved pages are available. */
bool batch_has_room(const struct batch *b, int n_pages);

/* Sets whose the slot is that batch_admit takes next; batch_has_room was true. */
void batch_claim(struct batch *b, uint64_t fair_key);

/* The slots of a key that is not 0. Any thread. */
int batch_count_key(const struct batch *b, uint64_t fair_key);

/* Takes a choice of the job into the slot that was claimed for it. */
void batch_admit(struct batch *b, struct eng_job *job, int choice);

/* Whether all that runs is spare. */
bool batch_is_spare(const struct batch *b);

/* The running sequences that are not spare, or all if all are spare: the first ones. */
int batch_n_leading(const struct batch *b);

/* Takes the youngest sequence, which is spare, out of its slot; the job waits again. */
struct eng_job *batch_park(struct batch *b);

/* Ends the sequences that were cancelled or stopped from outside or are past their deadline. */
void batch_reap(struct batch *b, bool closing);

/*
 * Reports the end of a choice; with the last one the job is counted and the scheduler's reference
 * to it dropped.
 */
void batch_choice_done(struct batch *b, struct eng_job *job, int choice, enum eng_finish finish,
                       int32_t stop_id, const char *error);

/* Ends a running sequence: its slot and pages are free when this returns. */
void batch_end_seq(struct batch *b, struct seq *s, enum eng_finish finish, int32_t stop_id,
                   const char *error);

/*
 * One step in three parts. batch_build chooses the rows; n_segs is 0 if there are none.
 * batch_compute adds drafts by a second model and runs them; it returns false if the step was
 * abandoned because the one job that all its rows belong to was cancelled, or because of closing.
 * batch_deliver evaluates a complete step.
 */
void batch_build(struct batch *b);
bool batch_compute(struct batch *b, const atomic_bool *closing);
void batch_deliver(struct batch *b); /* batch_deliver.c */

/*
 * Lengthens the segments of the step that b has built by drafts of a second model, where it is only
 * decoding and they are worth their time. Gives up once *stop is true (NULL: never); the step must
 * be computed next. batch_draft.c
 */
void batch_draft(struct batch *b, const atomic_bool *stop);

/* The gain expected of drafts by a second model for s; see drafter_promise. batch_draft.c */
double batch_draft_promise(const struct batch *b, const struct seq *s);

/*
 * After a step: the draft model computes a piece of what it has not computed of a sequence that
 * decodes, for a tenth of the time of steps. batch_draft.c
 */
void batch_catch_up(struct batch *b);

/*
 * After a step, or without one: works on the masks that sequences await, for a share of the time
 * that the step took. Sequences whose guide allows nothing more end.
 */
void batch_make_masks(struct batch *b); /* batch_deliver.c */

/* Counts n_decoded for the measured rate. */
void batch_count_decoded(struct batch *b);

/* Returns true if all that runs waits for pages that are being read. */
bool batch_awaits_pages(const struct batch *b);

/* The job that all rows of the step belong to, or NULL. */
struct eng_job *batch_solo_job(const struct batch *b);
