/* SPDX-License-Identifier: MIT */
/*
 * Attention: see attention.h for the scheme.
 *
 * Both products run on the matmul kernels: a page holds its keys as a panel of 32 outputs, and its
 * values as panels of 32 inputs. The sums within a split start at the first page that any row of
 * the tile sees: the terms left out, and those of keys that a row must not see, are exactly +0.
 * Pages of int8 are multiplied by rows of int8 in integers (engine/kernels/kv_int8.h).
 */
#include "engine/attention.h"

#include <assert.h>
#include <limits.h>
#include <string.h>

#include "engine/kv/kv.h"
#include "engine/model/model.h"
#include "engine/scratch.h"
#include "engine/step.h"

enum {
    SPLIT_PAGES = ATTN_SPLIT / KV_PAGE_TOKENS,
    STORE_TOKENS = 16, /* of an item: the positions of a page that share cache lines */
};
_Static_assert(ATTN_SPLIT % KV_PAGE_TOKENS == 0, "a split is whole pages");
_Static_assert((int)ATTN_SPLIT <= (int)KERN_MAX_SPLIT, "its value scales have room");

/* Most rows of a tile: scores of more would not stay in the second-level cache. */
enum { MAX_TILE = 32 };

/*
 * Blocks of keys or values (32 positions x 32 dims) that a thread prefetches ahead of those that it
 * multiplies: more than memory's latency, and little of a second-level cache.
 */
enum { BLOCKS_AHEAD = 16 };

/*
 * Most rows of a unit, unless one token has more: its tiles take turns at each split, whose keys
 * and values they then find in the second-level cache.
 */
enum { UNIT_ROWS = 128 };

/* Floats from one row of scores to the next: no power of two, so that all cache sets are used. */
enum { LD_SCORES = ATTN_SPLIT + 16 };

/* Units of a chunk per thread, so that no thread waits long for the last one. */
enum { UNITS_PER_THREAD = 4 };

/*
 * A segment of at most this many tokens, as that of a draft, is one unit per kv head: its time goes
 * into reading keys and values.
 */
enum { FEW_TOKENS = 8 };

/*
 * Most memory for the results of splits computed apart; a unit that does not fit is computed in one
 * piece.
 */
enum { MAX_PARTS_BYTES = 16 << 20 };

/*
 * Most keys and values prefetched for a layer: what a core's share of the last-level cache holds
 * next to the weights that pass through it.
 */
enum { MAX_READS_BYTES = 6 << 20 };

/*
 * A piece of work for one kv head. Rows count (token, query head of the group) pairs of the
 * segment.
 */
struct unit {
    int seg, head;
    int row0, n_rows;
    int split; /* the only split to compute, into part rows part ...; -1: all, merged, finished */
    int part;
    bool stores;  /* its tokens' keys and values are stored first */
    bool streams; /* no other unit reads its keys and values: prefetching them pays */
};

/* Tokens of a segment whose keys and values one item stores. */
struct store {
    int seg, first, n;
};

/* A unit whose splits were computed apart, into its rows of one split after those of another. */
struct merge {
    struct unit u;
    int n_splits;
};

/* The state of a row after some splits. */
struct row_state {
    struct kern_softmax soft;
    bool any; /* false: no key seen yet, acc is not set */
};

/* One split's results of some rows: sums of values [n_rows][d_pad] and their scales. */
struct part {
    float *values;
    struct kern_softmax *soft; /* [n_rows] */
};

/* Keys [lo, hi) that a row of a tile sees, as places in its scores. */
struct seen {
    int lo, hi;
};

struct thread_scratch {
    uint8_t *queries; /* packed tiles of a unit, K = d_pad */
    float *q_scale;   /* int8: [unit_rows][d_pad / 32], and the same of corrections */
    int32_t *q_corr;
    float *scores;  /* [max_tile][LD_SCORES] */
    uint8_t *probs; /* packed tile, K = ATTN_SPLIT */
    float *p_scale; /* int8: [max_tile] */
    struct seen seen[MAX_TILE];
    struct part part; /* of one split and tile */
    float *acc;       /* [unit_rows][d_pad]: merged values; the first split writes here directly */
    struct row_state *rows;           /* [unit_rows] */
    float *head;                      /* [d_pad] */
    struct kern_value_scales *values; /* int8: of a split and 32 dims */
    const void **blocks; /* a split's keys and values in the order of reading, and what follows */
};

