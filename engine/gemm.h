/* SPDX-License-Identifier: MIT */
/*
 * Products of many rows with a packed matrix, cut into items for the pool.
 *
 * gemm.c packs rows into tiles and walks panels; gemm_blas.c, the only file that sees BLAS, expands
 * panels to f32 and calls sgemm with one fixed shape. Which of the two a matrix uses is fixed at
 * load (eng_mat.use_blas), never by the number of rows.
 *
 * Threads: any; what is written is disjoint between items.
 */
#ifndef HEARTH_ENGINE_GEMM_H
#define HEARTH_ENGINE_GEMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/model/model.h"

/* ---- rows on their way into a product ------------------------------------------------------ */

/* Where f32 rows come from, and what is done to them first. */
struct gemm_source {
    const float *x; /* row i at x + (map ? map[i] : i) * ld */
    size_t ld;
    const int32_t *map; /* NULL: rows lie one after the other */
    const float *norm;  /* RMSNorm weights [n_in], or NULL */
    float eps;
};

/*
 * Packed rows: tiles of nearly equal height, at most the kernel's tallest, tile after tile. For a
 * matrix that uses BLAS one "tile" of all rows, f32 [n_rows][k_pad].
 */
struct gemm_rows {
    uint8_t *data;
    float *scale; /* of int8 rows only, with corr */
    int32_t *corr;
    enum kern_afmt fmt;
    enum kern_wfmt wfmt; /* of the weights they meet */
    bool blas;
    int k_pad;
    int n_rows, n_tiles;
    int even, n_longer; /* rows of a tile; the first n_longer tiles have one more */
};

/*
 * Describes n_rows (>= 1) rows packed for m; the buffers are set by the caller: data k_pad * 4
 * bytes a row, scale and corr k_pad / 32.
 */
void gemm_rows_init(struct gemm_rows *r, const struct eng_model *model, const struct eng_mat *m,
                    int n_rows);

/* Normalises and packs the rows of one tile. tmp: [n_in] of the calling thread. */
void gemm_pack_tile(const struct eng_model *model, const struct eng_mat *m,
                    const struct gemm_source *src, const struct gemm_rows *rows, int tile,
                    float *tmp);

/* ---- products ------------------------------------------------------------------------------ */

/* What one thread needs besides. */
struct gemm_thread {
    float *gate_up; /* gemm_gate_up_floats */
    void *blas;     /* gemm_blas_scratch_bytes of the largest matrix; NULL: none uses BLAS */
};

/*
 * Blocks first .. end - 1 of memory that lies in runs of per_run blocks: block i is at
 * runs[i / per_run] + offset + (i % per_run) * block_bytes. first == end: none.
 */
struct gemm_blocks {
    uint8_t *const *runs;
    size_t offset, block_bytes;
    int per_run;
    int first, end;
};

/*
 * What to bring nearer meanwhile: something worth having in L2 when this item ends (data NULL:
 * nothing), and blocks that all items of the matrix together bring, each its share.
 */
struct gemm_ahead {
    const void *data;
    size_t bytes;
    struct gemm_blocks beside;
};

/*
 * All rows times panels p0 .. p0 + n - 1 of m, bias added, into columns 32 * p0 ... of `out`, whose
 * c is column 0 of the matrix.
 */
void gemm_panels(const struct eng_model *model, const struct eng_mat *m,
                 const struct gemm_rows *rows, int p0, int n, const struct kern_out *out,
                 const struct gemm_ahead *ahead, const struct gemm_thread *thread);

/*
 * The same for a gate-up matrix, whose panels alternate: pairs p0 .. p0 + n - 1 of them give inputs
 * 32 * p0 ... of the down matrix, silu(gate) * up, packed at once into `ret`: as many rows, described
 * for that matrix.
 */
void gemm_gate_up(const struct eng_model *model, const struct eng_mat *m,
                  const struct gemm_rows *rows, int p0, int n, const struct gemm_rows *ret,
                  const struct gemm_ahead *ahead, const struct gemm_thread *thread);

/* Floats of gemm_thread.gate_up for steps of max_rows rows. */
size_t gemm_gate_up_floats(const struct eng_model *model, int max_rows);

/*
 * How many units (panels, or pairs of them) one item takes when n_units of unit_bytes are shared by
 * n_threads: few items, evenly divisible, and each large enough to be worth its claim.
 */
int gemm_units_per_item(int n_units, size_t unit_bytes, int n_threads);

#endif
