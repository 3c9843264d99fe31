/* SPDX-License-Identifier: MIT */
/*
 * Tiles of rows times runs of panels.
 *
 * Few rows wait for panels from memory: the hardware's own prefetchers, which see one long stream,
 * do best alone. With more rows computing takes longer, and the next panel is prefetched meanwhile.
 * With many rows (prefill) a panel is used so often that a prefetch only costs; each panel is
 * multiplied with all tiles while it is in L2.
 *
 * If several tiles share a panel, memory bandwidth is left over: the keys and values of the next
 * attention are prefetched then, since attention itself waits for memory alone.
 */
#include "engine/gemm.h"

#include <assert.h>
#include <string.h>

#include "engine/gemm_blas.h"
#include "engine/kernels/convert.h"
#include "engine/model/numerics.h"

/*
 * Rows up to which the next panel is prefetched; measured, see tests/bench/AB_LOG.md. The kernel
 * table has the number from which it is (fetch_rows).
 */
enum { AHEAD_MAX_ROWS = 160 };

/* Most rows of one item of packing; tiles of levels that are not row-major are lower. */
enum { PACK_ROWS = 16 };

/*
 * Pairs of gate and up panels that a tile is multiplied with at a time, unless it is tall: their
 * sums stay in L1, and a row's 128 results are packed at once. And panels of another matrix, if
 * there are several tiles: a tile stays in L1 for all of them, they in L2 for all tiles.
 */
enum { MAX_PAIRS = 4, MAX_PAIRS_ROWS = 12, PAIR_COLUMNS = 2 * KERN_PANEL, MAX_PANELS = 4 };

/* The "up" of a feed-forward layer without gate. */
/* clang-format off */
static const float ones[KERN_PANEL] = {
    1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
};
/* clang-format on */

/* ---- rows ---------------------------------------------------------------------------------- */

static int tallest_tile(const struct eng_model *model, const struct gemm_rows *r)
{
    return r->blas ? r->n_rows : model->kern->max_rows[r->fmt];
}

struct gemm_rows gemm_rows_take(struct scratch *s, size_t n, size_t k_pad, size_t act_bytes)
{
    return (struct gemm_rows){
        .data = scratch_take(s, n * k_pad, act_bytes),
        .scale = scratch_take(s, n * (k_pad / KERN_GROUP), sizeof(float)),
        .corr = scratch_take(s, n * (k_pad / KERN_GROUP), sizeof(int32_t)),
    };
}

void gemm_rows_init(struct gemm_rows *r, const struct eng_model *model, const struct eng_mat *m,
                    int n_rows)
{
    assert(n_rows > 0);
    r->fmt = m->takes_f32 ? KERN_A_F32 : model->numerics->act;
    r->wfmt = eng_mat_rows_format(m);
    r->blas = m->use_blas;
    r->act_bytes = r->blas ? sizeof(float) : (size_t)model->kern->act_bytes[r->fmt];
    r->k_pad = m->k_pad;
    r->n_rows = n_rows;
    int tallest = tallest_tile(model, r);
    r->n_tiles = (n_rows + tallest - 1) / tallest;
    r->even = n_rows / r->n_tiles;
    r->n_longer = n_rows % r->n_tiles;
}

/* Called for every product of a tile and a panel, so without a division. */
static int tile_first_row(const struct gemm_rows *r, int i)
{
    return i * r->even + (i < r->n_longer ? i : r->n_longer);
}

static int tile_of_row(const struct gemm_rows *r, int row)
{
    int longer = r->n_longer * (r->even + 1);
    return row < longer ? row / (r->even + 1) : r->n_longer + (row - longer) / r->even;
}

static struct kern_tile tile_at(const struct gemm_rows *r, int i)
{
    size_t row0 = (size_t)tile_first_row(r, i), k = (size_t)r->k_pad;
    return (struct kern_tile){
        .data = r->data + row0 * k * r->act_bytes,
        .scale = r->scale + row0 * (k / KERN_GROUP),
        .corr = r->corr + row0 * (k / KERN_GROUP),
        .n_rows = tile_first_row(r, i + 1) - (int)row0,
    };
}

