/* SPDX-License-Identifier: MIT */
/*
 * The vector operations of AArch64's base NEON under the names that the tmpl_*.h files use; see
 * simd_avx512.h for their meaning.
 */
#pragma once

#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline, unused))

/* A panel is eight vectors; six rows and half a panel fill 24 registers with sums. */
#define MAX_ROWS 6
#define STRIP_VECS(rows) ((rows) <= 2 ? 8 : 4)
#define INT_MAX_ROWS 4
#define INT_VECS(rows) ((rows) == 1 ? 4 : 2)
#define VALUE_VECS(rows) ((rows) == 1 ? 4 : 2)

enum { VN = 4 };
typedef float32x4_t vf;
typedef int32x4_t vi;
typedef uint32x4_t vm;

INLINE vf vf_load(const void *p)
{
    vf v;
    memcpy(&v, p, sizeof(v));
    return v;
}
#define vf_store vst1q_f32
INLINE vf vf_load_part(const float *p, int n)
{
    float b[VN] = {0};
    if (n == VN) return vf_load(p);
    memcpy(b, p, (size_t)n * sizeof(float));
    return vld1q_f32(b);
}
INLINE void vf_store_part(float *p, int n, vf v)
{
    memcpy(p, &v, (size_t)n * sizeof(float));
}
#define vf_set1 vdupq_n_f32
#define vf_add vaddq_f32
#define vf_sub vsubq_f32
#define vf_mul vmulq_f32
#define vf_div vdivq_f32
#define vf_fma(a, b, c) vfmaq_f32(c, a, b)
#define vf_fnma(a, b, c) vfmsq_f32(c, a, b)
INLINE vf vf_max(vf a, vf b)
{
    return vbslq_f32(vcgtq_f32(a, b), a, b);
}
INLINE vf vf_min(vf a, vf b)
{
    return vbslq_f32(vcltq_f32(a, b), a, b);
}

INLINE vi vi_load(const void *p)
{
    vi v;
    memcpy(&v, p, sizeof(v));
    return v;
}
INLINE void vi_store(void *p, vi v)
{
    memcpy(p, &v, sizeof(v));
}
INLINE vi vi_load_bytes(const void *p, int n)
{
    char b[16] = {0};
    memcpy(b, p, n < 16 ? (size_t)n : 16);
    return vi_load(b);
}
#define vi_set1 vdupq_n_s32
INLINE vi vi_iota(void)
{
    return vi_load((const int32_t[]){0, 1, 2, 3});
}
#define vi_add vaddq_s32
#define vi_sub vsubq_s32
#define vi_and vandq_s32
#define vi_or vorrq_s32
INLINE vi vi_maxu(vi a, vi b)
{
    return vreinterpretq_s32_u32(vmaxq_u32(vreinterpretq_u32_s32(a), vreinterpretq_u32_s32(b)));
}
#define vi_shl(v, n) vshlq_n_s32(v, n)
#define vi_shr(v, n) vreinterpretq_s32_u32(vshrq_n_u32(vreinterpretq_u32_s32(v), n))
#define vi_shl16(v, n) vreinterpretq_s32_s16(vshlq_n_s16(vreinterpretq_s16_s32(v), n))
#define vi_sar16(v, n) vreinterpretq_s32_s16(vshrq_n_s16(vreinterpretq_s16_s32(v), n))
INLINE vi vi_madd16(vi a, vi b)
{
    int16x8_t x = vreinterpretq_s16_s32(a), y = vreinterpretq_s16_s32(b);
    return vpaddq_s32(vmull_s16(vget_low_s16(x), vget_low_s16(y)), vmull_high_s16(x, y));
}
INLINE vi vi_high_halves(vi v)
{
    return vi_and(v, vi_set1((int32_t)0xffff0000));
}

#define vf_of_bits vreinterpretq_f32_s32
#define vi_of_bits vreinterpretq_s32_f32
#define vi_mul vmulq_s32
/* VN bytes, widened */
INLINE vi vi_of_u8(const void *p)
{
    uint32_t four;
    memcpy(&four, p, sizeof(four));
    uint16x8_t wide = vmovl_u8(vcreate_u8(four));
    return vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(wide)));
}
INLINE vi vi_of_s8(const void *p)
{
    uint32_t four;
    memcpy(&four, p, sizeof(four));
    return vmovl_s16(vget_low_s16(vmovl_s8(vcreate_s8(four))));
}
#define vf_of_int vcvtq_f32_s32
#define vi_round vcvtnq_s32_f32

