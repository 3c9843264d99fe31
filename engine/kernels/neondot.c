/* SPDX-License-Identifier: MIT */
/*
 * Integer products of level "neondot": NEON with the dot product of signed bytes (FEAT_DotProd:
 * Cortex-A75 and A76, Neoverse N1, and later). Everything else of that level is neon.c's.
 */
#include "engine/kernels/dot_sdot.h"
#include "engine/kernels/levels.h"
#include "engine/kernels/tmpl_int.h"

DEFINE_INT_MATMUL(kern_neondot_i8_i8, INT_CASE_I8)
DEFINE_INT_MATMUL(kern_neondot_i8_i6, INT_CASE_I6)
DEFINE_INT_MATMUL(kern_neondot_i8_i4, INT_CASE_I4)
