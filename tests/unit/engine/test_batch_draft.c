/* SPDX-License-Identifier: MIT */
/*
 * Drafts by a second model, a twin or a smaller one, that is wrong now and then: answers are those
 * without it, event by event; only the number of the served model's steps differs.
 */
#include "test.h"

#include "fake_engine.h"

enum { N_PROMPT = 45, N_NEW = 120, BLUR = 6 };

/* ---- a guide that can be looked at in advance ---------------------------------------------- */

/* Ids of one class after the other; every seventh is free, and the end comes after n. */
struct classes {
    int at, n, n_peeks, fail_at;
};

static enum eng_guide_next allow(const struct classes *c, int at, uint64_t *bits)
{
    if (at >= c->n) return ENG_GUIDE_END;
    if (at % 7 == 6) return ENG_GUIDE_FREE;
    *bits = 0;
    for (int i = at % 3; i < FAKE_POISON; i += 3)
        *bits |= 1ull << i;
    return ENG_GUIDE_MASK;
}

static enum eng_guide_next classes_mask(void *ctx, uint64_t *bits, struct eng_pace *pace)
{
    struct classes *c = ctx;
    (void)pace;
    return allow(c, c->at, bits);
}

static bool classes_take(void *ctx, int32_t id)
{
    struct classes *c = ctx;
    uint64_t bits;
    enum eng_guide_next next = allow(c, c->at, &bits);
    if (next == ENG_GUIDE_END || (next == ENG_GUIDE_MASK && !(bits >> id & 1))) return false;
    c->at++;
    return true;
}

static bool classes_complete(void *ctx)
{
    const struct classes *c = ctx;
    return c->at == c->n;
}

static enum eng_guide_next classes_peek(void *ctx, const int32_t *ids, int n, uint64_t *bits)
{
    struct classes *c = ctx, ahead = *c;
    c->n_peeks++;
    for (int i = 0; i < n; i++)
        REQUIRE(classes_take(&ahead, ids[i]));
    return c->fail_at && ahead.at >= c->fail_at ? ENG_GUIDE_LATER : allow(&ahead, ahead.at, bits);
}

static struct classes rules[TEST_JOB_CHOICES];

/* ---- requests ------------------------------------------------------------------------------ */

static void hot(struct eng_job_params *p)
{
    p->sampling.temperature = 1.3f;
    p->sampling.seed = 77;
}

static void rows(struct eng_job_params *p)
{
    hot(p);
    p->want_logits = true;
}

static void truncated(struct eng_job_params *p)
{
    hot(p);
    p->sampling.top_p = 0.8f;
    p->sampling.min_p = 0.02f;
    p->min_tokens = 100;
    p->ignore_eos = false;
    p->n_logprobs = 3;
}

static void penalised(struct eng_job_params *p)
{
    hot(p);
    p->sampling.repetition_penalty = 1.3f;
    p->sampling.frequency_penalty = 0.5f;
    p->n_choices = 3;
}

static void guided(struct eng_job_params *p)
{
    static struct eng_guide table[TEST_JOB_CHOICES];
    for (int i = 0; i < TEST_JOB_CHOICES; i++) {
        rules[i] = (struct classes){.n = 100, .fail_at = i == 1 ? 40 : 0};
        table[i] = (struct eng_guide){.ctx = &rules[i],
                                      .mask = classes_mask,
                                      .take = classes_take,
                                      .complete = classes_complete,
                                      .peek = classes_peek};
    }
    hot(p);
    p->n_choices = 2;
    p->guides = table;
}

static void many(struct eng_job_params *p)
{
    hot(p);
    p->n_choices = TEST_JOB_CHOICES;
}

static void plain(struct eng_job_params *p)
{
    (void)p;
}

static const struct {
    const char *name;
    void (*ask)(struct eng_job_params *p);
} asks[] = {
    {"greedy", plain},        {"rows", rows},     {"truncated", truncated},
    {"penalised", penalised}, {"guided", guided}, {"choices", many},
};

