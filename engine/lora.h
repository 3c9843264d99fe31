/* SPDX-License-Identifier: MIT */
/*
 * Adapters in a step. Rows that follow each other and have the same adapter form pieces, at most as
 * tall as a tile. A piece's products are in f32 and in one order, so the bits of a row depend on
 * its adapter and its own text alone; a row without adapter is in no piece.
 *
 * u = scale * factors * (A x) is made by an item of its own before the product (lora_shrink), and
 * B u is added to the columns of the product by the item that has just written them (lora_expand).
 *
 * Threads: the lists belong to the scheduler thread; items to any thread of the pool.
 */
#pragma once

#include "engine/gemm.h"
#include "engine/model/adapter.h"

struct eng_lora_use;

struct lora_piece {
    const struct eng_lora *lora;
    float scale;
    int row, n_rows; /* of the step's rows of a kind */
    int u_row;
};

struct lora_pieces {
    struct lora_piece *list; /* [ENG_MAX_LORAS * rows], in order of rows */
    int n, n_u;              /* pieces; rows of u */
};

/* Appends rows that use these adapters, which are added to products in this order. */
void lora_add(struct lora_pieces *p, const struct eng_lora_use *uses, int n_uses, int row,
              int n_rows, int tallest);

/*
 * One piece at a site (enum eng_lora_site of a layer, counted over the layers). src: rows as the
 * product reads them; tile: [rows of a piece][n_in]. u: [n_u][ld].
 */
void lora_shrink(const struct kern *kern, const struct lora_piece *piece, int site,
                 const struct gemm_source *src, float *tile, float *u, size_t ld);

/* Adds to n panels from `panel` on of rows row .. row + n_rows - 1; out: the first of both. */
void lora_expand(const struct kern *kern, const struct lora_pieces *p, int site, const float *u,
                 size_t ld, int panel, int n, int row, int n_rows, const struct kern_out *out);
