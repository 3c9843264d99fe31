/* SPDX-License-Identifier: MIT */
/*
 * Level "neonbf16": NEON with the dot product of signed bytes and BF16 (Neoverse N2 and V1,
 * Cortex-A510, A710 and later). Products of bf16 take the pair of bfmlalb and bfmlalt: two fused
 * multiply-adds that round as any of f32 do, k in order, so that level "neon" gives the same bits
 * and only the widening is saved. (bfdot takes a pair of k in one instruction, but rounds to odd,
 * takes subnormals for zero, and does neither where FPCR.EBF is set.)
 */
#include "engine/kernels/dot_sdot.h"
#include "engine/kernels/simd_neon.h"

#define VF_DOT_BF16
INLINE vf vf_dot_bf16(vf acc, vi a, vi b)
{
    bfloat16x8_t x = vreinterpretq_bf16_s32(a), w = vreinterpretq_bf16_s32(b);
    return vbfmlaltq_f32(vbfmlalbq_f32(acc, x, w), x, w);
}
INLINE void store_bf16(uint16_t *p, vf low, vf high)
{
    bfloat16x8_t b = vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(low), high);
    memcpy(p, &b, sizeof(b));
}

#define LEVEL_TABLE kern_neonbf16
#define LEVEL_NAME "neonbf16"
#include "engine/kernels/tmpl_level.h"
