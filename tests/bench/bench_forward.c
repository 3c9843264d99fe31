/* SPDX-License-Identifier: MIT */
/*
 * Speed of the forward pass alone, on random weights in the shape of a known model made in memory:
 * no loader, no scheduler, no server. For work on kernels, attention and the pool.
 *
 *   bench_forward [-m 135m|360m|1.7b|llama1b] [-f exact|bf16|int8|int4|...] [-t threads]
 *                 [-p prompt,...] [-c chunk] [-b batch,...] [-x context] [-g generated] [-r reps]
 *                 [-k kernels] [-a ahead] [-l rank] [-P] [-B]
 *
 * -p measures prefill, -b decode of that many sequences from context x on, or from one of its own:
 * 8x4096. -a: bytes that weights are prefetched ahead of one row, -P: bf16 weights are not coded, -B:
 * BLAS multiplies. -l: a prompt or batch may end with l, 8l: each row has an adapter of its own of that
 * rank, over all matrices of the layers. All cases take turns, `reps` times; medians, least and most. Right
 * before a decode case the same threads read the bytes that one of its steps must read, weights
 * and keys and values, in the order of memory: "of the limit" is that time divided by a step's.
 *
 *   bench_forward -t 2 -r 7 -g 12 -p 512,8000 -b 8x4096,16x2048,8x8000,16x8000
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
#include "engine/job_types.h"
#include "engine/kv/kv.h"
#include "engine/model/adapter.h"
#include "engine/model/model.h"
#include "engine/model/numerics.h"
#include "engine/pool.h"

enum { MAX_BATCH = 64, MAX_REPS = 64, MAX_CASES = 16, MAX_LORAS = 8, HUGE_PAGE = 2 << 20 };

static const struct eng_numerics paths[] = {
    {"exact", KERN_A_F32, true, false, KERN_W_BF16, KERN_W_BF16, KERN_W_BF16, KERN_KV_F32},
    {"f32", KERN_A_F32, true, false, KERN_W_F32, KERN_W_F32, KERN_W_F32, KERN_KV_F32},
    {"bf16", KERN_A_BF16, true, false, KERN_W_BF16, KERN_W_BF16, KERN_W_BF16, KERN_KV_BF16},
    {"bf16-kv8", KERN_A_BF16, true, false, KERN_W_BF16, KERN_W_BF16, KERN_W_BF16, KERN_KV_I8},
    {"int8", KERN_A_I8, false, false, KERN_W_I8, KERN_W_I8, KERN_W_I8, KERN_KV_BF16},
    {"int8-kv8", KERN_A_I8, false, false, KERN_W_I8, KERN_W_I8, KERN_W_I8, KERN_KV_I8},
    {"int4", KERN_A_I8, false, false, KERN_W_I4K, KERN_W_I5K, KERN_W_I6S, KERN_KV_BF16},
    {"int4-all", KERN_A_I8, false, false, KERN_W_I4K, KERN_W_I4K, KERN_W_I4K, KERN_KV_BF16},
};

static const struct shape {
    const char *name;
    int d_model, n_layers, n_heads, n_kv_heads, d_ff, vocab;
} shapes[] = {
    {"135m", 576, 30, 9, 3, 1536, 49152},
    {"360m", 960, 32, 15, 5, 2560, 49152},
    {"1.7b", 2048, 24, 32, 32, 8192, 49152},
    {"llama1b", 2048, 16, 32, 8, 8192, 128256},
};
enum { D_HEAD = 64 };

struct options {
    const struct eng_numerics *path;
    const struct shape *shape;
    size_t ahead;
    const char *prompts, *batches, *kernels;
    int n_threads, chunk, ctx, n_gen, reps, rank;
    bool blas, plain;
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
    if (!kern_pack_panel(kern, m.fmt, KERN_SRC_F32, row, NULL, n_in, n_in, words, m.panels))
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
    const struct shape *s = o->shape;
    int d = s->d_model, n = s->n_layers, qkv = (s->n_heads + 2 * s->n_kv_heads) * D_HEAD;
    m->hp = (struct eng_hparams){.d_model = d,
                                 .n_layers = n,
                                 .n_heads = s->n_heads,
                                 .n_kv_heads = s->n_kv_heads,
                                 .d_head = D_HEAD,
                                 .d_ff = s->d_ff,
                                 .vocab = s->vocab,
                                 .attn_scale = 0.125,
                                 .d_rot = D_HEAD,
                                 .rms_eps = 1e-5};
    m->embed_scale = 1;
    m->has_head = true;
    m->heads.width = d;
    m->stream_eps = m->hp.rms_eps;
    m->kern = kern;
    m->numerics = o->path;
    m->reading.ahead = o->ahead;
    m->layers = take((size_t)n * sizeof(*m->layers));
    enum kern_wfmt f = o->path->matrix;
    for (int i = 0; i < n; i++)
        m->layers[i] = (struct eng_layer){.attn_norm = ones(d),
                                          .ffn_norm = ones(d),
                                          .qkv = make_mat(kern, f, qkv, d, o->blas),
                                          .o = make_mat(kern, f, d, d, o->blas),
                                          .gate_up = make_mat(kern, f, 2 * s->d_ff, d, o->blas),
                                          .down = make_mat(kern, f, d, s->d_ff, o->blas)};
    m->embed = m->head = make_mat(kern, o->path->head, s->vocab, d, false);
    m->head.use_blas = o->blas;
    gemm_blas_settle_model(m);
    m->final_norm = m->head_norm = ones(d);
    float *cosines = take((size_t)ctx * 32 * sizeof(float));
    float *sines = take((size_t)ctx * 32 * sizeof(float));
    for (int i = 0; i < ctx * 32; i++) {
        double angle = i / 32 * pow(100000.0, -2.0 * (i % 32) / 64);
        cosines[i] = (float)cos(angle);
        sines[i] = (float)sin(angle);
    }
    for (int i = 0; i < n; i++) {
        m->layers[i].rope_cos = cosines;
        m->layers[i].rope_sin = sines;
    }
    m->ctx = ctx;
    return m;
}

/* An adapter of random numbers, of all matrices of the layers. */
static struct eng_lora *make_lora(const struct eng_model *m, int rank)
{
    struct eng_lora *lora = take(sizeof(*lora));
    *lora = (struct eng_lora){.fmt = KERN_W_BF16, .has_down = true, .arena = arena};
    lora->pairs = take(((size_t)m->hp.n_layers * ENG_LORA_SITES + 1) * sizeof(*lora->pairs));
    for (int i = 0; i < m->hp.n_layers * ENG_LORA_SITES; i++) {
        struct eng_layer *l = &m->layers[i / ENG_LORA_SITES];
        const struct eng_mat *mats[] = {&l->qkv, &l->o, &l->gate_up, &l->down};
        static const int targets[] = {3, 1, 2, 1};
        const struct eng_mat *mat = mats[i % ENG_LORA_SITES];
        int n_u =
            (targets[i % ENG_LORA_SITES] * rank + KERN_NARROW - 1) / KERN_NARROW * KERN_NARROW;
        int n_q = m->hp.n_heads * D_HEAD / KERN_PANEL, n_k = m->hp.n_kv_heads * D_HEAD / KERN_PANEL;
        struct eng_lora_pair *p = &lora->pairs[i];
        *p = (struct eng_lora_pair){mat->n_in, n_u, mat->n_panels, .panels = NULL};
        p->panels = take((size_t)mat->n_panels * sizeof(*p->panels));
        size_t bytes = eng_lora_bytes(lora, mat->n_in, n_u);
        size_t b_bytes = eng_lora_bytes(lora, rank, KERN_PANEL);
        uint16_t *a = take(bytes + (size_t)mat->n_panels * b_bytes);
        float *factors = take((size_t)n_u * sizeof(*factors));
        for (size_t k = 0; k < (bytes + (size_t)mat->n_panels * b_bytes) / 2; k++)
            a[k] = (uint16_t)(0x3c00 | (k * 2654435761u >> 7 & 0x807f));
        for (int k = 0; k < n_u; k++)
            factors[k] = 1;
        p->a = (size_t)((uint8_t *)a - arena);
        p->factors = (size_t)((uint8_t *)factors - arena);
        for (int k = 0; k < mat->n_panels; k++) {
            int target = mat == &l->qkv       ? (k >= n_q) + (k >= n_q + n_k)
                         : mat == &l->gate_up ? k % 2
                                              : 0;
            p->panels[k] =
                (struct eng_lora_panel){p->a + bytes + (size_t)k * b_bytes, target * rank, rank};
        }
    }
    return lora;
}

