/* SPDX-License-Identifier: MIT */
/*
 * Products through OpenBLAS: the portable backend, and a second opinion for tests. This is the only
 * file that sees BLAS.
 *
 * The library is loaded on first use, not linked: its constructor starts one thread per core before
 * main, which only an environment variable set before that can prevent, and loading costs start-up
 * time that the native path saves.
 *
 * The library picks kernels and summation orders by the shape of a call, and in one call by the
 * place of a row. So the shapes that are called are settled at start, for each K: a row gives the
 * same bits at every place of a call of `tall` rows, and in every lower call that is used for few
 * rows. Rows are multiplied with a panel, or, where that gives no tall call, the panel with the
 * rows, which takes the library's other loops. Blocks of fewer rows than the call has are padded
 * with zeros. Panels of f32 are used as stored; other formats are expanded to 32 rows of f32 first.
 */
#include "engine/gemm_blas.h"

#include <assert.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_HEIGHT = 16 };

/* CBLAS's constants; its header is not needed for one function. */
enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };

typedef void sgemm_fn(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                      const float *a, int lda, const float *b, int ldb, float beta, float *c,
                      int ldc);

/* Written once by gemm_blas_init, before other threads exist. */
static sgemm_fn *blas_sgemm;

#ifdef HEARTH_HAVE_BLAS

/* A function of a shared object, through a union: ISO C has no cast from void * to a function. */
static void (*function_of(void *lib, const char *name))(void)
{
    union {
        void *object;
        void (*function)(void);
    } u = {.object = dlsym(lib, name)};
    return u.function;
}

const char *gemm_blas_init(void)
{
    if (setenv("OPENBLAS_NUM_THREADS", "1", 1) != 0) return NULL;
    void *lib = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    if (!lib) return NULL; /* stays open: blas_sgemm points into it */
    blas_sgemm = (sgemm_fn *)function_of(lib, "cblas_sgemm");
    void (*set_threads)(int) = (void (*)(int))function_of(lib, "openblas_set_num_threads");
    char *(*core_name)(void) = (char *(*)(void))function_of(lib, "openblas_get_corename");
    if (!blas_sgemm || !set_threads || !core_name) {
        blas_sgemm = NULL;
        dlclose(lib);
        return NULL;
    }
    set_threads(1);
    return core_name();
}

#else

const char *gemm_blas_init(void)
{
    return NULL;
}

#endif

/* The scratch of one thread: an expanded panel, a block of rows, and the block's results. */
struct blas_scratch {
    float *panel;   /* [32][k_pad] */
    float *rows;    /* [MAX_HEIGHT][k_pad] */
    float *results; /* [height][32]; swapped [32][height] */
};

size_t gemm_blas_scratch_bytes(int k_pad)
{
    size_t k = (size_t)k_pad;
    return (KERN_PANEL * k + MAX_HEIGHT * k + MAX_HEIGHT * KERN_PANEL) * sizeof(float);
}

static struct blas_scratch cut_scratch(void *memory, int k_pad)
{
    struct blas_scratch s = {.panel = memory};
    s.rows = s.panel + KERN_PANEL * (size_t)k_pad;
    s.results = s.rows + MAX_HEIGHT * (size_t)k_pad;
    return s;
}

static bool is_expanded(const struct eng_mat *m)
{
    return m->fmt != KERN_W_F32;
}

/* Rows x [height][k_pad] and a panel: as stored ([k_pad][32]) or expanded ([32][k_pad]). */
static void multiply_block(const struct eng_mat *m, const float *x, const float *panel, int height,
                           float *c)
{
    int k = m->k_pad;
    if (m->blas.swapped)
        blas_sgemm(ROW_MAJOR, NO_TRANS, TRANS, KERN_PANEL, height, k, 1.0f, panel, k, x, k, 0.0f, c,
                   height);
    else if (is_expanded(m))
        blas_sgemm(ROW_MAJOR, NO_TRANS, TRANS, height, KERN_PANEL, k, 1.0f, x, k, panel, k, 0.0f, c,
                   KERN_PANEL);
    else
        blas_sgemm(ROW_MAJOR, NO_TRANS, NO_TRANS, height, KERN_PANEL, k, 1.0f, x, k, panel,
                   KERN_PANEL, 0.0f, c, KERN_PANEL);
}

/* n rows of x as one block of `height`; the rest of the block is zero. */
static const float *fill_block(const float *x, size_t ldx, int n, int height, int k, float *block)
{
    if (n == height && ldx == (size_t)k) return x;
    for (int i = 0; i < n; i++)
        memcpy(block + (size_t)i * (size_t)k, x + (size_t)i * ldx, (size_t)k * sizeof(*block));
    memset(block + (size_t)n * (size_t)k, 0, (size_t)(height - n) * (size_t)k * sizeof(*block));
    return block;
}

/* Row i of a block's results to row `row` of out. */
static void store_row(const struct eng_mat *m, const float *results, int height, int i,
                      const struct kern_out *out, int row)
{
    const float *sums = results + (m->blas.swapped ? i : i * KERN_PANEL);
    int step = m->blas.swapped ? height : 1;
    float *c = out->c + (size_t)row * out->ld;
    for (int n = 0; n < KERN_PANEL; n++)
        c[n] = out->add ? c[n] + sums[n * step] : sums[n * step];
}

