/* SPDX-License-Identifier: MIT */
/*
 * Weights to panels of I4K, I5K and I6S, in plain C for all levels, which the compiler vectorises
 * over the outputs; included once the file has
 *
 *   void load_lanes(src, rows, k, n_k, float x[KERN_GROUP][KERN_PANEL])
 *
 * 32 elements from k on of the rows, zeros from n_k on. With importances some scales are tried for
 * each group, and each with its minimum is fitted to its q by least squares; without, the scale is
 * that of the range. Those of 8 groups are rounded to their common scales, in F16, and 8 bits.
 */
#pragma once

#include <math.h>
#include <string.h>

#include "engine/kernels/convert.h"

typedef float lanes[KERN_PANEL];

/* Weights as scale * q - min, q in 0..top; neither is negative. */
struct affine {
    lanes scale, min;
};

/* The scales tried are the range of the weights over top and so many steps more. */
enum { AFFINE_TRIES = 3 };
static const float affine_steps[AFFINE_TRIES] = {0.0f, -0.7f, 0.7f};

static inline float affine_inverse(float s)
{
    return s > 0.0f ? 1.0f / s : 0.0f;
}

/* Nearest integer, ties to even. */
static inline float affine_quant(float x, float min, float inv, float top)
{
    return kern_clamp((x + min) * inv, 0.0f, top) + 12582912.0f - 12582912.0f;
}

/*
 * Fits scale and min to the q that `a` gives, if weight i counts w[i] times, and takes them for
 * *best where the error becomes less: by more than `most` less than the sum of w x^2.
 */
static inline void affine_fit(const lanes *x, const float *w, float top, const struct affine *a,
                              float sw, const lanes sx, struct affine *best, lanes most)
{
    lanes inv, sq = {0}, sqq = {0}, sqx = {0};
    for (int n = 0; n < KERN_PANEL; n++)
        inv[n] = affine_inverse(a->scale[n]);
    for (int i = 0; i < KERN_GROUP; i++)
        for (int n = 0; n < KERN_PANEL; n++) {
            float q = affine_quant(x[i][n], a->min[n], inv[n], top), wq = w[i] * q;
            sq[n] += wq;
            sqq[n] += wq * q;
            sqx[n] += wq * x[i][n];
        }
    for (int n = 0; n < KERN_PANEL; n++) {
        float det = sw * sqq[n] - sq[n] * sq[n];
        float scale = (sw * sqx[n] - sx[n] * sq[n]) / det, min = (scale * sq[n] - sx[n]) / sw;
        scale = min > 0.0f ? scale : sqx[n] / sqq[n];
        min = min > 0.0f ? min : 0.0f;
        float gain = det > 0.0f && scale > 0.0f ? scale * sqx[n] - min * sx[n] : 0.0f;
        bool better = gain > most[n];
        best->scale[n] = better ? scale : best->scale[n];
        best->min[n] = better ? min : best->min[n];
        most[n] = better ? gain : most[n];
    }
}

static void affine_find(const lanes *x, const float *w, float top, int n_tries, struct affine *best)
{
    lanes lo = {0}, range, sx = {0}, most = {0};
    struct affine a;
    float sw = 0.0f;
    memcpy(range, x[0], sizeof(range));
    for (int i = 0; i < KERN_GROUP; i++) {
        sw += w[i];
        for (int n = 0; n < KERN_PANEL; n++) {
            lo[n] = x[i][n] < lo[n] ? x[i][n] : lo[n];
            range[n] = x[i][n] > range[n] ? x[i][n] : range[n];
            sx[n] += w[i] * x[i][n];
        }
    }
    for (int n = 0; n < KERN_PANEL; n++) {
        range[n] -= lo[n];
        best->scale[n] = range[n] / top;
        best->min[n] = a.min[n] = -lo[n];
    }
    for (int t = 0; t < n_tries; t++) {
        for (int n = 0; n < KERN_PANEL; n++)
            a.scale[n] = range[n] / (top + affine_steps[t]);
        affine_fit(x, w, top, &a, sw, sx, best, most);
    }
}

/* Rounds v[n] to 8 bits of the scale; returns the value of these. */
static inline float affine_round(float v, float scale, uint8_t *ret)
{
    float q = affine_quant(v, 0.0f, affine_inverse(scale), 255.0f);
    *ret = (uint8_t)(int)q;
    return scale * q;
}

/* The common scale in F16, of which `most` is to be so many steps; returns its value. */
static inline float affine_head(float most, float steps, uint8_t *ret)
{
    uint16_t h = kern_scale(most, steps);
    memcpy(ret, &h, sizeof(h));
    return kern_f32_of_f16(h);
}

/* The upper bits, of one half or of both, as words apart, then the quads of each q. */
static inline void affine_words(const uint32_t (*q)[KERN_PANEL], int n_upper, uint8_t *group)
{
    const uint32_t bits = n_upper == 1 ? 5 : 4, rest = 8 - bits;
    uint32_t word[KERN_PANEL];
    for (int j = 0; j < 4; j++) {
        for (int n = 0; n < KERN_PANEL; n++) {
            word[n] = 0;
            for (int c = 0; c < 4; c++)
                word[n] |=
                    (q[4 * j + c][n] % (1u << bits) | q[4 * j + 16 + c][n] % (1u << rest) << bits)
                    << 8 * c;
        }
        memcpy(group + (j + n_upper) * 128, word, sizeof(word));
    }
    for (int half = 2 - n_upper; half < 2; half++, group += sizeof(word)) {
        for (int n = 0; n < KERN_PANEL; n++) {
            word[n] = 0;
            for (int i = 0; i < 16; i++)
                word[n] |= q[half * 16 + i][n] >> rest << (i % 4 * 8 + i / 4 * 2);
        }
        memcpy(group, word, sizeof(word));
    }
}

