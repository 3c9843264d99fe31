/* SPDX-License-Identifier: MIT */
/*
 * Integer products of level "neondot": NEON with the dot product of signed bytes (FEAT_DotProd:
 * Cortex-A75 and A76, Neoverse N1, and later). Everything else of that level is neon.c's.
 */
#include "engine/kernels/dot_sdot.h"
#include "engine/kernels/levels.h"
#include "engine/kernels/tmpl_int.h"

EACH_INT_FORM(DEFINE_INT_MATMUL, kern_neondot)
