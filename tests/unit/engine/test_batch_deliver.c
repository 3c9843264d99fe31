/* SPDX-License-Identifier: MIT */
/*
 * Drafts: answers with them are those without, event by event, whatever else a request asks for;
 * only the number of steps differs. The prediction of a request is what it answers without drafts,
 * altered here and there, so that some ids are right and some are wrong.
 */
#include "test.h"

#include "fake_engine.h"

enum { N_PROMPT = 45, N_NEW = 120 };

/* A guide that allows the ids of one class after the other, the end after n of them. */
struct classes {
    int at, n, n_classes;
    int n_foreseen; /* ids that were asked about and could be taken */
};

static enum eng_guide_next classes_mask(void *ctx, uint64_t *bits, struct eng_pace *pace)
{
    (void)pace;
    const struct classes *c = ctx;
    if (c->at == c->n) return ENG_GUIDE_END;
    if (c->at % 7 == 6) return ENG_GUIDE_FREE;
    *bits = 0;
    for (int i = c->at % c->n_classes; i < FAKE_POISON; i += c->n_classes)
        *bits |= 1ull << i;
    return ENG_GUIDE_MASK;
}

static bool can_take(const struct classes *c, int at, int32_t id)
{
    return at < c->n && (at % 7 == 6 || id % c->n_classes == at % c->n_classes);
}

static bool classes_take(void *ctx, int32_t id)
{
    struct classes *c = ctx;
    if (!can_take(c, c->at, id)) return false;
    c->at++;
    return true;
}

static bool classes_complete(void *ctx)
{
    const struct classes *c = ctx;
    return c->at == c->n;
}

static int classes_foresee(void *ctx, const int32_t *ids, int n)
{
    struct classes *c = ctx;
    int i = 0;
    while (i < n && can_take(c, c->at + i, ids[i]))
        i++;
    c->n_foreseen += i;
    return i;
}

/* Two ids that can be taken and one that cannot, as text that is certain. */
static int classes_propose(void *ctx, int32_t *ids, int n)
{
    const struct classes *c = ctx;
    for (int i = 0; i < n && i < 3; i++)
        ids[i] = (c->at + i + (i == 2)) % c->n_classes;
    return n < 3 ? n : 3;
}

/* ---- requests -------------------------------------------------------------- */

static void greedy(struct eng_job_params *p)
{
    p->sampling.temperature = 0;
}

static void hot(struct eng_job_params *p)
{
    p->sampling.temperature = 1.3f;
    p->sampling.seed = 77;
}

static void truncated(struct eng_job_params *p)
{
    p->sampling.temperature = 0.8f;
    p->sampling.top_k = 20;
    p->sampling.top_p = 0.9f;
    p->sampling.min_p = 0.01f;
    p->sampling.typical_p = 0.95f;
    p->sampling.seed = 5;
}

static void penalties(struct eng_job_params *p)
{
    hot(p);
    p->sampling.repetition_penalty = 1.2f;
    p->sampling.frequency_penalty = 0.4f;
    p->sampling.presence_penalty = 0.3f;
}

static void bias_and_bans(struct eng_job_params *p)
{
    static const struct eng_bias bias[] = {{3, 2.0f}, {9, -INFINITY}};
    static const int32_t stop_ids[] = {11, 12};
    penalties(p);
    p->sampling.bias = bias;
    p->sampling.n_bias = 2;
    p->stop_ids = stop_ids;
    p->n_stop_ids = 2;
    p->min_tokens = 90;
    p->ignore_eos = false;
}

static void log_probabilities(struct eng_job_params *p)
{
    hot(p);
    p->n_logprobs = 3;
    p->n_prompt_logprobs = 2;
}

static void rows(struct eng_job_params *p)
{
    greedy(p);
    p->want_logits = true;
}

static void choices(struct eng_job_params *p)
{
    hot(p);
    p->n_choices = 3;
}

