/* SPDX-License-Identifier: MIT */
/*
 * The vector operations of AVX-512 (F, BW, VL, DQ) under the names that the tmpl_*.h files use.
 *
 * vf: VN floats; vi: VN 32-bit integers; vm: one truth value per lane. "part" loads and stores
 * touch n elements only, 0 <= n <= VN; lanes beyond are zero.
 */
#pragma once

#include <immintrin.h>
#include <stdint.h>

#define INLINE static inline __attribute__((always_inline, unused))

enum { VN = 16 };
typedef __m512 vf;
typedef __m512i vi;
typedef __mmask16 vm;

/* Tiles, see tmpl_product.h and tmpl_int.h: twelve rows of a panel fill 24 registers with sums. */
#define MAX_ROWS 12
#define STRIP_VECS(rows) 2
#define INT_MAX_ROWS 6
#define INT_VECS(rows) 2
#define VALUE_VECS(rows) 2

INLINE __mmask16 vm_first(int n)
{
    return (__mmask16)((1u << n) - 1);
}

#define vf_load _mm512_loadu_ps
#define vf_store _mm512_storeu_ps
INLINE vf vf_load_part(const float *p, int n)
{
    return _mm512_maskz_loadu_ps(vm_first(n), p);
}
INLINE void vf_store_part(float *p, int n, vf v)
{
    _mm512_mask_storeu_ps(p, vm_first(n), v);
}
INLINE vf vf_load_f16(const void *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256(p));
}
#define vf_set1 _mm512_set1_ps
#define vf_add _mm512_add_ps
#define vf_sub _mm512_sub_ps
#define vf_mul _mm512_mul_ps
#define vf_div _mm512_div_ps
/* a * b + c, and c - a * b, rounded once */
#define vf_fma _mm512_fmadd_ps
#define vf_fnma _mm512_fnmadd_ps
/* b where either is NaN */
#define vf_max _mm512_max_ps
#define vf_min _mm512_min_ps

#define vi_load _mm512_loadu_si512
#define vi_store _mm512_storeu_si512
/* n bytes of a row, 0 <= n <= 64, the rest zero */
INLINE vi vi_load_bytes(const void *p, int n)
{
    return _mm512_maskz_loadu_epi8(n >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << n) - 1, p);
}
#define vi_set1 _mm512_set1_epi32
#define vi_add _mm512_add_epi32
#define vi_sub _mm512_sub_epi32
#define vi_and _mm512_and_si512
#define vi_or _mm512_or_si512
#define vi_maxu _mm512_max_epu32
#define vi_shl _mm512_slli_epi32
#define vi_shr _mm512_srli_epi32
/* 16-bit elements; vi_madd16 adds the products of two neighbours */
#define vi_shl16 _mm512_slli_epi16
#define vi_sar16 _mm512_srai_epi16
#define vi_madd16 _mm512_madd_epi16
#define vi_shr16 _mm512_srli_epi16
/* Within each 16 bytes those of a before those of b, narrowed; numbers that fit. */
#define vi_narrow32 _mm512_packus_epi32
#define vi_narrow16 _mm512_packus_epi16

/* The upper 16 bits of each lane, in place. */
INLINE vi vi_high_halves(vi v)
{
    return vi_and(v, vi_set1((int32_t)0xffff0000));
}

#define vf_of_bits _mm512_castsi512_ps
#define vi_of_bits _mm512_castps_si512
#define vi_mul _mm512_mullo_epi32
/* VN bytes, widened */
INLINE vi vi_of_u8(const void *p)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(p));
}
INLINE vi vi_of_s8(const void *p)
{
    return _mm512_cvtepi8_epi32(_mm_loadu_si128(p));
}
#define vf_of_int _mm512_cvtepi32_ps
/* nearest, ties to even */
#define vi_round _mm512_cvtps_epi32