INLINE vm vm_range(int i, int lo, int hi)
{
    vi at = vi_add(vi_iota(), vi_set1(i));
    return vandq_u32(vcgeq_s32(at, vi_set1(lo)), vcltq_s32(at, vi_set1(hi)));
}
#define vm_greater vcgtq_f32
#define vm_equal vceqq_f32
#define vm_not_le(a, b) vmvnq_u32(vcleq_f32(a, b))
#define vm_and vandq_u32
#define vm_or vorrq_u32
#define vm_none() vdupq_n_u32(0)
INLINE _Bool vm_any(vm m)
{
    return vmaxvq_u32(m) != 0;
}
#define vf_select vbslq_f32
#define vi_select vbslq_s32

#define vf_round_f vrndnq_f32
/* In two factors, so that results below 2^-126 come out as subnormals. */
INLINE vf vf_scale_by_power(vf p, vf n)
{
    vi i = vi_round(n), half = vshrq_n_s32(i, 1);
    vi a = vi_shl(vi_add(half, vi_set1(127)), 23);
    vi b = vi_shl(vi_add(vi_sub(i, half), vi_set1(127)), 23);
    return vf_mul(vf_mul(p, vf_of_bits(a)), vf_of_bits(b));
}

#define vf_sum vaddvq_f32
#define vf_maximum vmaxvq_f32
INLINE uint32_t vi_maximum_u(vi v)
{
    return vmaxvq_u32(vreinterpretq_u32_s32(v));
}
#define vi_sum vaddvq_s32

INLINE void vi_transpose(vi r[VN])
{
    int64x2_t a = vreinterpretq_s64_s32(vtrn1q_s32(r[0], r[1]));
    int64x2_t b = vreinterpretq_s64_s32(vtrn2q_s32(r[0], r[1]));
    int64x2_t c = vreinterpretq_s64_s32(vtrn1q_s32(r[2], r[3]));
    int64x2_t d = vreinterpretq_s64_s32(vtrn2q_s32(r[2], r[3]));
    r[0] = vreinterpretq_s32_s64(vtrn1q_s64(a, c));
    r[1] = vreinterpretq_s32_s64(vtrn1q_s64(b, d));
    r[2] = vreinterpretq_s32_s64(vtrn2q_s64(a, c));
    r[3] = vreinterpretq_s32_s64(vtrn2q_s64(b, d));
}

INLINE void vi_store_u16(void *p, vi v)
{
    int16x4_t h = vmovn_s32(v);
    memcpy(p, &h, sizeof(h));
}
INLINE void vi_store_u8(void *p, vi v)
{
    int16x4_t h = vmovn_s32(v);
    int8x8_t b = vmovn_s16(vcombine_s16(h, h));
    memcpy(p, &b, 4);
}

INLINE vf vf_of_halves(uint16x4_t h)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(h));
}
INLINE vi vi_f16_of(vf v)
{
    return vreinterpretq_s32_u32(vmovl_u16(vreinterpret_u16_f16(vcvt_f16_f32(v))));
}
INLINE vf vf_of_f16(vi h)
{
    return vf_of_halves(vreinterpret_u16_s16(vmovn_s32(h)));
}

INLINE uint16x4_t load_halves(const void *p, int n)
{
    uint16x4_t h = vdup_n_u16(0);
    memcpy(&h, p, 2 * (size_t)n);
    return h;
}
INLINE vf vf_load_f16(const void *p)
{
    return vf_of_halves(load_halves(p, VN));
}
INLINE vf vf_widen_f16(const void *p, int n)
{
    return vf_of_halves(load_halves(p, n));
}
INLINE vf vf_widen_bf16(const void *p, int n)
{
    return vreinterpretq_f32_u32(vshll_n_u16(load_halves(p, n), 16));
}

/* Byte i is byte (idx & 15) of the 16 of the table, idx < 16. */
INLINE vi vi_table(const void *p)
{
    return vreinterpretq_s32_u8(vld1q_u8(p));
}
INLINE vi vi_lookup(vi table, vi idx)
{
    return vreinterpretq_s32_u8(vqtbl1q_u8(vreinterpretq_u8_s32(table), vreinterpretq_u8_s32(idx)));
}
/* Bytes of a and b in turn, from the lower or the upper half of each 16. */
INLINE vi vi_zip_low(vi a, vi b)
{
    return vreinterpretq_s32_u8(vzip1q_u8(vreinterpretq_u8_s32(a), vreinterpretq_u8_s32(b)));
}
INLINE vi vi_zip_high(vi a, vi b)
{
    return vreinterpretq_s32_u8(vzip2q_u8(vreinterpretq_u8_s32(a), vreinterpretq_u8_s32(b)));
}
