/* SPDX-License-Identifier: MIT */
/*
 * Products of float tiles with panels, written once over the operations of a simd_*.h, which the
 * including file includes first. That file also defines
 *
 *   STRIP_VECS(rows)  vectors of one panel that are summed in registers at once; divides 32 / VN
 *   MAX_ROWS          tallest tile, at most 12
 *   VF_DOT_BF16       optional: vf_dot_bf16(acc, a, b) adds the products of bf16 pairs,
 *                     store_bf16(p, low, high) rounds two vectors of activations to bf16
 *   BF16_ROW_MAJOR    optional, with it and VN = 16: tiles of bf16 are row-major, and tmpl_vector.h
 *                     has vi_bf16_pairs, vf_fraction and vi_keep_halves
 *
 * Every output has one sum over k = 0, 1, 2 ... in one register, for any height of the tile and
 * width of the strip: so a row's bits do not depend on its neighbours. (Two panels at once would
 * hide latency with few rows, but two streams from memory are slower than one.)
 */
#pragma once

#include "engine/kernels/kernels.h"

#include <string.h>

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#include "engine/kernels/tmpl_b12.h" /* unrolls too */

/*
 * Bytes to prefetch into L2 while a panel is multiplied: from `at` on, then from `more` on, evenly
 * over the panel. Each line that is read prefetches the next `stride` bytes, at most two lines.
 */
struct fetch {
    const char *at, *end, *more, *more_end;
    size_t stride;
};
static const struct fetch fetch_nothing;

/* Continues with `more`; checked once per group, to keep it out of the inner loops. */
INLINE void fetch_turn(struct fetch *f)
{
    if (f->at < f->end || f->more == f->more_end) return;
    f->at = f->more;
    f->end = f->more_end;
    f->more = f->more_end;
}

/* Prefetches the bytes that belong to n lines read. */
INLINE void fetch_lines(struct fetch *f, const int n)
{
    if (f->at >= f->end) return;
    UNROLL for (int i = 0; i < n; i++, f->at += f->stride)
    {
        __builtin_prefetch(f->at, 0, 2);
        if (f->stride > 64) __builtin_prefetch(f->at + 64, 0, 2);
    }
}

/*
 * The prefetch of one stream: `ahead` bytes before they are read, at the end of a panel from the
 * next one on, or from what the caller expects after the run. A panel is read from `head` on; of
 * the head before it the first line is needed at once.
 */
INLINE struct fetch fetch_stream(const char *panel, size_t panel_bytes, size_t head, bool is_last,
                                 const struct kern_fetch *wanted)
{
    const char *next = is_last ? wanted->data : panel + panel_bytes;
    const char *at = panel + head + wanted->ahead, *end = panel + panel_bytes;
    struct fetch f = {.at = at, .end = at < end ? end : at, .stride = 64};
    if (!next) return f;
    if (head) __builtin_prefetch(next, 0, 2);
    f.more = next + head;
    f.more_end = f.more + wanted->ahead;
    return f;
}

/*
 * The prefetch during a panel: the next one of the run, and during the last one the caller's.
 */
INLINE struct fetch fetch_plan(const char *panel, size_t panel_bytes, size_t head, bool is_last,
                               const struct kern_fetch *wanted)
{
    if (!wanted) return fetch_nothing;
    if (wanted->ahead) return fetch_stream(panel, panel_bytes, head, is_last, wanted);
    if (!is_last)
        return (struct fetch){
            .at = panel + panel_bytes, .end = panel + 2 * panel_bytes, .stride = 64};
    struct fetch f = {.at = wanted->data, .more = wanted->more};
    size_t bytes = wanted->bytes + wanted->more_bytes;
    if (wanted->bytes) f.end = f.at + wanted->bytes;
    if (wanted->more_bytes) f.more_end = f.more + wanted->more_bytes;
    if (bytes > 2 * panel_bytes) bytes = 2 * panel_bytes;
    f.stride = (64 * bytes + panel_bytes - 1) / panel_bytes;
    return f;
}

