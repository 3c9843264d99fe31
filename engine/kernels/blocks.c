/* SPDX-License-Identifier: MIT */
/*
 * Blocks of weights to values and to panels; see blocks.h. Both go through one struct for 32
 * weights: as the panel stores them, with the bits of their scales.
 */
#include "engine/kernels/blocks.h"

#include <assert.h>
#include <string.h>

#include "engine/kernels/convert.h"

enum { SUPER = 256 / KERN_GROUP }; /* groups of a block of 256 */

/* 32 weights: value (d * s[i / 16]) * (q[i] - offset) + minimum; see blocks.h. */
struct group {
    uint8_t q[KERN_GROUP];
    uint16_t d, m; /* F16 */
    int8_t s[2];   /* of the halves; unsigned in I4K and I5K, whose scales have 6 bits */
    uint8_t min_s;
};

/* m_at 0: no minimum. */
static const struct {
    uint8_t n_groups, n_bytes, d_at, m_at;
    enum kern_wfmt form;
} types[KERN_SRC_COUNT] = {
    [KERN_SRC_Q4_0] = {1, 18, 0, 0, KERN_W_I4},
    [KERN_SRC_Q4_1] = {1, 20, 0, 2, KERN_W_I4A},
    [KERN_SRC_Q5_0] = {1, 22, 0, 0, KERN_W_I5},
    [KERN_SRC_Q5_1] = {1, 24, 0, 2, KERN_W_I5A},
    [KERN_SRC_Q8_0] = {1, 34, 0, 0, KERN_W_I8},
    [KERN_SRC_Q3_K] = {SUPER, 110, 108, 0, KERN_W_I6S},
    [KERN_SRC_Q4_K] = {SUPER, 144, 0, 2, KERN_W_I4K},
    [KERN_SRC_Q5_K] = {SUPER, 176, 0, 2, KERN_W_I5K},
    [KERN_SRC_Q6_K] = {SUPER, 210, 208, 0, KERN_W_I6S},
    [KERN_SRC_IQ4_NL] = {1, 18, 0, 0, KERN_W_I8},
    [KERN_SRC_IQ4_XS] = {SUPER, 136, 0, 0, KERN_W_I8},
};

enum kern_wfmt kern_blocks_form(enum kern_src src)
{
    return types[src].form;
}

int kern_block_weights(enum kern_src src)
{
    return types[src].n_groups * KERN_GROUP;
}

int kern_block_bytes(enum kern_src src)
{
    return types[src].n_bytes;
}

/* ---- reading ------------------------------------------------------------------------------- */

