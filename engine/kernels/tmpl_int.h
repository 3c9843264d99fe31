/* SPDX-License-Identifier: MIT */
/*
 * Products of int8 tiles with int8, int6 and int4 panels, written once; included after
 * tmpl_product.h by a file that defines
 *
 *   INT_MAX_ROWS, INT_VECS(rows)   as in tmpl_product.h
 *   vi dot8_start(int32_t corr)    sums before the first product: the correction, if it is needed
 *   vi dot8(vi acc, vi w, vi x)    acc + the four products of each lane: w u8 1..255, x s8
 *   vi dot6(vi acc, vi w, vi x, vi h, vi y)   acc + the products of w and x and of h and y; w and
 *                                  h 0..63; 32-bit sums from the correction on
 *   vi dot4(vi acc, vi w, vi x)    the same for w 0..15; acc in any form,
 *   vi dot4_start(int32_t corr)    from its start ...
 *   vi dot4_end(vi acc, int32_t corr)   ... to 32-bit sums with the correction added once
 *
 * A group of 32 k is summed exactly in integers, starting from the correction (weights are stored
 * with an offset); then (float)group times (activation scale x weight scale) is added to one f32
 * sum per output, group after group.
 */
#ifndef HEARTH_KERNELS_TMPL_INT_H
#define HEARTH_KERNELS_TMPL_INT_H

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

/* The same for int6: first the upper bits, then the rest as int4. */
INLINE void group_i6(const int rows, const int vecs, vi sum[INT_MAX_ROWS][MAX_VECS], const char *a,
                     const int32_t *corr, const char *b, struct fetch *fetch)
{
    const vi low = vi_set1(0x0f0f0f0f);
    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int v = 0; v < vecs; v++) sum[i][v] =
        vi_set1(corr[i]);
    fetch_lines(fetch, 5);
    UNROLL for (int j = 0; j < 4; j++)
    {
        vi w[MAX_VECS], h[MAX_VECS];
        fetch_lines(fetch, 2);
        UNROLL for (int v = 0; v < vecs; v++)
        {
            vi both = vi_load(b + 256 + j * 128 + v * VN * 4);
            vi upper_w = upper_bits(vi_load(b + v * VN * 4), j);
            vi upper_h = upper_bits(vi_load(b + 128 + v * VN * 4), j);
            w[v] = vi_or(vi_and(both, low), upper_w);
            h[v] = vi_or(vi_and(vi_shr(both, 4), low), upper_h);
        }
        UNROLL for (int i = 0; i < rows; i++)
        {
            vi x = quad_at(a, i, j), y = quad_at(a, i, j + 4);
            UNROLL for (int v = 0; v < vecs; v++) sum[i][v] = dot6(sum[i][v], w[v], x, h[v], y);
        }
        loads_in_order();
    }
}

/* n_rows: of the whole tile, of which `rows` are multiplied. */
INLINE void int_strip(const enum kern_wfmt fmt, const int rows, const int vecs, const size_t n_rows,
                      const struct kern_tile *tile, const char *b, int n_groups, int column,
                      const struct kern_out *out, struct fetch fetch)
{
    const int quads_bytes = fmt == KERN_W_I4 ? 512 : fmt == KERN_W_I6 ? 768 : 1024;
    const char *a = tile->data;
    const float *scale = tile->scale;
    const int32_t *corr = tile->corr;
    vf total[INT_MAX_ROWS][MAX_VECS];

    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int v = 0; v < vecs; v++) total[i][v] =
        vf_set1(0.0f);
    for (int g = 0; g < n_groups; g++) {
        vi sum[INT_MAX_ROWS][MAX_VECS];
        vf s[MAX_VECS];
        fetch_turn(&fetch);
        (fmt == KERN_W_I4   ? group_i4
         : fmt == KERN_W_I6 ? group_i6
                            : group_i8)(rows, vecs, sum, a, corr, b + column * 4, &fetch);
        UNROLL for (int v = 0; v < vecs; v++) s[v] =
            vf_load_f16(b + quads_bytes + (column + v * VN) * 2);
        UNROLL for (int i = 0; i < rows; i++) UNROLL for (int v = 0; v < vecs; v++) total[i][v] =
            vf_fma(vf_of_int(sum[i][v]), vf_mul(vf_set1(scale[i]), s[v]), total[i][v]);
        a += 32 * n_rows;
        scale += n_rows;
        corr += n_rows;
        b += quads_bytes + 64;
    }
    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int v = 0; v < vecs; v++)
        store_vec(out, i, column + v * VN, total[i][v]);
}

INLINE void int_panel(const enum kern_wfmt fmt, const int rows, const size_t n_rows,
                      const struct kern_tile *tile, const char *b, int n_groups,
                      const struct kern_out *out, struct fetch fetch)
{
    const int vecs = INT_VECS(rows);
    for (int column = 0; column < KERN_PANEL; column += vecs * VN) {
        int_strip(fmt, rows, vecs, n_rows, tile, b, n_groups, column, out, fetch);
        fetch = fetch_nothing;
    }
}

INLINE void int_rows(const enum kern_wfmt fmt, const int rows, const struct kern_tile *tile,
                     int k_pad, const char *b, size_t panel_bytes, int n_panels,
                     struct kern_out out, const struct kern_fetch *fetch)
{
    int n_groups = k_pad / KERN_GROUP;
    for (int p = 0; p < n_panels; p++) {
        int_panel(fmt, rows, (size_t)rows, tile, b, n_groups, &out,
                  fetch_plan(b, panel_bytes, 0, p + 1 == n_panels, fetch));
        b += panel_bytes;
        out.c += KERN_PANEL;
    }
}

#if INT_MAX_ROWS == 6
#define EACH_INT_HEIGHT(X) X(1) X(2) X(3) X(4) X(5) X(6)
#elif INT_MAX_ROWS == 4
#define EACH_INT_HEIGHT(X) X(1) X(2) X(3) X(4)
#else
#error "INT_MAX_ROWS: 4 or 6"
#endif

#define DEFINE_INT_MATMUL(name, cases)                                                             \
    void name(const struct kern_tile *tile, int k_pad, const void *panels, size_t panel_bytes,     \
              int n_panels, const struct kern_out *out, const struct kern_fetch *fetch)            \
    {                                                                                              \
        switch (tile->n_rows) {                                                                    \
            EACH_INT_HEIGHT(cases)                                                                 \
        }                                                                                          \
    }
#define INT_CASE(fmt, rows)                                                                        \
    case rows:                                                                                     \
        int_rows(fmt, rows, tile, k_pad, panels, panel_bytes, n_panels, *out, fetch);              \
        return;
#define INT_CASE_I8(rows) INT_CASE(KERN_W_I8, rows)
#define INT_CASE_I6(rows) INT_CASE(KERN_W_I6, rows)
#define INT_CASE_I4(rows) INT_CASE(KERN_W_I4, rows)

#endif