struct attn {
    struct attn_params p;
    enum kern_afmt act;
    enum kern_wfmt page_fmt; /* for packing queries */
    kern_matmul_pages_fn *matmul_pages;
    kern_matmul_segs_fn *matmul_segs;
    struct kv_layer shape; /* of its layers' heads in a page */
    const float *ones;     /* [d_head]: weights of the norm of values; or NULL */
    int group;             /* query heads per kv head */
    bool shares;           /* its layers store nothing */
    int max_tile;          /* rows of a tile */
    int unit_rows;         /* of a unit */
    float scale;
    bool encoder;
    float softcap;                  /* of scaled scores; 0: none */
    struct thread_scratch *threads; /* [n_threads] */
    struct part parts;              /* [max_part_rows] */
    int max_part_rows;
    /* of the current step */
    const struct fwd_segment *segs;
    const int *row0;
    struct unit *units; /* [max_units] */
    int n_units, max_units;
    struct store *stores;
    int n_stores;
    struct merge *merges;
    int n_merges, max_merges;
    uint8_t **reads; /* [max_reads]: pages that single tokens read */
    int n_reads, max_reads;
};

/* ---- memory -------------------------------------------------------------------------------- */

static void init_part(struct part *part, struct scratch *s, size_t n_rows, size_t d_pad)
{
    struct part cut = {
        .values = scratch_take(s, n_rows * d_pad, sizeof(float)),
        .soft = scratch_take(s, n_rows, sizeof(struct kern_softmax)),
    };
    if (part) *part = cut;
}

static void init_thread(struct thread_scratch *t, struct scratch *s, size_t n_rows,
                        size_t unit_rows, size_t d_pad, enum kern_kvfmt fmt)
{
    bool ints = fmt == KERN_KV_I8;
    struct thread_scratch cut = {
        .queries = scratch_take(s, unit_rows * d_pad, ints ? 1 : sizeof(float)),
        .q_scale = scratch_take(s, ints ? unit_rows * d_pad / KERN_GROUP : 0, sizeof(float)),
        .q_corr = scratch_take(s, ints ? unit_rows * d_pad / KERN_GROUP : 0, sizeof(int32_t)),
        .scores = scratch_take(s, n_rows * LD_SCORES, sizeof(float)),
        .probs = scratch_take(s, n_rows * ATTN_SPLIT, ints ? sizeof(uint16_t) : sizeof(float)),
        .p_scale = scratch_take(s, ints ? n_rows : 0, sizeof(float)),
        .acc = scratch_take(s, unit_rows * d_pad, sizeof(float)),
        .rows = scratch_take(s, unit_rows, sizeof(struct row_state)),
        .head = scratch_take(s, d_pad, sizeof(float)),
        .values = scratch_take(s, ints ? 1 : 0, sizeof(struct kern_value_scales)),
        .blocks = scratch_take(s, 2 * SPLIT_PAGES * (d_pad / KERN_PANEL) + BLOCKS_AHEAD,
                               sizeof(*cut.blocks)),
    };
    init_part(&cut.part, s, n_rows, d_pad);
    if (t) *t = cut;
}

/* Units of a step that are computed in splits: each is over a quarter of a thread's share. */
static int64_t most_large_units(const struct attn_params *p)
{
    return 4 * (int64_t)p->n_threads;
}

static int count_part_rows(const struct attn_params *p, int group, int d_pad)
{
    int64_t rows = ceil_div(p->ctx, ATTN_SPLIT) * most_large_units(p) * FEW_TOKENS * group;
    int64_t row_bytes = (d_pad + 2) * (int64_t)sizeof(float);
    int64_t most = MAX_PARTS_BYTES / row_bytes;
    return p->n_threads == 1 ? 0 : (int)(rows < most ? rows : most);
}

void attn_layout(struct kv_layout *ret, const struct eng_hparams *hp, enum kern_kvfmt fmt)
{
    kv_layout_init(ret, 0, 0, 0, fmt);
    for (int i = 0; ret->n_layers < hp->n_kv_layers; i++)
        if (hp->layer_mixer[i] == ENG_ATTENTION)
            kv_layout_add(ret, eng_layer_kv_heads(hp, i), eng_layer_d_head(hp, i));
}

int attn_plan(const struct eng_hparams *hp, int layer)
{
    return eng_layer_is_full(hp, layer) + 2 * eng_layer_shares(hp, layer);
}

/* A layer of a plan; -1: it has none. */
static int find_layer(const struct eng_hparams *hp, int plan)
{
    for (int i = 0; i < hp->n_layers; i++)
        if (hp->layer_mixer[i] == ENG_ATTENTION && attn_plan(hp, i) == plan) return i;
    return -1;
}

static int larger(int a, int b)
{
    return a > b ? a : b;
}

