/* SPDX-License-Identifier: MIT */
/*
 * Level "c": the specification of every kernel, in plain C, and the fallback of CPUs without SIMD
 * levels. Written to be read; products keep the 32 outputs of a panel as the innermost loop, so
 * that a compiler's baseline vectors are used.
 *
 * Order of summation: a dot product adds k = 0, 1, 2 ... to one f32 sum. Integer groups are summed
 * exactly, then (float)group * activation scale * weight scale is added, group by group. Vectors
 * (norms, softmax) are summed in LANES partial sums by index mod LANES, then by halves.
 */
#include "engine/kernels/b12.h"
#include "engine/kernels/convert.h"
#include "engine/kernels/kv_int8.h"
#include "engine/kernels/levels.h"
#include "engine/kernels/race_loops.h"
#include "engine/kernels/read_loops.h"

#include <float.h>
#include <math.h>

enum { LANES = 16, MAX_ROWS = 12 };

/* ---- exp and log --------------------------------------------------------------------------- */

/* 2^n for n in -252..254, in two factors, so that results below 2^-126 come out as subnormals. */
static float scale_by_power(float x, int n)
{
    int half = n / 2;
    float a = kern_float((uint32_t)(half + 127) << 23);
    float b = kern_float((uint32_t)(n - half + 127) << 23);
    return x * a * b;
}

/* exp(x) within 1 ulp: x = n ln 2 + r, polynomial in r, error 4e-9. NaN stays NaN. */
static float exp_f32(float x)
{
    if (x != x) return x;
    x = kern_clamp(x, -104.0f, 89.0f);
    int n = kern_round(x * 0x1.715476p+0f);
    float r = x - (float)n * 0x1.62e4p-1f;
    r = r - (float)n * 0x1.7f7d1dp-20f;
    float p = 0x1.6a2352p-10f;
    p = p * r + 0x1.123a6cp-7f;
    p = p * r + 0x1.5558f4p-5f;
    p = p * r + 0x1.555490p-3f;
    p = p * r + 0x1.fffffcp-2f;
    p = r * r * p + r + 1.0f;
    return scale_by_power(p, n);
}

double kern_log(double x)
{
    uint64_t u;
    memcpy(&u, &x, sizeof(u));
    /* m in [sqrt(1/2), sqrt(2)), x = m 2^e */
    uint64_t shifted = u - 0x3fe6a09e667f3bcdULL;
    int e = (int)((int64_t)shifted >> 52);
    u -= (uint64_t)e << 52;
    double m;
    memcpy(&m, &u, sizeof(m));
    /* log m = 2 atanh(t) */
    double t = (m - 1.0) / (m + 1.0), t2 = t * t, sum = 0.0;
    for (int k = 23; k >= 3; k -= 2)
        sum = (sum + 1.0 / k) * t2;
    return e * 0x1.62e42fefa39efp-1 + (2.0 * t + 2.0 * t * sum);
}

/* exp(x) within 2 ulp for |x| <= 700, at its ends beyond: x = n ln 2 + r, a Taylor series of r. */
static double exp_f64(double x)
{
    double p = 1.0, power;
    if (x != x) return x;
    x = x < -700.0 ? -700.0 : x > 700.0 ? 700.0 : x;
    int n = (int)(x * 0x1.71547652b82fep+0 + (x < 0 ? -0.5 : 0.5));
    double r = x - n * 0x1.62e42fefa38p-1 - n * 0x1.ef35793c7673p-45;
    for (int k = 13; k > 0; k--)
        p = 1.0 + p * (r * (1.0 / k));
    uint64_t u = (uint64_t)(n + 1023) << 52;
    memcpy(&power, &u, sizeof(power));
    return p * power;
}

void kern_ref_delta_gates(const float *a_log, const float *bias, float *beta, float *decay, int n)
{
    for (int i = 0; i < n; i++) {
        double x = (double)decay[i] + (double)bias[i];
        double rate = x <= 40.0 ? kern_log(1.0 + exp_f64(x)) : x; /* log(1 + exp(x)); or NaN */
        beta[i] = (float)(1.0 / (1.0 + exp_f64(-(double)beta[i])));
        decay[i] = (float)exp_f64(-exp_f64((double)a_log[i]) * rate);
    }
}

/* Sum of the lanes by halves: i + 8, then i + 4, i + 2, i + 1. */
static float lanes_sum(float lane[LANES])
{
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] += lane[i + half];
    return lane[0];
}

/* ---- packing activations ------------------------------------------------------------------- */

static void pack_row_f32(const float *x, int k, int k_pad, enum kern_wfmt wfmt,
                         const struct kern_tile *tile, int row)
{
    (void)wfmt;
    float *d = (float *)tile->data + row;
    for (int i = 0; i < k_pad; i++)
        d[(size_t)i * (size_t)tile->n_rows] = i < k ? x[i] : 0.0f;
}

