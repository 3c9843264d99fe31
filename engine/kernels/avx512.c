/* SPDX-License-Identifier: MIT */
/*
 * Level "avx512": F, BW, VL and DQ, without BF16 and VNNI. A panel is two vectors; twelve rows
 * fill 24 registers with sums. Integer weights are widened to 16 bits, even and odd bytes apart;
 * products of int4 stay in 16 bits for a whole group (8 * 2 * 15 * 127 = 30480).
 */
#include "engine/kernels/simd_avx512.h"

#define MAX_ROWS 12
#define STRIP_VECS(rows) 2
#define INT_MAX_ROWS 6
#define INT_VECS(rows) 2

INLINE vi dot8_start(int32_t corr)
{
    return vi_set1(corr);
}
INLINE vi dot8(vi acc, vi w, vi x)
{
    vi even = vi_and(w, vi_set1(0x00ff00ff)), odd = _mm512_srli_epi16(w, 8);
    vi x_even = _mm512_srai_epi16(_mm512_slli_epi16(x, 8), 8), x_odd = _mm512_srai_epi16(x, 8);
    acc = vi_add(acc, _mm512_madd_epi16(even, x_even));
    return vi_add(acc, _mm512_madd_epi16(odd, x_odd));
}
INLINE vi dot4_start(int32_t corr)
{
    return (void)corr, vi_set1(0);
}
INLINE vi dot4(vi acc, vi w, vi x)
{
    return _mm512_add_epi16(acc, _mm512_maddubs_epi16(w, x));
}
INLINE vi dot4_end(vi acc, int32_t corr)
{
    return vi_add(_mm512_madd_epi16(acc, _mm512_set1_epi16(1)), vi_set1(corr));
}

#define LEVEL_TABLE kern_avx512
#define LEVEL_NAME "avx512"
#include "engine/kernels/tmpl_level.h"
