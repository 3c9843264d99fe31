/* SPDX-License-Identifier: MIT */
/*
 * Products of int8 tiles with panels of integers, written once; included after tmpl_product.h by a
 * file that defines
 *
 *   INT_MAX_ROWS, INT_VECS(rows)   as in tmpl_product.h
 *   vi dot8_start(int32_t corr)    sums before the first product: the correction, if it is needed
 *   vi dot8(vi acc, vi w, vi x)    acc + the four products of each lane: w u8 0..255, x s8
 *   vi dot6(vi acc, vi w, vi x, vi h, vi y)   acc + the products of w and x and of h and y; w and
 *                                  h 0..63; 32-bit sums from the correction on
 *   vi dot4(vi acc, vi w, vi x)    the same for w 0..15; acc in any form,
 *   vi dot4_start(int32_t corr)    from its start ...
 *   vi dot4_end(vi acc, int32_t corr)   ... to 32-bit sums with the correction added once
 *
 * A group of 32 k is summed exactly in integers, starting from the correction (weights are stored
 * with an offset); then (float)group times (activation scale x weight scale) is added to one f32
 * sum per output, group after group. Of forms with minima, the correction times the minimum is
 * added next; of I6S both half sums are multiplied with their scales as
 * integers, which stay below 2^24.
 */
#pragma once

#include "engine/kernels/convert.h"
#include "engine/kernels/levels.h"
#include "engine/kernels/tmpl_product.h"

/* Quad j of row i within a group. */
INLINE vi quad_at(const char *a, const int i, const int j)
{
    return vi_set1(word_at(a + i * KERN_GROUP + j * 4));
}

/* Quads of one group into the integer sums of all rows; int8 weights. */
INLINE void group_i8(const int rows, const int vecs, vi sum[INT_MAX_ROWS][MAX_VECS], const char *a,
                     const int32_t *corr, const char *b, struct fetch *fetch)
{
    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int v = 0; v < vecs; v++) sum[i][v] =
        dot8_start(corr[i]);
    UNROLL for (int j = 0; j < 8; j++)
    {
        vi w[MAX_VECS];
        fetch_lines(fetch, j == 0 ? 3 : 2); /* the third: scales */
        UNROLL for (int v = 0; v < vecs; v++) w[v] = vi_load(b + j * 128 + v * VN * 4);
        UNROLL for (int i = 0; i < rows; i++)
        {
            vi x = quad_at(a, i, j);
            UNROLL for (int v = 0; v < vecs; v++) sum[i][v] = dot8(sum[i][v], w[v], x);
        }
        loads_in_order();
    }
}

/* The same for int4: a byte holds quad j in its lower and quad j + 4 in its upper half. */
INLINE void group_i4(const int rows, const int vecs, vi sum[INT_MAX_ROWS][MAX_VECS], const char *a,
                     const int32_t *corr, const char *b, struct fetch *fetch)
{
    const vi low = vi_set1(0x0f0f0f0f);
    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int v = 0; v < vecs; v++) sum[i][v] =
        dot4_start(corr[i]);
    UNROLL for (int j = 0; j < 4; j++)
    {
        vi w[MAX_VECS], h[MAX_VECS];
        fetch_lines(fetch, j == 0 ? 3 : 2); /* the third: scales */
        UNROLL for (int v = 0; v < vecs; v++)
        {
            vi both = vi_load(b + j * 128 + v * VN * 4);
            w[v] = vi_and(both, low);
            h[v] = vi_and(vi_shr(both, 4), low);
        }
        UNROLL for (int i = 0; i < rows; i++)
        {
            vi x = quad_at(a, i, j), y = quad_at(a, i, j + 4);
            UNROLL for (int v = 0; v < vecs; v++) sum[i][v] =
                dot4(dot4(sum[i][v], w[v], x), h[v], y);
        }
        loads_in_order();
    }
    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int v = 0; v < vecs; v++) sum[i][v] =
        dot4_end(sum[i][v], corr[i]);
}