/* The lowest call that takes n rows, or the tallest. */
static int choose_height(const struct eng_mat *m, int n)
{
    int tallest = 0;
    for (int height = 1; height <= MAX_HEIGHT && tallest < n; height <<= 1)
        if (m->blas.heights & height) tallest = height;
    return tallest;
}

void gemm_blas_panel(const struct kern *kern, const struct eng_mat *m, int panel, const float *x,
                     size_t ldx, int n_rows, const struct kern_out *out, void *scratch)
{
    assert(m->blas.heights);
    struct blas_scratch s = cut_scratch(scratch, m->k_pad);
    const void *packed = m->panels + (size_t)panel * m->panel_bytes;
    bool expanded = is_expanded(m);
    for (int n = 0; n < KERN_PANEL && expanded; n++)
        kern->unpack_row(m->fmt, packed, n, m->k_pad, s.panel + (size_t)n * (size_t)m->k_pad);

    for (int row = 0, n; row < n_rows; row += n) {
        int height = choose_height(m, n_rows - row);
        n = n_rows - row < height ? n_rows - row : height;
        const float *block = fill_block(x + (size_t)row * ldx, ldx, n, height, m->k_pad, s.rows);
        multiply_block(m, block, expanded ? s.panel : packed, height, s.results);
        for (int i = 0; i < n; i++)
            store_row(m, s.results, height, i, out, row + i);
    }
}

/* ---- settling the calls --------------------------------------------------------------------- */

/* Numbers in [-1, 1) with all bits of the mantissa in use, from a fixed seed. */
static void fill_random(float *x, size_t n, uint32_t seed)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525 + 1013904223;
        x[i] = (float)(int32_t)seed * 0x1p-31f;
    }
}

/* Returns true if a call whose rows are all equal gives the results `want` for each of them. */
static bool gives(const struct eng_mat *m, const struct blas_scratch *s, int height,
                  const float want[KERN_PANEL])
{
    float got[KERN_PANEL];
    struct kern_out out = {got, KERN_PANEL, false};
    multiply_block(m, s->rows, s->panel, height, s->results);
    for (int i = 0; i < height; i++) {
        store_row(m, s->results, height, i, &out, 0);
        if (memcmp(got, want, sizeof(got)) != 0) return false;
    }
    return true;
}

/* Sets m->blas to calls of at most `tall` rows. Returns false if their bits differ. */
static bool settle_height(struct eng_mat *m, const struct blas_scratch *s, int tall, bool swapped)
{
    float want[KERN_PANEL];
    struct kern_out out = {want, KERN_PANEL, false};
    m->blas.swapped = swapped;
    m->blas.heights = (uint8_t)tall;
    multiply_block(m, s->rows, s->panel, tall, s->results);
    store_row(m, s->results, tall, 0, &out, 0);
    if (!gives(m, s, tall, want)) return false;
    for (int height = tall >> 1; height > 0; height >>= 1)
        if (gives(m, s, height, want)) m->blas.heights |= (uint8_t)height;
    return true;
}

bool gemm_blas_settle(struct eng_mat *m)
{
    size_t k = (size_t)m->k_pad;
    void *memory = aligned_alloc(64, (gemm_blas_scratch_bytes(m->k_pad) + 63) / 64 * 64);
    bool settled = false;
    if (memory) {
        struct blas_scratch s = cut_scratch(memory, m->k_pad);
        fill_random(s.panel, KERN_PANEL * k, 77);
        fill_random(s.rows, k, 78);
        for (int i = 1; i < MAX_HEIGHT; i++)
            memcpy(s.rows + (size_t)i * k, s.rows, k * sizeof(float));
        for (int tall = MAX_HEIGHT; tall > 0 && !settled; tall >>= 1)
            settled = settle_height(m, &s, tall, false) ||
                      (is_expanded(m) && settle_height(m, &s, tall, true));
    }
    free(memory);
    if (settled) return true;
    m->blas.swapped = false;
    m->blas.heights = MAX_HEIGHT;
    return false;
}

/* The matrices whose calls were settled first, one per K and kind of panel. */
struct settled {
    const struct eng_mat *mats[8];
    int n;
};

/* Settles m, or copies what was found for another matrix. Returns false if nothing was found. */
static bool settle_like(struct eng_mat *m, struct settled *known)
{
    if (!m->use_blas) return true;
    for (int i = 0; i < known->n; i++) {
        const struct eng_mat *same = known->mats[i];
        if (same->k_pad != m->k_pad || is_expanded(same) != is_expanded(m)) continue;
        m->blas = same->blas;
        return true;
    }
    if (known->n < (int)(sizeof(known->mats) / sizeof(known->mats[0]))) known->mats[known->n++] = m;
    return gemm_blas_settle(m);
}

bool gemm_blas_settle_model(struct eng_model *model)
{
    struct settled known = {.n = 0};
    bool all = settle_like(&model->head, &known);
    all = settle_like(&model->ple_model, &known) && all;
    for (int i = 0; i < model->hp.n_layers; i++) {
        struct eng_layer *l = &model->layers[i];
        struct eng_mat *mats[] = {&l->qkv,  &l->o,        &l->gate_up,
                                  &l->down, &l->ple_gate, &l->ple_proj};
        for (size_t k = 0; k < sizeof(mats) / sizeof(mats[0]); k++)
            all = settle_like(mats[k], &known) && all;
    }
    for (int i = 0; i < model->heads.n_ops; i++)
        all = settle_like(&model->heads.ops[i].mat, &known) && all;
    return all;
}
