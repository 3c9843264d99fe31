/* SPDX-License-Identifier: MIT */
/*
 * Level "avx512": F, BW, VL and DQ, without BF16 and VNNI. Integer products as on avx2. Level
 * "avx512vnni" differs in them.
 */
#include "engine/kernels/simd_avx512.h"

INLINE vi dot8_start(int32_t corr)
{
    return (void)corr, vi_set1(0);
}
INLINE vi dot8(vi acc, vi w, vi x)
{
    vi q = _mm512_xor_si512(w, _mm512_set1_epi8((char)0x80));
    vi signed_x = _mm512_mask_sub_epi8(x, _mm512_movepi8_mask(q), vi_set1(0), x);
    vi pairs = _mm512_maddubs_epi16(_mm512_abs_epi8(q), signed_x);
    return vi_add(acc, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
}
INLINE vi dot6(vi acc, vi w, vi x, vi h, vi y)
{
    vi pairs = _mm512_add_epi16(_mm512_maddubs_epi16(w, x), _mm512_maddubs_epi16(h, y));
    return vi_add(acc, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
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
DEFINE_LEVEL(kern_avx512vnni, "avx512vnni", PART_ROWS, PART_FETCH, PART_BF16,
             PART_INT(kern_avx512vnni), PART_KV(kern_avx512vnni));