static struct test_job *run_ask(struct bench *b, size_t ask, int n_prompt)
{
    struct test_job *c = test_job_new();
    struct eng_job_params p = test_job_greedy(c, prompt_of(3), n_prompt, N_NEW);
    asks[ask].ask(&p);
    submit(b, c, &p);
    test_job_await_done(c);
    check_all_given_back(b);
    return c;
}

static void require_same(const struct test_job *a, const struct test_job *b, const char *name)
{
    for (int i = 0; i < TEST_JOB_CHOICES; i++) {
        size_t n = (size_t)a->n_ids[i];
        REQUIRE_MSG(a->n_ids[i] == b->n_ids[i] && a->finish[i] == b->finish[i], "%s: choice %d",
                    name, i);
        REQUIRE_MSG(memcmp(a->ids[i], b->ids[i], n * sizeof(a->ids[i][0])) == 0, "%s", name);
        REQUIRE_MSG(memcmp(a->logprob[i], b->logprob[i], n * sizeof(a->logprob[i][0])) == 0, "%s",
                    name);
    }
    REQUIRE_EQ_INT(a->n_rows, b->n_rows);
    size_t bytes = (size_t)a->n_rows * (size_t)a->row_len * sizeof(float);
    REQUIRE_MSG(bytes == 0 || memcmp(a->rows, b->rows, bytes) == 0, "%s", name);
}

static struct eng_stats stats_of(struct bench *b)
{
    struct eng_stats st;
    inbox_stats(sched_inbox(b->sched), &st);
    return st;
}

static void check_ask(size_t ask, const struct setup *on)
{
    struct setup off = {.n_parallel = 6, .speculate = ENG_SPECULATE_OFF};
    struct bench without = open_bench(&off), with = open_bench(on);
    struct test_job *a = run_ask(&without, ask, N_PROMPT), *b = run_ask(&with, ask, N_PROMPT);
    require_same(a, b, asks[ask].name);
    struct eng_stats st = stats_of(&with);
    uint64_t tried = st.n_draft_tokens[ENG_DRAFT_SELF] + st.n_draft_tokens[ENG_DRAFT_MODEL], n = 0,
             right = st.n_accepted_draft_tokens[ENG_DRAFT_SELF] +
                     st.n_accepted_draft_tokens[ENG_DRAFT_MODEL];
    for (int i = 0; i < ENG_DRAFT_IDS; i++)
        n += (uint64_t)(i + 1) * st.n_drafts_of_length[i];
    REQUIRE_EQ_INT(n, eng_draft_sum(st.n_draft_tokens));
    REQUIRE_MSG(tried > 30 && right > 10 && right < tried, "%s: %d of %d right", asks[ask].name,
                (int)right, (int)tried);
    REQUIRE(!on->twin_blur == !st.n_draft_tokens[ENG_DRAFT_SELF] || on->smaller_blur);
    REQUIRE(!on->smaller_blur == !st.n_draft_tokens[ENG_DRAFT_MODEL] || on->twin_blur);
    REQUIRE(st.n_steps * 2 < stats_of(&without).n_steps);
    test_job_free(a);
    test_job_free(b);
    close_bench(&without);
    close_bench(&with);
}

/* All but one id below 58, the end not among them. */
static const uint64_t most_ids = (UINT64_C(1) << 58) - 1 - (1 << 20);

static void test_answers_do_not_depend_on_drafts(void **state)
{
    (void)state;
    for (size_t ask = 0; ask < N_OF(asks); ask++) {
        struct setup on = {.n_parallel = 6,
                           .speculate = ENG_SPECULATE_ALWAYS,
                           .twin_blur = BLUR,
                           .n_threads = ask % 2 ? 2 : 0};
        check_ask(ask, &on);
        on.smaller_blur = BLUR + 1;
        check_ask(ask, &on);
        on.twin_blur = 0;
        check_ask(ask, &on);
        on.common = &most_ids;
        on.smaller_vocab = 64;
        if (ask > 0) check_ask(ask, &on); /* the greedy answer has many of the other ids */
    }
}

