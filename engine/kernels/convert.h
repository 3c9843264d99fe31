/* SPDX-License-Identifier: MIT */
/*
 * Number formats: the definition of the conversions from f32 to bf16, f16, int8, int6 and int4,
 * and back.
 *
 * Every kernel level must give these bits when it packs weights. Pure functions, any thread.
 *
 *   bf16, f16  round to nearest, ties to even; NaN stays NaN; f16 overflows to infinity.
 *   int8       32 weights share an F16 scale s; q in -127..127, stored as q + 128; w = s * q.
 *   int6       as int4, with q in -32..31, stored as q + 32.
 *   int4       32 weights share an F16 scale s, which may be negative; q in -8..7, stored as q + 8.
 *
 * Scales: int8 takes max|w| / 127, rounded to F16 and then up one step if the largest weight would
 * not fit. int4 and int6 try a few scales for which the weight of largest magnitude (with its sign)
 * stands for -8 (or -32) steps or nearly, and keep the one of least squared error: for int4 6 %
 * less error than -8 alone for normally distributed weights; many more would give another 1 %.
 */
#ifndef HEARTH_KERNELS_CONVERT_H
#define HEARTH_KERNELS_CONVERT_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t kern_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof(u));
    return u;
}

static inline float kern_float(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof(f));
    return f;
}

static inline float kern_f32_of_bf16(uint16_t b)
{
    return kern_float((uint32_t)b << 16);
}

static inline uint16_t kern_bf16_of_f32(float f)
{
    uint32_t u = kern_bits(f);
    if ((u & 0x7fffffff) > 0x7f800000) return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static inline float kern_f32_of_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, mag = h & 0x7fff;
    if (mag >= 0x7c00)
        return kern_float(sign | 0x7f800000 | mag << 13 | (mag > 0x7c00 ? 0x400000 : 0));
    /* 2^112 moves the exponent from F16's bias to F32's; it also normalises subnormals. */
    float f = kern_float(mag << 13) * 0x1p112f;
    return kern_float(kern_bits(f) | sign);
}

static inline uint16_t kern_f16_of_f32(float f)
{
    uint32_t u = kern_bits(f), sign = u >> 16 & 0x8000, mag = u & 0x7fffffff;
    if (mag > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (mag >> 13 & 0x3ff));
    if (mag >= 0x477ff000) /* 65520: rounds to infinity */
        return (uint16_t)(sign | 0x7c00);
    if (mag < 0x38800000) { /* below 2^-14: adding 0.5 leaves the subnormal in the low bits */
        uint32_t sum = kern_bits(kern_float(mag) + 0.5f);
        return (uint16_t)(sign | (sum - 0x3f000000));
    }
    mag += 0xfff + (mag >> 13 & 1);
    return (uint16_t)(sign | ((mag - 0x38000000) >> 13));
}

/* Nearest integer, ties to even, for |v| < 2^22: the sum has no bits below one. */
static inline int kern_round(float v)
{
    float sum = v + 12582912.0f;
    return (int)(kern_bits(sum) - 0x4b400000);
}

/* v within [lo, hi]; NaN becomes lo, as the vector max does. */
static inline float kern_clamp(float v, float lo, float hi)
{
    v = v > lo ? v : lo;
    return v < hi ? v : hi;
}

/* Larger weights get about the largest F16 scale. */
#define KERN_I8_LIMIT 8.3e6f

/* The F16 scale of 32 weights whose largest magnitude is amax, as int8. */
static inline uint16_t kern_i8_scale(float amax)
{
    uint16_t h = kern_f16_of_f32(kern_clamp(amax / 127.0f, 0.0f, 65504.0f));
    bool clipped = amax > 127.5f * kern_f32_of_f16(h) && amax < KERN_I8_LIMIT;
    return (uint16_t)(h + clipped);
}

/* 32 weights x to q[i] + 128; returns the scale's F16 bits. */
static inline uint16_t kern_i8_group(const float x[32], uint8_t q[32])
{
    float amax = 0.0f;
    for (int i = 0; i < 32; i++) {
        float a = kern_float(kern_bits(x[i]) & 0x7fffffff);
        amax = a > amax ? a : amax;
    }
    uint16_t h = kern_i8_scale(amax);
    float s = kern_f32_of_f16(h), inv = s > 0.0f ? 1.0f / s : 0.0f;
    for (int i = 0; i < 32; i++)
        q[i] = (uint8_t)(128 + kern_round(kern_clamp(x[i] * inv, -127.0f, 127.0f)));
    return h;
}

/* Scales tried: the weight of largest magnitude stands for this many steps. */
enum { KERN_I4_TRIES = 9, KERN_I6_TRIES = 2 };
static const float kern_i4_steps[KERN_I4_TRIES] = {-8.25f, -7.75f, -8.5f, -7.25f, -8.75f,
                                                   -8.0f,  -7.5f,  -9.0f, -7.0f};
static const float kern_i6_steps[KERN_I6_TRIES] = {-32.0f, -31.25f};

static inline float kern_narrow_inverse(uint16_t h)
{
    float s = kern_f32_of_f16(h);
    return s != 0.0f ? 1.0f / s : 0.0f;
}

/* most: 8 or 32, the steps of the format below zero */
static inline int kern_narrow_quant(float x, float inv, float most)
{
    return kern_round(kern_clamp(x * inv, -most, most - 1.0f));
}

/* The F16 bits of the best scale; the first of the best wins. */
static inline uint16_t kern_narrow_scale(const float x[32], const float *steps, int n_steps,
                                         float most)
{
    float amax = 0.0f, extreme = 0.0f;
    for (int i = 0; i < 32; i++) {
        float a = kern_float(kern_bits(x[i]) & 0x7fffffff);
        extreme = a > amax ? x[i] : extreme;
        amax = a > amax ? a : amax;
    }
    uint16_t best = 0;
    float best_error = 0.0f;
    for (int t = 0; t < n_steps; t++) {
        uint16_t h = kern_f16_of_f32(kern_clamp(extreme / steps[t], -65504.0f, 65504.0f));
        float s = kern_f32_of_f16(h), inv = kern_narrow_inverse(h), error = 0.0f;
        for (int i = 0; i < 32; i++) {
            float d = x[i] - s * (float)kern_narrow_quant(x[i], inv, most);
            error += d * d;
        }
        if (t == 0 || error < best_error) {
            best = h;
            best_error = error;
        }
    }
    return best;
}

/* 32 weights x to q[i] + 8; returns the scale's F16 bits. */
static inline uint16_t kern_i4_group(const float x[32], uint8_t q[32])
{
    uint16_t h = kern_narrow_scale(x, kern_i4_steps, KERN_I4_TRIES, 8.0f);
    float inv = kern_narrow_inverse(h);
    for (int i = 0; i < 32; i++)
        q[i] = (uint8_t)(8 + kern_narrow_quant(x[i], inv, 8.0f));
    return h;
}

/* The same as int6: q[i] + 32. */
static inline uint16_t kern_i6_group(const float x[32], uint8_t q[32])
{
    uint16_t h = kern_narrow_scale(x, kern_i6_steps, KERN_I6_TRIES, 32.0f);
    float inv = kern_narrow_inverse(h);
    for (int i = 0; i < 32; i++)
        q[i] = (uint8_t)(32 + kern_narrow_quant(x[i], inv, 32.0f));
    return h;
}

#endif
