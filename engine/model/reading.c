/* SPDX-License-Identifier: MIT */
/*
 * Every way of reading has its slices of one mapping, filled with panels in its format past the
 * caches, and the slices are read in turns, each of them once: so every way reads from memory, as
 * a model does that is larger than the caches, and a disturbance hits all of them. The best slice
 * of a way counts.
 */
#include "engine/model/reading.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/clock.h"
#include "engine/model/numerics.h"
#include "engine/model/plan.h"
#include "engine/pool.h"

enum {
    SLICE_BYTES = 4 << 20,
    ITEM_BYTES = 256 << 10, /* of one claim, as in the forward pass */
    TURNS = 4,
    N_DISTANCES = 3,
    MAX_WAYS = N_DISTANCES + 1,
    LEAST_MODEL_BYTES = 64 << 20,
};

/*
 * The distances that are tried, the default first: further than the prefetchers of an Intel Xeon
 * look; a little ahead, which is what Zen 4 needs; and no prefetch.
 */
static const size_t distances[N_DISTANCES] = {6144, 1024, 0};

/* A way must be this much faster to be preferred to one that comes before it. */
static const double CLEARLY = 1.02;

struct way {
    enum kern_wfmt fmt;
    size_t ahead;
    size_t panel_bytes;
    int n_panels; /* of a slice */
    const void *panel;
    double rate; /* of the best slice: weights per second */
};

struct probe {
    const struct eng_model *m;
    enum kern_afmt act;
    int k_pad;
    struct way ways[MAX_WAYS];
    int n_ways;
    int n_threads;
    uint8_t *slices; /* [TURNS][n_ways] */
    struct kern_tile tile;
    float *out; /* [n_threads][out_floats] */
    size_t out_floats;
    uint8_t *words, *panels; /* bf16 words; one panel of each format, BF16 or other first */
    int slice;               /* in hand */
};

/* ---- slices -------------------------------------------------------------------------------- */

/* A number in -1 .. 1, small ones as rare as among weights. */
static float weight(uint32_t i)
{
    uint32_t x = i * 2654435761u;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    return (float)((int)(x & 0xffff) - (int)(x >> 16)) * 0x1p-16f;
}

/* Copies whole 64-byte lines past the caches, where the processor can. */
static void copy_past_caches(uint8_t *to, const uint8_t *from, size_t bytes)
{
#if defined(__x86_64__)
    long long word;
    for (size_t i = 0; i < bytes; i += sizeof(word)) {
        memcpy(&word, from + i, sizeof(word));
        __builtin_ia32_movnti64((long long *)(void *)(to + i), word);
    }
    __builtin_ia32_sfence();
#else
    memcpy(to, from, bytes);
#endif
}

static void fill_slice(void *arg, int item, int thread)
{
    const struct probe *p = arg;
    const struct way *w = &p->ways[item % p->n_ways];
    uint8_t *to = p->slices + (size_t)item * SLICE_BYTES;
    (void)thread;
    for (int i = 0; i < w->n_panels; i++)
        copy_past_caches(to + (size_t)i * w->panel_bytes, w->panel, w->panel_bytes);
}

static int panels_per_item(const struct way *w)
{
    int n = (int)(ITEM_BYTES / w->panel_bytes);
    return n > 0 ? n : 1;
}

static void read_item(void *arg, int item, int thread)
{
    const struct probe *p = arg;
    const struct way *w = &p->ways[p->slice % p->n_ways];
    const uint8_t *slice = p->slices + (size_t)p->slice * SLICE_BYTES;
    int per_item = panels_per_item(w), first = item * per_item;
    int n = w->n_panels - first < per_item ? w->n_panels - first : per_item;
    int next = first + p->n_threads * per_item; /* probably this thread's next item */
    struct kern_fetch fetch = {
        .data = next < w->n_panels ? slice + (size_t)next * w->panel_bytes : NULL,
        .ahead = w->ahead,
    };
    struct kern_out out = {.c = p->out + (size_t)thread * p->out_floats, .ld = p->out_floats};
    p->m->kern->matmul[p->act][w->fmt](&p->tile, p->k_pad, slice + (size_t)first * w->panel_bytes,
                                       w->panel_bytes, n, &out, w->ahead ? &fetch : NULL);
}

static void read_slices(struct probe *p, struct pool *pool)
{
    for (p->slice = 0; p->slice < TURNS * p->n_ways; p->slice++) {
        struct way *w = &p->ways[p->slice % p->n_ways];
        int per_item = panels_per_item(w);
        struct pool_phase phase = {read_item, p, (w->n_panels + per_item - 1) / per_item};
        uint64_t start = clock_now_ns();
        pool_run(pool, &phase, 1, NULL);
        double weights = (double)w->n_panels * KERN_PANEL * p->k_pad;
        double rate = 1e9 * weights / (double)(clock_now_ns() - start);
        if (rate > w->rate) w->rate = rate;
    }
}

/* ---- setting up ---------------------------------------------------------------------------- */

