/* SPDX-License-Identifier: MIT */
/*
 * Products of level "avx512amx": Intel's tile registers, AMX-BF16 and AMX-INT8 (Sapphire Rapids and
 * later). The rest of that level is avx512bf16.c's.
 *
 * A tile of activations is [k_pad / 32][n_rows][32] numbers here: 16 rows of a group are one tile
 * register. A group of a bf16 panel, [16][64] words, is two tile registers as it is; other formats
 * are expanded into a buffer first, a block of groups at a time, for all rows of the tile: hence
 * tiles of many rows.
 *
 * bf16: TDPBF16PS adds the products of a group's even k, those of its odd k, then both sums to the
 * destination, with subnormals as zero. Vectors do the same for one row, so that its bits are the
 * same alone and among others.
 *
 * int8, int4: a group's sum is an exact integer, which is then scaled as in tmpl_int.h, whose
 * products multiply few rows: the bits are the same, and those of level "avx512vnni".
 *
 * Blocks of rows have equal heights; the last one may overlap the one before it, and computes the
 * same numbers again: another height would cost another configuration. Tiles are released at the
 * end of each call: a context switch would have to save 8 KiB otherwise.
 */
#include "engine/kernels/simd_avx512.h"

#define vi_dpbusd _mm512_dpbusd_epi32
#include "engine/kernels/dot_vnni.h"

#include "engine/kernels/levels.h"
#include "engine/kernels/tmpl_int.h"

enum {
    TILE_ROWS = 16,
    GROUP_BF16 = 2 * KERN_GROUP * KERN_PANEL, /* bytes of a group of an expanded panel */
    GROUP_INT = KERN_GROUP * KERN_PANEL,
    BF16_BLOCK = 6, /* groups expanded at a time: they share L1 with the rows */
    SLOTS = 4,      /* groups in the buffer for one block of rows */
    INT_BLOCK = 8,
    FEW_ROWS = 32, /* up to which vectors multiply int8 rows faster; measured */
};

/* ---- tiles --------------------------------------------------------------------------------- */

/* Memory that tiles read and write is unknown to the compiler. */
#define TILE_LOAD(t, p, stride) _tile_loadd(t, p, stride)
#define TILE_STORE(t, p, stride) _tile_stored(t, p, stride)
#define MEMORY_BARRIER() __asm__ volatile("" ::: "memory")

struct config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};
_Static_assert(sizeof(struct config) == 64, "ldtilecfg reads 64 bytes");

/* Tiles 0-3: sums, 4-5: `rows` rows of activations, 6-7: weights; a_bytes of a row. */
INLINE void configure(int rows, int a_bytes)
{
    _Alignas(64) struct config c = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        c.row_bytes[i] = (uint16_t)(i == 4 || i == 5 ? a_bytes : 64);
        c.rows[i] = (uint8_t)(i < 6 ? rows : a_bytes / 4);
    }
    MEMORY_BARRIER();
    _tile_loadconfig(&c);
}

/* Rows cut into blocks of equal height; the last may overlap. */
struct blocks {
    int n, height, last;
};

INLINE struct blocks cut_rows(int n_rows, int most)
{
    struct blocks b = {.n = (n_rows + most - 1) / most};
    b.height = (n_rows + b.n - 1) / b.n;
    b.last = n_rows - b.height;
    return b;
}

INLINE int block_row(const struct blocks *b, int i)
{
    return i + 1 < b->n ? i * b->height : b->last;
}

/* ---- bf16 ---------------------------------------------------------------------------------- */

/* Sums of up to 32 rows and a panel, in tiles 0-3: rows 0 .. and rows `second` .. of the block. */
struct bf16_block {
    int second; /* 0: 16 rows or fewer, tiles 2 and 3 are not used */
    size_t group_bytes;
};

INLINE void clear_block(const struct bf16_block *k)
{
    _tile_zero(0);
    _tile_zero(1);
    if (!k->second) return;
    _tile_zero(2);
    _tile_zero(3);
}

INLINE void load_block(const struct bf16_block *k, const float *from)
{
    const float *second = from + k->second * KERN_PANEL;
    TILE_LOAD(0, from, 128);
    TILE_LOAD(1, from + 16, 128);
    if (!k->second) return;
    TILE_LOAD(2, second, 128);
    TILE_LOAD(3, second + 16, 128);
}

