/* SPDX-License-Identifier: MIT */
/*
 * Integer products of level "avx512vnni": AVX-512 with VNNI, without BF16 (Cascade Lake, Ice Lake).
 * Everything else of that level is avx512.c's.
 */
#include "engine/kernels/simd_avx512.h"

#define vi_dpbusd _mm512_dpbusd_epi32

#include "engine/kernels/dot_vnni.h"
#include "engine/kernels/levels.h"
#include "engine/kernels/tmpl_int.h"
#include "engine/kernels/tmpl_kv.h"

EACH_INT_FORM(DEFINE_INT_MATMUL, kern_avx512vnni)
DEFINE_KV(kern_avx512vnni)
