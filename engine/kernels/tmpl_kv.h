/* SPDX-License-Identifier: MIT */
/*
 * Attention over I8 pages in integers, written once; included after tmpl_int.h and kv_int8.h. With
 * vi_dpbusd probabilities are two planes of bytes, their upper and their lower ones; without it two
 * planes of 16 bits, of the even and of the odd positions, which vi_madd16 multiplies by those
 * bytes of the values. The sums are the same integers either way.
 *
 * A tile of probabilities: [ceil(n / 64)][n_rows][2 planes][64 bytes]; QUAD_AT says where in a
 * plane of bytes the quads of a page are.
 */
#pragma once

#include "engine/kernels/kv_int8.h"
#include "engine/kernels/tmpl_int.h"

INLINE struct fetch fetch_block(const struct kern_pages *pages, int block, bool first)
{
    const char *at = first && pages->ahead ? pages->ahead[block] : NULL;
    return (struct fetch){.at = at, .end = at ? at + pages->ahead_bytes : NULL, .stride = 64};
}

/* ---- scores -------------------------------------------------------------------------------- */

INLINE void key_strip(const int rows, const int vecs, const struct kern_tile *tile, int row,
                      int n_groups, const struct kern_pages *pages, int page, int column,
                      const struct kern_out *out)
{
    const size_t n_rows = (size_t)tile->n_rows;
    const char *a = (const char *)tile->data + (size_t)row * KERN_GROUP;
    const char *b = (const char *)pages->panels[page] + column * 4;
    const float *scale = tile->scale + row;
    const int32_t *corr = tile->corr + row;
    vf total[INT_MAX_ROWS][MAX_VECS];

    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int v = 0; v < vecs; v++) total[i][v] =
        vf_set1(0.0f);
    for (int g = 0; g < n_groups; g++) {
        struct fetch fetch = fetch_block(pages, page * n_groups + g, row == 0 && column == 0);
        vi sum[INT_MAX_ROWS][MAX_VECS];
        vf s[MAX_VECS];
        group_i8(rows, vecs, sum, a, corr, b, &fetch);
        UNROLL for (int v = 0; v < vecs; v++) s[v] =
            vf_widen_bf16(b - column * 4 + KV_BLOCK_DATA + (column + v * VN) * 2, VN);
        UNROLL for (int i = 0; i < rows; i++) UNROLL for (int v = 0; v < vecs; v++) total[i][v] =
            vf_fma(vf_of_int(sum[i][v]), vf_mul(vf_set1(scale[i]), s[v]), total[i][v]);
        a += KERN_GROUP * n_rows;
        scale += n_rows;
        corr += n_rows;
        b += KV_BLOCK_BYTES;
    }
    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int v = 0; v < vecs; v++)
        store_vec(out, i, column + v * VN, total[i][v]);
}

INLINE void key_rows(const int rows, const struct kern_tile *tile, int row, int n_groups,
                     const struct kern_pages *pages, int page, const struct kern_out *out)
{
    const int vecs = INT_VECS(rows);
    for (int column = 0; column < KERN_PANEL; column += vecs * VN)
        key_strip(rows, vecs, tile, row, n_groups, pages, page, column, out);
}

/* ---- values -------------------------------------------------------------------------------- */

/* p of VN positions from i on, those outside [lo, hi) 0. */
INLINE vi probs_at(const float *e, const float *weight, int i, int lo, int hi)
{
    if (i >= hi || i + VN <= lo) return vi_set1(0);
    vi p = vi_round(vf_mul(vf_load(e + i), vf_load(weight + i)));
    return i < lo || i + VN > hi ? vi_select(vm_range(i, lo, hi), p, vi_set1(0)) : p;
}

#ifdef vi_dpbusd
enum { PROB_PLANES = 2, PAGE_STEP = VN == 16 ? 8 : 32 };
#define QUAD_AT(j) ((j) % (VN / 4) * 16 + (j) / (VN / 4) * 4)
INLINE void pack_64(const float *e, const float *weight, int at, int lo, int hi, uint8_t *planes)
{
    const vi low = vi_set1(0x00ff00ff);
    UNROLL for (int i = 0; i < 64; i += 4 * VN)
    {
        vi p[4];
        UNROLL for (int v = 0; v < 4; v++) p[v] = probs_at(e, weight, at + i + v * VN, lo, hi);
        vi a = vi_narrow32(p[0], p[1]), b = vi_narrow32(p[2], p[3]);
        vi_store(planes + i, vi_narrow16(vi_shr16(a, 8), vi_shr16(b, 8)));
        vi_store(planes + 64 + i, vi_narrow16(vi_and(a, low), vi_and(b, low)));
    }
}
#else
enum { PROB_PLANES = 1, PAGE_STEP = 32 }; /* planes of sums */
#define QUAD_AT(j) ((j)*4)
INLINE void pack_64(const float *e, const float *weight, int at, int lo, int hi, uint8_t *planes)
{
    uint16_t p[64], halves[64];
    if (at >= lo && at + 64 <= hi) /* as the compiler vectorises it, faster than probs_at */
        for (int i = 0; i < 64; i++)
            p[i] = (uint16_t)kern_bits(e[at + i] * weight[at + i] + 0x1.8p23f);
    else
        for (int i = 0; i < 64; i += VN)
            vi_store_u16(p + i, probs_at(e, weight, at + i, lo, hi));
    for (int i = 0; i < 32; i++) {
        halves[i] = p[2 * i];
        halves[32 + i] = p[2 * i + 1];
    }
    memcpy(planes, halves, sizeof(halves));
}
#endif