INLINE void store_block(const struct bf16_block *k, float *to, size_t ld)
{
    float *second = to + (size_t)k->second * ld;
    TILE_STORE(0, to, ld * 4);
    TILE_STORE(1, to + 16, ld * 4);
    if (k->second) {
        TILE_STORE(2, second, ld * 4);
        TILE_STORE(3, second + 16, ld * 4);
    }
    MEMORY_BARRIER();
}

/* n groups; b consecutive, or at segs. ahead: NULL, or as in kern_pages, of bytes each. */
INLINE void multiply_groups(const struct bf16_block *k, const char *a, const char *b,
                            const void *const *segs, int n, const void *const *ahead, size_t bytes)
{
    const size_t second = (size_t)k->second * 64;
    MEMORY_BARRIER();
    for (int g = 0; g < n; g++, a += k->group_bytes) {
        const char *w = segs ? segs[g] : b + (size_t)g * GROUP_BF16;
        for (size_t i = 0; ahead && ahead[g] && i < bytes; i += 64)
            __builtin_prefetch((const char *)ahead[g] + i, 0, 2);
        TILE_LOAD(4, a, 64);
        TILE_LOAD(6, w, 128);
        TILE_LOAD(7, w + 64, 128);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        if (!second) continue;
        TILE_LOAD(5, a + second, 64);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
}

/* A panel whose groups are read one block after the other. */
struct reader {
    const char *at;
    vi table;
    const uint32_t *exception;
    struct fetch fetch;
};

/* The next n groups, from g on, as bf16. */
INLINE const char *read_groups(const bool coded, struct reader *r, int g, int n, char *room)
{
    const char *groups = r->at;
    for (int i = 0; i < n; i++) {
        fetch_turn(&r->fetch);
        fetch_lines(&r->fetch, coded ? 24 : 32);
        if (!coded) continue;
        b12_decode(r->table, r->at + i * B12_GROUP_BYTES, room + i * GROUP_BF16);
        if (*r->exception >> 18 == (uint32_t)(g + i))
            r->exception = b12_patch(r->exception, g + i, room + i * GROUP_BF16);
    }
    r->at += n * (coded ? B12_GROUP_BYTES : GROUP_BF16);
    return coded ? room : groups;
}

/* Adds or copies the sums of a panel to their place. */
INLINE void put_sums(const float *sums, const struct blocks *b, const struct kern_out *out)
{
    for (int i = 0; i < b->n; i++)
        for (int row = 0; row < b->height; row++) {
            const float *from = sums + (i * b->height + row) * KERN_PANEL;
            int to = block_row(b, i) + row;
            if (i + 1 == b->n && i > 0 && to < i * b->height) continue;
            store_vec(out, to, 0, vf_load(from));
            store_vec(out, to, 16, vf_load(from + 16));
        }
}

INLINE void bf16_panel(const bool coded, const struct kern_tile *tile, const struct blocks *blocks,
                       const struct bf16_block *k, int n_groups, struct reader *r, char *room,
                       float *sums, const struct kern_out *out)
{
    const char *a = tile->data;
    for (int g = 0; g < n_groups; g += BF16_BLOCK, a += BF16_BLOCK * k->group_bytes) {
        int n = n_groups - g < BF16_BLOCK ? n_groups - g : BF16_BLOCK;
        bool last = g + n == n_groups;
        const char *b = read_groups(coded, r, g, n, room);
        for (int i = 0; i < blocks->n; i++) {
            float *at = sums + i * blocks->height * KERN_PANEL;
            int row = block_row(blocks, i);
            if (g == 0)
                clear_block(k);
            else
                load_block(k, at);
            multiply_groups(k, a + row * 64, b, NULL, n, NULL, 0);
            if (last && !out->add)
                store_block(k, out->c + (size_t)row * out->ld, out->ld);
            else
                store_block(k, at, KERN_PANEL);
        }
    }
    if (out->add) put_sums(sums, blocks, out);
}

/*
 * The same for one block of rows, whose sums stay in the tiles. Such a block waits for memory, so
 * the panel is read evenly: a group is expanded before the previous one is multiplied, since tiles
 * cannot be loaded from stores that are still on their way.
 */
INLINE void bf16_panel_alone(const bool coded, const struct kern_tile *tile,
                             const struct blocks *blocks, const struct bf16_block *k, int n_groups,
                             struct reader *r, char *room, float *sums, const struct kern_out *out)
{
    const char *a = tile->data, *b = read_groups(coded, r, 0, 1, room);
    clear_block(k);
    for (int g = 0; g < n_groups; g++, a += k->group_bytes) {
        const char *next = b;
        if (g + 1 < n_groups)
            next = read_groups(coded, r, g + 1, 1, room + (g + 1) % SLOTS * GROUP_BF16);
        multiply_groups(k, a, b, NULL, 1, NULL, 0);
        b = next;
    }
    store_block(k, out->add ? sums : out->c, out->add ? KERN_PANEL : out->ld);
    if (out->add) put_sums(sums, blocks, out);
}

INLINE struct bf16_block configure_bf16(const struct kern_tile *tile, const struct blocks *b)
{
    int rows = b->height <= TILE_ROWS ? b->height : (b->height + 1) / 2;
    configure(rows, 64);
    return (struct bf16_block){b->height - rows, (size_t)tile->n_rows * 64};
}

INLINE void bf16_run(const bool coded, const struct kern_tile *tile, int k_pad, const char *panel,
                     size_t panel_bytes, int n_panels, struct kern_out out,
                     const struct kern_fetch *wanted)
{
    _Alignas(64) char room[BF16_BLOCK * GROUP_BF16];
    _Alignas(64) float sums[KERN_AMX_ROWS * KERN_PANEL];
    struct blocks blocks = cut_rows(tile->n_rows, 2 * TILE_ROWS);
    struct bf16_block k = configure_bf16(tile, &blocks);
    const size_t head = coded ? b12_head_bytes(k_pad) : 0;
    for (int p = 0; p < n_panels; p++, panel += panel_bytes, out.c += KERN_PANEL) {
        struct reader r = {.at = panel + head,
                           .fetch =
                               fetch_plan(panel, panel_bytes, head, p + 1 == n_panels, wanted)};
        if (coded) {
            r.table = vi_table(panel);
            r.exception = b12_exceptions(panel);
        }
        if (blocks.n == 1)
            bf16_panel_alone(coded, tile, &blocks, &k, k_pad / KERN_GROUP, &r, room, sums, &out);
        else
            bf16_panel(coded, tile, &blocks, &k, k_pad / KERN_GROUP, &r, room, sums, &out);
    }
    _tile_release();
}

/* ---- one row of bf16 ----------------------------------------------------------------------- */

/*
 * One row waits for memory, and vectors wait less: weights are expanded in registers, while tiles
 * take them from stores. The order is that of TDPBF16PS.
 */

/* Subnormals are zero from here on, as they are for tiles. Returns what end_flushing takes. */
INLINE unsigned begin_flushing(void)
{
    unsigned mode = _mm_getcsr();
    _mm_setcsr(mode | 0x8040); /* FTZ, DAZ */
    MEMORY_BARRIER();
    return mode;
}

INLINE void end_flushing(unsigned mode)
{
    MEMORY_BARRIER();
    _mm_setcsr(mode);
}

/* The sums of a panel, whose groups begin at b, and of a row's numbers a. */
INLINE void row_sums(const bool coded, const char *a, int n_groups, const char *panel,
                     const char *b, struct fetch fetch, float sums[KERN_PANEL])
{
    const vi table = coded ? vi_table(panel) : vi_set1(0);
    const uint32_t *exception = coded ? b12_exceptions(panel) : NULL;
    _Alignas(64) char words[GROUP_BF16];
    vf total[2] = {vf_set1(0.0f), vf_set1(0.0f)};
    for (int g = 0; g < n_groups; g++) {
        const char *patched = NULL;
        vf sum[2][2] = {{vf_set1(0.0f), vf_set1(0.0f)}, {vf_set1(0.0f), vf_set1(0.0f)}};
        fetch_turn(&fetch);
        if (coded && *exception >> 18 == (uint32_t)g) {
            b12_decode(table, b, words);
            exception = b12_patch(exception, g, words);
            patched = words;
        }
        for (int k = 0; k < KERN_GROUP / 2; k += 2, b += coded ? B12_BLOCK_BYTES : 256)
            UNROLL for (int pair = 0; pair < 2; pair++, a += 4)
            {
                vi w[2], x = vi_set1(word_at(a));
                fetch_lines(&fetch, coded && pair ? 1 : 2);
                if (coded && !patched) {
                    b12_pair(2, pair, false, table, b, w);
                } else {
                    const char *at = (coded ? patched + k * 128 : b) + pair * 128;
                    w[0] = vi_load(at);
                    w[1] = vi_load(at + 64);
                }
                UNROLL for (int odd = 0; odd < 2; odd++) UNROLL for (int v = 0; v < 2; v++)
                    sum[odd][v] = vf_fma(word_half(x, odd), word_half(w[v], odd), sum[odd][v]);
                loads_in_order();
            }
        UNROLL for (int v = 0; v < 2; v++) total[v] =
            vf_add(total[v], vf_add(sum[0][v], sum[1][v]));
    }
    vf_store(sums, total[0]);
    vf_store(sums + VN, total[1]);
}

INLINE void row_run(const bool coded, const struct kern_tile *tile, int k_pad, const char *panel,
                    size_t panel_bytes, int n_panels, struct kern_out out,
                    const struct kern_fetch *wanted)
{
    const size_t head = coded ? b12_head_bytes(k_pad) : 0;
    _Alignas(64) float sums[KERN_PANEL];
    for (int p = 0; p < n_panels; p++, panel += panel_bytes, out.c += KERN_PANEL) {
        unsigned mode = begin_flushing();
        row_sums(coded, tile->data, k_pad / KERN_GROUP, panel, panel + head,
                 fetch_plan(panel, panel_bytes, head, p + 1 == n_panels, wanted), sums);
        end_flushing(mode);
        store_vec(&out, 0, 0, vf_load(sums));
        store_vec(&out, 0, VN, vf_load(sums + VN));
    }
}

#define DEFINE_BF16_MATMUL(name, coded)                                                            \
    void name(const struct kern_tile *tile, int k_pad, const void *panels, size_t panel_bytes,     \
              int n_panels, const struct kern_out *out, const struct kern_fetch *fetch)            \
    {                                                                                              \
        if (tile->n_rows == 1)                                                                     \
            row_run(coded, tile, k_pad, panels, panel_bytes, n_panels, *out, fetch);               \
        else                                                                                       \
            bf16_run(coded, tile, k_pad, panels, panel_bytes, n_panels, *out, fetch);              \
    }
DEFINE_BF16_MATMUL(kern_avx512amx_bf16_bf16, false)
DEFINE_BF16_MATMUL(kern_avx512amx_bf16_b12, true)

/* All rows times one panel of n groups: at b, or at segs. */
INLINE void page_product(const struct kern_tile *tile, const struct blocks *blocks,
                         const struct bf16_block *k, const char *b, const void *const *segs, int n,
                         const void *const *ahead, size_t ahead_bytes, const struct kern_out *out)
{
    _Alignas(64) float sums[KERN_AMX_ROWS * KERN_PANEL];
    for (int i = 0; i < blocks->n; i++) {
        int row = block_row(blocks, i);
        clear_block(k);
        multiply_groups(k, (const char *)tile->data + row * 64, b, segs, n, i == 0 ? ahead : NULL,
                        ahead_bytes);
        if (out->add)
            store_block(k, sums + i * blocks->height * KERN_PANEL, KERN_PANEL);
        else
            store_block(k, out->c + (size_t)row * out->ld, out->ld);
    }
    if (out->add) put_sums(sums, blocks, out);
}

void kern_avx512amx_pages(const struct kern_tile *tile, int k_pad, const struct kern_pages *pages,
                          const struct kern_out *out)
{
    int n_groups = k_pad / KERN_GROUP;
    struct kern_out at = *out;
    struct blocks blocks = cut_rows(tile->n_rows, 2 * TILE_ROWS);
    struct bf16_block k = configure_bf16(tile, &blocks);
    for (int i = 0; i < pages->n; i++, at.c += KERN_PANEL)
        page_product(tile, &blocks, &k, pages->panels[i], NULL, n_groups,
                     pages->ahead ? pages->ahead + i * n_groups : NULL, pages->ahead_bytes, &at);
    _tile_release();
}

void kern_avx512amx_segs(const struct kern_tile *tile, const struct kern_pages *pages,
                         const struct kern_out *out)
{
    struct blocks blocks = cut_rows(tile->n_rows, 2 * TILE_ROWS);
    struct bf16_block k = configure_bf16(tile, &blocks);
    page_product(tile, &blocks, &k, NULL, pages->panels, pages->n, pages->ahead, pages->ahead_bytes,
                 out);
    _tile_release();
}

/* ---- int8, int4 ---------------------------------------------------------------------------- */

/* Weights of one block of groups as s8, and their scales as f32. */
struct int_room {
    _Alignas(64) char weights[INT_BLOCK][GROUP_INT];
    float scales[INT_BLOCK][KERN_PANEL];
};

INLINE const char *expand_group(const enum kern_wfmt fmt, const char *b, char *w, float *scales)
{
    const int n_quads = kern_quads_bytes(fmt);
    if (fmt != KERN_W_I8) UNROLL for (int i = 0; i < 8; i++)
        {
            vi both = vi_load(b + n_quads - 512 + i * 64), mask = vi_set1(0x0f0f0f0f);
            vi low = vi_and(both, mask), high = vi_and(vi_shr(both, 4), mask);
            vi offset = _mm512_set1_epi8((char)kern_offset(fmt));
            vi_store(w + i * 64, _mm512_sub_epi8(low, offset));
            vi_store(w + i * 64 + 512, _mm512_sub_epi8(high, offset));
        }
    else
        UNROLL for (int i = 0; i < 16; i++)
            vi_store(w + i * 64, _mm512_xor_si512(vi_load(b + i * 64), vi_set1((int)0x80808080)));
    b += n_quads;
    vf_store(scales, vf_load_f16(b));
    vf_store(scales + VN, vf_load_f16(b + 32));
    return b + 64;
}

/* Integer sums of a group and up to 16 rows, into tiles 0 and 1 or, if odd, 2 and 3. */
INLINE void int_product(const int odd, const char *a, const char *w)
{
    TILE_LOAD(4, a, 32);
    TILE_LOAD(6, w, 128);
    TILE_LOAD(7, w + 64, 128);
    if (odd) {
        _tile_zero(2);
        _tile_zero(3);
        _tile_dpbssd(2, 4, 6);
        _tile_dpbssd(3, 4, 7);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_dpbssd(0, 4, 6);
        _tile_dpbssd(1, 4, 7);
    }
}

/* Their way to memory: [16][32]. */
INLINE void store_product(const int odd, int32_t *sums)
{
    if (odd) {
        TILE_STORE(2, sums, 128);
        TILE_STORE(3, sums + 16, 128);
    } else {
        TILE_STORE(0, sums, 128);
        TILE_STORE(1, sums + 16, 128);
    }
    MEMORY_BARRIER();
}

/* Adds n groups of one row, scaled, to its totals. */
INLINE void scale_row(const int n, const int32_t *sums, const float *scale, size_t ld_scale,
                      const vf w[INT_BLOCK][2], float *total)
{
    vf t0 = vf_load(total), t1 = vf_load(total + VN);
    UNROLL for (int j = 0; j < n; j++)
    {
        const int32_t *s = sums + j * TILE_ROWS * KERN_PANEL;
        vf x = vf_set1(scale[(size_t)j * ld_scale]);
        t0 = vf_fma(vf_of_int(vi_load(s)), vf_mul(x, w[j][0]), t0);
        t1 = vf_fma(vf_of_int(vi_load(s + VN)), vf_mul(x, w[j][1]), t1);
    }
    vf_store(total, t0);
    vf_store(total + VN, t1);
}

/* One block of rows with one block of groups. */
struct int_part {
    const char *a; /* of the block's first row and group */
    const float *scale;
    size_t n_rows; /* of the tile */
    int height;
    const struct int_room *room;
    float *totals; /* [height][32] */
};

/*
 * All products, then all scaling: 512-bit float operations between tile instructions run at half
 * their rate. A product is stored after the next one has begun.
 */
INLINE void int_block(const struct int_part *p, const int n)
{
    _Alignas(64) int32_t sums[INT_BLOCK][TILE_ROWS * KERN_PANEL];
    vf w[INT_BLOCK][2];
    MEMORY_BARRIER();
    UNROLL for (int j = 0; j < n; j++)
    {
        int_product(j & 1, p->a + (size_t)j * p->n_rows * 32, p->room->weights[j]);
        if (j > 0) store_product(~j & 1, sums[j - 1]);
    }
    store_product(~n & 1, sums[n - 1]);
    UNROLL for (int j = 0; j < n; j++)
    {
        w[j][0] = vf_load(p->room->scales[j]);
        w[j][1] = vf_load(p->room->scales[j] + VN);
    }
    for (int row = 0; row < p->height; row++)
        scale_row(n, sums[0] + row * KERN_PANEL, p->scale + row, p->n_rows, w,
                  p->totals + row * KERN_PANEL);
}

INLINE void int_blocks(const int n, const struct kern_tile *tile, const struct blocks *blocks,
                       int g, const struct int_room *room, float *totals)
{
    for (int i = 0; i < blocks->n; i++, totals += blocks->height * KERN_PANEL) {
        size_t n_rows = (size_t)tile->n_rows;
        size_t at = (size_t)g * n_rows + (size_t)block_row(blocks, i);
        struct int_part p = {(const char *)tile->data + at * 32,
                             tile->scale + at,
                             n_rows,
                             blocks->height,
                             room,
                             totals};
        int_block(&p, n);
    }
}

INLINE void tall_panel(const enum kern_wfmt fmt, const struct kern_tile *tile,
                       const struct blocks *blocks, int n_groups, const char *b, struct fetch fetch,
                       const struct kern_out *out)
{
    _Alignas(64) float totals[KERN_AMX_ROWS * KERN_PANEL];
    struct int_room room;
    int n_blocks = (n_groups + INT_BLOCK - 1) / INT_BLOCK;
    for (int i = 0; i < blocks->n * blocks->height * KERN_PANEL; i += VN)
        vf_store(totals + i, vf_set1(0.0f));
    for (int i = 0; i < n_blocks; i++) {
        int g = n_groups * i / n_blocks, n = n_groups * (i + 1) / n_blocks - g;
        for (int j = 0; j < n; j++) {
            fetch_turn(&fetch);
            fetch_lines(&fetch, fmt == KERN_W_I4 ? 9 : 17);
            b = expand_group(fmt, b, room.weights[j], room.scales[j]);
        }
        switch (n) {
            HEIGHTS_8(HEIGHT_CASE, int_blocks, tile, blocks, g, &room, totals)
        }
    }
    put_sums(totals, blocks, out);
}

INLINE void int_run(const enum kern_wfmt fmt, const struct kern_tile *tile, int k_pad,
                    const char *panel, size_t panel_bytes, int n_panels, struct kern_out out,
                    const struct kern_fetch *wanted)
{
    struct blocks blocks = cut_rows(tile->n_rows, TILE_ROWS);
    configure(blocks.height, 32);
    for (int p = 0; p < n_panels; p++, panel += panel_bytes, out.c += KERN_PANEL)
        tall_panel(fmt, tile, &blocks, k_pad / KERN_GROUP, panel,
                   fetch_plan(panel, panel_bytes, 0, p + 1 == n_panels, wanted), &out);
    _tile_release();
}

/* Few rows of a tile by vector instructions, a few at a time. */
INLINE void few_rows(const enum kern_wfmt fmt, const struct kern_tile *tile, int k_pad,
                     const char *panel, size_t panel_bytes, int n_panels, struct kern_out out,
                     const struct kern_fetch *wanted)
{
    int n_parts = (tile->n_rows + INT_MAX_ROWS - 1) / INT_MAX_ROWS, n_groups = k_pad / KERN_GROUP;
    size_t n = (size_t)tile->n_rows;
    for (int p = 0; p < n_panels; p++, panel += panel_bytes, out.c += KERN_PANEL) {
        struct fetch fetch = fetch_plan(panel, panel_bytes, 0, p + 1 == n_panels, wanted);
        for (int i = 0; i < n_parts; i++, fetch = fetch_nothing) {
            int row = tile->n_rows * i / n_parts, end = tile->n_rows * (i + 1) / n_parts;
            struct kern_tile t = {.data = (char *)tile->data + row * KERN_GROUP,
                                  .scale = tile->scale + row,
                                  .corr = tile->corr + row};
            struct kern_out o = {out.c + (size_t)row * out.ld, out.ld, out.add};
            switch (end - row) {
                EACH_INT_HEIGHT(HEIGHT_CASE, int_panel, fmt, n, &t, panel, n_groups, &o, fetch)
            }
        }
    }
}

/* The forms that hold blocks take the few rows' way at any height. */
#define DEFINE_AMX_MATMUL(prefix, name, fmt)                                                       \
    void prefix##_##name(const struct kern_tile *tile, int k_pad, const void *panels,              \
                         size_t panel_bytes, int n_panels, const struct kern_out *out,             \
                         const struct kern_fetch *fetch)                                           \
    {                                                                                              \
        if (fmt >= KERN_W_I4A || tile->n_rows <= FEW_ROWS)                                         \
            few_rows(fmt, tile, k_pad, panels, panel_bytes, n_panels, *out, fetch);                \
        else                                                                                       \
            int_run(fmt, tile, k_pad, panels, panel_bytes, n_panels, *out, fetch);                 \
    }
EACH_INT_FORM(DEFINE_AMX_MATMUL, kern_avx512amx)
