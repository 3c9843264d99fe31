/* SPDX-License-Identifier: MIT */
/* SipHash-2-4; see siphash.h. */
#include "base/siphash.h"

#include <string.h>

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
uint64_t siphash(const uint64_t key[2], const void *data, size_t len)
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
