/* SPDX-License-Identifier: MIT */
/*
 * A generation's jobs: what they are told, what their events leave, the memory of the answer, what is freed. The jobs are
 * played here. Linked with --wrap of eng_info, srv_jobs_start and choice_text_finish.
 */
#include "server/api/run/generation.h"

#include <math.h>

#include "base/sha256.h"
#include "open_request.h"

enum { N_PROMPTS = 2, N_IDS = 5, CTX = 100, MAX_TOKENS = 20 };

static const int32_t ids[] = {1, 2, 3, 4, 5}, eos[] = {0};

static struct {
    struct srv_gen g;
    struct srv_gen_format format;
    struct gen_prompt prompts[N_PROMPTS];
    int n_finished; /* choices */
    bool opens;     /* what the writer got last */
    int n_written;
    enum srv_error failed_with;
} w;

static struct tok *tok;

/* ---- what is played ------------------------------------------------------------------------ */

void __wrap_srv_jobs_start(struct srv_jobs *j, struct srv_request *req, int n,
                           const struct srv_jobs_ops *ops, void *ctx);
void __real_choice_text_finish(struct gen_choice *c);
void __wrap_choice_text_finish(struct gen_choice *c);

void __wrap_srv_jobs_start(struct srv_jobs *j, struct srv_request *req, int n,
                           const struct srv_jobs_ops *ops, void *ctx)
{
    REQUIRE(j == &w.g.jobs && req == w.g.req && n == w.g.n_prompts);
    REQUIRE(ops == &w.g.ops && ctx == &w.g);
    j->req = req;
}

void __wrap_choice_text_finish(struct gen_choice *c)
{
    w.n_finished++;
    __real_choice_text_finish(c);
}

static bool write_new(struct srv_gen *g, bool opens, int n_prompts, bool finished)
{
    REQUIRE(g == &w.g);
    w.opens = opens;
    w.n_written = n_prompts;
    return finished;
}

static void fail_request(void *ctx, enum srv_error kind, const char *message)
{
    REQUIRE(ctx == &w.g && message);
    w.failed_with = kind;
    w.g.answered = true;
}

static int load(void **state)
{
    (void)state;
    char dir[1000], err[300];
    snprintf(dir, sizeof(dir), "%s/deploy/demo", test_source_root());
    return tok_open(&tok, dir, err, sizeof(err));
}

static int unload(void **state)
{
    (void)state;
    tok_close(tok);
    return 0;
}

/* ---- a generation -------------------------------------------------------------------------- */

/* Two prompts, of which the second has one id less, with n choices each. */
static void open_generation(int n_choices)
{
    static const struct srv_gen_dialect dialect = {0};
    memset(&w, 0, sizeof(w));
    test_info = (struct eng_info){.ctx_tokens = CTX, .eos_ids = eos, .n_eos_ids = 1};
    test_config = (struct srv_config){0};
    test_model.tok = tok;
    test_model.markers.id[TOOLS_MARK_OPEN] = -1;
    w.format.answer = &dialect;
    w.g = (struct srv_gen){.req = open_request(),
                           .served = &test_model,
                           .format = &w.format,
                           .prompts = w.prompts,
                           .n_prompts = N_PROMPTS,
                           .n_choices = n_choices,
                           .n_candidates = n_choices,
                           .max_tokens = MAX_TOKENS};
    w.g.params.logprobs_count = w.g.params.prompt_logprobs = w.g.params.draft_max = -1;
    for (int i = 0; i < N_PROMPTS; i++) {
        w.prompts[i].ids = ids;
        w.prompts[i].n_ids = N_IDS - i;
    }
}

static void start(void)
{
    static const struct srv_gen_writer writer = {write_new, fail_request};
    REQUIRE_MSG(!srv_gen_start(&w.g, &writer), "%s", param_error.message);
}

static struct eng_job_params describe(int i)
{
    struct eng_job_params jp = {0};
    REQUIRE_EQ_INT(w.g.ops.describe(&w.g, i, &jp), 0);
    return jp;
}

static void send(int i, const struct eng_event *ev)
{
    w.g.ops.event(&w.g, i, ev);
}

static void close_generation(void)
{
    srv_gen_release(&w.g);
    close_request(w.g.req);
    atomic_store(&test_model.answer_bytes, 0);
}

/* ---- jobs ---------------------------------------------------------------------------------- */

