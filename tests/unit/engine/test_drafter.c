/* SPDX-License-Identifier: MIT */
/* The life of drafters next to a model, and what is learned of how good they are. */
#include "engine/drafter.h"

#include <math.h>
#include <unistd.h>

#include "engine/eng_error.h"
#include "engine/forward.h"
#include "engine/kernels/kernels.h"
#include "engine/model/load.h"
#include "engine/model/model.h"
#include "engine/model/numerics.h"
#include "engine/pool.h"
#include "test.h"

enum { CTX = 300, N_PAGES = 20, N_THREADS = 2, VOCAB = 1024 };

static char err[700];
static const struct kern *kern;
static struct pool *pool;
static struct eng_model *target;
static struct kv_layout layout;
static struct drafters ds;

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
    REQUIRE_EQ_INT(pool_create(&pool, N_THREADS, err, sizeof(err)), 0);
    REQUIRE_EQ_INT(eng_model_open(&target, &params, err, sizeof(err)), 0);
    REQUIRE_EQ_INT(eng_model_fill(target, pool, CTX, err, sizeof(err)), 0);
    const struct eng_hparams *hp = &target->hp;
    kv_layout_init(&layout, hp->n_kv_layers, hp->n_kv_heads, hp->d_head, KERN_KV_BF16);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    eng_model_close(target);
    pool_destroy(pool);
    return 0;
}

static void init_next_to(const struct eng_model *model)
{
    drafters_init(&ds);
    ds.target = model;
    ds.layout = &layout;
    ds.n_threads = N_THREADS;
    ds.pool = pool;
    ds.ctx = CTX;
    ds.n_pages = N_PAGES;
    err[0] = '\0';
}

static int begin(void **state)
{
    (void)state;
    init_next_to(target);
    REQUIRE_EQ_INT(ds.twin.state, ENG_DRAFTS_NONE);
    REQUIRE_EQ_INT(ds.model.state, ENG_DRAFTS_NONE);
    return 0;
}

static int end(void **state)
{
    (void)state;
    drafters_finish(&ds);
    return 0;
}

static int open_model(const char *below)
{
    return drafter_open(&ds, &ds.model, in_tree(below), err, sizeof(err));
}

static void open_good(void)
{
    int rc = open_model("tests/golden/draft");
    REQUIRE_MSG(rc == 0, "%s", err);
    REQUIRE_EQ_INT(ds.model.state, ENG_DRAFTS_LOADING);
}

static void open_twin(void)
{
    int rc = drafter_open(&ds, &ds.twin, in_tree("deploy/demo"), err, sizeof(err));
    REQUIRE_MSG(rc == 0, "%s", err);
    REQUIRE_EQ_INT(ds.twin.state, ENG_DRAFTS_LOADING);
}

static void load(const uint64_t *common)
{
    drafters_load(&ds, common);
    drafters_await(&ds);
    REQUIRE_EQ_INT(ds.since_ms, 0);
}

/* ---- opening and planning ------------------------------------------------------------------ */

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
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        init_next_to(target);
        REQUIRE_EQ_INT(open_model(cases[i].dir), cases[i].rc);
        REQUIRE_MSG(strstr(err, cases[i].says), "%s", err);
        REQUIRE(!ds.model.weights);
        REQUIRE_EQ_INT(ds.model.state, ENG_DRAFTS_NONE);
        drafters_finish(&ds);
    }
}

/* Half of the bytes may be read, not one more; the sentence has both sums. */
static void as_large_as_half(void **state)
{
    struct eng_model twice = {.has_head = true, .kern = kern};
    char sums[100];
    (void)state;
    init_next_to(target);
    open_good();
    int64_t bytes = eng_model_step_bytes(ds.model.weights);
    drafters_finish(&ds);
    twice.head = (struct eng_mat){.n_panels = 2, .panel_bytes = (size_t)bytes};
    REQUIRE_EQ_INT(eng_model_step_bytes(&twice), 2 * bytes);
    init_next_to(&twice);
    open_good();
    drafters_finish(&ds);
    twice.head.panel_bytes--;
    init_next_to(&twice);
    REQUIRE_EQ_INT(open_model("tests/golden/draft"), ENG_EUNSUPPORTED);
    snprintf(sums, sizeof(sums),
             "reads %lld KiB of weights, more than half of the served model's "
             "%lld KiB",
             (long long)(bytes >> 10), (long long)((2 * bytes - 2) >> 10));
    REQUIRE_MSG(strstr(err, sums), "%s", err);
    drafters_finish(&ds);
}

