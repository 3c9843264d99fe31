/* SPDX-License-Identifier: MIT */
/*
 * Level "avx512bf16": AVX-512 with BF16 and VNNI (Zen 4 and later, Cooper Lake, Sapphire Rapids).
 * vdpbf16ps takes a pair of k at once, vpdpbusd four: twice and four times the rate of f32
 * products.
 */
#include "engine/kernels/simd_avx512.h"

#define VF_DOT_BF16
INLINE vf vf_dot_bf16(vf acc, vi a, vi b)
{
    return _mm512_dpbf16_ps(acc, (__m512bh)a, (__m512bh)b);
}
/* Takes subnormals for zero. In halves, because words that are read back do not forward from 64. */
INLINE void store_bf16(uint16_t *p, vf low, vf high)
{
    __m512i b = (__m512i)_mm512_cvtne2ps_pbh(high, low);
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_castsi512_si256(b));
    _mm256_storeu_si256((__m256i *)(void *)(p + VN), _mm512_extracti64x4_epi64(b, 1));
}

#define vi_dpbusd _mm512_dpbusd_epi32
#include "engine/kernels/dot_vnni.h"

#define LEVEL_TABLE kern_avx512bf16
#define LEVEL_NAME "avx512bf16"
#include "engine/kernels/tmpl_level.h"
