/* SPDX-License-Identifier: MIT */
/*
 * Level "neon": AArch64's base NEON, without the dot product extensions. Signed bytes are
 * multiplied into 16 bits and added in pairs: 2 * 127 * 127 fits, and so do four of int6,
 * 4 * 63 * 127, and the 8 * 2 * 15 * 127 of a group of int4. Level "neondot" differs in the integer
 * products.
 */
#include "engine/kernels/simd_neon.h"

/* Products of the 16 bytes, in 16 bits, pairs added. */
INLINE int16x8_t byte_products(int8x16_t w, int8x16_t x)
{
    return vpaddq_s16(vmull_s8(vget_low_s8(w), vget_low_s8(x)), vmull_high_s8(w, x));
}
/* Weights are made signed, so that there is nothing to correct. */
INLINE vi dot8_start(int32_t corr)
{
    return (void)corr, vi_set1(0);
}
INLINE vi dot8(vi acc, vi w, vi x)
{
    int8x16_t q = veorq_s8(vreinterpretq_s8_s32(w), vdupq_n_s8(-128));
    return vpadalq_s16(acc, byte_products(q, vreinterpretq_s8_s32(x)));
}
INLINE vi dot6(vi acc, vi w, vi x, vi h, vi y)
{
    int16x8_t p = byte_products(vreinterpretq_s8_s32(w), vreinterpretq_s8_s32(x));
    int16x8_t q = byte_products(vreinterpretq_s8_s32(h), vreinterpretq_s8_s32(y));
    return vpadalq_s16(acc, vaddq_s16(p, q));
}
INLINE vi dot4_start(int32_t corr)
{
    return (void)corr, vi_set1(0);
}
INLINE vi dot4(vi acc, vi w, vi x)
{
    int16x8_t p = byte_products(vreinterpretq_s8_s32(w), vreinterpretq_s8_s32(x));
    return vreinterpretq_s32_s16(vaddq_s16(vreinterpretq_s16_s32(acc), p));
}
INLINE vi dot4_end(vi acc, int32_t corr)
{
    return vpadalq_s16(vi_set1(corr), vreinterpretq_s16_s32(acc));
}

#define LEVEL_TABLE kern_neon
#define LEVEL_NAME "neon"
#include "engine/kernels/tmpl_level.h"
DEFINE_LEVEL(kern_neondot, "neondot", PART_ROWS, PART_FETCH, PART_BF16, PART_INT(kern_neondot),
             PART_KV(kv));