static void pack_row_bf16(const float *x, int k, int k_pad, enum kern_wfmt wfmt,
                          const struct kern_tile *tile, int row)
{
    (void)wfmt;
    float *d = (float *)tile->data + row;
    for (int i = 0; i < k_pad; i++)
        d[(size_t)i * (size_t)tile->n_rows] =
            i < k ? kern_f32_of_bf16(kern_bf16_of_f32(x[i])) : 0.0f;
}

/*
 * The largest magnitude of a group, NaN above all; a group that cannot be quantised gets inverse 0.
 */
static float group_max(const float *x, int n, float *ret_inverse)
{
    uint32_t max = 0;
    for (int i = 0; i < n; i++) {
        uint32_t mag = kern_bits(x[i]) & 0x7fffffff;
        max = mag > max ? mag : max;
    }
    float amax = kern_float(max);
    *ret_inverse = amax >= 1e-30f && amax <= FLT_MAX ? 127.0f / amax : 0.0f;
    return amax;
}

static void pack_row_i8(const float *x, int k, int k_pad, enum kern_wfmt wfmt,
                        const struct kern_tile *tile, int row)
{
    size_t n_rows = (size_t)tile->n_rows;
    int offset = kern_offset(wfmt);
    enum kern_corr kind = kern_corr_of(wfmt);
    for (int g = 0; g < k_pad / KERN_GROUP; g++) {
        int valid = k - g * KERN_GROUP;
        valid = valid < 0 ? 0 : valid > KERN_GROUP ? KERN_GROUP : valid;
        float inv, amax = group_max(x + g * KERN_GROUP, valid, &inv);
        int8_t *d = (int8_t *)tile->data + KERN_GROUP * ((size_t)g * n_rows + (size_t)row);
        int sums[2] = {0, 0};
        for (int i = 0; i < KERN_GROUP; i++) {
            int q = i < valid && inv != 0.0f ? kern_round(x[g * KERN_GROUP + i] * inv) : 0;
            d[i] = (int8_t)q;
            sums[i / 16] += q;
        }
        float scale = amax / 127.0f;
        int sum = sums[0] + sums[1];
        tile->scale[(size_t)g * n_rows + (size_t)row] = scale;
        tile->corr[(size_t)g * n_rows + (size_t)row] =
            kind == KERN_CORR_HALVES   ? kern_half_sums(sums[0], sums[1])
            : kind == KERN_CORR_MINIMA ? (int32_t)kern_bits((float)sum * scale)
                                       : -offset * sum;
    }
}

/* ---- products ------------------------------------------------------------------------------ */

static void store_row(const float acc[KERN_PANEL], const struct kern_out *out, int row, int panel)
{
    float *c = out->c + (size_t)row * out->ld + (size_t)panel * KERN_PANEL;
    for (int n = 0; n < KERN_PANEL; n++)
        c[n] = out->add ? c[n] + acc[n] : acc[n];
}

/* One row times one group of 32 k, added to acc; a is this row's first element of the group. */
typedef void group_fn(float acc[KERN_PANEL], const void *a, size_t n_rows, const void *b);

static void group_f32_f32(float acc[KERN_PANEL], const void *a, size_t n_rows, const void *b)
{
    const float *x = a, *w = b;
    for (size_t k = 0; k < KERN_GROUP; k++)
        for (size_t n = 0; n < KERN_PANEL; n++)
            acc[n] += x[k * n_rows] * w[k * KERN_PANEL + n];
}

static void group_f32_bf16(float acc[KERN_PANEL], const void *a, size_t n_rows, const void *b)
{
    const float *x = a;
    const uint16_t *w = b;
    for (size_t k = 0; k < KERN_GROUP; k++)
        for (size_t n = 0; n < KERN_PANEL; n++)
            acc[n] += x[k * n_rows] * kern_f32_of_bf16(w[k / 2 * 64 + n * 2 + (k & 1)]);
}

static void group_f32_f16(float acc[KERN_PANEL], const void *a, size_t n_rows, const void *b)
{
    const float *x = a;
    const uint16_t *w = b;
    for (size_t k = 0; k < KERN_GROUP; k++)
        for (size_t n = 0; n < KERN_PANEL; n++)
            acc[n] += x[k * n_rows] * kern_f32_of_f16(w[k * KERN_PANEL + n]);
}

/* All rows times one panel, whose groups of 32 k are group_bytes apart from b on, or at segs. */
static inline void panel_product(const struct kern_tile *tile, int k_pad, const char *b,
                                 const struct kern_out *out, int panel, group_fn *group,
                                 size_t group_bytes, const void *const *segs)
{
    size_t n_rows = (size_t)tile->n_rows;
    for (int r = 0; r < tile->n_rows; r++) {
        const float *a = (const float *)tile->data + r;
        float acc[KERN_PANEL] = {0};
        for (int g = 0; g < k_pad / KERN_GROUP; g++) {
            group(acc, a, n_rows, segs ? segs[g] : b + (size_t)g * group_bytes);
            a += KERN_GROUP * n_rows;
        }
        store_row(acc, out, r, panel);
    }
}