/* One plan, which has the threads' memory of all. */
static struct attn *init_plan(struct scratch *s, struct attn a, int layer)
{
    const struct attn_params *p = &a.p;
    const struct eng_hparams *hp = &p->model->hp;
    a.shape = p->layout->layers[p->model->layers[layer].place];
    a.group = hp->n_heads / a.shape.n_heads;
    a.shares = eng_layer_shares(hp, layer);
    a.unit_rows = larger(a.group, UNIT_ROWS);
    a.max_merges = (int)most_large_units(p);
    size_t kv_heads = (size_t)a.shape.n_heads, max_rows = (size_t)p->max_rows;
    size_t max_splits = (size_t)(ceil_div(p->ctx, ATTN_SPLIT) * most_large_units(p));
    size_t max_units = max_rows * kv_heads + max_splits;
    struct attn *ret = scratch_take(s, 1, sizeof(*ret));
    a.max_units = max_units < INT_MAX ? (int)max_units : INT_MAX;
    a.units = scratch_take(s, max_units, sizeof(*a.units));
    a.stores = scratch_take(s, a.shares ? 0 : max_rows, sizeof(*a.stores));
    a.merges = scratch_take(s, (size_t)a.max_merges, sizeof(*a.merges));
    size_t run_bytes = 2 * a.shape.panel_bytes * kv_heads;
    a.max_reads = run_bytes < MAX_READS_BYTES ? (int)(MAX_READS_BYTES / run_bytes) : 1;
    a.reads = scratch_take(s, (size_t)a.max_reads, sizeof(*a.reads));
    if (ret) *ret = a;
    return ret;
}

void attn_init(struct scratch *s, const struct attn_params *params, struct attn *ret[ATTN_PLANS])
{
    const struct eng_hparams *hp = &params->model->hp;
    const struct kv_layout *l = params->layout;
    const struct kern *kern = params->model->kern;
    struct attn all = {.p = *params};
    static const enum kern_afmt acts[] = {KERN_A_F32, KERN_A_BF16, KERN_A_I8};
    static const enum kern_wfmt fmts[] = {KERN_W_F32, KERN_W_BF16, KERN_W_I8};
    all.act = acts[l->fmt];
    all.page_fmt = fmts[l->fmt];
    all.matmul_pages = kern->matmul_pages[all.act];
    all.matmul_segs = kern->matmul_segs[all.act];
    int most = kern->max_rows[l->fmt == KERN_KV_F32 ? KERN_A_F32 : KERN_A_BF16]; /* int8: any */
    all.max_tile = most < MAX_TILE ? most : MAX_TILE;
    all.scale = (float)hp->attn_scale;
    all.encoder = hp->encoder;
    all.softcap = (float)hp->attn_softcap;
    int group = 1, d_pad = 0;
    for (int i = 0; i < l->n_layers; i++) {
        group = larger(group, hp->n_heads / l->layers[i].n_heads);
        d_pad = larger(d_pad, l->layers[i].d_pad);
    }
    all.max_part_rows = count_part_rows(params, group, d_pad);
    float *ones = scratch_take(s, hp->v_norm ? (size_t)d_pad : 0, sizeof(*ones));
    for (int i = 0; ones && hp->v_norm && i < d_pad; i++)
        ones[i] = 1;
    all.ones = ones;
    all.threads = scratch_take(s, (size_t)params->n_threads, sizeof(*all.threads));
    for (int i = 0; i < params->n_threads; i++)
        init_thread(s->base ? &all.threads[i] : NULL, s, (size_t)all.max_tile,
                    (size_t)larger(group, UNIT_ROWS), (size_t)d_pad, l->fmt);
    init_part(s->base ? &all.parts : NULL, s, (size_t)all.max_part_rows, (size_t)d_pad);
    for (int i = 0; i < ATTN_PLANS; i++) {
        int layer = find_layer(hp, i);
        ret[i] = layer < 0 ? NULL : init_plan(s, all, layer);
    }
}

/* ---- the step's items ---------------------------------------------------------------------- */

static void add_stores(struct attn *a, int seg)
{
    const struct fwd_segment *s = &a->segs[seg];
    for (int first = 0; first < s->n_tokens;) {
        int n = STORE_TOKENS - (int)((s->pos0 + first) % STORE_TOKENS);
        if (n > s->n_tokens - first) n = s->n_tokens - first;
        a->stores[a->n_stores++] = (struct store){seg, first, n};
        first += n;
    }
}

static int n_splits_of(const struct attn *a, const struct unit *u)
{
    int64_t last = a->segs[u->seg].pos0 + (u->row0 + u->n_rows - 1) / a->group;
    return ceil_div(a->encoder ? a->segs[u->seg].n_tokens : last + 1, ATTN_SPLIT);
}

/* The threads share the splits of a unit. Returns false if there is no room. */
static bool add_splits(struct attn *a, const struct unit *u, int *n_part_rows)
{
    int n_splits = n_splits_of(a, u);
    if (n_splits * u->n_rows > a->max_part_rows - *n_part_rows || a->n_merges == a->max_merges)
        return false;
    struct unit one = *u;
    one.part = *n_part_rows;
    a->merges[a->n_merges++] = (struct merge){one, n_splits};
    for (one.split = 0; one.split < n_splits; one.split++, one.part += u->n_rows)
        a->units[a->n_units++] = one;
    *n_part_rows = one.part;
    return true;
}

