/* SPDX-License-Identifier: MIT */
/*
 * RoPE frequencies of every type against figures from the reference implementation (transformers
 * 4.57, float32, printed by tests/golden/models/generate.py --rope), and tables against libm.
 */
#include "engine/model/rope.h"

#include <math.h>

#include "engine/model/model.h"
#include "test.h"

struct freq_case {
    const char *name;
    struct eng_rope rope;
    int d_head, n_freqs;
    double mscale, mscale_all_dim;
    bool attention_given;
    double attention; /* the reference's factor of cos and sin */
    double freqs[16];
};

static const struct freq_case cases[] = {
#include "rope_reference.inc"
};

static void test_frequencies(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        const struct freq_case *c = &cases[i];
        double freqs[16];
        REQUIRE_EQ_INT(c->n_freqs, c->d_head / 2);
        eng_rope_freqs(&c->rope, c->d_head, 1, freqs);
        for (int j = 0; j < c->n_freqs; j++)
            REQUIRE_MSG(fabs(freqs[j] - c->freqs[j]) <= 3e-6 * c->freqs[j],
                        "%s: frequency %d is %.9g, the reference has %.9g", c->name, j, freqs[j],
                        c->freqs[j]);
        if (c->rope.type != ENG_ROPE_YARN || c->attention_given) continue;
        double factor = eng_rope_yarn_attention(c->rope.factor, c->mscale, c->mscale_all_dim);
        REQUIRE_MSG(fabs(factor - c->attention) < 1e-8, "%s: attention factor %g", c->name, factor);
    }
}

static void test_yarn_attention(void **state)
{
    (void)state;
    static const struct {
        double factor, mscale, mscale_all_dim, want;
    } rows[] = {
        {1, 0, 0, 1},
        {0.5, 0, 0, 1},
        {4, 0, 0, 1.1386294361119891},
        {40, 1, 1, 1},
        {40, 0.707, 0, 1.3688879454113937}, /* one of the two alone counts for nothing */
        {40, 1, 0.5, 1.3688879454113937 / 1.1844439727056968},
    };
    for (size_t i = 0; i < N_OF(rows); i++) {
        double got =
            eng_rope_yarn_attention(rows[i].factor, rows[i].mscale, rows[i].mscale_all_dim);
        REQUIRE_MSG(fabs(got - rows[i].want) < 1e-12, "row %zu: %.17g", i, got);
    }
}

/* Blocks joined by the addition theorem give the floats of cos and sin of the angle itself. */
static void test_tables(void **state)
{
    (void)state;
    enum { N_FREQS = 32, N_BLOCKS = 2048 };
    const struct eng_rope rope = {.type = ENG_ROPE_DEFAULT, .theta = 10000};
    static float cos_rows[ENG_ROPE_BLOCK * N_FREQS], sin_rows[ENG_ROPE_BLOCK * N_FREQS];
    double freqs[N_FREQS], worst = 0;
    eng_rope_freqs(&rope, 2 * N_FREQS, 1, freqs);
    for (int b = 0; b < N_BLOCKS; b += 97) {
        int64_t pos0 = (int64_t)b * ENG_ROPE_BLOCK;
        eng_rope_rows(freqs, N_FREQS, 1.5, pos0, ENG_ROPE_BLOCK, cos_rows, sin_rows);
        for (int i = 0; i < ENG_ROPE_BLOCK * N_FREQS; i++) {
            double angle = (double)(pos0 + i / N_FREQS) * freqs[i % N_FREQS];
            worst = fmax(worst, fabs((double)cos_rows[i] - 1.5 * cos(angle)));
            worst = fmax(worst, fabs((double)sin_rows[i] - 1.5 * sin(angle)));
        }
    }
    REQUIRE_MSG(worst <= 1.5 * 6e-8, "largest difference %g", worst); /* half an ulp of float */
}

/* A short last block is the beginning of a whole one. */
static void test_short_block(void **state)
{
    (void)state;
    const double freqs[] = {1, 0.01};
    float whole[2][ENG_ROPE_BLOCK * 2], part[2][ENG_ROPE_BLOCK * 2] = {{0}};
    eng_rope_rows(freqs, 2, 1, 128, ENG_ROPE_BLOCK, whole[0], whole[1]);
    eng_rope_rows(freqs, 2, 1, 128, 5, part[0], part[1]);
    REQUIRE(memcmp(whole[0], part[0], 10 * sizeof(float)) == 0);
    REQUIRE(memcmp(whole[1], part[1], 10 * sizeof(float)) == 0);
    REQUIRE(part[0][10] == 0 && part[1][10] == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frequencies),
        cmocka_unit_test(test_yarn_attention),
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_short_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
