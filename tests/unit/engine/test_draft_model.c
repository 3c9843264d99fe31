/* SPDX-License-Identifier: MIT */
/* The draft model as it is opened next to a model, planned and loaded. */
#include "engine/draft_model.h"

#include "engine/engine.h"
#include "engine/forward.h"
#include "engine/kernels/kernels.h"
#include "engine/model/load.h"
#include "engine/model/model.h"
#include "engine/model/numerics.h"
#include "engine/pool.h"
#include "test.h"

enum { CTX = 300, N_PAGES = 20, VOCAB = 1024 };

static char err[700];
static const struct kern *kern;
static struct eng_model *target;

static const char *in_tree(const char *below)
{
    static char dir[1200];
    snprintf(dir, sizeof(dir), "%s/%s", test_source_root(), below);
    return dir;
}

static int setup(void **state)
{
    (void)state;
    kern = kern_select(NULL);
    const struct eng_model_params params = {.dir = in_tree("deploy/demo"),
                                            .numerics = eng_numerics_find("int8"),
                                            .kern = kern,
                                            .gemm = "native"};
    return eng_model_open(&target, &params, err, sizeof(err));
}

static int teardown(void **state)
{
    (void)state;
    eng_model_close(target);
    return 0;
}

static int open_next_to(struct draft_model *m, const struct eng_model *model, const char *below)
{
    err[0] = '\0';
    return draft_model_open(m, in_tree(below), kern, model, NULL, err, sizeof(err));
}

static void open_good(struct draft_model *m)
{
    int rc = open_next_to(m, target, "tests/golden/draft");
    REQUIRE_MSG(rc == 0, "%s", err);
}

static void models_that_cannot_draft(void **state)
{
    static const struct {
        const char *dir;
        int rc;
        const char *says;
    } cases[] = {
        {"deploy/demo", ENG_EUNSUPPORTED, "more than half of the served model's "},
        {"tests/golden/models/lfm2-conv-bf16", ENG_EUNSUPPORTED, "recurrent layers"},
        {"tests/golden/none", ENG_ENOENT, "tests/golden/none"},
    };
    struct draft_model m;
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        REQUIRE_EQ_INT(open_next_to(&m, target, cases[i].dir), cases[i].rc);
        REQUIRE_MSG(strstr(err, cases[i].says), "%s", err);
        REQUIRE(!m.model);
        draft_model_close(&m);
    }
}

/* Half of the bytes may be read, not one more; the sentence has both sums. */
static void as_large_as_half(void **state)
{
    struct draft_model m;
    struct eng_model twice = {.has_head = true};
    char sums[100];
    (void)state;
    open_good(&m);
    int64_t bytes = eng_model_step_bytes(m.model);
    draft_model_close(&m);
    twice.head = (struct eng_mat){.n_panels = 2, .panel_bytes = (size_t)bytes};
    REQUIRE_EQ_INT(eng_model_step_bytes(&twice), 2 * bytes);
    REQUIRE_MSG(open_next_to(&m, &twice, "tests/golden/draft") == 0, "%s", err);
    draft_model_close(&m);
    twice.head.panel_bytes--;
    REQUIRE_EQ_INT(open_next_to(&m, &twice, "tests/golden/draft"), ENG_EUNSUPPORTED);
    snprintf(sums, sizeof(sums),
             "reads %lld KiB of weights, more than half of the served model's "
             "%lld KiB",
             (long long)(bytes >> 10), (long long)((2 * bytes - 2) >> 10));
    REQUIRE_MSG(strstr(err, sums), "%s", err);
}

static void it_is_read_as_the_model_is(void **state)
{
    struct draft_model m;
    (void)state;
    target->reading.ahead = !target->reading.ahead;
    open_good(&m);
    REQUIRE_EQ_INT(m.model->reading.ahead, target->reading.ahead);
    REQUIRE_EQ_STR(m.model->numerics->name, "int4");
    REQUIRE_EQ_INT(m.layout.n_layers, 2);
    draft_model_close(&m);
}

static int64_t bytes_of(const struct draft_model *m, int64_t ctx, int64_t n_pages, int32_t vocab)
{
    return draft_model_bytes(m, ctx, n_pages, vocab, 2);
}