static void private_pages(struct eng_job_params *p)
{
    hot(p);
    p->no_cache = true;
}

static struct classes guides[TEST_JOB_CHOICES];

static void guided(struct eng_job_params *p)
{
    static struct eng_guide table[TEST_JOB_CHOICES];
    for (int i = 0; i < TEST_JOB_CHOICES; i++) {
        guides[i] = (struct classes){.n = 100, .n_classes = 3};
        table[i] =
            (struct eng_guide){&guides[i],      classes_mask,    classes_take, classes_complete,
                               classes_foresee, classes_propose, NULL,         NULL};
    }
    hot(p);
    p->n_choices = 2;
    p->guides = table;
}

static const struct {
    const char *name;
    void (*ask)(struct eng_job_params *p);
} asks[] = {
    {"greedy", greedy},
    {"hot", hot},
    {"truncated", truncated},
    {"penalties", penalties},
    {"bias and bans", bias_and_bans},
    {"log-probabilities", log_probabilities},
    {"rows", rows},
    {"choices", choices},
    {"private pages", private_pages},
    {"guided", guided},
};

/* ---- comparing --------------------------------------------------------------------------------- */

static struct eng_job_params job_of(struct test_job *c, void (*ask)(struct eng_job_params *p))
{
    struct eng_job_params p = test_job_greedy(c, prompt_of(3), N_PROMPT, N_NEW);
    ask(&p);
    return p;
}

static uint64_t steps_taken(struct bench *b)
{
    check_all_given_back(b);
    struct eng_stats st;
    inbox_stats(sched_inbox(b->sched), &st);
    return st.n_steps;
}

static struct test_job *run_job(struct bench *b, const struct eng_job_params *params)
{
    struct test_job *c = test_job_new();
    struct eng_job_params p = *params;
    p.ctx = c;
    submit(b, c, &p);
    test_job_await_done(c);
    return c;
}

static void require_same(const struct test_job *a, const struct test_job *b, const char *name)
{
    for (int i = 0; i < TEST_JOB_CHOICES; i++) {
        REQUIRE_MSG(a->n_ids[i] == b->n_ids[i], "%s: %d and %d tokens", name, a->n_ids[i],
                    b->n_ids[i]);
        size_t n = (size_t)a->n_ids[i];
        REQUIRE_MSG(memcmp(a->ids[i], b->ids[i], n * sizeof(a->ids[i][0])) == 0, "%s", name);
        REQUIRE_MSG(memcmp(a->logprob[i], b->logprob[i], n * sizeof(a->logprob[i][0])) == 0, "%s",
                    name);
        REQUIRE_MSG(memcmp(a->predicted[i], b->predicted[i], n * sizeof(a->predicted[i][0])) == 0,
                    "%s", name);
        REQUIRE_EQ_INT(a->finish[i], b->finish[i]);
        REQUIRE_EQ_INT(a->stop_id[i], b->stop_id[i]);
    }
    REQUIRE_EQ_INT(a->n_rows, b->n_rows);
    size_t bytes = (size_t)a->n_rows * (size_t)a->row_len * sizeof(float);
    REQUIRE_MSG(bytes == 0 || memcmp(a->rows, b->rows, bytes) == 0, "%s", name);
    REQUIRE_EQ_INT(a->n_prompt_tokens, b->n_prompt_tokens);
    REQUIRE_EQ_INT(a->usage.n_generated_tokens, b->usage.n_generated_tokens);
}

/* Every `every`-th id is altered; 0: none is. */
static void alter(const struct test_job *c, int every, int32_t *prediction)
{
    for (int i = 0; i < c->n_ids[0]; i++)
        prediction[i] =
            every && i % every == every - 1 ? (c->ids[0][i] + 1) % FAKE_POISON : c->ids[0][i];
}

