/* SPDX-License-Identifier: MIT */
/*
 * Private to engine/kernels: the const tables of the levels, and functions that levels share. A
 * level's table has a lower level's function if it has no faster one.
 */
#pragma once

#include "engine/kernels/kernels.h"

extern const struct kern kern_ref;
extern const struct kern kern_avx2, kern_avx2vnni;
extern const struct kern kern_avx512, kern_avx512vnni, kern_avx512bf16, kern_avx512amx;
extern const struct kern kern_neon, kern_neondot, kern_neonbf16;

/* Calls X(prefix, name, format) for each format of integers. */
#define EACH_INT_FORM(X, prefix)                                                                   \
    X(prefix, i8, KERN_W_I8)                                                                       \
    X(prefix, i4, KERN_W_I4)                                                                       \
    X(prefix, i4a, KERN_W_I4A)                                                                     \
    X(prefix, i5, KERN_W_I5)                                                                       \
    X(prefix, i5a, KERN_W_I5A)                                                                     \
    X(prefix, i4k, KERN_W_I4K)                                                                     \
    X(prefix, i5k, KERN_W_I5K)                                                                     \
    X(prefix, i6s, KERN_W_I6S)
#define DECLARE_INT_MATMUL(prefix, name, fmt) extern kern_matmul_fn prefix##_##name;
#define INT_ENTRY(prefix, name, fmt) [fmt] = prefix##_##name,

/* The members of a table whose functions have the same names at every level. */
#define SAME_NAMES                                                                                 \
    .narrow = narrow, .rmsnorm = rmsnorm, .layernorm = layernorm, .rope = rope,                    \
    .glu = {silu_mul, gelu_tanh_mul, gelu_mul, sigmoid_mul}, .softcap = softcap, .add = add,       \
    .conv_token = conv_token, .delta_token = delta_token, .delta_again = delta_again,              \
    .delta_gates = kern_ref_delta_gates, .softmax_keys = softmax_keys,                             \
    .merge_softmax = merge_softmax, .scale = scale, .argmax = argmax, .log_sum_exp = log_sum_exp,  \
    .race_noise = race_noise, .race_block = race_block, .race_keys = race_keys,                    \
    .block_max = block_max, .read_memory = read_memory,                                            \
    .put_key = {put_key_f32, put_key_bf16, put_key_i8},                                            \
    .put_value = {put_value_f32, put_value_bf16, put_value_i8}, .read_scales = read_scales_i8,     \
    .pack_panel = pack_panel, .encode_panel = encode_panel, .unpack_row = kern_ref_unpack_row

/* Integer products by VNNI and sdot; the rest of these levels is avx2's, avx512's and neon's. */
EACH_INT_FORM(DECLARE_INT_MATMUL, kern_avx2vnni)
EACH_INT_FORM(DECLARE_INT_MATMUL, kern_avx512vnni)
EACH_INT_FORM(DECLARE_INT_MATMUL, kern_neondot)
kern_matmul_pages_fn kern_avx2vnni_keys, kern_avx512vnni_keys;
kern_matmul_segs_fn kern_avx2vnni_values, kern_avx512vnni_values;
kern_pack_probs_fn kern_avx2vnni_probs, kern_avx512vnni_probs;

/* Products of level avx512amx, whose tiles of activations have up to KERN_AMX_ROWS rows. */
enum { KERN_AMX_ROWS = 128 };
kern_matmul_fn kern_avx512amx_bf16_bf16, kern_avx512amx_bf16_b12;
EACH_INT_FORM(DECLARE_INT_MATMUL, kern_avx512amx)
kern_matmul_pages_fn kern_avx512amx_pages;
kern_matmul_segs_fn kern_avx512amx_segs;

/* Features of the CPU and the system that levels require, as bits (cpu.c). */
enum kern_cpu {
    KERN_CPU_AVX2 = 1,        /* AVX2, FMA, F16C, and the system saves ymm */
    KERN_CPU_AVX_VNNI = 2,    /* VNNI on ymm */
    KERN_CPU_AVX512 = 4,      /* F, BW, VL, DQ, and the system saves zmm */
    KERN_CPU_AVX512_VNNI = 8, /* VNNI on zmm */
    KERN_CPU_AVX512_BF16 = 16,
    KERN_CPU_NEON = 32,
    KERN_CPU_AMX = 64,        /* tiles, BF16 and INT8, and the system lets this process use them */
    KERN_CPU_NEON_DOT = 128,  /* FEAT_DotProd */
    KERN_CPU_NEON_BF16 = 256, /* FEAT_BF16 */
};
unsigned kern_cpu_flags(void);

/*
 * Products a second of vdpbf16ps over those of f32 FMA, on a CPU that runs level avx512bf16: 2 on
 * Zen 4, 0.5 on some of Intel's. Of several loops in registers the least times count, a fifth of a
 * millisecond in all: memory, other processes and their number do not change it, so that equal
 * machines take the same level.
 */
double kern_bf16_rate(void);

/* The best level for these features; see kern_select. */
const char *kern_best(unsigned cpu, double bf16_rate);

/* log(x) for finite x > 0, within 2 ulp; the scalar end of every level's log_sum_exp. */
double kern_log(double x);

/* delta_gates of every level: a few numbers per token. */
void kern_ref_delta_gates(const float *a_log, const float *bias, float *beta, float *decay, int n);

/* unpack_row of every level: its time is spent on cache misses. */
void kern_ref_unpack_row(enum kern_wfmt fmt, const void *panel, int n, int k, float *ret_row);
