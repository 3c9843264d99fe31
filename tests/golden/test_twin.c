/* SPDX-License-Identifier: MIT */
/*
 * How often the twin of a trained model drafts the id that the model then draws, at temperatures 0,
 * 0.7 and 1; and that with given times of steps every run has the same counts and the same ids.
 * The demo and, where HEARTH_REFERENCE is set, a story model with rows of 64, a hard case.
 */
#include <stdio.h>
#include <time.h>

#include "engine/forward.h"
#include "engine/kernels/kernels.h"
#include "engine/kv/kv.h"
#include "engine/model/load.h"
#include "engine/model/model.h"
#include "engine/model/numerics.h"
#include "engine/pool.h"
#include "engine/inbox.h"
#include "engine/scheduler.h"
#include "engine_job.h"

enum { CTX = 320, CHUNK = 32, N_NEW = 240, N_PROMPTS = 3, N_PAGES = CTX / 32 + 2 };

struct prompt {
    int32_t ids[12];
    int n;
};

static const float temperatures[] = {0, 0.7f, 1};

/* A model whose steps take a given time. */
struct timed {
    struct eng_model *model;
    struct fwd *fwd;
    double step_us, row_us;
    int n_rows; /* of the last step */
};

struct rig {
    struct kv_layout layout;
    struct pool *pool;
    struct kv_pages *pages;
    struct timed target, twin;
    struct drafters drafters;
    struct sched *sched;
};

static char err[512];
static const char *level; /* of kernels; NULL: the best */

static bool run(struct fwd *ctx, const struct fwd_step *step)
{
    struct timed *t = (void *)ctx;
    t->n_rows = 0;
    for (int i = 0; i < step->n_segs; i++)
        t->n_rows += step->segs[i].n_tokens;
    return fwd_run(t->fwd, step);
}

static double given_us(struct fwd *ctx)
{
    const struct timed *t = (const void *)ctx;
    return t->step_us + t->row_us * (t->n_rows - 1);
}

static const float *logits(const struct fwd *ctx, int row)
{
    return fwd_logits(((const struct timed *)(const void *)ctx)->fwd, row);
}

static int32_t argmax(const struct fwd *ctx, int row, bool *ret_finite)
{
    return fwd_argmax(((const struct timed *)(const void *)ctx)->fwd, row, ret_finite);
}

static struct batch_model seen(struct timed *t)
{
    return (struct batch_model){.run = run,
                                .us = given_us,
                                .logits = logits,
                                .argmax = argmax,
                                .ctx = (void *)t,
                                .vocab = t->model->hp.vocab,
                                .d_model = t->model->hp.d_model,
                                .eos = &t->model->hp.eos};
}

static void load_weights(struct rig *r, struct timed *t, const char *dir, const char *numerics)
{
    const struct eng_model_params params = {.dir = dir,
                                            .numerics = eng_numerics_find(numerics),
                                            .kern = kern_select(level),
                                            .gemm = "native"};
    REQUIRE_MSG(eng_model_open(&t->model, &params, err, sizeof(err)) == 0, "%s", err);
    REQUIRE_MSG(eng_model_fill(t->model, r->pool, CTX, err, sizeof(err)) == 0, "%s", err);
}

static void make_forward(struct rig *r, struct timed *t)
{
    const struct fwd_params params = {.model = t->model,
                                      .layout = &r->layout,
                                      .pool = r->pool,
                                      .max_rows = CHUNK + DRAFTER_ROWS,
                                      .max_segs = DRAFTER_SEQS,
                                      .max_logit_rows = CHUNK + DRAFTER_ROWS,
                                      .ctx = CTX};
    REQUIRE_MSG(fwd_create(&t->fwd, &params, err, sizeof(err)) == 0, "%s", err);
}

static void open_rig(struct rig *r, const char *dir, int n_threads)
{
    *r = (struct rig){.target = {.step_us = 1000, .row_us = 60}, .twin = {.step_us = 430}};
    REQUIRE_EQ_INT(pool_create(&r->pool, n_threads, err, sizeof(err)), 0);
    load_weights(r, &r->target, dir, "bf16");
    load_weights(r, &r->twin, dir, "int4");
    const struct eng_hparams *hp = &r->target.model->hp;
    kv_layout_init(&r->layout, hp->n_kv_layers, hp->n_kv_heads, hp->d_head, KERN_KV_BF16);
    REQUIRE_EQ_INT(kv_pages_create(&r->pages, &r->layout, N_PAGES, err, sizeof(err)), 0);
    make_forward(r, &r->target);
    make_forward(r, &r->twin);
    drafters_init(&r->drafters);
    r->drafters.twin.share = 0.43;
    const struct sched_params params = {
        .batch = {.model = seen(&r->target),
                  .kern = kern_select(level),
                  .pool = r->pool,
                  .pages = r->pages,
                  .page_bytes = r->layout.page_bytes,
                  .n_parallel = 1,
                  .chunk_tokens = CHUNK,
                  .ctx = CTX,
                  .speculate = ENG_SPECULATE_AUTO,
                  .drafters = &r->drafters},
        .in = {.max_jobs = 1, .max_tokens = CTX, .limits = {.max_choices = 1}},
        .starving_us = UINT64_MAX};
    REQUIRE_EQ_INT(sched_create(&r->sched, &params, err, sizeof(err)), 0);
    r->drafters.twin.model = seen(&r->twin);
    drafter_set(&r->drafters, &r->drafters.twin, ENG_DRAFTS_ON);
}

static void close_rig(struct rig *r)
{
    sched_destroy(r->sched);
    drafters_finish(&r->drafters);
    fwd_destroy(r->twin.fwd);
    fwd_destroy(r->target.fwd);
    kv_pages_destroy(r->pages);
    eng_model_close(r->twin.model);
    eng_model_close(r->target.model);
    pool_destroy(r->pool);
}