static void check_ask(size_t ask, const struct setup *setup, int every)
{
    struct setup off = *setup, on = *setup;
    off.speculate = ENG_SPECULATE_OFF;
    on.speculate = ENG_SPECULATE_ALWAYS;
    struct bench without = open_bench(&off), with = open_bench(&on);
    struct eng_job_params p = job_of(NULL, asks[ask].ask);
    struct test_job *first = run_job(&without, &p);
    int32_t prediction[N_NEW];
    alter(first, every, prediction);
    p = job_of(NULL, asks[ask].ask);
    p.prediction = prediction;
    p.n_prediction = first->n_ids[0];
    uint64_t start = steps_taken(&without);
    struct test_job *plain = run_job(&without, &p);
    uint64_t n_plain = steps_taken(&without) - start;
    p = job_of(NULL, asks[ask].ask);
    p.prediction = prediction;
    p.n_prediction = first->n_ids[0];
    struct test_job *drafted = run_job(&with, &p);
    uint64_t n_drafted = steps_taken(&with);
    for (int i = 0; i < TEST_JOB_CHOICES; i++) /* the first has said nothing of predictions */
        memcpy(first->predicted[i], plain->predicted[i], sizeof(first->predicted[i]));
    require_same(first, plain, asks[ask].name);
    require_same(plain, drafted, asks[ask].name);
    REQUIRE(plain->n_ids[0] > 80);
    if (every == 0 && p.n_choices == 1)
        REQUIRE_MSG(n_drafted * 4 < n_plain, "%s: %d steps, %d without drafts", asks[ask].name,
                    (int)n_drafted, (int)n_plain);
    struct eng_stats st;
    inbox_stats(sched_inbox(without.sched), &st);
    REQUIRE_EQ_INT(eng_draft_sum(st.n_draft_tokens), 0);
    inbox_stats(sched_inbox(with.sched), &st);
    uint64_t n_tried = eng_draft_sum(st.n_draft_tokens);
    uint64_t n_right = eng_draft_sum(st.n_accepted_draft_tokens);
    REQUIRE_MSG(n_right > 30 && n_right <= n_tried, "%s, every %d: %d of %d", asks[ask].name, every,
                (int)n_right, (int)n_tried);
    REQUIRE(eng_draft_sum(st.n_drafts) > 0 && eng_draft_sum(st.n_drafts) <= n_tried);
    test_job_free(first);
    test_job_free(plain);
    test_job_free(drafted);
    close_bench(&without);
    close_bench(&with);
}

static void test_answers_do_not_depend_on_drafts(void **state)
{
    (void)state;
    static const struct setup setups[] = {
        {.n_parallel = 4, .chunk = 32},
        {.n_parallel = 1, .chunk = 7, .no_prefix_cache = true},
        {.n_parallel = 3, .n_pages = 30, .chunk = 128},
    };
    for (size_t i = 0; i < N_OF(setups); i++)
        for (size_t ask = 0; ask < N_OF(asks); ask++)
            for (int every = 0; every < 12; every += 3)
                check_ask(ask, &setups[i], every);
}