static void they_are_read_as_the_model_is(void **state)
{
    (void)state;
    target->reading.ahead = !target->reading.ahead;
    open_good();
    open_twin();
    const struct drafter *both[] = {&ds.model, &ds.twin};
    for (size_t i = 0; i < N_OF(both); i++) {
        REQUIRE_EQ_INT(both[i]->weights->reading.ahead, target->reading.ahead);
        REQUIRE_EQ_STR(both[i]->weights->numerics->name, "int4");
    }
    REQUIRE_EQ_INT(ds.model.layout.n_layers, 2);
    REQUIRE(memcmp(&ds.twin.layout, &layout, sizeof(layout)) == 0); /* it reads the model's pages */
}

static int64_t planned(const struct drafter *d, int64_t ctx, int64_t n_pages)
{
    return drafter_bytes(&ds, d, ctx, n_pages);
}

/* Of weights and of a forward pass with so many rows. */
static int64_t base_bytes(const struct drafter *d, int max_rows)
{
    const struct fwd_params fwd = {.model = d->weights,
                                   .layout = &d->layout,
                                   .max_rows = max_rows,
                                   .max_segs = DRAFTER_SEQS,
                                   .max_logit_rows = DRAFTER_SEQS,
                                   .ctx = CTX};
    int64_t scratch, logits;
    fwd_plan(&fwd, N_THREADS, &scratch, &logits);
    return d->weights->weights_bytes + eng_model_rope_bytes(d->weights, CTX) + scratch + logits;
}

static void all_their_memory_is_planned(void **state)
{
    const struct drafter *d = &ds.model;
    (void)state;
    open_good();
    open_twin();
    int64_t rows = DRAFTER_SEQS * VOCAB * (int64_t)sizeof(float);
    int64_t lists = DRAFTER_SEQS * 10 * (int64_t)sizeof(uint8_t *); /* 300 tokens: 10 pages */
    int64_t pages = N_PAGES * (int64_t)d->layout.page_bytes;
    REQUIRE_EQ_INT(planned(d, CTX, N_PAGES), base_bytes(d, DRAFTER_ROWS) + rows + lists + pages);
    /* a longer context of the model than its own adds pages to the lists alone */
    int64_t most = d->weights->hp.ctx_max;
    REQUIRE_EQ_INT(planned(d, 2 * most, N_PAGES) - planned(d, most, N_PAGES),
                   DRAFTER_SEQS * (most / 32) * (int64_t)sizeof(uint8_t *));
    REQUIRE_EQ_INT(planned(d, CTX, INT64_MAX / 2), INT64_MAX);
    REQUIRE_EQ_INT(planned(d, CTX, INT64_MAX / (int64_t)d->layout.page_bytes), INT64_MAX);
    REQUIRE_EQ_INT(planned(&ds.twin, CTX, N_PAGES), base_bytes(&ds.twin, DRAFTER_SEQS));
}

/* ---- loading ------------------------------------------------------------------------------- */

static void both_are_loaded(void **state)
{
    const struct drafter *d = &ds.model, *twin = &ds.twin;
    (void)state;
    open_good();
    open_twin();
    REQUIRE(!drafter_is_on(d) && !drafter_is_on(twin));
    load(NULL);
    REQUIRE(drafter_is_on(d) && drafter_is_on(twin));
    REQUIRE(d->pages && d->data && d->rows && d->fwd && d->model.ctx == d->fwd);
    REQUIRE_EQ_INT(kv_pages_total(d->pages), N_PAGES);
    REQUIRE_EQ_INT(kv_pages_free(d->pages), 0);
    REQUIRE_EQ_INT(kv_page_refs(d->pages, N_PAGES - 1), 1);
    REQUIRE_EQ_INT(d->max_pages, 10);
    REQUIRE_EQ_INT(d->ctx, CTX);
    REQUIRE(d->share ==
            (double)eng_model_step_bytes(d->weights) / (double)eng_model_step_bytes(target));
    REQUIRE(twin->fwd && twin->model.ctx == twin->fwd && !twin->pages && !twin->data);
    REQUIRE(twin->share > d->share && twin->share < 0.5);
    REQUIRE_EQ_INT(twin->model.vocab, VOCAB);
    const struct fwd *fwd = twin->fwd; /* one that is loaded is not loaded again */
    load(NULL);
    REQUIRE(twin->fwd == fwd && !ds.has_thread);
}

