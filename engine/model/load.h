/* SPDX-License-Identifier: MIT */
/* The life of a model: opened, filled with weights, closed. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/model/model.h"

struct eng_numerics;
struct kern;
struct pool;

struct eng_model_params {
    const char *dir;
    const struct eng_numerics *numerics; /* NULL: bf16 if the CPU has it and the matrices are BF16,
                                          * else exact */
    bool drafts;                         /* numerics NULL: int4, file of quantised weights */
    const struct kern *kern;
    const char *gemm;          /* "auto", "native", "blas"; "native" if BLAS is not available */
    const char *weight_coding; /* "auto" or NULL: as measured, "on", "off" */
    const atomic_bool *stop;   /* eng_model_fill gives up once it is true; NULL: never */
    /* Of a path with affine matrices: called by eng_model_fill once the weights are packed, to run
     * the model on a text (eng_mat.squares). They are read again then, and packed for these
     * inputs. NULL: all columns count alike. */
    eng_calibrate_fn *calibrate;
    void *calibrate_ctx;
    bool adapters;        /* the plan is kept, for eng_adapter_open */
    int64_t memory_bytes; /* weights beyond this are refused with the sums; 0: no limit */
};

/*
 * Two steps, so that memory can be planned between them: eng_model_open reads config.json and
 * every safetensors header, checks names, dtypes and shapes against the config, and fills hp,
 * numerics and weights_bytes without allocating for weights; eng_model_fill allocates, reads and
 * packs on all threads of the pool, and computes RoPE tables for ctx positions (ctx <=
 * hp.ctx_max), or more if the calibration's text is longer. Errors are enum eng_error.
 * eng_model_close takes NULL and half-loaded models.
 */
int eng_model_open(struct eng_model **ret, const struct eng_model_params *params, char *err,
                   size_t errlen);
int eng_model_fill(struct eng_model *m, struct pool *pool, int64_t ctx, char *err, size_t errlen);
void eng_model_close(struct eng_model *m);

/* Bytes of weights that a step of one row reads. */
int64_t eng_model_step_bytes(const struct eng_model *m);

/* The positions that eng_model_fill makes tables for, so that weights do not depend on ctx. */
int64_t eng_model_positions(const struct eng_model *m, int64_t ctx);

/* Bytes of the RoPE tables for ctx positions, which eng_model_fill adds to weights_bytes. */
int64_t eng_model_rope_bytes(const struct eng_model *m, int64_t ctx);