/*
 * Keeps the compiler from moving loads across: with few rows memory is the limit, and the
 * hardware's prefetchers need a panel read strictly upwards (measured: out of order costs a
 * quarter).
 */
INLINE void loads_in_order(void)
{
    __asm__ volatile("" ::: "memory");
}

INLINE void store_vec(const struct kern_out *out, int row, int column, vf v)
{
    float *c = out->c + (size_t)row * out->ld + column;
    vf_store(c, out->add ? vf_add(vf_load(c), v) : v);
}

/*
 * Element types, activations x weights. DOT is BF16 x BF16 by the dot product instruction; without
 * it activations of BF16 are F32.
 */
enum kind { F32_F32, F32_BF16, F32_F16, DOT, F32_B12, DOT_B12 };

INLINE bool is_coded(const enum kind kind)
{
    return kind >= F32_B12;
}

/* Element types after a B12 panel is decoded. */
INLINE enum kind decoded(const enum kind kind)
{
    return kind == F32_B12 ? F32_BF16 : kind == DOT_B12 ? DOT : kind;
}

/* One of a pair of k, from 32-bit words that hold two bf16: the lower half comes first. */
INLINE vf word_half(vi w, const int odd)
{
    return vf_of_bits(odd ? vi_high_halves(w) : vi_shl(w, 16));
}

#ifdef BF16_ROW_MAJOR
enum { DOT_ROW_MAJOR = 1 };
#else
enum { DOT_ROW_MAJOR = 0 };
#endif

/* Bytes of a tile from one pair of k to the next within a group, and from one row to the next. */
INLINE size_t pair_bytes(const enum kind kind, const int rows)
{
    if (kind == DOT && DOT_ROW_MAJOR) return 4;
    return (kind <= F32_F16 ? 8 : 4) * (size_t)rows; /* activations are F32 */
}

INLINE size_t row_bytes(const enum kind kind)
{
    return kind == DOT && DOT_ROW_MAJOR ? 2 * KERN_GROUP : 4;
}

/* From the end of a group's pairs to the next group. */
INLINE size_t group_gap(const enum kind kind, const int rows)
{
    return kind == DOT && DOT_ROW_MAJOR ? 2 * KERN_GROUP * ((size_t)rows - 1) : 0;
}

INLINE int32_t word_at(const char *p)
{
    int32_t w;
    memcpy(&w, p, sizeof(w));
    return w;
}

INLINE vf float_at(const char *p)
{
    float f;
    memcpy(&f, p, sizeof(f));
    return vf_set1(f);
}

/* Bytes of a weight between one output and the next. */
INLINE int output_bytes(const enum kind kind)
{
    return kind == F32_F16 ? 2 : 4;
}

/* The weights of k + odd of one vector of outputs; b at the pair's first byte. */
INLINE vf weights(const enum kind kind, const char *b, const int odd)
{
    if (kind == F32_F32) return vf_load(b + odd * 128);
    if (kind == F32_F16) return vf_load_f16(b + odd * 64);
    return word_half(vi_load(b), odd);
}

/* The activation k + odd of one row, in all lanes; a at the pair's first byte of row 0. */
INLINE vf activation(const char *a, const int rows, const int row, const int odd)
{
    return float_at(a + (odd * rows + row) * 4);
}

/*
 * The operands of one strip. Groups of 32 k follow each other from b on, or are at segs.
 */
struct strip {
    const char *a, *b;
    const void *const *segs;
    const void *const *ahead; /* of each group ahead_bytes are prefetched; NULL: see fetch */
    size_t ahead_bytes;
    const void *head; /* of a B12 panel: table and exceptions */
    int n_groups;
    int column; /* of the strip's first output within its panel */
};

enum { MAX_VECS = KERN_PANEL / VN };