static void a_twin_is_dropped_and_loaded_again(void **state)
{
    (void)state;
    open_good();
    open_twin();
    load(NULL);
    for (int i = 0; i < 2; i++) {
        drafters_drop_twin(&ds);
        REQUIRE_EQ_INT(ds.twin.state, ENG_DRAFTS_LOADING);
        REQUIRE(!ds.twin.weights && !ds.twin.fwd);
        REQUIRE(drafter_is_on(&ds.model) && ds.model.weights);
        load(NULL);
        REQUIRE(drafter_is_on(&ds.twin) && ds.twin.fwd);
    }
}

/* What was not planned stays out, whatever is loaded. */
static void one_alone_is_loaded(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        init_next_to(target);
        if (i == 0)
            open_twin();
        else
            open_good();
        load(NULL);
        REQUIRE_EQ_INT(ds.twin.state, i == 0 ? ENG_DRAFTS_ON : ENG_DRAFTS_NONE);
        REQUIRE_EQ_INT(ds.model.state, i == 1 ? ENG_DRAFTS_ON : ENG_DRAFTS_NONE);
        drafters_drop_twin(&ds);
        REQUIRE_EQ_INT(ds.twin.state, i == 0 ? ENG_DRAFTS_LOADING : ENG_DRAFTS_NONE);
        drafters_finish(&ds);
    }
    init_next_to(target);
    load(NULL);
    REQUIRE_EQ_INT(ds.twin.state, ENG_DRAFTS_NONE);
    drafters_finish(&ds);
}

/* A loading that is stopped is no fault: it may begin again. */
static void a_loading_that_was_stopped(void **state)
{
    (void)state;
    open_good();
    open_twin();
    ds.stop = true;
    load(NULL);
    REQUIRE_EQ_INT(ds.model.state, ENG_DRAFTS_LOADING);
    REQUIRE_EQ_INT(ds.twin.state, ENG_DRAFTS_LOADING);
    REQUIRE(!ds.model.weights && !ds.twin.weights);
    drafters_drop_twin(&ds); /* nothing is stopped any more */
    load(NULL);
    REQUIRE(drafter_is_on(&ds.model) && drafter_is_on(&ds.twin));
}

/* Weights that are not those of the model are no twin; the next loading tries again. */
static void a_twin_of_other_weights(void **state)
{
    (void)state;
    open_twin();
    target->fingerprint[3] ^= 1;
    load(NULL);
    REQUIRE_EQ_INT(ds.twin.state, ENG_DRAFTS_LOADING);
    REQUIRE(!ds.twin.weights && !ds.twin.fwd);
    target->fingerprint[3] ^= 1;
    load(NULL);
    REQUIRE(drafter_is_on(&ds.twin));
}

static void a_draft_model_that_fails(void **state)
{
    char dir[] = "/tmp/hearth-drafter-XXXXXX", command[3000];
    (void)state;
    REQUIRE(mkdtemp(dir));
    snprintf(command, sizeof(command), "cp %s/* %s", in_tree("tests/golden/draft"), dir);
    REQUIRE_EQ_INT(system(command), 0);
    REQUIRE_EQ_INT(drafter_open(&ds, &ds.model, dir, err, sizeof(err)), 0);
    snprintf(command, sizeof(command), "for f in %s/*.safetensors; do : > $f; done", dir);
    REQUIRE_EQ_INT(system(command), 0);
    for (int i = 0; i < 2; i++) { /* for good */
        load(NULL);
        REQUIRE_EQ_INT(ds.model.state, ENG_DRAFTS_FAILED);
        REQUIRE(strncmp(ds.model.error, "draft model /tmp/hearth-drafter-", 32) == 0);
        REQUIRE(strlen(ds.model.error) > strlen("draft model : ") + sizeof(dir));
        REQUIRE(!ds.model.weights && !ds.model.pages && !ds.model.rows);
    }
    snprintf(command, sizeof(command), "rm -r %s", dir);
    REQUIRE_EQ_INT(system(command), 0);
}

