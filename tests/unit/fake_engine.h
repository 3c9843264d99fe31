/* SPDX-License-Identifier: MIT */
/*
 * A scheduler over the forward pass of fake_model.h, with jobs whose answers are known: an engine
 * without a model.
 */
#ifndef HEARTH_TESTS_FAKE_ENGINE_H
#define HEARTH_TESTS_FAKE_ENGINE_H

#include "engine/kernels/kernels.h"
#include "engine/model/hparams.h"
#include "engine/pool.h"
#include "engine/inbox.h"
#include "engine/scheduler.h"
#include "engine_job.h"
#include "fake_model.h"

struct setup {
    int n_parallel, chunk, n_pages, ctx, max_queued_jobs, max_queued_tokens;
    int n_threads; /* of a pool; 0: none */
    bool no_prefix_cache, global_priority;
    bool reads_only; /* as a model of labels is: see READER_PAD */
    enum eng_speculate speculate;
    int twin_blur;          /* not 0: there is a twin, see fake_model.blur */
    int smaller_blur;       /* not 0: there is a draft model, */
    const uint64_t *common; /* and the ids that it shares; NULL: all */
    int smaller_vocab;      /* its own ids; 0: as many */
    int smaller_ctx;        /* its longest sequence; 0: as the model's */
    uint64_t starving_us;
    int n_snapshots; /* not 0: the model has states */
};

struct bench {
    struct fake_model *model, *twin, *smaller;
    struct kv_pages *pages, *smaller_pages;
    uint8_t **smaller_data;
    float *smaller_rows;
    struct pool *pool;
    struct sched *sched;
};

enum { READER_PAD = 58 };

static const struct eng_end_ids end_ids = {{FAKE_EOS}, 1};

static inline int or_default(int value, int def)
{
    return value ? value : def;
}

static inline struct batch_model fake_batch_model(struct fake_model *m)
{
    return (struct batch_model){.run = fake_run,
                                .us = fake_us,
                                .logits = fake_logits,
                                .argmax = fake_argmax,
                                .pooled = fake_pooled,
                                .ctx = m,
                                .vocab = FAKE_VOCAB,
                                .d_model = FAKE_D_MODEL,
                                .pooled_width = FAKE_D_MODEL,
                                .eos = &end_ids};
}

static inline void add_twin(struct bench *b, int blur)
{
    b->twin = malloc(sizeof(*b->twin));
    fake_init(b->twin);
    b->twin->blur = blur;
    b->twin->row_us = 420;
    struct draft_source twin = {.model = fake_batch_model(b->twin), .share = 0.45};
    sched_set_twin(b->sched, &twin);
}

static inline void add_draft_model(struct bench *b, const struct setup *setup,
                                   const struct kv_layout *layout, int ctx)
{
    char err[200] = "";
    int n_pages = kv_pages_total(b->pages), most = ctx / KV_PAGE_TOKENS + 1;
    b->smaller = malloc(sizeof(*b->smaller));
    fake_init(b->smaller);
    b->smaller->blur = setup->smaller_blur;
    b->smaller->row_us = 100;
    REQUIRE_EQ_INT(kv_pages_create(&b->smaller_pages, layout, n_pages, err, sizeof(err)), 0);
    for (int i = 0; i < n_pages; i++)
        REQUIRE_EQ_INT(kv_page_get(b->smaller_pages), i);
    b->smaller_data = calloc((size_t)(SELF_DRAFT_SEQS * most), sizeof(*b->smaller_data));
    b->smaller_rows = calloc(SELF_DRAFT_SEQS * FAKE_VOCAB, sizeof(*b->smaller_rows));
    struct draft_source source = {.model = fake_batch_model(b->smaller),
                                  .share = 0.1,
                                  .pages = b->smaller_pages,
                                  .ctx = or_default(setup->smaller_ctx, ctx),
                                  .data = b->smaller_data,
                                  .max_pages = most,
                                  .common = setup->common,
                                  .rows = b->smaller_rows};
    source.model.vocab = or_default(setup->smaller_vocab, FAKE_VOCAB);
    sched_set_draft_model(b->sched, &source);
}