/* Ids that the draft model does not know are neither proposed nor read, nor places beyond its
 * context. */
static void test_draft_model_that_knows_less(void **state)
{
    (void)state;
    static const struct {
        int vocab, ctx;
        bool drafts;
    } cases[] = {{60, 0, true}, {20, 0, false}, {0, 100, true}, {0, 40, false}};
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct setup off = {.speculate = ENG_SPECULATE_OFF},
                     on = {.speculate = ENG_SPECULATE_ALWAYS,
                           .smaller_blur = BLUR,
                           .common = &most_ids,
                           .smaller_vocab = cases[i].vocab,
                           .smaller_ctx = cases[i].ctx};
        struct bench without = open_bench(&off), with = open_bench(&on);
        struct test_job *a = run_ask(&without, 1, N_PROMPT), *b = run_ask(&with, 1, N_PROMPT);
        require_same(a, b, "rows");
        REQUIRE_EQ_INT(stats_of(&with).n_draft_tokens[ENG_DRAFT_MODEL] > 0, cases[i].drafts);
        test_job_free(a);
        test_job_free(b);
        close_bench(&without);
        close_bench(&with);
    }
}

static int n_rows_of(const struct fake_model *m)
{
    int n = 0;
    for (int i = 0; i < m->n_steps; i++)
        n += m->steps[i].n_rows;
    return n;
}

/*
 * A prompt is computed after the first token, in pieces; pages of the prefix cache that have been
 * computed are not computed again, and no page is believed to be once it was given back.
 */
static void test_draft_model_catches_up(void **state)
{
    (void)state;
    struct setup setup = {.n_parallel = 1,
                          .speculate = ENG_SPECULATE_ALWAYS,
                          .smaller_blur = BLUR,
                          .ctx = 320,
                          .n_pages = 10};
    struct bench b = open_bench(&setup);
    enum { LONG = 197 };
    for (int i = 0; i < 3; i++) {
        int before = n_rows_of(b.smaller);
        fake_close_gate(b.model);
        struct test_job *c = test_job_new();
        struct eng_job_params p = test_job_greedy(c, prompt_of(i == 2 ? 4 : 3), LONG, N_NEW);
        submit(&b, c, &p);
        fake_await_step(b.model);
        REQUIRE_EQ_INT(n_rows_of(b.smaller), before); /* nothing before the prompt is done */
        fake_open_gate(b.model);
        test_job_await_done(c);
        check_greedy(c, 0, prompt_of(i == 2 ? 4 : 3), LONG, N_NEW);
        int n = n_rows_of(b.smaller) - before;
        REQUIRE_MSG(i == 1 ? n < 2 * N_NEW : n > LONG, "%d rows", n);
        test_job_free(c);
        check_all_given_back(&b);
    }
    REQUIRE(b.smaller->steps[0].n_rows == DRAFTER_PIECE);
    REQUIRE(b.smaller->steps[0].n_logit_rows == 0);
    close_bench(&b);
}

