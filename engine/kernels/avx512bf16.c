/* SPDX-License-Identifier: MIT */
/*
 * Level "avx512bf16": AVX-512 with BF16 and VNNI (Zen 4 and later, Cooper Lake, Sapphire Rapids).
 * vdpbf16ps takes a pair of k at once, vpdpbusd four: twice and four times the rate of f32
 * products, but see kern_bf16_rate.
 */
#include "engine/kernels/levels.h"
#include "engine/kernels/simd_avx512.h"

#include <time.h>

#define VF_DOT_BF16
#define BF16_ROW_MAJOR
INLINE vf vf_dot_bf16(vf acc, vi a, vi b)
{
    return _mm512_dpbf16_ps(acc, (__m512bh)a, (__m512bh)b);
}
/* Takes subnormals for zero. */
INLINE vi vi_bf16_pairs(vf low, vf high)
{
    return (vi)_mm512_cvtne2ps_pbh(high, low);
}
/* In halves, because words that are read back do not forward from 64. */
INLINE void store_bf16(uint16_t *p, vf low, vf high)
{
    __m512i b = vi_bf16_pairs(low, high);
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_castsi512_si256(b));
    _mm256_storeu_si256((__m256i *)(void *)(p + VN), _mm512_extracti64x4_epi64(b, 1));
}

/* t - floor(t), of infinity 0 */
INLINE vf vf_fraction(vf t)
{
    return _mm512_reduce_ps(t, 1);
}
/* 16-bit elements outside [lo, hi) become 0; lo < 32, hi > 0. */
INLINE vi vi_keep_halves(vi v, int lo, int hi)
{
    uint32_t from = lo > 0 ? UINT32_MAX << lo : UINT32_MAX;
    uint32_t before = hi < 32 ? (1u << hi) - 1 : UINT32_MAX;
    return _mm512_maskz_mov_epi16(from & before, v);
}

/*
 * Nanoseconds of a loop that only multiplies registers by zero. As many sums as hide the latency of
 * either instruction.
 */
INLINE int64_t loop_ns(const _Bool dot)
{
    enum { SUMS = 12, STEPS = 1500 };
    struct timespec from, to;
    vf sum[SUMS];
    vi zero = vi_set1(0);
    __asm__("" : "+v"(zero));
    for (int j = 0; j < SUMS; j++)
        sum[j] = vf_of_bits(zero);
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (int i = 0; i < STEPS; i++)
        for (int j = 0; j < SUMS; j++) {
            sum[j] = dot ? vf_dot_bf16(sum[j], zero, zero)
                         : vf_fma(vf_of_bits(zero), vf_of_bits(zero), sum[j]);
            __asm__ volatile("" : "+v"(sum[j]));
        }
    clock_gettime(CLOCK_MONOTONIC, &to);
    return (to.tv_sec - from.tv_sec) * 1000000000ll + (to.tv_nsec - from.tv_nsec);
}

double kern_bf16_rate(void)
{
    int64_t fma = INT64_MAX, dot = INT64_MAX;
    for (int i = 0; i < 8; i++) {
        int64_t f = loop_ns(0), d = loop_ns(1);
        fma = f < fma ? f : fma;
        dot = d < dot ? d : dot;
    }
    return 2 * (double)fma / (double)dot;
}

#define vi_dpbusd _mm512_dpbusd_epi32
#include "engine/kernels/dot_vnni.h"

#define LEVEL_TABLE kern_avx512bf16
#define LEVEL_NAME "avx512bf16"
#include "engine/kernels/tmpl_level.h"

/* clang-format off */
DEFINE_LEVEL(kern_avx512amx, "avx512amx",
    .max_rows = {MAX_ROWS, KERN_AMX_ROWS, KERN_AMX_ROWS},
    .act_bytes = {4, BF16_BYTES, 1},
    .bf16_row_major = true,
    .fast_bf16 = true,
    .pack_row = {pack_row_f32, pack_row_bf16, pack_row_i8},
    .fetch_rows = {
        PART_FETCH_F32,
        [KERN_A_BF16] = {[KERN_W_BF16] = 7, [KERN_W_B12] = 6},
        PART_FETCH_I8,
    },
    .matmul[KERN_A_BF16][KERN_W_BF16] = kern_avx512amx_bf16_bf16,
    .matmul[KERN_A_BF16][KERN_W_B12] = kern_avx512amx_bf16_b12,
    .matmul_pages[KERN_A_BF16] = kern_avx512amx_pages,
    .matmul_segs[KERN_A_BF16] = kern_avx512amx_segs,
    PART_INT(kern_avx512amx), PART_KV(kv));
/* clang-format on */