/* Inputs of a row, n groups of them from `group` on, to their place in a tile. */
static void pack_groups(const struct kern *kern, const struct gemm_rows *r, int tile, int row,
                        int group, int n, const float *x)
{
    struct kern_tile t = tile_at(r, tile);
    int k = n * KERN_GROUP;
    if (r->blas) {
        float *d = (float *)t.data + (size_t)row * (size_t)r->k_pad;
        memcpy(d + (size_t)group * KERN_GROUP, x, (size_t)k * sizeof(*x));
        return;
    }
    size_t at = (size_t)group * (size_t)t.n_rows;
    t.data = (uint8_t *)t.data + at * KERN_GROUP * r->act_bytes;
    t.scale += at;
    t.corr += at;
    kern->pack_row[r->fmt](x, k, k, r->wfmt, &t, row);
}

static void pack_plain_row(const float *x, int k, int k_pad, const struct kern_tile *tile, int row)
{
    float *d = (float *)tile->data + (size_t)row * (size_t)k_pad;
    memcpy(d, x, (size_t)k * sizeof(*d));
    memset(d + k, 0, (size_t)(k_pad - k) * sizeof(*d));
}

/* Items of a tile: rows of tall ones, which are row-major, can be packed apart. */
static int items_per_tile(const struct gemm_rows *r)
{
    int tallest = r->even + (r->n_longer > 0);
    return r->blas ? 1 : (tallest + PACK_ROWS - 1) / PACK_ROWS;
}

int gemm_n_pack_items(const struct gemm_rows *rows)
{
    return rows->n_tiles * items_per_tile(rows);
}

void gemm_pack_item(const struct eng_model *model, const struct eng_mat *m,
                    const struct gemm_source *src, const struct gemm_rows *rows, int item,
                    float *tmp)
{
    assert(item >= 0 && item < gemm_n_pack_items(rows));
    const struct kern *kern = model->kern;
    int per_tile = items_per_tile(rows), tile = item / per_tile, part = item % per_tile;
    struct kern_tile t = tile_at(rows, tile);
    int first = tile_first_row(rows, tile), end = (part + 1) * t.n_rows / per_tile;
    for (int i = part * t.n_rows / per_tile; i < end; i++) {
        size_t row = (size_t)(src->map ? src->map[first + i] : first + i);
        const float *x = src->x + row * src->ld;
        if (src->norm) {
            kern->rmsnorm(x, src->norm, tmp, m->n_in, src->eps);
            x = tmp;
        }
        if (rows->blas)
            pack_plain_row(x, m->n_in, m->k_pad, &t, i);
        else
            kern->pack_row[rows->fmt](x, m->n_in, m->k_pad, rows->wfmt, &t, i);
    }
}

void gemm_add_squares(const struct gemm_rows *rows, float *sums)
{
    for (int i = 0; i < rows->n_tiles; i++) {
        struct kern_tile t = tile_at(rows, i);
        const int8_t *q = t.data;
        for (int at = 0; at < rows->k_pad / KERN_GROUP * t.n_rows; at++, q += KERN_GROUP)
            for (int k = 0; k < KERN_GROUP; k++)
                sums[at / t.n_rows * KERN_GROUP + k] +=
                    t.scale[at] * t.scale[at] * (float)(q[k] * q[k]);
    }
}

/* ---- products ------------------------------------------------------------------------------ */

/* One item's work: a range of panels of a matrix for all rows. */
struct product {
    const struct eng_model *model;
    const struct eng_mat *m;
    const struct gemm_rows *rows;
    const struct gemm_ahead *ahead;
    const struct gemm_thread *thread;
    int end; /* of the item's panels */
    bool fetches;
};

static bool fetches_ahead(const struct eng_model *model, const struct eng_mat *m,
                          const struct gemm_rows *rows)
{
    return !rows->blas && rows->n_rows >= model->kern->fetch_rows[rows->fmt][m->fmt] &&
           rows->n_rows <= AHEAD_MAX_ROWS;
}