/* ---- ids ------------------------------------------------------------------------------------ */

/* Among the first n ids those with a bit, or all; none after them. */
static void check_common(int32_t n, int32_t vocab, const uint64_t *bits)
{
    const uint64_t *common = ds.model.common;
    REQUIRE(common);
    for (int32_t i = 0; i < vocab; i++) {
        bool want = i < n && (!bits || bits[i / 64] >> i % 64 & 1);
        REQUIRE_EQ_INT(common[i / 64] >> i % 64 & 1, want);
    }
}

static void load_with(int32_t vocab, const uint64_t *common)
{
    static struct eng_model other;
    other = *target;
    other.hp.vocab = vocab;
    init_next_to(&other);
    open_good();
    load(common);
    REQUIRE(drafter_is_on(&ds.model));
}

static void ids_it_may_write(void **state)
{
    uint64_t bits[(VOCAB + 63) / 64 + 2];
    (void)state;
    memset(bits, 0xff, sizeof(bits));
    load_with(VOCAB, bits); /* all: no list is needed */
    REQUIRE(!ds.model.common);
    drafters_finish(&ds);
    load_with(VOCAB - 24, NULL); /* the draft model has more */
    REQUIRE(!ds.model.common);
    drafters_finish(&ds);
    load_with(VOCAB + 70, bits); /* the model has more, whatever the tokenizers say */
    check_common(VOCAB, VOCAB + 70, bits);
    drafters_finish(&ds);
    load_with(VOCAB + 70, NULL);
    check_common(VOCAB, VOCAB + 70, NULL);
    drafters_finish(&ds);
    bits[VOCAB / 64 - 1] &= ~(UINT64_C(1) << 63); /* only the last one is missing */
    bits[3] = 0x5555;
    load_with(VOCAB, bits);
    check_common(VOCAB, VOCAB, bits);
    drafters_finish(&ds);
}

static float own_logits[2][70];

static const float *own_row(const struct fwd *ctx, int row)
{
    (void)ctx;
    return own_logits[row];
}

/* Ids that one of the two lacks cannot be drawn. */
static void logits_of_common_ids(void **state)
{
    uint64_t common[2] = {~(UINT64_C(1) << 5), ~(UINT64_C(1) << 3)};
    float rows[2 * 80];
    struct drafter d = {.model = {.logits = own_row, .vocab = 70}};
    (void)state;
    for (int i = 0; i < 140; i++)
        own_logits[i / 70][i % 70] = (float)i;
    REQUIRE(drafter_logits(&d, 1, 80) == own_logits[1]);
    d.common = common;
    d.rows = rows;
    for (int32_t n = 60; n <= 80; n += 10) { /* the served model has fewer, as many, more */
        const float *row = drafter_logits(&d, 1, n);
        REQUIRE(row == rows + n);
        for (int i = 0; i < n; i++) {
            bool lacks = i >= 70 || i == 5 || i == 67;
            REQUIRE(row[i] == (lacks ? -INFINITY : own_logits[1][i]));
        }
    }
}

/* ---- acceptance and times ------------------------------------------------------------------ */

static void margins_have_classes(void **state)
{
    static const float ends[] = {0.05f, 0.1f, 0.2f, 0.4f, 0.8f, 1.6f, 3.2f};
    (void)state;
    for (int i = 0; i < (int)N_OF(ends); i++) {
        REQUIRE_EQ_INT(drafter_class(ends[i]), i);
        REQUIRE_EQ_INT(drafter_class(ends[i] * 1.01f), i + 1);
    }
    REQUIRE_EQ_INT(drafter_class(0), 0);
    REQUIRE_EQ_INT(drafter_class(INFINITY), DRAFTER_MARGINS - 1);
}

