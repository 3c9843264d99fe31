/* SPDX-License-Identifier: MIT */
/*
 * The random race of sampling (engine/race.h), in plain C: each level compiles these loops with its
 * own instructions. They use +, -, *, /, fused multiply-add and integers only, and add nothing up,
 * so every level gives the same bits.
 */
#pragma once

#include <math.h>
#include <string.h>

#include "engine/kernels/kernels.h"

enum { RACE_LANES = 64 };

#define RACE_INLINE static inline __attribute__((always_inline, unused))

/* Ten rounds of Philox4x32 in n lanes. */
RACE_INLINE void race_philox(uint32_t c[4][RACE_LANES], int n, const uint32_t key[2])
{
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < n; i++) {
            uint64_t a = 0xD2511F53ull * c[0][i], b = 0xCD9E8D57ull * c[2][i];
            uint32_t c1 = c[1][i], c3 = c[3][i];
            c[0][i] = (uint32_t)(b >> 32) ^ c1 ^ k0;
            c[1][i] = (uint32_t)b;
            c[2][i] = (uint32_t)(a >> 32) ^ c3 ^ k1;
            c[3][i] = (uint32_t)a;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

/* n counters from `first`. */
RACE_INLINE void race_words(const struct kern_race *r, uint32_t first, int n,
                            uint32_t c[4][RACE_LANES])
{
    for (int i = 0; i < n; i++) {
        c[0][i] = r->index[0];
        c[1][i] = r->index[1];
        c[2][i] = r->choice;
        c[3][i] = first + (uint32_t)i;
    }
    race_philox(c, n, r->key);
}

RACE_INLINE float race_float(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof(f));
    return f;
}

RACE_INLINE uint32_t race_bits(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof(bits));
    return bits;
}

/*
 * -log(1 - v) for v = (word + 1/2) / 2^32, relative error 2e-7 also where v is small. With
 * 1 - v = m 2^e, m in [0.707, 1.414): -log(m) is 2 atanh(s), s = (1 - m) / (1 + m); with e = 0 the
 * difference 1 - m is v itself. (Chosen by bits: compilers do not vectorise a branch.)
 */
RACE_INLINE float race_exponential(uint32_t word)
{
    float v = ((float)(int32_t)(word >> 1) + 0.25f) * 0x1p-31f;
    float u = ((float)(int32_t)(~word >> 1) + 0.25f) * 0x1p-31f;
    int32_t e = (int32_t)(race_bits(u) - 0x3f3504f3u) >> 23;
    float m = race_float(race_bits(u) - ((uint32_t)e << 23));
    uint32_t far = (uint32_t)(e >> 31); /* all ones if e < 0 */
    float d = race_float((race_bits(v) & ~far) | (race_bits(1.0f - m) & far));
    float s = d / (1.0f + m), q = s * s;
    float p = fmaf(q, 0x1.c71c72p-4f, 0x1.24924ap-3f); /* 1/9, 1/7 */
    p = fmaf(q, p, 0x1.99999ap-3f);                    /* 1/5 */
    p = fmaf(q, p, 0x1.555556p-2f);                    /* 1/3 */
    p = fmaf(q, p, 1.0f);
    return fmaf((float)-e, 0x1.62e43p-1f, 2.0f * s * p);
}

/*
 * exp(t) for t <= 0, relative error 1e-7. Below -80 it stays at exp(-80), which never wins a race:
 * no exponential is below 2^-38 or above 46.
 */
RACE_INLINE float race_exp(float t)
{
    t = t < -80.0f ? -80.0f : t;
    float n = fmaf(t, 0x1.715476p+0f, 0x1.8p+23f) - 0x1.8p+23f; /* rounded to an integer */
    float r = fmaf(n, -0x1.62e4p-1f, t);
    r = fmaf(n, -0x1.7f7d1dp-20f, r);
    float p = fmaf(r, 0x1.6c16c2p-10f, 0x1.111112p-7f); /* 1/720, 1/120 */
    p = fmaf(r, p, 0x1.555556p-5f);
    p = fmaf(r, p, 0x1.555556p-3f);
    p = fmaf(r, p, 0.5f);
    p = fmaf(r * r, p, r) + 1.0f;
    return p * race_float((uint32_t)((int32_t)n + 127) << 23);
}

static void race_noise(const struct kern_race *r, int block0, int n, float *ret_least,
                       uint8_t *ret_place)
{
    uint32_t c[4][RACE_LANES];
    for (int at = 0; at < n; at += RACE_LANES) {
        int m = n - at < RACE_LANES ? n - at : RACE_LANES;
        race_words(r, (uint32_t)(block0 + at), m, c);
        for (int i = 0; i < m; i++)
            ret_least[at + i] = race_exponential(c[0][i]) * (1.0f / KERN_RACE_BLOCK);
        for (int i = 0; i < m; i++)
            ret_place[at + i] = (uint8_t)(c[1][i] >> 27);
    }
}

static void race_block(const struct kern_race *r, int block, float least, int place,
                       float ret[KERN_RACE_BLOCK])
{
    enum { QUARTER = KERN_RACE_BLOCK / 4 };
    uint32_t c[4][RACE_LANES];
    race_words(r, 0x80000000u | (uint32_t)(block * QUARTER), QUARTER, c);
    for (int w = 0; w < 4; w++)
        for (int i = 0; i < QUARTER; i++)
            ret[4 * i + w] = least + race_exponential(c[w][i]);
    ret[place] = least;
}

static void race_keys(const float *x, const float *noise, int n, float top, float scale, float *ret)
{
    for (int i = 0; i < n; i++)
        ret[i] = race_exp((x[i] - top) * scale) / noise[i];
}

static void block_max(const float *x, int n, float *ret)
{
    enum { LANES = 8 };
    int n_full = n / KERN_RACE_BLOCK;
    for (int b = 0; b < n_full; b++, x += KERN_RACE_BLOCK) {
        float m[LANES];
        for (int l = 0; l < LANES; l++)
            m[l] = x[l];
        for (int i = LANES; i < KERN_RACE_BLOCK; i += LANES)
            for (int l = 0; l < LANES; l++)
                m[l] = m[l] > x[i + l] ? m[l] : x[i + l];
        for (int l = 1; l < LANES; l++)
            m[0] = m[0] > m[l] ? m[0] : m[l];
        ret[b] = m[0];
    }
    if (n == n_full * KERN_RACE_BLOCK) return;
    float m = -INFINITY;
    for (int i = 0; i < n - n_full * KERN_RACE_BLOCK; i++)
        m = x[i] > m ? x[i] : m;
    ret[n_full] = m;
}