/* The i-th of n equal shares of the n_panels panels after these, or of what follows the item. */
static void share_ahead(const struct product *p, int panel, int n_panels, int i, int n,
                        struct kern_fetch *ret)
{
    const uint8_t *data = p->ahead->data;
    size_t bytes = p->ahead->bytes;
    int next = panel + n_panels;
    if (next < p->end) {
        int left = p->end - next < n_panels ? p->end - next : n_panels;
        data = p->m->panels + eng_mat_offset(p->m, next);
        bytes = eng_mat_offset(p->m, next + left) - eng_mat_offset(p->m, next);
    }
    size_t share = (bytes / (size_t)n + 63) & ~(size_t)63, start = share * (size_t)i;
    if (!data || start >= bytes) return;
    ret->data = data + start;
    ret->bytes = bytes - start < share ? bytes - start : share;
}

/* Few rows: the panels themselves ahead of their reading, then from panel `next` on. */
static struct kern_fetch stream_ahead(const struct product *p, int next)
{
    const uint8_t *data = p->ahead->data;
    if (next < p->end) data = p->m->panels + eng_mat_offset(p->m, next);
    return (struct kern_fetch){.data = data, .ahead = p->model->reading.ahead};
}

/* The i-th of n equal shares of the prefetch range, cut at the end of its first run. */
static void share_range(const struct gemm_blocks *b, int i, int n, struct kern_fetch *ret)
{
    int n_blocks = b->end - b->first;
    int first = b->first + (int)((int64_t)n_blocks * i / n);
    int end = b->first + (int)((int64_t)n_blocks * (i + 1) / n);
    if (first == end) return;
    int run = first / b->per_run, at = first % b->per_run;
    if (end > (run + 1) * b->per_run) end = (run + 1) * b->per_run;
    ret->more = b->runs[run] + b->offset + (size_t)at * b->block_bytes;
    ret->more_bytes = (size_t)(end - first) * b->block_bytes;
}

/* The corrections for weights of another format than the rows were packed for. */
static int32_t *other_corr(const struct product *p, const struct kern_tile *tile,
                           enum kern_wfmt fmt)
{
    size_t n = (size_t)(p->m->k_pad / KERN_GROUP) * (size_t)tile->n_rows;
    int from = kern_offset(p->rows->wfmt), to = kern_offset(fmt);
    bool halves = kern_corr_of(p->rows->wfmt) == KERN_CORR_HALVES;
    bool minima = kern_corr_of(fmt) == KERN_CORR_MINIMA;
    for (size_t i = 0; i < n; i++) {
        int32_t corr = tile->corr[i];
        int sum = halves ? kern_low_sum(corr) + kern_high_sum(corr) : corr / -from;
        p->thread->corr[i] = minima ? (int32_t)kern_bits((float)sum * tile->scale[i]) : -to * sum;
    }
    return p->thread->corr;
}

/*
 * Tile i times n panels of one format; its first row and column go to out->c. A single tile takes
 * them in one call, in which the kernel prefetches each next panel. Several tiles take turns at the
 * same panels, and each call, if it prefetches, is of one panel and takes its share of the ones
 * after them.
 */