/* ---- cases --------------------------------------------------------------------------------- */

/* A measurement and its results. */
struct run {
    int batch; /* sequences that decode; 0: prefill */
    int ctx;   /* prompt tokens, or tokens of a sequence before the first step */
    bool adapted;
    double speeds[MAX_REPS], bandwidths[MAX_REPS], shares[MAX_REPS];
};

struct bench {
    struct options o;
    struct eng_model *model;
    struct kv_layout layout;
    struct kv_pages *kv;
    struct pool *pool;
    struct fwd *fwd;
    int ctx;         /* of the longest case */
    int n_pages;     /* of a sequence */
    uint8_t **pages; /* [MAX_BATCH][n_pages] */
    int32_t *tokens; /* [ctx] */
    size_t weight_bytes;
    struct eng_lora_use loras[MAX_LORAS]; /* with -l */
    int n_filled;                         /* tokens of sequence 0 that are computed */
    struct run runs[MAX_CASES];
    int n_runs;
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

static void prefill(struct bench *b, int n, bool adapted)
{
    for (int done = 0; done < n; done += b->o.chunk) {
        int rows = n - done < b->o.chunk ? n - done : b->o.chunk;
        struct fwd_segment seg = {.tokens = b->tokens + done,
                                  .n_tokens = rows,
                                  .pos0 = done,
                                  .pages = pages_of(b, 0),
                                  .loras = b->loras,
                                  .n_loras = adapted,
                                  .want = done + rows == n ? FWD_WANT_LAST : FWD_WANT_NONE};
        struct fwd_step step = {&seg, 1, NULL};
        fwd_run(b->fwd, &step);
    }
    if (n > b->n_filled) b->n_filled = n;
}

/* Gives all sequences the keys and values of one that is computed. */
static void fill(struct bench *b)
{
    int ctx = 0, batch = 0;
    for (int i = 0; i < b->n_runs; i++) {
        const struct run *r = &b->runs[i];
        if (r->batch > batch) batch = r->batch;
        if (r->batch > 0 && r->ctx > ctx) ctx = r->ctx;
    }
    if (b->n_filled < ctx) prefill(b, ctx, false);
    for (int i = 1; i < batch; i++)
        for (int page = 0; page < kv_pages_of(ctx); page++)
            memcpy(pages_of(b, i)[page], pages_of(b, 0)[page], b->layout.page_bytes);
}

static void decode(struct bench *b, int batch, int ctx, int n_gen, bool adapted)
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
                                           .loras = &b->loras[i % MAX_LORAS],
                                           .n_loras = adapted,
                                           .want = FWD_WANT_LAST};
        struct fwd_step step = {segs, batch, NULL};
        fwd_run(b->fwd, &step);
        bool finite;
        for (int i = 0; i < batch; i++)
            token[i] = fwd_argmax(b->fwd, i, &finite);
    }
}