INLINE struct fetch fetch_ahead(const struct strip *s, int group)
{
    const char *at = s->column == 0 ? s->ahead[group] : NULL;
    return (struct fetch){.at = at, .end = at ? at + s->ahead_bytes : NULL, .stride = 64};
}

/* One pair of k into the sums, of weights that are words of two bf16. */
INLINE void words_pair(const enum kind kind, const int rows, const int vecs,
                       vf sum[MAX_ROWS][MAX_VECS], const char *a, const vi w[MAX_VECS])
{
#ifdef VF_DOT_BF16
    if (kind == DOT) {
        UNROLL for (int i = 0; i < rows; i++)
        {
            vi x = vi_set1(word_at(a + (size_t)i * row_bytes(kind)));
            UNROLL for (int v = 0; v < vecs; v++) sum[i][v] = vf_dot_bf16(sum[i][v], x, w[v]);
        }
        return;
    }
#endif
    UNROLL for (int odd = 0; odd < 2; odd++) UNROLL for (int i = 0; i < rows; i++)
    {
        vf x = activation(a, rows, i, odd);
        UNROLL for (int v = 0; v < vecs; v++) sum[i][v] =
            vf_fma(x, word_half(w[v], odd), sum[i][v]);
    }
}

/* One pair of k into the sums. */
INLINE void strip_pair(const enum kind kind, const int rows, const int vecs,
                       vf sum[MAX_ROWS][MAX_VECS], const char *a, const char *b)
{
    if (kind == DOT) {
        vi w[MAX_VECS];
        UNROLL for (int v = 0; v < vecs; v++) w[v] = vi_load(b + v * VN * 4);
        words_pair(kind, rows, vecs, sum, a, w);
        return;
    }
    UNROLL for (int odd = 0; odd < 2; odd++)
    {
        vf w[MAX_VECS];
        UNROLL for (int v = 0; v < vecs; v++) w[v] =
            weights(kind, b + v * VN * output_bytes(kind), odd);
        UNROLL for (int i = 0; i < rows; i++)
        {
            vf x = activation(a, rows, i, odd);
            UNROLL for (int v = 0; v < vecs; v++) sum[i][v] = vf_fma(x, w[v], sum[i][v]);
        }
    }
}

INLINE void clear_sums(const int rows, const int vecs, vf sum[MAX_ROWS][MAX_VECS])
{
    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int v = 0; v < vecs; v++) sum[i][v] =
        vf_set1(0.0f);
}

INLINE void store_sums(const int rows, const int vecs, vf sum[MAX_ROWS][MAX_VECS], int column,
                       const struct kern_out *out)
{
    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int v = 0; v < vecs; v++)
        store_vec(out, i, column + v * VN, sum[i][v]);
}

INLINE void strip_run(const enum kind kind, const int rows, const int vecs, const struct strip *s,
                      const struct kern_out *out, struct fetch fetch)
{
    const size_t pair_a = pair_bytes(kind, rows);
    const size_t pair_b = kind == F32_F32 ? 256 : 128;
    const int step = rows <= 4 ? 4 : 1; /* the loop's own work shows with few rows */
    const char *a = s->a, *b = s->b;
    vf sum[MAX_ROWS][MAX_VECS];

    clear_sums(rows, vecs, sum);
    for (int g = 0; g < s->n_groups; g++) {
        fetch_turn(&fetch);
        if (s->segs) b = (const char *)s->segs[g] + s->column * output_bytes(kind);
        if (s->ahead) fetch = fetch_ahead(s, g);
        for (int k = 0; k < KERN_GROUP / 2; k += step)
            UNROLL for (int i = 0; i < step; i++, a += pair_a, b += pair_b)
            {
                fetch_lines(&fetch, kind == F32_F32 ? 4 : 2);
                strip_pair(kind, rows, vecs, sum, a, b);
                loads_in_order();
            }
        a += group_gap(kind, rows);
    }
    store_sums(rows, vecs, sum, s->column, out);
}

