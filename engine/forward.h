/* SPDX-License-Identifier: MIT */
/*
 * One step of the transformer over any mix of prompt and decode rows.
 *
 * A step is a list of segments; a segment is n_tokens consecutive positions of one sequence. A
 * decode row is a segment of one token. Every row's result depends on its own sequence alone, bit
 * for bit: not on the other rows, their number, the split of prompts into steps, or the threads.
 *
 * Threads: everything here belongs to the scheduler thread; fwd_run uses the pool.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/step.h"

struct eng_model;
struct kv_layout;
struct pool;

struct fwd;

/* Sizes are fixed; nothing is allocated later. Pointers are borrowed until fwd_destroy. */
struct fwd_params {
    const struct eng_model *model;
    const struct kv_layout *layout;
    struct pool *pool;
    int max_rows; /* of a step */
    int max_segs;
    int max_logit_rows; /* of a step */
    int64_t ctx;        /* longest sequence */
    int lora_rank;      /* of the adapters of segments, at most; 0: they have none */
};

/*
 * Bytes of scratch and of the logits buffer that fwd_create would take, for the memory plan;
 * INT64_MAX if they exceed the address space. params->pool is not used.
 */
void fwd_plan(const struct fwd_params *params, int n_threads, int64_t *ret_scratch_bytes,
              int64_t *ret_logits_bytes);

/* Returns owned, or ENG_EINVAL, ENG_ENOMEM. */
int fwd_create(struct fwd **ret, const struct fwd_params *params, char *err, size_t errlen);
/* NULL is fine. */
void fwd_destroy(struct fwd *f);

/*
 * Returns false if `stop` ended it early: then the step's positions must be computed again, or the
 * step goes on in fwd_resume. Allocates nothing. Sizes beyond those of fwd_params are the caller's
 * mistake (asserted).
 */
bool fwd_run(struct fwd *f, const struct fwd_step *step);

/*
 * Goes on with the step that was ended early, of which everything borrowed is as it was, and
 * returns as fwd_run. Whatever `stop` is, a part of the work is done. Another fwd of the same pool
 * may run between the two.
 */
bool fwd_resume(struct fwd *f);

/*
 * Row i of logits of the last step, in the order of segments and of rows that want them: [vocab],
 * valid until the next fwd_run.
 */
const float *fwd_logits(const struct fwd *f, int i);

/*
 * The output of the model's heads for the text that segment i ended, which has `pool` and `ends`:
 * [heads.width], valid until the next fwd_run.
 */
const float *fwd_pooled(const struct fwd *f, int i);

/* Argmax of that row, the lowest id on a tie. *ret_finite: all its values are finite or -inf. */
int32_t fwd_argmax(const struct fwd *f, int i, bool *ret_finite);
