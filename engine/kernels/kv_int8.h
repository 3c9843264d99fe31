/* SPDX-License-Identifier: MIT */
/*
 * Keys and values of one position as int8, and a whole page of them back as bf16 panels. Plain C
 * that every level compiles with its own flags: the bits are the same at all of them.
 *
 * A panel consists of blocks of 32 x 32 numbers, 1088 bytes each: [16][32][2] s8 in the order of
 * the bf16 panel, then 32 bf16 scales, one per position. A key panel has one block per 32 dims,
 * with dim pairs outermost; a value panel is one block, with position pairs outermost.
 *
 * A scale is max|x| / 127 over the position's 32 dims, rounded up to bf16, so that no q exceeds
 * 127; NaN if x is not finite, which yields NaN in all 32 dims.
 */
#ifndef HEARTH_KERNELS_KV_INT8_H
#define HEARTH_KERNELS_KV_INT8_H

#include "engine/kernels/convert.h"
#include "engine/kernels/kernels.h"

enum { KV_BLOCK_DATA = KERN_GROUP * KERN_PANEL, KV_BLOCK_BYTES = KV_BLOCK_DATA + 2 * KERN_PANEL };

/* Quantises the 32 dims of a block, of which n >= 1 are valid, and stores a position's scale. */
static void quantise_kv(const float *x, int n, char *block, int slot, int8_t q[KERN_GROUP])
{
    uint32_t max = 0; /* magnitudes order like their bits, NaN above all */
    if (n > KERN_GROUP) n = KERN_GROUP;
    for (int i = 0; i < n; i++) {
        uint32_t bits = kern_bits(x[i]) & 0x7fffffff;
        max = bits > max ? bits : max;
    }
    uint16_t scale = (uint16_t)((kern_bits(kern_float(max) / 127.0f) + 0xffff) >> 16);
    if (max >= 0x7f800000) scale = 0x7fc0;
    float s = kern_f32_of_bf16(scale);
    bool usable = s > 0.0f;
    for (int i = 0; i < KERN_GROUP; i++) {
        /* adding 1.5 * 2^23 leaves the nearest integer, ties to even, in the low bits */
        float v = usable && i < n ? x[i] / s : 0.0f;
        q[i] = (int8_t)(kern_bits(v + 0x1.8p23f) & 0xff);
    }
    memcpy(block + KV_BLOCK_DATA + 2 * slot, &scale, 2);
}

static void put_key_i8(void *panel, const float *x, int d, int d_pad, int slot)
{
    char *block = panel;
    for (int i = 0; i < d_pad; i += KERN_GROUP, block += KV_BLOCK_BYTES) {
        int8_t q[KERN_GROUP];
        quantise_kv(x + i, d - i, block, slot, q);
        for (int j = 0; j < KERN_GROUP; j += 2)
            memcpy(block + j * KERN_PANEL + 2 * slot, q + j, 2);
    }
}

static void put_value_i8(void *panels, const float *x, int d, int d_pad, int slot)
{
    char *block = panels;
    for (int i = 0; i < d_pad; i += KERN_GROUP, block += KV_BLOCK_BYTES) {
        int8_t q[KERN_GROUP];
        quantise_kv(x + i, d - i, block, slot, q);
        char *place = block + slot / 2 * 2 * KERN_PANEL + (slot & 1);
        for (int j = 0; j < KERN_GROUP; j++)
            place[2 * j] = (char)q[j];
    }
}

/* 64 numbers of a block to bf16. The product of a 7-bit and an 8-bit number is rounded once. */
static inline void unpack_line(const int8_t *q, const float scales[2 * KERN_PANEL], uint16_t *o)
{
    for (int j = 0; j < 2 * KERN_PANEL; j++) {
        uint32_t u = kern_bits((float)q[j] * scales[j]);
        uint32_t round = 0x7fff + (u >> 16 & 1);
        /* a NaN here is the one that quantise_kv made: the sum does not overflow */
        o[j] = (uint16_t)((u + round) >> 16);
    }
}

static void unpack_key_i8(const void *panel, int d_pad, void *bf16_panel)
{
    const char *block = panel;
    uint16_t *o = bf16_panel;
    for (int i = 0; i < d_pad; i += KERN_GROUP, block += KV_BLOCK_BYTES) {
        const uint16_t *scale = (const uint16_t *)(const void *)(block + KV_BLOCK_DATA);
        float scales[2 * KERN_PANEL];
        for (int j = 0; j < 2 * KERN_PANEL; j++)
            scales[j] = kern_f32_of_bf16(scale[j / 2]);
        for (int j = 0; j < KERN_GROUP / 2; j++, o += 2 * KERN_PANEL)
            unpack_line((const int8_t *)block + j * 2 * KERN_PANEL, scales, o);
    }
}

static void unpack_value_i8(const void *panel, void *bf16_panel)
{
    const char *block = panel;
    const uint16_t *scale = (const uint16_t *)(const void *)(block + KV_BLOCK_DATA);
    uint16_t *o = bf16_panel;
    for (int i = 0; i < KERN_PANEL / 2; i++, o += 2 * KERN_PANEL) {
        float pair[2] = {kern_f32_of_bf16(scale[2 * i]), kern_f32_of_bf16(scale[2 * i + 1])};
        float scales[2 * KERN_PANEL];
        for (int j = 0; j < 2 * KERN_PANEL; j++)
            scales[j] = pair[j & 1];
        unpack_line((const int8_t *)block + i * 2 * KERN_PANEL, scales, o);
    }
}

#endif
