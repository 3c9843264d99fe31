/* SPDX-License-Identifier: MIT */
/*
 * Every kernel level against level "c", and every level's promises: a row's product has the same
 * bits for every height of the tile, every place in it, every number of panels, with and without
 * prefetch, and whether bf16 weights are coded in 12 bits or not; levels that are only faster than
 * a lower one have its bits.
 *
 *   check_kernels [--level NAME] [--best NAME] [--seed N] [--rounds N]
 *   check_kernels --bench [FILTER] [--level NAME]
 *
 * --best: the level that must be the default on this CPU.
 *
 * Inputs end where an unreadable page begins, so reading past them is a crash; outputs lie between
 * guard bytes. Uses no test library, so that it can be built static for another CPU and emulated.
 */
#include "check.h"

#include "engine/kernels/blocks.h"
#include "engine/kernels/convert.h"
#include "engine/kernels/kv_int8.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__x86_64__) && defined(__linux__)
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#endif

enum { GUARD = 192, MAX_TILE = 128, MAX_PANELS = 4 };

static uint64_t rnd_state;
static int n_checks, n_failures;
static const struct kern *ref, *cand;

uint64_t rnd(void)
{
    rnd_state ^= rnd_state << 13;
    rnd_state ^= rnd_state >> 7;
    rnd_state ^= rnd_state << 17;
    return rnd_state;
}

int rnd_int(int lo, int hi)
{
    return lo + (int)(rnd() >> 33) % (hi - lo + 1);
}

float rnd_float(void)
{
    return (float)((double)(int64_t)rnd() * 0x1p-63);
}

/* ---- buffers ------------------------------------------------------------------------------- */

static size_t edge_bytes(size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (n + page - 1) / page * page + page;
}

void *edge_alloc(size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), all = edge_bytes(n);
    char *p = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED || mprotect(p + all - page, page, PROT_NONE)) {
        perror("mmap");
        exit(1);
    }
    return p + all - page - n;
}

void edge_free(void *p, size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), all = edge_bytes(n);
    munmap((char *)p + n + page - all, all);
}

/* An output buffer of n bytes, filled with noise, with guard bytes on both sides. */
static void *guarded_alloc(size_t n)
{
    unsigned char *p = aligned_alloc(64, (n + 2 * GUARD + 63) / 64 * 64);
    if (!p) exit(1);
    for (size_t i = 0; i < n + 2 * GUARD; i++)
        p[i] = (unsigned char)(i * 37 + 11);
    return p + GUARD;
}