/* ---- read bandwidth ------------------------------------------------------------------------ */

enum { PIECE_BYTES = 1 << 20 };

/* The memory that a decode step of a case reads: the weights in pieces, then pages. */
struct reading {
    struct bench *b;
    const struct run *run;
    int n_pieces, n_pages; /* pages of a sequence */
};

/* Reads memory in whole lines where the processor can. */
#if defined(__x86_64__)
__attribute__((target_clones("avx512f", "avx2", "default")))
#endif
static void
read_bytes(const uint8_t *p, size_t bytes)
{
    typedef uint64_t line __attribute__((vector_size(64)));
    line sum[2] = {0};
    for (size_t i = 0; i + 128 <= bytes; i += 128) {
        sum[0] ^= *(const line *)(const void *)(p + i);
        sum[1] ^= *(const line *)(const void *)(p + i + 64);
    }
    sum[0] ^= sum[1];
    __asm__ volatile("" ::"m"(sum[0]));
}

static void read_item(void *arg, int item, int thread)
{
    const struct reading *r = arg;
    (void)thread;
    const uint8_t *p = arena + (size_t)item * PIECE_BYTES;
    size_t bytes = PIECE_BYTES;
    if (item >= r->n_pieces) {
        int page = item - r->n_pieces;
        p = pages_of(r->b, page / r->n_pages)[page % r->n_pages];
        bytes = r->b->layout.page_bytes;
    }
    read_bytes(p, bytes);
}