static inline struct bench open_bench(const struct setup *setup)
{
    struct bench b = {.model = malloc(sizeof(*b.model))};
    struct kv_layout layout;
    char err[200] = "";
    int ctx = or_default(setup->ctx, 512), n_parallel = or_default(setup->n_parallel, 4);
    fake_init(b.model);
    b.model->row_us = 1000;
    kv_layout_init(&layout, 1, 1, 32, KERN_KV_F32);
    int n_pages = or_default(setup->n_pages, n_parallel * (ctx / KV_PAGE_TOKENS));
    REQUIRE_EQ_INT(kv_pages_create(&b.pages, &layout, n_pages, err, sizeof(err)), 0);
    if (setup->n_threads)
        REQUIRE_EQ_INT(pool_create(&b.pool, setup->n_threads, err, sizeof(err)), 0);
    struct sched_params p = {
        .batch = {.model = fake_batch_model(b.model),
                  .kern = kern_select("c"),
                  .pool = b.pool,
                  .pages = b.pages,
                  .page_bytes = layout.page_bytes,
                  .hash_seed = 5,
                  .n_parallel = n_parallel,
                  .chunk_tokens = or_default(setup->chunk, 32),
                  .ctx = ctx,
                  .speculate = setup->speculate},
        .max_choices = 16,
        .max_queued_jobs = or_default(setup->max_queued_jobs, 1000),
        .max_queued_tokens = or_default(setup->max_queued_tokens, 1 << 20),
        .no_prefix_cache = setup->no_prefix_cache,
        .global_priority = setup->global_priority,
        .reads_only = setup->reads_only,
        .pools_last = setup->reads_only,
        .pads = setup->reads_only,
        .pad_id = READER_PAD,
        .starving_us = setup->starving_us ? setup->starving_us : UINT64_MAX,
    };
    if (setup->n_snapshots) {
        p.batch.states = (struct state_layout){
            .n_layers = 1, .n_channels = 1, .n_taps = 3, .n_floats = STATE_ROWS, .n_kept = 2};
        p.batch.n_snapshots = setup->n_snapshots;
    }
    REQUIRE_EQ_INT(sched_create(&b.sched, &p, err, sizeof(err)), 0);
    if (setup->twin_blur) add_twin(&b, setup->twin_blur);
    if (setup->smaller_blur) add_draft_model(&b, setup, &layout, ctx);
    return b;
}

/* Every page must be free or idle, every slot empty. */
static inline void check_all_given_back(struct bench *b)
{
    struct eng_stats st;
    for (int i = 0; i < 10000; i++) { /* JOB_DONE comes before the round ends */
        inbox_stats(sched_inbox(b->sched), &st);
        if (st.n_running == 0 && st.n_pages_used == 0) break;
        struct timespec t = {0, 100000};
        nanosleep(&t, NULL);
    }
    REQUIRE_EQ_INT(st.n_running, 0);
    REQUIRE_EQ_INT(st.n_waiting, 0);
    REQUIRE_EQ_INT(st.n_waiting_tokens, 0);
    REQUIRE_EQ_INT(st.n_pages_used, 0);
}

static inline void close_bench(struct bench *b)
{
    fake_open_gate(b->model);
    sched_destroy(b->sched);
    pool_destroy(b->pool);
    kv_pages_destroy(b->pages);
    fake_finish(b->model);
    free(b->model);
    if (b->twin) fake_finish(b->twin);
    free(b->twin);
    if (b->smaller) fake_finish(b->smaller);
    free(b->smaller);
    kv_pages_destroy(b->smaller_pages);
    free(b->smaller_data);
    free(b->smaller_rows);
}

/* ---- jobs ---------------------------------------------------------------------------------- */

enum { MAX_PROMPT = 600 };

static inline void submit(struct bench *b, struct test_job *c, const struct eng_job_params *p)
{
    char err[200] = "";
    int rc = inbox_submit(sched_inbox(b->sched), p, &c->handle, err, sizeof(err));
    REQUIRE_MSG(rc == 0, "%s", err);
}

/* Prompt number `which`: prompts of equal numbers share all tokens they both have. */
static inline const int32_t *prompt_of(int which)
{
    static int32_t prompts[32][MAX_PROMPT];
    int32_t *p = prompts[which];
    uint32_t seed = (uint32_t)which * 7919 + 1;
    for (int i = 0; i < MAX_PROMPT; i++) {
        seed = seed * 1664525u + 1013904223u;
        p[i] = (int32_t)(seed >> 16) % FAKE_POISON;
    }
    return p;
}

static inline void check_greedy(const struct test_job *c, int choice, const int32_t *prompt,
                                int n_prompt, int n)
{
    int32_t want[TEST_JOB_MAX_TOKENS];
    fake_expect(prompt, n_prompt, want, n);
    REQUIRE_EQ_INT(c->n_ids[choice], n);
    for (int i = 0; i < n; i++)
        REQUIRE_MSG(c->ids[choice][i] == want[i], "token %d: %d, not %d", i, (int)c->ids[choice][i],
                    (int)want[i]);
}

#endif