static void check(bool ok, const char *what, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void check(bool ok, const char *what, const char *format, ...)
{
    n_checks++;
    if (ok || n_failures++ >= 20) return;
    va_list ap;
    va_start(ap, format);
    fprintf(stderr, "FAILED %s %s: ", cand->name, what);
    vfprintf(stderr, format, ap);
    fprintf(stderr, "\n");
    va_end(ap);
}

static void guarded_free(void *buffer, size_t n, const char *what)
{
    unsigned char *p = (unsigned char *)buffer - GUARD;
    size_t bad = 0;
    for (size_t i = 0; i < n + 2 * GUARD; i++)
        if ((i < GUARD || i >= GUARD + n) && p[i] != (unsigned char)(i * 37 + 11)) bad++;
    check(bad == 0, what, "%zu guard bytes overwritten around %zu bytes", bad, n);
    free(p);
}

static void fill_floats(float *x, int n)
{
    float size = (float)exp((double)rnd_float() * 6);
    for (int i = 0; i < n; i++)
        x[i] = rnd_float() * size;
}

static int k_pad_of(int k)
{
    return (k + KERN_K_ALIGN - 1) / KERN_K_ALIGN * KERN_K_ALIGN;
}

static bool same_bits(const float *a, const float *b, int n)
{
    return memcmp(a, b, (size_t)n * sizeof(float)) == 0;
}

/* |a - b| within rel of |b|, or both not finite in the same way. */
static bool near(double a, double b, double rel, double abs)
{
    if (isnan(b)) return isnan(a);
    return a == b || fabs(a - b) <= rel * fabs(b) + abs;
}

/* ---- weights ------------------------------------------------------------------------------- */

/* A float of any kind that weights may have. */
static float odd_float(void)
{
    switch (rnd_int(0, 15)) {
    case 0: return 0.0f;
    case 1: return -0.0f;
    case 2: return rnd_float() * 1e-41f;
    case 3: return rnd_float() * 1e-6f;
    case 4: return rnd_float() * 1e5f;
    case 5: return rnd_float() * 1e9f;
    case 6: return (float)rnd_int(-8, 8);
    default: return rnd_float();
    }
}

static size_t src_bytes(enum kern_src src)
{
    return src == KERN_SRC_F32 ? 4 : 2;
}

/* One row in a file: k elements, ending at an edge, at any address. */
static void *source_row(enum kern_src src, int k, bool tame)
{
    char *p = edge_alloc((size_t)k * src_bytes(src));
    for (int i = 0; i < k; i++) {
        float f = tame ? rnd_float() : odd_float();
        uint32_t u;
        memcpy(&u, &f, 4);
        uint16_t h = (uint16_t)(src == KERN_SRC_BF16 ? u >> 16 : (rnd() & 0x83ff) | 0x2c00);
        if (src == KERN_SRC_F16 && !tame) h = (uint16_t)(rnd() % 0x7c00 | (rnd() & 0x8000));
        memcpy(p + (size_t)i * src_bytes(src), src == KERN_SRC_F32 ? (void *)&u : (void *)&h,
               src_bytes(src));
    }
    return p;
}

/* A few weights of any size at random places of a bf16 panel. */
static void sprinkle(uint16_t *words, int k_pad, int n)
{
    for (int i = 0; i < n; i++)
        words[rnd_int(0, k_pad * KERN_PANEL - 1)] = (uint16_t)(rnd() & 0xbfff); /* finite */
}

/* Fills a panel of random weights at level "c". */
/* A panel of the forms that hold blocks: the beginning of one of whole blocks of any bits. */
static void random_blocks_panel(enum kern_wfmt fmt, int k_pad, void *panel)
{
    static const struct {
        enum kern_src src;
        int d_at, m_at;
    } types[KERN_W_COUNT] = {
        [KERN_W_I4] = {KERN_SRC_Q4_0, 0, 0},      [KERN_W_I4A] = {KERN_SRC_Q4_1, 0, 2},
        [KERN_W_I5] = {KERN_SRC_Q5_0, 0, 0},      [KERN_W_I5A] = {KERN_SRC_Q5_1, 0, 2},
        [KERN_W_I4K] = {KERN_SRC_Q4_K, 0, 2},     [KERN_W_I5K] = {KERN_SRC_Q5_K, 0, 2},
        [KERN_W_I6S] = {KERN_SRC_Q6_K, 208, 208},
    };
    enum kern_src src = types[fmt].src;
    int whole = (k_pad + 255) / 256 * 256, bytes = kern_block_bytes(src);
    size_t n = (size_t)(whole / kern_block_weights(src));
    uint8_t *blocks = malloc(n * (size_t)bytes * KERN_PANEL);
    void *longer = aligned_alloc(64, kern_panel_bytes(fmt, whole));
    const void *rows[KERN_PANEL];
    for (size_t i = 0; i < n * (size_t)bytes * KERN_PANEL; i++)
        blocks[i] = (uint8_t)rnd();
    for (size_t i = 0; i < n * KERN_PANEL; i++) { /* scales of 2^-7 to 2^-4, of both signs */
        uint8_t *b = blocks + i * (size_t)bytes;
        b[types[fmt].d_at + 1] = (uint8_t)((b[types[fmt].d_at + 1] & 0x8f) | 0x20);
        if (types[fmt].m_at)
            b[types[fmt].m_at + 1] = (uint8_t)((b[types[fmt].m_at + 1] & 0x8f) | 0x20);
    }
    for (int i = 0; i < KERN_PANEL; i++)
        rows[i] = rnd_int(0, 30) ? blocks + n * (size_t)bytes * (size_t)i : NULL;
    kern_pack_blocks(src, rows, whole, whole, longer);
    memcpy(panel, longer, kern_panel_bytes(fmt, k_pad));
    free(longer);
    free(blocks);
}

static void random_panel(enum kern_wfmt fmt, int k, int k_pad, void *panel)
{
    const void *rows[KERN_PANEL];
    if (fmt >= KERN_W_I4) {
        random_blocks_panel(fmt, k_pad, panel);
        return;
    }
    if (fmt == KERN_W_B12) {
        size_t bytes = kern_panel_bytes(KERN_W_BF16, k_pad);
        void *words = guarded_alloc(bytes);
        random_panel(KERN_W_BF16, k, k_pad, words);
        sprinkle(words, k_pad / 2, rnd_int(0, k_pad / KERN_GROUP)); /* not where k is padded */
        check(ref->encode_panel(words, k_pad, panel), "encode_panel", "k %d", k);
        guarded_free(words, bytes, "encode_panel");
        return;
    }
    for (int i = 0; i < KERN_PANEL; i++)
        rows[i] = source_row(KERN_SRC_F32, k, true);
    ref->pack_panel(fmt, KERN_SRC_F32, rows, NULL, k, k_pad, panel);
    for (int i = 0; i < KERN_PANEL; i++)
        edge_free((void *)(uintptr_t)rows[i], (size_t)k * 4);
}

/*
 * Output n of a panel unpacks at level "c" to the same bits as of another panel, format and level.
 */
static void check_unpack_row(enum kern_wfmt ref_fmt, const void *ref_panel, enum kern_wfmt fmt,
                             const void *panel, int n, int k)
{
    float *a = guarded_alloc((size_t)k * 4), *b = guarded_alloc((size_t)k * 4);
    ref->unpack_row(ref_fmt, ref_panel, n, k, a);
    cand->unpack_row(fmt, panel, n, k, b);
    check(same_bits(a, b, k), "unpack_row", "formats %d and %d k %d output %d", (int)ref_fmt,
          (int)fmt, k, n);
    guarded_free(a, (size_t)k * 4, "unpack_row");
    guarded_free(b, (size_t)k * 4, "unpack_row");
}

static void check_pack_panel(enum kern_wfmt fmt, enum kern_src src, int k)
{
    int k_pad = k_pad_of(k);
    size_t bytes = kern_panel_bytes(fmt, k_pad), row_bytes = (size_t)k * src_bytes(src);
    const void *rows[KERN_PANEL];
    bool tame = rnd_int(0, 1), even = rnd_int(0, 1);
    float *w = even ? NULL : edge_alloc((size_t)k_pad * 4);
    for (int i = 0; w && i < k_pad; i++)
        w[i] = i < k && rnd_int(0, 3) ? rnd_float() * rnd_float() : 0.0f;
    for (int i = 0; i < KERN_PANEL; i++)
        rows[i] = rnd_int(0, 9) ? source_row(src, k, tame) : NULL;
    char *want = guarded_alloc(bytes), *got = guarded_alloc(bytes);
    ref->pack_panel(fmt, src, rows, w, k, k_pad, want);
    cand->pack_panel(fmt, src, rows, w, k, k_pad, got);
    size_t at = 0;
    while (at < bytes && want[at] == got[at])
        at++;
    check(at == bytes, "pack_panel", "format %d source %d k %d: byte %zu of %zu", (int)fmt,
          (int)src, k, at, bytes);

    check_unpack_row(fmt, want, fmt, want, rnd_int(0, KERN_PANEL - 1), k);
    guarded_free(want, bytes, "pack_panel");
    guarded_free(got, bytes, "pack_panel");
    for (int i = 0; i < KERN_PANEL; i++)
        if (rows[i]) edge_free((void *)(uintptr_t)rows[i], row_bytes);
    if (w) edge_free(w, (size_t)k_pad * 4);
}

/* What a bf16 panel is made of before it is coded. */
enum coded_kind { CODED_TAME, CODED_FEW_ODD, CODED_ZEROS, CODED_TINY, CODED_WILD, CODED_KINDS };

static void fill_words(uint16_t *words, int k_pad, enum coded_kind kind)
{
    int n = k_pad * KERN_PANEL;
    for (int i = 0; i < n; i++) {
        uint16_t tame = kern_bf16_of_f32(rnd_float());
        words[i] = kind == CODED_WILD                     ? (uint16_t)rnd()
                   : kind == CODED_TINY                   ? (uint16_t)(rnd() & 0x83ff)
                   : kind == CODED_ZEROS && rnd_int(0, 1) ? (uint16_t)(rnd() & 0x8000)
                                                          : tame;
    }
    if (kind == CODED_FEW_ODD) sprinkle(words, k_pad, rnd_int(1, k_pad / KERN_GROUP * 3));
}

/* A bf16 panel comes back from 12 bits a weight as it was; levels agree on every byte. */
static void check_coded_panel(enum coded_kind kind, int k)
{
    int k_pad = k_pad_of(k);
    size_t bytes = kern_panel_bytes(KERN_W_B12, k_pad),
           plain = kern_panel_bytes(KERN_W_BF16, k_pad);
    uint16_t *words = guarded_alloc(plain);
    char *want = guarded_alloc(bytes + 64), *got = guarded_alloc(bytes + 64);
    fill_words(words, k_pad, kind);
    bool fits = ref->encode_panel(words, k_pad, want);
    check(fits == (kind != CODED_WILD), "encode_panel", "kind %d k %d", (int)kind, k);
    check(cand->encode_panel(words, k_pad, got) == fits, "encode_panel", "kind %d k %d", (int)kind,
          k);
    if (fits)
        check(memcmp(want, got, bytes) == 0, "encode_panel", "kind %d k %d: bytes", (int)kind, k);
    for (int n = 0; n < KERN_PANEL && fits; n++)
        check_unpack_row(KERN_W_BF16, words, KERN_W_B12, want, n, k);
    guarded_free(words, plain, "encode_panel");
    guarded_free(want, bytes + 64, "encode_panel");
    guarded_free(got, bytes + 64, "encode_panel");
}

/*
 * Quantised weights may be off by half a step of their group, and a little for the choice of
 * scale.
 */
static void check_quant_error(void)
{
    static const struct {
        enum kern_wfmt fmt;
        double rms; /* of the error over that of uniform weights in -1..1 */
    } bounds[] = {{KERN_W_BF16, 0.003}, {KERN_W_F16, 0.0004}, {KERN_W_I8, 0.0045},
                  {KERN_W_I6S, 0.019},  {KERN_W_I5K, 0.033},  {KERN_W_I4K, 0.068}};
    enum { K = 1024 };
    for (size_t f = 0; f < sizeof(bounds) / sizeof(bounds[0]); f++) {
        const void *rows[KERN_PANEL];
        for (int i = 0; i < KERN_PANEL; i++)
            rows[i] = source_row(KERN_SRC_F32, K, true);
        char *panel = edge_alloc(kern_panel_bytes(bounds[f].fmt, K));
        cand->pack_panel(bounds[f].fmt, KERN_SRC_F32, rows, NULL, K, K, panel);
        double error = 0, size = 0;
        for (int i = 0; i < KERN_PANEL; i++) {
            float back[K];
            cand->unpack_row(bounds[f].fmt, panel, i, K, back);
            for (int j = 0; j < K; j++) {
                double x = (double)((const float *)rows[i])[j];
                error += (x - (double)back[j]) * (x - (double)back[j]);
                size += x * x;
            }
        }
        double rms = sqrt(error / size);
        check(rms < bounds[f].rms, "quantisation", "format %d: relative error %g, bound %g",
              (int)bounds[f].fmt, rms, bounds[f].rms);
        edge_free(panel, kern_panel_bytes(bounds[f].fmt, K));
        for (int i = 0; i < KERN_PANEL; i++)
            edge_free((void *)(uintptr_t)rows[i], K * 4);
    }
}

/* ---- tiles --------------------------------------------------------------------------------- */

enum { UNWRITTEN = 0x5a5a }; /* two bytes of a tile before a row is packed */

static size_t tile_bytes(const struct kern *kern, enum kern_afmt fmt, int k_pad, int n_rows)
{
    return (size_t)k_pad * (size_t)kern->act_bytes[fmt] * (size_t)n_rows;
}

static struct kern_tile tile_of(const struct kern *kern, enum kern_afmt fmt, int k_pad, int n_rows)
{
    size_t groups = (size_t)(k_pad / KERN_GROUP) * (size_t)n_rows * 4;
    return (struct kern_tile){
        .data = guarded_alloc(tile_bytes(kern, fmt, k_pad, n_rows)),
        .scale = fmt == KERN_A_I8 ? guarded_alloc(groups) : NULL,
        .corr = fmt == KERN_A_I8 ? guarded_alloc(groups) : NULL,
        .n_rows = n_rows,
    };
}

static struct kern_tile tile_create(enum kern_afmt fmt, int k_pad, int n_rows)
{
    return tile_of(cand, fmt, k_pad, n_rows);
}

static void tile_free(const struct kern *kern, enum kern_afmt fmt, int k_pad, struct kern_tile *t)
{
    size_t groups = (size_t)(k_pad / KERN_GROUP) * (size_t)t->n_rows * 4;
    guarded_free(t->data, tile_bytes(kern, fmt, k_pad, t->n_rows), "pack_row data");
    if (fmt == KERN_A_I8) {
        guarded_free(t->scale, groups, "pack_row scales");
        guarded_free(t->corr, groups, "pack_row corrections");
    }
}

static void tile_destroy(enum kern_afmt fmt, int k_pad, struct kern_tile *t)
{
    tile_free(cand, fmt, k_pad, t);
}

/* Number k of a row of a tile of BF16; where it is kept as f32, of which the lower half is 0. */
static uint16_t bf16_at(const struct kern *kern, const struct kern_tile *t, int k, int row)
{
    const uint16_t *d = t->data;
    if (kern->act_bytes[KERN_A_BF16] == 2)
        return kern->bf16_row_major
                   ? d[(k / KERN_GROUP * t->n_rows + row) * KERN_GROUP + k % KERN_GROUP]
                   : d[(k / 2 * t->n_rows + row) * 2 + k % 2];
    uint32_t bits = kern_bits(((const float *)t->data)[k * t->n_rows + row]);
    check(bits % 65536 == 0 || bits == UNWRITTEN * 65537u, "pack_row", "k %d: %08x", k, bits);
    return (uint16_t)(bits >> 16);
}

static bool tile_equal(enum kern_afmt fmt, int k_pad, const struct kern_tile *want,
                       const struct kern_tile *got)
{
    size_t groups = (size_t)(k_pad / KERN_GROUP) * (size_t)want->n_rows * 4;
    for (int i = 0; fmt == KERN_A_BF16 && i < k_pad * want->n_rows; i++)
        if (bf16_at(ref, want, i % k_pad, i / k_pad) != bf16_at(cand, got, i % k_pad, i / k_pad))
            return false;
    if (fmt != KERN_A_BF16 &&
        memcmp(want->data, got->data, tile_bytes(ref, fmt, k_pad, want->n_rows)) != 0)
        return false;
    return fmt != KERN_A_I8 || (memcmp(want->scale, got->scale, groups) == 0 &&
                                memcmp(want->corr, got->corr, groups) == 0);
}

/* Rows one by one: each call writes its own row and no other. */
static void check_pack_row(enum kern_afmt fmt, enum kern_wfmt wfmt, int k, int n_rows)
{
    int k_pad = k_pad_of(k);
    struct kern_tile a = tile_of(ref, fmt, k_pad, n_rows), b = tile_create(fmt, k_pad, n_rows);
    memset(a.data, 0x5a, tile_bytes(ref, fmt, k_pad, n_rows)); /* layouts differ */
    memset(b.data, 0x5a, tile_bytes(cand, fmt, k_pad, n_rows));
    for (int r = 0; r < n_rows; r++) {
        float *x = edge_alloc((size_t)k * 4);
        fill_floats(x, k);
        if (rnd_int(0, 3) == 0)
            x[rnd_int(0, k - 1)] = (float[]){NAN, INFINITY, 0.0f, -0.0f, 1e-37f}[rnd_int(0, 4)];
        ref->pack_row[fmt](x, k, k_pad, wfmt, &a, r);
        cand->pack_row[fmt](x, k, k_pad, wfmt, &b, r);
        edge_free(x, (size_t)k * 4);
        check(tile_equal(fmt, k_pad, &a, &b), "pack_row", "format %d k %d row %d of %d", (int)fmt,
              k, r, n_rows);
    }
    tile_free(ref, fmt, k_pad, &a);
    tile_destroy(fmt, k_pad, &b);
}

/* ---- products ------------------------------------------------------------------------------ */

struct product {
    enum kern_afmt a;
    enum kern_wfmt w;
};
static const struct product products[] = {
    {KERN_A_F32, KERN_W_F32},  {KERN_A_F32, KERN_W_BF16}, {KERN_A_BF16, KERN_W_BF16},
    {KERN_A_I8, KERN_W_I8},    {KERN_A_I8, KERN_W_I4},    {KERN_A_F32, KERN_W_B12},
    {KERN_A_BF16, KERN_W_B12}, {KERN_A_F32, KERN_W_F16},  {KERN_A_I8, KERN_W_I8},
    {KERN_A_I8, KERN_W_I4A},   {KERN_A_I8, KERN_W_I5},    {KERN_A_I8, KERN_W_I5A},
    {KERN_A_I8, KERN_W_I4K},   {KERN_A_I8, KERN_W_I5K},   {KERN_A_I8, KERN_W_I8},
};
enum { N_PRODUCTS = sizeof(products) / sizeof(products[0]) };

/* Random rows and panels, and each row's product computed alone, panel by panel. */
struct case_data {
    struct product p;
    int k, k_pad, n_panels;
    size_t panel_bytes;
    char *panels;
    float *x[MAX_TILE];
    float alone[MAX_TILE][MAX_PANELS * KERN_PANEL];
};

static void pack_tile(const struct kern *kern, const struct case_data *d, struct kern_tile *t,
                      int first)
{
    for (int r = 0; r < t->n_rows; r++)
        kern->pack_row[d->p.a](d->x[(first + r) % MAX_TILE], d->k, d->k_pad, d->p.w, t, r);
}

/* The same product at level "c", with a bound on what rounding may do. */
static void check_against_ref(const struct case_data *d, int row)
{
    struct kern_tile t = tile_of(ref, d->p.a, d->k_pad, 1);
    float want[MAX_PANELS * KERN_PANEL];
    struct kern_out out = {.c = want, .ld = 0};
    pack_tile(ref, d, &t, row);
    ref->matmul[d->p.a][d->p.w](&t, d->k_pad, d->panels, d->panel_bytes, d->n_panels, &out, NULL);
    tile_free(ref, d->p.a, d->k_pad, &t);
    for (int n = 0; n < d->n_panels * KERN_PANEL; n++) {
        float *w = malloc((size_t)d->k * sizeof(float));
        ref->unpack_row(d->p.w, d->panels + (size_t)(n / KERN_PANEL) * d->panel_bytes,
                        n % KERN_PANEL, d->k, w);
        double size = 0;
        for (int i = 0; i < d->k; i++)
            size += fabs((double)w[i] * (double)d->x[row][i]);
        free(w);
        double bound = size * (8 + 2 * sqrt(d->k)) * 0x1p-24 + 1e-30;
        if (d->p.w >= KERN_W_I4A) bound *= 32; /* minima cancel weights */
        check(fabs((double)want[n] - (double)d->alone[row][n]) <= bound, "matmul",
              "formats %d x %d k %d output %d: %.9g, reference %.9g", (int)d->p.a, (int)d->p.w,
              d->k, n, (double)d->alone[row][n], (double)want[n]);
    }
}

static void case_init(struct case_data *d, struct product p, int k, int n_panels)
{
    d->p = p;
    d->k = k;
    d->k_pad = k_pad_of(k);
    d->n_panels = n_panels;
    d->panel_bytes = kern_panel_bytes(p.w, d->k_pad);
    d->panels = edge_alloc(d->panel_bytes * (size_t)n_panels);
    for (int i = 0; i < n_panels; i++)
        random_panel(p.w, k, d->k_pad, d->panels + (size_t)i * d->panel_bytes);
    for (int i = 0; i < MAX_TILE; i++) {
        d->x[i] = edge_alloc((size_t)k * 4);
        fill_floats(d->x[i], k);
        for (int j = 0; i % 7 == 3 && j < k; j++)
            d->x[i][j] *= 1e-37f; /* subnormal products, which are zero for some instructions */
    }
    struct kern_tile t = tile_create(p.a, d->k_pad, 1);
    for (int i = 0; i < MAX_TILE; i++) {
        pack_tile(cand, d, &t, i);
        for (int j = 0; j < n_panels; j++) {
            struct kern_out out = {.c = d->alone[i] + j * KERN_PANEL, .ld = 0};
            cand->matmul[p.a][p.w](&t, d->k_pad, d->panels + (size_t)j * d->panel_bytes,
                                   d->panel_bytes, 1, &out, NULL);
        }
    }
    tile_destroy(p.a, d->k_pad, &t);
}

static void case_finish(struct case_data *d)
{
    for (int i = 0; i < MAX_TILE; i++)
        edge_free(d->x[i], (size_t)d->k * 4);
    edge_free(d->panels, d->panel_bytes * (size_t)d->n_panels);
}

/* A tile of n_rows rows, from row `first` of the case on, must give the rows' bits. */
static void check_tile(const struct case_data *d, int n_rows, int first, bool add, bool prefetch)
{
    int n = d->n_panels * KERN_PANEL, ld = n + rnd_int(0, 5);
    size_t bytes = (size_t)((n_rows - 1) * ld + n) * 4;
    struct kern_tile t = tile_create(d->p.a, d->k_pad, n_rows);
    char *area = guarded_alloc(bytes + 4);
    float *c = (float *)(void *)area + (rnd() & 1); /* 4-byte aligned, no more */
    float *before = malloc(bytes);
    for (size_t i = 0; add && i < bytes / 4; i++)
        c[i] = rnd_float();
    memcpy(before, c, bytes);
    pack_tile(cand, d, &t, first);
    struct kern_out out = {.c = c, .ld = (size_t)ld, .add = add};
    struct kern_fetch fetch = {.data = d->panels, .more = d->panels + d->panel_bytes / 2};
    fetch.bytes = (size_t)rnd_int(0, 1) * (size_t)rnd_int(0, (int)d->panel_bytes);
    fetch.more_bytes = (size_t)rnd_int(0, 1) * (size_t)rnd_int(0, (int)d->panel_bytes / 2);
    fetch.ahead = (size_t)rnd_int(0, 1) * (size_t)rnd_int(1, 8192);
    cand->matmul[d->p.a][d->p.w](&t, d->k_pad, d->panels, d->panel_bytes, d->n_panels, &out,
                                 prefetch ? &fetch : NULL);
    for (int r = 0; r < n_rows; r++) {
        float *row = c + (size_t)r * (size_t)ld, want[MAX_PANELS * KERN_PANEL];
        for (int i = 0; i < n; i++) {
            want[i] = d->alone[(first + r) % MAX_TILE][i];
            if (add) want[i] += before[r * ld + i];
        }
        check(same_bits(row, want, n), "matmul invariance",
              "formats %d x %d k %d panels %d: row %d of %d differs from the row alone",
              (int)d->p.a, (int)d->p.w, d->k, d->n_panels, r, n_rows);
        if (r + 1 < n_rows)
            check(same_bits(row + n, before + (size_t)r * (size_t)ld + n, ld - n), "matmul",
                  "formats %d x %d wrote between rows", (int)d->p.a, (int)d->p.w);
    }
    free(before);
    tile_destroy(d->p.a, d->k_pad, &t);
    guarded_free(area, bytes + 4, "matmul");
}

/* The panels apart from each other and in another order. */
static void check_pages(const struct case_data *d, int n_rows)
{
    if (!cand->matmul_pages[d->p.a] || (int)d->p.a != (int)d->p.w) return;
    const void *panels[MAX_PANELS];
    int n = d->n_panels;
    for (int i = 0; i < n; i++)
        panels[i] = d->panels + (size_t)(n - 1 - i) * d->panel_bytes;
    size_t ld = (size_t)n * KERN_PANEL, bytes = (size_t)n_rows * ld * 4;
    float *c = guarded_alloc(bytes);
    struct kern_tile t = tile_create(d->p.a, d->k_pad, n_rows);
    pack_tile(cand, d, &t, 0);
    int n_groups = n * (d->k_pad / KERN_GROUP);
    const void **ahead = calloc((size_t)n_groups, sizeof(*ahead));
    for (int i = 0; i < n_groups; i += rnd_int(1, 3))
        ahead[i] = d->panels;
    struct kern_pages pages = {panels, n, rnd() & 1 ? ahead : NULL, d->panel_bytes};
    struct kern_out out = {.c = c, .ld = ld};
    cand->matmul_pages[d->p.a](&t, d->k_pad, &pages, &out);
    for (int r = 0; r < n_rows; r++)
        for (int i = 0; i < n; i++)
            check(same_bits(c + (size_t)r * ld + i * KERN_PANEL,
                            d->alone[r] + (n - 1 - i) * KERN_PANEL, KERN_PANEL),
                  "matmul_pages", "format %d k %d row %d of %d", (int)d->p.a, d->k, r, n_rows);
    free(ahead);
    tile_destroy(d->p.a, d->k_pad, &t);
    guarded_free(c, bytes, "matmul_pages");
}

/* The same panel in pieces of 32 k. */
static void check_segs(const struct case_data *d, int n_rows)
{
    if (!cand->matmul_segs[d->p.a] || (int)d->p.a != (int)d->p.w) return;
    int n_segs = d->k_pad / KERN_GROUP;
    size_t seg_bytes = kern_panel_bytes(d->p.w, KERN_GROUP);
    const void **segs = malloc((size_t)n_segs * sizeof(*segs));
    for (int i = 0; i < n_segs; i++) {
        void *seg = edge_alloc(seg_bytes);
        memcpy(seg, d->panels + (size_t)i * seg_bytes, seg_bytes);
        segs[i] = seg;
    }
    size_t bytes = (size_t)n_rows * KERN_PANEL * 4;
    float *c = guarded_alloc(bytes);
    struct kern_tile t = tile_create(d->p.a, d->k_pad, n_rows);
    pack_tile(cand, d, &t, 0);
    struct kern_out out = {.c = c, .ld = KERN_PANEL};
    struct kern_pages pages = {segs, n_segs, rnd() & 1 ? segs : NULL, seg_bytes};
    cand->matmul_segs[d->p.a](&t, &pages, &out);
    for (int r = 0; r < n_rows; r++)
        check(same_bits(c + r * KERN_PANEL, d->alone[r], KERN_PANEL), "matmul_segs",
              "format %d k %d row %d of %d", (int)d->p.a, d->k, r, n_rows);
    tile_destroy(d->p.a, d->k_pad, &t);
    guarded_free(c, bytes, "matmul_segs");
    for (int i = 0; i < n_segs; i++)
        edge_free((void *)(uintptr_t)segs[i], seg_bytes);
    free(segs);
}

/* Levels that differ from a lower one in speed alone. */
static const struct {
    const char *level, *same_as;
} same_bits_levels[] = {
    {"avx2vnni", "avx2"},
    {"avx512vnni", "avx512"},
    {"neondot", "neon"},
    {"neonbf16", "neon"},
};

/* Where the level promises the bits of a lower one, a row's product has them. */
static void check_against_lower(const struct case_data *d, int row)
{
    const struct kern *lower = NULL;
    for (size_t i = 0; i < sizeof(same_bits_levels) / sizeof(same_bits_levels[0]); i++)
        if (strcmp(cand->name, same_bits_levels[i].level) == 0)
            lower = kern_select(same_bits_levels[i].same_as);
    if (!lower) return;
    float got[MAX_PANELS * KERN_PANEL];
    struct kern_tile t = tile_of(lower, d->p.a, d->k_pad, 1);
    struct kern_out out = {.c = got, .ld = 0};
    pack_tile(lower, d, &t, row);
    lower->matmul[d->p.a][d->p.w](&t, d->k_pad, d->panels, d->panel_bytes, d->n_panels, &out, NULL);
    check(same_bits(got, d->alone[row], d->n_panels * KERN_PANEL), "matmul",
          "formats %d x %d k %d: other bits than level %s", (int)d->p.a, (int)d->p.w, d->k,
          lower->name);
    tile_free(lower, d->p.a, d->k_pad, &t);
}

/* The format whose bits a product must have: compressed and F16 weights encode others. */
static enum kern_wfmt plain_of(enum kern_wfmt fmt)
{
    return fmt == KERN_W_B12 ? KERN_W_BF16 : fmt == KERN_W_F16 ? KERN_W_F32 : fmt;
}

/* Weights give the bits of the same weights in the other format. */
static void check_against_plain(const struct case_data *d, int row)
{
    enum kern_wfmt fmt = plain_of(d->p.w);
    size_t bytes = kern_panel_bytes(fmt, d->k_pad);
    char *plain = guarded_alloc(bytes);
    float *w = malloc((size_t)d->k * KERN_PANEL * sizeof(*w));
    struct kern_tile t = tile_create(d->p.a, d->k_pad, 1);
    pack_tile(cand, d, &t, row);
    for (int i = 0; i < d->n_panels; i++) {
        float got[KERN_PANEL];
        const void *rows[KERN_PANEL];
        struct kern_out out = {.c = got, .ld = 0};
        for (int n = 0; n < KERN_PANEL; n++) {
            float *to = w + (size_t)n * (size_t)d->k;
            ref->unpack_row(d->p.w, d->panels + (size_t)i * d->panel_bytes, n, d->k, to);
            rows[n] = to;
        }
        ref->pack_panel(fmt, KERN_SRC_F32, rows, NULL, d->k, d->k_pad, plain);
        cand->matmul[d->p.a][fmt](&t, d->k_pad, plain, bytes, 1, &out, NULL);
        check(same_bits(got, d->alone[row] + i * KERN_PANEL, KERN_PANEL), "matmul",
              "formats %d x %d k %d: other bits than format %d", (int)d->p.a, (int)d->p.w, d->k,
              (int)fmt);
    }
    free(w);
    tile_destroy(d->p.a, d->k_pad, &t);
    guarded_free(plain, bytes, "pack_panel");
}

static void check_product(struct product p, int k, int n_panels)
{
    struct case_data d;
    int max_rows = cand->max_rows[p.a];
    check(max_rows >= 1 && max_rows <= MAX_TILE, "max_rows", "%d", max_rows);
    case_init(&d, p, k, n_panels);
    check_against_ref(&d, rnd_int(0, MAX_TILE - 1));
    check_against_lower(&d, rnd_int(0, MAX_TILE - 1));
    if (plain_of(p.w) != p.w) check_against_plain(&d, rnd_int(0, MAX_TILE - 1));
    for (int n_rows = 1; n_rows <= max_rows; n_rows += n_rows < 36 ? 1 : rnd_int(1, 15)) {
        check_tile(&d, n_rows, rnd_int(0, MAX_TILE - 1), rnd() & 1, rnd() & 1);
        check_pages(&d, n_rows);
        check_segs(&d, n_rows);
    }
    for (int mode = 0; mode < 4; mode++)
        check_tile(&d, max_rows, 0, mode & 1, mode & 2);
    case_finish(&d);
}

/* A NaN or an infinity in one row's input shows in that row and in no other. */
static void check_not_finite(struct product p)
{
    enum { K = 96 };
    static const float odd[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
        struct case_data d;
        case_init(&d, p, K, 1);
        d.x[1][rnd_int(0, K - 1)] = odd[i];
        struct kern_tile t = tile_create(p.a, K, 3);
        float c[3 * KERN_PANEL];
        struct kern_out out = {.c = c, .ld = KERN_PANEL};
        pack_tile(cand, &d, &t, 0);
        cand->matmul[p.a][p.w](&t, K, d.panels, d.panel_bytes, 1, &out, NULL);
        bool seen = true;
        for (int n = 0; n < KERN_PANEL; n++)
            seen = seen && !isfinite(c[KERN_PANEL + n]);
        check(seen, "matmul", "formats %d x %d: %f lost", (int)p.a, (int)p.w, (double)odd[i]);
        check(same_bits(c, d.alone[0], KERN_PANEL) &&
                  same_bits(c + 2 * KERN_PANEL, d.alone[2], KERN_PANEL),
              "matmul", "formats %d x %d: %f leaks into other rows", (int)p.a, (int)p.w,
              (double)odd[i]);
        tile_destroy(p.a, K, &t);
        case_finish(&d);
    }
}

/* ---- vectors ------------------------------------------------------------------------------- */

/* Input x of n floats at an edge, output o of n floats between guards. */
struct vectors {
    float *x, *y, *o, *want;
    int n;
};

static struct vectors vectors_create(int n)
{
    size_t bytes = (size_t)n * 4;
    struct vectors v = {edge_alloc(bytes), edge_alloc(bytes), guarded_alloc(bytes),
                        guarded_alloc(bytes), n};
    fill_floats(v.x, n);
    fill_floats(v.y, n);
    fill_floats(v.o, n);
    memcpy(v.want, v.o, bytes);
    return v;
}

static void vectors_destroy(struct vectors *v, const char *what, double rel, double abs)
{
    size_t bytes = (size_t)v->n * 4;
    for (int i = 0; i < v->n; i++)
        if (!near((double)v->o[i], (double)v->want[i], rel, abs)) {
            check(false, what, "n %d element %d: %.9g, reference %.9g", v->n, i, (double)v->o[i],
                  (double)v->want[i]);
            break;
        }
    check(true, what, " ");
    guarded_free(v->o, bytes, what);
    guarded_free(v->want, bytes, what);
    edge_free(v->x, bytes);
    edge_free(v->y, bytes);
}

/* Rows times narrow panels: near an exact sum, and each row's bits are those of the row alone. */
static void check_narrow(int n_rows, int k, int n_panels, enum kern_wfmt fmt, bool add)
{
    size_t ld = (size_t)k + 3, n_x = ((size_t)n_rows - 1) * ld + (size_t)k;
    int n_out = n_panels * KERN_NARROW;
    size_t numbers = kern_narrow_at(fmt, k, n_out, 0), n_c = (size_t)n_rows * (size_t)n_out;
    float *x = edge_alloc(n_x * 4), *c = guarded_alloc(n_c * 4),
          *one = guarded_alloc((size_t)n_out * 4);
    size_t bytes = numbers * (fmt == KERN_W_F32 ? 4 : 2);
    void *w = edge_alloc(bytes);
    fill_floats(x, (int)n_x);
    for (size_t i = 0; i < numbers; i++) {
        float f = rnd_float();
        if (fmt == KERN_W_F32)
            ((float *)w)[i] = f;
        else
            ((uint16_t *)w)[i] = kern_bf16_of_f32(f);
    }
    for (size_t i = 0; i < n_c; i++)
        c[i] = 0.5f;
    struct kern_out out = {c, (size_t)n_out, add}, alone = {one, (size_t)n_out, add};
    cand->narrow(x, ld, n_rows, k, fmt, w, n_panels, &out);
    for (int i = 0; i < n_rows; i++) {
        for (int n = 0; n < n_out; n++) {
            double sum = add ? 0.5 : 0, size = sum;
            for (int j = 0; j < k; j++) {
                size_t at = kern_narrow_at(fmt, k, n, j);
                float f =
                    fmt == KERN_W_F32 ? ((float *)w)[at] : kern_f32_of_bf16(((uint16_t *)w)[at]);
                double term = (double)x[(size_t)i * ld + (size_t)j] * (double)f;
                sum += term;
                size += fabs(term);
            }
            double got = (double)c[i * n_out + n];
            check(fabs(got - sum) <= 1e-6 * size, "narrow",
                  "row %d of %d, k %d, output %d: %.9g, not %.9g", i, n_rows, k, n, got, sum);
            one[n] = 0.5f;
        }
        cand->narrow(x + (size_t)i * ld, ld, 1, k, fmt, w, n_panels, &alone);
        check(same_bits(one, c + i * n_out, n_out), "narrow",
              "row %d of %d, k %d: other bits alone", i, n_rows, k);
    }
    guarded_free(c, n_c * 4, "narrow");
    guarded_free(one, (size_t)n_out * 4, "narrow");
    edge_free(x, n_x * 4);
    edge_free(w, bytes);
}

/* The same bits at every level. */
static void check_conv(int n, int taps, bool bias)
{
    struct vectors v = vectors_create(n), w = vectors_create(n * taps), now = vectors_create(n);
    struct kern_conv conv = {w.x, (size_t)n, bias ? now.y : NULL, taps};
    const float *before[4];
    for (int j = 0; j < taps - 1; j++)
        before[j] = w.y + j * n;
    ref->conv_token(&conv, v.x, now.x, v.y, before, now.want, v.want, n);
    cand->conv_token(&conv, v.x, now.x, v.y, before, now.o, v.o, n);
    for (int i = 0; i < n; i++) {
        double z = (double)v.x[i] * (double)v.y[i], sum = bias ? (double)now.y[i] : 0;
        double size = fabs(sum), c = (double)now.x[i];
        for (int j = 0; j < taps; j++) {
            double term = (double)w.x[j * n + i] * (j < taps - 1 ? (double)before[j][i] : z);
            sum += term;
            size += fabs(term);
        }
        check(fabs((double)v.want[i] - c * sum) <= 1e-6 * fabs(c) * size, "conv_token",
              "%d taps, element %d of %d: %.9g", taps, i, n, (double)v.want[i]);
        check(fabs((double)now.want[i] - z) <= 1e-7 * fabs(z), "conv_token", "input %d", i);
    }
    vectors_destroy(&v, "conv_token", 0, 0);
    vectors_destroy(&now, "conv_token", 0, 0);
    vectors_destroy(&w, "conv_token", 0, 0);
}

/* A token of a delta net against sums in double, how far off_by their roundings may be. */
static void check_delta_sums(const struct kern_delta *t, const float *s, const float *delta,
                             const float *o)
{
    for (int c = 0; c < t->n; c++) {
        double u = 0, size = fabs((double)t->v[c]), sum = 0, o_size = 0;
        for (int i = 0; i < t->d_k; i++) {
            double term = (double)t->decay * (double)t->k[i] * (double)s[i * KERN_DELTA + c];
            u += term;
            size += fabs(term);
        }
        double want = ((double)t->v[c] - u) * (double)t->beta;
        size *= (double)t->beta;
        for (int i = 0; i < t->d_k; i++) {
            double kept = (double)t->decay * (double)s[i * KERN_DELTA + c];
            sum += (double)t->q[i] * (kept + (double)t->k[i] * want);
            o_size += fabs((double)t->q[i]) * (fabs(kept) + fabs((double)t->k[i]) * size);
        }
        check(fabs((double)delta[c] - want) <= 4e-6 * size, "delta_token", "delta %d: %.9g", c,
              (double)delta[c]);
        check(fabs((double)o[c] - sum) <= 8e-6 * o_size, "delta_token", "o %d: %.9g", c,
              (double)o[c]);
    }
}

/* The same bits at every level; and the state once more with the delta that came of it. */
static void check_delta(int d_k, int n)
{
    struct vectors k = vectors_create(d_k), v = vectors_create(n);
    struct vectors delta = vectors_create(KERN_DELTA), s = vectors_create(d_k * KERN_DELTA);
    size_t bytes = (size_t)d_k * KERN_DELTA * sizeof(float);
    for (int i = 0; i < d_k * KERN_DELTA; i++)
        s.x[i] = i % KERN_DELTA < n ? s.o[i] : 0.0f;
    memcpy(s.o, s.x, bytes);
    memcpy(s.want, s.x, bytes);
    memset(delta.o, 0, KERN_DELTA * sizeof(float));
    memset(delta.want, 0, KERN_DELTA * sizeof(float));
    struct kern_delta t = {k.x, k.y, v.x, 0.875f + 0.1f * rnd_float(), 0.5f, d_k, n};
    ref->delta_token(&t, s.want, delta.want, v.want);
    cand->delta_token(&t, s.o, delta.o, v.o);
    check_delta_sums(&t, s.x, delta.want, v.want);
    cand->delta_again(&t, delta.o, s.x);
    check(memcmp(s.x, s.want, bytes) == 0, "delta_again", "d_k %d, %d values", d_k, n);
    memcpy(s.x, s.want, bytes);
    ref->delta_again(&t, delta.want, s.want);
    cand->delta_again(&t, delta.want, s.x);
    check(memcmp(s.x, s.want, bytes) == 0, "delta_again", "d_k %d, %d values", d_k, n);
    memcpy(s.want, s.o, bytes);
    vectors_destroy(&k, "delta_token", 0, 0);
    vectors_destroy(&v, "delta_token: o", 0, 0);
    vectors_destroy(&delta, "delta_token: delta", 0, 0);
    vectors_destroy(&s, "delta_token: state", 0, 0);
}

/* Gates against the math library; those of large and not finite numbers. */
static void check_delta_gates(void)
{
    for (int i = 0; i < 2000; i++) {
        float a = 4 * rnd_float(), bias = 8 * rnd_float(), beta = 30 * rnd_float();
        float decay = 40 * rnd_float(), b = beta, x = decay;
        double sum = (double)x + (double)bias,
               soft = sum > 0 ? sum + log1p(exp(-sum)) : log1p(exp(sum));
        cand->delta_gates(&a, &bias, &beta, &decay, 1);
        check(near((double)beta, 1 / (1 + exp(-(double)b)), 1e-7, 0), "delta_gates", "beta of %g",
              (double)b);
        check(near((double)decay, exp(-exp((double)a) * soft), 1e-7, 1e-38), "delta_gates",
              "decay of %g: %.9g", sum, (double)decay);
    }
    float a[3] = {0, 0, 0}, bias[3] = {0, 0, 0}, beta[3] = {INFINITY, -INFINITY, NAN};
    float decay[3] = {INFINITY, -INFINITY, NAN};
    cand->delta_gates(a, bias, beta, decay, 3);
    check(beta[0] == 1 && beta[1] < 1e-30f && isnan(beta[2]), "delta_gates", "ends of beta");
    check(decay[0] < 1e-30f && decay[1] == 1 && isnan(decay[2]), "delta_gates", "ends of decay");
}

static void check_elementwise(int n)
{
    struct vectors v = vectors_create(n);
    ref->rmsnorm(v.x, v.y, v.want, n, 1e-5f);
    cand->rmsnorm(v.x, v.y, v.o, n, 1e-5f);
    vectors_destroy(&v, "rmsnorm", 2e-6, 0);

    v = vectors_create(n); /* in place */
    ref->rmsnorm(v.want, v.y, v.want, n, 1e-6f);
    cand->rmsnorm(v.o, v.y, v.o, n, 1e-6f);
    vectors_destroy(&v, "rmsnorm in place", 2e-6, 0);

    v = vectors_create(n);
    ref->layernorm(v.x, v.y, v.x, v.want, n, 1e-5f);
    cand->layernorm(v.x, v.y, v.x, v.o, n, 1e-5f);
    vectors_destroy(&v, "layernorm", 4e-5, 1e-5);

    v = vectors_create(n); /* in place, no bias */
    ref->layernorm(v.want, v.y, NULL, v.want, n, 1e-12f);
    cand->layernorm(v.o, v.y, NULL, v.o, n, 1e-12f);
    vectors_destroy(&v, "layernorm in place", 4e-5, 1e-5);

    for (int act = 0; act < KERN_ACT_COUNT; act++) {
        /* in gelu's tail a rounding of exp's argument, up to 80, counts as often */
        double rel = act == KERN_ACT_SILU ? 1e-6 : 1e-5;
        v = vectors_create(n);
        ref->glu[act](v.x, v.y, v.want, n);
        cand->glu[act](v.x, v.y, v.o, n);
        vectors_destroy(&v, "glu", rel, 1e-36);

        v = vectors_create(n);
        ref->glu[act](v.want, v.y, v.want, n);
        cand->glu[act](v.o, v.y, v.o, n);
        vectors_destroy(&v, "glu in place", rel, 1e-36);
    }

    v = vectors_create(n);
    ref->softcap(v.want, n, 0.7f, 1.5f);
    cand->softcap(v.o, n, 0.7f, 1.5f);
    vectors_destroy(&v, "softcap", 1e-6, 0);

    v = vectors_create(n);
    ref->add(v.want, v.x, n);
    cand->add(v.o, v.x, n);
    vectors_destroy(&v, "add", 0, 0);

    struct kern_softmax to[2] = {{1.5f, 3.0f}, {1.5f, 3.0f}}, from = {rnd_int(0, 4), 20.0f};
    v = vectors_create(n);
    ref->merge_softmax(&to[0], v.want, &from, v.x, n);
    cand->merge_softmax(&to[1], v.o, &from, v.x, n);
    check(to[0].max == to[1].max && near((double)to[1].sum, (double)to[0].sum, 1e-6, 0),
          "merge_softmax", "max %g sum %.9g, reference %g %.9g", (double)to[1].max,
          (double)to[1].sum, (double)to[0].max, (double)to[0].sum);
    vectors_destroy(&v, "merge_softmax", 1e-6, 3e-5 * (double)n);

    v = vectors_create(n);
    ref->scale(v.want, 0.3f, n);
    cand->scale(v.o, 0.3f, n);
    vectors_destroy(&v, "scale", 0, 0);

    for (int taps = 1; taps <= 4; taps++)
        check_conv(n, taps, taps % 2 == 0);
    if (n <= KERN_DELTA) check_delta(rnd_int(1, 130), n);
}

static void check_rope(int d)
{
    struct vectors v = vectors_create(d);
    float *cosines = edge_alloc((size_t)d * 2), *sines = edge_alloc((size_t)d * 2);
    double size = 0;
    for (int i = 0; i < d / 2; i++) {
        cosines[i] = (float)cos(i * 0.37);
        sines[i] = (float)sin(i * 0.37);
    }
    for (int i = 0; i < d; i++)
        size = fmax(size, fabs((double)v.o[i]));
    int n = rnd_int(0, 1) ? d / 2 : rnd_int(1, d / 2);
    ref->rope(v.want, cosines, sines, n, d / 2);
    cand->rope(v.o, cosines, sines, n, d / 2);
    edge_free(cosines, (size_t)d * 2);
    edge_free(sines, (size_t)d * 2);
    vectors_destroy(&v, "rope", 0, size * 2e-7);
}

static void check_softmax(void)
{
    int n = 32 * rnd_int(1, 9), longer = n + 32 * rnd_int(1, 5);
    int lo = rnd_int(0, n - 1), hi = rnd_int(lo, n);
    if (lo == hi)
        lo = hi = 0;
    else if (rnd_int(0, 2) == 0)
        lo = 0;
    struct vectors v = vectors_create(longer);
    float *padded = malloc((size_t)longer * 4), factor = 0.125f;
    memcpy(padded, v.o, (size_t)longer * 4);
    for (int i = 0; i < longer; i++)
        if (i < lo || i >= hi)
            v.o[i] = v.want[i] = rnd_int(0, 3) ? NAN : INFINITY; /* must not matter */
    struct kern_softmax a = ref->softmax_keys(v.want, longer, lo, hi, factor);
    struct kern_softmax b = cand->softmax_keys(v.o, longer, lo, hi, factor);
    struct kern_softmax c = cand->softmax_keys(padded, n, lo, hi, factor);
    check(a.max == b.max && near((double)b.sum, (double)a.sum, 3e-6, 0), "softmax_keys",
          "n %d keys %d..%d: max %g sum %.9g, reference %g %.9g", longer, lo, hi, (double)b.max,
          (double)b.sum, (double)a.max, (double)a.sum);
    check(same_bits(&b.max, &c.max, 1) && same_bits(&b.sum, &c.sum, 1) && same_bits(v.o, padded, n),
          "softmax_keys", "n %d and %d differ", n, longer);
    for (int i = 0; i < longer; i++)
        if (i < lo || i >= hi)
            check(v.o[i] == 0.0f, "softmax_keys", "masked key %d is %g", i, (double)v.o[i]);
    free(padded);
    vectors_destroy(&v, "softmax_keys", 4e-6, 1e-12);
}

/* As attention packs a row of bf16. */
static struct kern_softmax softmax_bf16(float *s, int n, int lo, int hi,
                                        const struct kern_tile *tile, int row)
{
    if (cand->softmax_pack) return cand->softmax_pack(s, n, lo, hi, 0.125f, tile, row);
    struct kern_softmax r = cand->softmax_keys(s, n, lo, hi, 0.125f);
    cand->pack_row[KERN_A_BF16](s, n, n, KERN_W_BF16, tile, row);
    return r;
}

/*
 * Exponentials within 1e-4 of the reference's, then rounded, by up to 2^-8. The same row has the
 * same bits in a taller tile, and with pages before and after it.
 */
static void check_softmax_pack(void)
{
    enum kern_afmt fmt = KERN_A_BF16;
    int n = 32 * rnd_int(1, 16), before = 32 * rnd_int(0, 2), longer = n + before + 32;
    int n_rows = rnd_int(1, MAX_TILE), row = rnd_int(0, n_rows - 1);
    int lo = rnd_int(0, n - 1), hi = rnd_int(lo + 1, n);
    bool spoilt = rnd_int(0, 7) == 0;
    float *s = malloc((size_t)(longer + 2 * n) * 4), *want = s + longer, *again = want + n;
    for (int i = 0; i < longer; i++)
        s[i] = i < before + lo || i >= before + hi ? NAN : 0.03f * (float)rnd_int(-1000, 1000);
    if (spoilt)
        s[before + rnd_int(lo, hi - 1)] = rnd_int(0, 1) ? NAN : INFINITY;
    else if (hi > lo + 1 && rnd_int(0, 3) == 0)
        s[before + lo] = -INFINITY;
    memcpy(want, s + before, (size_t)n * 4);
    memcpy(again, s + before, (size_t)n * 4);
    struct kern_tile one = tile_create(fmt, n, 1), many = tile_create(fmt, longer, n_rows);
    memset(many.data, 0x5a, tile_bytes(cand, fmt, longer, n_rows));
    struct kern_softmax a = ref->softmax_keys(want, n, lo, hi, 0.125f);
    struct kern_softmax b = softmax_bf16(again, n, lo, hi, &one, 0);
    struct kern_softmax c = softmax_bf16(s, longer, before + lo, before + hi, &many, row);
    check(same_bits(&b.max, &c.max, 1) && same_bits(&b.sum, &c.sum, 1), "softmax_pack",
          "%d keys, alone and after %d: sum %.9g and %.9g", n, before, (double)b.sum,
          (double)c.sum);
    bool right = a.max == b.max && near((double)b.sum, (double)a.sum, 0x1.1p-8, 0);
    check(spoilt ? !(b.sum <= FLT_MAX) : right, "softmax_pack",
          "n %d keys %d..%d: max %g sum %.9g, reference %g %.9g", n, lo, hi, (double)b.max,
          (double)b.sum, (double)a.max, (double)a.sum);
    for (int i = 0; i < longer * n_rows; i++) {
        int r = i % n_rows, k = i / n_rows - before;
        bool inside = k >= 0 && k < n;
        uint16_t got = bf16_at(cand, &many, k + before, r);
        uint16_t alone = inside ? bf16_at(cand, &one, k, 0) : 0;
        check(got == (r == row ? alone : UNWRITTEN), "softmax_pack", "key %d row %d of %d", k, r,
              n_rows);
        double p = (double)kern_f32_of_bf16(got);
        if (r == row && inside && !spoilt)
            check(near(p, (double)want[k], 0x1.1p-8, 1e-37), "softmax_pack",
                  "key %d of %d..%d: %g, reference %g", k, lo, hi, p, (double)want[k]);
    }
    tile_destroy(fmt, n, &one);
    tile_destroy(fmt, longer, &many);
    free(s);
}

/* exp over its whole range, against the C library: softmax with one large key shows it. */
/* The approximations next to the C library's functions in double. */
static void check_against_libm(void)
{
    enum { N = 2001 };
    float x[N], one[N], o[N], cap[N], erfs[N];
    double gelu = 0, tanhs = 0, gelu_erf = 0;
    for (int i = 0; i < N; i++) {
        x[i] = cap[i] = (float)(i - N / 2) * 0.008f;
        one[i] = 1.0f;
    }
    cand->glu[KERN_ACT_GELU_TANH](x, one, o, N);
    cand->softcap(cap, N, 0.5f, 2.0f);
    cand->glu[KERN_ACT_GELU](x, one, erfs, N);
    for (int i = 0; i < N; i++) {
        double v = (double)x[i], y = 0.7978845608028654 * (v + 0.044715 * v * v * v);
        gelu = fmax(gelu, fabs((double)o[i] - v / 2 * (1 + tanh(y))));
        double want = 2 * tanh(v / 4), share = v * erfc(-v / sqrt(2)) / 2;
        double off = fabs((double)erfs[i] - share) / (fabs(share) + 1e-30);
        gelu_erf = fmax(gelu_erf, off / (1 + v * v));
        if (want != 0) tanhs = fmax(tanhs, fabs((double)cap[i] - want) / fabs(want));
    }
    check(gelu < 1e-6, "gelu by tanh", "off by %g", gelu);
    check(gelu_erf < 5e-7, "gelu by erf", "relative error %g per unit of x^2", gelu_erf);
    check(tanhs < 6e-7, "softcap", "relative error %g", tanhs);
    float edge[3] = {NAN, INFINITY, -INFINITY};
    cand->softcap(edge, 3, 1.0f, 30.0f);
    check(isnan(edge[0]) && edge[1] == 30.0f && edge[2] == -30.0f, "softcap", "extremes: %g %g %g",
          (double)edge[0], (double)edge[1], (double)edge[2]);
}

static void check_exp(void)
{
    enum { N = 4096 };
    static float s[N];
    double worst = 0;
    for (int i = 0; i < N; i++)
        s[i] = -110.0f * (float)i / N;
    float x[N];
    memcpy(x, s, sizeof(x));
    cand->softmax_keys(s, N, 0, N, 1.0f);
    for (int i = 0; i < N; i++) {
        double e = exp((double)x[i]);
        check(s[i] >= 0 && (e > 1e-45 || s[i] < 1e-44f), "exp", "exp(%g) = %g", (double)x[i],
              (double)s[i]);
        if (e > 1.2e-38) /* the argument's own rounding counts */
            worst = fmax(worst, fabs((double)s[i] - e) / e / (1 - (double)x[i]));
    }
    check(worst < 1.5e-7, "exp", "relative error %g per unit of the argument", worst);
    for (int act = 0; act < KERN_ACT_COUNT; act++) {
        float g[3] = {NAN, 1000.0f, -1000.0f}, u[3] = {1.0f, 1.0f, 1.0f};
        cand->glu[act](g, u, g, 3);
        check(isnan(g[0]) && g[1] == (act == KERN_ACT_SIGMOID ? 1.0f : 1000.0f) &&
                  fabsf(g[2]) < 1e-30f,
              "glu", "extremes: %g %g %g", (double)g[0], (double)g[1], (double)g[2]);
    }
    check_against_libm();
}

static void check_argmax(int n)
{
    float *x = edge_alloc((size_t)n * 4);
    fill_floats(x, n);
    if (rnd_int(0, 2) == 0)
        for (int i = 0; i < n; i++)
            x[i] = (float)rnd_int(0, 3); /* ties */
    if (n > 1 && rnd_int(0, 4) == 0) x[rnd_int(0, n - 1)] = -INFINITY;
    bool a, b;
    int want = ref->argmax(x, n, &a), got = cand->argmax(x, n, &b);
    check(want == got && a && b, "argmax", "n %d: %d, reference %d", n, got, want);
    double lw = ref->log_sum_exp(x, n), lg = cand->log_sum_exp(x, n), l = 0;
    for (int i = 0; i < n; i++)
        l += exp((double)x[i] - (double)x[want]);
    l = log(l) + (double)x[want];
    check(near(lw, l, 1e-6, 1e-6) && near(lg, l, 1e-6, 1e-6), "log_sum_exp",
          "n %d: %.12g, %.12g is true", n, lg, l);
    x[rnd_int(0, n - 1)] = rnd() & 1 ? NAN : INFINITY;
    got = cand->argmax(x, n, &b);
    check(!b && got >= 0 && got < n, "argmax", "n %d: not finite, yet %d %d", n, b, got);
    for (int i = 0; i < n; i++)
        x[i] = -INFINITY;
    check(cand->argmax(x, n, &b) == 0 && b, "argmax", "all masked");
    edge_free(x, (size_t)n * 4);
}

static void same_bytes(const void *want, const void *got, size_t n, const char *what, int size)
{
    check(memcmp(want, got, n) == 0, what, "size %d: not the bits of the reference", size);
}

/* The numbers of a race and what is compared in it: the same bits at every level. */
static void check_race(int n)
{
    int n_blocks = (n + KERN_RACE_BLOCK - 1) / KERN_RACE_BLOCK, block0 = rnd_int(0, 8000);
    size_t bytes = (size_t)n_blocks * sizeof(float);
    struct kern_race r;
    for (size_t i = 0; i < sizeof(r); i++)
        ((uint8_t *)&r)[i] = (uint8_t)rnd();
    float *least = edge_alloc(bytes), *want = edge_alloc(bytes), *top = edge_alloc(bytes);
    uint8_t *place = edge_alloc((size_t)n_blocks), *want_place = edge_alloc((size_t)n_blocks);
    float *x = edge_alloc((size_t)n * 4), a[KERN_RACE_BLOCK], b[KERN_RACE_BLOCK];
    fill_floats(x, n);
    if (n > 1) x[rnd_int(0, n - 1)] = -INFINITY;
    ref->race_noise(&r, block0, n_blocks, want, want_place);
    cand->race_noise(&r, block0, n_blocks, least, place);
    same_bytes(want, least, bytes, "race_noise", n);
    same_bytes(want_place, place, (size_t)n_blocks, "race_noise", n);
    ref->race_block(&r, block0, least[0], place[0], a);
    cand->race_block(&r, block0, least[0], place[0], b);
    same_bytes(a, b, sizeof(a), "race_block", n);
    ref->block_max(x, n, want);
    cand->block_max(x, n, top);
    same_bytes(want, top, bytes, "block_max", n);
    bool finite;
    float best = x[ref->argmax(x, n, &finite)];
    ref->race_keys(want, least, n_blocks, best, 1.25f, want);
    cand->race_keys(top, least, n_blocks, best, 1.25f, top);
    same_bytes(want, top, bytes, "race_keys", n);
    edge_free(least, bytes);
    edge_free(want, bytes);
    edge_free(top, bytes);
    edge_free(place, (size_t)n_blocks);
    edge_free(want_place, (size_t)n_blocks);
    edge_free(x, (size_t)n * 4);
}

/* Every word that is read counts, whatever the number of places. */
static void check_read(void)
{
    enum { BYTES = 256, WORDS = BYTES / sizeof(uint64_t) };
    static const int n_places[] = {1, 2, KERN_READ_PLACES};
    for (size_t k = 0; k < sizeof(n_places) / sizeof(n_places[0]); k++) {
        size_t bytes = (size_t)n_places[k] * BYTES;
        uint64_t *words = aligned_alloc(64, bytes);
        const uint8_t *from[KERN_READ_PLACES];
        memset(words, 0, bytes);
        for (int p = 0; p < n_places[k]; p++)
            from[p] = (const uint8_t *)(words + (size_t)p * WORDS);
        for (size_t i = 0; i < bytes / sizeof(*words); i++) {
            words[i] = UINT64_C(0x8000000000000001) << i % 32;
            uint64_t got = cand->read_memory(from, n_places[k], BYTES, i % 2 ? 1024 : 0);
            check(got == words[i], "read_memory", "%d places: word %zu", n_places[k], i);
            words[i] = 0;
        }
        free(words);
    }
}

/* Writing one slot changes that slot's elements and nothing else. */
static void check_kv(int format, int d)
{
    int d_pad = k_pad_of(d);
    static const size_t position_bytes[] = {4, 2, 1};
    size_t bytes = (size_t)d_pad * (KERN_PANEL * position_bytes[format] + (format == 2 ? 2 : 0));
    char *a = guarded_alloc(bytes), *b = guarded_alloc(bytes);
    float *x = edge_alloc((size_t)d * 4);
    for (int value = 0; value < 2; value++)
        for (int slot = 0; slot < KERN_PANEL; slot++) {
            fill_floats(x, d);
            (value ? ref->put_value : ref->put_key)[format](a, x, d, d_pad, slot);
            (value ? cand->put_value : cand->put_key)[format](b, x, d, d_pad, slot);
            check(memcmp(a, b, bytes) == 0, value ? "put_value" : "put_key",
                  "format %d d %d slot %d", format, d, slot);
        }
    edge_free(x, (size_t)d * 4);
    guarded_free(a, bytes, "put_key, put_value");
    guarded_free(b, bytes, "put_key, put_value");
}

/* How far an element may come back: half a step, and what bf16 drops of the scale. */
static void check_restored(float got, float x, float max, const char *what, int at)
{
    check(fabsf(got - x) <= max / 127 * 0.51f + fabsf(x) / 128, what, "[%d] %g for %g", at,
          (double)got, (double)x);
}

/* A value at a slot as it was stored. */
static float value_i8(const char *panels, int i, int slot)
{
    const char *block = panels + i / KERN_PANEL * KV_BLOCK_BYTES;
    uint16_t scale;
    memcpy(&scale, block + KV_BLOCK_DATA + 2 * slot, sizeof(scale));
    return (float)(int8_t)block[slot / 4 * 128 + i % KERN_PANEL * 4 + slot % 4] *
           kern_f32_of_bf16(scale);
}

/* A page of positions, one of them not finite, comes back as they were put. */
static void check_kv_int8(int d)
{
    int d_pad = k_pad_of(d), bad = rnd_int(0, KERN_PANEL - 1);
    size_t bytes = (size_t)d_pad * 34;
    char *page = guarded_alloc(2 * bytes);
    float *x = edge_alloc((size_t)(KERN_PANEL * d) * 4), *key = edge_alloc((size_t)d * 4);
    fill_floats(x, KERN_PANEL * d);
    x[bad * d + rnd_int(0, d - 1)] = rnd() & 1 ? NAN : -INFINITY;
    for (int slot = 0; slot < KERN_PANEL; slot++) {
        cand->put_key[KERN_KV_I8](page, x + slot * d, d, d_pad, slot);
        cand->put_value[KERN_KV_I8](page + bytes, x + slot * d, d, d_pad, slot);
    }
    for (int slot = 0; slot < KERN_PANEL; slot++) {
        read_key_i8(page, d, slot, key);
        for (int i = 0; i < d; i++) {
            const float *row = x + slot * d, *group = row + i / 32 * 32;
            float max = 0, v = value_i8(page + bytes, i, slot);
            for (int j = 0; j < 32 && group + j < row + d; j++)
                max = isnan(max) || fabsf(group[j]) <= max ? max : fabsf(group[j]);
            if (!(max <= FLT_MAX)) {
                check(isnan(key[i]) && isnan(v), "int8 KV", "[%d] %g, %g: not finite", i,
                      (double)key[i], (double)v);
                continue;
            }
            check_restored(key[i], row[i], max, "int8 key", i);
            check_restored(v, row[i], max, "int8 value", i);
        }
    }
    edge_free(x, (size_t)(KERN_PANEL * d) * 4);
    edge_free(key, (size_t)d * 4);
    guarded_free(page, 2 * bytes, "int8 KV");
}

/* ---- attention over int8 pages --------------------------------------------------------------- */

enum { KV_PAGES = KERN_MAX_SPLIT / KERN_PANEL, KV_ROWS = 32 };

struct kv_case {
    int d, d_pad, n_pages, n_rows;
    size_t bytes; /* of a page's keys, and of its values */
    char *pages[KV_PAGES];
    const void *keys[KV_PAGES], *values[KV_PAGES], *ahead[KV_PAGES * 8];
};

/* Positions of all sizes: zeros, and of one that is 2^60 times smaller. */
static void kv_case_init(struct kv_case *c)
{
    *c = (struct kv_case){.d = rnd_int(1, 256), .n_pages = rnd_int(1, KV_PAGES)};
    c->n_rows = rnd_int(1, KV_ROWS);
    c->d_pad = k_pad_of(c->d);
    c->bytes = (size_t)c->d_pad * 34;
    float x[256];
    for (int i = 0; i < c->n_pages; i++) {
        c->pages[i] = guarded_alloc(2 * c->bytes);
        c->keys[i] = c->pages[i];
        c->values[i] = c->pages[i] + c->bytes;
        for (int slot = 0; slot < KERN_PANEL; slot++) {
            int kind = rnd_int(0, 9);
            fill_floats(x, c->d);
            for (int k = 0; k < c->d && kind < 2; k++)
                x[k] *= kind == 0 ? 0.0f : 0x1p-60f;
            cand->put_key[KERN_KV_I8](c->pages[i], x, c->d, c->d_pad, slot);
            cand->put_value[KERN_KV_I8](c->pages[i] + c->bytes, x, c->d, c->d_pad, slot);
        }
    }
    for (int i = 0; i < KV_PAGES * 8; i++)
        c->ahead[i] = rnd() & 1 ? c->pages[0] : NULL;
}

static void kv_case_finish(struct kv_case *c)
{
    for (int i = 0; i < c->n_pages; i++)
        guarded_free(c->pages[i], 2 * c->bytes, "int8 pages");
}

/* Scores of a tile, of each of its rows alone, and of level "c". */
static void check_kv_keys(const struct kv_case *c)
{
    size_t ld = (size_t)c->n_pages * KERN_PANEL, bytes = (size_t)c->n_rows * ld * 4;
    struct kern_tile all = tile_create(KERN_A_I8, c->d_pad, c->n_rows),
                     one = tile_create(KERN_A_I8, c->d_pad, 1);
    float *got = guarded_alloc(bytes), *alone = guarded_alloc(ld * 4),
          *want = guarded_alloc(ld * 4);
    float *x = calloc((size_t)(c->n_rows * c->d), sizeof(*x));
    struct kern_pages pages = {c->keys, c->n_pages, rnd() & 1 ? c->ahead : NULL, KV_BLOCK_BYTES};
    struct kern_out out = {.c = got, .ld = ld}, out_alone = {.c = alone, .ld = ld},
                    out_want = {.c = want, .ld = ld};
    fill_floats(x, c->n_rows * c->d);
    for (int r = 0; r < c->n_rows; r++)
        cand->pack_row[KERN_A_I8](x + r * c->d, c->d, c->d_pad, KERN_W_I8, &all, r);
    cand->matmul_pages[KERN_A_I8](&all, c->d_pad, &pages, &out);
    for (int r = 0; r < c->n_rows; r++) {
        cand->pack_row[KERN_A_I8](x + r * c->d, c->d, c->d_pad, KERN_W_I8, &one, 0);
        cand->matmul_pages[KERN_A_I8](&one, c->d_pad, &pages, &out_alone);
        ref->matmul_pages[KERN_A_I8](&one, c->d_pad, &pages, &out_want);
        check(same_bits(got + (size_t)r * ld, alone, (int)ld), "int8 scores", "row %d of %d", r,
              c->n_rows);
        float size = 0; /* of the sums on the way */
        for (size_t i = 0; i < ld; i++)
            size = fabsf(want[i]) > size ? fabsf(want[i]) : size;
        for (size_t i = 0; i < ld; i++)
            check(fabsf(alone[i] - want[i]) <= size * 1e-5f, "int8 scores", "[%zu] %g for %g", i,
                  (double)alone[i], (double)want[i]);
    }
    free(x);
    guarded_free(got, bytes, "int8 scores");
    guarded_free(alone, ld * 4, "int8 scores");
    guarded_free(want, ld * 4, "int8 scores");
    tile_destroy(KERN_A_I8, c->d_pad, &all);
    tile_destroy(KERN_A_I8, c->d_pad, &one);
}

/* Values of a row that sees [lo, hi): alone at level k. */
static void weigh_alone(const struct kern *k, const float *e, int lo, int hi,
                        const struct kern_pages *pages, float ret[KERN_PANEL])
{
    struct kern_value_scales s;
    float scale;
    struct kern_tile one = {guarded_alloc(KERN_PROBS_BYTES(KERN_MAX_SPLIT)), &scale, NULL, 1};
    struct kern_out out = {.c = ret, .ld = KERN_PANEL};
    k->read_scales(pages->panels, pages->n, &s);
    k->pack_probs(e, lo, hi, &s, &one, 0);
    k->matmul_segs[KERN_A_I8](&one, pages, &out);
    guarded_free(one.data, KERN_PROBS_BYTES(KERN_MAX_SPLIT), "probabilities");
}

/* Against sums in double: p is within half of e's unit for the largest scale that is seen. */
static void check_weighed(const struct kv_case *c, const float *e, int lo, int hi,
                          const float got[KERN_PANEL])
{
    for (int d = 0; d < KERN_PANEL && d < c->d; d++) {
        double want = 0, error = 0, top = 0;
        for (int i = lo; i < hi; i++) {
            uint16_t scale;
            const char *block = c->values[i / KERN_PANEL];
            memcpy(&scale, block + KV_BLOCK_DATA + 2 * (i % KERN_PANEL), sizeof(scale));
            top = fmax(top, (double)kern_f32_of_bf16(scale));
            want += (double)e[i] * (double)value_i8(block, d, i % KERN_PANEL);
        }
        error = (hi - lo) * top / 16383 * 127 * 0.51 + fabs(want) * 1e-6;
        check(fabs((double)got[d] - want) <= error, "int8 values", "[%d] %g for %g", d,
              (double)got[d], want);
    }
}

/* The first 32 dims of the values: bits of level "c", in a tile and alone; what a row does not see
 * does not matter, be it NaN. */
static void check_kv_values(struct kv_case *c)
{
    int n = c->n_pages * KERN_PANEL;
    size_t tile_size = (size_t)c->n_rows * KERN_PROBS_BYTES(n);
    struct kern_pages pages = {c->values, c->n_pages, rnd() & 1 ? c->ahead : NULL, KV_BLOCK_BYTES};
    float scale[KV_ROWS], got[KV_ROWS][KERN_PANEL], want[KERN_PANEL], alone[KERN_PANEL];
    struct kern_tile tile = {guarded_alloc(tile_size), scale, NULL, c->n_rows};
    struct kern_out out = {.c = got[0], .ld = KERN_PANEL};
    struct kern_value_scales s;
    float *e = calloc((size_t)(c->n_rows * n), sizeof(*e));
    int lo[KV_ROWS], hi[KV_ROWS];
    cand->read_scales(c->values, c->n_pages, &s);
    for (int r = 0; r < c->n_rows; r++) {
        lo[r] = rnd() & 1 ? 0 : rnd_int(0, n - 1);
        hi[r] = rnd() & 1 ? n : rnd_int(lo[r], n);
        for (int i = 0; i < n; i++)
            e[r * n + i] = i < lo[r] || i >= hi[r] ? NAN : (float)(rnd() % 1000) / 999;
        cand->pack_probs(e + r * n, lo[r], hi[r], &s, &tile, r);
    }
    cand->matmul_segs[KERN_A_I8](&tile, &pages, &out);
    for (int r = 0; r < c->n_rows; r++) {
        weigh_alone(ref, e + r * n, lo[r], hi[r], &pages, want);
        weigh_alone(cand, e + r * n, lo[r], hi[r], &pages, alone);
        check(same_bits(got[r], want, KERN_PANEL) && same_bits(alone, want, KERN_PANEL),
              "int8 values", "row %d of %d, [%d, %d)", r, c->n_rows, lo[r], hi[r]);
        check_weighed(c, e + r * n, lo[r], hi[r], want);
    }
    int bad = rnd_int(0, n - 1);
    memcpy(c->pages[bad / KERN_PANEL] + c->bytes + KV_BLOCK_DATA + 2 * (bad % KERN_PANEL),
           &(uint16_t){0x7fc0}, 2);
    for (int r = 0; r < c->n_rows; r++) {
        weigh_alone(cand, e + r * n, lo[r], hi[r], &pages, alone);
        bool sees = bad >= lo[r] && bad < hi[r];
        check(sees ? isnan(alone[0]) : same_bits(alone, got[r], KERN_PANEL), "int8 values",
              "NaN at %d, row of [%d, %d)", bad, lo[r], hi[r]);
    }
    free(e);
    guarded_free(tile.data, tile_size, "probabilities");
}

static void check_kv_products(void)
{
    struct kv_case c;
    kv_case_init(&c);
    check_kv_keys(&c);
    check_kv_values(&c);
    kv_case_finish(&c);
}

/* ---- the program --------------------------------------------------------------------------- */

static int any_k(void)
{
    return rnd_int(0, 3) ? rnd_int(1, 200) : rnd_int(1, 1600);
}

static void check_round(void)
{
    for (int i = 0; i < 12; i++)
        check_narrow(rnd_int(1, 26), 2 * rnd_int(1, i < 6 ? 10 : 150), rnd_int(1, 4),
                     i % 2 ? KERN_W_F32 : KERN_W_BF16, i % 3 == 0);
    static const enum kern_wfmt packed[] = {KERN_W_F32, KERN_W_BF16, KERN_W_F16, KERN_W_I8,
                                            KERN_W_I6S, KERN_W_I4K,  KERN_W_I5K};
    for (size_t i = 0; i < sizeof(packed) / sizeof(packed[0]); i++)
        for (int src = 0; src < 3; src++)
            check_pack_panel(packed[i], (enum kern_src)src, any_k());
    for (int kind = 0; kind < CODED_KINDS; kind++)
        check_coded_panel((enum coded_kind)kind, any_k());
    for (int fmt = 0; fmt < KERN_A_COUNT; fmt++)
        for (int n_rows = 1; n_rows <= cand->max_rows[fmt]; n_rows += n_rows < 12 ? 1 : 9)
            check_pack_row((enum kern_afmt)fmt, (enum kern_wfmt)rnd_int(KERN_W_I8, KERN_W_I6S),
                           rnd_int(1, 150), n_rows);
    for (int i = 0; i < N_PRODUCTS; i++) {
        check_product(products[i], any_k(), rnd_int(1, MAX_PANELS));
        check_not_finite(products[i]);
    }
    for (int n = 1; n < 140; n += rnd_int(1, 3)) {
        check_elementwise(n);
        check_argmax(n);
        check_race(n);
    }
    check_elementwise(rnd_int(500, 3000));
    check_delta_gates();
    check_argmax(rnd_int(500, 60000));
    check_race(rnd_int(500, 60000));
    check_read();
    for (int d = 2; d <= 256; d += 2 * rnd_int(1, 6)) {
        check_rope(d);
        check_kv(d % 3, d);
        check_kv_int8(d);
        check_kv_products();
    }
    for (int i = 0; i < 40; i++) {
        check_softmax();
        check_softmax_pack();
    }
}

static void check_level(const char *name, uint64_t seed, int rounds)
{
    int failed = n_failures, checks = n_checks;
    cand = kern_select(name);
    rnd_state = seed;
    check(cand && strcmp(cand->name, name) == 0, "kern_select", "%s", name);
    check_quant_error();
    check_exp();
    for (int i = 0; i < rounds; i++)
        check_round();
    printf("%-10s %d checks, %d failed (seed %llu)\n", name, n_checks - checks, n_failures - failed,
           (unsigned long long)seed);
}

static void check_select(const char *best)
{
    const char *const *names = kern_names();
    cand = ref;
    check(kern_select("no such level") == NULL && !kern_runs_here("no such level"), "kern_select",
          "an unknown name is accepted");
    check(kern_select(NULL) == kern_select("auto"), "kern_select", "auto is not the default");
    if (best)
        check(strcmp(kern_select("auto")->name, best) == 0, "kern_select", "auto is %s, not %s",
              kern_select("auto")->name, best);
    for (int i = 0; names[i]; i++)
        check(kern_runs_here(names[i]) == (kern_select(names[i]) != NULL), "kern_select", "%s",
              names[i]);
}

/* Where the system denies tile registers, their level is not available and another one is chosen. */
static void check_denied(void)
{
#if defined(__x86_64__) && defined(__linux__)
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_arch_prctl, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof(code) / sizeof(code[0]), code};
    pid_t child = fork();
    if (child == 0) {
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, 2, &filter, 0, 0))
            _exit(0); /* a sandbox without filters */
        const struct kern *kern = kern_select("auto");
        _exit(kern_runs_here("avx512amx") || kern_select("avx512amx") ||
              strcmp(kern->name, "avx512amx") == 0);
    }
    int status = -1;
    check(child > 0 && waitpid(child, &status, 0) == child && status == 0, "kern_select",
          "tiles denied: status %d", status);
