/* SPDX-License-Identifier: MIT */
/*
 * Times of the kernels on one thread: the best of some repetitions, since a machine's noise only
 * adds.
 *
 *   stream   a step of decoding: all matrices of a 135 M parameter model in forward order, so that
 *            weights come from memory; 1 to 32 rows. GB/s counts the weights.
 *   prompt   a step of prefill: 128 rows times one matrix after the other, panel by panel.
 *   pack     weights from a file's rows into panels, and activations into tiles
 *   vector   norms, softmax and the like, in L1 or L2; argmax over a vocabulary
 */
#include "check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { D_MODEL = 576, D_FF = 1536, D_QKV = 960, VOCAB = 49152, N_LAYERS = 30 };
enum { N_MATS = 4 * N_LAYERS + 1, ROWS = 128, REPS = 15 };

static const struct {
    const char *name;
    enum kern_afmt a;
    enum kern_wfmt w;
} kinds[] = {
    {"bf16", KERN_A_BF16, KERN_W_BF16},    {"b12", KERN_A_BF16, KERN_W_B12},
    {"i8", KERN_A_I8, KERN_W_I8},          {"i4", KERN_A_I8, KERN_W_I4},
    {"f32xbf16", KERN_A_F32, KERN_W_BF16}, {"f32xb12", KERN_A_F32, KERN_W_B12},
    {"i6s", KERN_A_I8, KERN_W_I6S},        {"f32", KERN_A_F32, KERN_W_F32},
    {"f32xf16", KERN_A_F32, KERN_W_F16},   {"i4k", KERN_A_I8, KERN_W_I4K},
    {"i5k", KERN_A_I8, KERN_W_I5K},
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

struct mat {
    int n, k;
    size_t panel_bytes;
    const char *panels;
};

struct bench {
    const struct kern *kern;
    enum kern_afmt a;
    enum kern_wfmt w;
    struct mat mats[N_MATS];
    char *arena;
    size_t arena_bytes, weight_bytes;
    struct kern_tile tiles[2][ROWS]; /* for K = D_MODEL and D_FF */
    int n_tiles, n_rows;
    float *c; /* [ROWS][VOCAB] */
};

static void *big_alloc(size_t n)
{
    size_t huge = 2u << 20;
    n = (n + huge - 1) / huge * huge;
    char *p = mmap(NULL, n + huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) exit(1);
    p = (char *)(((uintptr_t)p + huge - 1) / huge * huge);
    madvise(p, n, MADV_HUGEPAGE);
    return p;
}

/* Bits that are small numbers in every format. */
static void fill_weights(enum kern_wfmt w, char *p, size_t n)
{
    uint32_t r = 1;
    for (size_t i = 0; i + 4 <= n; i += 4) {
        r = r * 1664525u + 1013904223u;
        uint32_t v = w == KERN_W_BF16  ? 0x3c003c00 | (r >> 9 & 0x007f007f) | (r & 0x80008000)
                     : w == KERN_W_F32 ? 0x3c000000 | (r >> 9)
                                       : r & 0x3fff3fff;
        memcpy(p + i, &v, 4);
    }
}

/* Panels of small numbers, coded one by one. */
static void fill_coded(const struct bench *b, const struct mat *m)
{
    size_t bytes = kern_panel_bytes(KERN_W_BF16, m->k);
    char *plain = aligned_alloc(64, bytes);
    fill_weights(KERN_W_BF16, plain, bytes);
    for (int p = 0; p < m->n / KERN_PANEL; p++)
        if (!b->kern->encode_panel(plain, m->k,
                                   (char *)(uintptr_t)m->panels + (size_t)p * m->panel_bytes))
            exit(1);
    free(plain);
}

static void mats_create(struct bench *b)
{
    static const int n[5] = {D_QKV, D_MODEL, 2 * D_FF, D_MODEL, VOCAB};
    static const int k[5] = {D_MODEL, D_MODEL, D_MODEL, D_FF, D_MODEL};
    size_t at = 0;
    for (int i = 0; i < N_MATS; i++) {
        int s = i == N_MATS - 1 ? 4 : i % 4;
        size_t bytes = kern_panel_bytes(b->w, k[s]);
        b->mats[i] = (struct mat){n[s], k[s], bytes, NULL};
        at += bytes * (size_t)(n[s] / KERN_PANEL);
    }
    b->weight_bytes = b->arena_bytes = at;
    b->arena = big_alloc(at);
    fill_weights(b->w, b->arena, at);
    at = 0;
    for (int i = 0; i < N_MATS; i++) {
        b->mats[i].panels = b->arena + at;
        at += b->mats[i].panel_bytes * (size_t)(b->mats[i].n / KERN_PANEL);
        if (b->w == KERN_W_B12) fill_coded(b, &b->mats[i]);
    }
}

/* n_rows rows in as few tiles as the level allows, of even height. */
static void tiles_create(struct bench *b, int n_rows)
{
    int most = b->kern->max_rows[b->a];
    b->n_rows = n_rows;
    b->n_tiles = (n_rows + most - 1) / most;
    for (int w = 0; w < 2; w++) {
        int k = w ? D_FF : D_MODEL;
        float *x = malloc((size_t)k * sizeof(float));
        for (int i = 0; i < b->n_tiles; i++) {
            int rows = n_rows / b->n_tiles + (i < n_rows % b->n_tiles);
            struct kern_tile *t = &b->tiles[w][i];
            t->n_rows = rows;
            t->data = aligned_alloc(64, (size_t)k * 4 * (size_t)rows);
            t->scale = aligned_alloc(64, ((size_t)k / 8 * (size_t)rows + 63) / 64 * 64);
            t->corr = aligned_alloc(64, ((size_t)k / 8 * (size_t)rows + 63) / 64 * 64);
            for (int r = 0; r < rows; r++) {
                for (int j = 0; j < k; j++)
                    x[j] = sinf((float)(j * (r + 1)) * .37f);
                b->kern->pack_row[b->a](x, k, k, b->w, t, r);
            }
        }
        free(x);
    }
}

static void tiles_destroy(struct bench *b)
{
    for (int w = 0; w < 2; w++)
        for (int i = 0; i < b->n_tiles; i++) {
            free(b->tiles[w][i].data);
            free(b->tiles[w][i].scale);
            free(b->tiles[w][i].corr);
        }
}

/*
 * One matrix as the engine does it: chunks of panels; with one tile a chunk is one call, with more
 * the tiles take turns at each panel, which then stays in the caches.
 */
static void run_mat(const struct bench *b, const struct mat *m, bool fetch)
{
    const struct kern_tile *tiles = b->tiles[m->k == D_FF];
    int n_panels = m->n / KERN_PANEL, chunk = b->n_tiles == 1 ? 6 : 1;
    kern_matmul_fn *fn = b->kern->matmul[b->a][b->w];
    for (int p = 0; p < n_panels; p += chunk) {
        int n = n_panels - p < chunk ? n_panels - p : chunk;
        const char *panels = m->panels + (size_t)p * m->panel_bytes;
        const char *next = panels + (size_t)n * m->panel_bytes;
        float *c = b->c + (size_t)p * KERN_PANEL;
        size_t share = m->panel_bytes / (b->n_tiles == 1 ? 1 : 2);
        for (int i = 0; i < b->n_tiles; i++) {
            struct kern_out out = {.c = c, .ld = VOCAB};
            bool ahead = fetch && i < 2 && next < b->arena + b->arena_bytes;
            struct kern_fetch wanted = {.data = next + i * share, .bytes = share};
            fn(&tiles[i], m->k, panels, m->panel_bytes, n, &out, ahead ? &wanted : NULL);
            c += (size_t)tiles[i].n_rows * VOCAB;
        }
    }
}

static void bench_stream(struct bench *b, const char *name)
{
    static const int batches[] = {1, 2, 3, 4, 6, 8, 12, 16, 32};
    for (size_t i = 0; i < sizeof(batches) / sizeof(batches[0]); i++) {
        double best = 1e9;
        tiles_create(b, batches[i]);
        for (int r = 0; r < REPS; r++) {
            double t0 = now();
            for (int m = 0; m < N_MATS; m++)
                run_mat(b, &b->mats[m], batches[i] >= b->kern->fetch_rows[b->a][b->w]);
            best = fmin(best, now() - t0);
        }
        tiles_destroy(b);
        printf("stream %-9s rows %-3d %6.2f ms  %5.1f GB/s  %5.0f GFLOP/s\n", name, batches[i],
               best * 1e3, (double)b->weight_bytes / best * 1e-9,
               2e-9 * (N_LAYERS * 3538944.0 + 28311552.0) * batches[i] / best);
        fflush(stdout);
    }
}

static void bench_prompt(struct bench *b, const char *name)
{
    tiles_create(b, ROWS);
    for (int s = 0; s < 5; s++) {
        const struct mat *m = &b->mats[s < 4 ? s : N_MATS - 1];
        double best = 1e9;
        for (int r = 0; r < 3 * REPS; r++) {
            double t0 = now();
            run_mat(b, m, false);
            best = fmin(best, now() - t0);
        }
        printf("prompt %-9s rows %d K %-4d N %-5d %5.0f GFLOP/s\n", name, ROWS, m->k, m->n,
               2e-9 * ROWS * m->k * m->n / best);
        fflush(stdout);
    }
    tiles_destroy(b);
}

static void bench_heights(struct bench *b, const char *name)
{
    const struct mat *m = &b->mats[3];
    for (int rows = 1; rows <= b->kern->max_rows[b->a]; rows++) {
        double best = 1e9;
        tiles_create(b, rows);
        for (int r = 0; r < 20 * REPS; r++) {
            double t0 = now();
            struct kern_out out = {.c = b->c, .ld = VOCAB};
            b->kern->matmul[b->a][b->w](&b->tiles[1][0], m->k, m->panels, m->panel_bytes, 2, &out,
                                        NULL);
            best = fmin(best, now() - t0);
        }
        tiles_destroy(b);
        printf("height %-9s rows %-3d K %d N 64 %5.0f GFLOP/s\n", name, rows, m->k,
               2e-9 * rows * m->k * 64 / best);
    }
    fflush(stdout);
}

static void bench_products(const struct kern *kern, const char *filter)
{
    struct bench b = {.kern = kern, .c = big_alloc((size_t)ROWS * VOCAB * 4)};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        char name[32];
        b.a = kinds[i].a;
        b.w = kinds[i].w;
        mats_create(&b);
        for (int what = 0; what < 3; what++) {
            static const char *const whats[] = {"height", "stream", "prompt"};
            static void (*const fns[])(struct bench *, const char *) = {bench_heights, bench_stream,
                                                                        bench_prompt};
            snprintf(name, sizeof(name), "%s %s", whats[what], kinds[i].name);
            if (!filter || strncmp(name, filter, strlen(filter)) == 0) fns[what](&b, kinds[i].name);
        }
        munmap(b.arena, b.arena_bytes);
    }
    munmap(b.c, (size_t)ROWS * VOCAB * 4);
}

