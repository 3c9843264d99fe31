/* SPDX-License-Identifier: MIT */
/*
 * Calibration of the tiny models of tests/golden/models: panels depend on the text, and not on the
 * threads, the context or on the load.
 */
#include "engine/calibrate.h"

#include "base/sha256.h"
#include "engine/model/load.h"
#include "engine/model/numerics.h"
#include "engine/pool.h"
#include "test.h"

/* The digest of the weights as a context has them; text NULL: not calibrated. */
static void load(const char *name, struct calibrate_text *text, int n_threads, int64_t ctx,
                 uint8_t ret[32])
{
    char dir[512], err[512] = "";
    struct eng_model *m = NULL;
    struct pool *pool = NULL;
    struct sha256 h;
    snprintf(dir, sizeof(dir), "%s/tests/golden/models/%s", test_source_root(), name);
    const struct eng_model_params params = {.dir = dir,
                                            .numerics = eng_numerics_find("int4"),
                                            .kern = kern_select("auto"),
                                            .gemm = "native",
                                            .calibrate = text ? calibrate_run : NULL,
                                            .calibrate_ctx = text};
    REQUIRE_EQ_INT(pool_create(&pool, n_threads, err, sizeof(err)), 0);
    int rc = eng_model_open(&m, &params, err, sizeof(err));
    if (!rc) rc = eng_model_fill(m, pool, ctx, err, sizeof(err));
    REQUIRE_MSG(rc == 0, "%s: %s", name, err);
    for (int i = 0; i < m->hp.n_layers; i++)
        REQUIRE(!m->layers[i].qkv.squares && !m->layers[i].down.squares);
    sha256_init(&h);
    sha256_update(&h, m->arena, (size_t)m->weights_bytes); /* without the RoPE tables */
    sha256_final(&h, ret);
    eng_model_close(m);
    pool_destroy(pool);
}

static void test_threads(void **state)
{
    (void)state;
    /* attention, gates before its output; convolutions; delta nets; more than one text page */
    static const char *const names[] = {"qwen3-types-bf16", "lfm2-conv-bf16", "qwen3_5-delta-bf16"};
    struct calibrate_text text = {.n = 90}, other = {.n = 90}, foreign = text;
    for (int i = 0; i < text.n; i++) {
        text.ids[i] = i * 7 % 60 + 3;
        other.ids[i] = i * 11 % 60 + 3;
        foreign.ids[i] = 1 << 30;
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        uint8_t first[32], again[32];
        load(names[i], &text, 1, 100, first);
        for (int n = 1; n <= 4; n *= 2) {
            load(names[i], &text, n, 100, again);
            REQUIRE_MSG(memcmp(first, again, 32) == 0, "%s, %d threads", names[i], n);
        }
        for (int64_t ctx = 1; ctx <= 64; ctx *= 8) {
            load(names[i], &text, 2, ctx, again);
            REQUIRE_MSG(memcmp(first, again, 32) == 0, "%s, context %d", names[i], (int)ctx);
        }
        load(names[i], &other, 2, 100, again);
        REQUIRE_MSG(memcmp(first, again, 32) != 0, "%s, another text", names[i]);
        load(names[i], NULL, 2, 100, again);
        REQUIRE_MSG(memcmp(first, again, 32) != 0, "%s, no text", names[i]);
        load(names[i], &foreign, 2, 100, first); /* ids that the model does not have */
        REQUIRE_MSG(memcmp(first, again, 32) != 0, "%s, all columns alike", names[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_threads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