static void test_describe(void **state)
{
    (void)state;
    int32_t stop_ids[] = {7, 8};
    open_generation(3);
    struct srv_gen_params *gp = &w.g.params;
    gp->min_tokens = 2;
    gp->sampling.temperature = 0.5f;
    gp->stop_ids = stop_ids;
    gp->n_stop_ids = 2;
    gp->ignore_eos = gp->cache_prompt = gp->speculate = true;
    gp->logprobs_count = 4;
    gp->prompt_logprobs = 3;
    gp->priority = -6;
    w.g.prediction = ids;
    w.g.n_prediction = 2;
    start();
    struct eng_job_params jp = describe(1);
    REQUIRE(jp.prompt == ids && jp.n_prompt == N_IDS - 1 && jp.n_choices == 3);
    REQUIRE(jp.max_tokens == MAX_TOKENS && jp.min_tokens == 2 && jp.sampling.temperature == 0.5f);
    REQUIRE(jp.stop_ids == stop_ids && jp.n_stop_ids == 2 && jp.ignore_eos);
    REQUIRE(jp.n_logprobs == 4 && jp.n_prompt_logprobs == 3 && jp.priority == -6);
    REQUIRE(jp.prediction == ids && jp.n_prediction == 2);
    REQUIRE(!jp.no_cache && !jp.want_progress && !jp.guides && !jp.deadline_us);
    REQUIRE(!jp.no_drafts && jp.max_draft == 0);
    gp->cache_prompt = false;
    gp->draft_max = 0;
    gp->deadline_ms = 4;
    srv_facts(w.g.req)->start_us = 100;
    jp = describe(1);
    REQUIRE(jp.no_cache && jp.no_drafts && jp.max_draft == 0 && jp.deadline_us == 4100);
    gp->draft_max = 5;
    jp = describe(1);
    REQUIRE(!jp.no_drafts && jp.max_draft == 5);
    gp->speculate = false;
    REQUIRE(describe(1).no_drafts);
    close_generation();
}

/* Each salt makes a tenant of its own out of each key's, with the same owner. */
static void test_salt(void **state)
{
    static const struct {
        uint8_t key;
        const char *salt;
    } cases[] = {{1, NULL}, {1, "a"}, {1, "b"}, {2, NULL}, {2, "a"}};
    uint8_t tenants[N_OF(cases)][SHA256_BYTES];
    (void)state;
    open_generation(1);
    start();
    for (size_t i = 0; i < N_OF(cases); i++) {
        for (int again = 0; again < 2; again++) {
            struct eng_job_params jp = {.tenant = {cases[i].key}};
            w.g.params.cache_salt = cases[i].salt;
            REQUIRE_EQ_INT(w.g.ops.describe(&w.g, 0, &jp), 0);
            if (again) REQUIRE(!memcmp(tenants[i], jp.tenant, SHA256_BYTES));
            memcpy(tenants[i], jp.tenant, SHA256_BYTES);
        }
        const uint8_t plain[SHA256_BYTES] = {cases[i].key};
        REQUIRE(!memcmp(tenants[i], plain, ENG_KV_OWNER));
        REQUIRE(!memcmp(tenants[i], plain, SHA256_BYTES) == !cases[i].salt);
        for (size_t k = 0; k < i; k++)
            REQUIRE(memcmp(tenants[i], tenants[k], SHA256_BYTES) != 0);
    }
    close_generation();
}

/* What the engine tells is there for the text workers, of each prompt and choice. */
static void test_events(void **state)
{
    const struct eng_usage begun = {.n_cached_tokens = 2, .started_us = 50};
    const struct eng_usage ended = {.n_cached_tokens = 3, .n_written_tokens = 1};
    const struct eng_logprob top[] = {{9, -0.5f}};
    (void)state;
    open_generation(2);
    w.g.params.prompt_logprobs = w.g.params.logprobs_count = 1;
    start();
    describe(0);
    describe(1);
    struct gen_prompt *p = &w.prompts[1];
    REQUIRE(p->choices[0].index == 2 && p->choices[1].index == 3);
    REQUIRE_EQ_INT(srv_gen_usage(p).n_cached_tokens, 0);
    send(1, &(struct eng_event){.type = ENG_EVENT_STARTED, .usage = &begun});
    REQUIRE(p->stage == GEN_STARTED && srv_gen_usage(p).n_cached_tokens == 2);
    send(1, &(struct eng_event){
                .type = ENG_EVENT_PROMPT_TOKEN, .id = 6, .logprob = -3, .top = top, .n_top = 1});
    REQUIRE(p->log.n_written == 1 && p->log.records[0].id == 6 && p->log.tops[0].id == 9);
    for (int i = 0; i < 2; i++)
        send(1, &(struct eng_event){
                    .type = ENG_EVENT_TOKEN, .choice = 1, .id = 7 + i, .now_us = 60 + i});
    REQUIRE(p->choices[1].log.n_written == 2 && p->choices[1].log.records[1].id == 8);
    REQUIRE_EQ_INT(srv_gen_usage(p).first_token_us, 60);
    send(1, &(struct eng_event){
                .type = ENG_EVENT_CHOICE_DONE, .choice = 1, .finish = ENG_FINISH_STOP});
    REQUIRE(p->choices[1].finish == ENG_FINISH_STOP && !p->choices[0].finish);
    send(1, &(struct eng_event){.type = ENG_EVENT_JOB_DONE, .usage = &ended});
    REQUIRE(p->stage == GEN_DONE && srv_gen_usage(p).n_cached_tokens == 3);
    REQUIRE(w.prompts[0].stage == GEN_WAITING && w.prompts[0].choices[1].log.n_written == 0);
    p->choices[0].n_tokens = 4;
    p->choices[1].n_tokens = 5;
    p->choices[1].n_reasoning = 2;
    p->choices[0].n_accepted = p->choices[1].n_rejected = 3;
    struct gen_totals t = srv_gen_totals(&w.g);
    REQUIRE(t.n_prompt == 2 * N_IDS - 1 && t.n_cached == 3 && t.n_written == 1);
    REQUIRE(t.n_completion == 9 && t.n_reasoning == 2 && t.n_accepted == 3 && t.n_rejected == 3);
    close_generation();
}