/* Units of a segment per kv head. */
static int units_per_head(const struct attn *a, int seg)
{
    int n_tokens = a->segs[seg].n_tokens, n_rows = n_tokens * a->group;
    int n = ceil_div(n_rows, a->unit_rows), tiles = ceil_div(n_rows, a->max_tile);
    int wanted = ceil_div(UNITS_PER_THREAD * a->p.n_threads, a->shape.n_heads);
    if (wanted > tiles) wanted = tiles;
    if (wanted > n_tokens) wanted = n_tokens;
    return n_tokens <= FEW_TOKENS || n > wanted ? n : wanted;
}

/*
 * A segment: per kv head its units, so that neighbouring ones share keys in a cache; the last ones,
 * which see most, first. Large ones are computed in splits. A unit that has the head for itself
 * stores its tokens' keys and values, unless others read them.
 */
static void add_segment(struct attn *a, int seg, bool large, int *n_part_rows)
{
    const struct fwd_segment *s = &a->segs[seg];
    int n = units_per_head(a, seg), n_rows = s->n_tokens * a->group;
    struct unit u = {.seg = seg, .split = -1, .streams = n == 1};
    int n_pages = ceil_div(s->pos0, KV_PAGE_TOKENS);
    bool alone = n == 1 && !large;
    u.stores = alone && !a->shares;
    for (int i = 0; alone && i < n_pages && a->n_reads < a->max_reads; i++)
        a->reads[a->n_reads++] = s->pages[i];
    if (!alone && !a->shares) add_stores(a, seg);
    for (u.head = 0; u.head < a->shape.n_heads; u.head++)
        for (int i = n - 1; i >= 0; i--) {
            u.row0 = (int)((int64_t)n_rows * i / n);
            u.n_rows = (int)((int64_t)n_rows * (i + 1) / n) - u.row0;
            if (!large || !add_splits(a, &u, n_part_rows)) a->units[a->n_units++] = u;
        }
}

/* Pages that the units of a segment read for one kv head. */
static int64_t pages_read(const struct attn *a, int seg)
{
    const struct fwd_segment *s = &a->segs[seg];
    return units_per_head(a, seg) * (int64_t)ceil_div(s->pos0 + s->n_tokens, KV_PAGE_TOKENS);
}

void attn_begin(struct attn *a, const struct fwd_segment *segs, const int *row0, int n_segs,
                int ret_n_items[ATTN_PHASES])
{
    a->segs = segs;
    a->row0 = row0;
    a->n_units = a->n_stores = a->n_merges = a->n_reads = 0;
    int n_part_rows = 0, n_heads = a->shape.n_heads;
    int64_t total = 0;
    for (int i = 0; i < n_segs; i++)
        total += pages_read(a, i) * n_heads;
    for (int i = 0; i < n_segs; i++) {
        /* the other threads would wait for a unit of more than a quarter of a share */
        int64_t pages = pages_read(a, i) / units_per_head(a, i);
        bool large = a->p.n_threads > 1 && segs[i].n_tokens <= FEW_TOKENS && pages > SPLIT_PAGES &&
                     pages * most_large_units(&a->p) > total;
        add_segment(a, i, large, &n_part_rows);
    }
    assert(n_part_rows <= a->max_part_rows && a->n_units <= a->max_units);
    assert(a->n_stores <= a->p.max_rows);
    ret_n_items[0] = a->n_stores;
    ret_n_items[1] = a->n_units;
    ret_n_items[2] = a->n_merges;
}

/* Where a layer is in the pages. An encoder's hold one, which the next one overwrites. */
static int kv_layer(const struct attn *a, int layer)
{
    return a->p.model->layers[layer].place;
}

struct gemm_blocks attn_reads(const struct attn *a, int layer)
{
    const struct kv_layout *l = a->p.layout;
    return (struct gemm_blocks){
        .runs = a->reads,
        .offset = kv_key_offset(l, kv_layer(a, layer), 0),
        .block_bytes = 2 * a->shape.panel_bytes,
        .per_run = a->shape.n_heads,
        .end = a->n_reads * a->shape.n_heads,
    };
}

/* ---- one row ------------------------------------------------------------------------------- */

/* The query or key of one head: its RMSNorm and RoPE, if the layer has them. */
static void prepare_head(const struct attn *a, int layer, const float *x, const float *norm,
                         int64_t pos, float *o)
{
    const struct eng_model *m = a->p.model;
    const struct eng_layer *l = &m->layers[layer];
    const struct kern *kern = m->kern;
    int d = a->shape.d_head, n_pairs = eng_layer_pairs(&m->hp, layer);
    float eps = (float)m->hp.rms_eps;
    if (m->hp.qk_norm == ENG_QK_NORM_HEAD)
        kern->rmsnorm(x, norm, o, d, eps);
    else
        memcpy(o, x, (size_t)d * sizeof(*o));
    size_t at = (size_t)pos * (size_t)n_pairs;
    if (l->rope_cos)
        kern->rope(o, l->rope_cos + at, l->rope_sin + at, n_pairs, eng_layer_apart(&m->hp, layer));
    if (m->hp.qk_norm == ENG_QK_NORM_AFTER_ROPE) kern->rmsnorm(o, norm, o, d, eps);
}

