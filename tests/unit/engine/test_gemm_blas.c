/* SPDX-License-Identifier: MIT */
/*
 * Products through BLAS: which calls are settled for libraries of several habits, and that a row's
 * bits are then the same at every place, with the library of this machine too.
 *
 * Includes the source file, so that a plain loop can take the library's place.
 */
#include "test.h"

#include "engine/gemm_blas.c"
#include "engine/kernels/kernels.h"

enum { K = 96, MOST_ROWS = 40 };

/* The library in use, and how often it was called. */
static int n_calls;

/* Sums upwards in two chains if `chains`, else in one: other bits, nearly the same number. */
static float dot(const float *a, int step_a, const float *b, int step_b, int k, bool chains)
{
    float sums[2] = {0, 0};
    for (int i = 0; i < k; i++)
        sums[chains ? i & 1 : 0] += a[i * step_a] * b[i * step_b];
    return sums[0] + sums[1];
}

/* Element (i, j) of a product as CBLAS describes it. */
static float element(int trans_a, int trans_b, int k, const float *a, int lda, const float *b,
                     int ldb, int i, int j, bool chains)
{
    bool ta = trans_a == TRANS, tb = trans_b == TRANS;
    return dot(ta ? a + i : a + i * lda, ta ? lda : 1, tb ? b + j * ldb : b + j, tb ? 1 : ldb, k,
               chains);
}

#define SGEMM(name, chains)                                                                        \
    static void name(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,        \
                     const float *a, int lda, const float *b, int ldb, float beta, float *c,       \
                     int ldc)                                                                      \
    {                                                                                              \
        REQUIRE(order == ROW_MAJOR && alpha == 1 && beta == 0);                                    \
        n_calls++;                                                                                 \
        for (int i = 0; i < m; i++)                                                                \
            for (int j = 0; j < n; j++)                                                            \
                c[i * ldc + j] = element(trans_a, trans_b, k, a, lda, b, ldb, i, j, chains);       \
    }

/* Libraries: one order for all; from 12 rows on by groups of 6, and at 1 and 2; only a single row
 * in one order; another order at every call. */
SGEMM(steady, false)
SGEMM(grouped, (m >= 12 && i / 6 % 2 == 1) || m <= 2)
SGEMM(single, m > 1 && i == m / 2)
SGEMM(fickle, n_calls % 2 == 0)
/* As OpenBLAS's Haswell kernels: tall calls are the same at every place only if swapped. */
SGEMM(turned, m != KERN_PANEL && m > 4 && i > 3)

static void *aligned(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
    REQUIRE(p != NULL);
    return p;
}

/* One panel of random weights. */
static struct eng_mat make_mat(const struct kern *kern, enum kern_wfmt fmt)
{
    struct eng_mat m = {.fmt = fmt,
                        .use_blas = true,
                        .n_out = KERN_PANEL,
                        .n_in = K,
                        .k_pad = K,
                        .n_panels = 1,
                        .panel_bytes = kern_panel_bytes(fmt, K)};
    static float weights[KERN_PANEL * K];
    const void *rows[KERN_PANEL];
    m.panels = aligned(m.panel_bytes);
    fill_random(weights, KERN_PANEL * K, 1);
    for (int i = 0; i < KERN_PANEL; i++)
        rows[i] = weights + i * K;
    kern->pack_panel(fmt, KERN_SRC_F32, rows, NULL, K, K, m.panels);
    return m;
}

/* Each row of x times the panel in doubles. */
static double exact(const struct kern *kern, const struct eng_mat *m, const float *x, int n)
{
    float weights[K];
    double sum = 0;
    kern->unpack_row(m->fmt, m->panels, n, K, weights);
    for (int k = 0; k < K; k++)
        sum += (double)x[k] * (double)weights[k];
    return sum;
}

/* Any number of rows, at any place: the bits of a row alone, which are the right product. */
static void check_products(const struct kern *kern, const struct eng_mat *m)
{
    enum { LDX = K + 32 };
    static float x[MOST_ROWS * LDX], alone[MOST_ROWS][KERN_PANEL], got[MOST_ROWS][KERN_PANEL];
    void *scratch = aligned(gemm_blas_scratch_bytes(K));
    fill_random(x, MOST_ROWS * LDX, 5);
    for (int i = 0; i < MOST_ROWS; i++) {
        struct kern_out out = {alone[i], KERN_PANEL, false};
        gemm_blas_panel(kern, m, 0, x + i * LDX, LDX, 1, &out, scratch);
        for (int n = 0; n < KERN_PANEL; n++) {
            double difference = (double)alone[i][n] - exact(kern, m, x + i * LDX, n);
            REQUIRE_MSG(difference < 1e-4 && difference > -1e-4, "row %d output %d", i, n);
        }
    }
    for (int n_rows = 1; n_rows <= MOST_ROWS; n_rows++)
        for (int first = 0; first < 3 && first + n_rows <= MOST_ROWS; first++) {
            struct kern_out out = {got[0], KERN_PANEL, false};
            gemm_blas_panel(kern, m, 0, x + first * LDX, LDX, n_rows, &out, scratch);
            REQUIRE_MSG(memcmp(got, alone[first], (size_t)n_rows * sizeof(got[0])) == 0,
                        "rows %d to %d", first, first + n_rows - 1);
        }
    struct kern_out twice = {got[0], KERN_PANEL, true};
    for (int i = 0; i < KERN_PANEL; i++)
        got[0][i] = alone[0][i];
    gemm_blas_panel(kern, m, 0, x, LDX, 1, &twice, scratch);
    for (int i = 0; i < KERN_PANEL; i++)
        REQUIRE(got[0][i] == alone[0][i] + alone[0][i]);
    free(scratch);
}