/* Word w of a k-pair of a B12 panel, if it is not an exception. */
static inline uint16_t coded_word(const uint8_t *table, const uint8_t *blocks, size_t pair, int w)
{
    const uint8_t *b = blocks + pair / 2 * B12_BLOCK_BYTES;
    int at = w / 8 % 4 * 16 + w / 32 * 8 + w % 8, odd = (int)(pair % 2);
    return (uint16_t)(table[odd ? b[at] >> 4 : b[at] & 15] << 8 | b[64 + odd * 64 + at]);
}

/* Group g of a B12 panel as words of a bf16 panel; *e is its first exception. */
static void decode_group(const void *panel, int k_pad, int g, const uint32_t **e,
                         uint16_t words[B12_GROUP_WORDS])
{
    const uint8_t *table = panel, *blocks = table + b12_head_bytes(k_pad);
    for (int i = 0; i < B12_GROUP_WORDS; i++)
        words[i] = coded_word(table, blocks, (size_t)(g * KERN_GROUP / 2 + i / B12_PAIR_WORDS),
                              i % B12_PAIR_WORDS);
    *e = b12_patch(*e, g, words);
}

/* The same product as panel_product's, each group decoded once for all rows. */
static inline void coded_product(const struct kern_tile *tile, int k_pad, const void *b,
                                 const struct kern_out *out, int panel, group_fn *group)
{
    size_t n_rows = (size_t)tile->n_rows;
    float acc[MAX_ROWS][KERN_PANEL] = {{0}};
    const uint32_t *e = b12_exceptions(b);
    const float *a = tile->data;
    for (int g = 0; g < k_pad / KERN_GROUP; g++, a += KERN_GROUP * n_rows) {
        uint16_t words[B12_GROUP_WORDS];
        decode_group(b, k_pad, g, &e, words);
        for (size_t r = 0; r < n_rows; r++)
            group(acc[r], a + r, n_rows, words);
    }
    for (int r = 0; r < tile->n_rows; r++)
        store_row(acc[r], out, r, panel);
}

/* A function of the table that gives `product` each panel; the rest is for it, from `group` on. */
#define MATMUL(name, product, ...)                                                                 \
    static void name(const struct kern_tile *tile, int k_pad, const void *panels,                  \
                     size_t panel_bytes, int n_panels, const struct kern_out *out,                 \
                     const struct kern_fetch *fetch)                                               \
    {                                                                                              \
        (void)fetch;                                                                               \
        for (int p = 0; p < n_panels; p++)                                                         \
            product(tile, k_pad, (const char *)panels + (size_t)p * panel_bytes, out, p,           \
                    __VA_ARGS__);                                                                  \
    }

MATMUL(matmul_f32_f32, panel_product, group_f32_f32, 4096, NULL)
MATMUL(matmul_f32_bf16, panel_product, group_f32_bf16, 2048, NULL)
MATMUL(matmul_f32_f16, panel_product, group_f32_f16, 2048, NULL)
MATMUL(matmul_f32_b12, coded_product, group_f32_bf16)

static void narrow(const float *x, size_t ld, int n_rows, int k, enum kern_wfmt fmt,
                   const void *panels, int n_panels, const struct kern_out *out)
{
    for (int i = 0; i < n_rows * n_panels * KERN_NARROW; i++) {
        int row = i / (n_panels * KERN_NARROW), n = i % (n_panels * KERN_NARROW);
        float sum[2] = {0, 0}, *c = out->c + (size_t)row * out->ld + n;
        for (int j = 0; j < k; j++) {
            size_t at = kern_narrow_at(fmt, k, n, j);
            float w = fmt == KERN_W_F32 ? ((const float *)panels)[at]
                                        : kern_f32_of_bf16(((const uint16_t *)panels)[at]);
            sum[j & 1] += x[(size_t)row * ld + (size_t)j] * w;
        }
        *c = out->add ? *c + (sum[0] + sum[1]) : sum[0] + sum[1];
    }
}

#define PAGES(fmt, group, group_bytes)                                                             \
    static void pages_##fmt(const struct kern_tile *tile, int k_pad,                               \
                            const struct kern_pages *pages, const struct kern_out *out)            \
    {                                                                                              \
        for (int p = 0; p < pages->n; p++)                                                         \
            panel_product(tile, k_pad, pages->panels[p], out, p, group, group_bytes, NULL);        \
    }                                                                                              \
    static void segs_##fmt(const struct kern_tile *tile, const struct kern_pages *pages,           \
                           const struct kern_out *out)                                             \
    {                                                                                              \
        panel_product(tile, pages->n *KERN_GROUP, NULL, out, 0, group, 0, pages->panels);          \
    }
PAGES(f32, group_f32_f32, 4096)
PAGES(bf16, group_f32_bf16, 2048)

/* Quad j (four k) of output n: unsigned weights, offset included. */
static int weight_i8(const uint8_t *group, int j, int n, int i)
{
    return group[j * 128 + n * 4 + i];
}

