/* SPDX-License-Identifier: MIT */
/*
 * Speed of the forward pass alone, on random weights in SmolLM2-135M's shape made in memory: no
 * loader, no scheduler, no server. For work on kernels, attention and the pool.
 *
 *   bench_forward [-f exact|bf16|int8|int4] [-t threads] [-p prompt,...] [-c chunk] [-b batch,...]
 *                 [-x context] [-g generated] [-r reps] [-k kernels] [-B]
 *
 * -p measures prefill, -b decode of that many sequences from context x on; -B multiplies by BLAS.
 * Medians over reps; the same cases as `hearth bench`, which is the figure to quote.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "engine/forward.h"
#include "engine/gemm.h"
#include "engine/gemm_blas.h"
#include "engine/kv.h"
#include "engine/model/model.h"
#include "engine/model/numerics.h"
#include "engine/pool.h"

enum { MAX_BATCH = 64, MAX_REPS = 64, HUGE_PAGE = 2 << 20 };

static const struct eng_numerics paths[] = {
    {"exact", KERN_A_F32, true, KERN_W_BF16, KERN_W_BF16, KERN_KV_F32},
    {"f32", KERN_A_F32, true, KERN_W_F32, KERN_W_F32, KERN_KV_F32},
    {"bf16", KERN_A_BF16, true, KERN_W_BF16, KERN_W_BF16, KERN_KV_BF16},
    {"int8", KERN_A_I8, false, KERN_W_I8, KERN_W_I8, KERN_KV_BF16},
    {"int4", KERN_A_I8, false, KERN_W_I4, KERN_W_I8, KERN_KV_BF16},
    {"int4-all", KERN_A_I8, false, KERN_W_I4, KERN_W_I4, KERN_KV_BF16},
};

struct options {
    const struct eng_numerics *path;
    const char *prompts, *batches, *kernels;
    int n_threads, chunk, ctx, n_gen, reps;
    bool blas;
};

static void fail(const char *what)
{
    fprintf(stderr, "bench_forward: %s\n", what);
    exit(1);
}

/* ---- a model of random numbers ------------------------------------------------------------- */

static uint8_t *arena;
static size_t arena_used;

static void *take(size_t bytes)
{
    void *p = arena + arena_used;
    arena_used += (bytes + 63) / 64 * 64;
    return p;
}

