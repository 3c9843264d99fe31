/* SPDX-License-Identifier: MIT */
/*
 * The vector operations of AVX2, FMA and F16C under the names that the tmpl_*.h files use; see
 * simd_avx512.h for their meaning.
 */
#pragma once

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline, unused))

enum { VN = 8 };
typedef __m256 vf;
typedef __m256i vi;
typedef __m256 vm;

/* Tiles: sixteen registers hold the sums of six rows and half a panel. */
#define MAX_ROWS 6
#define STRIP_VECS(rows) ((rows) <= 2 ? 4 : 2)
#define INT_MAX_ROWS 6
/* Of values, whose sums by bytes are two for each vector. */
#define VALUE_VECS(rows) ((rows) <= 2 ? 2 : 1)
#ifndef INT_VECS
#define INT_VECS(rows) ((rows) == 1 ? 4 : (rows) <= 4 ? 2 : 1)
#endif

#define vi_set1 _mm256_set1_epi32
INLINE vi vi_iota(void)
{
    return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
}
INLINE vi first_lanes(int n)
{
    return _mm256_cmpgt_epi32(vi_set1(n), vi_iota());
}

INLINE vf vf_load(const void *p)
{
    return _mm256_loadu_ps(p);
}
#define vf_store _mm256_storeu_ps
INLINE vf vf_load_part(const float *p, int n)
{
    return n == VN ? vf_load(p) : _mm256_maskload_ps(p, first_lanes(n));
}
INLINE void vf_store_part(float *p, int n, vf v)
{
    if (n == VN)
        vf_store(p, v);
    else
        _mm256_maskstore_ps(p, first_lanes(n), v);
}
INLINE vf vf_load_f16(const void *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128(p));
}
#define vf_set1 _mm256_set1_ps
#define vf_add _mm256_add_ps
#define vf_sub _mm256_sub_ps
#define vf_mul _mm256_mul_ps
#define vf_div _mm256_div_ps
#define vf_fma _mm256_fmadd_ps
#define vf_fnma _mm256_fnmadd_ps
#define vf_max _mm256_max_ps
#define vf_min _mm256_min_ps

INLINE vi vi_load(const void *p)
{
    return _mm256_loadu_si256(p);
}
INLINE void vi_store(void *p, vi v)
{
    _mm256_storeu_si256(p, v);
}
INLINE vi vi_load_bytes(const void *p, int n)
{
    char b[32] = {0};
    if (n >= 32) return vi_load(p);
    memcpy(b, p, (size_t)n);
    return vi_load(b);
}
#define vi_add _mm256_add_epi32
#define vi_sub _mm256_sub_epi32
#define vi_and _mm256_and_si256
#define vi_or _mm256_or_si256
#define vi_maxu _mm256_max_epu32
#define vi_shl _mm256_slli_epi32
#define vi_shr _mm256_srli_epi32
#define vi_shl16 _mm256_slli_epi16
#define vi_sar16 _mm256_srai_epi16
#define vi_madd16 _mm256_madd_epi16
#define vi_shr16 _mm256_srli_epi16
/* Within each 16 bytes those of a before those of b, narrowed; numbers that fit. */
#define vi_narrow32 _mm256_packus_epi32
#define vi_narrow16 _mm256_packus_epi16

INLINE vi vi_high_halves(vi v)
{
    return vi_shl(vi_shr(v, 16), 16);
} /* no register for a mask */

#define vf_of_bits _mm256_castsi256_ps
#define vi_of_bits _mm256_castps_si256
#define vi_mul _mm256_mullo_epi32
/* VN bytes, widened */
INLINE vi vi_of_u8(const void *p)
{
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(p));
}
INLINE vi vi_of_s8(const void *p)
{
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64(p));
}
#define vf_of_int _mm256_cvtepi32_ps
#define vi_round _mm256_cvtps_epi32

INLINE vm vm_range(int i, int lo, int hi)
{
    vi at = vi_add(vi_iota(), vi_set1(i));
    vi below = _mm256_cmpgt_epi32(vi_set1(lo), at);
    return vf_of_bits(_mm256_andnot_si256(below, _mm256_cmpgt_epi32(vi_set1(hi), at)));
}
#define vm_greater(a, b) _mm256_cmp_ps(a, b, _CMP_GT_OQ)
#define vm_equal(a, b) _mm256_cmp_ps(a, b, _CMP_EQ_OQ)
#define vm_not_le(a, b) _mm256_cmp_ps(a, b, _CMP_NLE_UQ)
#define vm_and _mm256_and_ps
#define vm_or _mm256_or_ps
#define vm_none() _mm256_setzero_ps()
INLINE _Bool vm_any(vm m)
{
    return _mm256_movemask_ps(m) != 0;
}
INLINE vf vf_select(vm m, vf yes, vf no)
{
    return _mm256_blendv_ps(no, yes, m);
}
INLINE vi vi_select(vm m, vi yes, vi no)
{
    return vi_of_bits(vf_select(m, vf_of_bits(yes), vf_of_bits(no)));
}