static void write_progress(struct srv_gen *g, const struct gen_progress *progress)
{
    REQUIRE(!g && !progress); /* it is the writer's to call */
}

/* Steps of the prefill are kept for a stream that reports them. */
static void test_progress(void **state)
{
    static const struct {
        bool asks, streams, writes, reports;
    } cases[] = {{true, true, true, true},
                 {false, true, true, false},
                 {true, false, true, false},
                 {true, true, false, false}};
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct srv_gen_dialect dialect = {0};
        struct eng_usage usage = {.n_cached_tokens = 1, .started_us = 10};
        open_generation(1);
        if (cases[i].writes) dialect.stream_progress = write_progress;
        w.format.answer = &dialect;
        w.g.params.return_progress = cases[i].asks;
        w.g.params.stream = cases[i].streams;
        start();
        REQUIRE(describe(0).want_progress == cases[i].reports);
        struct gen_prompt *p = &w.prompts[0];
        REQUIRE(!p->steps == !cases[i].reports);
        for (int k = 0; k < N_IDS + 1; k++)
            send(0, &(struct eng_event){
                        .type = ENG_EVENT_PROGRESS, .index = k, .usage = &usage, .now_us = 15});
        REQUIRE_EQ_INT(p->n_steps, cases[i].reports ? N_IDS : 0);
        if (p->steps)
            REQUIRE(p->steps[4].n_done == 4 && p->steps[4].n_cached == 1 && p->steps[4].us == 5);
        close_generation();
    }
}

/* A request that fails at a prompt has the text of those before it written first. */
static void test_advance(void **state)
{
    (void)state;
    open_generation(1);
    w.g.params.stream = true;
    start();
    describe(0);
    describe(1);
    w.g.jobs.n_submitted = N_PROMPTS;
    w.n_written = -1;
    REQUIRE(!w.g.ops.advance(&w.g) && !w.opens && w.n_written == N_PROMPTS);
    send(1, &(struct eng_event){.type = ENG_EVENT_TOKEN, .id = 7, .now_us = 60});
    REQUIRE(!w.g.ops.advance(&w.g) && w.opens && w.prompts[1].choices->n_tokens == 1);
    w.g.streaming = true;
    w.prompts[1].choices->finish = ENG_FINISH_ERROR;
    REQUIRE(w.g.ops.advance(&w.g) && !w.opens && w.n_written == 1);
    REQUIRE_EQ_INT(w.failed_with, SRV_ERR_INTERNAL);
    REQUIRE(!srv_facts(w.g.req)->account.model); /* it is accounted for at its end */
    close_generation();
    open_generation(1);
    w.g.model = "m";
    start();
    describe(0);
    describe(1);
    w.g.jobs.n_submitted = N_PROMPTS;
    w.n_written = -1;
    atomic_store(&w.g.jobs.gone, true);
    REQUIRE(w.g.ops.advance(&w.g) && w.g.answered && w.n_written == -1);
    REQUIRE_EQ_STR(srv_facts(w.g.req)->account.model, "m");
    close_generation();
}

/* ---- memory -------------------------------------------------------------------------------- */