/* Reads what a step of a decode case reads; returns bytes per second. */
static double read_bandwidth(struct bench *b, const struct run *run)
{
    struct reading r = {.b = b,
                        .run = run,
                        .n_pieces = (int)(b->weight_bytes / PIECE_BYTES),
                        .n_pages = (int)kv_pages_of(run->ctx)};
    int n_pages = run->batch * r.n_pages;
    struct pool_phase phase = {read_item, &r, r.n_pieces + n_pages};
    double start = now();
    pool_run(b->pool, &phase, 1, NULL);
    double bytes = (double)r.n_pieces * PIECE_BYTES + (double)n_pages * b->layout.page_bytes;
    return bytes / (now() - start);
}

static double step_bytes(const struct bench *b, const struct run *run)
{
    double tokens = run->ctx + 0.5 * (b->o.n_gen + 1);
    double token_bytes = (double)b->layout.page_bytes / KV_PAGE_TOKENS;
    return (double)b->weight_bytes + run->batch * tokens * token_bytes;
}

/* ---- rounds -------------------------------------------------------------------------------- */

static void measure(struct bench *b, struct run *run, int rep)
{
    double start = now();
    if (run->batch == 0) {
        prefill(b, run->ctx, run->adapted);
        run->speeds[rep] = run->ctx / (now() - start);
        return;
    }
    double before = read_bandwidth(b, run);
    start = now();
    decode(b, run->batch, run->ctx, b->o.n_gen, run->adapted);
    double seconds = (now() - start) / b->o.n_gen;
    double bandwidth = 0.5 * (before + read_bandwidth(b, run));
    run->speeds[rep] = run->batch / seconds;
    run->bandwidths[rep] = bandwidth * 1e-9;
    run->shares[rep] = 100 * step_bytes(b, run) / bandwidth / seconds;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof(*values), compare);
    return values[n / 2];
}

static void print_run(const struct bench *b, struct run *run)
{
    int reps = b->o.reps;
    double speed = median(run->speeds, reps), least = run->speeds[0], most = run->speeds[reps - 1];
    if (run->batch == 0) {
        printf("  pp%d%s: %.1f tok/s (min %.1f max %.1f)\n", run->ctx, run->adapted ? "l" : "",
               speed, least, most);
        return;
    }
    double bandwidth = median(run->bandwidths, reps), share = median(run->shares, reps);
    printf(
        "  tg%d%s: %.1f tok/s (min %.1f max %.1f) from context %d; %.0f MB per step, read at %.1f "
        "GB/s: %.0f %% of the limit (%.0f-%.0f)\n",
        run->batch, run->adapted ? "l" : "", speed, least, most, run->ctx,
        step_bytes(b, run) * 1e-6, bandwidth, share, run->shares[0], run->shares[reps - 1]);
}