/* Distances from `first` on. Returns false if the format does not fit a slice or its weights. */
static bool add_ways(struct probe *p, enum kern_wfmt fmt, const void *const rows[KERN_PANEL],
                     uint8_t *panel, int first)
{
    size_t bytes = kern_panel_bytes(fmt, p->k_pad);
    if (fmt >= KERN_W_I4) memset(panel, 0x11, bytes); /* of blocks: any small numbers */
    if (bytes > SLICE_BYTES / 4 ||
        (fmt < KERN_W_I4 && !kern_pack_panel(p->m->kern, fmt, KERN_SRC_F32, rows, NULL, p->k_pad,
                                             p->k_pad, p->words, panel)))
        return false;
    assert(p->n_ways + N_DISTANCES - first <= MAX_WAYS);
    for (int i = first; i < N_DISTANCES; i++)
        p->ways[p->n_ways++] = (struct way){
            .fmt = fmt,
            .ahead = distances[i],
            .panel_bytes = bytes,
            .n_panels = (int)(SLICE_BYTES / bytes),
            .panel = panel,
        };
    return true;
}

/*
 * The ways for weights planned as fmt, the one that is chosen by default first. bf16 panels that
 * are compared with coded ones are read without prefetch only: no distance changed their speed.
 */
static bool make_ways(struct probe *p, enum kern_wfmt fmt, bool both)
{
    size_t k = (size_t)p->k_pad, panel_bytes = k * KERN_PANEL * sizeof(float);
    AUTO_FREE float *weights = malloc(panel_bytes);
    const void *rows[KERN_PANEL];
    p->words = aligned_alloc(64, panel_bytes);
    p->panels = aligned_alloc(64, 2 * panel_bytes); /* no panel is larger than one of f32 */
    bool ok = weights && p->words && p->panels;
    for (size_t i = 0; ok && i < KERN_PANEL * k; i++)
        weights[i] = weight((uint32_t)i);
    for (size_t i = 0; i < KERN_PANEL; i++)
        rows[i] = weights + i * k;
    ok = ok && add_ways(p, fmt, rows, p->panels, 0);
    if (ok && both) ok = add_ways(p, KERN_W_BF16, rows, p->panels + panel_bytes, N_DISTANCES - 1);
    return ok;
}

static bool make_buffers(struct probe *p, enum kern_wfmt fmt)
{
    size_t k = (size_t)p->k_pad, n_groups = k / KERN_GROUP;
    for (int i = 0; i < p->n_ways; i++) {
        size_t floats = (size_t)panels_per_item(&p->ways[i]) * KERN_PANEL;
        if (floats > p->out_floats) p->out_floats = floats;
    }
    AUTO_FREE float *x = malloc(k * sizeof(*x));
    p->tile = (struct kern_tile){
        .data = aligned_alloc(64, k * sizeof(float)),
        .scale = malloc(n_groups * sizeof(float)),
        .corr = malloc(n_groups * sizeof(int32_t)),
        .n_rows = 1,
    };
    p->out = aligned_alloc(64, (size_t)p->n_threads * p->out_floats * sizeof(float));
    p->slices = eng_arena_map((size_t)(TURNS * p->n_ways) * SLICE_BYTES);
    bool ok = x && p->tile.data && p->tile.scale && p->tile.corr && p->out && p->slices;
    for (size_t i = 0; ok && i < k; i++)
        x[i] = weight((uint32_t)i + 1);
    if (ok) p->m->kern->pack_row[p->act](x, p->k_pad, p->k_pad, fmt, &p->tile, 0);
    return ok;
}

static void finish(struct probe *p)
{
    eng_arena_unmap(p->slices, (size_t)(TURNS * p->n_ways) * SLICE_BYTES);
    free(p->out);
    free(p->tile.data);
    free(p->tile.scale);
    free(p->tile.corr);
    free(p->words);
    free(p->panels);
}

/* ---- the choice ---------------------------------------------------------------------------- */

static void choose(struct eng_reading *r, const struct probe *p, enum kern_wfmt fmt)
{
    const struct way *best = &p->ways[0];
    for (int i = 0; i < p->n_ways; i++) {
        const struct way *w = &p->ways[i];
        double *rate = fmt == KERN_W_B12 && w->fmt == fmt ? &r->coded_rate : &r->plain_rate;
        if (w->rate > *rate) *rate = w->rate;
        if (w->rate > best->rate * CLEARLY) best = w;
    }
    r->ahead = best->ahead;
    r->coded = best->fmt == KERN_W_B12;
}

void eng_reading_choose(struct eng_model *m, struct pool *pool)
{
    const struct eng_layer *l = &m->layers[0];
    const struct eng_mat *mat = l->gate_up.k_pad > 0 ? &l->gate_up : &l->experts.gate_up;
    enum kern_wfmt fmt = mat->fmt;
    struct probe p = {
        .m = m, .act = m->numerics->act, .k_pad = mat->k_pad, .n_threads = pool_n_threads(pool)};
    if (m->weights_bytes < LEAST_MODEL_BYTES || mat->use_blas) return;
    if (make_ways(&p, fmt, fmt == KERN_W_B12 && m->reading.may_be_plain) && make_buffers(&p, fmt)) {
        struct pool_phase phase = {fill_slice, &p, TURNS * p.n_ways};
        pool_run(pool, &phase, 1, NULL);
        read_slices(&p, pool);
        choose(&m->reading, &p, fmt);
    }
    finish(&p);
    if (fmt == KERN_W_B12 && !m->reading.coded) eng_plan_place(m, "native");
}
