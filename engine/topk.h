/* SPDX-License-Identifier: MIT */
/*
 * One row of values in descending order, ties by lower id, sorted only as far as asked.
 *
 * Sampling and log-probabilities want the few best of some ten thousand values. The row is cut into
 * blocks of 32 whose maxima are taken once; the k-th largest of the maxima is a bound that at least
 * k values reach, so only the blocks at or above it are looked at again. How far the order has been
 * worked out never shows in the result.
 *
 * Threads: an object belongs to one thread at a time. Nothing is allocated after rank_init.
 */
#ifndef HEARTH_ENGINE_TOPK_H
#define HEARTH_ENGINE_TOPK_H

#include <stdint.h>

struct rank {
    const float *values; /* [n], borrowed from rank_begin to the last rank_upto */
    int n, n_max;
    int n_blocks;
    int n_sorted;      /* ids[0 .. n_sorted) are final */
    float bound;       /* every value at or above it is among them */
    float *block_max;  /* [ceil(n_max / 32)] */
    float *select;     /* [ceil(n_max / 32)] scratch of the selection */
    uint64_t *keys[2]; /* [n_max] each: order of the value in the high half, id in the low; sort
                          buffers */
    int32_t *ids;      /* [n_max] */
};

/* Scratch for rows of at most n_max values. 0, or -1 without memory; rank_finish is due either way.
 */
int rank_init(struct rank *r, int n_max);
void rank_finish(struct rank *r);

/* Starts on a new row of n <= n_max values; -INFINITY is allowed, NaN is not. */
void rank_begin(struct rank *r, const float *values, int n);

/* Makes ids[0 .. min(k, n)) final and returns that number. */
int rank_upto(struct rank *r, int k);

#endif
