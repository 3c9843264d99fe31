/* SPDX-License-Identifier: MIT */
/*
 * A scheduler over the forward pass of fake_model.h, with jobs whose answers are known: an engine
 * without a model.
 */
#pragma once

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
    struct drafters *drafters;
    struct kv_pages *pages;
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
                                .ctx = (void *)m,
                                .vocab = FAKE_VOCAB,
                                .d_model = FAKE_D_MODEL,
                                .pooled_width = FAKE_D_MODEL,
                                .eos = &end_ids};
}

static inline struct fake_model *add_drafter(struct bench *b, struct drafter *d, int blur,
                                             int row_us)
{
    struct fake_model *m = malloc(sizeof(*m));
    fake_init(m);
    m->blur = blur;
    m->row_us = row_us;
    d->model = fake_batch_model(m);
    drafter_set(b->drafters, d, ENG_DRAFTS_ON);
    return m;
}

static inline void add_draft_model(struct bench *b, const struct setup *setup,
                                   const struct kv_layout *layout, int ctx)
{
    char err[200] = "";
    struct drafter *d = &b->drafters->model;
    int n_pages = kv_pages_total(b->pages);
    REQUIRE_EQ_INT(kv_pages_create(&d->pages, layout, n_pages, err, sizeof(err)), 0);
    for (int i = 0; i < n_pages; i++)
        REQUIRE_EQ_INT(kv_page_get(d->pages), i);
    d->share = 0.1;
    d->ctx = or_default(setup->smaller_ctx, ctx);
    d->max_pages = ctx / KV_PAGE_TOKENS + 1;
    d->data = calloc((size_t)(DRAFTER_SEQS * d->max_pages), sizeof(*d->data));
    d->rows = calloc(DRAFTER_SEQS * FAKE_VOCAB, sizeof(*d->rows));
    if (setup->common) {
        d->common = malloc(sizeof(*d->common));
        *d->common = *setup->common;
    }
    b->smaller = add_drafter(b, d, setup->smaller_blur, 100);
    d->model.vocab = or_default(setup->smaller_vocab, FAKE_VOCAB);
}

static inline struct bench open_bench(const struct setup *setup)
{
    struct bench b = {.model = malloc(sizeof(*b.model)), .drafters = malloc(sizeof(*b.drafters))};
    struct kv_layout layout;
    char err[200] = "";
    int ctx = or_default(setup->ctx, 512), n_parallel = or_default(setup->n_parallel, 4);
    fake_init(b.model);
    b.model->row_us = 1000;
    drafters_init(b.drafters);
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
                  .speculate = setup->speculate,
                  .drafters = b.drafters},
        .in = {.max_jobs = or_default(setup->max_queued_jobs, 1000),
               .max_tokens = or_default(setup->max_queued_tokens, 1 << 20),
               .global_priority = setup->global_priority,
               .limits = {.max_choices = 16,
                          .no_prefix_cache = setup->no_prefix_cache,
                          .reads_only = setup->reads_only,
                          .pools_last = setup->reads_only,
                          .pads = setup->reads_only,
                          .pad_id = READER_PAD}},
        .starving_us = setup->starving_us ? setup->starving_us : UINT64_MAX,
    };
    if (setup->n_snapshots) {
        p.batch.states = (struct state_layout){
            .n_layers = 1, .n_channels = 1, .n_taps = 3, .n_floats = STATE_ROWS, .n_kept = 2};
        p.batch.n_snapshots = setup->n_snapshots;
    }
    REQUIRE_EQ_INT(sched_create(&b.sched, &p, err, sizeof(err)), 0);
    if (setup->twin_blur) b.twin = add_drafter(&b, &b.drafters->twin, setup->twin_blur, 420);
    if (setup->smaller_blur) add_draft_model(&b, setup, &layout, ctx);
    return b;
}

/* Every page must be free or idle, every slot empty. */
static inline void check_all_given_back(struct bench *b)
{
    struct eng_stats st;
    for (int i = 0; i < 600000; i++) { /* JOB_DONE comes before the round ends */
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
    drafters_finish(b->drafters);
    free(b->drafters);
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
