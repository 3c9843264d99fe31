/* SPDX-License-Identifier: MIT */
/*
 * Level "avx2": AVX2 with FMA and F16C. A panel is four vectors; sixteen registers hold the sums of
 * six rows and half a panel. Integer weights are widened to 16 bits, even and odd bytes apart;
 * products of int4 stay in 16 bits for a whole group (8 * 2 * 15 * 127 = 30480).
 */
#include "engine/kernels/simd_avx2.h"

#define MAX_ROWS 6
#define STRIP_VECS(rows) ((rows) <= 2 ? 4 : 2)

#define INT_MAX_ROWS 4
#define INT_VECS(rows) ((rows) == 1 ? 4 : 2)

INLINE vi dot8_start(int32_t corr)
{
    return vi_set1(corr);
}
INLINE vi dot8(vi acc, vi w, vi x)
{
    vi even = vi_and(w, vi_set1(0x00ff00ff)), odd = _mm256_srli_epi16(w, 8);
    vi x_even = _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8), x_odd = _mm256_srai_epi16(x, 8);
    acc = vi_add(acc, _mm256_madd_epi16(even, x_even));
    return vi_add(acc, _mm256_madd_epi16(odd, x_odd));
}
INLINE vi dot4_start(int32_t corr)
{
    return (void)corr, vi_set1(0);
}
INLINE vi dot4(vi acc, vi w, vi x)
{
    return _mm256_add_epi16(acc, _mm256_maddubs_epi16(w, x));
}
INLINE vi dot4_end(vi acc, int32_t corr)
{
    return vi_add(_mm256_madd_epi16(acc, _mm256_set1_epi16(1)), vi_set1(corr));
}

#define LEVEL_TABLE kern_avx2
#define LEVEL_NAME "avx2"
#include "engine/kernels/tmpl_level.h"