static void multiply(const struct product *p, int i, int panel, int n, const struct kern_out *out)
{
    const struct kern *kern = p->model->kern;
    const struct eng_mat *m = p->m;
    struct kern_tile tile = tile_at(p->rows, i);
    struct kern_out at = *out;
    enum kern_wfmt fmt = eng_mat_format(m, panel), packed = p->rows->wfmt;
    size_t panel_bytes = eng_mat_is_fine(m, panel) ? m->fine_bytes : m->panel_bytes;
    if (p->rows->blas) {
        for (int k = 0; k < n; k++, at.c += KERN_PANEL)
            gemm_blas_panel(kern, m, panel + k, tile.data, (size_t)m->k_pad, tile.n_rows, &at,
                            p->thread->blas);
        return;
    }
    enum kern_corr kind = kern_corr_of(fmt);
    if (fmt != packed && (kind != kern_corr_of(packed) || kind == KERN_CORR_OFFSETS))
        tile.corr = other_corr(p, &tile, fmt);
    bool shares = p->fetches || p->ahead->range.end > p->ahead->range.first;
    int n_calls = shares && p->rows->n_tiles > 1 ? n : 1, per_call = n / n_calls;
    bool streams = !p->fetches && p->rows->n_tiles == 1 && p->model->reading.ahead;
    for (int k = 0; k < n_calls; k++, at.c += per_call * KERN_PANEL) {
        struct kern_fetch fetch = {.bytes = 0};
        int n_tiles = p->rows->n_tiles;
        if (p->fetches) share_ahead(p, panel, n, i * n_calls + k, n_tiles * n_calls, &fetch);
        if (streams) fetch = stream_ahead(p, panel + n);
        if (n_tiles > 1)
            share_range(&p->ahead->range, (panel + k) * n_tiles + i, m->n_panels * n_tiles, &fetch);
        kern->matmul[p->rows->fmt][fmt](&tile, m->k_pad, m->panels + eng_mat_offset(m, panel + k),
                                        panel_bytes, per_call, &at,
                                        p->fetches || streams || fetch.more_bytes ? &fetch : NULL);
    }
}

static void add_bias(const struct kern *kern, const struct eng_mat *m, int p0, int n, float *c,
                     size_t ld, int n_rows)
{
    if (!m->bias) return;
    for (int i = 0; i < n_rows; i++)
        kern->add(c + (size_t)i * ld, m->bias + (size_t)p0 * KERN_PANEL, n * KERN_PANEL);
}

void gemm_panels(const struct eng_model *model, const struct eng_mat *m,
                 const struct gemm_rows *rows, int p0, int n, const struct kern_out *out,
                 const struct gemm_ahead *ahead, const struct gemm_thread *thread)
{
    assert(p0 >= 0 && p0 + n <= m->n_panels);
    assert(rows->k_pad == m->k_pad);
    struct product p = {model, m, rows, ahead, thread, p0 + n, fetches_ahead(model, m, rows)};
    int fine = m->n_panels - m->n_fine, step;
    for (int panel = p0; panel < p.end; panel += step) {
        int end = panel < fine && fine < p.end ? fine : p.end; /* one format in a call */
        step = rows->n_tiles == 1 || end - panel < MAX_PANELS ? end - panel : MAX_PANELS;
        for (int i = 0; i < rows->n_tiles; i++) {
            struct kern_out at = *out;
            at.c += (size_t)tile_first_row(rows, i) * out->ld + (size_t)panel * KERN_PANEL;
            multiply(&p, i, panel, step, &at);
        }
    }
    add_bias(model->kern, m, p0, n, out->c + (size_t)p0 * KERN_PANEL, out->ld, rows->n_rows);
}

/*
 * act(gate) * up, or without gate act(up), of n pairs or panels and some rows, whose sums are
 * overwritten, packed into ret.
 */
static void combine(const struct eng_model *model, const struct kern_out *sums, int first_row,
                    int n_rows, int pair, int n, const struct gemm_delta *delta,
                    const struct gemm_rows *ret)
{
    const struct kern *kern = model->kern;
    int tile = tile_of_row(ret, first_row);
    for (int i = 0; i < n_rows; i++) {
        if (first_row + i == tile_first_row(ret, tile + 1)) tile++;
        int row = first_row + i - tile_first_row(ret, tile);
        float *x = sums->c + (size_t)i * sums->ld, *gate = x;
        for (int p = 0; p < n; p++, gate += model->hp.ungated ? KERN_PANEL : PAIR_COLUMNS)
            kern->glu[model->hp.act](gate, model->hp.ungated ? ones : gate + KERN_PANEL,
                                     x + (size_t)p * KERN_PANEL, KERN_PANEL);
        pack_groups(kern, ret, tile, row, pair, n, x);
        if (delta && delta->rows)
            memcpy(delta->rows + (size_t)(first_row + i) * delta->ld + (size_t)pair * KERN_PANEL, x,
                   (size_t)n * KERN_PANEL * sizeof(*x));
    }
}

