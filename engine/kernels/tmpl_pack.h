/* SPDX-License-Identifier: MIT */
/*
 * Packing of activations, of keys and values, and of weights, written once over the operations of a
 * simd_*.h. Weights get the bits that convert.h defines: divisions are divisions, and nothing is
 * fused.
 */
#pragma once

#include "engine/kernels/convert.h"
#include "engine/kernels/levels.h"

#include <float.h>
#include <math.h>

/* bf16 of each lane in its lower 16 bits; see kern_bf16_of_f32. */
INLINE vi vi_bf16_of(vf v)
{
    vi u = vi_of_bits(v), half = vi_add(vi_set1(0x7fff), vi_and(vi_shr(u, 16), vi_set1(1)));
    vi nan = vi_or(vi_shr(u, 16), vi_set1(0x40));
    return vi_select(vm_not_le(v, vf_set1(INFINITY)), nan, vi_shr(vi_add(u, half), 16));
}

#ifndef VF_DOT_BF16
/* 2 VN numbers as bf16. */
INLINE void store_bf16(uint16_t *p, vf low, vf high)
{
    vi_store_u16(p, vi_bf16_of(low));
    vi_store_u16(p + VN, vi_bf16_of(high));
}
#endif

static int valid_at(int i, int n, int most)
{
    return n - i < 0 ? 0 : n - i < most ? n - i : most;
}

/* ---- activations --------------------------------------------------------------------------- */

/* x[k], zero-padded, to element [i][row] of a [k_pad][n_rows] array. */
static void scatter_f32(const float *x, int k, int k_pad, float *d, size_t n_rows)
{
    int i = 0;
    for (; i < k; i++)
        d[(size_t)i * n_rows] = x[i];
    for (; i < k_pad; i++)
        d[(size_t)i * n_rows] = 0.0f;
}

/* The same as bf16, to element [i / 2][row][i & 1]; d points at 32-bit words. */
static void scatter_bf16(const float *x, int k, int k_pad, char *d, size_t n_rows)
{
    for (int i = 0; i < k_pad; i += KERN_GROUP, d += 64 * n_rows) {
        uint16_t b[KERN_GROUP];
        for (int j = 0; j < KERN_GROUP; j += 2 * VN)
            store_bf16(b + j, vf_load_part(x + i + j, valid_at(i + j, k, VN)),
                       vf_load_part(x + i + j + VN, valid_at(i + j + VN, k, VN)));
        for (size_t j = 0; j < KERN_GROUP / 2; j++)
            memcpy(d + j * 4 * n_rows, b + 2 * j, 4);
    }
}

static void pack_row_f32(const float *x, int k, int k_pad, enum kern_wfmt wfmt,
                         const struct kern_tile *tile, int row)
{
    (void)wfmt;
    scatter_f32(x, k, k_pad, (float *)tile->data + row, (size_t)tile->n_rows);
}

static void pack_row_bf16(const float *x, int k, int k_pad, enum kern_wfmt wfmt,
                          const struct kern_tile *tile, int row)
{
    (void)wfmt;
#if defined(BF16_ROW_MAJOR)
    uint16_t *d = (uint16_t *)tile->data + row * KERN_GROUP;
    for (int i = 0; i < k_pad; i += KERN_GROUP, d += tile->n_rows * KERN_GROUP)
        store_bf16(d, vf_load_part(x + i, valid_at(i, k, VN)),
                   vf_load_part(x + i + VN, valid_at(i + VN, k, VN)));
#elif defined(VF_DOT_BF16)
    scatter_bf16(x, k, k_pad, (char *)tile->data + 4 * row, (size_t)tile->n_rows);
#else
    float *d = (float *)tile->data + row, rounded[VN];
    for (int i = 0; i < k_pad; i += VN, d += (size_t)VN * (size_t)tile->n_rows) {
        vf v = vf_load_part(x + i, valid_at(i, k, VN));
        vf_store(rounded, vf_of_bits(vi_shl(vi_bf16_of(v), 16)));
        scatter_f32(rounded, VN, VN, d, (size_t)tile->n_rows);
    }
#endif
}

enum { GROUP_VECS = KERN_GROUP / VN };

#define LEAST_MAX 1e-30f /* of a group that is not taken for zeros */