/* ---- packing and vectors ------------------------------------------------------------------- */

struct vectors {
    const struct kern *kern;
    float *x, *y, *o;
    struct kern_tile tile;
    char *rows, *panel;
    int n;
};

static void run_rmsnorm(struct vectors *v)
{
    v->kern->rmsnorm(v->x, v->y, v->o, v->n, 1e-5f);
}
static void run_silu(struct vectors *v)
{
    v->kern->glu[KERN_ACT_SILU](v->x, v->y, v->o, v->n);
}

static void run_gelu(struct vectors *v)
{
    v->kern->glu[KERN_ACT_GELU_TANH](v->x, v->y, v->o, v->n);
}
static void run_add(struct vectors *v)
{
    v->kern->add(v->o, v->x, v->n);
}
static void run_merge(struct vectors *v)
{
    struct kern_softmax to = {.max = 1.0f, .sum = 3.0f}, from = {.max = 2.0f, .sum = 1.0f};
    v->kern->merge_softmax(&to, v->o, &from, v->x, v->n);
}
static void run_softmax(struct vectors *v)
{
    memcpy(v->o, v->x, (size_t)v->n * 4);
    v->kern->softmax_keys(v->o, v->n, 0, v->n - 3, 0.125f);
}
static void run_softmax_pack(struct vectors *v)
{
    if (v->kern->softmax_pack) {
        v->kern->softmax_pack(v->x, v->n, 0, v->n - 3, 0.125f, &v->tile, 3);
        return;
    }
    v->kern->softmax_keys(v->x, v->n, 0, v->n - 3, 0.125f);
    v->kern->pack_row[KERN_A_BF16](v->x, v->n, v->n, KERN_W_BF16, &v->tile, 3);
}
static void run_argmax(struct vectors *v)
{
    bool finite;
    v->kern->argmax(v->x, v->n, &finite);
}
static void run_log_sum_exp(struct vectors *v)
{
    v->kern->log_sum_exp(v->x, v->n);
}
static void run_rope(struct vectors *v)
{
    for (int i = 0; i + 64 <= v->n; i += 64)
        v->kern->rope(v->o + i, v->x, v->y, 32, 32);
}
static void run_rows_f32(struct vectors *v)
{
    v->kern->pack_row[KERN_A_F32](v->x, v->n, v->n, KERN_W_F32, &v->tile, 3);
}
static void run_rows_bf16(struct vectors *v)
{
    v->kern->pack_row[KERN_A_BF16](v->x, v->n, v->n, KERN_W_BF16, &v->tile, 3);
}
static void run_rows_i8(struct vectors *v)
{
    v->kern->pack_row[KERN_A_I8](v->x, v->n, v->n, KERN_W_I8, &v->tile, 3);
}
static void run_put(struct vectors *v)
{
    for (int i = 0; i + 64 <= v->n; i += 64) {
        v->kern->put_key[1](v->panel, v->x + i, 64, 64, 7);
        v->kern->put_value[1](v->panel + 4096, v->x + i, 64, 64, 7);
    }
}
static void run_unpack(struct vectors *v)
{
    v->kern->unpack_row(KERN_W_BF16, v->panel, 5, v->n, v->o);
}
static void run_panel(struct vectors *v, enum kern_wfmt fmt)
{
    const void *rows[KERN_PANEL];
    for (int i = 0; i < KERN_PANEL; i++)
        rows[i] = v->rows + (size_t)i * (size_t)v->n * 2;
    v->kern->pack_panel(fmt, KERN_SRC_BF16, rows, NULL, v->n, v->n, v->panel);
}
static void run_panel_f32(struct vectors *v)
{
    run_panel(v, KERN_W_F32);
}
static void run_panel_bf16(struct vectors *v)
{
    run_panel(v, KERN_W_BF16);
}
static void run_panel_i8(struct vectors *v)
{
    run_panel(v, KERN_W_I8);
}
static void run_panel_i4k(struct vectors *v)
{
    run_panel(v, KERN_W_I4K);
}