static void test_settles(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        sgemm_fn *sgemm;
        enum kern_wfmt fmt;
        bool settled, swapped;
        int heights;
    } cases[] = {
        {"steady", steady, KERN_W_F32, true, false, 16 + 8 + 4 + 2 + 1},
        {"steady", steady, KERN_W_BF16, true, false, 16 + 8 + 4 + 2 + 1},
        {"grouped", grouped, KERN_W_F32, true, false, 8 + 4},
        {"single", single, KERN_W_F32, true, false, 1},
        {"turned", turned, KERN_W_F32, true, false, 4 + 2 + 1},
        {"turned", turned, KERN_W_BF16, true, true, 16 + 8 + 4 + 2 + 1},
        {"fickle", fickle, KERN_W_F32, false, false, 16},
        {"fickle", fickle, KERN_W_BF16, false, false, 16},
    };
    const struct kern *kern = kern_select("auto");
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct eng_mat m = make_mat(kern, cases[i].fmt);
        blas_sgemm = cases[i].sgemm;
        bool settled = gemm_blas_settle(&m);
        REQUIRE_MSG(settled == cases[i].settled && m.blas.swapped == cases[i].swapped &&
                        m.blas.heights == cases[i].heights,
                    "%s, format %d: settled %d swapped %d heights %d", cases[i].name,
                    (int)cases[i].fmt, settled, m.blas.swapped, m.blas.heights);
        if (settled) check_products(kern, &m);
        free(m.panels);
    }
}

/* Few rows take low calls, where those are settled. */
static void test_heights(void **state)
{
    (void)state;
    static const struct {
        int heights, n, height;
    } cases[] = {{31, 1, 1}, {31, 3, 4}, {31, 16, 16}, {31, 100, 16}, {12, 1, 4},
                 {12, 5, 8}, {12, 9, 8}, {16, 1, 16},  {1, 7, 1}};
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct eng_mat m = {.blas = {false, (uint8_t)cases[i].heights}};
        REQUIRE_EQ_INT(choose_height(&m, cases[i].n), cases[i].height);
    }
}

/* A model's matrices are settled once for each K and kind of panel; others are left alone. */
static void test_settles_a_model(void **state)
{
    (void)state;
    const struct kern *kern = kern_select("auto");
    struct eng_mat f32 = make_mat(kern, KERN_W_F32), bf16 = make_mat(kern, KERN_W_BF16);
    struct eng_layer layers[3];
    for (int i = 0; i < 3; i++)
        layers[i] = (struct eng_layer){.qkv = bf16, .o = bf16, .gate_up = f32, .down = bf16};
    layers[2].down.use_blas = false;
    struct eng_model m = {.hp = {.n_layers = 3}, .layers = layers, .head = bf16};
    blas_sgemm = turned;
    n_calls = 0;
    REQUIRE(gemm_blas_settle_model(&m));
    int used = n_calls;
    REQUIRE(m.head.blas.swapped && layers[1].down.blas.swapped && !layers[2].gate_up.blas.swapped);
    REQUIRE_EQ_INT(layers[2].o.blas.heights, 31);
    REQUIRE_EQ_INT(layers[1].gate_up.blas.heights, 7);
    REQUIRE_EQ_INT(layers[2].down.blas.heights, 0);
    REQUIRE(gemm_blas_settle(&f32) && gemm_blas_settle(&bf16));
    REQUIRE_EQ_INT(n_calls, 2 * used);
    blas_sgemm = fickle;
    REQUIRE(!gemm_blas_settle_model(&m));
    free(f32.panels);
    free(bf16.panels);
}

/* The library of this machine. */
static void test_library(void **state)
{
    (void)state;
    const struct kern *kern = kern_select("auto");
    const char *core = gemm_blas_init();
    if (!core) skip();
    for (int fmt = 0; fmt < 2; fmt++) {
        struct eng_mat m = make_mat(kern, fmt ? KERN_W_BF16 : KERN_W_F32);
        REQUIRE_MSG(gemm_blas_settle(&m), "OpenBLAS %s is not repeatable", core);
        check_products(kern, &m);
        free(m.panels);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_settles),
        cmocka_unit_test(test_heights),
        cmocka_unit_test(test_settles_a_model),
        cmocka_unit_test(test_library),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
