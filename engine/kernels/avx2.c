/* SPDX-License-Identifier: MIT */
/*
 * Level "avx2": AVX2 with FMA and F16C. Pairs of int8 products fit 16 bits if the weight's sign
 * moves to the activation (2 * 127 * 127 = 32258), and so do four products of int6 (4 * 63 * 127 =
 * 32004); products of int4 stay in 16 bits for a whole group (8 * 2 * 15 * 127 = 30480). Level
 * "avx2vnni" differs in the integer products.
 */
#include "engine/kernels/simd_avx2.h"

INLINE vi dot8_start(int32_t corr)
{
    return (void)corr, vi_set1(0);
}
INLINE vi dot8(vi acc, vi w, vi x)
{
    vi q = _mm256_xor_si256(w, _mm256_set1_epi8((char)0x80));
    vi pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(q), _mm256_sign_epi8(x, q));
    return vi_add(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
INLINE vi dot6(vi acc, vi w, vi x, vi h, vi y)
{
    vi pairs = _mm256_add_epi16(_mm256_maddubs_epi16(w, x), _mm256_maddubs_epi16(h, y));
    return vi_add(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
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
DEFINE_LEVEL(kern_avx2vnni, "avx2vnni", PART_ROWS, PART_FETCH, PART_BF16, PART_INT(kern_avx2vnni),
             PART_KV(kern_avx2vnni));
