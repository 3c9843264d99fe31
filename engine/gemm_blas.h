/* SPDX-License-Identifier: MIT */
/*
 * Products through OpenBLAS, for matrices whose eng_mat.use_blas is set.
 *
 * Threads: any, after gemm_blas_init.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "engine/model/model.h"

/*
 * Loads OpenBLAS with one thread and returns its core name ("Cooperlake"); NULL if it is not part
 * of the build or cannot be loaded. Call it once, before other threads exist: it sets an
 * environment variable.
 */
const char *gemm_blas_init(void);

/*
 * Sets m->blas, for which m's k_pad and fmt are looked at: calls that give a row the same bits at
 * every place and whatever the number of rows. Returns false if there are none, as where OpenBLAS
 * gives other bits every time, or no memory; m->blas is then calls of the usual height. Takes below
 * a millisecond for a K of 2,000.
 */
bool gemm_blas_settle(struct eng_mat *m);

/* The same for all matrices of the model whose use_blas is set; false if one has no such calls. */
bool gemm_blas_settle_model(struct eng_model *model);

/* Bytes of per-thread scratch that gemm_blas_panel needs for a matrix of k_pad inputs. */
size_t gemm_blas_scratch_bytes(int k_pad);

/*
 * x [n_rows][ldx] (zero-padded to k_pad) times panel `panel` of m, whose calls are settled -> out
 * columns 0..31. scratch: 64-byte aligned.
 */
void gemm_blas_panel(const struct kern *kern, const struct eng_mat *m, int panel, const float *x,
                     size_t ldx, int n_rows, const struct kern_out *out, void *scratch);