static void pack_probs(const float *e, int lo, int hi, struct kern_value_scales *s,
                       const struct kern_tile *tile, int row)
{
    uint16_t top = top_scale(s->scale, lo, hi);
    const float *weight = lo < hi ? weights_for(s, top) : NULL;
    uint8_t *d = (uint8_t *)tile->data + (size_t)row * 128;
    for (int i = 0; i < s->n; i += 64, d += (size_t)tile->n_rows * 128)
        if (weight && i < hi && i + 64 > lo)
            pack_64(e, weight, i, lo, hi, d);
        else
            memset(d, 0, 128);
    tile->scale[row] = kern_f32_of_bf16(top) / KV_PROB_MAX;
}

/* Quad j of a page's values into the sums of all rows; p: of the first row. */
INLINE void value_quad(const int rows, const int vecs, vi sum[PROB_PLANES][INT_MAX_ROWS][MAX_VECS],
                       const char *p, const char *b)
{
    vi w[2][MAX_VECS];
    UNROLL for (int v = 0; v < vecs; v++)
    {
        vi four = vi_load(b + v * VN * 4);
#ifdef vi_dpbusd
        w[0][v] = w[1][v] = four;
#else
        w[0][v] = vi_sar16(vi_shl16(four, 8), 8);
        w[1][v] = vi_sar16(four, 8);
#endif
    }
    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int plane = 0; plane < 2; plane++)
    {
        vi x = vi_set1(word_at(p + i * 128 + plane * 64));
        UNROLL for (int v = 0; v < vecs; v++)
        {
#ifdef vi_dpbusd
            sum[plane][i][v] = vi_dpbusd(sum[plane][i][v], x, w[plane][v]);
#else
            sum[0][i][v] = vi_add(sum[0][i][v], vi_madd16(x, w[plane][v]));
#endif
        }
    }
}

INLINE void value_strip(const int rows, const int vecs, const struct kern_tile *tile, int row,
                        const struct kern_pages *pages, int column, const struct kern_out *out)
{
    vi sum[PROB_PLANES][INT_MAX_ROWS][MAX_VECS];
    UNROLL for (int k = 0; k < PROB_PLANES; k++) UNROLL for (int i = 0; i < rows; i++)
        UNROLL for (int v = 0; v < vecs; v++) sum[k][i][v] = vi_set1(0);
    for (int page = 0; page < pages->n; page++) {
        const char *b = (const char *)pages->panels[page] + column * 4;
        const char *p = (const char *)tile->data +
                        ((size_t)(page / 2) * (size_t)tile->n_rows + (size_t)row) * 128 +
                        page % 2 * PAGE_STEP;
        struct fetch fetch = fetch_block(pages, page, row == 0 && column == 0);
        UNROLL for (int j = 0; j < 8; j++)
        {
            fetch_lines(&fetch, j == 0 ? 3 : 2); /* the third: scales */
            value_quad(rows, vecs, sum, p + QUAD_AT(j), b + j * 128);
            loads_in_order();
        }
    }
    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int v = 0; v < vecs; v++)
    {
        vi whole = sum[0][i][v];
        if (PROB_PLANES == 2) whole = vi_add(vi_shl(whole, 8), sum[PROB_PLANES - 1][i][v]);
        store_vec(out, i, column + v * VN, vf_mul(vf_of_int(whole), vf_set1(tile->scale[row + i])));
    }
}

INLINE void value_rows(const int rows, const struct kern_tile *tile, int row,
                       const struct kern_pages *pages, const struct kern_out *out)
{
    const int vecs = VALUE_VECS(rows);
    for (int column = 0; column < KERN_PANEL; column += vecs * VN)
        value_strip(rows, vecs, tile, row, pages, column, out);
}

/* ---- the table's functions ----------------------------------------------------------------- */

/* Rows of a tile from `row` on that are multiplied at once. */
INLINE int rows_at_once(const struct kern_tile *tile, int row)
{
    int left = tile->n_rows - row;
    return left < INT_MAX_ROWS ? left : INT_MAX_ROWS;
}

#define DEFINE_KV(name)                                                                            \
    void name##_keys(const struct kern_tile *tile, int k_pad, const struct kern_pages *pages,      \
                     const struct kern_out *out)                                                   \
    {                                                                                              \
        for (int page = 0; page < pages->n; page++)                                                \
            for (int row = 0; row < tile->n_rows; row += INT_MAX_ROWS) {                           \
                struct kern_out o = {out->c + (size_t)row * out->ld + page * KERN_PANEL, out->ld,  \
                                     false};                                                       \
                switch (rows_at_once(tile, row)) {                                                 \
                    EACH_INT_HEIGHT(HEIGHT_CASE, key_rows, tile, row, k_pad / KERN_GROUP, pages,   \
                                    page, &o)                                                      \
                }                                                                                  \
            }                                                                                      \
    }                                                                                              \
    void name##_values(const struct kern_tile *tile, const struct kern_pages *pages,               \
                       const struct kern_out *out)                                                 \
    {                                                                                              \
        for (int row = 0; row < tile->n_rows; row += INT_MAX_ROWS) {                               \
            struct kern_out o = {out->c + (size_t)row * out->ld, out->ld, false};                  \
            switch (rows_at_once(tile, row)) {                                                     \
                EACH_INT_HEIGHT(HEIGHT_CASE, value_rows, tile, row, pages, &o)                     \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    void name##_probs(const float *e, int lo, int hi, struct kern_value_scales *s,                 \
                      const struct kern_tile *tile, int row)                                       \
    {                                                                                              \
        pack_probs(e, lo, hi, s, tile, row);                                                       \
    }
