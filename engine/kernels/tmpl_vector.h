/* SPDX-License-Identifier: MIT */
/*
 * Operations on one vector of floats, written once over the operations of a simd_*.h:
 * norms, RoPE, activations, short convolution, delta net, softmax, argmax, log-sum-exp.
 *
 * Sums run in partial sums by index modulo some lanes, added by halves at the end: the order is a
 * function of n alone, and in softmax_keys not even of n, so zeros at the end change nothing.
 */
#pragma once

#include "engine/kernels/levels.h"
#include "engine/kernels/tmpl_pack.h"

#include <float.h>
#include <math.h>

/*
 * exp(x) within 1 ulp; see exp_f32 in ref.c. NaN stays NaN: it is the second operand of min and
 * max.
 */
INLINE vf vf_exp(vf x)
{
    x = vf_max(vf_set1(-104.0f), vf_min(vf_set1(89.0f), x));
    vf n = vf_round_f(vf_mul(x, vf_set1(0x1.715476p+0f)));
    vf r = vf_fnma(n, vf_set1(0x1.62e4p-1f), x);
    r = vf_fnma(n, vf_set1(0x1.7f7d1dp-20f), r);
    vf p = vf_fma(vf_set1(0x1.6a2352p-10f), r, vf_set1(0x1.123a6cp-7f));
    p = vf_fma(p, r, vf_set1(0x1.5558f4p-5f));
    p = vf_fma(p, r, vf_set1(0x1.555490p-3f));
    p = vf_fma(p, r, vf_set1(0x1.fffffcp-2f));
    p = vf_add(vf_fma(vf_mul(r, r), p, r), vf_set1(1.0f));
    return vf_scale_by_power(p, n);
}

/*
 * 2^t for t <= 0, error 2e-8 and rounding; shorter than vf_exp because t need not be reduced in two
 * parts. NaN stays NaN.
 */
INLINE vf vf_exp2(vf t)
{
    t = vf_max(vf_set1(-150.0f), t);
    vf n = vf_round_f(t), f = vf_sub(t, n);
    vf p = vf_fma(vf_set1(0x1.41fb84p-13f), f, vf_set1(0x1.5f3eacp-10f));
    p = vf_fma(p, f, vf_set1(0x1.3b2d4ep-7f));
    p = vf_fma(p, f, vf_set1(0x1.c6aee8p-5f));
    p = vf_fma(p, f, vf_set1(0x1.ebfbdcp-3f));
    p = vf_fma(p, f, vf_set1(0x1.62e430p-1f));
    p = vf_fma(p, f, vf_set1(1.0f));
    return vf_scale_by_power(p, n);
}

static int elements_at(int i, int n)
{
    return n - i < VN ? n - i : VN;
}

static void rmsnorm(const float *x, const float *w, float *o, int n, float eps)
{
    vf sum[4];
    int i = 0;
    for (int j = 0; j < 4; j++)
        sum[j] = vf_set1(0.0f);
    for (; i + 4 * VN <= n; i += 4 * VN)
        for (int j = 0; j < 4; j++) {
            vf v = vf_load(x + i + j * VN);
            sum[j] = vf_fma(v, v, sum[j]);
        }
    for (int j = 0; i < n; i += VN, j++) {
        vf v = vf_load_part(x + i, elements_at(i, n));
        sum[j] = vf_fma(v, v, sum[j]);
    }
    float total = vf_sum(vf_add(vf_add(sum[0], sum[1]), vf_add(sum[2], sum[3])));
    vf inv = vf_set1(1.0f / sqrtf(total / (float)n + eps));
    for (i = 0; i + VN <= n; i += VN)
        vf_store(o + i, vf_mul(vf_mul(vf_load(x + i), inv), vf_load(w + i)));
    if (i < n) {
        vf v = vf_mul(vf_mul(vf_load_part(x + i, n - i), inv), vf_load_part(w + i, n - i));
        vf_store_part(o + i, n - i, v);
    }
}