static void acceptance_is_learned(void **state)
{
    struct drafter *d = &ds.twin;
    (void)state;
    for (int i = 1; i < DRAFTER_MARGINS; i++) /* wider margins are more often right */
        REQUIRE(d->right[i] > d->right[i - 1]);
    float mean = d->mean, right = d->right[2], other = d->right[3];
    drafter_note(d, 2, true);
    REQUIRE(d->right[2] == right + (1 - right) / 16 && d->right[3] == other);
    REQUIRE(d->mean == mean + (1 - mean) / 16);
    mean = d->mean;
    right = d->right[2];
    drafter_note(d, 2, false);
    REQUIRE(d->right[2] == right - right / 16 && d->mean == mean - mean / 16);
    mean = d->mean;
    right = d->right[2];
    drafter_missed(d);
    REQUIRE(d->mean == mean - mean / 16 && d->right[2] == right);
}

static void times_are_learned(void **state)
{
    struct drafter *d = &ds.model;
    struct draft_cost cost = {0};
    (void)state;
    draft_cost_note(&cost, 1, 1000);
    d->share = 0.25;
    REQUIRE(fabs(drafter_us(d, 2, &cost) - 250) < 1e-9); /* none was measured */
    drafter_took(d, 2, 410, &cost);
    REQUIRE(fabs(drafter_us(d, 2, &cost) - 260) < 1e-9); /* longer: a sixteenth */
    drafter_took(d, 2, 220, &cost);
    REQUIRE(fabs(drafter_us(d, 2, &cost) - 250) < 1e-9); /* shorter: a quarter */
    REQUIRE(fabs(drafter_us(d, 1, &cost) - 250) < 1e-9);
}

/* The best length up to DRAFT_MAX counts. */
static void what_a_drafter_promises(void **state)
{
    struct drafter *d = &ds.model;
    struct draft_cost cost = {0};
    (void)state;
    d->mean = 0.5f;
    d->share = 0.25;
    REQUIRE(drafter_promise(d, &cost) == 0);
    drafter_set(&ds, d, ENG_DRAFTS_ON);
    REQUIRE(drafter_promise(d, &cost) == 0); /* no step was measured */
    draft_cost_note(&cost, 1, 1000);
    double share = draft_cost_row(&cost) + 0.25;
    REQUIRE(fabs(drafter_promise(d, &cost) - 1.5 / (1 + share)) < 1e-9);
    d->mean = 1;
    REQUIRE(fabs(drafter_promise(d, &cost) - (1 + DRAFT_MAX) / (1 + DRAFT_MAX * share)) < 1e-9);
    drafter_fail(d, "so");
    REQUIRE(drafter_promise(d, &cost) == 0);
    REQUIRE_EQ_STR(d->error, "draft model : so");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_that_cannot_draft),
        cmocka_unit_test(as_large_as_half),
        cmocka_unit_test_setup_teardown(they_are_read_as_the_model_is, begin, end),
        cmocka_unit_test_setup_teardown(all_their_memory_is_planned, begin, end),
        cmocka_unit_test_setup_teardown(both_are_loaded, begin, end),
        cmocka_unit_test_setup_teardown(a_twin_is_dropped_and_loaded_again, begin, end),
        cmocka_unit_test(one_alone_is_loaded),
        cmocka_unit_test_setup_teardown(a_loading_that_was_stopped, begin, end),
        cmocka_unit_test_setup_teardown(a_twin_of_other_weights, begin, end),
        cmocka_unit_test_setup_teardown(a_draft_model_that_fails, begin, end),
        cmocka_unit_test(ids_it_may_write),
        cmocka_unit_test(logits_of_common_ids),
        cmocka_unit_test(margins_have_classes),
        cmocka_unit_test_setup_teardown(acceptance_is_learned, begin, end),
        cmocka_unit_test_setup_teardown(times_are_learned, begin, end),
        cmocka_unit_test_setup_teardown(what_a_drafter_promises, begin, end),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