static const struct {
    const char *name;
    void (*run)(struct vectors *v);
    int n;
    double elements; /* for each of n */
} singles[] = {
    {"vector rmsnorm", run_rmsnorm, D_MODEL, 1},
    {"vector rope", run_rope, D_MODEL, 1},
    {"vector silu_mul", run_silu, D_FF, 1},
    {"vector gelu_tanh_mul", run_gelu, D_FF, 1},
    {"vector add", run_add, D_MODEL, 1},
    {"vector softmax_pack", run_softmax_pack, 512, 1},
    {"vector merge_softmax", run_merge, 64, 1},
    {"vector softmax_keys", run_softmax, 512, 1},
    {"vector argmax", run_argmax, VOCAB, 1},
    {"vector log_sum_exp", run_log_sum_exp, VOCAB, 1},
    {"vector put_key+value", run_put, D_MODEL, 2},
    {"vector unpack_row", run_unpack, D_MODEL, 1},
    {"pack row f32", run_rows_f32, D_MODEL, 1},
    {"pack row bf16", run_rows_bf16, D_MODEL, 1},
    {"pack row i8", run_rows_i8, D_MODEL, 1},
    {"pack panel f32", run_panel_f32, D_MODEL, KERN_PANEL},
    {"pack panel bf16", run_panel_bf16, D_MODEL, KERN_PANEL},
    {"pack panel i8", run_panel_i8, D_MODEL, KERN_PANEL},
    {"pack panel i4k", run_panel_i4k, D_MODEL, KERN_PANEL},
};

