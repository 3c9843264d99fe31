/* SPDX-License-Identifier: MIT */
/* SHA-256 over two pieces; the message is fed block by block, the last one or two blocks padded. */
#include "server/digest.h"

#include <string.h>

enum { BLOCK = 64 };

/* The first 32 bits of the fractional parts of the cube roots of the first 64 primes. */
static const uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

struct state {
    uint32_t h[8];
    uint8_t block[BLOCK];
    size_t n_pending; /* bytes in block */
    uint64_t n_bytes;
};

static uint32_t rotate(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
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

static void compress(struct state *s)
{
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++)
        w[i] = load32(s->block + 4 * i);
    for (int i = 16; i < 64; i++) {
        uint32_t s0 = rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3;
        uint32_t s1 = rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    memcpy(v, s->h, sizeof(v)); /* a b c d e f g h */
    for (int i = 0; i < 64; i++) {
        uint32_t s1 = rotate(v[4], 6) ^ rotate(v[4], 11) ^ rotate(v[4], 25);
        uint32_t choose = (v[4] & v[5]) ^ (~v[4] & v[6]);
        uint32_t t1 = v[7] + s1 + choose + round_constants[i] + w[i];
        uint32_t s0 = rotate(v[0], 2) ^ rotate(v[0], 13) ^ rotate(v[0], 22);
        uint32_t majority = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
        memmove(v + 1, v, 7 * sizeof(v[0]));
        v[4] += t1;
        v[0] = t1 + s0 + majority;
    }
    for (int i = 0; i < 8; i++)
        s->h[i] += v[i];
}

static void feed(struct state *s, const void *data, size_t len)
{
    const uint8_t *p = data;
    s->n_bytes += len;
    while (len) {
        size_t n = BLOCK - s->n_pending < len ? BLOCK - s->n_pending : len;
        memcpy(s->block + s->n_pending, p, n);
        s->n_pending += n;
        p += n;
        len -= n;
        if (s->n_pending < BLOCK) continue;
        compress(s);
        s->n_pending = 0;
    }
}

static void finish(struct state *s, uint8_t *ret)
{
    static const uint8_t padding[BLOCK] = {0x80};
    uint64_t n_bits = s->n_bytes * 8;
    uint8_t length[8];
    store32(length, (uint32_t)(n_bits >> 32));
    store32(length + 4, (uint32_t)n_bits);
    size_t n = (s->n_pending < 56 ? 56 : 56 + BLOCK) - s->n_pending;
    feed(s, padding, n > BLOCK ? BLOCK : n);
    if (n > BLOCK) feed(s, padding + 1, n - BLOCK);
    feed(s, length, sizeof(length));
    for (int i = 0; i < 8; i++)
        store32(ret + 4 * i, s->h[i]);
}

void srv_digest(uint8_t ret[SRV_DIGEST_BYTES], const void *a, size_t a_len, const void *b,
                size_t b_len)
{
    struct state s = {.h = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c,
                            0x1f83d9ab, 0x5be0cd19}};
    if (a_len) feed(&s, a, a_len);
    if (b_len) feed(&s, b, b_len);
    finish(&s, ret);
}

/* ---- SipHash ------------------------------------------------------------------------------- */

static uint64_t rotate64(uint64_t x, int n)
{
    return x << n | x >> (64 - n);
}

static void sip_rounds(uint64_t v[4], int n)
{
    while (n-- > 0) {
        v[0] += v[1];
        v[2] += v[3];
        v[1] = rotate64(v[1], 13) ^ v[0];
        v[3] = rotate64(v[3], 16) ^ v[2];
        v[0] = rotate64(v[0], 32) + v[3];
        v[2] += v[1];
        v[1] = rotate64(v[1], 17) ^ v[2];
        v[3] = rotate64(v[3], 21) ^ v[0];
        v[2] = rotate64(v[2], 32);
    }
}

static void sip_word(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    sip_rounds(v, 2);
    v[0] ^= word;
}

/* Little-endian, as every machine this runs on stores it. */
uint64_t srv_digest_keyed(const uint64_t key[2], const void *data, size_t len)
{
    const uint8_t *p = data;
    uint64_t v[4] = {key[0] ^ 0x736f6d6570736575u, key[1] ^ 0x646f72616e646f6du,
                     key[0] ^ 0x6c7967656e657261u, key[1] ^ 0x7465646279746573u};
    uint64_t word;
    size_t left = len;
    for (; left >= sizeof(word); left -= sizeof(word), p += sizeof(word)) {
        memcpy(&word, p, sizeof(word));
        sip_word(v, word);
    }
    word = 0;
    if (left) memcpy(&word, p, left);
    sip_word(v, word | (uint64_t)len << 56);
    v[2] ^= 0xff;
    sip_rounds(v, 4);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}
