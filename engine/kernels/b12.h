/* SPDX-License-Identifier: MIT */
/*
 * bf16 weights compressed without loss to 12 bits each: a quarter less is read from memory per
 * token, a token takes a quarter less time, and every product has the bits of the bf16 panel.
 *
 * The upper byte of a bf16 is the sign and seven bits of the exponent. Weights of one matrix hardly
 * differ there: 16 values, eight exponents of both signs, cover 16 octaves; about 5 in 100,000
 * normally distributed weights are outside. So a panel keeps the lower bytes and, for the upper
 * ones, 4-bit codes with a table of the 16 values; the few others are exceptions. (The redundancy
 * is well known: "70% Size, 100% Accuracy", Zhang et al. 2025, removes it by a Huffman code of 11
 * bits. Codes of one length can be decoded by a vector shuffle.)
 *
 * A panel of n groups of 32 k:
 *
 *   16 u8   table: upper byte of each code
 *   u32     exceptions, ascending, then B12_END: index of the weight in the bf16 panel << 8 | its
 *           upper byte. There is room for B12_PER_GROUP per group; the whole head is a multiple of
 *           64 bytes
 *   groups  of eight blocks of two k-pairs: 64 bytes of codes (low nibbles of the first pair, high
 *           ones of the second), 64 lower bytes of the first pair, 64 of the second. Word w of a
 *           pair is byte 16 (w / 8 mod 4) + 8 (w / 32) + w mod 8, so that interleaving two vectors
 *           within each 16 bytes gives words in their order
 *
 * Plain C that every level compiles with its own flags; vectors decode in tmpl_b12.h.
 */
#pragma once

#include "engine/kernels/kernels.h"

#include <string.h>

enum {
    B12_TABLE_BYTES = 16,
    B12_PER_GROUP = 4,
    B12_BLOCK_BYTES = 192,
    B12_GROUP_BYTES = 8 * B12_BLOCK_BYTES,
    B12_GROUP_WORDS = KERN_GROUP * KERN_PANEL,
    B12_PAIR_WORDS = 2 * KERN_PANEL,
};
#define B12_END UINT32_MAX

/* Words of exceptions, the end included. */
static inline size_t b12_room(int k_pad)
{
    return (size_t)(k_pad / KERN_GROUP) * B12_PER_GROUP + 1;
}

static inline size_t b12_head_bytes(int k_pad)
{
    return (B12_TABLE_BYTES + b12_room(k_pad) * sizeof(uint32_t) + 63) / 64 * 64;
}

static inline const uint32_t *b12_exceptions(const void *panel)
{
    return (const uint32_t *)(const void *)((const char *)panel + B12_TABLE_BYTES);
}

/*
 * Puts the exceptions of group g, of which e is the first, into its words; returns the one after.
 */
static inline const uint32_t *b12_patch(const uint32_t *e, int g, void *words)
{
    for (; *e >> 18 == (uint32_t)g; e++)
        ((uint8_t *)words)[2 * (*e >> 8 & (B12_GROUP_WORDS - 1)) + 1] = (uint8_t)*e;
    return e;
}

/* ---- encoding ------------------------------------------------------------------------------ */

/* The upper bytes that have codes: exponents base .. base + 7, or 0 and base + 1 .. base + 7. */
struct b12_code {
    uint16_t base;
    uint16_t zero; /* 1: exponent 0 instead of base */
};

static inline unsigned b12_sum(const unsigned *count, int n)
{
    unsigned sum = 0;
    for (int i = 0; i < n; i++)
        sum += count[i];
    return sum;
}

/*
 * The code that covers most of every eighth pair of the panel (of all pairs in a small panel), the
 * highest of equal ones. All zeros are counted: they come in runs.
 */
