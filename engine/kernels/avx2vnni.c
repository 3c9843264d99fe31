/* SPDX-License-Identifier: MIT */
/*
 * Integer products of level "avx2vnni": AVX2 with AVX-VNNI (Alder Lake and later clients, Sierra
 * Forest, Zen 5). Everything else of that level is avx2.c's.
 */
#define INT_VECS(rows) ((rows) == 1 ? 4 : 2)
#include "engine/kernels/simd_avx2.h"

#define vi_dpbusd _mm256_dpbusd_avx_epi32

#include "engine/kernels/dot_vnni.h"
#include "engine/kernels/levels.h"
#include "engine/kernels/tmpl_int.h"
#include "engine/kernels/tmpl_kv.h"

EACH_INT_FORM(DEFINE_INT_MATMUL, kern_avx2vnni)
DEFINE_KV(kern_avx2vnni)