/* Bits 2j and 2j + 1 of each byte as its bits `at` and at + 1. */
INLINE vi upper_bits(vi upper, const int j, const int at)
{
    const int left = at - 2 * j;
    vi v = left > 0 ? vi_shl(upper, left) : left < 0 ? vi_shr(upper, -left) : upper;
    return vi_and(v, vi_set1((3 << at) * 0x01010101));
}

/* The same for int5: five bits and three, whose upper two are before. */
INLINE void group_i5(const int rows, const int vecs, vi sum[INT_MAX_ROWS][MAX_VECS], const char *a,
                     const int32_t *corr, const char *b, struct fetch *fetch)
{
    const vi five = vi_set1(0x1f1f1f1f), three = vi_set1(0x07070707);
    vi upper[MAX_VECS];
    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int v = 0; v < vecs; v++) sum[i][v] =
        vi_set1(corr[i]);
    UNROLL for (int v = 0; v < vecs; v++) upper[v] = vi_load(b + v * VN * 4);
    loads_in_order();
    UNROLL for (int j = 0; j < 4; j++)
    {
        vi w[MAX_VECS], h[MAX_VECS];
        fetch_lines(fetch, j == 0 ? 5 : 2); /* the others: plane and scales */
        UNROLL for (int v = 0; v < vecs; v++)
        {
            vi both = vi_load(b + 128 + j * 128 + v * VN * 4);
            w[v] = vi_and(both, five);
            h[v] = vi_or(vi_and(vi_shr(both, 5), three), upper_bits(upper[v], j, 3));
        }
        UNROLL for (int i = 0; i < rows; i++)
        {
            vi x = quad_at(a, i, j), y = quad_at(a, i, j + 4);
            UNROLL for (int v = 0; v < vecs; v++) sum[i][v] = dot6(sum[i][v], w[v], x, h[v], y);
        }
        loads_in_order();
    }
}

/* int6 with the sums of both halves apart: the lower bits of a byte are of the first one. */
INLINE void group_i6s(const int rows, const int vecs, vi sum[INT_MAX_ROWS][MAX_VECS],
                      vi high[INT_MAX_ROWS][MAX_VECS], const char *a, const int32_t *corr,
                      const char *b, struct fetch *fetch)
{
    const vi low = vi_set1(0x0f0f0f0f);
    vi upper[2][MAX_VECS];
    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int v = 0; v < vecs; v++)
    {
        sum[i][v] = vi_set1(-32 * kern_low_sum(corr[i]));
        high[i][v] = vi_set1(-32 * kern_high_sum(corr[i]));
    }
    fetch_lines(fetch, 5);
    UNROLL for (int t = 0; t < 2; t++) UNROLL for (int v = 0; v < vecs; v++) upper[t][v] =
        vi_load(b + t * 128 + v * VN * 4);
    loads_in_order();
    UNROLL for (int j = 0; j < 4; j += 2)
    {
        vi w[2][MAX_VECS], h[2][MAX_VECS];
        fetch_lines(fetch, 4);
        UNROLL for (int t = 0; t < 2; t++) UNROLL for (int v = 0; v < vecs; v++)
        {
            vi both = vi_load(b + 256 + (j + t) * 128 + v * VN * 4);
            w[t][v] = vi_or(vi_and(both, low), upper_bits(upper[0][v], j + t, 4));
            h[t][v] = vi_or(vi_and(vi_shr(both, 4), low), upper_bits(upper[1][v], j + t, 4));
        }
        UNROLL for (int i = 0; i < rows; i++)
        {
            vi x0 = quad_at(a, i, j), x1 = quad_at(a, i, j + 1);
            vi y0 = quad_at(a, i, j + 4), y1 = quad_at(a, i, j + 5);
            UNROLL for (int v = 0; v < vecs; v++)
            {
                sum[i][v] = dot6(sum[i][v], w[0][v], x0, w[1][v], x1);
                high[i][v] = dot6(high[i][v], h[0][v], y0, h[1][v], y1);
            }
        }
        loads_in_order();
    }
}

