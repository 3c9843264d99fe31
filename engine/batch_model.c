/* SPDX-License-Identifier: MIT */
/* A forward pass as the schedulers see it; see batch_model.h. */
#include "engine/batch_model.h"

#include "engine/forward.h"
#include "engine/model/model.h"

static bool run(void *ctx, const struct fwd_step *step)
{
    return fwd_run(ctx, step);
}

static bool resume(void *ctx)
{
    return fwd_resume(ctx);
}

static const float *logits(void *ctx, int row)
{
    return fwd_logits(ctx, row);
}

static int32_t argmax(void *ctx, int row, bool *ret_finite)
{
    return fwd_argmax(ctx, row, ret_finite);
}

static const float *pooled(void *ctx, int segment)
{
    return fwd_pooled(ctx, segment);
}

struct batch_model batch_model_of(const struct eng_model *model, struct fwd *fwd)
{
    return (struct batch_model){.run = run,
                                .resume = resume,
                                .logits = logits,
                                .argmax = argmax,
                                .pooled = pooled,
                                .ctx = fwd,
                                .vocab = model->hp.vocab,
                                .d_model = model->hp.d_model,
                                .pooled_width = model->heads.width,
                                .eos = &model->hp.eos};
}