/* The logs of all choices are charged before anything is computed. */
static void test_charge(void **state)
{
    (void)state;
    open_generation(2);
    start();
    REQUIRE(w.g.ops.prepare(&w.g) == JOBS_READY);
    int64_t bytes = atomic_load(&test_model.answer_bytes);
    REQUIRE(bytes > N_PROMPTS * 2 * MAX_TOKENS * (int)sizeof(struct gen_record));
    close_generation();
    const struct {
        int64_t limit, in_use;
        int status; /* of the refusal; 0: none */
    } cases[] = {{bytes, 0, 0}, {bytes - 1, 0, 413}, {bytes, 1, 429}, {bytes + 1, 1, 0}};
    for (size_t i = 0; i < N_OF(cases); i++) {
        open_generation(2);
        start();
        test_info.memory.answer_bytes = cases[i].limit;
        atomic_store(&test_model.answer_bytes, cases[i].in_use);
        enum srv_jobs_state s = w.g.ops.prepare(&w.g);
        REQUIRE_EQ_INT(s, cases[i].status ? JOBS_REFUSED : JOBS_READY);
        REQUIRE_EQ_INT(w.g.req->status, cases[i].status);
        close_generation();
    }
}

static void test_capacity(void **state)
{
    (void)state;
    open_generation(1);
    REQUIRE_EQ_INT(srv_gen_token_capacity(&w.g, &w.prompts[0]), MAX_TOKENS);
    w.g.max_tokens = CTX;
    REQUIRE_EQ_INT(srv_gen_token_capacity(&w.g, &w.prompts[0]), CTX - N_IDS + 1);
    REQUIRE_EQ_INT(srv_gen_token_capacity(&w.g, &w.prompts[1]), CTX - N_IDS + 2);
    close_generation();
}

/* Every choice of a prompt that was described is freed, and no other. */
static void test_release(void **state)
{
    (void)state;
    for (int n = 0; n <= N_PROMPTS; n++) {
        open_generation(3);
        start();
        for (int i = 0; i < n; i++)
            describe(i);
        close_generation();
        REQUIRE_EQ_INT(w.n_finished, 3 * n);
    }
}

/* ---- rules --------------------------------------------------------------------------------- */

static void test_rules(void **state)
{
    (void)state;
    int32_t stop_ids[] = {7};
    open_generation(1);
    struct srv_gen_params *gp = &w.g.params;
    gp->stop_ids = stop_ids;
    gp->n_stop_ids = 1;
    gp->stops[0] = "END";
    gp->stop_lens[0] = 3;
    gp->n_stops = 1;
    gp->min_tokens = 2;
    gp->n_indent = 4;
    gp->include_stop = gp->skip_special = true;
    start();
    const struct choice_rules *r = &w.g.rules;
    REQUIRE(r->tok == tok && r->ids[0] == stop_ids && r->n_ids[0] == 1);
    REQUIRE(r->ids[1] == eos && r->n_ids[1] == 1 && r->min_tokens == 2 && r->min_indent == 4);
    REQUIRE(r->include_stop && r->skip_special && !r->reader.set && r->stops.n == 1);
    REQUIRE_EQ_STR(r->stops.stop[0].text, "END");
    close_generation();
    open_generation(1);
    w.g.params.ignore_eos = true;
    start();
    REQUIRE(w.g.rules.n_ids[1] == 0 && w.g.rules.stops.n == 0);
    close_generation();
}

/* tool_choice "none" bans the marker besides what the request biases. */
static void test_calls_are_banned(void **state)
{
    static const struct {
        int32_t marker;
        int n_tools;
        enum tools_choice choice;
        bool banned;
    } cases[] = {{9, 1, TOOLS_CHOICE_NONE, true},
                 {9, 1, TOOLS_CHOICE_AUTO, false},
                 {9, 0, TOOLS_CHOICE_NONE, false},
                 {-1, 1, TOOLS_CHOICE_NONE, false}};
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct eng_bias own[] = {{3, 1.5f}};
        open_generation(1);
        test_model.markers.id[TOOLS_MARK_OPEN] = cases[i].marker;
        w.g.tools.ask.n = cases[i].n_tools;
        w.g.tools.ask.choice = cases[i].choice;
        w.g.params.sampling.bias = own;
        w.g.params.sampling.n_bias = 1;
        start();
        struct eng_sampling s = describe(0).sampling;
        REQUIRE(s.n_bias == 1 + cases[i].banned && s.bias[0].id == 3 && s.bias[0].value == 1.5f);
        if (cases[i].banned) REQUIRE(s.bias[1].id == 9 && s.bias[1].value == -INFINITY);
        w.g.tools.ask.n = 0;
        close_generation();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_describe), cmocka_unit_test(test_salt),
        cmocka_unit_test(test_events),   cmocka_unit_test(test_progress),
        cmocka_unit_test(test_advance),  cmocka_unit_test(test_charge),
        cmocka_unit_test(test_capacity), cmocka_unit_test(test_release),
        cmocka_unit_test(test_rules),    cmocka_unit_test(test_calls_are_banned),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
