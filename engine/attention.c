/* SPDX-License-Identifier: MIT */
/*
 * Attention: see attention.h for the scheme.
 *
 * Both products run on the matmul kernels: a page holds its keys as a panel of 32 outputs, and its
 * values as panels of 32 inputs. The sums within a split start at the first page that any row of
 * the tile sees: the terms left out, and those of keys that a row must not see, are exactly +0.
 */
#include "engine/attention.h"

#include <assert.h>
#include <limits.h>
#include <math.h>
#include <string.h>

#include "engine/kv.h"
#include "engine/model/model.h"
#include "engine/scratch.h"
#include "engine/step.h"

enum {
    SPLIT_PAGES = ATTN_SPLIT / KV_PAGE_TOKENS,
    STORE_TOKENS = 16, /* of an item: the positions of a page that share cache lines */
};
_Static_assert(ATTN_SPLIT % KV_PAGE_TOKENS == 0, "a split is whole pages");

/* Most rows of a tile: scores of more would not stay in the second-level cache. */
enum { MAX_TILE = 32 };

/*
 * Blocks of keys or values (32 positions x 32 dims) that a thread prefetches ahead of those that it
 * multiplies: more than memory's latency, and little of a second-level cache.
 */
enum { BLOCKS_AHEAD = 8 };

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
    int split; /* the only split to compute, into parts[part]; -1: all, merged and finished */
    int part;
    bool stores;  /* a single token: its key and value are stored first */
    bool streams; /* no other unit reads its keys and values: prefetching them pays */
};

/* Tokens of a segment whose keys and values one item stores. */
struct store {
    int seg, first, n;
};

/* Rows whose splits were computed apart, in parts[part] and the ones after it. */
struct merge {
    int seg, head, part, n_splits;
};

/* The state of a row after some splits. */
struct row_state {
    float max, sum;
    bool any; /* false: no key seen yet, acc is not set */
};

/* One split's results of a tile: sums of values [n_rows][d_pad] and their scales. */
struct part {
    float *values;
    struct kern_softmax *soft; /* [n_rows] */
};

struct thread_scratch {
    uint8_t *queries; /* packed tile, K = d_pad */
    float *scores;    /* [max_tile][ATTN_SPLIT] */
    uint8_t *probs;   /* packed tile, K = ATTN_SPLIT */
    struct part part; /* of one split */
    float *acc;       /* [max_tile][d_pad]: merged values; the first split writes here directly */
    struct row_state *rows; /* [max_tile] */
    float *head;            /* [d_pad] */
    uint8_t *panels;        /* int8 pages: a key panel, or a split's value panels, as bf16 */
    const void **blocks; /* a split's keys and values in the order of reading, and what follows */
};

struct attn {
    struct attn_params p;
    enum kern_afmt act;
    enum kern_wfmt page_fmt; /* of the panels multiplied: int8 pages become bf16 first */
    kern_matmul_pages_fn *matmul_pages;
    kern_matmul_segs_fn *matmul_segs;
    int group;    /* query heads per kv head */
    int max_tile; /* rows of a tile */
    float scale;
    struct thread_scratch *threads; /* [n_threads] */
    struct part *parts;             /* [max_parts] */
    int max_parts;
    /* of the current step */
    const struct fwd_segment *segs;
    const int *row0;
    struct unit *units; /* [max_units] */
    int n_units, max_units;
    struct store *stores;
    int n_stores;
    struct merge *merges;
    int n_merges;
    uint8_t **reads; /* [max_reads]: pages that single tokens read */
    int n_reads, max_reads;
};

/* ---- memory -------------------------------------------------------------------------------- */

static int ceil_div(int64_t a, int64_t b)
{
    return (int)((a + b - 1) / b);
}

static void init_part(struct part *part, struct scratch *s, size_t n_rows, size_t d_pad)
{
    struct part cut = {
        .values = scratch_take(s, n_rows * d_pad, sizeof(float)),
        .soft = scratch_take(s, n_rows, sizeof(struct kern_softmax)),
    };
    if (part) *part = cut;
}

/* Of an int8 value panel as bf16. */
enum { VALUE_ROOM_BYTES = 2 * KERN_PANEL * KV_PAGE_TOKENS };