#endif
}

int main(int argc, char **argv)
{
    const char *level = NULL, *best = NULL, *filter = NULL;
    uint64_t seed = 20240607;
    int rounds = 3;
    bool bench = false;
    for (int i = 1; i < argc; i++) {
        bool more = i + 1 < argc;
        if (strcmp(argv[i], "--level") == 0 && more)
            level = argv[++i];
        else if (strcmp(argv[i], "--best") == 0 && more)
            best = argv[++i];
        else if (strcmp(argv[i], "--seed") == 0 && more)
            seed = strtoull(argv[++i], NULL, 0) | 1;
        else if (strcmp(argv[i], "--rounds") == 0 && more)
            rounds = (int)strtol(argv[++i], NULL, 0);
        else if (strcmp(argv[i], "--bench") == 0)
            bench = true;
        else
            filter = argv[i];
    }
    ref = kern_select("c");
    if (level && !kern_runs_here(level)) {
        fprintf(stderr, "level %s is not known here or does not run on this CPU\n", level);
        return 77;
    }
    if (bench) return bench_run(kern_select(level), filter);
    check_select(best);
    check_denied();
    for (const char *const *name = kern_names(); *name; name++)
        if (level ? strcmp(level, *name) == 0 : kern_runs_here(*name))
            check_level(*name, seed, rounds);
    return n_failures != 0;
}