static void all_its_memory_is_planned(void **state)
{
    struct draft_model m;
    int64_t scratch, logits;
    (void)state;
    open_good(&m);
    const struct fwd_params fwd = {.model = m.model,
                                   .layout = &m.layout,
                                   .max_rows = SELF_DRAFT_ROWS,
                                   .max_segs = SELF_DRAFT_SEQS,
                                   .max_logit_rows = SELF_DRAFT_SEQS,
                                   .ctx = CTX};
    fwd_plan(&fwd, 2, &scratch, &logits);
    int64_t rows = SELF_DRAFT_SEQS * VOCAB * (int64_t)sizeof(float);
    int64_t lists = SELF_DRAFT_SEQS * 10 * (int64_t)sizeof(uint8_t *); /* 300 tokens: 10 pages */
    int64_t pages = N_PAGES * (int64_t)m.layout.page_bytes;
    REQUIRE_EQ_INT(bytes_of(&m, CTX, N_PAGES, VOCAB), m.model->weights_bytes +
                                                          eng_model_rope_bytes(m.model, CTX) +
                                                          scratch + logits + rows + lists + pages);
    /* a longer context of the model than its own adds pages to the lists alone */
    int64_t most = m.model->hp.ctx_max, twice = 2 * most;
    REQUIRE_EQ_INT(bytes_of(&m, twice, N_PAGES, VOCAB) - bytes_of(&m, most, N_PAGES, VOCAB),
                   SELF_DRAFT_SEQS * (most / 32) * (int64_t)sizeof(uint8_t *));
    REQUIRE_EQ_INT(bytes_of(&m, CTX, INT64_MAX / 2, VOCAB), INT64_MAX);
    REQUIRE_EQ_INT(bytes_of(&m, CTX, INT64_MAX / (int64_t)m.layout.page_bytes, VOCAB), INT64_MAX);
    draft_model_close(&m);
}

static void fill(struct draft_model *m, struct pool *pool, int32_t vocab, const uint64_t *common)
{
    const struct draft_model_fill p = {.loads = pool,
                                       .computes = pool,
                                       .ctx = CTX,
                                       .n_pages = N_PAGES,
                                       .vocab = vocab,
                                       .common = common,
                                       .share = 0.3};
    open_good(m);
    int rc = draft_model_fill(m, &p, err, sizeof(err));
    REQUIRE_MSG(rc == 0, "%s", err);
}

static void loaded_it_has_a_page_for_each(void **state)
{
    struct draft_model m;
    struct pool *pool;
    (void)state;
    REQUIRE(pool_create(&pool, 2, err, sizeof(err)) == 0);
    fill(&m, pool, VOCAB, NULL);
    const struct draft_source *s = &m.source;
    REQUIRE(s->pages == m.pages && s->data && s->rows && m.fwd);
    REQUIRE_EQ_INT(kv_pages_total(s->pages), N_PAGES);
    REQUIRE_EQ_INT(kv_pages_free(s->pages), 0);
    REQUIRE_EQ_INT(kv_page_refs(s->pages, N_PAGES - 1), 1);
    REQUIRE_EQ_INT(s->max_pages, 10);
    REQUIRE_EQ_INT(s->ctx, CTX);
    REQUIRE(s->share == 0.3);
    draft_model_close(&m);
    REQUIRE(!m.model && !m.pages && !m.fwd && !m.source.rows);
    draft_model_close(&m); /* nothing is left to close */
    pool_destroy(pool);
}

/* Among the first n ids those with a bit, or all; none behind. */
static void check_common(const struct draft_model *m, int32_t n, int32_t vocab,
                         const uint64_t *bits)
{
    REQUIRE(m->source.common);
    for (int32_t i = 0; i < vocab; i++) {
        bool want = i < n && (!bits || bits[i / 64] >> i % 64 & 1);
        REQUIRE_EQ_INT(m->source.common[i / 64] >> i % 64 & 1, want);
    }
}

static void ids_it_may_write(void **state)
{
    struct draft_model m;
    struct pool *pool;
    uint64_t bits[(VOCAB + 63) / 64 + 2];
    (void)state;
    REQUIRE(pool_create(&pool, 1, err, sizeof(err)) == 0);
    memset(bits, 0xff, sizeof(bits));
    fill(&m, pool, VOCAB, bits); /* all: no list is needed */
    REQUIRE(!m.source.common);
    draft_model_close(&m);
    fill(&m, pool, VOCAB - 24, NULL); /* the draft model has more */
    REQUIRE(!m.source.common);
    draft_model_close(&m);
    fill(&m, pool, VOCAB + 70, bits); /* the model has more, whatever the tokenizers say */
    check_common(&m, VOCAB, VOCAB + 70, bits);
    draft_model_close(&m);
    fill(&m, pool, VOCAB + 70, NULL);
    check_common(&m, VOCAB, VOCAB + 70, NULL);
    draft_model_close(&m);
    bits[VOCAB / 64 - 1] &= ~(UINT64_C(1) << 63); /* only the last one is missing */
    bits[3] = 0x5555;
    fill(&m, pool, VOCAB, bits);
    check_common(&m, VOCAB, VOCAB, bits);
    draft_model_close(&m);
    pool_destroy(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(models_that_cannot_draft, setup, teardown),
        cmocka_unit_test_setup_teardown(as_large_as_half, setup, teardown),
        cmocka_unit_test_setup_teardown(it_is_read_as_the_model_is, setup, teardown),
        cmocka_unit_test_setup_teardown(all_its_memory_is_planned, setup, teardown),
        cmocka_unit_test_setup_teardown(loaded_it_has_a_page_for_each, setup, teardown),
        cmocka_unit_test_setup_teardown(ids_it_may_write, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
