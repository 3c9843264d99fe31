/* SPDX-License-Identifier: MIT */
/*
 * The integer sums of tmpl_int.h by sdot, which adds four products of signed bytes to each 32-bit
 * lane. Weights of int8 are made signed, so that there is nothing to correct; those of int6 and
 * int4 fit as they are.
 */
#pragma once

#include "engine/kernels/simd_neon.h"

INLINE vi sdot(vi acc, vi w, vi x)
{
    return vdotq_s32(acc, vreinterpretq_s8_s32(w), vreinterpretq_s8_s32(x));
}

INLINE vi dot8_start(int32_t corr)
{
    return (void)corr, vi_set1(0);
}
INLINE vi dot8(vi acc, vi w, vi x)
{
    return sdot(acc, veorq_s32(w, vi_set1((int32_t)0x80808080)), x);
}
INLINE vi dot6(vi acc, vi w, vi x, vi h, vi y)
{
    return sdot(sdot(acc, w, x), h, y);
}
#define dot4_start vi_set1
#define dot4 sdot
INLINE vi dot4_end(vi acc, int32_t corr)
{
    return (void)corr, acc;
}