static size_t panels_bytes(enum kern_kvfmt fmt, size_t d_pad)
{
    size_t key = kern_panel_bytes(KERN_W_BF16, (int)d_pad);
    size_t values = SPLIT_PAGES * VALUE_ROOM_BYTES;
    return fmt != KERN_KV_I8 ? 0 : key > values ? key : values;
}

static void init_thread(struct thread_scratch *t, struct scratch *s, size_t n_rows, size_t d_pad,
                        enum kern_kvfmt fmt)
{
    struct thread_scratch cut = {
        .queries = scratch_take(s, n_rows * d_pad, sizeof(float)),
        .scores = scratch_take(s, n_rows * ATTN_SPLIT, sizeof(float)),
        .probs = scratch_take(s, n_rows * ATTN_SPLIT, sizeof(float)),
        .acc = scratch_take(s, n_rows * d_pad, sizeof(float)),
        .rows = scratch_take(s, n_rows, sizeof(struct row_state)),
        .head = scratch_take(s, d_pad, sizeof(float)),
        .panels = scratch_take(s, panels_bytes(fmt, d_pad), 1),
        .blocks = scratch_take(s, 2 * SPLIT_PAGES * (d_pad / KERN_PANEL) + BLOCKS_AHEAD,
                               sizeof(*cut.blocks)),
    };
    init_part(&cut.part, s, n_rows, d_pad);
    if (t) *t = cut;
}

/* As many (segment, kv head, split) as it takes to keep all threads busy with long contexts. */
static int count_parts(const struct attn_params *p, int group)
{
    int64_t splits = ceil_div(p->ctx, ATTN_SPLIT);
    int64_t heads = 4 * (int64_t)p->n_threads + p->layout->n_kv_heads;
    size_t part_bytes = (size_t)group * ((size_t)p->layout->d_pad + 2) * sizeof(float);
    int64_t most = MAX_PARTS_BYTES / (int64_t)part_bytes;
    return (int)(splits * heads < most ? splits * heads : most);
}

struct attn *attn_init(struct scratch *s, const struct attn_params *params)
{
    const struct eng_hparams *hp = &params->model->hp;
    const struct kern *kern = params->model->kern;
    struct attn zero = {.p = *params};
    bool f32 = params->layout->fmt == KERN_KV_F32;
    zero.act = f32 ? KERN_A_F32 : KERN_A_BF16;
    zero.page_fmt = f32 ? KERN_W_F32 : KERN_W_BF16;
    zero.matmul_pages = kern->matmul_pages[zero.act];
    zero.matmul_segs = kern->matmul_segs[zero.act];
    zero.group = hp->n_heads / hp->n_kv_heads;
    zero.max_tile = kern->max_rows[zero.act] < MAX_TILE ? kern->max_rows[zero.act] : MAX_TILE;
    zero.scale = (float)(1.0 / sqrt((double)hp->d_head));
    zero.max_parts = count_parts(params, zero.group);