static void bench_single(struct vectors *v, int i)
{
    double best = 1e9;
    int inner = 200000 / (int)((double)singles[i].n * singles[i].elements) + 1;
    v->n = singles[i].n;
    for (int r = 0; r < 10 * REPS; r++) {
        double t0 = now();
        for (int j = 0; j < inner; j++)
            singles[i].run(v);
        best = fmin(best, (now() - t0) / inner);
    }
    printf("%-22s n %-6d %9.3f us  %6.2f G elements/s\n", singles[i].name, v->n, best * 1e6,
           v->n * singles[i].elements / best * 1e-9);
}

static void bench_vectors(const struct kern *kern, const char *filter)
{
    size_t bytes = (size_t)VOCAB * 4 * 12;
    struct vectors v = {.kern = kern,
                        .x = big_alloc(bytes),
                        .y = big_alloc(bytes),
                        .o = big_alloc(bytes),
                        .rows = big_alloc(bytes),
                        .panel = big_alloc(bytes)};
    v.tile = (struct kern_tile){.data = v.o,
                                .scale = (float *)(void *)v.panel,
                                .corr = (int32_t *)(void *)(v.panel + 65536),
                                .n_rows = kern->max_rows[KERN_A_I8]};
    for (int i = 0; i < VOCAB; i++) {
        v.x[i] = rnd_float() * 8;
        v.y[i] = rnd_float();
    }
    fill_weights(KERN_W_BF16, v.rows, bytes);
    for (int i = 0; i < (int)(sizeof(singles) / sizeof(singles[0])); i++)
        if (!filter || strncmp(singles[i].name, filter, strlen(filter)) == 0) bench_single(&v, i);
    munmap(v.x, bytes);
    munmap(v.y, bytes);
    munmap(v.o, bytes);
    munmap(v.rows, bytes);
    munmap(v.panel, bytes);
}

int bench_run(const struct kern *kern, const char *filter)
{
    printf("level %s\n", kern->name);
    bench_vectors(kern, filter);
    bench_products(kern, filter);
    return 0;
}
