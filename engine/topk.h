/* SPDX-License-Identifier: MIT */
/*
 * One row of values in descending order, ties by lower id, sorted only as far as asked.
 *
 * Sampling and log-probabilities need the few best of some ten thousand values. The row is cut into
 * blocks of 32 whose maxima are computed once; the k-th largest of the maxima is a bound that at
 * least k values reach, so only the blocks at or above it are read again. The result does not
 * depend on how far the order has been computed.
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
    uint64_t *keys[2]; /* [n_max] each, sort buffers: order of the value above the id */
    int32_t *ids;      /* [n_max] */
};

/* Scratch for rows of n_max values. 0, or -1 if out of memory; call rank_finish in either case. */
int rank_init(struct rank *r, int n_max);
void rank_finish(struct rank *r);

/* Starts on a new row of n <= n_max values; -INFINITY is allowed, NaN is not. */
void rank_begin(struct rank *r, const float *values, int n);

/* Makes ids[0 .. min(k, n)) final and returns that number. */
int rank_upto(struct rank *r, int k);

/* The candidates with larger values than `value`, and those with that value up to `id`. */
struct rank_cut {
    float value;
    int32_t id;
};

/*
 * The cut after the fewest candidates, in the same order, whose weights (>= 0) add up to `mass`,
 * which all of them reach but for rounding. Takes a few passes over the n values, no order.
 */
struct rank_cut rank_mass_cut(const float *values, const float *weights, int n, double mass);

#endif