static void open_arena(size_t bytes)
{
    uint8_t *map = mmap(NULL, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) fail("no memory");
    arena = (uint8_t *)(((uintptr_t)map + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
    madvise(arena, bytes, MADV_HUGEPAGE);
}

static float next_random(void)
{
    static uint64_t state = 88172645463325252ull;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (float)(int64_t)state * 0x1p-63f * 0.035f;
}

/* One packed panel of random numbers, copied to all places: the arithmetic does not care. */
static struct eng_mat make_mat(const struct kern *kern, enum kern_wfmt fmt, int n_out, int n_in,
                               bool blas)
{
    struct eng_mat m = {.fmt = fmt, .use_blas = blas, .n_out = n_out, .n_in = n_in, .k_pad = n_in};
    if (!blas) m.fmt = kern_kept_as(kern, fmt, n_in);
    m.n_panels = n_out / KERN_PANEL;
    m.panel_bytes = kern_panel_bytes(m.fmt, n_in);
    m.panels = take((size_t)m.n_panels * m.panel_bytes);
    float *rows = malloc((size_t)KERN_PANEL * (size_t)n_in * sizeof(*rows));
    const void *row[KERN_PANEL];
    if (!rows) fail("no memory");
    for (int i = 0; i < KERN_PANEL * n_in; i++)
        rows[i] = next_random();
    for (int i = 0; i < KERN_PANEL; i++)
        row[i] = rows + (size_t)i * (size_t)n_in;
    void *words = aligned_alloc(64, kern_panel_bytes(KERN_W_BF16, n_in));
    if (!words) fail("no memory");
    if (!kern_pack_panel(kern, m.fmt, KERN_SRC_F32, row, n_in, n_in, words, m.panels))
        fail("a panel does not fit 12 bits");
    free(words);
    for (int p = 1; p < m.n_panels; p++)
        memcpy(m.panels + (size_t)p * m.panel_bytes, m.panels, m.panel_bytes);
    free(rows);
    return m;
}

static float *ones(int n)
{
    float *v = take((size_t)n * sizeof(*v));
    for (int i = 0; i < n; i++)
        v[i] = 1;
    return v;
}

static struct eng_model *make_model(const struct options *o, const struct kern *kern, int ctx)
{
    struct eng_model *m = take(sizeof(*m));
    m->hp = (struct eng_hparams){.d_model = 576,
                                 .n_layers = 30,
                                 .n_heads = 9,
                                 .n_kv_heads = 3,
                                 .d_head = 64,
                                 .d_ff = 1536,
                                 .vocab = 49152,
                                 .rms_eps = 1e-5};
    m->kern = kern;
    m->numerics = o->path;
    m->layers = take(30 * sizeof(*m->layers));
    enum kern_wfmt f = o->path->matrix;
    for (int i = 0; i < 30; i++)
        m->layers[i] = (struct eng_layer){.attn_norm = ones(576),
                                          .ffn_norm = ones(576),
                                          .rope = true,
                                          .qkv = make_mat(kern, f, 960, 576, o->blas),
                                          .o = make_mat(kern, f, 576, 576, o->blas),
                                          .gate_up = make_mat(kern, f, 3072, 576, o->blas),
                                          .down = make_mat(kern, f, 576, 1536, o->blas)};
    m->embed = m->head = make_mat(kern, o->path->head, 49152, 576, false);
    m->head.use_blas = o->blas;
    m->final_norm = ones(576);
    float *cosines = take((size_t)ctx * 32 * sizeof(float));
    float *sines = take((size_t)ctx * 32 * sizeof(float));
    for (int i = 0; i < ctx * 32; i++) {
        double angle = i / 32 * pow(100000.0, -2.0 * (i % 32) / 64);
        cosines[i] = (float)cos(angle);
        sines[i] = (float)sin(angle);
    }
    m->rope_cos = cosines;
    m->rope_sin = sines;
    m->ctx = ctx;
    return m;
}

/* ---- sequences ----------------------------------------------------------------------------- */

struct bench {
    struct options o;
    struct kv_layout layout;
    struct kv_pages *kv;
    struct pool *pool;
    struct fwd *fwd;
    int n_pages;     /* of a sequence */
    uint8_t **pages; /* [MAX_BATCH][n_pages] */
    int32_t *tokens; /* [ctx] */
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static uint8_t *const *pages_of(struct bench *b, int seq)
{
    uint8_t **pages = b->pages + (size_t)seq * (size_t)b->n_pages;
    for (int i = 0; i < b->n_pages; i++)
        if (!pages[i]) pages[i] = kv_page_data(b->kv, kv_page_get(b->kv));
    return pages;
}

static void prefill(struct bench *b, int seq, int n)
{
    for (int done = 0; done < n; done += b->o.chunk) {
        int rows = n - done < b->o.chunk ? n - done : b->o.chunk;
        struct fwd_segment seg = {.tokens = b->tokens + done,
                                  .n_tokens = rows,
                                  .pos0 = done,
                                  .pages = pages_of(b, seq),
                                  .want = done + rows == n ? FWD_WANT_LAST : FWD_WANT_NONE};
        struct fwd_step step = {&seg, 1, NULL};
        fwd_run(b->fwd, &step);
    }
}

static void decode(struct bench *b, int batch, int ctx, int n_gen)
{
    struct fwd_segment segs[MAX_BATCH];
    int32_t token[MAX_BATCH];
    for (int i = 0; i < batch; i++)
        token[i] = b->tokens[i];
    for (int t = 0; t < n_gen; t++) {
        for (int i = 0; i < batch; i++)
            segs[i] = (struct fwd_segment){.tokens = &token[i],
                                           .n_tokens = 1,
                                           .pos0 = ctx + t,
                                           .pages = pages_of(b, i),
                                           .want = FWD_WANT_LAST};
        struct fwd_step step = {segs, batch, NULL};
        fwd_run(b->fwd, &step);
        bool finite;
        for (int i = 0; i < batch; i++)
            token[i] = fwd_argmax(b->fwd, i, &finite);
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_speeds(const char *what, int n, double *speeds, int reps)
{
    qsort(speeds, (size_t)reps, sizeof(*speeds), compare);
    printf("  %s%d: %.1f tok/s (min %.1f max %.1f)\n", what, n, speeds[reps / 2], speeds[0],
           speeds[reps - 1]);
    fflush(stdout);
}

static void bench_prefill(struct bench *b, int n)
{
    double speeds[MAX_REPS];
    prefill(b, 0, n);
    for (int r = 0; r < b->o.reps; r++) {
        double start = now();
        prefill(b, 0, n);
        speeds[r] = n / (now() - start);
    }
    print_speeds("pp", n, speeds, b->o.reps);
}

static void bench_decode(struct bench *b, int batch)
{
    double speeds[MAX_REPS];
    for (int i = 0; i < batch; i++)
        prefill(b, i, b->o.ctx);
    for (int r = 0; r < b->o.reps; r++) {
        double start = now();
        decode(b, batch, b->o.ctx, b->o.n_gen);
        speeds[r] = batch * b->o.n_gen / (now() - start);
    }
    print_speeds("tg", batch, speeds, b->o.reps);
}

/* ---- main ---------------------------------------------------------------------------------- */

static int largest(const char *list)
{
    long most = 0;
    for (const char *p = list; *p; p += *p == ',') {
        char *end;
        long n = strtol(p, &end, 10);
        if (end == p) fail("lists are numbers and commas");
        if (n > most) most = n;
        p = end;
    }
    return (int)most;
}

static void each(struct bench *b, const char *list, void (*run)(struct bench *, int))
{
    for (const char *p = list; *p; p += *p == ',') {
        char *end;
        run(b, (int)strtol(p, &end, 10));
        p = end;
    }
}

static const struct eng_numerics *find_path(const char *name)
{
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
        if (strcmp(paths[i].name, name) == 0) return &paths[i];
    fail("-f: no such path");
    return NULL;
}

static struct options parse(int argc, char **argv)
{
    struct options o = {.path = find_path("bf16"),
                        .prompts = "",
                        .batches = "",
                        .n_threads = 1,
                        .chunk = 256,
                        .ctx = 128,
                        .n_gen = 64,
                        .reps = 5};
    for (int c; (c = getopt(argc, argv, "f:t:p:c:b:x:g:r:k:B")) != -1;) {
        if (c == 'f') o.path = find_path(optarg);
        if (c == 't') o.n_threads = largest(optarg);
        if (c == 'p') o.prompts = optarg;
        if (c == 'c') o.chunk = largest(optarg);
        if (c == 'b') o.batches = optarg;
        if (c == 'x') o.ctx = largest(optarg);
        if (c == 'g') o.n_gen = largest(optarg);
        if (c == 'r') o.reps = largest(optarg);
        if (c == 'k') o.kernels = optarg;
        if (c == 'B') o.blas = true;
    }
    if (o.reps > MAX_REPS || largest(o.batches) > MAX_BATCH) fail("too many");
    return o;
}

static void open_bench(struct bench *b, const struct kern *kern, int ctx)
{
    char err[200] = "";
    struct eng_model *m = make_model(&b->o, kern, ctx);
    int batch = largest(b->o.batches) > 1 ? largest(b->o.batches) : 1;
    b->n_pages = (ctx + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
    b->pages = take((size_t)MAX_BATCH * (size_t)b->n_pages * sizeof(*b->pages));
    b->tokens = take((size_t)ctx * sizeof(*b->tokens));
    for (int i = 0; i < ctx; i++)
        b->tokens[i] = (i * 7919 + 13) % m->hp.vocab;
    kv_layout_init(&b->layout, 30, 3, 64, b->o.path->kv);
    int rows = b->o.chunk > MAX_BATCH ? b->o.chunk : MAX_BATCH;
    struct fwd_params p = {.model = m,
                           .layout = &b->layout,
                           .max_rows = rows,
                           .max_segs = MAX_BATCH,
                           .max_logit_rows = MAX_BATCH,
                           .ctx = ctx};
    if (pool_create(&b->pool, b->o.n_threads, err, sizeof(err))) fail(err);
    p.pool = b->pool;
    if (kv_pages_create(&b->kv, &b->layout, batch * b->n_pages, err, sizeof(err))) fail(err);
    if (fwd_create(&b->fwd, &p, err, sizeof(err))) fail(err);
}

int main(int argc, char **argv)
{
    struct bench b = {.o = parse(argc, argv)};
    const char *core = b.o.blas ? gemm_blas_init() : "";
    const struct kern *kern = kern_select(b.o.kernels);
    if (!kern || !core) fail("this machine has no such kernels or BLAS");
    int ctx = b.o.ctx + b.o.n_gen + 1;
    if (largest(b.o.prompts) > ctx) ctx = largest(b.o.prompts);
    open_arena((size_t)1 << 30);
    open_bench(&b, kern, ctx);
    printf("%s, kernels %s, threads %d, chunk %d %s\n", b.o.path->name, kern->name, b.o.n_threads,
           b.o.chunk, core);
    each(&b, b.o.prompts, bench_prefill);
    each(&b, b.o.batches, bench_decode);
    fwd_destroy(b.fwd);
    kv_pages_destroy(b.kv);
    pool_destroy(b.pool);
    return 0;
}
