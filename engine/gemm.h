/* SPDX-License-Identifier: MIT */
/*
 * Products of many rows with a packed matrix, cut into items for the pool.
 *
 * gemm.c packs rows into tiles and walks panels; gemm_blas.c, the only file that sees cblas, expands
 * panels to f32 and calls sgemm with one fixed shape. Which of the two a matrix uses is fixed at load
 * (eng_mat.use_blas), never by the number of rows.
 */
#ifndef HEARTH_ENGINE_GEMM_H
#define HEARTH_ENGINE_GEMM_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/model.h"

/* ---- the BLAS backend --------------------------------------------------------------------------- */

/* Makes OpenBLAS run one thread and returns its core name ("Cooperlake"), or NULL where it was built out. Once, before threads. */
const char *gemm_blas_init(void);

/* Puts one row at every place of the call shape and compares bits, for the given K; false: not repeatable here. */
bool gemm_blas_is_repeatable(int k_pad);

/* Bytes of per-thread scratch that gemm_blas_panel needs for a matrix of k_pad inputs. */
size_t gemm_blas_scratch_bytes(int k_pad);

/*
 * x [n_rows][ldx] (zero-padded to k_pad) times panel `panel` of m -> out columns 0..31. scratch: 64-byte aligned.
 * Rows are taken in blocks of one fixed shape, short blocks zero-padded.
 */
void gemm_blas_panel(const struct eng_mat *m, int panel, const float *x, size_t ldx, int n_rows,
                     const struct kern_out *out, void *scratch);

#endif