/*
 * Zeroes the values after the last token of a text, which may be those of another one: a masked
 * probability of 0 times their NaN would be NaN.
 */
static void clear_tail(const struct attn *a, uint8_t *page, int layer, int head, int slot,
                       float *tmp)
{
    const struct kv_layout *l = a->p.layout;
    memset(tmp, 0, (size_t)a->shape.d_head * sizeof(*tmp));
    while (++slot < KV_PAGE_TOKENS)
        a->p.model->kern->put_value[l->fmt](page + kv_value_offset(l, layer, head), tmp,
                                            a->shape.d_head, a->shape.d_pad, slot);
}

/* Key and value of one token and kv head into its page. */
static void store_token(struct attn *a, int layer, int seg, int token, int head, float *tmp)
{
    const struct eng_hparams *hp = &a->p.model->hp;
    const struct kern *kern = a->p.model->kern;
    const struct kv_layout *l = a->p.layout;
    const float *row = a->p.qkv + (size_t)(a->row0[seg] + token) * a->p.ld_qkv;
    int d = a->shape.d_head, d_pad = a->shape.d_pad;
    const float *key = row + (size_t)(hp->n_heads + head) * (size_t)d;
    const float *value = key + (size_t)a->shape.n_heads * (size_t)d;
    int64_t pos = a->segs[seg].pos0 + token;
    uint8_t *page = a->segs[seg].pages[pos / KV_PAGE_TOKENS];
    int slot = (int)(pos % KV_PAGE_TOKENS), at = kv_layer(a, layer);

    if (hp->keys_are_values && eng_layer_is_full(hp, layer)) value = key;
    if (hp->v_norm) {
        kern->rmsnorm(value, a->ones, tmp, d, (float)hp->rms_eps);
        value = tmp;
    }
    kern->put_value[l->fmt](page + kv_value_offset(l, at, head), value, d, d_pad, slot);
    prepare_head(a, layer, key, a->p.model->layers[layer].k_norm, pos, tmp);
    const float *centre = l->key_centre;
    if (centre) centre += kv_first_dim(l, at, head);
    for (int i = 0; centre && i < d; i++)
        tmp[i] -= centre[i];
    kern->put_key[l->fmt](page + kv_key_offset(l, at, head), tmp, d, d_pad, slot);
    if (a->encoder && token == a->segs[seg].n_tokens - 1) clear_tail(a, page, at, head, slot, tmp);
}

void attn_store_item(struct attn *a, int layer, int item, int thread)
{
    const struct store *s = &a->stores[item];
    for (int i = 0; i < s->n; i++)
        for (int head = 0; head < a->shape.n_heads; head++)
            store_token(a, layer, s->seg, s->first + i, head, a->threads[thread].head);
}

static int64_t row_position(const struct attn *a, const struct unit *u, int row)
{
    return a->segs[u->seg].pos0 + (u->row0 + row) / a->group;
}

/* The i-th tile of a unit's rows, as a unit; *ret_row: its first row within the unit. */
static struct unit tile_of(const struct attn *a, const struct unit *u, int i, int *ret_row)
{
    int n = ceil_div(u->n_rows, a->max_tile);
    int row = u->n_rows * i / n, end = u->n_rows * (i + 1) / n;
    struct unit tile = *u;
    tile.row0 += row;
    tile.n_rows = end - row;
    *ret_row = row;
    return tile;
}

static struct kern_tile query_tile(const struct attn *a, const struct unit *tile, int row,
                                   const struct thread_scratch *t)
{
    size_t at = (size_t)row * (size_t)a->shape.d_pad, groups = at / KERN_GROUP;
    if (a->act != KERN_A_I8)
        return (struct kern_tile){.data = t->queries + at * sizeof(float), .n_rows = tile->n_rows};
    return (struct kern_tile){t->queries + at, t->q_scale + groups, t->q_corr + groups,
                              tile->n_rows};
}

/* Rotated queries of the rows of a tile, packed. */
static void pack_queries(struct attn *a, int layer, const struct unit *u, int row,
                         struct thread_scratch *t)
{
    const struct eng_model *m = a->p.model;
    struct kern_tile tile = query_tile(a, u, row, t);
    for (int i = 0; i < u->n_rows; i++) {
        int token = (u->row0 + i) / a->group, head = u->head * a->group + (u->row0 + i) % a->group;
        const float *q = a->p.qkv + (size_t)(a->row0[u->seg] + token) * a->p.ld_qkv +
                         (size_t)head * (size_t)a->shape.d_head;
        prepare_head(a, layer, q, m->layers[layer].q_norm, row_position(a, u, i), t->head);
        m->kern->pack_row[a->act](t->head, a->shape.d_head, a->shape.d_pad, a->page_fmt, &tile, i);
    }
}

/* Keys [lo, hi) that a row of a unit sees within a split: both 0 if there are none. */
struct range {
    int64_t lo, hi;
};