/* Of all steps: a job's last event comes before its last step is counted. */
static void read_stats(struct rig *r, struct eng_stats *ret)
{
    struct timespec t = {0, 100000};
    for (inbox_stats(sched_inbox(r->sched), ret); ret->n_running > 0;
         inbox_stats(sched_inbox(r->sched), ret))
        nanosleep(&t, NULL);
}

/* All answers one after the other; their ids and the counts of their steps. */
struct record {
    int32_t ids[N_PROMPTS][N_NEW];
    struct eng_stats stats;
};

static void answer(struct rig *r, const struct prompt *prompts, float temperature, int most,
                   struct record *ret)
{
    struct eng_stats before;
    read_stats(r, &before);
    for (int k = 0; k < N_PROMPTS; k++) {
        struct test_job *j = test_job_new();
        struct eng_job_params p = test_job_greedy(j, prompts[k].ids, prompts[k].n, N_NEW);
        p.sampling.temperature = temperature;
        p.sampling.seed = (uint64_t)k;
        p.max_draft = most;
        REQUIRE_MSG(inbox_submit(sched_inbox(r->sched), &p, &j->handle, err, sizeof(err)) == 0,
                    "%s", err);
        test_job_await_done(j);
        REQUIRE_EQ_INT(j->n_ids[0], N_NEW);
        memcpy(ret->ids[k], j->ids[0], sizeof(ret->ids[k]));
        test_job_free(j);
    }
    read_stats(r, &ret->stats);
    for (int i = 0; i < ENG_DRAFT_SOURCES; i++) {
        ret->stats.n_drafts[i] -= before.n_drafts[i];
        ret->stats.n_draft_tokens[i] -= before.n_draft_tokens[i];
        ret->stats.n_accepted_draft_tokens[i] -= before.n_accepted_draft_tokens[i];
    }
    for (int i = 0; i < ENG_DRAFT_IDS; i++)
        ret->stats.n_drafts_of_length[i] -= before.n_drafts_of_length[i];
}

static void require_same(const struct record *a, const struct record *b)
{
    const struct eng_stats *s = &a->stats, *t = &b->stats;
    REQUIRE(memcmp(a->ids, b->ids, sizeof(a->ids)) == 0);
    REQUIRE(memcmp(s->n_drafts, t->n_drafts, sizeof(s->n_drafts)) == 0);
    REQUIRE(memcmp(s->n_draft_tokens, t->n_draft_tokens, sizeof(s->n_draft_tokens)) == 0);
    REQUIRE(memcmp(s->n_accepted_draft_tokens, t->n_accepted_draft_tokens,
                   sizeof(s->n_accepted_draft_tokens)) == 0);
    REQUIRE(memcmp(s->n_drafts_of_length, t->n_drafts_of_length, sizeof(s->n_drafts_of_length)) ==
            0);
}

/* Of drafts of one id, whose share that is right is that of any place behind right ones. */
static void check_model(const char *dir, const struct prompt *prompts, double least)
{
    static struct record all[2][2 * N_OF(temperatures)];
    for (int n = 0; n < 2; n++) {
        struct rig r;
        open_rig(&r, dir, 1 + n);
        for (size_t i = 0; i < 2 * N_OF(temperatures); i++)
            answer(&r, prompts, temperatures[i / 2], i % 2 ? 0 : 1, &all[n][i]);
        close_rig(&r);
    }
    uint64_t n_right = 0, n_tried = 0;
    for (size_t i = 0; i < 2 * N_OF(temperatures); i++) {
        const struct eng_stats *s = &all[0][i].stats;
        uint64_t tried = s->n_draft_tokens[ENG_DRAFT_SELF];
        uint64_t right = s->n_accepted_draft_tokens[ENG_DRAFT_SELF];
        require_same(&all[0][i], &all[1][i]);
        print_message("%s, temperature %g, at most %d: %llu of %llu right\n", dir,
                      (double)temperatures[i / 2], i % 2 ? ENG_DRAFT_IDS : 1,
                      (unsigned long long)right, (unsigned long long)tried);
        REQUIRE(tried > 60);
        n_right += i % 2 ? 0 : right;
        n_tried += i % 2 ? 0 : tried;
    }
    REQUIRE_MSG((double)n_right >= least * (double)n_tried, "%s: less than %g", dir, least);
}

static void test_demo(void **state)
{
    (void)state;
    static const struct prompt prompts[N_PROMPTS] = {
        {{17, 911, 404, 33, 250, 8}, 6}, {{700, 71, 5, 613}, 4}, {{88, 120, 945, 310, 2}, 5}};
    char dir[1200];
    snprintf(dir, sizeof(dir), "%s/deploy/demo", test_source_root());
    check_model(dir, prompts, 0.97);
}

/* "Once upon a time", "Tom had a red ball. He" and "One day, a girl named Sue". */
static void test_stories(void **state)
{
    (void)state;
    static const struct prompt prompts[N_PROMPTS] = {
        {{1, 403, 407, 261, 378}, 5},
        {{1, 274, 287, 381, 261, 352, 266, 268, 388, 426, 346}, 11},
        {{1, 385, 328, 432, 261, 298, 315, 421, 395, 301, 425, 411}, 12}};
    char dir[1200];
    if (!test_reference()) skip();
    snprintf(dir, sizeof(dir), "%s/models/stories260k-bf16", test_reference());
    check_model(dir, prompts, 0.90);
}

/* An argument names another level of kernels. */
int main(int argc, char **argv)
{
    if (argc > 1) level = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_demo),
        cmocka_unit_test(test_stories),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