/* The speeds of prefills beside that of the first, round by round. */
static void print_ratios(struct bench *b)
{
    struct run *first = &b->runs[0];
    for (int i = 1; i < b->n_runs && b->runs[i].batch == 0; i++) {
        double ratios[MAX_REPS];
        for (int k = 0; k < b->o.reps; k++)
            ratios[k] = b->runs[i].speeds[k] / first->speeds[k];
        double mid = median(ratios, b->o.reps);
        printf("  pp%d / pp%d: %.2f (%.2f-%.2f)\n", b->runs[i].ctx, first->ctx, mid, ratios[0],
               ratios[b->o.reps - 1]);
    }
}

static void run_all(struct bench *b)
{
    for (int i = 0; i < b->n_runs; i++)
        if (b->runs[i].batch == 0 && b->runs[i].ctx > b->n_filled)
            prefill(b, b->runs[i].ctx, false);
    fill(b);
    for (int rep = 0; rep < b->o.reps; rep++)
        for (int i = 0; i < b->n_runs; i++)
            measure(b, &b->runs[i], rep);
    print_ratios(b);
    for (int i = 1; i < b->n_runs; i++) {
        double ratios[MAX_REPS];
        for (int k = 0; k < b->o.reps; k++)
            ratios[k] = b->runs[i].speeds[k] / b->runs[i - 1].speeds[k];
        if (b->runs[i].adapted)
            printf("  with adapters: %.3f of the case before it\n", median(ratios, b->o.reps));
    }
    for (int i = 0; i < b->n_runs; i++)
        print_run(b, &b->runs[i]);
}

/* ---- main ---------------------------------------------------------------------------------- */

static int read_number(const char **at)
{
    char *end;
    long n = strtol(*at, &end, 10);
    if (end == *at || n < 0 || n > 1 << 24) fail("lists are numbers and commas");
    *at = end;
    return (int)n;
}

static int number(const char *s)
{
    int n = read_number(&s);
    if (n < 1) fail("options are numbers from 1 on");
    return n;
}

/* Adds the cases of a list: prompts, or batches with or without a context of their own. */
static void add_runs(struct bench *b, const char *list, bool decodes)
{
    for (const char *p = list; *p; p += *p == ',') {
        if (b->n_runs == MAX_CASES) fail("too many cases");
        struct run *run = &b->runs[b->n_runs++];
        int n = read_number(&p);
        if (decodes) {
            run->batch = n;
            run->ctx = b->o.ctx;
            if (*p == 'x') {
                p++;
                run->ctx = read_number(&p);
            }
        } else {
            run->ctx = n;
        }
        run->adapted = *p == 'l' && b->o.rank > 0;
        p += run->adapted;
        if (run->ctx < 1 || run->batch > MAX_BATCH || (decodes && run->batch < 1))
            fail("a case is out of range");
        int ctx = run->ctx + (decodes ? b->o.n_gen + 1 : 0);
        if (ctx > b->ctx) b->ctx = ctx;
    }
}

static const struct eng_numerics *find_path(const char *name)
{
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
        if (strcmp(paths[i].name, name) == 0) return &paths[i];
    fail("-f: no such path");
    return NULL;
}

static const struct shape *find_shape(const char *name)
{
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        if (strcmp(shapes[i].name, name) == 0) return &shapes[i];
    fail("-m: no such shape");
    return NULL;
}

static struct options parse(int argc, char **argv)
{
    struct options o = {.path = find_path("bf16"),
                        .prompts = "",
                        .batches = "",
                        .shape = shapes,
                        .n_threads = 1,
                        .chunk = 256,
                        .ctx = 128,
                        .n_gen = 64,
                        .reps = 5};
    for (int c; (c = getopt(argc, argv, "m:f:t:p:c:b:x:g:r:k:a:l:PB")) != -1;) {
        if (c == 'm') o.shape = find_shape(optarg);
        if (c == 'a') o.ahead = (size_t)number(optarg);
        if (c == 'l') o.rank = number(optarg);
        if (c == 'P') o.plain = true;
        if (c == 'f') o.path = find_path(optarg);
        if (c == 't') o.n_threads = number(optarg);
        if (c == 'p') o.prompts = optarg;
        if (c == 'c') o.chunk = number(optarg);
        if (c == 'b') o.batches = optarg;
        if (c == 'x') o.ctx = number(optarg);
        if (c == 'g') o.n_gen = number(optarg);
        if (c == 'r') o.reps = number(optarg);
        if (c == 'k') o.kernels = optarg;
        if (c == 'B') o.blas = true;
    }
    if (o.reps > MAX_REPS) fail("-r: too many");
    return o;
}