#define vf_round_f(v) _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
/* In two factors, so that results below 2^-126 come out as subnormals. */
INLINE vf vf_scale_by_power(vf p, vf n)
{
    vi i = vi_round(n), half = _mm256_srai_epi32(i, 1);
    vi a = vi_shl(vi_add(half, vi_set1(127)), 23);
    vi b = vi_shl(vi_add(vi_sub(i, half), vi_set1(127)), 23);
    return vf_mul(vf_mul(p, vf_of_bits(a)), vf_of_bits(b));
}

INLINE float vf_sum(vf v)
{
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}
INLINE float vf_maximum(vf v)
{
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}
INLINE uint32_t vi_maximum_u(vi v)
{
    __m128i b = _mm_max_epu32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    b = _mm_max_epu32(b, _mm_shuffle_epi32(b, 0x4e));
    return (uint32_t)_mm_cvtsi128_si32(_mm_max_epu32(b, _mm_shuffle_epi32(b, 0xb1)));
}
INLINE int32_t vi_sum(vi v)
{
    __m128i b = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    b = _mm_add_epi32(b, _mm_shuffle_epi32(b, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(b, _mm_shuffle_epi32(b, 0xb1)));
}

INLINE void vi_transpose(vi r[VN])
{
    vi t[VN];
    for (int i = 0; i < 8; i += 4) { /* t[i + j]: columns j and 4 + j of rows i .. i + 3 */
        vi a = _mm256_unpacklo_epi32(r[i], r[i + 1]), b = _mm256_unpackhi_epi32(r[i], r[i + 1]);
        vi c = _mm256_unpacklo_epi32(r[i + 2], r[i + 3]);
        vi d = _mm256_unpackhi_epi32(r[i + 2], r[i + 3]);
        t[i] = _mm256_unpacklo_epi64(a, c);
        t[i + 1] = _mm256_unpackhi_epi64(a, c);
        t[i + 2] = _mm256_unpacklo_epi64(b, d);
        t[i + 3] = _mm256_unpackhi_epi64(b, d);
    }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm256_permute2x128_si256(t[i], t[i + 4], 0x20);
        r[i + 4] = _mm256_permute2x128_si256(t[i], t[i + 4], 0x31);
    }
}

/* The low 16 bits of each lane, in order; they must fit unsigned. */
INLINE __m128i low_halves(vi v)
{
    vi p = _mm256_packus_epi32(vi_and(v, vi_set1(0xffff)), _mm256_setzero_si256());
    return _mm256_castsi256_si128(_mm256_permute4x64_epi64(p, 0x08));
}
INLINE void vi_store_u16(void *p, vi v)
{
    _mm_storeu_si128(p, low_halves(v));
}
INLINE void vi_store_u8(void *p, vi v)
{
    __m128i h = low_halves(vi_and(v, vi_set1(0xff)));
    _mm_storel_epi64(p, _mm_packus_epi16(h, h));
}

INLINE vi vi_f16_of(vf v)
{
    return _mm256_cvtepu16_epi32(_mm256_cvtps_ph(v, 0));
}
INLINE vf vf_of_f16(vi h)
{
    return _mm256_cvtph_ps(low_halves(h));
}

INLINE __m128i load_halves(const void *p, int n)
{
    char b[16] = {0};
    if (n == VN) return _mm_loadu_si128(p);
    memcpy(b, p, 2 * (size_t)n);
    return _mm_loadu_si128((const __m128i *)(const void *)b);
}
INLINE vf vf_widen_f16(const void *p, int n)
{
    return _mm256_cvtph_ps(load_halves(p, n));
}
INLINE vf vf_widen_bf16(const void *p, int n)
{
    return vf_of_bits(vi_shl(_mm256_cvtepu16_epi32(load_halves(p, n)), 16));
}

/* Byte i is byte (idx & 15) of the 16 of the table, idx < 128. */
INLINE vi vi_table(const void *p)
{
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)p));
}
#define vi_lookup _mm256_shuffle_epi8
/* Bytes of a and b in turn, from the lower or the upper half of each 16. */
#define vi_zip_low _mm256_unpacklo_epi8
#define vi_zip_high _mm256_unpackhi_epi8
