/* SPDX-License-Identifier: MIT */
/* The best of one row of values, and cuts; see topk.h for the design. */
#include "engine/topk.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "engine/kernels/kernels.h"
#include "engine/scratch.h"

enum {
    BLOCK = KERN_RACE_BLOCK,
    FEW = 24, /* ranked at first */
    RADIX_BITS = 11,
    RADIX = 1 << RADIX_BITS,
};

static int n_blocks(int n)
{
    return (n + BLOCK - 1) / BLOCK;
}

void rank_init(struct rank *r, struct scratch *m, int n_max, const struct kern *kern)
{
    float *block_max = scratch_take(m, (size_t)n_blocks(n_max), sizeof(*block_max));
    *r = (struct rank){.kern = kern, .n_max = n_max, .block_max = block_max};
}

void rank_begin(struct rank *r, const float *values, int n)
{
    assert(n > 0 && n <= r->n_max);
    r->values = values;
    r->n = n;
    r->n_sorted = 0;
    r->kern->block_max(values, n, r->block_max);
}

/* Puts n values from id `first` on into the list of the `most` best; of equal ones the first stays
 * first. */
static void enter(struct rank *r, int most, const float *values, int first, int n)
{
    for (int i = 0; i < n; i++) {
        int at = r->n_sorted;
        if (at == most && !(values[i] > r->best[at - 1])) continue;
        if (at < most)
            r->n_sorted++;
        else
            at--;
        for (; at > 0 && values[i] > r->best[at - 1]; at--) {
            r->best[at] = r->best[at - 1];
            r->ids[at] = r->ids[at - 1];
        }
        r->best[at] = values[i];
        r->ids[at] = first + i;
    }
}

int rank_upto(struct rank *r, int k)
{
    k = k < r->n ? k : r->n;
    assert(k <= RANK_MAX);
    if (k <= r->n_sorted) return k;
    int most = FEW;
    while (most < k)
        most = 2 * most < RANK_MAX ? 2 * most : RANK_MAX;
    float low = -INFINITY;
    r->n_sorted = 0;
    if (most < n_blocks(r->n)) {
        enter(r, most, r->block_max, 0, n_blocks(r->n));
        low = r->best[most - 1];
        r->n_sorted = 0;
    }
    for (int first = 0; first < r->n; first += BLOCK)
        if (r->block_max[first / BLOCK] >= low)
            enter(r, most, r->values + first, first, r->n - first < BLOCK ? r->n - first : BLOCK);
    return k;
}

/* ---- the cut at a mass --------------------------------------------------------------------- */

/* Bits in the order of the values, largest first; -0 and +0 are equal. */
static uint32_t descending_bits(float v)
{
    uint32_t u;
    v += 0.0f;
    memcpy(&u, &v, sizeof(u));
    return u & 0x80000000u ? u : ~(u | 0x80000000u);
}

static float value_of_bits(uint32_t descending)
{
    uint32_t u = descending & 0x80000000u ? descending : ~descending & 0x7fffffffu;
    float v;
    memcpy(&v, &u, sizeof(v));
    return v;
}

/*
 * One digit of the cut's value: adds up the weights of the values with these upper bits by their
 * next `bits` bits, and returns the digit at which the sum from *sum on reaches mass; *sum is then
 * that of all before it.
 */
static uint32_t find_digit(const float *values, const float *weights, int n, uint64_t upper,
                           int shift, int bits, double mass, double *sum)
{
    double bins[RADIX] = {0};
    uint32_t last = 0, n_digits = 1u << bits;
    for (int i = 0; i < n; i++) {
        uint64_t key = descending_bits(values[i]);
        if (key >> (shift + bits) == upper)
            bins[key >> shift & (n_digits - 1)] += weights ? (double)weights[i] : 1.0;
    }
    for (uint32_t d = 0; d < n_digits; d++) {
        if (bins[d] <= 0.0) continue;
        last = d;
        if (*sum + bins[d] >= mass) return d;
        *sum += bins[d];
    }
    *sum -= bins[last];
    return last;
}

struct rank_cut rank_mass_cut(const float *values, const float *weights, int n, double mass)
{
    double sum = 0.0;
    uint64_t upper = 0;
    for (int shift = 32; shift > 0;) {
        int bits = shift < RADIX_BITS ? shift : RADIX_BITS;
        shift -= bits;
        upper = upper << bits | find_digit(values, weights, n, upper, shift, bits, mass, &sum);
    }
    struct rank_cut cut = {value_of_bits((uint32_t)upper), 0};
    for (int i = 0; i < n; i++) {
        if (values[i] != cut.value) continue;
        cut.id = i;
        sum += weights ? (double)weights[i] : 1.0;
        if (sum >= mass) break;
    }
    return cut;
}
