/* SPDX-License-Identifier: MIT */
/*
 * The best of one row of values in descending order, ties by lower id; and cuts of that order.
 *
 * Sampling and log-probabilities need the few best of some ten thousand values. The row is cut into
 * blocks of 32 whose maxima are computed once; the k-th largest of the maxima is a bound that at
 * least k values reach, so only the blocks at or above it are read again. The result does not
 * depend on how far the order has been computed.
 *
 * Threads: an object belongs to one thread at a time. Nothing is allocated after rank_init.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct kern;
struct scratch;

enum { RANK_MAX = 128 }; /* values that are ranked, at most */

struct rank {
    const struct kern *kern;
    const float *values; /* [n], borrowed from rank_begin to the last rank_upto */
    int n, n_max;
    int n_sorted;         /* ids[0 .. n_sorted) are final */
    float *block_max;     /* [ceil(n_max / 32)] */
    float best[RANK_MAX]; /* the values of ids */
    int32_t ids[RANK_MAX];
};

/* For rows of n_max values; borrows kern. Its memory is cut from m, which may only count. */
void rank_init(struct rank *r, struct scratch *m, int n_max, const struct kern *kern);

/* Starts on a new row of n <= n_max values; -INFINITY is allowed, NaN is not. */
void rank_begin(struct rank *r, const float *values, int n);

/* Makes ids[0 .. min(k, n)) final and returns that number; k <= RANK_MAX. */
int rank_upto(struct rank *r, int k);

/* The candidates with larger values than `value`, and those with that value up to `id`. */
struct rank_cut {
    float value;
    int32_t id;
};

/* Returns true if the cut leaves this candidate; cut NULL: it leaves all. */
static inline bool rank_is_left(const struct rank_cut *cut, float value, int32_t id)
{
    return !cut || value > cut->value || (value == cut->value && id <= cut->id);
}

/*
 * The cut after the fewest candidates, in the same order, whose weights (>= 0; NULL: 1 each) add up
 * to `mass`, which all of them reach but for rounding. Takes a few passes over the n values.
 */
struct rank_cut rank_mass_cut(const float *values, const float *weights, int n, double mass);