/* Largest magnitude of a group, NaN above all; *ret_inverse is 0 if it cannot be quantised. */
INLINE float group_max(const vf x[GROUP_VECS], float *ret_inverse)
{
    vi max = vi_set1(0);
    for (int j = 0; j < GROUP_VECS; j++)
        max = vi_maxu(max, vi_and(vi_of_bits(x[j]), vi_set1(0x7fffffff)));
    float amax = kern_float(vi_maximum_u(max));
    *ret_inverse = amax >= LEAST_MAX && amax <= FLT_MAX ? 127.0f / amax : 0.0f;
    return amax;
}

/* n valid elements to 32 int8; returns their sum. */
INLINE int32_t quantise_group(const float *x, int n, char *q, float *ret_scale)
{
    vf v[GROUP_VECS];
    float inv;
    vi sum = vi_set1(0);
    for (int j = 0; j < GROUP_VECS; j++)
        v[j] = vf_load_part(x + j * VN, valid_at(j * VN, n, VN));
    *ret_scale = group_max(v, &inv) / 127.0f;
    vm usable = vm_greater(vf_set1(inv), vf_set1(0.0f));
    for (int j = 0; j < GROUP_VECS; j++) {
        vi w = vi_select(usable, vi_round(vf_mul(v[j], vf_set1(inv))), vi_set1(0));
        sum = vi_add(sum, w);
        vi_store_u8(q + j * VN, w);
    }
    return vi_sum(sum);
}

#ifdef VI_FOURS
/* Four groups at once: their reductions and divisions share instructions. */
INLINE void quantise_four(const float *x, char *q, size_t group_bytes, float ret_scale[4],
                          int32_t ret_sum[4])
{
    vf v[8];
    vi max[4];
    __m256i part[4];
    float inv[4];
    UNROLL for (int i = 0; i < 8; i++) v[i] = vf_load(x + i * VN);
    UNROLL for (int g = 0; g < 4; g++)
    {
        vi a = vi_and(vi_of_bits(v[2 * g]), vi_set1(0x7fffffff));
        vi b = vi_and(vi_of_bits(v[2 * g + 1]), vi_set1(0x7fffffff));
        max[g] = vi_maxu(a, b);
    }
    scales_of_four(_mm_castsi128_ps(vi_maximum_u_of_four(max)), LEAST_MAX, FLT_MAX, ret_scale, inv);
    /* the low byte of what NaN and infinity are converted to is 0 */
    UNROLL for (int g = 0; g < 4; g++)
    {
        vf by = vf_set1(inv[g]);
        part[g] = store_bytes(q + (size_t)g * group_bytes, vi_round(vf_mul(v[2 * g], by)),
                              vi_round(vf_mul(v[2 * g + 1], by)));
    }
    sums_of_four(part, ret_sum);
}

INLINE void pack_four_i8(const float *x, int32_t offset, size_t n_rows, char *d, float *scale,
                         int32_t *corr)
{
    float scales[4];
    int32_t sums[4];
    quantise_four(x, d, KERN_GROUP * n_rows, scales, sums);
    UNROLL for (size_t g = 0; g < 4; g++)
    {
        scale[g * n_rows] = scales[g];
        corr[g * n_rows] = -offset * sums[g];
    }
}
#endif

/* Both sums of each group's quants at d into corr, see kern_half_sums. */
INLINE void pack_half_sums(const char *d, size_t n_rows, int n_groups, int32_t *corr)
{
    for (int g = 0; g < n_groups; g++, d += KERN_GROUP * n_rows, corr += n_rows) {
        const int8_t *q = (const int8_t *)d;
        int low = 0, high = 0;
        for (int i = 0; i < KERN_GROUP / 2; i++) {
            low += q[i];
            high += q[i + KERN_GROUP / 2];
        }
        *corr = kern_half_sums(low, high);
    }
}

static void pack_row_i8(const float *x, int k, int k_pad, enum kern_wfmt wfmt,
                        const struct kern_tile *tile, int row)
{
    size_t n_rows = (size_t)tile->n_rows;
    char *d = (char *)tile->data + KERN_GROUP * row;
    float *scale = tile->scale + row;
    enum kern_corr kind = kern_corr_of(wfmt);
    int32_t *corr = tile->corr + row, offset = kind == KERN_CORR_MINIMA ? -1 : kern_offset(wfmt);
    int i = 0;
#ifdef VI_FOURS
    for (; k - i >= 4 * KERN_GROUP; i += 4 * KERN_GROUP, d += 128 * n_rows) {
        pack_four_i8(x + i, offset, n_rows, d, scale, corr);
        scale += 4 * n_rows;
        corr += 4 * n_rows;
    }
#endif
    for (; i < k_pad; i += KERN_GROUP, d += 32 * n_rows) {
        *corr = -offset * quantise_group(x + i, k - i, d, scale);
        scale += n_rows;
        corr += n_rows;
    }
    if (kind == KERN_CORR_HALVES)
        pack_half_sums((char *)tile->data + KERN_GROUP * row, n_rows, k_pad / KERN_GROUP,
                       tile->corr + row);
    for (; kind == KERN_CORR_MINIMA && i > 0; i -= KERN_GROUP) {
        scale -= n_rows;
        corr -= n_rows;
        *corr = (int32_t)kern_bits((float)*corr * *scale);
    }
}

