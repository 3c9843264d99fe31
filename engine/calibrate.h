/* SPDX-License-Identifier: MIT */
/*
 * Calibration of a model whose weights are packed for the inputs they get (path int4): one text
 * through the model, which sums the squares of the inputs of every product.
 */
#pragma once

#include "engine/model/model.h"

struct calibrate_text {
    int32_t ids[ENG_CALIBRATE_TOKENS];
    int n; /* 0: none, the model is not calibrated */
};

/* For eng_model_params; ctx is a struct calibrate_text, whose ids beyond the model's are left out.
 * The sums depend on the text, the weights and the kernels' level alone. */
eng_calibrate_fn calibrate_run;
