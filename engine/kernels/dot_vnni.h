/* SPDX-License-Identifier: MIT */
/*
 * The integer sums of tmpl_int.h by vpdpbusd, which adds four products of bytes to each 32-bit
 * lane; the including file defines vi_dpbusd(acc, w, x).
 */
#pragma once

#define dot8_start vi_set1
#define dot8 vi_dpbusd
#define dot4_start vi_set1
#define dot4 vi_dpbusd
INLINE vi dot6(vi acc, vi w, vi x, vi h, vi y)
{
    return vi_dpbusd(vi_dpbusd(acc, w, x), h, y);
}
INLINE vi dot4_end(vi acc, int32_t corr)
{
    return (void)corr, acc;
}
