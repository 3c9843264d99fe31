/* SPDX-License-Identifier: MIT */
/*
 * Layers with experts against the definition in double: which experts a row gets and with what
 * weight, ties, biases that only choose, and that other rows change no bit.
 */
#include "engine/experts.h"

#pragma GCC diagnostic ignored "-Wunused-function"
#include "synth_model.h"

enum { D = 40, D_EXPERT = 50, MAX_ROWS = 70, N_THREADS = 2 };

struct rule {
    int n, k;
    bool sigmoid, bias, renorm, scaled;
    double eps, scale;
};

static struct eng_model model;
static struct eng_layer layer;

static void make(const struct rule *r, const struct kern *kern, const char *numerics)
{
    synth_state = 7;
    model =
        (struct eng_model){.kern = kern, .numerics = eng_numerics_find(numerics), .layers = &layer};
    model.hp = (struct eng_hparams){.d_model = D,
                                    .n_layers = 1,
                                    .d_expert = D_EXPERT,
                                    .n_experts = r->n,
                                    .n_chosen = r->k,
                                    .layer_experts = {true},
                                    .route_sigmoid = r->sigmoid,
                                    .route_bias = r->bias,
                                    .route_renorm = r->renorm,
                                    .route_eps = r->eps,
                                    .route_scale = r->scale};
    enum kern_wfmt fmt = model.numerics->matrix;
    /* of all experts in turn: rows of whole panels, so that one call makes them */
    layer = (struct eng_layer){.ffn_norm = synth_vector(D, 1, 0.2f)};
    layer.experts = (struct eng_experts){
        .gate_up = synth_mat(kern, fmt, 2 * 64 * r->n, D, false, 0.3f),
        .down = synth_mat(kern, fmt, 64 * r->n, D_EXPERT, false, 0.3f),
        .select_bias = r->bias ? synth_vector(r->n, 0, 0.5f) : NULL,
        .scale = r->scaled ? synth_vector(r->n, 1, 0.5f) : NULL,
    };
}

static void unmake(void)
{
    free((void *)(uintptr_t)layer.ffn_norm);
    free((void *)(uintptr_t)layer.experts.select_bias);
    free((void *)(uintptr_t)layer.experts.scale);
    synth_mat_destroy(&layer.experts.gate_up);
    synth_mat_destroy(&layer.experts.down);
}

/* One layer over rows x, with the router's logits given; the sums are added to ret. */
static void run(const float *x, const float *logits, int n_rows, float *ret)
{
    struct scratch count = {NULL, 0};
    experts_init(&count, &model, N_THREADS, MAX_ROWS);
    struct scratch s = {synth_alloc(count.used), 0};
    struct experts *e = experts_init(&s, &model, N_THREADS, MAX_ROWS);
    REQUIRE(e && s.used == count.used);
    struct kern_out to = experts_logits(e);
    for (int i = 0; i < n_rows; i++)
        memcpy(to.c + (size_t)i * to.ld, logits + i * model.hp.n_experts,
               (size_t)model.hp.n_experts * sizeof(*logits));
    float tmp[64];
    struct gemm_thread t = {
        .gate_up = synth_vector((int)gemm_gate_up_floats(&model, MAX_ROWS), 0, 0),
        .corr = synth_alloc(sizeof(int32_t) * gemm_corr_numbers(&model, 64)),
    };
    for (enum experts_phase phase = EXPERTS_CHOOSE; phase <= EXPERTS_DOWN; phase++) {
        struct experts_work w = {.experts = e,
                                 .of = &layer.experts,
                                 .phase = phase,
                                 .n_rows = n_rows,
                                 .src = {.x = x, .ld = D, .norm = layer.ffn_norm, .eps = 1e-5f},
                                 .out = {ret, 64, true},
                                 .units = experts_units(e, &layer.experts, phase),
                                 .next = &layer.experts.down};
        for (int i = experts_n_items(&w); i-- > 0;)
            experts_item(&w, i, i % N_THREADS, tmp, &t);
    }
    free(t.gate_up);
    free(t.corr);
    free(s.base);
}

/* ---- the definition ------------------------------------------------------------------------ */

static void weights_of(const struct rule *r, const float *z, double *ret)
{
    double score[ENG_MAX_EXPERTS], sum = 0, chosen = 0;
    for (int i = 0; i < r->n; i++)
        sum += score[i] = exp((double)z[i]);
    for (int i = 0; i < r->n; i++)
        score[i] = r->sigmoid ? 1 / (1 + exp(-(double)z[i])) : score[i] / sum;
    memset(ret, 0, (size_t)r->n * sizeof(*ret));
    for (int k = 0; k < r->k; k++) {
        int best = -1;
        double most = 0;
        for (int i = 0; i < r->n; i++) {
            double key = score[i] + (r->bias ? (double)layer.experts.select_bias[i] : 0);
            if (ret[i] == 0 && (best < 0 || key > most)) best = i, most = key;
        }
        chosen += ret[best] = score[best];
    }
    for (int i = 0; i < r->n; i++)
        ret[i] *= r->scale / (r->renorm ? chosen + r->eps : 1) *
                  (r->scaled ? (double)layer.experts.scale[i] : 1);
}

