/* SPDX-License-Identifier: MIT */
/*
 * Quantised rows of files: blocks of 32 or 256 weights with their scales, as ggml's quantisers
 * write them. Each type has a panel form that holds its weights without rounding (but IQ4_XS, whose
 * two scales are multiplied and rounded to F16 there).
 *
 * A weight's value is (scale * s) * q, then plus its minimum, each product rounded once in f32: s
 * is the block's second scale, 1 if it has none; the minimum is m, or -(m * its own second scale).
 *
 * Pure; any thread. Rows may have any alignment.
 */
#pragma once

#include "engine/kernels/kernels.h"

static inline bool kern_is_blocks(enum kern_src src)
{
    return src >= KERN_SRC_Q4_0;
}

/* The form of panels that holds these blocks. */
enum kern_wfmt kern_blocks_form(enum kern_src src);

/* Weights of a block, and its bytes. A row has a whole number of them. */
int kern_block_weights(enum kern_src src);
int kern_block_bytes(enum kern_src src);

/* The values of k weights. out may begin at the same address as row. */
void kern_blocks_f32(enum kern_src src, const void *row, int64_t k, float *out);

/* Returns true if all scales and minima of a row of k weights are finite. */
bool kern_blocks_finite(enum kern_src src, const void *row, int64_t k);

/* 32 rows of k weights, NULL: of zeros, into one panel of their form. */
void kern_pack_blocks(enum kern_src src, const void *const rows[KERN_PANEL], int k, int k_pad,
                      void *panel);