/* ---- pages of the KV cache: other threads may be writing the neighbouring slots ------------ */

/* A panel of keys is laid out as a tile of 32 rows. */
static void put_key_f32(void *panel, const float *x, int d, int d_pad, int slot)
{
    scatter_f32(x, d, d_pad, (float *)panel + slot, KERN_PANEL);
}

static void put_key_bf16(void *panel, const float *x, int d, int d_pad, int slot)
{
    scatter_bf16(x, d, d_pad, (char *)panel + 4 * slot, KERN_PANEL);
}

static void put_value_f32(void *panels, const float *x, int d, int d_pad, int slot)
{
    float *p = (float *)panels + slot * KERN_PANEL;
    for (int i = 0; i < d_pad; i += VN) {
        vf v = vf_load_part(x + i, valid_at(i, d, VN));
        vf_store(p + i / KERN_PANEL * 1024 + i % KERN_PANEL, v);
    }
}

static void put_value_bf16(void *panels, const float *x, int d, int d_pad, int slot)
{
    uint16_t *p = (uint16_t *)panels + slot / 2 * 64 + (slot & 1);
    for (int i = 0; i < d_pad; i += KERN_PANEL, p += 1024) {
        uint16_t b[KERN_PANEL];
        for (int j = 0; j < KERN_PANEL; j += 2 * VN)
            store_bf16(b + j, vf_load_part(x + i + j, valid_at(i + j, d, VN)),
                       vf_load_part(x + i + j + VN, valid_at(i + j + VN, d, VN)));
        for (int j = 0; j < KERN_PANEL; j++)
            p[2 * j] = b[j];
    }
}

/* ---- weights ------------------------------------------------------------------------------- */

/* Elements k .. k + VN - 1 of a row in a file as floats; zeros for a NULL row and from n_k on. */
INLINE vf source_vec(enum kern_src src, const void *row, int k, int n_k)
{
    int n = row ? valid_at(k, n_k, VN) : 0;
    if (n == 0) return vf_set1(0.0f);
    const char *p = (const char *)row + (size_t)k * (src == KERN_SRC_F32 ? 4 : 2);
    if (src == KERN_SRC_F32) return vf_load_part((const float *)(const void *)p, n);
    return src == KERN_SRC_F16 ? vf_widen_f16(p, n) : vf_widen_bf16(p, n);
}

/* 32 elements of k of VN rows, transposed: x[i] holds element k + i of each row. */
static void load_group(enum kern_src src, const void *const *rows, int k, int n_k, vf x[KERN_GROUP])
{
    for (int c = 0; c < KERN_GROUP; c += VN) {
        vi t[VN];
        for (int r = 0; r < VN; r++)
            t[r] = vi_of_bits(source_vec(src, rows[r], k + c, n_k));
        vi_transpose(t);
        for (int r = 0; r < VN; r++)
            x[c + r] = vf_of_bits(t[r]);
    }
}

/* bf16 to bf16: pairs move as 32-bit words. */
static void copy_group_bf16(const void *const *rows, int k, int n_k, char *d)
{
    for (int c = 0; c < KERN_GROUP; c += 2 * VN) {
        vi t[VN];
        int n = valid_at(k + c, n_k, 2 * VN);
        for (int r = 0; r < VN; r++)
            t[r] = rows[r] ? vi_load_bytes((const char *)rows[r] + 2 * (size_t)(k + c), 2 * n)
                           : vi_set1(0);
        vi_transpose(t);
        for (int r = 0; r < VN; r++)
            vi_store(d + (c / 2 + r) * 128, t[r]);
    }
}

static void store_group_f32(const vf x[KERN_GROUP], char *d)
{
    for (int i = 0; i < KERN_GROUP; i++)
        vi_store(d + i * 128, vi_of_bits(x[i]));
}

static void store_group_bf16(const vf x[KERN_GROUP], char *d)
{
    for (int i = 0; i < KERN_GROUP; i += 2)
        vi_store(d + i * 64, vi_or(vi_bf16_of(x[i]), vi_shl(vi_bf16_of(x[i + 1]), 16)));
}

