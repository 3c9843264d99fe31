/* SPDX-License-Identifier: MIT */
/* Partial descending order of one row of values; see topk.h for the design. */
#include "engine/topk.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    BLOCK = 32,
    LANES = 8,
    RADIX_BITS = 11,
    RADIX = 1 << RADIX_BITS,
    SMALL_SORT = 48,
    MIN_STEP = 24
};

int rank_init(struct rank *r, int n_max)
{
    size_t n = (size_t)n_max, n_blocks = (n + BLOCK - 1) / BLOCK;
    *r = (struct rank){.n_max = n_max};
    r->block_max = calloc(n_blocks, sizeof(*r->block_max));
    r->select = calloc(n_blocks, sizeof(*r->select));
    r->keys[0] = calloc(n, sizeof(*r->keys[0]));
    r->keys[1] = calloc(n, sizeof(*r->keys[1]));
    r->ids = calloc(n, sizeof(*r->ids));
    return r->block_max && r->select && r->keys[0] && r->keys[1] && r->ids ? 0 : -1;
}

void rank_finish(struct rank *r)
{
    free(r->block_max);
    free(r->select);
    free(r->keys[0]);
    free(r->keys[1]);
    free(r->ids);
    *r = (struct rank){0};
}

/* Lanes keep the maximum's dependency chain short and let the compiler use vectors. */
static float max_of_block(const float *v)
{
    float m[LANES];
    memcpy(m, v, sizeof(m));
    for (int j = LANES; j < BLOCK; j += LANES)
        for (int l = 0; l < LANES; l++)
            m[l] = v[j + l] > m[l] ? v[j + l] : m[l];
    for (int l = 1; l < LANES; l++)
        m[0] = m[l] > m[0] ? m[l] : m[0];
    return m[0];
}

void rank_begin(struct rank *r, const float *values, int n)
{
    assert(n > 0 && n <= r->n_max);
    r->values = values;
    r->n = n;
    r->n_blocks = (n + BLOCK - 1) / BLOCK;
    r->n_sorted = 0;
    r->bound = INFINITY;
    int n_full = n / BLOCK;
    for (int b = 0; b < n_full; b++)
        r->block_max[b] = max_of_block(values + b * BLOCK);
    if (n_full < r->n_blocks) {
        float m = -INFINITY;
        for (int i = n_full * BLOCK; i < n; i++)
            m = values[i] > m ? values[i] : m;
        r->block_max[n_full] = m;
    }
}

/*
 * The k-th largest (k >= 1) of v[0..n), which is reordered: quickselect, middle element as pivot.
 */
static float kth_largest(float *v, int n, int k)
{
    assert(k >= 1 && k <= n);
    int lo = 0, hi = n - 1;
    while (lo < hi) {
        float pivot = v[lo + (hi - lo) / 2];
        int i = lo, j = hi;
        while (i <= j) {
            while (v[i] > pivot)
                i++;
            while (v[j] < pivot)
                j--;
            if (i <= j) {
                float t = v[i];
                v[i++] = v[j];
                v[j--] = t;
            }
        }
        if (k - 1 <= j)
            hi = j;
        else if (k - 1 >= i)
            lo = i;
        else
            break;
    }
    return v[k - 1];
}

/* Bits in the order of the values, largest first; -0 and +0 are equal. */
static uint32_t descending_bits(float v)
{
    uint32_t u;
    v += 0.0f;
    memcpy(&u, &v, sizeof(u));
    return u & 0x80000000u ? u : ~(u | 0x80000000u);
}

/* Keys of the values in [low, r->bound), in order of id, into keys[0]. */
static int collect(struct rank *r, float low)
{
    int n = 0;
    for (int b = 0; b < r->n_blocks; b++) {
        if (!(r->block_max[b] >= low)) continue;
        int end = (b + 1) * BLOCK < r->n ? (b + 1) * BLOCK : r->n;
        for (int i = b * BLOCK; i < end; i++) {
            float v = r->values[i];
            if (v >= low && (v < r->bound || r->n_sorted == 0))
                r->keys[0][n++] = (uint64_t)descending_bits(v) << 32 | (uint32_t)i;
        }
    }
    return n;
}

static void insertion_sort(uint64_t *k, int n)
{
    for (int i = 1; i < n; i++) {
        uint64_t v = k[i];
        int j = i;
        for (; j > 0 && k[j - 1] > v; j--)
            k[j] = k[j - 1];
        k[j] = v;
    }
}

/* One stable counting pass by RADIX_BITS bits from `shift`. */
static void radix_pass(const uint64_t *from, uint64_t *to, int n, int shift)
{
    int start[RADIX] = {0};
    for (int i = 0; i < n; i++)
        start[from[i] >> shift & (RADIX - 1)]++;
    for (int d = 0, sum = 0; d < RADIX; d++) {
        int count = start[d];
        start[d] = sum;
        sum += count;
    }
    for (int i = 0; i < n; i++)
        to[start[from[i] >> shift & (RADIX - 1)]++] = from[i];
}

/* Sorts keys[0][0..n), which are in order of id, by value; returns the sorted array. */
static const uint64_t *sort_keys(struct rank *r, int n)
{
    if (n <= SMALL_SORT) {
        insertion_sort(r->keys[0], n);
        return r->keys[0];
    }
    radix_pass(r->keys[0], r->keys[1], n, 32);
    radix_pass(r->keys[1], r->keys[0], n, 32 + RADIX_BITS);
    radix_pass(r->keys[0], r->keys[1], n, 32 + 2 * RADIX_BITS);
    return r->keys[1];
}

int rank_upto(struct rank *r, int k)
{
    k = k < r->n ? k : r->n;
    if (k <= r->n_sorted) return k;
    /* Growing by steps keeps the work linear if each call asks for one more. */
    int target = 4 * r->n_sorted > k ? 4 * r->n_sorted : k;
    target = target > MIN_STEP ? target : MIN_STEP;
    float low = -INFINITY;
    if (target < r->n_blocks) {
        memcpy(r->select, r->block_max, (size_t)r->n_blocks * sizeof(*r->select));
        low = kth_largest(r->select, r->n_blocks, target);
    }
    int n = collect(r, low);
    assert(r->n_sorted + n >= k && r->n_sorted + n <= r->n);
    const uint64_t *sorted = sort_keys(r, n);
    for (int i = 0; i < n; i++)
        r->ids[r->n_sorted + i] = (int32_t)(uint32_t)sorted[i];
    r->n_sorted += n;
    r->bound = low;
    return k;
}

/* ---- the cut at a mass --------------------------------------------------------------------- */

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
            bins[key >> shift & (n_digits - 1)] += (double)weights[i];
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
        sum += (double)weights[i];
        if (sum >= mass) break;
    }
    return cut;
}
