/* SPDX-License-Identifier: MIT */
/*
 * Keys and values as int8, and the probabilities that weigh values. Plain C that every level
 * compiles with its own flags: the bits are the same at all of them. Products are in tmpl_kv.h.
 *
 * A panel consists of blocks of 32 x 32 numbers, 1088 bytes each, in which one instruction takes
 * four numbers of each of its lanes:
 *   keys, per 32 dims: [8 dim quads][32 positions][4] u8 (q + 128), then 32 bf16 scales, one per
 *     position: a panel of I8 weights with other scales
 *   values, per 32 dims: [8 position quads][32 dims][4] s8, then 32 bf16 scales, one per position
 *
 * A scale is max|x| / 127 over the position's 32 dims, rounded up to bf16, so that no q exceeds
 * 127; NaN if x is not finite, which yields NaN in all 32 dims.
 *
 * The weighted sum of a row's values, for 32 dims: with top the largest scale of the positions that
 * the row sees, and NaN above all, the probability e of a position becomes the integer
 * p = round(e * (scale * (KV_PROB_MAX / top))); sums of p * q over a split of 512 positions are
 * exact in 32 bits, and times top / KV_PROB_MAX they are the values. So the bits depend on the row
 * and on what it sees, not on the page, the tile or the instruction.
 */
#pragma once

#include "engine/kernels/convert.h"
#include "engine/kernels/kernels.h"

enum { KV_BLOCK_DATA = KERN_GROUP * KERN_PANEL, KV_BLOCK_BYTES = KV_BLOCK_DATA + 2 * KERN_PANEL };

/* 14 bits: 512 * 127 * KV_PROB_MAX is below 2^31. */
#define KV_PROB_MAX 16383.0f
/* Values of a smaller scale are 0: KV_PROB_MAX / top would not be finite. */
#define KV_TINY_SCALE 0x1p-100f

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

static inline void put_key_i8(void *panel, const float *x, int d, int d_pad, int slot)
{
    char *block = panel;
    for (int i = 0; i < d_pad; i += KERN_GROUP, block += KV_BLOCK_BYTES) {
        int8_t q[KERN_GROUP];
        quantise_kv(x + i, d - i, block, slot, q);
        for (int j = 0; j < KERN_GROUP; j++)
            q[j] = (int8_t)(q[j] ^ 0x80);
        for (int j = 0; j < KERN_GROUP; j += 4)
            memcpy(block + j * KERN_PANEL + 4 * slot, q + j, 4);
    }
}

/* The key at a slot, as it was stored. */
static inline void read_key_i8(const void *panel, int d, int slot, float *x)
{
    const uint8_t *block = panel;
    for (int i = 0; i < d; i++) {
        uint16_t scale;
        const uint8_t *at = block + i / KERN_GROUP * KV_BLOCK_BYTES;
        memcpy(&scale, at + KV_BLOCK_DATA + 2 * slot, sizeof(scale));
        int q = at[i % KERN_GROUP / 4 * 4 * KERN_PANEL + 4 * slot + i % 4];
        x[i] = (float)(q - 128) * kern_f32_of_bf16(scale);
    }
}

static inline void put_value_i8(void *panels, const float *x, int d, int d_pad, int slot)
{
    char *block = panels;
    for (int i = 0; i < d_pad; i += KERN_GROUP, block += KV_BLOCK_BYTES) {
        int8_t q[KERN_GROUP];
        quantise_kv(x + i, d - i, block, slot, q);
        char *place = block + slot / 4 * 4 * KERN_PANEL + slot % 4;
        for (int j = 0; j < KERN_GROUP; j++)
            place[4 * j] = (char)q[j];
    }
}

/* ---- probabilities ------------------------------------------------------------------------- */

static inline void read_scales_i8(const void *const *blocks, int n_blocks,
                                  struct kern_value_scales *s)
{
    s->n = n_blocks * KERN_PANEL;
    s->n_weights = 0;
    for (int i = 0; i < n_blocks; i++)
        memcpy(s->scale + i * KERN_PANEL, (const char *)blocks[i] + KV_BLOCK_DATA, 2 * KERN_PANEL);
}

/* Not negative, so their bits have the order of the numbers. */
static inline uint16_t top_scale(const uint16_t *scale, int lo, int hi)
{
    uint16_t top = 0;
    for (int i = lo; i < hi; i++)
        top = scale[i] > top ? scale[i] : top;
    return top;
}

/* The weights for a top: of the first one of the split, which most rows share, or of another. */
static inline const float *weights_for(struct kern_value_scales *s, uint16_t top)
{
    for (int i = 0; i < s->n_weights; i++)
        if (s->top[i] == top) return s->weight[i];
    int at = s->n_weights == 0 ? 0 : 1;
    float t = kern_f32_of_bf16(top), factor = t < KV_TINY_SCALE ? 0.0f : KV_PROB_MAX / t;
    for (int i = 0; i < s->n; i++)
        s->weight[at][i] = kern_f32_of_bf16(s->scale[i]) * factor;
    s->top[at] = top;
    s->n_weights = at + 1;
    return s->weight[at];
}
