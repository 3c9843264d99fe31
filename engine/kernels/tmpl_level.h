/* SPDX-License-Identifier: MIT */
/*
 * A whole level from the templates. The including file has defined the macros of tmpl_product.h and
 * tmpl_int.h, and LEVEL_TABLE and LEVEL_NAME.
 */
#pragma once

#include "engine/kernels/race_loops.h"
#include "engine/kernels/read_loops.h"
#include "engine/kernels/tmpl_int.h"
#include "engine/kernels/tmpl_kv.h"
#include "engine/kernels/tmpl_narrow.h"
#include "engine/kernels/tmpl_pack.h"
#include "engine/kernels/tmpl_product.h"
#include "engine/kernels/tmpl_vector.h"

DEFINE_MATMUL(matmul_f32_f32, F32_F32)
DEFINE_MATMUL(matmul_f32_bf16, F32_BF16)
DEFINE_MATMUL(matmul_f32_b12, F32_B12)
DEFINE_MATMUL(matmul_f32_f16, F32_F16)
DEFINE_PAGES(pages_f32, F32_F32)
DEFINE_SEGS(segs_f32, F32_F32)
#ifdef VF_DOT_BF16
DEFINE_MATMUL(matmul_bf16_bf16, DOT)
DEFINE_MATMUL(matmul_bf16_b12, DOT_B12)
DEFINE_PAGES(pages_bf16, DOT)
DEFINE_SEGS(segs_bf16, DOT)
enum { BF16_BYTES = 2 };
#else
#define matmul_bf16_bf16 matmul_f32_bf16
#define matmul_bf16_b12 matmul_f32_b12
DEFINE_PAGES(pages_bf16, F32_BF16)
DEFINE_SEGS(segs_bf16, F32_BF16)
enum { BF16_BYTES = 4 };
#endif
#define DECLARE_OWN_MATMUL(prefix, name, fmt) static kern_matmul_fn prefix##_##name;
EACH_INT_FORM(DECLARE_OWN_MATMUL, matmul)
EACH_INT_FORM(DEFINE_INT_MATMUL, matmul)
static kern_matmul_pages_fn kv_keys;
static kern_matmul_segs_fn kv_values;
static kern_pack_probs_fn kv_probs;
DEFINE_KV(kv)

/* Parts of a level: what other levels of the same file have of their own. */
#define PART_ROWS                                                                                  \
    .max_rows = {MAX_ROWS, MAX_ROWS, INT_MAX_ROWS}, .act_bytes = {4, BF16_BYTES, 1},               \
    .bf16_row_major = DOT_ROW_MAJOR, .fast_bf16 = DOT_ROW_MAJOR,                                   \
    .pack_row = {pack_row_f32, pack_row_bf16, pack_row_i8}
#define PART_FETCH_F32                                                                             \
    [KERN_A_F32] = {[KERN_W_F32] = 7, [KERN_W_BF16] = 4, [KERN_W_B12] = 4, [KERN_W_F16] = 4}
#define PART_FETCH_I8                                                                              \
    [KERN_A_I8] = {[KERN_W_I8] = 6,  [KERN_W_I4] = 4,  [KERN_W_I4A] = 4, [KERN_W_I5] = 5,          \
                   [KERN_W_I5A] = 5, [KERN_W_I4K] = 4, [KERN_W_I5K] = 4, [KERN_W_I6S] = 5}
#define PART_FETCH                                                                                 \
    .fetch_rows = {                                                                                \
        PART_FETCH_F32,                                                                            \
        [KERN_A_BF16] = {[KERN_W_BF16] = 7, [KERN_W_B12] = 6},                                     \
        PART_FETCH_I8,                                                                             \
    }
#define PART_BF16                                                                                  \
    .matmul[KERN_A_BF16][KERN_W_BF16] = matmul_bf16_bf16,                                          \
    .matmul[KERN_A_BF16][KERN_W_B12] = matmul_bf16_b12, .matmul_pages[KERN_A_BF16] = pages_bf16,   \
    .matmul_segs[KERN_A_BF16] = segs_bf16
#define PART_INT(prefix) .matmul[KERN_A_I8] = {EACH_INT_FORM(INT_ENTRY, prefix)}
#define PART_KV(name)                                                                              \
    .matmul_pages[KERN_A_I8] = name##_keys, .matmul_segs[KERN_A_I8] = name##_values,               \
    .pack_probs = name##_probs

/* The parts, then what levels share. */
#define DEFINE_LEVEL(table, level, ...)                                                            \
    const struct kern table = {                                                                    \
        .name = level,                                                                             \
        __VA_ARGS__,                                                                               \
        .prefers_b12 = VN == 16,                                                                   \
        .softmax_pack = SOFTMAX_PACK,                                                              \
        .matmul[KERN_A_F32][KERN_W_F32] = matmul_f32_f32,                                          \
        .matmul[KERN_A_F32][KERN_W_BF16] = matmul_f32_bf16,                                        \
        .matmul[KERN_A_F32][KERN_W_B12] = matmul_f32_b12,                                          \
        .matmul[KERN_A_F32][KERN_W_F16] = matmul_f32_f16,                                          \
        .matmul_pages[KERN_A_F32] = pages_f32,                                                     \
        .matmul_segs[KERN_A_F32] = segs_f32,                                                       \
        SAME_NAMES,                                                                                \
    }

DEFINE_LEVEL(LEVEL_TABLE, LEVEL_NAME, PART_ROWS, PART_FETCH, PART_BF16, PART_INT(matmul),
             PART_KV(kv));