/* One group of a B12 panel into the sums: from words if it is decoded, or from its blocks. */
INLINE void coded_group(const enum kind kind, const int rows, const int vecs, const bool is_decoded,
                        vf sum[MAX_ROWS][MAX_VECS], const char *a, const char *from, int column,
                        const vi table, struct fetch *fetch)
{
    const size_t pair_a = pair_bytes(kind, rows);
    for (int k = 0; k < KERN_GROUP / 2; k += 2, from += is_decoded ? 256 : B12_BLOCK_BYTES)
        UNROLL for (int pair = 0; pair < 2; pair++, a += pair_a)
        {
            vi w[MAX_VECS];
            fetch_lines(fetch, pair == 0 ? 2 : 1); /* a block is three lines */
            if (is_decoded)
                UNROLL for (int v = 0; v < vecs; v++) w[v] =
                    vi_load(from + column * 4 + pair * 128 + v * VN * 4);
            else
                b12_pair(vecs, pair, column > 0, table, from, w);
            words_pair(kind, rows, vecs, sum, a, w);
            loads_in_order();
        }
}

/*
 * The same over a B12 panel. Weights are decoded in registers, except groups with exceptions: those
 * are decoded into words first, and the exceptions are replaced there.
 */
INLINE void coded_run(const enum kind coded_kind, const int rows, const int vecs,
                      const struct strip *s, const struct kern_out *out, struct fetch fetch)
{
    const enum kind kind = decoded(coded_kind);
    const size_t group_a = KERN_GROUP / 2 * pair_bytes(kind, rows) + group_gap(kind, rows);
    const uint32_t *exception = b12_exceptions(s->head);
    const char *a = s->a, *block = s->b;
    const vi table = vi_table(s->head);
    _Alignas(64) char words[2 * B12_GROUP_WORDS];
    vf sum[MAX_ROWS][MAX_VECS];

    clear_sums(rows, vecs, sum);
    for (int g = 0; g < s->n_groups; g++, a += group_a, block += B12_GROUP_BYTES) {
        fetch_turn(&fetch);
        if (*exception >> 18 != (uint32_t)g) {
            coded_group(kind, rows, vecs, false, sum, a, block, s->column, table, &fetch);
            continue;
        }
        b12_decode(table, block, words);
        exception = b12_patch(exception, g, words);
        coded_group(kind, rows, vecs, true, sum, a, words, s->column, table, &fetch);
    }
    store_sums(rows, vecs, sum, s->column, out);
}

/* All columns of one panel. */
INLINE void panel_run(const enum kind kind, const int rows, struct strip *s,
                      const struct kern_out *out, struct fetch fetch)
{
    const int vecs = STRIP_VECS(rows);
    const char *b = s->b;
    for (s->column = 0; s->column < KERN_PANEL; s->column += vecs * VN) {
        if (is_coded(kind)) {
            coded_run(kind, rows, vecs, s, out, fetch);
        } else {
            s->b = b + s->column * output_bytes(kind);
            strip_run(kind, rows, vecs, s, out, fetch);
        }
        fetch = fetch_nothing;
    }
}

INLINE void rows_run(const int rows, const enum kind kind, const struct kern_tile *tile, int k_pad,
                     const char *panels, size_t panel_bytes, int n_panels, struct kern_out out,
                     const struct kern_fetch *fetch)
{
    struct strip s = {.a = tile->data, .n_groups = k_pad / KERN_GROUP};
    const size_t head = is_coded(kind) ? b12_head_bytes(k_pad) : 0;
    for (int p = 0; p < n_panels; p++, out.c += KERN_PANEL) {
        const char *panel = panels + (size_t)p * panel_bytes;
        s.head = panel;
        s.b = panel + head;
        panel_run(kind, rows, &s, &out,
                  fetch_plan(panel, panel_bytes, head, p + 1 == n_panels, fetch));
    }
}

