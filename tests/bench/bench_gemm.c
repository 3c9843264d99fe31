/* SPDX-License-Identifier: MIT */
/*
 * One matrix product through the engine's own kernels and through BLAS, on one thread: the table
 * that `--gemm auto` rests on. Packing the rows counts, as it does in a step.
 *
 *   bench_gemm [-s least milliseconds a case] [-r rows,...]
 *
 * One JSON object a case on stdout: level, weights, rows, n_in, n_out and GFLOP/s of both (the best
 * of some runs, which alternate). The weights are f32 and bf16 with f32 activations, as on path
 * `exact`; BLAS takes nothing else.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "engine/gemm.h"
#include "engine/gemm_blas.h"
#include "engine/model/model.h"
#include "engine/model/numerics.h"

enum { MAX_ROWS = 512, MAX_IN = 1536, MAX_OUT = 3072, MAX_LIST = 8, LEAST_RUNS = 3 };

/* Matrices of a 135 M parameter model: qkv, attention output, gate and up, down. */
static const struct {
    int n_in, n_out;
} shapes[] = {{576, 960}, {576, 576}, {576, 3072}, {1536, 576}};

static const struct {
    const char *name;
    enum kern_wfmt fmt;
} weights[] = {{"f32", KERN_W_F32}, {"bf16", KERN_W_BF16}};

static const struct eng_numerics exact = {.name = "exact", .act = KERN_A_F32};

struct bench {
    struct eng_model model;
    struct eng_mat mat;
    float *x, *out, *tmp; /* [MAX_ROWS][MAX_IN], [MAX_ROWS][MAX_OUT], [MAX_IN] */
    uint8_t *packed;      /* [MAX_ROWS][MAX_IN] floats */
    struct gemm_thread thread;
    double least_seconds;
};

static void fail(const char *what)
{
    fprintf(stderr, "bench_gemm: %s\n", what);
    exit(1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *take(size_t bytes)
{
    void *p = aligned_alloc(2 << 20, (bytes + (2 << 20) - 1) >> 21 << 21);
    if (!p) fail("no memory");
    memset(p, 0, bytes);
    return p;
}

static float value(int i)
{
    return (float)(i % 1009 * 769 % 1009) * (1.0f / 1009) - 0.5f;
}

static void make_mat(struct bench *b, enum kern_wfmt fmt, int n_in, int n_out)
{
    struct eng_mat *m = &b->mat;
    free(m->panels);
    *m = (struct eng_mat){.fmt = fmt,
                          .n_out = n_out,
                          .n_in = n_in,
                          .k_pad = n_in,
                          .n_panels = n_out / KERN_PANEL,
                          .panel_bytes = kern_panel_bytes(fmt, n_in)};
    m->panels = take((size_t)m->n_panels * m->panel_bytes);
    for (int p = 0; p < m->n_panels; p++) {
        const void *rows[KERN_PANEL];
        for (int i = 0; i < KERN_PANEL; i++)
            rows[i] = b->x + (i % 8) * MAX_IN;
        b->model.kern->pack_panel(fmt, KERN_SRC_F32, rows, NULL, n_in, n_in,
                                  m->panels + (size_t)p * m->panel_bytes);
    }
}

static void multiply(struct bench *b, int n_rows, bool blas)
{
    struct gemm_source src = {.x = b->x, .ld = MAX_IN};
    struct kern_out out = {b->out, MAX_OUT, false};
    struct gemm_rows rows;
    b->mat.use_blas = blas;
    gemm_rows_init(&rows, &b->model, &b->mat, n_rows);
    rows.data = b->packed;
    for (int t = 0; t < gemm_n_pack_items(&rows); t++)
        gemm_pack_item(&b->model, &b->mat, &src, &rows, t, b->tmp);
    struct gemm_ahead nothing = {.data = NULL};
    gemm_panels(&b->model, &b->mat, &rows, 0, b->mat.n_panels, &out, &nothing, &b->thread);
}

static double seconds_of(struct bench *b, int n_rows, bool blas)
{
    double start = now();
    multiply(b, n_rows, blas);
    return now() - start;
}

/*
 * Both in turns until each had its time; the least seconds of a run go to ret[0] native, ret[1]
 * BLAS.
 */
static void measure(struct bench *b, int n_rows, double ret[2])
{
    double spent = 0;
    ret[0] = ret[1] = 1e9;
    for (int run = -1; run < LEAST_RUNS || spent < 2 * b->least_seconds; run++) {
        for (int blas = 0; blas < 2; blas++) {
            double s = seconds_of(b, n_rows, blas);
            if (run >= 0 && s < ret[blas]) ret[blas] = s;
            spent += s;
        }
    }
}

static void bench_level(struct bench *b, const int *rows, int n_rows)
{
    for (size_t w = 0; w < sizeof(weights) / sizeof(weights[0]); w++) {
        for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
            make_mat(b, weights[w].fmt, shapes[s].n_in, shapes[s].n_out);
            gemm_blas_settle(&b->mat);
            b->thread.blas = take(gemm_blas_scratch_bytes(shapes[s].n_in));
            for (int r = 0; r < n_rows; r++) {
                double best[2], flop = 2e-9 * rows[r] * shapes[s].n_in * shapes[s].n_out;
                measure(b, rows[r], best);
                printf("{\"level\": \"%s\", \"weights\": \"%s\", \"rows\": %d, \"n_in\": %d, "
                       "\"n_out\": %d, \"native_gflops\": %.1f, \"blas_gflops\": %.1f}\n",
                       b->model.kern->name, weights[w].name, rows[r], shapes[s].n_in,
                       shapes[s].n_out, flop / best[0], flop / best[1]);
                fflush(stdout);
            }
            free(b->thread.blas);
        }
    }
}

static int parse_rows(const char *list, int rows[MAX_LIST])
{
    int n = 0;
    for (const char *p = list; *p && n < MAX_LIST; p += *p == ',') {
        char *end;
        long v = strtol(p, &end, 10);
        if (end == p || v < 1 || v > MAX_ROWS) fail("-r: numbers of 1 to 512 and commas");
        rows[n++] = (int)v;
        p = end;
    }
    return n;
}

int main(int argc, char **argv)
{
    struct bench b = {.least_seconds = 0.1};
    int rows[MAX_LIST], n_rows = parse_rows("1,16,128,512", rows);
    for (int c; (c = getopt(argc, argv, "s:r:")) != -1;) {
        if (c == 's') b.least_seconds = 1e-3 * strtod(optarg, NULL);
        if (c == 'r') n_rows = parse_rows(optarg, rows);
    }
    const char *core = gemm_blas_init();
    if (!core) fail("there is no BLAS here");
    fprintf(stderr, "OpenBLAS core %s\n", core);
    b.model.numerics = &exact;
    b.x = take((size_t)MAX_ROWS * MAX_IN * sizeof(float));
    b.out = take((size_t)MAX_ROWS * MAX_OUT * sizeof(float));
    b.packed = take((size_t)MAX_ROWS * MAX_IN * sizeof(float));
    b.tmp = take(MAX_IN * sizeof(float));
    for (int i = 0; i < MAX_ROWS * MAX_IN; i++)
        b.x[i] = value(i);
    for (const char *const *name = kern_names(); *name; name++) {
        if (!kern_runs_here(*name)) continue;
        b.model.kern = kern_select(*name);
        bench_level(&b, rows, n_rows);
    }
    return 0;
}