/* x - mean, 0 behind the n elements. */
INLINE vf centred_part(const float *x, int n, vf mean)
{
    vf v = vf_sub(vf_load_part(x, n), mean);
    return n < VN ? vf_select(vm_range(0, 0, n), v, vf_set1(0.0f)) : v;
}

static void layernorm(const float *x, const float *w, const float *b, float *o, int n, float eps)
{
    vf sum[2] = {vf_set1(0.0f), vf_set1(0.0f)}, squares[2] = {sum[0], sum[0]};
    for (int i = 0, j = 0; i < n; i += VN, j = !j)
        sum[j] = vf_add(sum[j], vf_load_part(x + i, elements_at(i, n)));
    vf mean = vf_set1(vf_sum(vf_add(sum[0], sum[1])) / (float)n);
    for (int i = 0, j = 0; i < n; i += VN, j = !j) {
        vf v = centred_part(x + i, elements_at(i, n), mean);
        squares[j] = vf_fma(v, v, squares[j]);
    }
    float total = vf_sum(vf_add(squares[0], squares[1]));
    vf inv = vf_set1(1.0f / sqrtf(total / (float)n + eps));
    for (int i = 0; i < n; i += VN) {
        int m = elements_at(i, n);
        vf v = vf_mul(centred_part(x + i, m, mean), inv), bias = vf_set1(0.0f);
        if (b) bias = vf_load_part(b + i, m);
        vf_store_part(o + i, m, vf_fma(v, vf_load_part(w + i, m), bias));
    }
}

static void rope(float *x, const float *cos, const float *sin, int n, int apart)
{
    float *y = x + apart;
    for (int i = 0; i < n; i += VN) {
        int m = elements_at(i, n);
        vf a = vf_load_part(x + i, m), b = vf_load_part(y + i, m);
        vf c = vf_load_part(cos + i, m), s = vf_load_part(sin + i, m);
        vf_store_part(x + i, m, vf_fnma(b, s, vf_mul(a, c)));
        vf_store_part(y + i, m, vf_fma(a, s, vf_mul(b, c)));
    }
}

INLINE vf vf_silu_mul(vf g, vf u)
{
    vf e = vf_exp(vf_sub(vf_set1(0.0f), g));
    return vf_mul(vf_div(g, vf_add(vf_set1(1.0f), e)), u);
}

static void silu_mul(const float *g, const float *u, float *o, int n)
{
    int i = 0;
    for (; i + VN <= n; i += VN)
        vf_store(o + i, vf_silu_mul(vf_load(g + i), vf_load(u + i)));
    if (i < n)
        vf_store_part(o + i, n - i,
                      vf_silu_mul(vf_load_part(g + i, n - i), vf_load_part(u + i, n - i)));
}

static void sigmoid_mul(const float *g, const float *u, float *o, int n)
{
    for (int i = 0; i < n; i += VN) {
        int m = elements_at(i, n);
        vf e = vf_exp(vf_sub(vf_set1(0.0f), vf_load_part(g + i, m)));
        vf_store_part(o + i, m, vf_div(vf_load_part(u + i, m), vf_add(vf_set1(1.0f), e)));
    }
}

static void gelu_tanh_mul(const float *g, const float *u, float *o, int n)
{
    vf one = vf_set1(1.0f);
    for (int i = 0; i < n; i += VN) {
        int m = elements_at(i, n);
        vf x = vf_load_part(g + i, m), cube = vf_mul(vf_mul(x, x), x);
        vf y = vf_fma(cube, vf_set1(0.044715f), x);
        vf e = vf_exp(vf_mul(y, vf_set1(-1.5957691216f)));
        vf_store_part(o + i, m, vf_mul(vf_div(x, vf_add(one, e)), vf_load_part(u + i, m)));
    }
}

