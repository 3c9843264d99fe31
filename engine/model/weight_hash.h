/* SPDX-License-Identifier: MIT */
/*
 * A fast 128-bit hash that distinguishes weights; it does not resist an adversary. Each piece is
 * hashed with its own seed, and the hashes are summed, so their order does not matter.
 *
 * Each 32 bytes go, two words per lane, through a 64 x 64 -> 128 bit product whose halves are
 * folded.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct eng_hash {
    uint64_t lane[2];
};

static inline uint64_t eng_hash_fold(uint64_t a, uint64_t b)
{
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* The digits of pi, as good as any odd constants. */
#define ENG_HASH_K0 0x243f6a8885a308d3u
#define ENG_HASH_K1 0x13198a2e03707345u
#define ENG_HASH_K2 0xa4093822299f31d1u
#define ENG_HASH_K3 0x082efa98ec4e6c89u

static inline void eng_hash_block(struct eng_hash *h, const uint8_t block[32])
{
    uint64_t w[4];
    memcpy(w, block, sizeof(w));
    /* The sum keeps what came before even when a product is 0. */
    h->lane[0] = (h->lane[0] << 29 | h->lane[0] >> 35) +
                 eng_hash_fold(h->lane[0] ^ w[0] ^ ENG_HASH_K0, w[1] ^ ENG_HASH_K1);
    h->lane[1] = (h->lane[1] << 29 | h->lane[1] >> 35) +
                 eng_hash_fold(h->lane[1] ^ w[2] ^ ENG_HASH_K2, w[3] ^ ENG_HASH_K3);
}

/* The hash of n bytes under a seed. */
static inline struct eng_hash eng_hash_bytes(const void *data, size_t n, struct eng_hash seed)
{
    const uint8_t *p = data;
    struct eng_hash h = seed;
    uint8_t tail[32] = {0};
    size_t left = n;
    for (; left >= 32; left -= 32, p += 32)
        eng_hash_block(&h, p);
    if (left) memcpy(tail, p, left);
    eng_hash_block(&h, tail);
    uint64_t a = eng_hash_fold(h.lane[0] ^ (uint64_t)n, ENG_HASH_K3 ^ h.lane[1]);
    uint64_t b = eng_hash_fold(h.lane[1] ^ ENG_HASH_K1, ENG_HASH_K2 ^ a);
    return (struct eng_hash){{a ^ h.lane[1], b ^ h.lane[0]}};
}

static inline void eng_hash_add(struct eng_hash *sum, struct eng_hash piece)
{
    sum->lane[0] += piece.lane[0];
    sum->lane[1] += piece.lane[1];
}
