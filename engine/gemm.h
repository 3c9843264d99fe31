/* SPDX-License-Identifier: MIT */
/*
 * Products of many rows with a packed matrix, cut into items for the pool.
 *
 * gemm.c packs rows into tiles and walks panels; gemm_blas.h does it through BLAS. Which of the two
 * a matrix uses is fixed at load (eng_mat.use_blas), never by the number of rows.
 *
 * Threads: any; items write disjoint memory.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/model/model.h"
#include "engine/scratch.h"

/* ---- rows on their way into a product ------------------------------------------------------ */

/* The f32 rows to pack. */
struct gemm_source {
    const float *x; /* row i at x + (map ? map[i] : i) * ld */
    size_t ld;
    const int32_t *map; /* NULL: rows are consecutive */
    const float *norm;  /* weights [n_in] of an RMSNorm before packing, or NULL */
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
    enum kern_wfmt wfmt; /* of the weights they are multiplied with */
    bool blas;
    size_t act_bytes; /* of a number of data */
    int k_pad;
    int n_rows, n_tiles;
    int even, n_longer; /* rows of a tile; the first n_longer tiles have one more */
};

/* Buffers alone, for n rows of k_pad numbers of act_bytes. */
struct gemm_rows gemm_rows_take(struct scratch *s, size_t n, size_t k_pad, size_t act_bytes);

/*
 * Describes n_rows (>= 1) rows packed for m; the caller sets the buffers: data k_pad * 4 bytes per
 * row, scale and corr k_pad / 32 elements.
 */
void gemm_rows_init(struct gemm_rows *r, const struct eng_model *model, const struct eng_mat *m,
                    int n_rows);

/*
 * Normalises and packs the rows of one item of gemm_n_pack_items: a tile, or a part of a tall one.
 * tmp: [n_in] of the calling thread.
 */
void gemm_pack_item(const struct eng_model *model, const struct eng_mat *m,
                    const struct gemm_source *src, const struct gemm_rows *rows, int item,
                    float *tmp);
int gemm_n_pack_items(const struct gemm_rows *rows);

/* Adds the squares of the inputs of int8 rows to sums[k_pad], in an order of the rows alone. */
void gemm_add_squares(const struct gemm_rows *rows, float *sums);

/* ---- products ------------------------------------------------------------------------------ */

/* Scratch of one thread. */
struct gemm_thread {
    float *gate_up; /* gemm_gate_up_floats */
    int32_t *corr;  /* gemm_corr_numbers */
    void *blas;     /* gemm_blas_scratch_bytes of the largest matrix; NULL: none uses BLAS */
};

/*
 * Blocks first .. end - 1 of memory in runs of per_run blocks: block i is at
 * runs[i / per_run] + offset + (i % per_run) * block_bytes. first == end: none.
 */
struct gemm_blocks {
    uint8_t *const *runs;
    size_t offset, block_bytes;
    int per_run;
    int first, end;
};

/*
 * Memory to prefetch into L2 during an item: data for the next item of the thread (NULL: none), and
 * a range of blocks, of which each item of the matrix prefetches its share.
 */
struct gemm_ahead {
    const void *data;
    size_t bytes;
    struct gemm_blocks range;
};

/*
 * All rows times panels p0 .. p0 + n - 1 of m, plus bias, into columns 32 * p0 ... of `out`, whose
 * c is column 0 of the matrix.
 */
void gemm_panels(const struct eng_model *model, const struct eng_mat *m,
                 const struct gemm_rows *rows, int p0, int n, const struct kern_out *out,
                 const struct gemm_ahead *ahead, const struct gemm_thread *thread);

/*
 * A sum for gate and up before they are combined: `add` adds it to n panels from `panel` on of some
 * rows, whose sums are at `out`. rows not NULL: gets the results as f32, [rows][ld].
 */
struct gemm_delta {
    void (*add)(const struct gemm_delta *d, int panel, int n, int row, int n_rows,
                const struct kern_out *out);
    void *ctx;
    float *rows;
    size_t ld;
};

/*
 * The same for a gate-up matrix, whose gate and up panels alternate. Pairs p0 .. p0 + n - 1 of them
 * give inputs 32 * p0 ... of the down matrix: act(gate) * up, packed into `ret`, which describes as
 * many rows for the down matrix. Without gate (hp.ungated) a pair is one panel, and act(up) is
 * packed. delta: NULL for none.
 */
void gemm_gate_up(const struct eng_model *model, const struct eng_mat *m,
                  const struct gemm_rows *rows, int p0, int n, const struct gemm_rows *ret,
                  const struct gemm_delta *delta, const struct gemm_ahead *ahead,
                  const struct gemm_thread *thread);

/* Floats of gemm_thread.gate_up for steps of max_rows rows. */
size_t gemm_gate_up_floats(const struct eng_model *model, int max_rows);

/* Numbers of gemm_thread.corr for matrices of up to k_pad inputs. */
size_t gemm_corr_numbers(const struct eng_model *model, size_t k_pad);

static inline int ceil_div(int64_t a, int64_t b)
{
    return (int)((a + b - 1) / b);
}

/*
 * Units (panels, or pairs of them) per item if n_threads share n_units of unit_bytes: few items,
 * evenly divisible, and each large enough to be worth its claim.
 */
int gemm_units_per_item(int n_units, size_t unit_bytes, int n_threads);