/* See normal_share in ref.c. NaN stays NaN: it is not greater. */
INLINE vf vf_normal_share(vf x)
{
    vf one = vf_set1(1.0f), size = vf_max(x, vf_sub(vf_set1(0.0f), x));
    vf t = vf_div(one, vf_fma(vf_set1(0x1.21a186p-2f), size, one));
    vf q = vf_fma(vf_set1(0x1.4b932p-6f), t, vf_set1(-0x1.178b7p-4f));
    q = vf_fma(q, t, vf_set1(0x1.374522p-5f));
    q = vf_fma(q, t, vf_set1(0x1.8e3d68p-5f));
    q = vf_fma(q, t, vf_set1(0x1.2c1cbcp-5f));
    q = vf_fma(q, t, vf_set1(0x1.91cffcp-4f));
    q = vf_fma(q, t, vf_set1(0x1.9bf926p-4f));
    q = vf_fma(q, t, vf_set1(0x1.cff7dcp-4f));
    q = vf_fma(q, t, vf_set1(0x1.ce1612p-4f));
    vf e = vf_exp(vf_mul(vf_mul(x, x), vf_set1(-0.5f)));
    vf beyond = vf_mul(e, vf_mul(q, t));
    return vf_select(vm_greater(x, vf_set1(0.0f)), vf_sub(one, beyond), beyond);
}

static void gelu_mul(const float *g, const float *u, float *o, int n)
{
    for (int i = 0; i < n; i += VN) {
        int m = elements_at(i, n);
        vf x = vf_load_part(g + i, m);
        vf_store_part(o + i, m, vf_mul(vf_mul(x, vf_normal_share(x)), vf_load_part(u + i, m)));
    }
}

/* See tanh_f32 in ref.c. NaN stays NaN: it is not greater. */
INLINE vf vf_tanh(vf t)
{
    vf q = vf_mul(t, t), one = vf_set1(1.0f);
    vf p = vf_fma(q, vf_set1(-0x1.226e36p-7f), vf_set1(0x1.664f48p-6f));
    p = vf_fma(p, q, vf_set1(-0x1.ba1ba2p-5f));
    p = vf_fma(p, q, vf_set1(0x1.111112p-3f));
    p = vf_fma(p, q, vf_set1(-0x1.555556p-2f));
    vf e = vf_exp(vf_add(t, t));
    vf large = vf_sub(one, vf_div(vf_set1(2.0f), vf_add(one, e)));
    return vf_select(vm_greater(q, vf_set1(0.1225f)), large, vf_fma(vf_mul(p, q), t, t));
}

static void softcap(float *x, int n, float scale, float cap)
{
    vf factor = vf_set1(scale / cap);
    for (int i = 0; i < n; i += VN) {
        int m = elements_at(i, n);
        vf t = vf_tanh(vf_mul(vf_load_part(x + i, m), factor));
        vf_store_part(x + i, m, vf_mul(vf_set1(cap), t));
    }
}

static void add(float *y, const float *x, int n)
{
    int i = 0;
    for (; i + VN <= n; i += VN)
        vf_store(y + i, vf_add(vf_load(y + i), vf_load(x + i)));
    if (i < n)
        vf_store_part(y + i, n - i, vf_add(vf_load_part(y + i, n - i), vf_load_part(x + i, n - i)));
}

static void conv_token(const struct kern_conv *conv, const float *b, const float *c, const float *u,
                       const float *const *before, float *now, float *o, int n)
{
    const float *w = conv->w + (size_t)(conv->taps - 1) * conv->ld;
    for (int i = 0; i < n; i += VN) {
        int m = elements_at(i, n);
        vf z = vf_load_part(u + i, m);
        if (b) z = vf_mul(vf_load_part(b + i, m), z);
        vf sum = conv->bias ? vf_load_part(conv->bias + i, m) : vf_set1(0.0f);
        for (int j = 0; j < conv->taps - 1; j++)
            sum = vf_fma(vf_load_part(conv->w + (size_t)j * conv->ld + i, m),
                         vf_load_part(before[j] + i, m), sum);
        sum = vf_fma(vf_load_part(w + i, m), z, sum);
        vf_store_part(now + i, m, z);
        vf_store_part(o + i, m, c ? vf_mul(vf_load_part(c + i, m), sum) : sum);
    }
}