static struct range visible_range(const struct attn *a, const struct unit *u, int row, int window,
                                  int split)
{
    struct range r = {(int64_t)split * ATTN_SPLIT, (int64_t)(split + 1) * ATTN_SPLIT};
    int64_t pos = row_position(a, u, row), n_tokens = a->segs[u->seg].n_tokens;
    int64_t lo = window > 0 ? pos + 1 - window : 0, hi = pos + 1;
    if (a->encoder) {
        lo = window > 0 ? pos - window : 0;
        hi = window > 0 && hi + window < n_tokens ? hi + window : n_tokens;
    }
    if (lo > r.lo) r.lo = lo;
    if (hi < r.hi) r.hi = hi;
    return r.lo < r.hi ? r : (struct range){0, 0};
}

/* ---- one split ----------------------------------------------------------------------------- */

static int last_split(const struct attn *a, const struct unit *u)
{
    return n_splits_of(a, u) - 1;
}

/* Pages that any row of a unit sees in a split. */
struct pages {
    int64_t first;
    int n; /* 0: none */
};

static struct pages visible_pages(const struct attn *a, const struct unit *u, int window, int split)
{
    struct range low = visible_range(a, u, 0, window, split);
    struct range high = visible_range(a, u, u->n_rows - 1, window, split);
    if (low.hi == 0 && high.hi == 0) return (struct pages){0, 0};
    /* the first row may be before the split, the last one's window after it */
    int64_t lo = low.hi > 0 ? low.lo : (int64_t)split * ATTN_SPLIT;
    int64_t hi = high.hi > 0 ? high.hi : (int64_t)(split + 1) * ATTN_SPLIT;
    int64_t first = lo / KV_PAGE_TOKENS;
    return (struct pages){first, (int)((hi - 1) / KV_PAGE_TOKENS - first + 1)};
}

/*
 * At most `most` blocks of keys and values of a unit's pages in the order in which they are read:
 * per page its keys, then per 32 dims the values of all pages. Returns their number.
 */
static int list_blocks(const struct attn *a, int layer, const struct unit *u,
                       const struct pages *pages, int most, const void **ret)
{
    const struct kv_layout *l = a->p.layout;
    uint8_t *const *data = a->segs[u->seg].pages + pages->first;
    int n_dims = a->shape.d_pad / KERN_PANEL, half = pages->n * n_dims;
    size_t block_bytes = KERN_PANEL * l->dim_bytes;
    layer = kv_layer(a, layer);
    size_t keys = kv_key_offset(l, layer, u->head), values = kv_value_offset(l, layer, u->head);
    for (int i = 0; i < half && i < most; i++)
        ret[i] = data[i / n_dims] + keys + (size_t)(i % n_dims) * block_bytes;
    for (int i = half; i < 2 * half && i < most; i++) {
        int dims = (i - half) / pages->n, page = (i - half) % pages->n;
        ret[i] = data[page] + values + (size_t)dims * block_bytes;
    }
    return 2 * half < most ? 2 * half : most;
}

/* Pages of the first split, from `split` on, of which a unit sees any. */
static struct pages next_pages(const struct attn *a, const struct unit *u, int window, int split)
{
    int last = u->split >= 0 ? u->split : last_split(a, u);
    struct pages pages = {0, 0};
    for (; split <= last && pages.n == 0; split++)
        pages = visible_pages(a, u, window, split);
    return pages;
}

/* Lists the blocks of a split, then those that the thread reads next. */
static void plan_reading(struct attn *a, int layer, const struct unit *u, const struct pages *pages,
                         int split, const struct unit *next, struct thread_scratch *t)
{
    int window = a->p.model->layers[layer].window;
    int n = list_blocks(a, layer, u, pages, INT_MAX, t->blocks), n_ahead = 0;
    if (!u->streams) return;
    struct pages later = next_pages(a, u, window, split + 1);
    if (later.n == 0 && next) {
        u = next;
        later = next_pages(a, u, window, u->split >= 0 ? u->split : 0);
    }
    if (later.n > 0) n_ahead = list_blocks(a, layer, u, &later, BLOCKS_AHEAD, t->blocks + n);
    for (; n_ahead < BLOCKS_AHEAD; n_ahead++)
        t->blocks[n + n_ahead] = NULL;
}

/* The part of t->blocks that a tile reads: n pages from `skip` on, of n_all listed there. */
struct reading {
    int skip, n, n_all;
    bool streams; /* and prefetches what follows */
};

/* Scores of a tile with the keys of some pages: t->scores [n_rows][LD_SCORES]. */
static void score(struct attn *a, const struct reading *r, const struct kern_tile *queries,
                  struct thread_scratch *t)
{
    int n_dims = a->shape.d_pad / KERN_PANEL, n_pages = r->n;
    const void *panels[SPLIT_PAGES], **blocks = t->blocks + r->skip * n_dims;
    struct kern_pages pages = {panels, n_pages, r->streams ? blocks + BLOCKS_AHEAD : NULL,
                               KERN_PANEL * a->p.layout->dim_bytes};
    struct kern_out out = {t->scores, LD_SCORES, false};
    for (int i = 0; i < n_pages; i++)
        panels[i] = blocks[i * n_dims];
    a->matmul_pages(queries, a->shape.d_pad, &pages, &out);
}