void gemm_gate_up(const struct eng_model *model, const struct eng_mat *m,
                  const struct gemm_rows *rows, int p0, int n, const struct gemm_rows *ret,
                  const struct gemm_delta *delta, const struct gemm_ahead *ahead,
                  const struct gemm_thread *thread)
{
    int each = model->hp.ungated ? 1 : 2; /* panels of a pair */
    assert(p0 >= 0 && each * (p0 + n) <= m->n_panels);
    assert(rows->k_pad == m->k_pad && ret->n_rows == rows->n_rows);
    struct product p = {
        model, m, rows, ahead, thread, each * (p0 + n), fetches_ahead(model, m, rows)};
    int tallest = rows->even + (rows->n_longer > 0);
    int step = tallest <= MAX_PAIRS_ROWS && !rows->blas ? MAX_PAIRS : 1;
    for (int pair = p0; pair < p0 + n; pair += step) {
        int pairs = p0 + n - pair < step ? p0 + n - pair : step;
        struct kern_out sums = {thread->gate_up, (size_t)(pairs * each) * KERN_PANEL, false};
        for (int i = 0; i < rows->n_tiles; i++) {
            int row = tile_first_row(rows, i), n_rows = tile_first_row(rows, i + 1) - row;
            multiply(&p, i, each * pair, each * pairs, &sums);
            add_bias(model->kern, m, each * pair, each * pairs, sums.c, sums.ld, n_rows);
            if (delta) delta->add(delta, each * pair, each * pairs, row, n_rows, &sums);
            combine(model, &sums, row, n_rows, pair, pairs, delta, ret);
        }
    }
}

size_t gemm_gate_up_floats(const struct eng_model *model, int max_rows)
{
    size_t few = (size_t)MAX_PAIRS_ROWS * MAX_PAIRS;
    size_t native = (size_t)model->kern->max_rows[model->numerics->act];
    size_t blas = (size_t)max_rows; /* one tile of all rows */
    size_t most = native > blas ? native : blas;
    return (most > few ? most : few) * PAIR_COLUMNS;
}

size_t gemm_corr_numbers(const struct eng_model *model, size_t k_pad)
{
    bool needs = model->numerics->act == KERN_A_I8;
    return needs ? k_pad / KERN_GROUP * (size_t)model->kern->max_rows[KERN_A_I8] : 0;
}

/* ---- items --------------------------------------------------------------------------------- */

int gemm_units_per_item(int n_units, size_t unit_bytes, int n_threads)
{
    enum { ITEMS_PER_THREAD = 3, SMALL_ITEM = 100 << 10, LARGE_ITEM = 512 << 10 };
    assert(n_threads > 0 && n_units > 0 && unit_bytes > 0);
    if (n_threads == 1) return n_units;
    int share = (n_units + n_threads - 1) / n_threads;
    int low = (int)((SMALL_ITEM + unit_bytes - 1) / unit_bytes);
    int high = (int)(LARGE_ITEM / unit_bytes);
    if (high > n_units / (ITEMS_PER_THREAD * n_threads))
        high = n_units / (ITEMS_PER_THREAD * n_threads);
    if (low > share) low = share;
    if (high < low) high = low;
    /* the size that gives the busiest thread the least work; the larger one on a tie */
    int best = high, best_load = 0;
    for (int size = high; size >= low; size--) {
        int n_items = (n_units + size - 1) / size;
        int load = (n_items + n_threads - 1) / n_threads * size;
        if (best_load == 0 || load < best_load) {
            best = size;
            best_load = load;
        }
    }
    /* a matrix too small for many items: one per thread, if that is fairer */
    return best_load > share ? share : best;
}