/* Many at once, whose drafts share the rows of a step; cached pages hold right ids only. */
static void test_many_at_once(void **state)
{
    (void)state;
    enum { N = 12, LENGTH = 100 };
    struct setup setup = {.n_parallel = 8, .chunk = 24, .speculate = ENG_SPECULATE_ALWAYS};
    struct bench b = open_bench(&setup);
    static int32_t prediction[N][LENGTH], longer[N][N_PROMPT + LENGTH + 1];
    struct test_job *c[N];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < N; i++) {
            fake_expect(prompt_of(i), N_PROMPT, prediction[i], LENGTH);
            memcpy(longer[i], prompt_of(i), N_PROMPT * sizeof(int32_t));
            memcpy(longer[i] + N_PROMPT, prediction[i], LENGTH * sizeof(int32_t));
            for (int k = i; k < LENGTH; k += 5 + i)
                prediction[i][k] = 3;
            c[i] = test_job_new();
            struct eng_job_params p = test_job_greedy(c[i], prompt_of(i), N_PROMPT, LENGTH);
            p.prediction = prediction[i];
            p.n_prediction = LENGTH;
            if (round == 1) { /* goes on from the answers, whose pages are cached */
                p.prompt = longer[i];
                p.n_prompt = N_PROMPT + LENGTH;
                p.n_prediction = 0;
            }
            submit(&b, c[i], &p);
        }
        for (int i = 0; i < N; i++) {
            test_job_await_done(c[i]);
            check_greedy(c[i], 0, round ? longer[i] : prompt_of(i),
                         round ? N_PROMPT + LENGTH : N_PROMPT, LENGTH);
            REQUIRE(round == 0 || c[i]->usage.n_cached_tokens >= 96);
            test_job_free(c[i]);
        }
        check_all_given_back(&b);
    }
    for (int i = 0; i < b.model->n_steps; i++) {
        REQUIRE(b.model->steps[i].n_rows <= 8 + 24 + BATCH_EXTRA_LOGIT_ROWS);
        REQUIRE(b.model->steps[i].n_logit_rows <= 8 + BATCH_EXTRA_LOGIT_ROWS);
    }
    close_bench(&b);
}

/* ---- ends in the middle of a draft ------------------------------------------------------------- */

static struct eng_job_params predicted_job(struct test_job *c, int32_t prediction[N_NEW])
{
    fake_expect(prompt_of(2), N_PROMPT, prediction, N_NEW);
    struct eng_job_params p = test_job_greedy(c, prompt_of(2), N_PROMPT, N_NEW);
    p.prediction = prediction;
    p.n_prediction = N_NEW;
    return p;
}

static void test_ends(void **state)
{
    (void)state;
    int32_t prediction[N_NEW];
    struct setup setup = {.n_parallel = 2, .speculate = ENG_SPECULATE_ALWAYS};
    struct bench b = open_bench(&setup);
    for (int n = 1; n < 20; n++) {
        struct test_job *c = test_job_new(); /* max_tokens */
        struct eng_job_params p = predicted_job(c, prediction);
        p.max_tokens = n;
        submit(&b, c, &p);
        test_job_await_done(c);
        REQUIRE_EQ_INT(c->n_ids[0], n);
        REQUIRE_EQ_INT(c->finish[0], ENG_FINISH_LENGTH);
        test_job_free(c);

        c = test_job_new(); /* a stop id */
        p = predicted_job(c, prediction);
        p.stop_ids = &prediction[n];
        p.n_stop_ids = 1;
        submit(&b, c, &p);
        test_job_await_done(c);
        int first = 0;
        while (prediction[first] != prediction[n])
            first++;
        REQUIRE_EQ_INT(c->n_ids[0], first + 1);
        REQUIRE_EQ_INT(c->stop_id[0], prediction[n]);
        test_job_free(c);

        for (int kind = 0; kind < 2; kind++) { /* from outside, at once */
            c = test_job_new();
            p = predicted_job(c, prediction);
            *(kind ? &c->cancel_at : &c->stop_at) = n;
            submit(&b, c, &p);
            test_job_await_done(c);
            check_greedy(c, 0, prompt_of(2), N_PROMPT, n);
            REQUIRE_EQ_INT(c->finish[0], kind ? ENG_FINISH_CANCELLED : ENG_FINISH_STOP);
            test_job_free(c);
        }
    }
    check_all_given_back(&b);
    close_bench(&b);
}

