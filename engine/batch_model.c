/* SPDX-License-Identifier: MIT */
/* A forward pass as the schedulers see it; see batch_model.h. */
#include "engine/batch_model.h"

#include "engine/forward.h"
#include "engine/model/model.h"

struct batch_model batch_model_of(const struct eng_model *model, struct fwd *fwd)
{
    return (struct batch_model){.run = fwd_run,
                                .resume = fwd_resume,
                                .logits = fwd_logits,
                                .argmax = fwd_argmax,
                                .pooled = fwd_pooled,
                                .ctx = fwd,
                                .vocab = model->hp.vocab,
                                .d_model = model->hp.d_model,
                                .pooled_width = model->heads.width,
                                .eos = &model->hp.eos};
}
