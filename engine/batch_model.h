/* SPDX-License-Identifier: MIT */
/* A forward pass as a scheduler sees it, so that tests can have another. Encoders have no logits,
 * argmax and end ids. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "engine/step.h"

struct eng_end_ids;
struct eng_model;
struct fwd;

struct batch_model {
    bool (*run)(struct fwd *ctx, const struct fwd_step *step);
    bool (*resume)(struct fwd *ctx); /* goes on with a step that was stopped; of encoders */
    double (*us)(
        struct fwd *ctx); /* the time that the last run counts as; NULL: as it was measured */
    const float *(*logits)(const struct fwd *ctx, int row);
    int32_t (*argmax)(const struct fwd *ctx, int row, bool *ret_finite);
    const float *(*pooled)(const struct fwd *ctx, int segment);
    struct fwd *ctx; /* tests have another type of that name */
    int32_t vocab;
    int d_model, pooled_width;
    const struct eng_end_ids *eos; /* borrowed; it only grows before the first job */
};

/* Borrows both. forward.c */
struct batch_model batch_model_of(const struct eng_model *model, struct fwd *fwd);

/* Returns false if the step was stopped. *ret_us: its time, from which costs are learned. */
static inline bool batch_model_run(const struct batch_model *m, const struct fwd_step *step,
                                   double *ret_us)
{
    uint64_t start = clock_now_us();
    bool complete = m->run(m->ctx, step);
    *ret_us = m->us ? m->us(m->ctx) : (double)(clock_now_us() - start);
    return complete;
}