/* Adds to the scores of a row with the keys of a range what their distance says. */
static void add_distances(const struct attn *a, const struct unit *u, int row,
                          const struct range *r, float *scores)
{
    const struct eng_model *m = a->p.model;
    if (!m->distance_bias) return;
    int head = u->head * a->group + (u->row0 + row) % a->group;
    const float *bias = m->distance_bias + (size_t)head * (size_t)(2 * m->ctx - 1) + (m->ctx - 1);
    m->kern->add(scores, bias + (r->lo - row_position(a, u, row)), (int)(r->hi - r->lo));
}

/*
 * Scores to probabilities (not yet divided by their sum), packed for the product with the values;
 * for int8 pages they are packed later, for each 32 dims.
 */
static struct kern_tile softmax(struct attn *a, const struct unit *u, int window, int split,
                                const struct pages *pages, struct thread_scratch *t,
                                struct kern_softmax *soft)
{
    const struct kern *kern = a->p.model->kern;
    struct kern_tile tile = {.data = t->probs, .scale = t->p_scale, .n_rows = u->n_rows};
    int n = pages->n * KV_PAGE_TOKENS;
    int64_t base = pages->first * KV_PAGE_TOKENS;
    for (int i = 0; i < u->n_rows; i++) {
        struct range r = visible_range(a, u, i, window, split);
        int lo = r.hi > 0 ? (int)(r.lo - base) : 0, hi = r.hi > 0 ? (int)(r.hi - base) : 0;
        float *s = t->scores + (size_t)i * LD_SCORES;
        t->seen[i] = (struct seen){lo, hi};
        add_distances(a, u, i, &r, s + lo);
        if (a->softcap > 0) kern->softcap(s, n, a->scale, a->softcap);
        float scale = a->softcap > 0 ? 1 : a->scale;
        if (a->act == KERN_A_BF16 && kern->softmax_pack) {
            soft[i] = kern->softmax_pack(s, n, lo, hi, scale, &tile, i);
            continue;
        }
        soft[i] = kern->softmax_keys(s, n, lo, hi, scale);
        if (a->act != KERN_A_I8) kern->pack_row[a->act](s, n, n, a->page_fmt, &tile, i);
    }
    return tile;
}

/* Packs the probabilities of a tile for the int8 values of 32 dims. */
static void pack_probs(struct attn *a, const void *const *blocks, int n_pages,
                       const struct kern_tile *probs, struct thread_scratch *t)
{
    const struct kern *kern = a->p.model->kern;
    kern->read_scales(blocks, n_pages, t->values);
    for (int i = 0; i < probs->n_rows; i++)
        kern->pack_probs(t->scores + (size_t)i * LD_SCORES, t->seen[i].lo, t->seen[i].hi, t->values,
                         probs, i);
}

/* Probabilities times the values of the pages: [n_rows][d_pad]. */
static void weigh_values(struct attn *a, const struct reading *r, const struct kern_tile *probs,
                         struct thread_scratch *t, float *values)
{
    int n_dims = a->shape.d_pad / KERN_PANEL, n_pages = r->n;
    const void **blocks = t->blocks + r->n_all * n_dims + r->skip;
    for (int d = 0; d < n_dims; d++, blocks += r->n_all) {
        struct kern_pages pages = {blocks, n_pages, r->streams ? blocks + BLOCKS_AHEAD : NULL,
                                   KERN_PANEL * a->p.layout->dim_bytes};
        struct kern_out out = {values + d * KERN_PANEL, (size_t)a->shape.d_pad, false};
        if (a->act == KERN_A_I8) pack_probs(a, blocks, n_pages, probs, t);
        a->matmul_segs(probs, &pages, &out);
    }
}

/* ---- merging splits ------------------------------------------------------------------------ */

/* Merges one split's result into a row's: always in ascending order of splits. */
static void merge_row(const struct kern *kern, struct row_state *row, float *acc,
                      const struct kern_softmax *soft, const float *values, int d_pad)
{
    if (!row->any) {
        if (values != acc) memcpy(acc, values, (size_t)d_pad * sizeof(*acc));
        *row = (struct row_state){*soft, true};
        return;
    }
    kern->merge_softmax(&row->soft, acc, soft, values, d_pad);
}

/* Merges a split into the rows of a tile that see it; the tile's first row is `row` of the unit. */
static void merge_split(struct attn *a, int layer, const struct unit *tile, int row, int split,
                        const struct part *part, struct thread_scratch *t)
{
    int window = a->p.model->layers[layer].window, d_pad = a->shape.d_pad;
    for (int i = 0; i < tile->n_rows; i++) {
        if (visible_range(a, tile, i, window, split).hi == 0) continue;
        float *acc = t->acc + (size_t)(row + i) * (size_t)d_pad;
        merge_row(a->p.model->kern, &t->rows[row + i], acc, &part->soft[i],
                  part->values + (size_t)i * (size_t)d_pad, d_pad);
    }
}

