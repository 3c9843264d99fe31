/* SPDX-License-Identifier: MIT */
/* The message is fed as sha256.c does it. */
#include "base/sha1.h"

#include <string.h>

static uint32_t rotate(uint32_t x, int n)
{
    return x << n | x >> (32 - n);
}

/* A round adds this to the message: a function of three words, and a constant. */
static uint32_t mix(int i, uint32_t b, uint32_t c, uint32_t d)
{
    if (i < 20) return ((b & c) | (~b & d)) + 0x5a827999;
    if (i < 40) return (b ^ c ^ d) + 0x6ed9eba1;
    if (i < 60) return ((b & c) | (b & d) | (c & d)) + 0x8f1bbcdc;
    return (b ^ c ^ d) + 0xca62c1d6;
}

static void compress_block(uint32_t *h, const uint8_t *p)
{
    uint32_t w[80], v[5];
    for (int i = 0; i < 16; i++, p += 4)
        w[i] = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
    for (int i = 16; i < 80; i++)
        w[i] = rotate(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    memcpy(v, h, sizeof(v)); /* a b c d e */
    for (int i = 0; i < 80; i++) {
        uint32_t a = rotate(v[0], 5) + mix(i, v[1], v[2], v[3]) + v[4] + w[i];
        memmove(v + 1, v, 4 * sizeof(v[0]));
        v[0] = a;
        v[2] = rotate(v[2], 30);
    }
    for (int i = 0; i < 5; i++)
        h[i] += v[i];
}

static void compress(uint32_t *h, const uint8_t *p, size_t n)
{
    for (; n; n--, p += SHA_BLOCK)
        compress_block(h, p);
}

void sha1_init(struct sha256 *s)
{
    *s = (struct sha256){.h = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0},
                         .compress = compress};
}