/* The numbers of a group's scales, and of the 8 groups that a head is of. */
struct weights_scale {
    vf w[MAX_VECS], min[MAX_VECS];
    vi half[2][MAX_VECS];
    vf head[MAX_VECS], head_min[MAX_VECS];
};

/* Returns where the groups begin. */
INLINE const char *load_head(const enum kern_wfmt fmt, const int vecs, struct weights_scale *s,
                             const char *b, int column)
{
    UNROLL for (int v = 0; v < vecs; v++)
    {
        s->head[v] = vf_load_f16(b + (column + v * VN) * 2);
        if (fmt != KERN_W_I6S) s->head_min[v] = vf_load_f16(b + 64 + (column + v * VN) * 2);
    }
    return b + kern_head_bytes(fmt);
}

/* b: after the quads. */
INLINE void load_scales(const enum kern_wfmt fmt, const int vecs, struct weights_scale *s,
                        const char *b, int column)
{
    UNROLL for (int v = 0; v < vecs; v++)
    {
        const char *own = b + column + v * VN, *half = own + column + v * VN;
        if (fmt == KERN_W_I6S) {
            s->w[v] = s->head[v];
            s->half[0][v] = vi_of_s8(own);
            s->half[1][v] = vi_of_s8(own + KERN_PANEL);
        } else if (kern_head_bytes(fmt) > 0) {
            s->w[v] = vf_mul(s->head[v], vf_of_int(vi_of_u8(own)));
            s->min[v] = vf_mul(s->head_min[v], vf_of_int(vi_of_u8(own + KERN_PANEL)));
        } else {
            s->w[v] = vf_load_f16(half);
            if (kern_has_minimum(fmt)) s->min[v] = vf_load_f16(half + 2 * KERN_PANEL);
        }
    }
}

/* One group into the sums of all rows. */
INLINE void int_group(const enum kern_wfmt fmt, const int rows, const int vecs,
                      vi sum[INT_MAX_ROWS][MAX_VECS], vi high[INT_MAX_ROWS][MAX_VECS],
                      const char *a, const int32_t *corr, const char *b, struct fetch *fetch)
{
    if (fmt == KERN_W_I6S) {
        group_i6s(rows, vecs, sum, high, a, corr, b, fetch);
        return;
    }
    int32_t own[INT_MAX_ROWS];
    UNROLL for (int i = 0; i < rows; i++) own[i] =
        fmt == KERN_W_I5 ? -16 * (kern_low_sum(corr[i]) + kern_high_sum(corr[i])) : 0;
    if (fmt == KERN_W_I8)
        group_i8(rows, vecs, sum, a, corr, b, fetch);
    else if (fmt == KERN_W_I4)
        group_i4(rows, vecs, sum, a, corr, b, fetch);
    else if (kern_quads_bytes(fmt) == 640)
        group_i5(rows, vecs, sum, a, own, b, fetch);
    else
        group_i4(rows, vecs, sum, a, own, b, fetch);
}