static void forward_row(const struct rule *r, const double *up, const double *down, const float *x,
                        const float *z, double ret[D])
{
    double weights[ENG_MAX_EXPERTS], in[D], square = 0;
    weights_of(r, z, weights);
    for (int i = 0; i < D; i++)
        square += (double)x[i] * (double)x[i] / D;
    for (int i = 0; i < D; i++)
        in[i] = (double)x[i] / sqrt(square + 1e-5) * (double)layer.ffn_norm[i];
    memset(ret, 0, D * sizeof(*ret));
    for (int e = 0; e < r->n; e++) {
        double h[D_EXPERT];
        for (int j = 0; weights[e] > 0 && j < D_EXPERT; j++) {
            const double *gate = up + (size_t)(e * 128 + j / 32 * 64 + j % 32) * D;
            double g = 0, u = 0;
            for (int i = 0; i < D; i++)
                g += gate[i] * in[i], u += gate[32 * D + i] * in[i];
            h[j] = g / (1 + exp(-g)) * u;
        }
        for (int i = 0; weights[e] > 0 && i < D; i++)
            for (int j = 0; j < D_EXPERT; j++)
                ret[i] += weights[e] * down[(size_t)(e * 64 + i) * D_EXPERT + (size_t)j] * h[j];
    }
}

/* ---- tests --------------------------------------------------------------------------------- */

static const struct rule rules[] = {
    {.n = 8, .k = 3, .scale = 1},                               /* Qwen3, OLMoE */
    {.n = 64, .k = 6, .renorm = true, .scale = 1},              /* Granite */
    {.n = 7, .k = 7, .bias = true, .renorm = true, .scale = 1}, /* Ernie, all chosen */
    {.n = 40, .k = 4, .sigmoid = true, .bias = true, .renorm = true, .eps = 1e-6, .scale = 2.5},
    {.n = 2, .k = 1, .sigmoid = true, .scale = 1},
    {.n = 9, .k = 3, .renorm = true, .scaled = true, .scale = 1}, /* Gemma 4 */
};

static void test_rules(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_OF(rules); i++) {
        const struct rule *r = &rules[i];
        make(r, kern_select("auto"), "exact");
        float *x = synth_vector(MAX_ROWS * D, 0, 1), *z = synth_vector(MAX_ROWS * r->n, 0, 3);
        float *got = synth_vector(MAX_ROWS * 64, 0, 0);
        z[0] = z[1]; /* a tie: the first counts */
        run(x, z, MAX_ROWS, got);
        double *up = synth_weights(model.kern, &layer.experts.gate_up);
        double *down = synth_weights(model.kern, &layer.experts.down), want[D], worst = 0;
        for (int row = 0; row < MAX_ROWS; row++) {
            forward_row(r, up, down, x + row * D, z + row * r->n, want);
            for (int k = 0; k < D; k++)
                worst = fmax(worst, fabs((double)got[row * 64 + k] - want[k]));
        }
        REQUIRE_MSG(worst < 2e-5, "rule %zu: off by %g", i, worst);
        free(up), free(down), free(x), free(z), free(got);
        unmake();
    }
}

/* A row alone, first of few, and among many that share its experts, on every path. */
static void test_rows_have_their_own_bits(void **state)
{
    (void)state;
    for (const char *const *path = (const char *const[]){"exact", "bf16", "int8", "int4", NULL};
         *path; path++) {
        const struct rule *r = &rules[3];
        make(r, kern_select("auto"), *path);
        float *x = synth_vector(MAX_ROWS * D, 0, 1), *z = synth_vector(MAX_ROWS * r->n, 0, 3);
        float *all = synth_vector(MAX_ROWS * 64, 0, 0);
        for (int i = 0; i < r->n; i++) /* rows that share its experts, and one of NaN */
            z[5 * r->n + i] = z[3 * r->n + i], z[8 * r->n + i] = (float)NAN;
        run(x, z, MAX_ROWS, all);
        static const struct {
            int first, n;
        } parts[] = {{3, 1}, {3, 2}, {2, 4}, {0, 8}, {3, 30}};
        for (size_t i = 0; i < N_OF(parts); i++) {
            float *some = synth_vector(MAX_ROWS * 64, 0, 0);
            run(x + parts[i].first * D, z + parts[i].first * r->n, parts[i].n, some);
            for (int row = 0; row < parts[i].n; row++)
                REQUIRE_MSG(parts[i].first + row == 8 ||
                                memcmp(some + row * 64, all + (parts[i].first + row) * 64,
                                       64 * sizeof(float)) == 0,
                            "%s: row %d of %d from %d", *path, row, parts[i].n, parts[i].first);
            free(some);
        }
        REQUIRE(all[3 * 64] != 0 && isnan(all[8 * 64]));
        free(x), free(z), free(all);
        unmake();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_rows_have_their_own_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