static int weight_i4(const uint8_t *group, int j, int n, int i)
{
    int both = group[(j & 3) * 128 + n * 4 + i];
    return j < 4 ? both & 15 : both >> 4;
}

static int weight_i6(const uint8_t *group, int j, int n, int i)
{
    int upper = group[j / 4 * 128 + n * 4 + i] >> 2 * (j & 3) & 3;
    return weight_i4(group + 256, j, n, i) | upper << 4;
}

static int weight_i5(const uint8_t *group, int j, int n, int i)
{
    int both = group[128 + (j & 3) * 128 + n * 4 + i];
    return j < 4 ? both & 31 : both >> 5 | (group[n * 4 + i] >> 2 * (j & 3) & 3) << 3;
}

static int weight_at(enum kern_wfmt fmt, const uint8_t *group, int k, int n)
{
    switch (fmt) {
    case KERN_W_I4:
    case KERN_W_I4A:
    case KERN_W_I4K: return weight_i4(group, k / 4, n, k & 3);
    case KERN_W_I5:
    case KERN_W_I5A:
    case KERN_W_I5K: return weight_i5(group, k / 4, n, k & 3);
    case KERN_W_I6S: return weight_i6(group, k / 4, n, k & 3);
    default: return weight_i8(group, k / 4, n, k & 3);
    }
}

static float half_at(const uint8_t *p, int n)
{
    uint16_t bits;
    memcpy(&bits, p + 2 * n, sizeof(bits));
    return kern_f32_of_f16(bits);
}

/*
 * The numbers of one output in one group: values are (d * s[k / 16]) * (weight - offset) + min.
 * head is that of the group's 8, if the form has one.
 */
struct scales {
    float d, min;
    int s[2];
};

static struct scales scales_at(enum kern_wfmt fmt, const uint8_t *head, const uint8_t *group, int n)
{
    const uint8_t *own = group + kern_quads_bytes(fmt), *second = own + KERN_PANEL;
    struct scales r = {.s = {1, 1}};
    if (fmt == KERN_W_I6S) {
        r.d = half_at(head, n);
        r.s[0] = (int8_t)own[n];
        r.s[1] = (int8_t)second[n];
    } else if (kern_head_bytes(fmt)) {
        r.d = half_at(head, n) * (float)own[n];
        r.min = -(half_at(head + 2 * KERN_PANEL, n) * (float)second[n]);
    } else {
        r.d = half_at(own, n);
        if (kern_has_minimum(fmt)) r.min = half_at(own + 2 * KERN_PANEL, n);
    }
    return r;
}

/* The group after `group`, which is the g-th, and its head. */
static const uint8_t *next_group(enum kern_wfmt fmt, int g, const uint8_t *group,
                                 const uint8_t **head)
{
    int bytes = kern_head_bytes(fmt);
    if (g >= 0) group += kern_panel_bytes(fmt, KERN_GROUP) - (size_t)bytes;
    if ((g + 1) % KERN_HEAD_GROUPS != 0) return group;
    *head = group;
    return group + bytes;
}

/*
 * One row and one output of a group, added to acc: the exact sum, times the two scales; and the
 * group's sum times the minimum.
 */
static float add_group(enum kern_wfmt fmt, const int8_t *a, float scale, int32_t corr,
                       const struct scales *w, const uint8_t *b, int n, float acc)
{
    int half[2] = {0, 0};
    enum kern_corr kind = kern_corr_of(fmt);
    for (int k = 0; k < KERN_GROUP; k++)
        half[k / 16] += a[k] * weight_at(fmt, b, k, n);
    if (kind == KERN_CORR_OFFSETS) half[0] += corr;
    if (kind == KERN_CORR_HALVES) {
        half[0] -= kern_offset(fmt) * kern_low_sum(corr);
        half[1] -= kern_offset(fmt) * kern_high_sum(corr);
    }
    acc += (float)(half[0] * w->s[0] + half[1] * w->s[1]) * scale * w->d;
    return kind == KERN_CORR_MINIMA ? acc + kern_float((uint32_t)corr) * w->min : acc;
}

static void row_int(const struct kern_tile *tile, int row, int n_groups, const void *panel,
                    float acc[KERN_PANEL], enum kern_wfmt fmt)
{
    size_t n_rows = (size_t)tile->n_rows;
    const int8_t *a = (const int8_t *)tile->data + KERN_GROUP * row;
    const uint8_t *b = panel, *head = NULL;
    for (int g = 0; g < n_groups; g++, a += 32 * n_rows) {
        size_t at = (size_t)g * n_rows + (size_t)row;
        b = next_group(fmt, g - 1, b, &head);
        for (int n = 0; n < KERN_PANEL; n++) {
            struct scales w = scales_at(fmt, head, b, n);
            acc[n] = add_group(fmt, a, tile->scale[at], tile->corr[at], &w, b, n, acc[n]);
        }
    }
}