/* A group; d and e are the scales of its 8. */
static void affine_store(bool five, float top, const lanes *x, const struct affine *a,
                         const lanes d, const lanes e, uint8_t *group)
{
    uint32_t q[KERN_GROUP][KERN_PANEL];
    uint8_t *s = group + (five ? 640 : 512), *m = s + KERN_PANEL;
    lanes inv, min;
    for (int n = 0; n < KERN_PANEL; n++) {
        inv[n] = affine_inverse(affine_round(a->scale[n], d[n], &s[n]));
        min[n] = affine_round(a->min[n], e[n], &m[n]);
    }
    for (int i = 0; i < KERN_GROUP; i++)
        for (int n = 0; n < KERN_PANEL; n++)
            q[i][n] = (uint32_t)(int)affine_quant(x[i][n], min[n], inv[n], top);
    affine_words(q, five, group);
}

/* Up to 8 groups, whose head is at `panel`; w: of their columns. */
static void affine_super(enum kern_wfmt fmt, enum kern_src src, const void *const *rows,
                         const float *w, int n_tries, int k, int n_k, int n_groups, uint8_t *panel)
{
    const float top = fmt == KERN_W_I5K ? 31.0f : 15.0f;
    const size_t group_bytes = kern_panel_bytes(fmt, KERN_GROUP) - (size_t)kern_head_bytes(fmt);
    lanes x[KERN_HEAD_GROUPS][KERN_GROUP], d = {0}, e = {0};
    struct affine a[KERN_HEAD_GROUPS];
    for (int g = 0; g < n_groups; g++) {
        load_lanes(src, rows, k + g * KERN_GROUP, n_k, x[g]);
        affine_find(x[g], w + g * KERN_GROUP, top, n_tries, &a[g]);
        for (int n = 0; n < KERN_PANEL; n++) {
            d[n] = a[g].scale[n] > d[n] ? a[g].scale[n] : d[n];
            e[n] = a[g].min[n] > e[n] ? a[g].min[n] : e[n];
        }
    }
    for (int n = 0; n < KERN_PANEL; n++) {
        d[n] = affine_head(d[n], 255.0f, panel + 2 * n);
        e[n] = affine_head(e[n], 255.0f, panel + 2 * (KERN_PANEL + n));
    }
    panel += kern_head_bytes(fmt);
    for (int g = 0; g < n_groups; g++, panel += group_bytes)
        affine_store(fmt == KERN_W_I5K, top, x[g], &a[g], d, e, panel);
}

/* The same of I6S: the weight of largest magnitude of 16 is -32 steps. */
static void six_super(enum kern_src src, const void *const *rows, int k, int n_k, int n_groups,
                      uint8_t *panel)
{
    lanes x[KERN_HEAD_GROUPS][KERN_GROUP], scale[KERN_HEAD_GROUPS][2] = {0}, d = {0};
    for (int g = 0; g < n_groups; g++) {
        load_lanes(src, rows, k + g * KERN_GROUP, n_k, x[g]);
        for (int i = 0; i < KERN_GROUP; i++)
            for (int n = 0; n < KERN_PANEL; n++) {
                float s = x[g][i][n] / -32.0f, *most = &scale[g][i / 16][n];
                *most = fabsf(s) > fabsf(*most) ? s : *most;
                d[n] = fabsf(s) > d[n] ? fabsf(s) : d[n];
            }
    }
    for (int n = 0; n < KERN_PANEL; n++)
        d[n] = affine_head(d[n], 127.0f, panel + 2 * n);
    panel += kern_head_bytes(KERN_W_I6S);
    for (int g = 0; g < n_groups; g++, panel += 832) {
        uint32_t q[KERN_GROUP][KERN_PANEL];
        for (int half = 0; half < 2; half++) {
            lanes inv, min;
            for (int n = 0; n < KERN_PANEL; n++) {
                float s =
                    affine_quant(scale[g][half][n], 127.0f * d[n], affine_inverse(d[n]), 254.0f) -
                    127.0f;
                panel[768 + half * KERN_PANEL + n] = (uint8_t)(int)s;
                min[n] = 32.0f * d[n] * s;
                inv[n] = s != 0.0f ? 1.0f / (d[n] * s) : 0.0f;
            }
            for (int i = 16 * half; i < 16 * half + 16; i++)
                for (int n = 0; n < KERN_PANEL; n++)
                    q[i][n] = (uint32_t)(int)affine_quant(x[g][i][n], min[n], inv[n], 63.0f);
        }
        affine_words(q, 2, panel);
    }
}

static void pack_affine(enum kern_wfmt fmt, enum kern_src src, const void *const rows[KERN_PANEL],
                        const float *importance, int k, int k_pad, uint8_t *panel)
{
    float w[KERN_HEAD_GROUPS * KERN_GROUP];
    for (int i = 0; i < k_pad; i += KERN_HEAD_GROUPS * KERN_GROUP) {
        int left = k_pad - i, most = KERN_HEAD_GROUPS * KERN_GROUP, n = left < most ? left : most;
        for (int j = 0; j < n; j++)
            w[j] = importance ? importance[i + j] : 1.0f;
        if (fmt == KERN_W_I6S)
            six_super(src, rows, i, k, n / KERN_GROUP, panel);
        else
            affine_super(fmt, src, rows, w, importance ? AFFINE_TRIES : 0, i, k, n / KERN_GROUP,
                         panel);
        panel += kern_panel_bytes(fmt, n);
    }
}