/* n_rows: of the whole tile, of which `rows` are multiplied. */
INLINE void int_strip(const enum kern_wfmt fmt, const int rows, const int vecs, const size_t n_rows,
                      const struct kern_tile *tile, const char *b, int n_groups, int column,
                      const struct kern_out *out, struct fetch fetch)
{
    const int quads = kern_quads_bytes(fmt),
              tail = kern_has_minimum(fmt) && kern_head_bytes(fmt) == 0 ? 128 : 64;
    const char *a = tile->data;
    const float *scale = tile->scale;
    const int32_t *corr = tile->corr;
    vf total[INT_MAX_ROWS][MAX_VECS];
    struct weights_scale s;
    if (kern_head_bytes(fmt) > 0)
        UNROLL for (int v = 0; v < vecs; v++) s.head[v] = s.head_min[v] =
            vf_set1(0.0f); /* the first group has one; compilers do not see it */

    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int v = 0; v < vecs; v++) total[i][v] =
        vf_set1(0.0f);
    for (int g = 0; g < n_groups; g++) {
        vi sum[INT_MAX_ROWS][MAX_VECS], high[INT_MAX_ROWS][MAX_VECS];
        fetch_turn(&fetch);
        if (kern_head_bytes(fmt) > 0 && g % KERN_HEAD_GROUPS == 0) {
            fetch_lines(&fetch, kern_head_bytes(fmt) / 64);
            b = load_head(fmt, vecs, &s, b, column);
        }
        int_group(fmt, rows, vecs, sum, high, a, corr, b + column * 4, &fetch);
        load_scales(fmt, vecs, &s, b + quads, column);
        if (fmt == KERN_W_I6S)
            UNROLL for (int i = 0; i < rows; i++) UNROLL for (int v = 0; v < vecs; v++) sum[i][v] =
                vi_add(vi_mul(sum[i][v], s.half[0][v]), vi_mul(high[i][v], s.half[1][v]));
        UNROLL for (int i = 0; i < rows; i++) UNROLL for (int v = 0; v < vecs; v++) total[i][v] =
            vf_fma(vf_of_int(sum[i][v]), vf_mul(vf_set1(scale[i]), s.w[v]), total[i][v]);
        if (kern_has_minimum(fmt)) UNROLL for (int i = 0; i < rows; i++)
            {
                vf x = vf_set1(kern_float((uint32_t)corr[i]));
                UNROLL for (int v = 0; v < vecs; v++) total[i][v] =
                    kern_head_bytes(fmt) > 0 ? vf_fnma(x, s.min[v], total[i][v])
                                             : vf_fma(x, s.min[v], total[i][v]);
            }
        a += 32 * n_rows;
        scale += n_rows;
        corr += n_rows;
        b += quads + tail;
    }
    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int v = 0; v < vecs; v++)
        store_vec(out, i, column + v * VN, total[i][v]);
}

INLINE void int_panel(const int rows, const enum kern_wfmt fmt, const size_t n_rows,
                      const struct kern_tile *tile, const char *b, int n_groups,
                      const struct kern_out *out, struct fetch fetch)
{
    const int vecs = INT_VECS(rows);
    for (int column = 0; column < KERN_PANEL; column += vecs * VN) {
        int_strip(fmt, rows, vecs, n_rows, tile, b, n_groups, column, out, fetch);
        fetch = fetch_nothing;
    }
}

INLINE void int_rows(const int rows, const enum kern_wfmt fmt, const struct kern_tile *tile,
                     int k_pad, const char *b, size_t panel_bytes, int n_panels,
                     struct kern_out out, const struct kern_fetch *fetch)
{
    int n_groups = k_pad / KERN_GROUP;
    for (int p = 0; p < n_panels; p++) {
        int_panel(rows, fmt, (size_t)rows, tile, b, n_groups, &out,
                  fetch_plan(b, panel_bytes, 0, p + 1 == n_panels, fetch));
        b += panel_bytes;
        out.c += KERN_PANEL;
    }
}

#if INT_MAX_ROWS == 6
#define EACH_INT_HEIGHT HEIGHTS_6
#elif INT_MAX_ROWS == 4
#define EACH_INT_HEIGHT HEIGHTS_4
#else
#error "INT_MAX_ROWS: 4 or 6"
#endif

#define DEFINE_INT_MATMUL(prefix, name, fmt)                                                       \
    void prefix##_##name(const struct kern_tile *tile, int k_pad, const void *panels,              \
                         size_t panel_bytes, int n_panels, const struct kern_out *out,             \
                         const struct kern_fetch *fetch)                                           \
    {                                                                                              \
        switch (tile->n_rows) {                                                                    \
            EACH_INT_HEIGHT(HEIGHT_CASE, int_rows, fmt, tile, k_pad, panels, panel_bytes,          \
                            n_panels, *out, fetch)                                                 \
        }                                                                                          \
    }
