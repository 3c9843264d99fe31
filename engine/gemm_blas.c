/* SPDX-License-Identifier: MIT */
/*
 * Products through OpenBLAS: the portable backend, and a second opinion for tests. This is the only
 * file that sees BLAS.
 *
 * The library is loaded on first use, not linked: its constructor starts one thread per core before
 * main, which only an environment variable set before that can prevent, and loading costs start-up
 * time that the native path saves.
 *
 * Every call has one shape, BLOCK_ROWS x 32 x k_pad, whatever the number of rows: the library picks
 * kernels and summation orders by shape. Panels of f32 are used as stored; other formats are
 * expanded to 32 rows of f32 first.
 */
#include "engine/gemm_blas.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_ROWS = 16 };

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
    float *rows;    /* [BLOCK_ROWS][k_pad] */
    float *results; /* [BLOCK_ROWS][32] */
};

size_t gemm_blas_scratch_bytes(int k_pad)
{
    size_t k = (size_t)k_pad;
    return (KERN_PANEL * k + BLOCK_ROWS * k + BLOCK_ROWS * KERN_PANEL) * sizeof(float);
}

static struct blas_scratch cut_scratch(void *memory, int k_pad)
{
    struct blas_scratch s = {.panel = memory};
    s.rows = s.panel + KERN_PANEL * (size_t)k_pad;
    s.results = s.rows + BLOCK_ROWS * (size_t)k_pad;
    return s;
}

/* Rows x [BLOCK_ROWS][k] times the panel: as stored ([k][32]) or expanded ([32][k]). */
static void multiply_block(const float *x, const float *panel, bool expanded, int k, float *c)
{
    blas_sgemm(ROW_MAJOR, NO_TRANS, expanded ? TRANS : NO_TRANS, BLOCK_ROWS, KERN_PANEL, k, 1.0f, x,
               k, panel, expanded ? k : KERN_PANEL, 0.0f, c, KERN_PANEL);
}

/* n rows of x as one block; the rest of the block is zero. */
static const float *fill_block(const float *x, size_t ldx, int n, int k, float *block)
{
    if (n == BLOCK_ROWS && ldx == (size_t)k) return x;
    memset(block, 0, BLOCK_ROWS * (size_t)k * sizeof(*block));
    for (int i = 0; i < n; i++)
        memcpy(block + (size_t)i * (size_t)k, x + (size_t)i * ldx, (size_t)k * sizeof(*block));
    return block;
}

static void store_row(const float *sums, const struct kern_out *out, int row)
{
    float *c = out->c + (size_t)row * out->ld;
    for (int n = 0; n < KERN_PANEL; n++)
        c[n] = out->add ? c[n] + sums[n] : sums[n];
}

void gemm_blas_panel(const struct kern *kern, const struct eng_mat *m, int panel, const float *x,
                     size_t ldx, int n_rows, const struct kern_out *out, void *scratch)
{
    struct blas_scratch s = cut_scratch(scratch, m->k_pad);
    const void *packed = m->panels + (size_t)panel * m->panel_bytes;
    bool expanded = m->fmt != KERN_W_F32;
    for (int n = 0; n < KERN_PANEL && expanded; n++)
        kern->unpack_row(m->fmt, packed, n, m->k_pad, s.panel + (size_t)n * (size_t)m->k_pad);

    for (int row = 0; row < n_rows; row += BLOCK_ROWS) {
        int n = n_rows - row < BLOCK_ROWS ? n_rows - row : BLOCK_ROWS;
        const float *block = fill_block(x + (size_t)row * ldx, ldx, n, m->k_pad, s.rows);
        multiply_block(block, expanded ? s.panel : packed, expanded, m->k_pad, s.results);
        for (int i = 0; i < n; i++)
            store_row(s.results + i * KERN_PANEL, out, row + i);
    }
}

/* ---- the repeatability test ---------------------------------------------------------------- */

/* Numbers in [-1, 1) with all bits of the mantissa in use, from a fixed seed. */
static void fill_random(float *x, size_t n, uint32_t seed)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525 + 1013904223;
        x[i] = (float)(int32_t)seed * 0x1p-31f;
    }
}

/* Returns true if a row at every place among other rows has the same result bits. */
static bool same_at_every_place(const struct blas_scratch *s, const float *row, bool expanded,
                                int k)
{
    float first[KERN_PANEL];
    for (int place = 0; place < BLOCK_ROWS; place++) {
        fill_random(s->rows, BLOCK_ROWS * (size_t)k, (uint32_t)place + 1);
        memcpy(s->rows + (size_t)place * (size_t)k, row, (size_t)k * sizeof(*row));
        multiply_block(s->rows, s->panel, expanded, k, s->results);
        const float *got = s->results + place * KERN_PANEL;
        if (place == 0) memcpy(first, got, sizeof(first));
        if (memcmp(first, got, sizeof(first)) != 0) return false;
    }
    return true;
}

bool gemm_blas_is_repeatable(int k_pad)
{
    if (!blas_sgemm) return false;
    size_t row_bytes = (size_t)k_pad * sizeof(float);
    void *memory = aligned_alloc(64, (gemm_blas_scratch_bytes(k_pad) + row_bytes + 63) / 64 * 64);
    if (!memory) return false;
    struct blas_scratch s = cut_scratch(memory, k_pad);
    float *row = s.results + BLOCK_ROWS * KERN_PANEL;
    fill_random(s.panel, KERN_PANEL * (size_t)k_pad, 77);
    fill_random(row, (size_t)k_pad, 78);
    bool same =
        same_at_every_place(&s, row, false, k_pad) && same_at_every_place(&s, row, true, k_pad);
    free(memory);
    return same;
}