/* Two vectors of values at a time, so that the sums of a state's column stay in registers. */
enum { DELTA_STEP = 2 * VN };

/* A row of a state with a token's delta: s = k delta + decay s. */
INLINE vf delta_row(float k, vf decay, vf delta, float *s)
{
    vf x = vf_fma(vf_set1(k), delta, vf_mul(vf_load(s), decay));
    vf_store(s, x);
    return x;
}

/* The sums over the rows of a state, times k, of two vectors of columns. */
INLINE void delta_sums(const float *k, int n, const float *s, vf ret[2])
{
    vf zero = vf_set1(0.0f), sum[2][2] = {{zero, zero}, {zero, zero}};
    int i = 0;
    for (; i + 2 <= n; i += 2)
        for (int odd = 0; odd < 2; odd++)
            for (int j = 0; j < 2; j++)
                sum[odd][j] = vf_fma(vf_set1(k[i + odd]),
                                     vf_load(s + (i + odd) * KERN_DELTA + j * VN), sum[odd][j]);
    for (int j = 0; j < 2; j++) {
        if (i < n)
            sum[0][j] = vf_fma(vf_set1(k[i]), vf_load(s + i * KERN_DELTA + j * VN), sum[0][j]);
        ret[j] = vf_add(sum[0][j], sum[1][j]);
    }
}

/* The same sums, times q, of the rows with a token's delta. */
INLINE void delta_rows(const float *k, const float *q, int n, vf decay, const vf delta[2], float *s,
                       vf ret[2])
{
    vf zero = vf_set1(0.0f), sum[2][2] = {{zero, zero}, {zero, zero}}, x;
    int i = 0;
    for (; i + 2 <= n; i += 2)
        for (int odd = 0; odd < 2; odd++)
            for (int j = 0; j < 2; j++) {
                x = delta_row(k[i + odd], decay, delta[j], s + (i + odd) * KERN_DELTA + j * VN);
                sum[odd][j] = vf_fma(vf_set1(q[i + odd]), x, sum[odd][j]);
            }
    for (int j = 0; j < 2; j++) {
        if (i < n) {
            x = delta_row(k[i], decay, delta[j], s + i * KERN_DELTA + j * VN);
            sum[0][j] = vf_fma(vf_set1(q[i]), x, sum[0][j]);
        }
        ret[j] = vf_add(sum[0][j], sum[1][j]);
    }
}

static void delta_token(const struct kern_delta *t, float *s, float *ret_delta, float *o)
{
    vf decay = vf_set1(t->decay), beta = vf_set1(t->beta), delta[2], sum[2];
    const float *k = t->k, *q = t->q, *v = t->v;
    int d_k = t->d_k, n = t->n;
    for (int c = 0; c < n; c += DELTA_STEP, s += DELTA_STEP) {
        int m[2] = {elements_at(c, n), c + VN < n ? elements_at(c + VN, n) : 0};
        delta_sums(k, d_k, s, sum);
        for (int j = 0; j < 2; j++) {
            vf value = m[j] ? vf_load_part(v + c + j * VN, m[j]) : vf_set1(0.0f);
            delta[j] = vf_mul(vf_fnma(decay, sum[j], value), beta);
            vf_store(ret_delta + c + j * VN, delta[j]);
        }
        delta_rows(k, q, d_k, decay, delta, s, sum);
        for (int j = 0; j < 2; j++)
            if (m[j]) vf_store_part(o + c + j * VN, m[j], sum[j]);
    }
}

static void delta_again(const struct kern_delta *t, const float *delta, float *s)
{
    const float *k = t->k;
    vf decay = vf_set1(t->decay);
    int d_k = t->d_k, n = t->n;
    for (int c = 0; c < n; c += VN)
        for (int i = 0; i < d_k; i++)
            delta_row(k[i], decay, vf_load(delta + c), s + i * KERN_DELTA + c);
}