static void int_product(const struct kern_tile *tile, int k_pad, const void *b,
                        const struct kern_out *out, int panel, enum kern_wfmt fmt)
{
    for (int r = 0; r < tile->n_rows; r++) {
        float acc[KERN_PANEL] = {0};
        row_int(tile, r, k_pad / KERN_GROUP, b, acc, fmt);
        store_row(acc, out, r, panel);
    }
}

#define INT_MATMUL(prefix, name, fmt) MATMUL(prefix##_##name, int_product, fmt)
EACH_INT_FORM(INT_MATMUL, matmul)

/* ---- vectors ------------------------------------------------------------------------------- */

static void rmsnorm(const float *x, const float *w, float *o, int n, float eps)
{
    float lane[LANES] = {0};
    for (int i = 0; i < n; i++)
        lane[i % LANES] += x[i] * x[i];
    float inv = 1.0f / sqrtf(lanes_sum(lane) / (float)n + eps);
    for (int i = 0; i < n; i++)
        o[i] = x[i] * inv * w[i];
}

static void layernorm(const float *x, const float *w, const float *b, float *o, int n, float eps)
{
    float sum[LANES] = {0}, squares[LANES] = {0};
    for (int i = 0; i < n; i++)
        sum[i % LANES] += x[i];
    float mean = lanes_sum(sum) / (float)n;
    for (int i = 0; i < n; i++)
        squares[i % LANES] += (x[i] - mean) * (x[i] - mean);
    float inv = 1.0f / sqrtf(lanes_sum(squares) / (float)n + eps);
    for (int i = 0; i < n; i++)
        o[i] = (x[i] - mean) * inv * w[i] + (b ? b[i] : 0.0f);
}

static void rope(float *x, const float *cos, const float *sin, int n, int apart)
{
    for (int i = 0; i < n; i++) {
        float a = x[i], b = x[i + apart];
        x[i] = a * cos[i] - b * sin[i];
        x[i + apart] = b * cos[i] + a * sin[i];
    }
}

static void silu_mul(const float *g, const float *u, float *o, int n)
{
    for (int i = 0; i < n; i++)
        o[i] = g[i] / (1.0f + exp_f32(-g[i])) * u[i];
}

static void sigmoid_mul(const float *g, const float *u, float *o, int n)
{
    for (int i = 0; i < n; i++)
        o[i] = u[i] / (1.0f + exp_f32(-g[i]));
}

/* 1 + tanh(y) = 2 / (1 + exp(-2 y)) */
static void gelu_tanh_mul(const float *g, const float *u, float *o, int n)
{
    for (int i = 0; i < n; i++) {
        float y = g[i] * g[i] * g[i] * 0.044715f + g[i];
        o[i] = g[i] / (1.0f + exp_f32(y * -1.5957691216f)) * u[i];
    }
}

/*
 * The share of a normal distribution below x. That beyond |x| is exp(-x^2 / 2) times a polynomial
 * without constant in t = 1 / (1 + 0.4 |x| / sqrt(2)), off by 4e-7 of its size, so nothing cancels.
 */
static float normal_share(float x)
{
    float t = 1.0f / (1.0f + 0x1.21a186p-2f * fabsf(x));
    float q = 0x1.4b932p-6f * t - 0x1.178b7p-4f;
    q = q * t + 0x1.374522p-5f;
    q = q * t + 0x1.8e3d68p-5f;
    q = q * t + 0x1.2c1cbcp-5f;
    q = q * t + 0x1.91cffcp-4f;
    q = q * t + 0x1.9bf926p-4f;
    q = q * t + 0x1.cff7dcp-4f;
    q = q * t + 0x1.ce1612p-4f;
    float beyond = exp_f32(x * x * -0.5f) * (q * t);
    return x > 0.0f ? 1.0f - beyond : beyond;
}

static void gelu_mul(const float *g, const float *u, float *o, int n)
{
    for (int i = 0; i < n; i++)
        o[i] = g[i] * normal_share(g[i]) * u[i];
}

/* tanh(t) within 3e-7 of its size: the series near 0, where the exponential's form cancels. */
static float tanh_f32(float t)
{
    float q = t * t;
    if (q > 0.1225f) return 1.0f - 2.0f / (1.0f + exp_f32(t + t));
    float p = q * -0x1.226e36p-7f + 0x1.664f48p-6f;
    p = p * q - 0x1.ba1ba2p-5f;
    p = p * q + 0x1.111112p-3f;
    p = p * q - 0x1.555556p-2f;
    return p * q * t + t;
}

static void softcap(float *x, int n, float scale, float cap)
{
    for (int i = 0; i < n; i++)
        x[i] = cap * tanh_f32(x[i] * (scale / cap));
}

static void add(float *y, const float *x, int n)
{
    for (int i = 0; i < n; i++)
        y[i] += x[i];
}