/* Rows of spare jobs join the steps of another, and its drafts are as many and as long. */
static void test_drafts_beside_spare_jobs(void **state)
{
    (void)state;
    struct setup setup = {
        .n_parallel = 6, .ctx = 256, .speculate = ENG_SPECULATE_ALWAYS, .twin_blur = BLUR};
    int n_steps = 0, n_rows[2] = {0}, n_drafts[2];
    for (int with = 0; with < 2; with++) {
        struct bench b = open_bench(&setup);
        struct test_job *all[6];
        fake_close_gate(b.model);
        for (int i = 0; i < (with ? 6 : 1); i++) {
            all[i] = test_job_new();
            struct eng_job_params p =
                test_job_greedy(all[i], prompt_of(3 + i), i ? 200 : N_PROMPT, i ? 1 : N_NEW);
            p.n_prompt_logprobs = i ? 0 : -1;
            p.spare = i > 0;
            submit(&b, all[i], &p);
            if (i == 0) fake_await_step(b.model);
        }
        fake_open_gate(b.model);
        for (int i = 0; i < (with ? 6 : 1); i++) {
            test_job_await_done(all[i]);
            if (i == 0) check_greedy(all[i], 0, prompt_of(3), N_PROMPT, N_NEW);
            test_job_free(all[i]);
        }
        n_drafts[with] = (int)stats_of(&b).n_draft_tokens[ENG_DRAFT_SELF];
        if (!with) n_steps = b.model->n_steps;
        for (int i = 0; i < n_steps; i++) {
            n_rows[with] += b.model->steps[i].n_rows;
            REQUIRE(b.model->steps[i].n_logit_rows <= 6 + BATCH_EXTRA_LOGIT_ROWS);
        }
        close_bench(&b);
    }
    REQUIRE_MSG(n_rows[1] > n_rows[0] + 4, "%d rows, %d beside spare jobs", n_rows[0], n_rows[1]);
    REQUIRE_MSG(abs(n_drafts[1] - n_drafts[0]) <= n_drafts[0] / 10, "%d ids, %d beside spare jobs",
                n_drafts[0], n_drafts[1]);
}

/* A request may bound the length of its drafts. */
static void test_bound_of_a_request(void **state)
{
    (void)state;
    for (int source = 0; source < 3; source++) {
        struct setup setup = {.speculate = ENG_SPECULATE_ALWAYS,
                              .twin_blur = source == 1 ? BLUR : 0,
                              .smaller_blur = source == 2 ? BLUR : 0};
        struct bench b = open_bench(&setup);
        struct test_job *c = test_job_new();
        struct eng_job_params p = test_job_greedy(c, prompt_of(3), N_PROMPT, N_NEW);
        p.max_draft = 2;
        submit(&b, c, &p);
        test_job_await_done(c);
        struct eng_stats st = stats_of(&b);
        REQUIRE(source == 0 || st.n_drafts_of_length[1] > 10);
        for (int i = 2; i < ENG_DRAFT_IDS; i++)
            REQUIRE_EQ_INT(st.n_drafts_of_length[i], 0);
        test_job_free(c);
        close_bench(&b);
    }
}