    size_t kv_heads = (size_t)hp->n_kv_heads, max_rows = (size_t)params->max_rows;
    size_t tiles_per_row = (size_t)ceil_div(zero.group, zero.max_tile);
    size_t max_parts = (size_t)zero.max_parts;
    struct attn *a = scratch_take(s, 1, sizeof(*a));
    zero.threads = scratch_take(s, (size_t)params->n_threads, sizeof(*zero.threads));
    zero.parts = scratch_take(s, max_parts, sizeof(*zero.parts));
    size_t max_units = max_rows * tiles_per_row * kv_heads + max_parts;
    zero.max_units = max_units < INT_MAX ? (int)max_units : INT_MAX;
    zero.units = scratch_take(s, max_units, sizeof(*zero.units));
    zero.stores = scratch_take(s, max_rows, sizeof(*zero.stores));
    zero.merges = scratch_take(s, (size_t)params->max_segs * kv_heads, sizeof(*zero.merges));
    size_t run_bytes = 2 * params->layout->panel_bytes * kv_heads;
    zero.max_reads = run_bytes < MAX_READS_BYTES ? (int)(MAX_READS_BYTES / run_bytes) : 1;
    zero.reads = scratch_take(s, (size_t)zero.max_reads, sizeof(*zero.reads));
    for (int i = 0; i < params->n_threads; i++)
        init_thread(a ? &zero.threads[i] : NULL, s, (size_t)zero.max_tile,
                    (size_t)params->layout->d_pad, params->layout->fmt);
    for (int i = 0; i < zero.max_parts; i++)
        init_part(a ? &zero.parts[i] : NULL, s, (size_t)zero.group, (size_t)params->layout->d_pad);
    if (a) *a = zero;
    return a;
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

/*
 * A prompt chunk: per kv head its tiles, so that neighbouring items share keys in a cache; the last
 * ones, which see most, first. Also single tokens whose group is taller than a tile.
 */
static void add_chunk(struct attn *a, int seg)
{
    int n_rows = a->segs[seg].n_tokens * a->group;
    int n_tiles = ceil_div(n_rows, a->max_tile);
    add_stores(a, seg);
    for (int head = 0; head < a->p.layout->n_kv_heads; head++)
        for (int i = n_tiles - 1; i >= 0; i--) {
            int row = (int)((int64_t)n_rows * i / n_tiles);
            int end = (int)((int64_t)n_rows * (i + 1) / n_tiles);
            a->units[a->n_units++] = (struct unit){
                .seg = seg, .head = head, .row0 = row, .n_rows = end - row, .split = -1};
        }
}

/* A single token over a long context, its splits shared by the threads. */
static void add_split_token(struct attn *a, int seg, int n_splits, int *n_parts)
{
    add_stores(a, seg);
    for (int head = 0; head < a->p.layout->n_kv_heads; head++) {
        a->merges[a->n_merges++] = (struct merge){seg, head, *n_parts, n_splits};
        for (int i = 0; i < n_splits; i++)
            a->units[a->n_units++] = (struct unit){.seg = seg,
                                                   .head = head,
                                                   .n_rows = a->group,
                                                   .split = i,
                                                   .part = (*n_parts)++,
                                                   .streams = true};
    }
}

static void add_token(struct attn *a, int seg)
{
    int n_pages = ceil_div(a->segs[seg].pos0, KV_PAGE_TOKENS);
    for (int i = 0; i < n_pages && a->n_reads < a->max_reads; i++)
        a->reads[a->n_reads++] = a->segs[seg].pages[i];
    for (int head = 0; head < a->p.layout->n_kv_heads; head++)
        a->units[a->n_units++] = (struct unit){.seg = seg,
                                               .head = head,
                                               .n_rows = a->group,
                                               .split = -1,
                                               .stores = true,
                                               .streams = true};
}

/* Returns true if single tokens are too few to keep all threads busy. */
static bool shares_splits(const struct attn *a, int n_segs)
{
    return a->p.n_threads > 1 && n_segs * a->p.layout->n_kv_heads < 4 * a->p.n_threads;
}

void attn_begin(struct attn *a, const struct fwd_segment *segs, const int *row0, int n_segs)
{
    a->segs = segs;
    a->row0 = row0;
    a->n_units = a->n_stores = a->n_merges = a->n_reads = 0;
    int n_parts = 0, n_heads = a->p.layout->n_kv_heads;
    bool may_split = shares_splits(a, n_segs);
    for (int i = 0; i < n_segs; i++) {
        int n_splits = ceil_div(segs[i].pos0 + 1, ATTN_SPLIT);
        if (segs[i].n_tokens > 1 || a->group > a->max_tile)
            add_chunk(a, i);
        else if (may_split && n_splits > 1 && n_parts + n_splits * n_heads <= a->max_parts)
            add_split_token(a, i, n_splits, &n_parts);
        else
            add_token(a, i);
    }
    assert(n_parts <= a->max_parts && a->n_units <= a->max_units);
    assert(a->n_stores <= a->p.max_rows && a->n_merges <= a->p.max_segs * n_heads);
}

int attn_n_store_items(const struct attn *a)
{
    return a->n_stores;
}

int attn_n_items(const struct attn *a)
{
    return a->n_units;
}

int attn_n_merge_items(const struct attn *a)
{
    return a->n_merges;
}

struct gemm_blocks attn_reads(const struct attn *a, int layer)
{
    const struct kv_layout *l = a->p.layout;
    return (struct gemm_blocks){
        .runs = a->reads,
        .offset = kv_key_offset(l, layer, 0),
        .block_bytes = 2 * l->panel_bytes,
        .per_run = l->n_kv_heads,
        .end = a->n_reads * l->n_kv_heads,
    };
}

/* ---- one row ------------------------------------------------------------------------------- */

/* The query or key of one head: RMSNorm if the family has it, RoPE if the layer has it. */
static void prepare_head(const struct attn *a, int layer, const float *x, const float *norm,
                         int64_t pos, float *o)
{
    const struct eng_model *m = a->p.model;
    const struct kern *kern = m->kern;
    int d = m->hp.d_head;
    if (norm)
        kern->rmsnorm(x, norm, o, d, (float)m->hp.rms_eps);
    else
        memcpy(o, x, (size_t)d * sizeof(*o));
    size_t at = (size_t)pos * (size_t)(d / 2);
    if (m->layers[layer].rope) kern->rope(o, m->rope_cos + at, m->rope_sin + at, d);
}

/* Key and value of one token and kv head into its page. */
static void store_token(struct attn *a, int layer, int seg, int token, int head, float *tmp)
{
    const struct eng_hparams *hp = &a->p.model->hp;
    const struct kern *kern = a->p.model->kern;
    const struct kv_layout *l = a->p.layout;
    const float *row = a->p.qkv + (size_t)(a->row0[seg] + token) * a->p.ld_qkv;
    const float *key = row + (size_t)(hp->n_heads + head) * (size_t)hp->d_head;
    const float *value = key + (size_t)hp->n_kv_heads * (size_t)hp->d_head;
    int64_t pos = a->segs[seg].pos0 + token;
    uint8_t *page = a->segs[seg].pages[pos / KV_PAGE_TOKENS];
    int slot = (int)(pos % KV_PAGE_TOKENS);

    prepare_head(a, layer, key, a->p.model->layers[layer].k_norm, pos, tmp);
    kern->put_key[l->fmt](page + kv_key_offset(l, layer, head), tmp, hp->d_head, l->d_pad, slot);
    kern->put_value[l->fmt](page + kv_value_offset(l, layer, head), value, hp->d_head, l->d_pad,
                            slot);
}

void attn_store_item(struct attn *a, int layer, int item, int thread)
{
    const struct store *s = &a->stores[item];
    for (int i = 0; i < s->n; i++)
        for (int head = 0; head < a->p.layout->n_kv_heads; head++)
            store_token(a, layer, s->seg, s->first + i, head, a->threads[thread].head);
}

static int64_t row_position(const struct attn *a, const struct unit *u, int row)
{
    return a->segs[u->seg].pos0 + (u->row0 + row) / a->group;
}

/* Rotated queries of the unit's rows, packed as one tile. */
static struct kern_tile pack_queries(struct attn *a, int layer, const struct unit *u,
                                     struct thread_scratch *t)
{
    const struct eng_model *m = a->p.model;
    struct kern_tile tile = {.data = t->queries, .n_rows = u->n_rows};
    for (int i = 0; i < u->n_rows; i++) {
        int token = (u->row0 + i) / a->group, head = u->head * a->group + (u->row0 + i) % a->group;
        const float *q = a->p.qkv + (size_t)(a->row0[u->seg] + token) * a->p.ld_qkv +
                         (size_t)head * (size_t)m->hp.d_head;
        prepare_head(a, layer, q, m->layers[layer].q_norm, row_position(a, u, i), t->head);
        m->kern->pack_row[a->act](t->head, m->hp.d_head, a->p.layout->d_pad, a->page_fmt, &tile, i);
    }
    return tile;
}

/* Keys [lo, hi) that the token at pos sees within a split: both 0 if there are none. */
struct range {
    int64_t lo, hi;
};

static struct range visible_range(int64_t pos, int window, int split)
{
    struct range r = {(int64_t)split * ATTN_SPLIT, (int64_t)(split + 1) * ATTN_SPLIT};
    if (window > 0 && pos + 1 - window > r.lo) r.lo = pos + 1 - window;
    if (pos + 1 < r.hi) r.hi = pos + 1;
    return r.lo < r.hi ? r : (struct range){0, 0};
}

/* ---- one split ----------------------------------------------------------------------------- */

static int last_split(const struct attn *a, const struct unit *u)
{
    return (int)(row_position(a, u, u->n_rows - 1) / ATTN_SPLIT);
}

/* Pages that any row of a unit sees in a split. */
struct pages {
    int64_t first;
    int n; /* 0: none */
};

static struct pages visible_pages(const struct attn *a, const struct unit *u, int window, int split)
{
    struct range low = visible_range(row_position(a, u, 0), window, split);
    struct range high = visible_range(row_position(a, u, u->n_rows - 1), window, split);
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
    int n_dims = l->d_pad / KERN_PANEL, half = pages->n * n_dims;
    size_t block_bytes = l->panel_bytes / (size_t)n_dims;
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

/* Scores of a tile with the keys of some pages: t->scores [n_rows][ATTN_SPLIT]. */
static void score(struct attn *a, const struct unit *u, int n_pages,
                  const struct kern_tile *queries, struct thread_scratch *t)
{
    const struct kv_layout *l = a->p.layout;
    int n_dims = l->d_pad / KERN_PANEL;
    const void *panels[SPLIT_PAGES];
    struct kern_pages pages = {panels, n_pages, u->streams ? t->blocks + BLOCKS_AHEAD : NULL,
                               l->panel_bytes / (size_t)n_dims};
    struct kern_out out = {t->scores, ATTN_SPLIT, false};
    for (int i = 0; i < n_pages; i++)
        panels[i] = t->blocks[i * n_dims];
    if (l->fmt != KERN_KV_I8) {
        a->matmul_pages(queries, l->d_pad, &pages, &out);
        return;
    }
    pages.n = 1;
    for (int i = 0; i < n_pages; i++, out.c += KV_PAGE_TOKENS) {
        a->p.model->kern->unpack_key(panels[i], l->d_pad, t->panels);
        panels[i] = t->panels;
        pages.panels = &panels[i];
        a->matmul_pages(queries, l->d_pad, &pages, &out);
        if (pages.ahead) pages.ahead += n_dims;
    }
}

/*
 * Scores to probabilities (not yet divided by their sum), packed for the product with the values.
 */
static struct kern_tile softmax(struct attn *a, const struct unit *u, int window, int split,
                                const struct pages *pages, struct thread_scratch *t,
                                struct kern_softmax *soft)
{
    const struct kern *kern = a->p.model->kern;
    struct kern_tile tile = {.data = t->probs, .n_rows = u->n_rows};
    int n = pages->n * KV_PAGE_TOKENS;
    int64_t base = pages->first * KV_PAGE_TOKENS;
    for (int i = 0; i < u->n_rows; i++) {
        struct range r = visible_range(row_position(a, u, i), window, split);
        int lo = r.hi > 0 ? (int)(r.lo - base) : 0, hi = r.hi > 0 ? (int)(r.hi - base) : 0;
        float *s = t->scores + (size_t)i * ATTN_SPLIT;
        soft[i] = kern->softmax_keys(s, n, lo, hi, a->scale);
        kern->pack_row[a->act](s, n, n, a->page_fmt, &tile, i);
    }
    return tile;
}

/* Probabilities times the values of the pages: [n_rows][d_pad]. */
static void weigh_values(struct attn *a, const struct unit *u, int n_pages,
                         const struct kern_tile *probs, struct thread_scratch *t, float *values)
{
    const struct kv_layout *l = a->p.layout;
    int n_dims = l->d_pad / KERN_PANEL;
    const void **blocks = t->blocks + n_pages * n_dims;
    for (int d = 0; d < n_dims; d++, blocks += n_pages) {
        const void *unpacked[SPLIT_PAGES];
        struct kern_pages pages = {blocks, n_pages, u->streams ? blocks + BLOCKS_AHEAD : NULL,
                                   l->panel_bytes / (size_t)n_dims};
        struct kern_out out = {values + d * KERN_PANEL, (size_t)l->d_pad, false};
        if (l->fmt == KERN_KV_I8) {
            for (int i = 0; i < n_pages; i++) {
                uint8_t *room = t->panels + i * VALUE_ROOM_BYTES;
                a->p.model->kern->unpack_value(blocks[i], room);
                unpacked[i] = room;
            }
            pages.panels = unpacked;
        }
        a->matmul_segs(probs, &pages, &out);
    }
}

/* One split of a unit into `part`. Returns false, with part unchanged, if no row sees any of it. */
static bool attend_split(struct attn *a, int layer, const struct unit *u, int split,
                         const struct kern_tile *queries, const struct unit *next,
                         struct thread_scratch *t, const struct part *part)
{
    int window = a->p.model->layers[layer].window;
    struct pages pages = visible_pages(a, u, window, split);
    if (pages.n == 0) return false;
    plan_reading(a, layer, u, &pages, split, next, t);
    score(a, u, pages.n, queries, t);
    struct kern_tile probs = softmax(a, u, window, split, &pages, t, part->soft);
    weigh_values(a, u, pages.n, &probs, t, part->values);
    return true;
}

/* ---- merging splits ------------------------------------------------------------------------ */

/* Merges one split's result into a row's: always in ascending order of splits. */
static void merge_row(const struct kern *kern, struct row_state *row, float *acc,
                      const struct kern_softmax *soft, const float *values, int d_pad)
{
    if (!row->any) {
        if (values != acc) memcpy(acc, values, (size_t)d_pad * sizeof(*acc));
        *row = (struct row_state){soft->max, soft->sum, true};
        return;
    }
    /* exp(max - largest) of both, by the kernels' own exp */
    float weights[KERN_GROUP] = {row->max, soft->max};
    row->max = kern->softmax_keys(weights, KERN_GROUP, 0, 2, 1.0f).max;
    row->sum = row->sum * weights[0] + soft->sum * weights[1];
    kern->axpby(acc, weights[0], values, weights[1], d_pad);
}

/* Merges a split into the rows of a unit that see it. */
static void merge_split(struct attn *a, int layer, const struct unit *u, int split,
                        const struct part *part, struct thread_scratch *t)
{
    int window = a->p.model->layers[layer].window, d_pad = a->p.layout->d_pad;
    for (int i = 0; i < u->n_rows; i++) {
        if (visible_range(row_position(a, u, i), window, split).hi == 0) continue;
        size_t at = (size_t)i * (size_t)d_pad;
        merge_row(a->p.model->kern, &t->rows[i], t->acc + at, &part->soft[i], part->values + at,
                  d_pad);
    }
}

/* Divides by the sums and writes the heads' outputs. */
static void finish_rows(struct attn *a, const struct unit *u, struct thread_scratch *t)
{
    size_t d = (size_t)a->p.model->hp.d_head;
    for (int i = 0; i < u->n_rows; i++) {
        int token = (u->row0 + i) / a->group, head = u->head * a->group + (u->row0 + i) % a->group;
        float *o = a->p.out + (size_t)(a->row0[u->seg] + token) * a->p.ld_out + (size_t)head * d;
        memcpy(o, t->acc + (size_t)i * (size_t)a->p.layout->d_pad, d * sizeof(*o));
        a->p.model->kern->scale(o, 1.0f / t->rows[i].sum, (int)d);
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

void attn_item(struct attn *a, int layer, int item, int thread)
{
    const struct unit *u = &a->units[item];
    struct thread_scratch *t = &a->threads[thread];
    const struct unit *next = guess_next(a, item);
    if (u->stores) store_token(a, layer, u->seg, 0, u->head, t->head);
    struct kern_tile queries = pack_queries(a, layer, u, t);
    if (u->split >= 0) {
        attend_split(a, layer, u, u->split, &queries, next, t, &a->parts[u->part]);
        return;
    }
    int last = last_split(a, u);
    struct part part = {t->acc, t->part.soft};
    clear_rows(u, t);
    for (int split = 0; split <= last; split++)
        if (attend_split(a, layer, u, split, &queries, next, t, &part)) {
            merge_split(a, layer, u, split, &part, t);
            part = t->part;
        }
    finish_rows(a, u, t);
}

void attn_merge_item(struct attn *a, int layer, int item, int thread)
{
    const struct merge *m = &a->merges[item];
    struct thread_scratch *t = &a->threads[thread];
    struct unit u = {.seg = m->seg, .head = m->head, .n_rows = a->group};
    clear_rows(&u, t);
    for (int split = 0; split < m->n_splits; split++)
        merge_split(a, layer, &u, split, &a->parts[m->part + split], t);
    finish_rows(a, &u, t);
}