static void conv_token(const struct kern_conv *conv, const float *b, const float *c, const float *u,
                       const float *const *before, float *now, float *o, int n)
{
    const float *w = conv->w + (size_t)(conv->taps - 1) * conv->ld;
    for (int i = 0; i < n; i++) {
        float sum = conv->bias ? conv->bias[i] : 0.0f;
        now[i] = b ? b[i] * u[i] : u[i];
        for (int j = 0; j < conv->taps - 1; j++)
            sum = fmaf(conv->w[(size_t)j * conv->ld + (size_t)i], before[j][i], sum);
        sum = fmaf(w[i], now[i], sum);
        o[i] = c ? c[i] * sum : sum;
    }
}

static void delta_token(const struct kern_delta *t, float *s, float *ret_delta, float *o)
{
    for (int c = 0; c < t->n; c++) {
        float u[2] = {0}, sum[2] = {0};
        for (int i = 0; i < t->d_k; i++)
            u[i % 2] = fmaf(t->k[i], s[i * KERN_DELTA + c], u[i % 2]);
        float delta = fmaf(-t->decay, u[0] + u[1], t->v[c]) * t->beta;
        for (int i = 0; i < t->d_k; i++) {
            float *x = &s[i * KERN_DELTA + c];
            *x = fmaf(t->k[i], delta, *x * t->decay);
            sum[i % 2] = fmaf(t->q[i], *x, sum[i % 2]);
        }
        ret_delta[c] = delta;
        o[c] = sum[0] + sum[1];
    }
}

static void delta_again(const struct kern_delta *t, const float *delta, float *s)
{
    for (int i = 0; i < t->d_k; i++)
        for (int c = 0; c < t->n; c++) {
            float *x = &s[i * KERN_DELTA + c];
            *x = fmaf(t->k[i], delta[c], *x * t->decay);
        }
}

static void scale(float *y, float a, int n)
{
    for (int i = 0; i < n; i++)
        y[i] *= a;
}

static struct kern_softmax softmax_keys(float *s, int n, int lo, int hi, float factor)
{
    struct kern_softmax r = {.max = -INFINITY, .sum = 0.0f};
    float lane[LANES] = {0};
    for (int i = lo; i < hi; i++)
        r.max = s[i] > r.max ? s[i] : r.max;
    r.max *= factor;
    for (int i = 0; i < n; i++) {
        s[i] = i >= lo && i < hi ? exp_f32(s[i] * factor - r.max) : 0.0f;
        lane[i % LANES] += s[i];
    }
    r.sum = lanes_sum(lane);
    return r;
}

static void merge_softmax(struct kern_softmax *to, float *y, const struct kern_softmax *from,
                          const float *x, int n)
{
    float max = to->max > from->max ? to->max : from->max;
    float a = exp_f32(to->max - max), b = exp_f32(from->max - max);
    to->max = max;
    to->sum = to->sum * a + from->sum * b;
    for (int i = 0; i < n; i++)
        y[i] = y[i] * a + x[i] * b;
}

static int argmax(const float *x, int n, bool *ret_finite)
{
    int best = 0;
    bool finite = true;
    for (int i = 0; i < n; i++) {
        finite = finite && x[i] <= FLT_MAX;
        if (x[i] > x[best]) best = i;
    }
    *ret_finite = finite;
    return best;
}

static double log_sum_exp(const float *x, int n)
{
    double lane[LANES] = {0};
    float max = x[0];
    for (int i = 1; i < n; i++)
        max = x[i] > max ? x[i] : max;
    for (int i = 0; i < n; i++)
        lane[i % LANES] += (double)exp_f32(x[i] - max);
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] += lane[i + half];
    return (double)max + kern_log(lane[0]);
}

/* ---- pages of the KV cache ----------------------------------------------------------------- */

/* Elements are stored one by one: other threads may be writing the neighbouring slots. */

static void put_key_f32(void *panel, const float *x, int d, int d_pad, int slot)
{
    float *p = (float *)panel + slot;
    for (int i = 0; i < d_pad; i++)
        p[i * KERN_PANEL] = i < d ? x[i] : 0.0f;
}

static void put_key_bf16(void *panel, const float *x, int d, int d_pad, int slot)
{
    uint16_t *p = (uint16_t *)panel + 2 * slot;
    for (int i = 0; i < d_pad; i++)
        p[i / 2 * 64 + (i & 1)] = i < d ? kern_bf16_of_f32(x[i]) : 0;
}

static void put_value_f32(void *panels, const float *x, int d, int d_pad, int slot)
{
    for (int i = 0; i < d_pad; i++) {
        float *p = (float *)panels + i / KERN_PANEL * 1024;
        p[slot * KERN_PANEL + i % KERN_PANEL] = i < d ? x[i] : 0.0f;
    }
}

static void put_value_bf16(void *panels, const float *x, int d, int d_pad, int slot)
{
    for (int i = 0; i < d_pad; i++) {
        uint16_t *p = (uint16_t *)panels + i / KERN_PANEL * 1024;
        p[slot / 2 * 64 + i % KERN_PANEL * 2 + (slot & 1)] = i < d ? kern_bf16_of_f32(x[i]) : 0;
    }
}