static void scale(float *y, float a, int n)
{
    for (int i = 0; i < n; i += VN) {
        int m = elements_at(i, n);
        vf_store_part(y + i, m, vf_mul(vf_load_part(y + i, m), vf_set1(a)));
    }
}

/* s[i .. i + VN), those outside [lo, hi) replaced. */
INLINE vf keys_at(const float *s, int i, int lo, int hi, vf other)
{
    vf v = vf_load(s + i);
    return i < lo || i + VN > hi ? vf_select(vm_range(i, lo, hi), v, other) : v;
}

/* Largest of s[lo..hi), by vectors at multiples of VN. */
static float keys_max(const float *s, int lo, int hi)
{
    vf none = vf_set1(-INFINITY), even = none, odd = none;
    int i = lo - lo % VN;
    for (; i + VN < hi; i += 2 * VN) {
        even = vf_max(even, keys_at(s, i, lo, hi, none));
        odd = vf_max(odd, keys_at(s, i + VN, lo, hi, none));
    }
    if (i < hi) even = vf_max(even, keys_at(s, i, lo, hi, none));
    return vf_maximum(vf_max(even, odd));
}

/*
 * The partial sums are the lanes of one vector, so that n and zeros after the last key do not
 * change them. exp(factor * (s - max)) is 2^(s - max times factor / ln 2).
 */
static struct kern_softmax softmax_keys(float *s, int n, int lo, int hi, float factor)
{
    struct kern_softmax r = {.max = -INFINITY, .sum = 0.0f};
    float max = lo < hi ? keys_max(s, lo, hi) : -INFINITY;
    vf zero = vf_set1(0.0f), sum = zero, top = vf_set1(max);
    vf f = vf_set1(factor * 0x1.715476p+0f);
    int first = lo - lo % VN, i = 0;
    for (; i < first; i += VN)
        vf_store(s + i, zero);
    for (; i < hi; i += VN) {
        vf e = vf_exp2(vf_mul(vf_sub(vf_load(s + i), top), f));
        if (i < lo || i + VN > hi) e = vf_select(vm_range(i, lo, hi), e, zero);
        sum = vf_add(sum, e);
        vf_store(s + i, e);
    }
    for (; i < n; i += VN)
        vf_store(s + i, zero);
    r.max = max * factor;
    r.sum = vf_sum(sum);
    return r;
}

#ifdef BF16_ROW_MAJOR
#define SOFTMAX_PACK softmax_pack
/*
 * 32 exponentials as bf16: 2^t is a cubic of t's fraction, off by 9e-5, times 2^floor(t), which is
 * what this level's vf_scale_by_power does. NaN stays NaN, and -inf gives 0.
 */
INLINE vi exp2_bf16(const float *s, vf factor, vf offset)
{
    vf e[2];
    for (int j = 0; j < 2; j++) {
        vf t = vf_fma(vf_load(s + j * VN), factor, offset), f = vf_fraction(t);
        vf p = vf_fma(vf_set1(0x1.3baaa6p-4f), f, vf_set1(0x1.d2378ap-3f));
        p = vf_fma(p, f, vf_set1(0x1.63e658p-1f));
        p = vf_fma(p, f, vf_set1(1.0f));
        e[j] = vf_scale_by_power(p, t);
    }
    return vi_bf16_pairs(e[0], e[1]);
}

/* The sum is that of the rounded exponentials, in lanes of one vector as in softmax_keys. */
static struct kern_softmax softmax_pack(float *s, int n, int lo, int hi, float factor,
                                        const struct kern_tile *tile, int row)
{
    struct kern_softmax r = {.max = -INFINITY, .sum = 0.0f};
    float max = lo < hi ? keys_max(s, lo, hi) : -INFINITY, f = factor * 0x1.715476p+0f;
    vf sum = vf_set1(0.0f), scale = vf_set1(f), offset = vf_set1(-max * f);
    uint16_t *d = (uint16_t *)tile->data + row * KERN_GROUP;
    for (int i = 0; i < n; i += KERN_GROUP, d += tile->n_rows * KERN_GROUP) {
        vi e = vi_set1(0);
        if (i < hi && i + KERN_GROUP > lo) {
            e = exp2_bf16(s + i, scale, offset);
            if (i < lo || i + KERN_GROUP > hi) e = vi_keep_halves(e, lo - i, hi - i);
            sum = vf_dot_bf16(sum, e, vi_set1(0x3f803f80));
        }
        vi_store(d, e);
    }
    r.max = max * factor;
    r.sum = vf_sum(sum);
    return r;
}
#else
#define SOFTMAX_PACK NULL
#endif

