/* SPDX-License-Identifier: MIT */
/*
 * Number formats: the definition of the conversions from f32 to bf16, f16, int8, int6 and the
 * affine forms, and back.
 *
 * Every kernel level must give these bits when it packs weights. Pure functions, any thread.
 *
 *   bf16, f16  round to nearest, ties to even; NaN stays NaN; f16 overflows to infinity.
 *   int8       32 weights share an F16 scale s; q in -127..127, stored as q + 128; w = s * q.
 *   affine     w = d * s * q - e * m, q in 0..15 or 0..31; 32 weights share s and m, which have
 *              8 bits, and 256 the F16 scales d and e.
 *   int6       w = d * s * q, q in -32..31; 16 weights share s, in -127..127, 256 the F16 scale d.
 *
 * The scale of int8 is max|w| / 127, rounded to F16 and then up one step if the largest weight
 * would not fit. affine.h has those of the others.
 */
#pragma once

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

/* The F16 scale of numbers of which the largest, amax, is to be `most` steps. */
static inline uint16_t kern_scale(float amax, float most)
{
    uint16_t h = kern_f16_of_f32(kern_clamp(amax / most, 0.0f, 65504.0f));
    bool clipped = amax > (most + 0.5f) * kern_f32_of_f16(h) && amax < KERN_I8_LIMIT;
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
    uint16_t h = kern_scale(amax, 127.0f);
    float s = kern_f32_of_f16(h), inv = s > 0.0f ? 1.0f / s : 0.0f;
    for (int i = 0; i < 32; i++)
        q[i] = (uint8_t)(128 + kern_round(kern_clamp(x[i] * inv, -127.0f, 127.0f)));
    return h;
}