INLINE void pages_run(const int rows, const enum kind kind, const struct kern_tile *tile, int k_pad,
                      const struct kern_pages *pages, struct kern_out out)
{
    const int n_groups = k_pad / KERN_GROUP;
    struct strip s = {.a = tile->data, .n_groups = n_groups, .ahead_bytes = pages->ahead_bytes};
    for (int p = 0; p < pages->n; p++, out.c += KERN_PANEL) {
        s.b = pages->panels[p];
        if (pages->ahead) s.ahead = pages->ahead + p * n_groups;
        panel_run(kind, rows, &s, &out, fetch_nothing);
    }
}

INLINE void segs_run(const int rows, const enum kind kind, const struct kern_tile *tile,
                     const struct kern_pages *pages, const struct kern_out *out)
{
    struct strip s = {.a = tile->data,
                      .segs = pages->panels,
                      .ahead = pages->ahead,
                      .ahead_bytes = pages->ahead_bytes,
                      .n_groups = pages->n};
    panel_run(kind, rows, &s, out, fetch_nothing);
}

/* One case for every height up to MAX_ROWS, so that sums stay in registers. */
#define HEIGHTS_4(X, ...) X(1, __VA_ARGS__) X(2, __VA_ARGS__) X(3, __VA_ARGS__) X(4, __VA_ARGS__)
#define HEIGHTS_6(X, ...) HEIGHTS_4(X, __VA_ARGS__) X(5, __VA_ARGS__) X(6, __VA_ARGS__)
#define HEIGHTS_8(X, ...) HEIGHTS_6(X, __VA_ARGS__) X(7, __VA_ARGS__) X(8, __VA_ARGS__)
#define HEIGHTS_12(X, ...)                                                                         \
    HEIGHTS_8(X, __VA_ARGS__)                                                                      \
    X(9, __VA_ARGS__) X(10, __VA_ARGS__) X(11, __VA_ARGS__) X(12, __VA_ARGS__)
#if MAX_ROWS == 12
#define EACH_HEIGHT HEIGHTS_12
#elif MAX_ROWS == 6
#define EACH_HEIGHT HEIGHTS_6
#else
#error "MAX_ROWS: 6 or 12"
#endif
#define HEIGHT_CASE(rows, run, ...)                                                                \
    case rows:                                                                                     \
        run(rows, __VA_ARGS__);                                                                    \
        break;

#define DEFINE_MATMUL(name, kind)                                                                  \
    static void name(const struct kern_tile *tile, int k_pad, const void *panels,                  \
                     size_t panel_bytes, int n_panels, const struct kern_out *out,                 \
                     const struct kern_fetch *fetch)                                               \
    {                                                                                              \
        switch (tile->n_rows) {                                                                    \
            EACH_HEIGHT(HEIGHT_CASE, rows_run, kind, tile, k_pad, panels, panel_bytes, n_panels,   \
                        *out, fetch)                                                               \
        }                                                                                          \
    }
#define DEFINE_PAGES(name, kind)                                                                   \
    static void name(const struct kern_tile *tile, int k_pad, const struct kern_pages *pages,      \
                     const struct kern_out *out)                                                   \
    {                                                                                              \
        switch (tile->n_rows) {                                                                    \
            EACH_HEIGHT(HEIGHT_CASE, pages_run, kind, tile, k_pad, pages, *out)                    \
        }                                                                                          \
    }
#define DEFINE_SEGS(name, kind)                                                                    \
    static void name(const struct kern_tile *tile, const struct kern_pages *pages,                 \
                     const struct kern_out *out)                                                   \
    {                                                                                              \
        switch (tile->n_rows) {                                                                    \
            EACH_HEIGHT(HEIGHT_CASE, segs_run, kind, tile, pages, out)                             \
        }                                                                                          \
    }