/* Divides by the sums, applies the gates and writes the heads' outputs. */
static void finish_rows(struct attn *a, const struct unit *u, struct thread_scratch *t)
{
    const struct eng_hparams *hp = &a->p.model->hp;
    const struct kern *kern = a->p.model->kern;
    ptrdiff_t d = a->shape.d_head;
    for (int i = 0; i < u->n_rows; i++) {
        int token = (u->row0 + i) / a->group, head = u->head * a->group + (u->row0 + i) % a->group;
        size_t row = (size_t)(a->row0[u->seg] + token);
        float *o = a->p.out + row * a->p.ld_out + head * d;
        memcpy(o, t->acc + (size_t)i * (size_t)a->shape.d_pad, (size_t)d * sizeof(*o));
        kern->scale(o, 1.0f / t->rows[i].soft.sum, (int)d);
        if (hp->attn_gate)
            kern->glu[KERN_ACT_SIGMOID](a->p.qkv + row * a->p.ld_qkv - (hp->n_heads - head) * d, o,
                                        o, (int)d);
    }
}

static void clear_rows(const struct unit *u, struct thread_scratch *t)
{
    for (int i = 0; i < u->n_rows; i++)
        t->rows[i].any = false;
}

/* ---- items --------------------------------------------------------------------------------- */

/* The unit this thread will probably take next, if it is worth prefetching. */
static const struct unit *guess_next(const struct attn *a, int item)
{
    int next = item + a->p.n_threads;
    return next < a->n_units && a->units[next].streams ? &a->units[next] : NULL;
}

/* Returns true if no row of a tile has seen a key. */
static bool is_first(const struct unit *tile, int row, const struct thread_scratch *t)
{
    for (int i = 0; i < tile->n_rows; i++)
        if (t->rows[row + i].any) return false;
    return true;
}

static struct part part_at(const struct attn *a, int row)
{
    return (struct part){a->parts.values + (size_t)row * (size_t)a->shape.d_pad,
                         a->parts.soft + row};
}

/* One split of all tiles of a unit: into the unit's part rows, or merged. */
static void attend_split(struct attn *a, int layer, const struct unit *u, int split,
                         const struct unit *next, struct thread_scratch *t)
{
    int window = a->p.model->layers[layer].window, n_tiles = ceil_div(u->n_rows, a->max_tile);
    struct pages all = visible_pages(a, u, window, split);
    if (all.n == 0) return;
    plan_reading(a, layer, u, &all, split, next, t);
    for (int i = 0; i < n_tiles; i++) {
        int row;
        struct unit tile = tile_of(a, u, i, &row);
        struct pages pages = visible_pages(a, &tile, window, split);
        if (pages.n == 0) continue;
        struct reading r = {(int)(pages.first - all.first), pages.n, all.n, u->streams && i == 0};
        struct part part = t->part;
        if (u->split >= 0)
            part = part_at(a, u->part + row);
        else if (is_first(&tile, row, t))
            part.values = t->acc + (size_t)row * (size_t)a->shape.d_pad;
        struct kern_tile queries = query_tile(a, &tile, row, t);
        score(a, &r, &queries, t);
        struct kern_tile probs = softmax(a, &tile, window, split, &pages, t, part.soft);
        weigh_values(a, &r, &probs, t, part.values);
        if (u->split < 0) merge_split(a, layer, &tile, row, split, &part, t);
    }
}

void attn_item(struct attn *a, int layer, int item, int thread)
{
    const struct unit *u = &a->units[item], *next = guess_next(a, item);
    struct thread_scratch *t = &a->threads[thread];
    for (int i = 0; u->stores && i < a->segs[u->seg].n_tokens; i++)
        store_token(a, layer, u->seg, i, u->head, t->head);
    for (int i = 0; i < ceil_div(u->n_rows, a->max_tile); i++) {
        int row;
        struct unit tile = tile_of(a, u, i, &row);
        pack_queries(a, layer, &tile, row, t);
    }
    clear_rows(u, t);
    if (u->split >= 0) {
        attend_split(a, layer, u, u->split, next, t);
        return;
    }
    for (int split = 0; split <= last_split(a, u); split++)
        attend_split(a, layer, u, split, next, t);
    finish_rows(a, u, t);
}

void attn_merge_item(struct attn *a, int layer, int item, int thread)
{
    const struct merge *m = &a->merges[item];
    struct thread_scratch *t = &a->threads[thread];
    clear_rows(&m->u, t);
    for (int split = 0; split < m->n_splits; split++) {
        struct part part = part_at(a, m->u.part + split * m->u.n_rows);
        merge_split(a, layer, &m->u, 0, split, &part, t);
    }
    finish_rows(a, &m->u, t);
}