/* d at the halves of the first output. */
static void store_group_f16(const vf x[KERN_GROUP], char *d)
{
    for (int i = 0; i < KERN_GROUP; i++)
        vi_store_u16(d + i * 64, vi_f16_of(x[i]));
}

INLINE vf vf_clamp(vf v, float lo, float hi)
{
    return vf_min(vf_max(v, vf_set1(lo)), vf_set1(hi));
}

/* Four k of each output, one byte each. */
INLINE vi quad_word(vi a, vi b, vi c, vi d)
{
    return vi_or(vi_or(a, vi_shl(b, 8)), vi_or(vi_shl(c, 16), vi_shl(d, 24)));
}

INLINE vf vf_abs(vf v)
{
    return vf_of_bits(vi_and(vi_of_bits(v), vi_set1(0x7fffffff)));
}

INLINE vf inverse(vf scale)
{
    vf zero = vf_set1(0.0f);
    return vf_select(vm_equal(scale, zero), zero, vf_div(vf_set1(1.0f), scale));
}

/* kern_scale for VN outputs */
INLINE vi scale_of(vf amax, float most)
{
    vi h = vi_f16_of(vf_clamp(vf_div(amax, vf_set1(most)), 0.0f, 65504.0f));
    vm clipped = vm_and(vm_greater(amax, vf_mul(vf_set1(most + 0.5f), vf_of_f16(h))),
                        vm_greater(vf_set1(KERN_I8_LIMIT), amax));
    return vi_add(h, vi_select(clipped, vi_set1(1), vi_set1(0)));
}

/* kern_i8_group for VN outputs; d at their words, s at their scales. */
static void store_group_i8(const vf x[KERN_GROUP], char *d, char *s)
{
    vf amax = vf_set1(0.0f);
    for (int i = 0; i < KERN_GROUP; i++)
        amax = vf_max(vf_abs(x[i]), amax);
    vi h = scale_of(amax, 127.0f);
    vf inv = inverse(vf_of_f16(h));
    for (int j = 0; j < KERN_GROUP; j += 4) {
        vi q[4];
        for (int i = 0; i < 4; i++)
            q[i] = vi_add(vi_round(vf_clamp(vf_mul(x[j + i], inv), -127.0f, 127.0f)), vi_set1(128));
        vi_store(d + j * 32, quad_word(q[0], q[1], q[2], q[3]));
    }
    vi_store_u16(s, h);
}

/* Outputs first .. first + VN - 1 of one group of a panel. */
static void pack_group(enum kern_wfmt fmt, enum kern_src src, const void *const *rows, int first,
                       int k, int n_k, char *group)
{
    vf x[KERN_GROUP];
    char *d = group + first * 4;
    if (fmt == KERN_W_BF16 && src == KERN_SRC_BF16) {
        copy_group_bf16(rows + first, k, n_k, d);
        return;
    }
    load_group(src, rows + first, k, n_k, x);
    if (fmt == KERN_W_F32)
        store_group_f32(x, d);
    else if (fmt == KERN_W_BF16)
        store_group_bf16(x, d);
    else if (fmt == KERN_W_F16)
        store_group_f16(x, group + first * 2);
    else
        store_group_i8(x, d, group + 1024 + first * 2);
}

static void load_lanes(enum kern_src src, const void *const *rows, int k, int n_k,
                       float x[KERN_GROUP][KERN_PANEL])
{
    for (int first = 0; first < KERN_PANEL; first += VN) {
        vf v[KERN_GROUP];
        load_group(src, rows + first, k, n_k, v);
        for (int i = 0; i < KERN_GROUP; i++)
            vf_store(x[i] + first, v[i]);
    }
}

#include "engine/kernels/affine.h"

static void pack_panel(enum kern_wfmt fmt, enum kern_src src, const void *const rows[KERN_PANEL],
                       const float *importance, int k, int k_pad, void *panel)
{
    if (fmt == KERN_W_I4K || fmt == KERN_W_I5K || fmt == KERN_W_I6S) {
        pack_affine(fmt, src, rows, importance, k, k_pad, panel);
        return;
    }
    char *group = panel;
    for (int i = 0; i < k_pad; i += KERN_GROUP, group += kern_panel_bytes(fmt, KERN_GROUP))
        for (int first = 0; first < KERN_PANEL; first += VN)
            pack_group(fmt, src, rows, first, i, k, group);
}