/* Ends wherever they come: lengths, stop ids, cancels and the end of the context. */
static void test_ends(void **state)
{
    (void)state;
    static int32_t want[N_NEW];
    fake_expect(prompt_of(2), N_PROMPT, want, N_NEW);
    for (int n = 1; n < 30; n++) {
        struct setup setup = {.n_parallel = 1,
                              .speculate = ENG_SPECULATE_ALWAYS,
                              .twin_blur = BLUR,
                              .ctx = 64 + n,
                              .n_pages = (64 + n + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS};
        struct bench b = open_bench(&setup);
        for (int kind = 0; kind < 4; kind++) {
            struct test_job *c = test_job_new();
            struct eng_job_params p = test_job_greedy(c, prompt_of(2), N_PROMPT, N_NEW);
            int n_want = kind == 0 ? 64 + n - N_PROMPT : n < 64 + n - N_PROMPT ? n : 1;
            if (kind == 1) p.max_tokens = n_want;
            if (kind == 2) c->cancel_at = n_want;
            if (kind == 3) c->stop_at = n_want;
            submit(&b, c, &p);
            test_job_await_done(c);
            check_greedy(c, 0, prompt_of(2), N_PROMPT, n_want);
            test_job_free(c);
            check_all_given_back(&b);
        }
        close_bench(&b);
    }
}

/* A twin whose numbers overflow is not asked again for that sequence. */
static void test_twin_that_is_not_finite(void **state)
{
    (void)state;
    struct setup setup = {.n_parallel = 1, .speculate = ENG_SPECULATE_ALWAYS, .twin_blur = BLUR};
    struct bench b = open_bench(&setup);
    b.twin->poison_after = 30;
    struct test_job *c = run_ask(&b, 0, N_PROMPT);
    check_greedy(c, 0, prompt_of(3), N_PROMPT, N_NEW);
    REQUIRE_EQ_INT(b.twin->n_rows, 30);
    test_job_free(c);
    close_bench(&b);
}

/* And a draft model's are not used at all any more. */
static void test_draft_model_that_is_not_finite(void **state)
{
    (void)state;
    struct setup setup = {.n_parallel = 2, .speculate = ENG_SPECULATE_ALWAYS, .smaller_blur = BLUR};
    struct bench b = open_bench(&setup);
    b.smaller->poison_after = 30;
    for (int i = 0; i < 2; i++) {
        REQUIRE_EQ_INT((b.drafters->model.state == ENG_DRAFTS_FAILED), i > 0);
        test_job_free(run_ask(&b, 0, N_PROMPT + i));
        REQUIRE_EQ_INT(b.smaller->n_rows, 30);
    }
    close_bench(&b);
}

/* One that is always wrong is tried now and then, no more; without a twin nothing changes. */
static void test_useless_twin(void **state)
{
    (void)state;
    struct setup setup = {.n_parallel = 1, .speculate = ENG_SPECULATE_AUTO, .twin_blur = 1};
    struct bench b = open_bench(&setup);
    for (int i = 0; i < 6; i++) {
        struct test_job *c = run_ask(&b, 2, N_PROMPT + i);
        test_job_free(c);
    }
    uint64_t tried = stats_of(&b).n_draft_tokens[ENG_DRAFT_SELF];
    REQUIRE_MSG(tried < 300, "%d ids", (int)tried);
    drafters_drop_twin(b.drafters);
    int n_steps = b.twin->n_steps;
    test_job_free(run_ask(&b, 2, N_PROMPT));
    REQUIRE_EQ_INT(b.twin->n_steps, n_steps);
    close_bench(&b);
}

/*
 * Times of steps decide lengths, and nothing else that differs between runs does: with equal times
 * all counts are equal. A step with its drafts takes at most 4.2 plain ones, here six ids.
 */
static void test_counts_follow_from_times(void **state)
{
    (void)state;
    static const int blurs[] = {1 << 30, BLUR, 3};
    for (size_t i = 0; i < N_OF(blurs); i++) {
        struct setup setup = {
            .n_parallel = 1, .speculate = ENG_SPECULATE_AUTO, .twin_blur = blurs[i]};
        struct eng_stats st[2];
        for (int k = 0; k < 2; k++) {
            struct bench b = open_bench(&setup);
            for (int j = 0; j < 12; j++)
                test_job_free(run_ask(&b, 1, N_PROMPT + j));
            st[k] = stats_of(&b);
            close_bench(&b);
        }
        REQUIRE_EQ_INT(st[0].n_steps, st[1].n_steps);
        REQUIRE_EQ_INT(st[0].n_draft_tokens[ENG_DRAFT_SELF], st[1].n_draft_tokens[ENG_DRAFT_SELF]);
        REQUIRE_EQ_INT(st[0].n_accepted_draft_tokens[ENG_DRAFT_SELF],
                       st[1].n_accepted_draft_tokens[ENG_DRAFT_SELF]);
        REQUIRE(memcmp(st[0].n_drafts_of_length, st[1].n_drafts_of_length,
                       sizeof(st[0].n_drafts_of_length)) == 0);
        REQUIRE(st[0].n_draft_tokens[ENG_DRAFT_SELF] > 50);
        REQUIRE(i > 0 || st[0].n_drafts_of_length[5] > 30);
        REQUIRE_EQ_INT(st[0].n_drafts_of_length[6], 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers_do_not_depend_on_drafts),
        cmocka_unit_test(test_counts_follow_from_times),
        cmocka_unit_test(test_draft_model_that_knows_less),
        cmocka_unit_test(test_draft_model_catches_up),
        cmocka_unit_test(test_drafts_beside_spare_jobs),
        cmocka_unit_test(test_bound_of_a_request),
        cmocka_unit_test(test_draft_model_that_is_not_finite),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_twin_that_is_not_finite),
        cmocka_unit_test(test_useless_twin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