static inline struct b12_code b12_choose(const uint16_t *words, int n_pairs)
{
    enum { TRIES = 16, CODES = 8, SMALL = 128 };
    const int sample = n_pairs < SMALL ? 1 : 8;
    unsigned count[128] = {0}, best = 0, n_zero = 0;
    uint16_t top = 0;
    for (int i = 0; i < n_pairs * B12_PAIR_WORDS; i++) {
        uint16_t e = words[i] & 0x7fff;
        top = e > top ? e : top;
        n_zero += e < 0x100;
    }
    for (int p = 0; p < n_pairs; p += sample)
        for (int i = 0; i < B12_PAIR_WORDS; i++)
            count[words[p * B12_PAIR_WORDS + i] >> 8 & 0x7f]++;
    count[0] = n_zero / (unsigned)sample;
    int base = (top >> 8) - CODES + 1;
    struct b12_code code = {.base = 0, .zero = 0};
    for (int i = 0; i < TRIES && base >= 0; i++, base--) {
        unsigned all = b12_sum(count + base, CODES);
        unsigned with_zero = base > 0 ? all - count[base] + count[0] : 0;
        unsigned more = with_zero > all ? with_zero : all;
        if (more <= best) continue;
        best = more;
        code = (struct b12_code){(uint16_t)base, with_zero > all};
    }
    return code;
}

/* The code of a word without its sign; above 7: an exception. */
static inline uint16_t b12_digit(uint16_t word, const struct b12_code code)
{
    uint16_t e = word >> 8 & 0x7f, d = (uint16_t)(e - code.base);
    if (!code.zero) return d;
    return e == 0 ? 0 : d == 0 ? 8 : d;
}

/* 64 words of one k-pair. Returns true if there are exceptions. */
static inline bool b12_encode_pair(const uint16_t *words, struct b12_code code, uint8_t low[64],
                                   uint8_t codes[64])
{
    uint16_t most = 0;
    for (int i = 0; i < B12_PAIR_WORDS; i++) {
        uint16_t d = b12_digit(words[i], code);
        most = d > most ? d : most;
        low[i] = (uint8_t)words[i];
        codes[i] = (uint8_t)((d & 7) | (words[i] >> 15) << 3);
    }
    return most > 7;
}

/* Bytes in order of words to their places. */
static inline void b12_place(const uint8_t *from, uint8_t *to)
{
    for (int u = 0; u < 8; u++)
        memcpy(to + u % 4 * 16 + u / 4 * 8, from + u * 8, 8);
}

/* Appends the exceptions of one k-pair, up to `room`; returns the new count. */
static inline size_t b12_except(const uint16_t *words, int pair, struct b12_code code, uint32_t *e,
                                size_t n, size_t room)
{
    for (int i = 0; i < B12_PAIR_WORDS && n < room; i++)
        if (b12_digit(words[i], code) > 7)
            e[n++] = (uint32_t)(pair * B12_PAIR_WORDS + i) << 8 | words[i] >> 8;
    return n;
}

static inline bool encode_panel(const void *bf16_panel, int k_pad, void *panel)
{
    const uint16_t *words = bf16_panel;
    uint8_t *table = panel, *block = table + b12_head_bytes(k_pad);
    uint32_t *e = (uint32_t *)(void *)(table + B12_TABLE_BYTES);
    size_t n = 0, room = b12_room(k_pad);
    if (k_pad > KERN_B12_MAX_K) return false;
    struct b12_code code = b12_choose(words, k_pad / 2);
    for (int i = 0; i < B12_TABLE_BYTES; i++) {
        int value = code.zero && i % 8 == 0 ? 0 : code.base + i % 8;
        table[i] = (uint8_t)(value | i / 8 << 7);
    }
    for (int p = 0; p < k_pad / 2; p++, words += B12_PAIR_WORDS) {
        uint8_t low[64], codes[64], placed[64];
        if (b12_encode_pair(words, code, low, codes)) n = b12_except(words, p, code, e, n, room);
        if (n == room) return false;
        b12_place(codes, placed);
        b12_place(low, block + 64 + p % 2 * 64);
        for (int i = 0; i < 64; i++)
            block[i] = (uint8_t)(p % 2 ? block[i] | placed[i] << 4 : placed[i]);
        block += p % 2 * B12_BLOCK_BYTES;
    }
    for (; n < (b12_head_bytes(k_pad) - B12_TABLE_BYTES) / sizeof(*e); n++)
        e[n] = B12_END;
    return true;
}
