/* SPDX-License-Identifier: MIT */
/*
 * Products through OpenBLAS, for matrices whose eng_mat.use_blas is set.
 *
 * Threads: any, after gemm_blas_init.
 */
#ifndef HEARTH_ENGINE_GEMM_BLAS_H
#define HEARTH_ENGINE_GEMM_BLAS_H

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
 * Puts one row at every place of the call shape and compares bits, for the given K. Returns false
 * if BLAS is not repeatable on this machine.
 */
bool gemm_blas_is_repeatable(int k_pad);

/* Bytes of per-thread scratch that gemm_blas_panel needs for a matrix of k_pad inputs. */
size_t gemm_blas_scratch_bytes(int k_pad);

/*
 * x [n_rows][ldx] (zero-padded to k_pad) times panel `panel` of m -> out columns 0..31. scratch:
 * 64-byte aligned. Rows are taken in blocks of one fixed shape, short blocks zero-padded.
 */
void gemm_blas_panel(const struct kern *kern, const struct eng_mat *m, int panel, const float *x,
                     size_t ldx, int n_rows, const struct kern_out *out, void *scratch);

#endif