/* exp(x) as softmax_keys computes it, in all lanes. */
INLINE vf weight_of(float x)
{
    return vf_exp2(vf_mul(vf_set1(x), vf_set1(0x1.715476p+0f)));
}

static void merge_softmax(struct kern_softmax *to, float *y, const struct kern_softmax *from,
                          const float *x, int n)
{
    float max = to->max > from->max ? to->max : from->max;
    vf a = weight_of(to->max - max), b = weight_of(from->max - max);
    for (int i = 0; i < n; i += VN) {
        int m = elements_at(i, n);
        vf v = vf_mul(vf_load_part(x + i, m), b);
        vf_store_part(y + i, m, vf_fma(vf_load_part(y + i, m), a, v));
    }
    float sum[2]; /* one lane of each */
    vf_store_part(sum, 1, vf_mul(vf_set1(to->sum), a));
    vf_store_part(sum + 1, 1, vf_mul(vf_set1(from->sum), b));
    to->max = max;
    to->sum = sum[0] + sum[1];
}

/* Of the lanes' best values, the largest; of equal ones the lowest index. */
static int best_of(const float value[VN], const int32_t index[VN])
{
    int best = 0;
    for (int l = 1; l < VN; l++)
        if (value[l] > value[best] || (value[l] == value[best] && index[l] < index[best])) best = l;
    return index[best];
}

static int argmax(const float *x, int n, bool *ret_finite)
{
    float value[VN];
    int32_t index[VN];
    vf best = vf_set1(-INFINITY), top = vf_set1(FLT_MAX);
    vi at = vi_iota(), best_at = at;
    vm bad = vm_none();
    int i = 0;
    for (; i + VN <= n; i += VN, at = vi_add(at, vi_set1(VN))) {
        vf v = vf_load(x + i);
        vm greater = vm_greater(v, best);
        bad = vm_or(bad, vm_not_le(v, top));
        best = vf_select(greater, v, best);
        best_at = vi_select(greater, at, best_at);
    }
    vf_store(value, best);
    vi_store(index, best_at);
    int b = i ? best_of(value, index) : 0;
    bool finite = !vm_any(bad);
    for (; i < n; i++) {
        finite = finite && x[i] <= FLT_MAX;
        if (x[i] > x[b]) b = i;
    }
    *ret_finite = finite;
    return b;
}

static float values_max(const float *x, int n)
{
    vf best = vf_set1(-INFINITY);
    int i = 0;
    for (; i + VN <= n; i += VN)
        best = vf_max(best, vf_load(x + i));
    float max = vf_maximum(best);
    for (; i < n; i++)
        max = x[i] > max ? x[i] : max;
    return max;
}

static double log_sum_exp(const float *x, int n)
{
    enum { BLOCK = 64 };
    double lane[BLOCK] = {0};
    float e[BLOCK], max = values_max(x, n);
    for (int i = 0; i < n; i += BLOCK) {
        int valid = n - i < BLOCK ? n - i : BLOCK;
        for (int j = 0; j < valid; j += VN) {
            vf v = vf_load_part(x + i + j, elements_at(j, valid));
            vf_store(e + j, vf_exp(vf_sub(v, vf_set1(max))));
        }
        for (int j = 0; j < valid; j++)
            lane[j] += (double)e[j];
    }
    for (int half = BLOCK / 2; half > 0; half /= 2)
        for (int j = 0; j < half; j++)
            lane[j] += lane[j + half];
    return (double)max + kern_log(lane[0]);
}
