/* SPDX-License-Identifier: MIT */
/*
 * The message is fed block by block; the last one or two blocks are padded. Blocks are compressed
 * by the processor's SHA instructions if it has them.
 */
#include "base/sha256.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#include <sys/auxv.h>
#endif

enum { BLOCK = SHA_BLOCK };

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

/* Feeds n blocks to the state; h: [8]. */
typedef void (*compress_fn)(uint32_t *h, const uint8_t *p, size_t n);

static void compress_block(uint32_t *h, const uint8_t *p)
{
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++)
        w[i] = load32(p + 4 * i);
    for (int i = 16; i < 64; i++) {
        uint32_t s0 = rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3;
        uint32_t s1 = rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    memcpy(v, h, sizeof(v));
    /* a to h turn by one place per round, so that none of them has to be moved. */
#pragma GCC unroll 8
    for (int i = 0; i < 64; i++) {
#define V(k) v[((k)-i) & 7]
        uint32_t s1 = rotate(V(4), 6) ^ rotate(V(4), 11) ^ rotate(V(4), 25);
        uint32_t choose = (V(4) & V(5)) ^ (~V(4) & V(6));
        uint32_t t1 = V(7) + s1 + choose + round_constants[i] + w[i];
        uint32_t s0 = rotate(V(0), 2) ^ rotate(V(0), 13) ^ rotate(V(0), 22);
        V(3) += t1;
        V(7) = t1 + s0 + ((V(0) & V(1)) ^ (V(0) & V(2)) ^ (V(1) & V(2)));
#undef V
    }
    for (int i = 0; i < 8; i++)
        h[i] += v[i];
}

static void compress_portable(uint32_t *h, const uint8_t *p, size_t n)
{
    for (; n; n--, p += BLOCK)
        compress_block(h, p);
}

/* ---- with the processor's instructions: four rounds and four words of the message at a time -- */

#if defined(__x86_64__)
static bool has_instructions(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_SSE4_1) &&
           __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_SHA);
}

/* The instructions have the state as {f, e, b, a} and {h, g, d, c}, from the lowest lane on. */
__attribute__((target("sha,sse4.1"))) static void compress_fast(uint32_t *h, const uint8_t *p,
                                                                size_t n)
{
    const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    __m128i *state = (__m128i *)h;
    __m128i low = _mm_loadu_si128(state), high = _mm_loadu_si128(state + 1), w[4];
    __m128i x = _mm_shuffle_epi32(_mm_unpacklo_epi64(low, high), 0x1b);
    __m128i y = _mm_shuffle_epi32(_mm_unpackhi_epi64(low, high), 0x1b);
    for (; n; n--, p += BLOCK) {
        const __m128i x0 = x, y0 = y;
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++) {
            __m128i *now = &w[i & 3], last = w[(i + 3) & 3];
            if (i < 4)
                *now = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)p + i), swap);
            else
                *now =
                    _mm_sha256msg2_epu32(_mm_add_epi32(_mm_sha256msg1_epu32(*now, w[(i + 1) & 3]),
                                                       _mm_alignr_epi8(last, w[(i + 2) & 3], 4)),
                                         last);
            __m128i sum =
                _mm_add_epi32(*now, _mm_loadu_si128((const __m128i *)round_constants + i));
            y = _mm_sha256rnds2_epu32(y, x, sum);
            x = _mm_sha256rnds2_epu32(x, y, _mm_shuffle_epi32(sum, 0x0e));
        }
        x = _mm_add_epi32(x, x0);
        y = _mm_add_epi32(y, y0);
    }
    x = _mm_shuffle_epi32(x, 0x1b);
    y = _mm_shuffle_epi32(y, 0x1b);
    _mm_storeu_si128(state, _mm_unpacklo_epi64(x, y));
    _mm_storeu_si128(state + 1, _mm_unpackhi_epi64(x, y));
}
#elif defined(__aarch64__)
static bool has_instructions(void)
{
    return getauxval(AT_HWCAP) & 1ul << 6; /* HWCAP_SHA2 */
}

__attribute__((target("+crypto"))) static void compress_fast(uint32_t *h, const uint8_t *p,
                                                             size_t n)
{
    uint32x4_t x = vld1q_u32(h), y = vld1q_u32(h + 4), w[4];
    for (; n; n--, p += BLOCK) {
        const uint32x4_t x0 = x, y0 = y;
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++) {
            uint32x4_t *now = &w[i & 3];
            if (i < 4)
                *now = vreinterpretq_u32_u8(vrev32q_u8(vld1q_u8(p + 16 * i)));
            else
                *now = vsha256su1q_u32(vsha256su0q_u32(*now, w[(i + 1) & 3]), w[(i + 2) & 3],
                                       w[(i + 3) & 3]);
            uint32x4_t sum = vaddq_u32(*now, vld1q_u32(round_constants + 4 * i)), before = x;
            x = vsha256hq_u32(x, y, sum);
            y = vsha256h2q_u32(y, before, sum);
        }
        x = vaddq_u32(x, x0);
        y = vaddq_u32(y, y0);
    }
    vst1q_u32(h, x);
    vst1q_u32(h + 4, y);
}
#else
static bool has_instructions(void)
{
    return false;
}

#define compress_fast compress_portable
#endif

/* Asks the processor once: a virtual machine answers slowly. */
static compress_fn choose(void)
{
    static _Atomic(compress_fn) chosen;
    compress_fn fn = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (fn) return fn;
    fn = has_instructions() ? compress_fast : compress_portable;
    atomic_store_explicit(&chosen, fn, memory_order_relaxed);
    return fn;
}

void sha256_update(struct sha256 *s, const void *data, size_t len)
{
    const uint8_t *p = data;
    s->n_bytes += len;
    if (s->n_pending) {
        size_t n = BLOCK - s->n_pending < len ? BLOCK - s->n_pending : len;
        memcpy(s->block + s->n_pending, p, n);
        s->n_pending += n;
        p += n;
        len -= n;
        if (s->n_pending < BLOCK) return;
        s->compress(s->h, s->block, 1);
        s->n_pending = 0;
    }
    s->compress(s->h, p, len / BLOCK);
    s->n_pending = len % BLOCK;
    if (s->n_pending) memcpy(s->block, p + len - s->n_pending, s->n_pending);
}

void sha256_final(struct sha256 *s, uint8_t ret[SHA256_BYTES])
{
    static const uint8_t padding[BLOCK] = {0x80};
    uint64_t n_bits = s->n_bytes * 8;
    uint8_t length[8];
    store32(length, (uint32_t)(n_bits >> 32));
    store32(length + 4, (uint32_t)n_bits);
    size_t n = (s->n_pending < 56 ? 56 : 56 + BLOCK) - s->n_pending;
    sha256_update(s, padding, n); /* 1 to BLOCK */
    sha256_update(s, length, sizeof(length));
    for (int i = 0; i < 8; i++)
        store32(ret + 4 * i, s->h[i]);
}

void sha256_init(struct sha256 *s)
{
    *s = (struct sha256){.h = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f,
                               0x9b05688c, 0x1f83d9ab, 0x5be0cd19},
                         .compress = choose()};
}

void sha256(uint8_t ret[SHA256_BYTES], const void *data, size_t len)
{
    struct sha256 s;
    sha256_init(&s);
    sha256_update(&s, data, len);
    sha256_final(&s, ret);
}