/* One row and one position: 32 dims a block. */
static float key_score(const struct kern_tile *tile, int row, int n_groups, const uint8_t *b, int n)
{
    float score = 0.0f;
    for (int g = 0; g < n_groups; g++, b += KV_BLOCK_BYTES) {
        size_t at = (size_t)g * (size_t)tile->n_rows + (size_t)row;
        const int8_t *q = (const int8_t *)tile->data + KERN_GROUP * at;
        int sum = tile->corr[at];
        uint16_t scale;
        for (int k = 0; k < KERN_GROUP; k++)
            sum += q[k] * b[k / 4 * 128 + n * 4 + k % 4];
        memcpy(&scale, b + KV_BLOCK_DATA + 2 * n, sizeof(scale));
        score += (float)sum * (tile->scale[at] * kern_f32_of_bf16(scale));
    }
    return score;
}

static void kv_keys(const struct kern_tile *tile, int k_pad, const struct kern_pages *pages,
                    const struct kern_out *out)
{
    for (int p = 0; p < pages->n; p++)
        for (int r = 0; r < tile->n_rows; r++)
            for (int n = 0; n < KERN_PANEL; n++)
                out->c[(size_t)r * out->ld + (size_t)(p * KERN_PANEL + n)] =
                    key_score(tile, r, k_pad / KERN_GROUP, pages->panels[p], n);
}

/*
 * Of this level: [ceil(n / 64)][n_rows][64] u16. Adding 1.5 * 2^23 leaves the nearest integer, ties
 * to even, in the low bits.
 */
static void kv_probs(const float *e, int lo, int hi, struct kern_value_scales *s,
                     const struct kern_tile *tile, int row)
{
    uint16_t top = top_scale(s->scale, lo, hi), *p = (uint16_t *)tile->data + 64 * row;
    const float *weight = lo < hi ? weights_for(s, top) : NULL;
    for (int i = 0; i < s->n; i++)
        p[i / 64 * 64 * tile->n_rows + i % 64] =
            i >= lo && i < hi ? (uint16_t)kern_bits(e[i] * weight[i] + 0x1.8p23f) : 0;
    tile->scale[row] = kern_f32_of_bf16(top) / KV_PROB_MAX;
}

static void kv_values(const struct kern_tile *tile, const struct kern_pages *pages,
                      const struct kern_out *out)
{
    for (int r = 0; r < tile->n_rows; r++)
        for (int d = 0; d < KERN_PANEL; d++) {
            int32_t sum = 0;
            for (int i = 0; i < pages->n * KERN_PANEL; i++) {
                const int8_t *q = pages->panels[i / KERN_PANEL];
                const uint16_t *p = (const uint16_t *)tile->data + 64 * (i / 64 * tile->n_rows + r);
                sum += p[i % 64] * q[i % KERN_PANEL / 4 * 128 + d * 4 + i % 4];
            }
            out->c[(size_t)r * out->ld + (size_t)d] = (float)sum * tile->scale[r];
        }
}

/* ---- weights ------------------------------------------------------------------------------- */

/* Element k of a row in a file; zero for a NULL row and for k >= n_k. */
static float source_f32(enum kern_src src, const void *row, int k, int n_k)
{
    if (!row || k >= n_k) return 0.0f;
    if (src == KERN_SRC_F32) {
        float f;
        memcpy(&f, (const char *)row + 4 * (size_t)k, sizeof(f));
        return f;
    }
    uint16_t h;
    memcpy(&h, (const char *)row + 2 * (size_t)k, sizeof(h));
    return src == KERN_SRC_F16 ? kern_f32_of_f16(h) : kern_f32_of_bf16(h);
}

/* The place of element k of output n in a panel of floats: as 32-bit words hold pairs of BF16. */
static size_t float_place(enum kern_wfmt fmt, size_t k, size_t n)
{
    return fmt == KERN_W_BF16 ? k / 2 * 64 + n * 2 + (k & 1) : k * KERN_PANEL + n;
}

static void put_float(enum kern_wfmt fmt, void *panel, size_t k, size_t n, float x)
{
    size_t at = float_place(fmt, k, n);
    if (fmt == KERN_W_F32)
        ((float *)panel)[at] = x;
    else
        ((uint16_t *)panel)[at] = fmt == KERN_W_BF16 ? kern_bf16_of_f32(x) : kern_f16_of_f32(x);
}

static float get_float(enum kern_wfmt fmt, const void *panel, size_t k, size_t n)
{
    size_t at = float_place(fmt, k, n);
    if (fmt == KERN_W_F32) return ((const float *)panel)[at];
    uint16_t half = ((const uint16_t *)panel)[at];
    return fmt == KERN_W_BF16 ? kern_f32_of_bf16(half) : kern_f32_of_f16(half);
}

