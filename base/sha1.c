/* SPDX-License-Identifier: MIT */
/* The message is fed block by block; the last one or two blocks are padded. */
#include "base/sha1.h"

#include <string.h>

enum { BLOCK = sizeof((struct sha1){0}.block) };

static uint32_t rotate(uint32_t x, int n)
{
    return x << n | x >> (32 - n);
}

static uint32_t load32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void store32(uint8_t *p, uint32_t x)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(x >> (24 - 8 * i));
}

/* A round adds this to the message: a function of three words, and a constant. */
static uint32_t mix(int i, uint32_t b, uint32_t c, uint32_t d)
{
    if (i < 20) return ((b & c) | (~b & d)) + 0x5a827999;
    if (i < 40) return (b ^ c ^ d) + 0x6ed9eba1;
    if (i < 60) return ((b & c) | (b & d) | (c & d)) + 0x8f1bbcdc;
    return (b ^ c ^ d) + 0xca62c1d6;
}

static void compress(uint32_t *h, const uint8_t *p)
{
    uint32_t w[80], v[5];
    for (int i = 0; i < 16; i++)
        w[i] = load32(p + 4 * i);
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

void sha1_init(struct sha1 *s)
{
    *s = (struct sha1){.h = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0}};
}

void sha1_update(struct sha1 *s, const void *data, size_t len)
{
    const uint8_t *p = data;
    while (len) {
        size_t at = s->n_bytes % BLOCK, n = BLOCK - at < len ? BLOCK - at : len;
        memcpy(s->block + at, p, n);
        s->n_bytes += n;
        p += n;
        len -= n;
        if (at + n == BLOCK) compress(s->h, s->block);
    }
}

void sha1_final(struct sha1 *s, uint8_t ret[SHA1_BYTES])
{
    static const uint8_t padding[BLOCK] = {0x80};
    uint64_t n_bits = s->n_bytes * 8;
    uint8_t length[8];
    store32(length, (uint32_t)(n_bits >> 32));
    store32(length + 4, (uint32_t)n_bits);
    sha1_update(s, padding, 1 + (2 * BLOCK - 9 - s->n_bytes % BLOCK) % BLOCK);
    sha1_update(s, length, sizeof(length));
    for (int i = 0; i < 5; i++)
        store32(ret + 4 * i, s->h[i]);
}
