/* SPDX-License-Identifier: MIT */
/* How weights are read is measured where it matters, and every outcome can be served. */
#include <stdlib.h>

#include "engine/model/numerics.h"
#include "engine/model/plan.h"
#include "engine/model/reading.h"
#include "engine/pool.h"
#include "test.h"

enum { K = 512, LARGE = 64 << 20 };

/* As much of an open model as the measurement reads: one layer, and an empty plan. */
struct opened {
    struct eng_model m;
    struct eng_layer layer;
};

static void make_model(struct opened *o, const char *numerics, int64_t weights_bytes)
{
    *o = (struct opened){.m.numerics = eng_numerics_find(numerics)};
    REQUIRE(o->m.numerics != NULL);
    o->m.kern = kern_select("auto");
    o->m.layers = &o->layer;
    o->m.weights_bytes = weights_bytes;
    o->m.load = calloc(1, sizeof(*o->m.load));
    o->m.reading = (struct eng_reading){.coded = true, .may_be_plain = true};
    enum kern_wfmt fmt = o->m.numerics->keep_source ? KERN_W_BF16 : o->m.numerics->matrix;
    o->layer.gate_up = (struct eng_mat){.k_pad = K, .fmt = kern_kept_as(o->m.kern, fmt, K)};
    REQUIRE(o->m.load != NULL);
}

static struct eng_reading choose(struct opened *o, int n_threads)
{
    char err[200] = "";
    struct pool *pool = NULL;
    REQUIRE_EQ_INT(pool_create(&pool, n_threads, err, sizeof(err)), 0);
    eng_reading_choose(&o->m, pool);
    pool_destroy(pool);
    free(o->m.load);
    return o->m.reading;
}

static void test_large_models_are_measured(void **state)
{
    (void)state;
    static const char *const paths[] = {"bf16", "exact", "int8", "int4"};
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        struct opened o;
        make_model(&o, paths[i], LARGE);
        bool may_code = o.layer.gate_up.fmt == KERN_W_B12;
        struct eng_reading r = choose(&o, 1 + (int)i % 2);
        REQUIRE(r.ahead == 0 || r.ahead == 1024 || r.ahead == 6144);
        REQUIRE(r.plain_rate > 0 && (r.coded_rate > 0) == may_code);
        REQUIRE(may_code || !r.coded);
        /* the slower form is never chosen */
        if (may_code && r.coded) REQUIRE(r.coded_rate * 1.03 > r.plain_rate);
        if (may_code && !r.coded) REQUIRE(r.plain_rate > r.coded_rate);
    }
}

static void test_an_order_is_kept(void **state)
{
    (void)state;
    struct opened o;
    make_model(&o, "bf16", LARGE);
    o.m.reading.may_be_plain = false;
    bool may_code = o.layer.gate_up.fmt == KERN_W_B12;
    struct eng_reading r = choose(&o, 2);
    REQUIRE(r.coded == may_code && (r.plain_rate > 0) == !may_code);
    make_model(&o, "bf16", LARGE);
    o.m.reading = (struct eng_reading){.coded = false};
    o.layer.gate_up.fmt = KERN_W_BF16;
    r = choose(&o, 2);
    REQUIRE(!r.coded && r.plain_rate > 0 && r.coded_rate == 0);
}

static void test_small_models_and_blas_are_not(void **state)
{
    (void)state;
    struct opened o;
    make_model(&o, "bf16", LARGE - 1);
    struct eng_reading r = choose(&o, 1);
    REQUIRE(r.coded && r.ahead == 0 && r.coded_rate == 0 && r.plain_rate == 0);
    make_model(&o, "exact", LARGE);
    o.layer.gate_up.use_blas = true;
    r = choose(&o, 1);
    REQUIRE(r.coded && r.ahead == 0 && r.coded_rate == 0 && r.plain_rate == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_large_models_are_measured),
        cmocka_unit_test(test_an_order_is_kept),
        cmocka_unit_test(test_small_models_and_blas_are_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