/* The context ends: the last token takes no position, and a draft none beyond it. */
static void test_end_of_context(void **state)
{
    (void)state;
    int32_t prediction[N_NEW];
    for (int ctx = 64; ctx < 100; ctx += 5) {
        struct setup setup = {.n_parallel = 1,
                              .ctx = ctx,
                              .speculate = ENG_SPECULATE_ALWAYS,
                              .n_pages = (ctx + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS};
        struct bench b = open_bench(&setup);
        struct test_job *c = test_job_new();
        struct eng_job_params p = predicted_job(c, prediction);
        submit(&b, c, &p);
        test_job_await_done(c);
        check_greedy(c, 0, prompt_of(2), N_PROMPT, ctx - N_PROMPT);
        test_job_free(c);
        check_all_given_back(&b);
        close_bench(&b);
    }
}

/* ---- drafts that do harm ----------------------------------------------------------------------- */

/* Numbers that a draft makes overflow are not the answer's: the step is done again without it. */
static void test_draft_that_is_not_finite(void **state)
{
    (void)state;
    int32_t prediction[N_NEW];
    struct setup setup = {.n_parallel = 1, .speculate = ENG_SPECULATE_ALWAYS};
    struct bench b = open_bench(&setup);
    struct test_job *c = test_job_new();
    struct eng_job_params p = predicted_job(c, prediction);
    prediction[30] = FAKE_POISON;
    submit(&b, c, &p);
    test_job_await_done(c);
    check_greedy(c, 0, prompt_of(2), N_PROMPT, N_NEW);
    REQUIRE_EQ_INT(c->finish[0], ENG_FINISH_LENGTH);
    test_job_free(c);
    close_bench(&b);
}

/* A guide cuts a draft before the first id that it does not allow. */
static void test_guide_cuts_drafts(void **state)
{
    (void)state;
    struct setup setup = {.n_parallel = 2, .speculate = ENG_SPECULATE_ALWAYS};
    struct bench b = open_bench(&setup);
    int32_t wrong[N_NEW];
    for (int i = 0; i < N_NEW; i++)
        wrong[i] = 3 * (i % 19) + (i + 1) % 3; /* allowed only where the guide is free */
    struct eng_job_params p = job_of(NULL, guided);
    struct eng_guide guide = p.guides[0];
    guide.propose = NULL;
    p.guides = &guide;
    p.prediction = wrong;
    p.n_prediction = N_NEW;
    p.n_choices = 1;
    struct test_job *c = run_job(&b, &p);
    struct eng_stats st;
    check_all_given_back(&b);
    inbox_stats(sched_inbox(b.sched), &st);
    int n_tried = (int)eng_draft_sum(st.n_draft_tokens);
    REQUIRE_EQ_INT(n_tried, guides[0].n_foreseen);
    REQUIRE_MSG(n_tried < 40, "%d ids", n_tried);
    test_job_free(c);
    close_bench(&b);
}

static void test_jobs_without_drafts(void **state)
{
    (void)state;
    int32_t prediction[N_NEW];
    struct setup setup = {.n_parallel = 1, .speculate = ENG_SPECULATE_ALWAYS};
    struct bench b = open_bench(&setup);
    struct eng_job_params p = predicted_job(NULL, prediction);
    p.no_drafts = true;
    struct test_job *c = run_job(&b, &p);
    struct eng_stats st;
    check_all_given_back(&b);
    inbox_stats(sched_inbox(b.sched), &st);
    REQUIRE_EQ_INT(eng_draft_sum(st.n_draft_tokens), 0);
    for (int i = 0; i < N_NEW; i++) /* what the prediction was worth is known all the same */
        REQUIRE_EQ_INT(c->predicted[0][i], 1);
    test_job_free(c);

    prediction[5] = FAKE_VOCAB;
    char err[200] = "";
    struct eng_job *job;
    REQUIRE_EQ_INT(inbox_submit(sched_inbox(b.sched), &p, &job, err, sizeof(err)), ENG_EINVAL);
    REQUIRE_MSG(strstr(err, "prediction") && strstr(err, "position 5"), "%s", err);
    close_bench(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers_do_not_depend_on_drafts),
        cmocka_unit_test(test_many_at_once),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_end_of_context),
        cmocka_unit_test(test_draft_that_is_not_finite),
        cmocka_unit_test(test_guide_cuts_drafts),
        cmocka_unit_test(test_jobs_without_drafts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