static size_t mat_bytes(const struct eng_mat *m)
{
    return (size_t)m->n_panels * m->panel_bytes;
}

static size_t weight_bytes(const struct eng_model *m)
{
    size_t bytes = mat_bytes(&m->head);
    for (int i = 0; i < m->hp.n_layers; i++) {
        const struct eng_layer *l = &m->layers[i];
        bytes +=
            mat_bytes(&l->qkv) + mat_bytes(&l->o) + mat_bytes(&l->gate_up) + mat_bytes(&l->down);
    }
    return bytes;
}

static void open_bench(struct bench *b, const struct kern *kern)
{
    char err[200] = "";
    struct eng_model *m = make_model(&b->o, kern, b->ctx);
    int64_t pages = 0;
    b->model = m;
    b->weight_bytes = weight_bytes(m);
    b->n_pages = (int)kv_pages_of(b->ctx);
    b->pages = take((size_t)MAX_BATCH * (size_t)b->n_pages * sizeof(*b->pages));
    b->tokens = take((size_t)b->ctx * sizeof(*b->tokens));
    for (int i = 0; i < b->ctx; i++)
        b->tokens[i] = (i * 7919 + 13) % m->hp.vocab;
    kv_layout_init(&b->layout, m->hp.n_layers, m->hp.n_kv_heads, D_HEAD, b->o.path->kv);
    int rows = b->o.chunk > MAX_BATCH ? b->o.chunk : MAX_BATCH;
    struct fwd_params p = {.model = m,
                           .layout = &b->layout,
                           .max_rows = rows,
                           .max_segs = MAX_BATCH,
                           .max_logit_rows = MAX_BATCH,
                           .ctx = b->ctx,
                           .lora_rank = b->o.rank};
    for (int i = 0; i < MAX_LORAS && b->o.rank > 0; i++)
        b->loras[i] = (struct eng_lora_use){make_lora(m, b->o.rank), 1};
    if (pool_create(&b->pool, b->o.n_threads, err, sizeof(err))) fail(err);
    p.pool = b->pool;
    for (int i = 0; i < b->n_runs; i++)
        if (b->runs[i].batch > pages) pages = b->runs[i].batch;
    pages = (pages > 0 ? pages : 1) * b->n_pages;
    if (kv_pages_create(&b->kv, &b->layout, (int)pages, err, sizeof(err))) fail(err);
    if (fwd_create(&b->fwd, &p, err, sizeof(err))) fail(err);
}

int main(int argc, char **argv)
{
    static struct bench b;
    b.o = parse(argc, argv);
    const char *core = b.o.blas ? gemm_blas_init() : "";
    const struct kern *kern = kern_select(b.o.kernels);
    if (!kern || !core) fail("this machine has no such kernels or BLAS");
    add_runs(&b, b.o.prompts, false);
    add_runs(&b, b.o.batches, true);
    if (b.n_runs == 0) fail("-p or -b says what to measure");
    struct kern uncoded = *kern;
    uncoded.prefers_b12 = false;
    if (b.o.plain) kern = &uncoded;
    open_arena((size_t)8 << 30); /* only what is used becomes memory */
    open_bench(&b, kern);
    printf("%s, kernels %s, threads %d, chunk %d %s\n", b.o.path->name, kern->name, b.o.n_threads,
           b.o.chunk, core);
    run_all(&b);
    fwd_destroy(b.fwd);
    kv_pages_destroy(b.kv);
    pool_destroy(b.pool);
    return 0;
}