static uint16_t half_at(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

/* Byte i holds weight i in its lower and weight i + 16 in its upper half. */
static void read_halves(const uint8_t *b, uint8_t q[KERN_GROUP])
{
    for (int i = 0; i < 16; i++) {
        q[i] = b[i] & 15;
        q[i + 16] = b[i] >> 4;
    }
}

/* Bit i of the word is the fifth of weight i. */
static void add_fifth(const uint8_t *word, uint8_t q[KERN_GROUP])
{
    for (int i = 0; i < KERN_GROUP; i++)
        q[i] |= (uint8_t)((word[i / 8] >> i % 8 & 1) << 4);
}

/* The numbers that the four bits of IQ4 stand for, plus I8's 128. */
static void look_up(uint8_t q[KERN_GROUP])
{
    static const uint8_t table[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                      129, 141, 153, 166, 181, 197, 217, 241};
    for (int i = 0; i < KERN_GROUP; i++)
        q[i] = table[q[i]];
}

/* Scale and minimum of group j from twelve bytes of six bits each. */
static void read_six_bits(const uint8_t *b, int j, struct group *o)
{
    int s = j < 4 ? b[j] & 63 : (b[j + 4] & 15) | b[j - 4] >> 6 << 4;
    o->min_s = (uint8_t)(j < 4 ? b[j + 4] & 63 : b[j + 4] >> 4 | b[j] >> 6 << 4);
    o->s[0] = o->s[1] = (int8_t)s;
}

static void read_q4_k(const uint8_t *qs, int j, uint8_t q[KERN_GROUP])
{
    for (int i = 0; i < KERN_GROUP; i++)
        q[i] = qs[32 * (j / 2) + i] >> 4 * (j & 1) & 15;
}

static void read_q6_k(const uint8_t *b, int j, struct group *o)
{
    const uint8_t *low = b + 64 * (j / 4) + 32 * (j & 1), *high = b + 128 + 32 * (j / 4);
    int shift = 4 * (j % 4 / 2);
    for (int i = 0; i < KERN_GROUP; i++)
        o->q[i] = (uint8_t)((low[i] >> shift & 15) | (high[i] >> 2 * (j % 4) & 3) << 4);
    o->s[0] = (int8_t)b[192 + 2 * j];
    o->s[1] = (int8_t)b[193 + 2 * j];
}

static void read_q3_k(const uint8_t *b, int j, struct group *o)
{
    const uint8_t *low = b + 32 + 32 * (j / 4), *scales = b + 96;
    for (int i = 0; i < KERN_GROUP; i++) /* -4..3, with I6S's offset */
        o->q[i] = (uint8_t)((low[i] >> 2 * (j % 4) & 3) + (b[i] >> j & 1 ? 32 : 28));
    for (int k = 0; k < 2; k++) {
        int at = 2 * j + k, s = scales[at % 8] >> 4 * (at / 8) & 15;
        o->s[k] = (int8_t)((s | (scales[8 + at % 4] >> 2 * (at / 4) & 3) << 4) - 32);
    }
}

static void read_iq4_xs(const uint8_t *b, int j, struct group *o)
{
    int s = (b[4 + j / 2] >> 4 * (j & 1) & 15) | (half_at(b + 2) >> 2 * j & 3) << 4;
    read_halves(b + 8 + 16 * j, o->q);
    look_up(o->q);
    o->s[0] = o->s[1] = (int8_t)(s - 32);
}

/* Group g of a row. */
static void read_group(enum kern_src src, const uint8_t *row, int64_t g, struct group *o)
{
    const uint8_t *b = row + g / types[src].n_groups * types[src].n_bytes;
    const int j = (int)(g % types[src].n_groups);
    o->d = half_at(b + types[src].d_at);
    o->m = types[src].m_at ? half_at(b + types[src].m_at) : 0;
    o->s[0] = o->s[1] = 1;
    switch (src) {
    case KERN_SRC_Q4_0: read_halves(b + 2, o->q); break;
    case KERN_SRC_Q4_1: read_halves(b + 4, o->q); break;
    case KERN_SRC_Q5_0:
        read_halves(b + 6, o->q);
        add_fifth(b + 2, o->q);
        break;
    case KERN_SRC_Q5_1:
        read_halves(b + 8, o->q);
        add_fifth(b + 4, o->q);
        break;
    case KERN_SRC_Q8_0:
        for (int i = 0; i < KERN_GROUP; i++)
            o->q[i] = b[2 + i] ^ 0x80;
        break;
    case KERN_SRC_IQ4_NL:
        read_halves(b + 2, o->q);
        look_up(o->q);
        break;
    case KERN_SRC_Q4_K:
        read_six_bits(b + 4, j, o);
        read_q4_k(b + 16, j, o->q);
        break;
    case KERN_SRC_Q5_K:
        read_six_bits(b + 4, j, o);
        read_q4_k(b + 48, j, o->q);
        for (int i = 0; i < KERN_GROUP; i++)
            o->q[i] |= (uint8_t)((b[16 + i] >> j & 1) << 4);
        break;
    case KERN_SRC_Q6_K: read_q6_k(b, j, o); break;
    case KERN_SRC_Q3_K: read_q3_k(b, j, o); break;
    case KERN_SRC_IQ4_XS: read_iq4_xs(b, j, o); break;
    default: assert(false);
    }
}

bool kern_blocks_finite(enum kern_src src, const void *row, int64_t k)
{
    const uint8_t *b = row;
    for (int64_t i = 0; i < k; i += kern_block_weights(src), b += types[src].n_bytes)
        if ((half_at(b + types[src].d_at) & 0x7c00) == 0x7c00 ||
            (types[src].m_at && (half_at(b + types[src].m_at) & 0x7c00) == 0x7c00))
            return false;
    return true;
}

static void group_f32(enum kern_src src, const struct group *o, float *out)
{
    const enum kern_wfmt form = types[src].form;
    const int offset = kern_offset(form);
    float d = kern_f32_of_f16(o->d), m = kern_f32_of_f16(o->m);
    if (form == KERN_W_I4K || form == KERN_W_I5K) m = -(m * (float)o->min_s);
    for (int i = 0; i < KERN_GROUP; i++) {
        float v = d * (float)o->s[i / 16] * (float)(o->q[i] - offset);
        out[i] = types[src].m_at ? v + m : v;
    }
}

/* From the last block to the first, each from a copy, since values take more room than blocks. */
void kern_blocks_f32(enum kern_src src, const void *row, int64_t k, float *out)
{
    const int n_groups = types[src].n_groups;
    uint8_t block[256];
    for (int64_t b = k / kern_block_weights(src); b-- > 0;) {
        memcpy(block, (const uint8_t *)row + b * types[src].n_bytes, types[src].n_bytes);
        for (int j = 0; j < n_groups; j++) {
            struct group o;
            read_group(src, block, j, &o);
            group_f32(src, &o, out + (b * n_groups + j) * KERN_GROUP);
        }
    }
}

/* ---- packing ------------------------------------------------------------------------------- */

/* Two side by side, the first of four or five bits: the quads of I4 and others, output n. */
static void store_pairs(const uint8_t q[KERN_GROUP], int bits, int n, uint8_t *to)
{
    for (int i = 0; i < 16; i++)
        to[i / 4 * 128 + n * 4 + i % 4] = (uint8_t)(q[i] % (1 << bits) | q[i + 16] << bits);
}

/* The bits of 16 that are left, two each. */
static void store_upper(const uint8_t q[16], int rest, int n, uint8_t *to)
{
    for (int c = 0; c < 4; c++)
        to[n * 4 + c] = (uint8_t)(q[c] >> rest | q[4 + c] >> rest << 2 | q[8 + c] >> rest << 4 |
                                  q[12 + c] >> rest << 6);
}

/* The weights of output n into the quads of a group; returns their bytes for all outputs. */
static int store_weights(enum kern_wfmt form, const uint8_t q[KERN_GROUP], int n, uint8_t *to)
{
    if (form == KERN_W_I8) {
        for (int i = 0; i < KERN_GROUP; i += 4)
            memcpy(to + i * 32 + n * 4, q + i, 4);
        return 1024;
    }
    if (form == KERN_W_I6S) {
        store_upper(q, 4, n, to);
        store_upper(q + 16, 4, n, to + 128);
        store_pairs(q, 4, n, to + 256);
        return 768;
    }
    if (kern_quads_bytes(form) == 512) {
        store_pairs(q, 4, n, to);
        return 512;
    }
    store_upper(q + 16, 3, n, to);
    store_pairs(q, 5, n, to + 128);
    return 640;
}

static void store_half(uint8_t *to, int n, uint16_t half)
{
    memcpy(to + 2 * n, &half, sizeof(half));
}

/* Scales that are the group's own, after its weights. */
static void store_scales(enum kern_wfmt form, const struct group *o, int n, uint8_t *to)
{
    if (kern_head_bytes(form) == 0) {
        bool one = o->s[0] == 1; /* but for IQ4_XS */
        store_half(to, n, one ? o->d : kern_f16_of_f32(kern_f32_of_f16(o->d) * (float)o->s[0]));
        if (form == KERN_W_I4A || form == KERN_W_I5A) store_half(to + 2 * KERN_PANEL, n, o->m);
        return;
    }
    to[n] = (uint8_t)o->s[0];
    to[KERN_PANEL + n] = form == KERN_W_I6S ? (uint8_t)o->s[1] : o->min_s;
}

void kern_pack_blocks(enum kern_src src, const void *const rows[KERN_PANEL], int k, int k_pad,
                      void *panel)
{
    const enum kern_wfmt form = types[src].form;
    const int head = kern_head_bytes(form);
    uint8_t *to = panel, *super = to;
    assert(k == k_pad && k % kern_block_weights(src) == 0);
    for (int g = 0; g < k / KERN_GROUP; g++) {
        if (g % KERN_HEAD_GROUPS == 0) {
            super = to;
            to += head;
        }
        for (int n = 0; n < KERN_PANEL; n++) {
            struct group o = {.d = 0};
            memset(o.q, kern_offset(form), sizeof(o.q));
            if (rows[n]) read_group(src, rows[n], g, &o);
            store_scales(form, &o, n, to + store_weights(form, o.q, n, to));
            if (head == 0 || g % KERN_HEAD_GROUPS != 0) continue;
            store_half(super, n, o.d);
            if (form != KERN_W_I6S) store_half(super + 2 * KERN_PANEL, n, o.m);
        }
        to += kern_panel_bytes(form, KERN_GROUP) - (size_t)head;
    }
}
