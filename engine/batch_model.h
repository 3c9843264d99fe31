/* SPDX-License-Identifier: MIT */
/* The model as the scheduler sees it; the functions are those of forward.h. */
#ifndef HEARTH_ENGINE_BATCH_MODEL_H
#define HEARTH_ENGINE_BATCH_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/step.h"

struct batch_model {
    bool (*run)(void *ctx, const struct fwd_step *step);
    const float *(*logits)(void *ctx, int row);
    int32_t (*argmax)(void *ctx, int row, bool *ret_finite);
    const float *(*pooled)(void *ctx, int segment);
    void *ctx;
    int32_t vocab;
    int d_model, pooled_width;
    const int32_t *eos_ids; /* borrowed */
    int n_eos_ids;
};

#endif