/* 0, 1, 2 ... */
INLINE vi vi_iota(void)
{
    return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

/* Lanes l with lo <= i + l < hi. */
INLINE vm vm_range(int i, int lo, int hi)
{
    vi at = vi_add(vi_iota(), vi_set1(i));
    return _mm512_cmpge_epi32_mask(at, vi_set1(lo)) & _mm512_cmplt_epi32_mask(at, vi_set1(hi));
}
#define vm_greater(a, b) _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ)
#define vm_equal(a, b) _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ)
#define vm_not_le(a, b) _mm512_cmp_ps_mask(a, b, _CMP_NLE_UQ)
INLINE vm vm_and(vm a, vm b)
{
    return a & b;
}
INLINE vm vm_or(vm a, vm b)
{
    return a | b;
}
#define vm_none() 0
INLINE _Bool vm_any(vm m)
{
    return m != 0;
}
/* yes where m, else no */
INLINE vf vf_select(vm m, vf yes, vf no)
{
    return _mm512_mask_blend_ps(m, no, yes);
}
INLINE vi vi_select(vm m, vi yes, vi no)
{
    return _mm512_mask_blend_epi32(m, no, yes);
}

/* p * 2^n, n integral */
#define vf_scale_by_power _mm512_scalef_ps
#define vf_round_f(v) _mm512_roundscale_ps(v, 0)

/* Sum and maximum of all lanes, in a fixed order (halves). */
INLINE float vf_sum(vf v)
{
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}
#define vf_maximum _mm512_reduce_max_ps
#define vi_maximum_u _mm512_reduce_max_epu32
#define vi_sum _mm512_reduce_add_epi32

/* The largest lane of each of four vectors, unsigned. */
#define VI_FOURS
INLINE __m128i vi_maximum_u_of_four(const vi v[4])
{
    vi a = vi_maxu(_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
    vi b = vi_maxu(_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]));
    vi c = vi_maxu(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
    __m256i d = _mm256_max_epu32(_mm512_castsi512_si256(c), _mm512_extracti64x4_epi64(c, 1));
    return _mm_max_epu32(_mm256_castsi256_si128(d), _mm256_extracti128_si256(d, 1));
}
/* Two vectors' low bytes to q; returns partial sums of the bytes + 128 in even lanes. */
INLINE __m256i store_bytes(char *q, vi a, vi b)
{
    __m256i bytes = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm512_cvtepi32_epi8(a)),
                                            _mm512_cvtepi32_epi8(b), 1);
    _mm256_storeu_si256((__m256i *)(void *)q, bytes);
    return _mm256_sad_epu8(_mm256_xor_si256(bytes, _mm256_set1_epi8((char)0x80)),
                           _mm256_setzero_si256());
}
/* Adds up the partial sums of four groups. */
INLINE void sums_of_four(const __m256i part[4], int32_t ret_sum[4])
{
    __m256i a = _mm256_add_epi32(part[0], _mm256_slli_epi64(part[1], 32));
    __m256i b = _mm256_add_epi32(part[2], _mm256_slli_epi64(part[3], 32));
    __m256i c = _mm256_add_epi32(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
    __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(c), _mm256_extracti128_si256(c, 1));
    _mm_storeu_si128((__m128i *)(void *)ret_sum, _mm_sub_epi32(sum, _mm_set1_epi32(32 * 128)));
}
/* x / 127, and its inverse, or 0 where x is not from least to most. */
INLINE void scales_of_four(__m128 x, float least, float most, float ret_scale[4], float ret_inv[4])
{
    const __m128 steps = _mm_set1_ps(127.0f);
    __mmask8 usable = _mm_cmp_ps_mask(x, _mm_set1_ps(least), _CMP_GE_OQ) &
                      _mm_cmp_ps_mask(x, _mm_set1_ps(most), _CMP_LE_OQ);
    _mm_storeu_ps(ret_scale, _mm_div_ps(x, steps));
    _mm_storeu_ps(ret_inv, _mm_maskz_div_ps(usable, steps, x));
}

/* VN rows of VN 32-bit elements to columns, in place. */
INLINE void vi_transpose(vi r[VN])
{
    vi t[VN];
    for (int i = 0; i < 16; i += 4) {
        vi a = _mm512_unpacklo_epi32(r[i], r[i + 1]), b = _mm512_unpackhi_epi32(r[i], r[i + 1]);
        vi c = _mm512_unpacklo_epi32(r[i + 2], r[i + 3]);
        vi d = _mm512_unpackhi_epi32(r[i + 2], r[i + 3]);
        t[i] = _mm512_unpacklo_epi64(a, c);
        t[i + 1] = _mm512_unpackhi_epi64(a, c);
        t[i + 2] = _mm512_unpacklo_epi64(b, d);
        t[i + 3] = _mm512_unpackhi_epi64(b, d);
    }
    for (int i = 0; i < 4; i++) { /* t[4q + i]: column 4l + i of rows 4q .. 4q + 3 in lane l */
        vi a = _mm512_shuffle_i32x4(t[i], t[i + 4], 0x88);
        vi b = _mm512_shuffle_i32x4(t[i], t[i + 4], 0xdd);
        vi c = _mm512_shuffle_i32x4(t[i + 8], t[i + 12], 0x88);
        vi d = _mm512_shuffle_i32x4(t[i + 8], t[i + 12], 0xdd);
        r[i] = _mm512_shuffle_i32x4(a, c, 0x88);
        r[i + 8] = _mm512_shuffle_i32x4(a, c, 0xdd);
        r[i + 4] = _mm512_shuffle_i32x4(b, d, 0x88);
        r[i + 12] = _mm512_shuffle_i32x4(b, d, 0xdd);
    }
}

/* F16 bits of each lane, rounded to nearest even, and back. */
INLINE vi vi_f16_of(vf v)
{
    return _mm512_cvtepu16_epi32(_mm512_cvtps_ph(v, 0));
}
INLINE vf vf_of_f16(vi h)
{
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(h));
}

/* The low 16 or 8 bits of each lane. */
INLINE void vi_store_u16(void *p, vi v)
{
    _mm256_storeu_si256(p, _mm512_cvtepi32_epi16(v));
}
INLINE void vi_store_u8(void *p, vi v)
{
    _mm_storeu_si128(p, _mm512_cvtepi32_epi8(v));
}

/* n elements of a row in a file, any alignment, widened. */
INLINE vf vf_widen_f16(const void *p, int n)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(vm_first(n), p));
}
INLINE vf vf_widen_bf16(const void *p, int n)
{
    vi w = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(vm_first(n), p));
    return vf_of_bits(vi_shl(w, 16));
}

/* Byte i is byte (idx & 15) of the 16 of the table, idx < 128. */
INLINE vi vi_table(const void *p)
{
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)p));
}
#define vi_lookup _mm512_shuffle_epi8
/* Bytes of a and b in turn, from the lower or the upper half of each 16. */
#define vi_zip_low _mm512_unpacklo_epi8
#define vi_zip_high _mm512_unpackhi_epi8