static void load_lanes(enum kern_src src, const void *const *rows, int k, int n_k,
                       float x[KERN_GROUP][KERN_PANEL])
{
    for (int i = 0; i < KERN_GROUP; i++)
        for (int n = 0; n < KERN_PANEL; n++)
            x[i][n] = source_f32(src, rows[n], k + i, n_k);
}

#include "engine/kernels/affine.h"

static void pack_panel(enum kern_wfmt fmt, enum kern_src src, const void *const rows[KERN_PANEL],
                       const float *importance, int k, int k_pad, void *panel)
{
    uint8_t *group = panel;
    if (fmt == KERN_W_F32 || fmt == KERN_W_BF16 || fmt == KERN_W_F16)
        for (int n = 0; n < KERN_PANEL; n++)
            for (int i = 0; i < k_pad; i++)
                put_float(fmt, panel, (size_t)i, (size_t)n, source_f32(src, rows[n], i, k));
    else if (fmt != KERN_W_I8)
        pack_affine(fmt, src, rows, importance, k, k_pad, panel);
    else
        for (int g = 0; g < k_pad / KERN_GROUP; g++, group += kern_panel_bytes(fmt, KERN_GROUP))
            for (int n = 0; n < KERN_PANEL; n++) {
                float x[KERN_GROUP];
                for (int i = 0; i < KERN_GROUP; i++)
                    x[i] = source_f32(src, rows[n], g * KERN_GROUP + i, k);
                uint8_t q[KERN_GROUP];
                uint16_t s = kern_i8_group(x, q);
                memcpy(group + 1024 + 2 * n, &s, sizeof(s));
                for (int i = 0; i < KERN_GROUP; i++)
                    group[i / 4 * 128 + n * 4 + (i & 3)] = q[i];
            }
}

/* Output n of a panel of integers. */
static void unpack_int_row(enum kern_wfmt fmt, const uint8_t *group, int n, int k, float *ret_row)
{
    const uint8_t *head = NULL;
    for (int g = 0; g * KERN_GROUP < k; g++) {
        group = next_group(fmt, g - 1, group, &head);
        struct scales w = scales_at(fmt, head, group, n);
        for (int i = 0; i < KERN_GROUP && g * KERN_GROUP + i < k; i++) {
            float v =
                w.d * (float)w.s[i / 16] * (float)(weight_at(fmt, group, i, n) - kern_offset(fmt));
            ret_row[g * KERN_GROUP + i] = kern_has_minimum(fmt) ? v + w.min : v;
        }
    }
}

/* The first k of the weights of output n of a B12 panel. */
static void unpack_coded_row(const void *panel, int n, int k, float *ret_row)
{
    int k_pad = (k + KERN_GROUP - 1) / KERN_GROUP * KERN_GROUP;
    const uint8_t *table = panel, *blocks = table + b12_head_bytes(k_pad);
    for (int i = 0; i < k; i++)
        ret_row[i] = kern_f32_of_bf16(coded_word(table, blocks, (size_t)i / 2, 2 * n + (i & 1)));
    for (const uint32_t *e = b12_exceptions(panel); *e != B12_END; e++) {
        uint32_t place = *e >> 8, w = place % B12_PAIR_WORDS,
                 i = place / B12_PAIR_WORDS * 2 + w % 2;
        if ((int)w / 2 == n && (int)i < k)
            ret_row[i] = kern_float((kern_bits(ret_row[i]) & 0x00ffffff) | *e << 24);
    }
}

void kern_ref_unpack_row(enum kern_wfmt fmt, const void *panel, int n, int k, float *ret_row)
{
    if (fmt == KERN_W_F32 || fmt == KERN_W_BF16 || fmt == KERN_W_F16)
        for (int i = 0; i < k; i++)
            ret_row[i] = get_float(fmt, panel, (size_t)i, (size_t)n);
    else if (fmt == KERN_W_B12)
        unpack_coded_row(panel, n, k, ret_row);
    else
        unpack_int_row(fmt, panel, n, k, ret_row);
}

const struct kern kern_ref = {
    .name = "c",
    .max_rows = {MAX_ROWS, MAX_ROWS, MAX_ROWS},
    .act_bytes = {4, 4, 1},
    .pack_row = {pack_row_f32, pack_row_bf16, pack_row_i8},
    .matmul =
        {
            [KERN_A_F32] = {[KERN_W_F32] = matmul_f32_f32,
                            [KERN_W_BF16] = matmul_f32_bf16,
                            [KERN_W_B12] = matmul_f32_b12,
                            [KERN_W_F16] = matmul_f32_f16},
            [KERN_A_BF16] = {[KERN_W_BF16] = matmul_f32_bf16, [KERN_W_B12] = matmul_f32_b12},
            [KERN_A_I8] = {EACH_INT_FORM(INT_ENTRY, matmul)},
        },
    .matmul_pages = {pages_f32, pages_bf16, kv_keys},
    .matmul_segs = {segs_f32, segs_bf16, kv_values},
    .pack_probs = kv_probs,
    SAME_NAMES,
};
