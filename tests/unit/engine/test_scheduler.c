/* SPDX-License-Identifier: MIT */
/* The scheduler over a forward pass that is a hash of the tokens; see fake_model.h. */
#include "test.h"

#include "base/clock.h"
#include "engine/job.h"
#include "fake_engine.h"

/* ---- answers ------------------------------------------------------------------------------- */

static void run_many(const struct setup *setup)
{
    static const int lengths[] = {1, 2, 31, 32, 33, 64, 65, 100, 129, 200};
    enum { N = 20 };
    struct test_job *c[N];
    struct bench b = open_bench(setup);
    for (int i = 0; i < N; i++) {
        c[i] = test_job_new();
        struct eng_job_params p =
            test_job_greedy(c[i], prompt_of(i % 4), lengths[i % 10], 1 + i * 7 % 50);
        submit(&b, c[i], &p);
    }
    for (int i = 0; i < N; i++) {
        test_job_await_done(c[i]);
        check_greedy(c[i], 0, prompt_of(i % 4), lengths[i % 10], 1 + i * 7 % 50);
        REQUIRE_EQ_INT(c[i]->finish[0], ENG_FINISH_LENGTH);
        REQUIRE_EQ_INT(c[i]->usage.n_prompt_tokens, lengths[i % 10]);
        REQUIRE_EQ_INT(c[i]->usage.n_generated_tokens, 1 + i * 7 % 50);
        REQUIRE_EQ_INT(c[i]->usage.n_cached_tokens + c[i]->usage.n_computed_prompt_tokens,
                       lengths[i % 10]);
        REQUIRE(c[i]->usage.submitted_us <= c[i]->usage.started_us);
        REQUIRE(c[i]->usage.started_us <= c[i]->usage.first_token_us);
        REQUIRE(c[i]->usage.first_token_us <= c[i]->usage.done_us);
        test_job_free(c[i]);
    }
    check_all_given_back(&b);
    close_bench(&b);
}

static void test_answers_do_not_depend_on_batch(void **state)
{
    (void)state;
    static const struct setup setups[] = {
        {.n_parallel = 1, .chunk = 1},    {.n_parallel = 1, .chunk = 128},
        {.n_parallel = 3, .chunk = 7},    {.n_parallel = 4, .chunk = 32},
        {.n_parallel = 16, .chunk = 64},  {.n_parallel = 16, .chunk = 33, .no_prefix_cache = true},
        {.n_parallel = 8, .n_pages = 20}, {.n_parallel = 2, .n_pages = 16, .chunk = 5},
    };
    for (size_t i = 0; i < N_OF(setups); i++)
        run_many(&setups[i]);
}

/* Rows follow the time of the last step, between 16 and the chunk. */
static void test_rows_of_a_shared_turn(void **state)
{
    (void)state;
    static const struct {
        int n, most;
        double us;
        int want;
    } cases[] = {{128, 128, 60000, 64}, {64, 128, 10001, 32}, {32, 128, 99999, 16},
                 {16, 128, 99999, 16},  {16, 128, 10000, 16}, {16, 128, 5000, 16},
                 {16, 128, 4999, 32},   {64, 100, 10, 100},   {100, 100, 10, 100},
                 {5, 5, 99999, 5}};
    for (size_t i = 0; i < N_OF(cases); i++)
        REQUIRE_EQ_INT(batch_fit_turn(cases[i].n, cases[i].most, cases[i].us), cases[i].want);
}

static void test_steps_keep_their_bounds(void **state)
{
    (void)state;
    struct setup setup = {.n_parallel = 4, .chunk = 24};
    struct bench b = open_bench(&setup);
    struct test_job *c[8];
    fake_close_gate(b.model); /* so that they run at the same time */
    for (int i = 0; i < 8; i++) {
        c[i] = test_job_new();
        struct eng_job_params p = test_job_greedy(c[i], prompt_of(i), 100, 20);
        if (i % 2) p.n_prompt_logprobs = 0;
        submit(&b, c[i], &p);
    }
    fake_open_gate(b.model);
    for (int i = 0; i < 8; i++) {
        test_job_await_done(c[i]);
        test_job_free(c[i]);
    }
    int most_rows = 0;
    for (int i = 0; i < b.model->n_steps; i++) {
        const struct fake_step *s = &b.model->steps[i];
        REQUIRE(s->n_segs >= 1 && s->n_segs <= 4);
        REQUIRE(s->n_rows <= 4 + 24 + BATCH_EXTRA_LOGIT_ROWS);
        REQUIRE(s->n_logit_rows <= 4 + BATCH_EXTRA_LOGIT_ROWS);
        if (s->n_rows > most_rows) most_rows = s->n_rows;
    }
    REQUIRE_MSG(most_rows > 24, "decode rows and prompt rows share steps: %d", most_rows);
    close_bench(&b);
}

/* ---- choices ------------------------------------------------------------------------------- */

static struct eng_job_params sampled_job(struct test_job *c, const int32_t *prompt, int n_prompt,
                                         int max_tokens, uint64_t seed)
{
    struct eng_job_params p = test_job_greedy(c, prompt, n_prompt, max_tokens);
    p.sampling.temperature = 1.0f;
    p.sampling.seed = seed;
    return p;
}

static void check_choices(const struct setup *setup, bool no_cache, bool *ret_one_prefill)
{
    struct bench b = open_bench(setup);
    struct test_job *all = test_job_new();
    struct eng_job_params p = sampled_job(all, prompt_of(1), 77, 30, 4242);
    p.n_choices = 4;
    p.no_cache = no_cache;
    submit(&b, all, &p);
    test_job_await_done(all);
    *ret_one_prefill = all->usage.n_computed_prompt_tokens == 77;
    REQUIRE_MSG(all->usage.n_computed_prompt_tokens <= 77 + 3 * 32, "%d rows",
                (int)all->usage.n_computed_prompt_tokens);
    for (int i = 0; i < 4; i++) {
        struct test_job *one = test_job_new();
        struct eng_job_params q = sampled_job(one, prompt_of(1), 77, 30, 4242);
        q.first_choice = i;
        q.no_cache = no_cache;
        submit(&b, one, &q);
        test_job_await_done(one);
        REQUIRE_EQ_INT(one->n_ids[0], all->n_ids[i]);
        REQUIRE(memcmp(one->ids[0], all->ids[i], sizeof(int32_t) * 30) == 0);
        test_job_free(one);
    }
    REQUIRE(memcmp(all->ids[0], all->ids[1], sizeof(int32_t) * 30) != 0);
    test_job_free(all);
    check_all_given_back(&b);
    close_bench(&b);
}

static void test_choices_equal_single_jobs_and_prefill_once(void **state)
{
    (void)state;
    bool once;
    for (int no_cache = 0; no_cache < 2; no_cache++) {
        struct setup enough = {.n_parallel = 4, .chunk = 16};
        check_choices(&enough, no_cache, &once);
        REQUIRE(once);
        struct setup few = {.n_parallel = 2, .chunk = 50, .no_prefix_cache = no_cache == 1};
        check_choices(&few, no_cache, &once);
    }
}

/* ---- the prefix cache ---------------------------------------------------------------------- */

static struct eng_usage run_one(struct bench *b, const struct eng_job_params *params)
{
    struct test_job *c = test_job_new();
    struct eng_job_params p = *params;
    p.ctx = c;
    submit(b, c, &p);
    test_job_await_done(c);
    if (p.n_choices == 1 && p.max_tokens > 0 && p.sampling.temperature == 0)
        check_greedy(c, 0, p.prompt, (int)p.n_prompt, (int)p.max_tokens);
    struct eng_usage usage = c->usage;
    test_job_free(c);
    return usage;
}

static void test_cached_tokens_are_exact(void **state)
{
    (void)state;
    static const struct {
        int n_prompt, want;
    } cases[] = {{1, 0}, {32, 0}, {33, 32}, {64, 32}, {65, 64}, {200, 192}, {224, 192}, {225, 224}};
    struct setup setup = {.n_parallel = 2};
    struct bench b = open_bench(&setup);
    struct eng_job_params p = test_job_greedy(NULL, prompt_of(2), 300, 4);
    REQUIRE_EQ_INT(run_one(&b, &p).n_cached_tokens, 0);
    for (size_t i = 0; i < N_OF(cases); i++) {
        p.n_prompt = cases[i].n_prompt;
        struct eng_usage u = run_one(&b, &p);
        REQUIRE_EQ_INT(u.n_cached_tokens, cases[i].want);
        REQUIRE_EQ_INT(u.n_computed_prompt_tokens, cases[i].n_prompt - cases[i].want);
    }
    p.n_prompt = 300;
    p.no_cache = true;
    REQUIRE_EQ_INT(run_one(&b, &p).n_cached_tokens, 0);
    p.no_cache = false;
    p.tenant[5] = 1;
    REQUIRE_EQ_INT(run_one(&b, &p).n_cached_tokens, 0);
    REQUIRE_EQ_INT(run_one(&b, &p).n_cached_tokens, 288);
    p.n_prompt_logprobs = 0;
    REQUIRE_EQ_INT(run_one(&b, &p).n_cached_tokens, 0);
    close_bench(&b);
}

/* Tokens that a job adds to the cache, and the reason why it found no more there. */
static void test_written_tokens_and_misses(void **state)
{
    (void)state;
    static const struct {
        int n_prompt, n_same, n_choices, cached, written, known;
        bool no_cache;
        enum eng_miss miss;
    } cases[] = {
        {32, 0, 1, 0, 0, 0, true, ENG_MISS_TOO_SHORT},
        {70, 0, 2, 0, 0, 0, true, ENG_MISS_SCOPE},
        {70, 0, 1, 0, 64, 0, false, ENG_MISS_NONE}, /* the first of its kind */
        {70, 70, 1, 64, 0, 64, false, ENG_MISS_NONE},
        {100, 70, 3, 64, 32, 64, false, ENG_MISS_NONE}, /* the rest was less than a page */
        {130, 75, 1, 64, 64, 70, false, ENG_MISS_CONTENT},
        {130, 3, 1, 0, 128, 3, false, ENG_MISS_CONTENT},
    };
    struct setup setup = {.n_parallel = 4};
    struct bench b = open_bench(&setup);
    struct eng_stats stats;
    for (size_t i = 0; i < N_OF(cases); i++) {
        int32_t prompt[200];
        memcpy(prompt, prompt_of(5), sizeof(prompt));
        for (int k = cases[i].n_same; k < 200 && i > 2; k++)
            prompt[k] = prompt_of(5)[k] == 7 + (int)i ? 6 : 7 + (int)i;
        struct eng_job_params p = test_job_greedy(NULL, prompt, cases[i].n_prompt, 2);
        p.n_choices = cases[i].n_choices;
        p.no_cache = cases[i].no_cache;
        struct eng_usage u = run_one(&b, &p);
        REQUIRE_EQ_INT(u.n_cached_tokens, cases[i].cached);
        REQUIRE_EQ_INT(u.n_written_tokens, cases[i].written);
        REQUIRE_EQ_INT(u.miss, cases[i].miss);
        if (u.miss == ENG_MISS_CONTENT) REQUIRE_EQ_INT(u.n_known_tokens, cases[i].known);
    }
    inbox_stats(sched_inbox(b.sched), &stats);
    REQUIRE_EQ_INT(stats.n_misses[ENG_MISS_CONTENT], 2);
    REQUIRE_EQ_INT(stats.n_misses[ENG_MISS_SCOPE], 1);
    REQUIRE_EQ_INT(stats.n_misses[ENG_MISS_TOO_SHORT], 1);
    close_bench(&b);
}

/* A second turn finds the answer of the first in the cache, generated tokens included. */
static void test_answers_are_cached_too(void **state)
{
    (void)state;
    struct setup setup = {.n_parallel = 2};
    struct bench b = open_bench(&setup);
    int32_t turn[200];
    memcpy(turn, prompt_of(3), 50 * sizeof(*turn));
    fake_expect(turn, 50, turn + 50, 60);
    memcpy(turn + 110, prompt_of(4), 20 * sizeof(*turn));
    struct eng_job_params p = test_job_greedy(NULL, turn, 50, 60);
    run_one(&b, &p);
    p.n_prompt = 130;
    REQUIRE_EQ_INT(run_one(&b, &p).n_cached_tokens, 96); /* 109 positions were computed */
    close_bench(&b);
}

/* N jobs with one prefix arrive together: it is computed once, while the others wait for it. */
static void test_prefix_is_shared_while_it_is_computed(void **state)
{
    (void)state;
    enum { N = 8, SHARED = 128, LENGTH = 140 };
    struct setup setup = {.n_parallel = N, .chunk = 48};
    struct bench b = open_bench(&setup);
    static int32_t prompts[N][LENGTH];
    struct test_job *c[N];
    inbox_pause(sched_inbox(b.sched), true);
    for (int i = 0; i < N; i++) {
        memcpy(prompts[i], prompt_of(5), SHARED * sizeof(int32_t));
        memcpy(prompts[i] + SHARED, prompt_of(6 + i), (LENGTH - SHARED) * sizeof(int32_t));
        c[i] = test_job_new();
        struct eng_job_params p = test_job_greedy(c[i], prompts[i], LENGTH, 10);
        submit(&b, c[i], &p);
    }
    inbox_pause(sched_inbox(b.sched), false);
    int64_t n_computed = 0, n_cached = 0;
    for (int i = 0; i < N; i++) {
        test_job_await_done(c[i]);
        check_greedy(c[i], 0, prompts[i], LENGTH, 10);
        n_computed += c[i]->usage.n_computed_prompt_tokens;
        n_cached += c[i]->usage.n_cached_tokens;
        test_job_free(c[i]);
    }
    REQUIRE_EQ_INT(n_computed, SHARED + N * (LENGTH - SHARED));
    REQUIRE_EQ_INT(n_cached, (N - 1) * SHARED);
    check_all_given_back(&b);
    close_bench(&b);
}

static void test_waiter_takes_over_from_a_cancelled_owner(void **state)
{
    (void)state;
    struct setup setup = {.n_parallel = 3, .chunk = 20};
    struct bench b = open_bench(&setup);
    struct test_job *c[3];
    fake_close_gate(b.model);
    for (int i = 0; i < 3; i++) {
        c[i] = test_job_new();
        struct eng_job_params p = test_job_greedy(c[i], prompt_of(9), 150, 5);
        submit(&b, c[i], &p);
    }
    fake_await_step(b.model);
    for (int i = 0; i < 4; i++) {
        fake_let_one(b.model);
        fake_await_step(b.model);
    }
    eng_job_cancel(c[0]->handle); /* in the middle of a page, with the others waiting for it */
    fake_open_gate(b.model);
    test_job_await_done(c[0]);
    REQUIRE_EQ_INT(c[0]->finish[0], ENG_FINISH_CANCELLED);
    for (int i = 1; i < 3; i++) {
        test_job_await_done(c[i]);
        check_greedy(c[i], 0, prompt_of(9), 150, 5);
    }
    int64_t n = c[1]->usage.n_computed_prompt_tokens + c[2]->usage.n_computed_prompt_tokens;
    REQUIRE_MSG(n <= 150 + 32, "%d rows", (int)n);
    for (int i = 0; i < 3; i++)
        test_job_free(c[i]);
    check_all_given_back(&b);
    close_bench(&b);
}

/* The first choice is stopped while its siblings wait for its prompt. */
static void test_sibling_takes_over_from_a_stopped_choice(void **state)
{
    (void)state;
    struct setup setup = {.n_parallel = 4, .chunk = 20};
    struct bench b = open_bench(&setup);
    struct test_job *c = test_job_new();
    struct eng_job_params p = test_job_greedy(c, prompt_of(9), 90, 5);
    p.n_choices = 3;
    p.no_cache = true;
    fake_close_gate(b.model);
    submit(&b, c, &p);
    fake_await_step(b.model);
    fake_let_one(b.model);
    fake_await_step(b.model);
    eng_job_stop_choice(c->handle, 0);
    fake_open_gate(b.model);
    test_job_await_done(c);
    REQUIRE_EQ_INT(c->finish[0], ENG_FINISH_STOP);
    REQUIRE_EQ_INT(c->n_ids[0], 0);
    check_greedy(c, 1, prompt_of(9), 90, 5);
    check_greedy(c, 2, prompt_of(9), 90, 5);
    test_job_free(c);
    check_all_given_back(&b);
    close_bench(&b);
}

static void test_small_cache_evicts_and_stays_right(void **state)
{
    (void)state;
    struct setup setup = {.n_parallel = 2, .n_pages = 16, .ctx = 256, .chunk = 64};
    struct bench b = open_bench(&setup);
    for (int round = 0; round < 40; round++) {
        struct eng_job_params p = test_job_greedy(NULL, prompt_of(round * 5 % 7), 100 + round, 20);
        run_one(&b, &p);
    }
    check_all_given_back(&b);
    close_bench(&b);
}

/* ---- ends ---------------------------------------------------------------------------------- */

static void test_end_of_context(void **state)
{
    (void)state;
    static const struct {
        int n_prompt, max_tokens, want;
    } cases[] = {{256, 1, 1},  {256, 50, 1},    {255, 50, 1},
                 {254, 50, 2}, {200, 1000, 56}, {256, 0, 0}};
    struct setup setup = {.n_parallel = 1, .ctx = 256};
    struct bench b = open_bench(&setup);
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct test_job *c = test_job_new();
        struct eng_job_params p =
            test_job_greedy(c, prompt_of(1), cases[i].n_prompt, cases[i].max_tokens);
        submit(&b, c, &p);
        test_job_await_done(c);
        check_greedy(c, 0, prompt_of(1), cases[i].n_prompt, cases[i].want);
        REQUIRE_EQ_INT(c->finish[0], ENG_FINISH_LENGTH);
        test_job_free(c);
    }
    struct test_job *c = test_job_new();
    char err[200] = "";
    struct eng_job_params p = test_job_greedy(c, prompt_of(1), 257, 1);
    REQUIRE_EQ_INT(inbox_submit(sched_inbox(b.sched), &p, &c->handle, err, sizeof(err)),
                   ENG_ECONTEXT);
    REQUIRE(strstr(err, "257") && strstr(err, "256"));
    test_job_free(c);
    close_bench(&b);
}

/* The first place at which the greedy answer gives a token, and that token. */
static int32_t token_at(const int32_t *prompt, int n_prompt, int place)
{
    int32_t out[TEST_JOB_MAX_TOKENS];
    fake_expect(prompt, n_prompt, out, place + 1);
    return out[place];
}

static void test_stop_ids(void **state)
{
    (void)state;
    struct setup setup = {.n_parallel = 1};
    struct bench b = open_bench(&setup);
    int32_t stop = token_at(prompt_of(2), 40, 6);
    int first = 0;
    while (token_at(prompt_of(2), 40, first) != stop)
        first++;
    struct test_job *c = test_job_new();
    struct eng_job_params p = test_job_greedy(c, prompt_of(2), 40, 30);
    p.stop_ids = &stop;
    p.n_stop_ids = 1;
    submit(&b, c, &p);
    test_job_await_done(c);
    check_greedy(c, 0, prompt_of(2), 40, first + 1); /* the stop id is delivered */
    REQUIRE_EQ_INT(c->finish[0], ENG_FINISH_STOP);
    REQUIRE_EQ_INT(c->stop_id[0], stop);
    test_job_free(c);

    c = test_job_new(); /* min_tokens bans it until then */
    p.ctx = c;
    p.min_tokens = 20;
    submit(&b, c, &p);
    test_job_await_done(c);
    for (int i = 0; i < 20 && i < c->n_ids[0]; i++)
        REQUIRE(c->ids[0][i] != stop);
    REQUIRE(c->n_ids[0] >= 20);
    test_job_free(c);
    close_bench(&b);
}

static void test_eos_stops_unless_ignored(void **state)
{
    (void)state;
    static const struct eng_bias want_eos = {FAKE_EOS, 100.0f};
    struct setup setup = {.n_parallel = 1};
    struct bench b = open_bench(&setup);
    for (int ignore = 0; ignore < 2; ignore++) {
        struct test_job *c = test_job_new();
        struct eng_job_params p = test_job_greedy(c, prompt_of(2), 10, 5);
        p.sampling.bias = &want_eos;
        p.sampling.n_bias = 1;
        p.ignore_eos = ignore;
        submit(&b, c, &p);
        test_job_await_done(c);
        REQUIRE_EQ_INT(c->n_ids[0], ignore ? 5 : 1);
        REQUIRE_EQ_INT(c->finish[0], ignore ? ENG_FINISH_LENGTH : ENG_FINISH_STOP);
        REQUIRE_EQ_INT(c->stop_id[0], ignore ? -1 : FAKE_EOS);
        test_job_free(c);
    }
    close_bench(&b);
}

static void test_everything_banned_ends(void **state)
{
    (void)state;
    static const int32_t none[1];
    struct setup setup = {.n_parallel = 1};
    struct bench b = open_bench(&setup);
    struct test_job *c = test_job_new();
    struct eng_job_params p = test_job_greedy(c, prompt_of(2), 10, 5);
    p.sampling.allowed_ids = none;
    p.sampling.n_allowed_ids = 0;
    submit(&b, c, &p);
    test_job_await_done(c);
    REQUIRE_EQ_INT(c->n_ids[0], 0);
    REQUIRE_EQ_INT(c->finish[0], ENG_FINISH_STOP);
    test_job_free(c);
    close_bench(&b);
}

static void test_non_finite_logits_end_one_job(void **state)
{
    (void)state;
    struct setup setup = {.n_parallel = 4};
    struct bench b = open_bench(&setup);
    int32_t poisoned[40];
    memcpy(poisoned, prompt_of(1), sizeof(poisoned));
    poisoned[20] = FAKE_POISON;
    struct test_job *bad = test_job_new(), *scored = test_job_new(), *good = test_job_new();
    struct eng_job_params p = test_job_greedy(bad, poisoned, 40, 10);
    submit(&b, bad, &p);
    p.ctx = scored;
    p.n_prompt_logprobs = 0;
    submit(&b, scored, &p);
    struct eng_job_params q = test_job_greedy(good, prompt_of(1), 40, 10);
    submit(&b, good, &q);
    test_job_await_done(bad);
    test_job_await_done(scored);
    test_job_await_done(good);
    REQUIRE_EQ_INT(bad->finish[0], ENG_FINISH_ERROR);
    REQUIRE_EQ_INT(bad->n_ids[0], 0);
    REQUIRE_EQ_INT(scored->finish[0], ENG_FINISH_ERROR);
    REQUIRE_EQ_INT(scored->n_prompt_tokens, 20);
    check_greedy(good, 0, prompt_of(1), 40, 10);
    struct eng_stats st;
    inbox_stats(sched_inbox(b.sched), &st);
    test_job_free(bad);
    test_job_free(scored);
    test_job_free(good);
    check_all_given_back(&b);
    inbox_stats(sched_inbox(b.sched), &st);
    REQUIRE_EQ_INT(st.n_jobs_failed, 2);
    REQUIRE_EQ_INT(st.n_jobs_done, 3);
    close_bench(&b);
}

/* ---- what is asked besides ----------------------------------------------------------------- */

static void test_prompt_logprobs_and_logits(void **state)
{
    (void)state;
    enum { N_PROMPT = 75, N_NEW = 5 };
    for (int chunk = 3; chunk < 300; chunk *= 7) {
        struct setup setup = {.n_parallel = 2, .chunk = chunk};
        struct bench b = open_bench(&setup);
        struct test_job *c = test_job_new();
        struct eng_job_params p = test_job_greedy(c, prompt_of(7), N_PROMPT, N_NEW);
        p.n_prompt_logprobs = 3;
        p.n_logprobs = 2;
        p.want_logits = true;
        p.n_choices = 2;
        p.max_tokens = N_NEW;
        struct test_job *again = test_job_new();
        p.n_choices = 1;
        submit(&b, c, &p);
        test_job_await_done(c);
        p.ctx = again;
        submit(&b, again, &p);
        test_job_await_done(again);
        REQUIRE_EQ_INT(c->n_prompt_tokens, N_PROMPT - 1);
        REQUIRE_EQ_INT(c->n_rows, N_PROMPT + N_NEW - 1);
        uint64_t h = 1;
        float row[FAKE_VOCAB];
        for (int i = 0; i < N_PROMPT; i++) {
            h = fake_hash(h, prompt_of(7)[i]);
            fake_row(h, false, row);
            REQUIRE(memcmp(row, c->rows + (size_t)i * FAKE_VOCAB, sizeof(row)) == 0);
            REQUIRE(memcmp(row, again->rows + (size_t)i * FAKE_VOCAB, sizeof(row)) == 0);
            if (i == N_PROMPT - 1) break;
            const struct eng_event *e = &c->prompt_tokens[i];
            REQUIRE_EQ_INT(e->index, i + 1);
            REQUIRE_EQ_INT(e->id, prompt_of(7)[i + 1]);
            REQUIRE_EQ_INT(e->n_top, 3);
            REQUIRE(e->rank >= 1 && e->rank <= FAKE_VOCAB && e->logprob < 0);
        }
        check_greedy(c, 0, prompt_of(7), N_PROMPT, N_NEW);
        for (int i = 0; i < N_NEW; i++)
            REQUIRE(c->logprob[0][i] < 0 && c->logprob[0][i] > -5);
        test_job_free(c);
        test_job_free(again);
        close_bench(&b);
    }
}

/* Of ids 0 to N_LISTED - 1, in falling order, and the token's own. */
enum { N_LISTED = 20 };

static void check_listed(void *ctx, const struct eng_event *e)
{
    if (e->type == ENG_EVENT_TOKEN) {
        REQUIRE_EQ_INT(e->n_top, N_LISTED);
        for (int i = 0; i < N_LISTED; i++) {
            REQUIRE_EQ_INT(e->top[i].id, N_LISTED - 1 - i);
            REQUIRE(e->top[i].logprob <= e->logprob); /* greedy: its own is the best */
            REQUIRE(e->top[i].id != e->id || e->top[i].logprob == e->logprob);
        }
    }
    test_job_event(ctx, e);
}

static void test_listed_logprobs(void **state)
{
    (void)state;
    struct setup setup = {.n_parallel = 2};
    struct bench b = open_bench(&setup);
    struct test_job *c = test_job_new();
    struct eng_job_params p = test_job_greedy(c, prompt_of(7), 70, 12);
    int32_t ids[N_LISTED];
    for (int i = 0; i < N_LISTED; i++)
        ids[i] = N_LISTED - 1 - i;
    p.listed_ids = ids;
    p.n_listed_ids = N_LISTED;
    p.n_logprobs = 0;
    p.n_choices = 2;
    p.on_event = check_listed;
    submit(&b, c, &p);
    memset(ids, 0, sizeof(ids)); /* they were copied */
    test_job_await_done(c);
    check_greedy(c, 1, prompt_of(7), 70, 12);
    test_job_free(c);
    close_bench(&b);
}

/* Prompt rows go out once, whichever choice computes them. */
static void test_prompt_rows_go_out_once_for_all_choices(void **state)
{
    (void)state;
    struct setup setup = {.n_parallel = 2, .chunk = 16};
    struct bench b = open_bench(&setup);
    struct test_job *c = test_job_new();
    struct eng_job_params p = test_job_greedy(c, prompt_of(7), 75, 5);
    p.n_prompt_logprobs = 0;
    p.n_choices = 4; /* the last two find the slots full */
    submit(&b, c, &p);
    test_job_await_done(c);
    REQUIRE_EQ_INT(c->n_prompt_tokens, 74);
    for (int i = 0; i < 4; i++)
        check_greedy(c, i, prompt_of(7), 75, 5);
    test_job_free(c);
    close_bench(&b);
}

static void test_embedding_is_the_mean(void **state)
{
    (void)state;
    struct setup setup = {.n_parallel = 2, .chunk = 10};
    struct bench b = open_bench(&setup);
    for (int round = 0; round < 2;
         round++) { /* the second time the pages are cached, and not read */
        struct test_job *c = test_job_new();
        struct eng_job_params p = test_job_greedy(c, prompt_of(8), 70, 0);
        p.want_pooled = true;
        submit(&b, c, &p);
        test_job_await_done(c);
        float sum = 0;
        for (int i = 0; i < 70; i++)
            sum += (float)prompt_of(8)[i];
        for (int d = 0; d < FAKE_D_MODEL; d++)
            REQUIRE(fabsf(c->embedding[d] - sum * (float)(d + 1) / 70) < 1e-3f);
        REQUIRE_EQ_INT(c->finish[0], ENG_FINISH_LENGTH);
        test_job_free(c);
    }
    close_bench(&b);
}

/* A model of labels: no tokens, padding at the end is not looked at, and cached pages are read. */
static void test_reader(void **state)
{
    (void)state;
    struct setup setup = {.n_parallel = 2, .chunk = 40, .reads_only = true};
    struct bench b = open_bench(&setup);
    int32_t padded[72];
    memcpy(padded, prompt_of(8), 70 * sizeof(*padded));
    padded[70] = padded[71] = READER_PAD;
    for (int round = 0; round < 2; round++) {
        struct test_job *c = test_job_new();
        struct eng_job_params p = test_job_greedy(c, padded, 72, 0);
        p.want_pooled = true;
        submit(&b, c, &p);
        test_job_await_done(c);
        REQUIRE_EQ_INT(c->usage.n_prompt_tokens, 70);
        REQUIRE_EQ_INT(c->usage.n_cached_tokens, round ? 64 : 0);
        REQUIRE_EQ_INT(c->finish[0], ENG_FINISH_LENGTH);
        struct eng_job *job = NULL;
        char err[200] = "";
        p.want_pooled = false;
        p.max_tokens = 1;
        REQUIRE_EQ_INT(inbox_submit(sched_inbox(b.sched), &p, &job, err, sizeof(err)),
                       ENG_EUNSUPPORTED);
        p.max_tokens = 0;
        p.want_logits = true;
        REQUIRE_EQ_INT(inbox_submit(sched_inbox(b.sched), &p, &job, err, sizeof(err)),
                       ENG_EUNSUPPORTED);
        REQUIRE(strstr(err, "no tokens"));
        test_job_free(c);
    }
    close_bench(&b);
}

/* ---- cancelling ---------------------------------------------------------------------------- */

static void test_cancel_in_a_step_waiting_and_running(void **state)
{
    (void)state;
    struct setup setup = {.n_parallel = 1, .chunk = 16};
    struct bench b = open_bench(&setup);
    struct test_job *running = test_job_new(), *waiting = test_job_new();
    fake_close_gate(b.model);
    struct eng_job_params p = test_job_greedy(running, prompt_of(1), 400, 10);
    submit(&b, running, &p);
    fake_await_step(b.model);
    p.ctx = waiting;
    submit(&b, waiting, &p);
    eng_job_cancel(waiting->handle);
    eng_job_cancel(
        running->handle); /* the gate stays closed: only the step's own flag can end it */
    test_job_await_done(running);
    test_job_await_done(waiting);
    REQUIRE_EQ_INT(running->finish[0], ENG_FINISH_CANCELLED);
    REQUIRE_EQ_INT(waiting->finish[0], ENG_FINISH_CANCELLED);
    REQUIRE(!waiting->started);
    REQUIRE_EQ_INT(waiting->usage.started_us, 0);
    check_all_given_back(&b);
    test_job_free(running);
    test_job_free(waiting);
    close_bench(&b);
}

static void test_cancelling_one_leaves_the_others(void **state)
{
    (void)state;
    struct setup setup = {.n_parallel = 4, .chunk = 16};
    struct bench b = open_bench(&setup);
    struct test_job *c[6];
    for (int i = 0; i < 6; i++) {
        c[i] = test_job_new();
        c[i]->cancel_at = i % 2 ? 7 : 0;
        struct eng_job_params p = test_job_greedy(c[i], prompt_of(i), 40, 40);
        if (i == 3) p.n_choices = 4;
        fake_close_gate(b.model); /* the handle is stored before the callback may use it */
        submit(&b, c[i], &p);
        fake_open_gate(b.model);
    }
    for (int i = 0; i < 6; i++) {
        test_job_await_done(c[i]);
        if (i % 2 == 0) check_greedy(c[i], 0, prompt_of(i), 40, 40);
        if (i % 2) REQUIRE(c[i]->n_ids[0] < 10);
        if (i == 3) REQUIRE_EQ_INT(c[i]->n_choices_done, 4);
        test_job_free(c[i]);
    }
    check_all_given_back(&b);
    close_bench(&b);
}

static void test_stop_choice_from_callback(void **state)
{
    (void)state;
    struct setup setup = {.n_parallel = 2};
    struct bench b = open_bench(&setup);
    struct test_job *c = test_job_new();
    c->stop_at = 4;
    struct eng_job_params p = test_job_greedy(c, prompt_of(3), 40, 40);
    submit(&b, c, &p);
    test_job_await_done(c);
    REQUIRE_EQ_INT(c->finish[0], ENG_FINISH_STOP);
    REQUIRE_EQ_INT(c->stop_id[0], -1);
    REQUIRE_EQ_INT(c->n_ids[0], 4);
    test_job_free(c);
    close_bench(&b);
}

static void test_deadlines(void **state)
{
    (void)state;
    struct setup setup = {.n_parallel = 1};
    struct bench b = open_bench(&setup);
    struct test_job *first = test_job_new(), *queued = test_job_new(), *late = test_job_new();
    fake_close_gate(b.model);
    struct eng_job_params p = test_job_greedy(first, prompt_of(1), 40, 400);
    p.deadline_us = clock_now_us() + 400000; /* it has begun by then */
    submit(&b, first, &p);
    fake_await_step(b.model);
    p.deadline_us = 0;
    p.ctx = queued;
    p.queue_deadline_us = 1; /* long past: never started, for the slot is taken */
    submit(&b, queued, &p);
    p.queue_deadline_us = 0;
    p.deadline_us = 1;
    p.ctx = late;
    submit(&b, late, &p);
    while (clock_now_us() < first->handle->p.deadline_us)
        ;
    fake_open_gate(b.model);
    test_job_await_done(first);
    test_job_await_done(queued);
    test_job_await_done(late);
    REQUIRE_EQ_INT(first->finish[0], ENG_FINISH_DEADLINE);
    REQUIRE_EQ_INT(queued->finish[0], ENG_FINISH_QUEUE_TIMEOUT);
    REQUIRE_EQ_INT(late->finish[0], ENG_FINISH_DEADLINE);
    REQUIRE(first->started && !queued->started && !late->started);
    test_job_free(first);
    test_job_free(queued);
    test_job_free(late);
    close_bench(&b);
}

/* ---- the queue ----------------------------------------------------------------------------- */

static void test_queue_bounds(void **state)
{
    (void)state;
    struct setup setup = {.n_parallel = 2, .max_queued_jobs = 3, .max_queued_tokens = 100};
    struct bench b = open_bench(&setup);
    struct test_job *c[8];
    char err[200] = "";
    inbox_pause(sched_inbox(b.sched),
                true); /* none is taken in meanwhile: free slots count all the same */
    for (int i = 0; i < 8; i++)
        c[i] = test_job_new();
    for (int i = 0; i < 5; i++) { /* two can start, three wait */
        struct eng_job_params p = test_job_greedy(c[i], prompt_of(1), i < 2 ? 90 : 30, 5);
        submit(&b, c[i], &p);
    }
    struct eng_stats st;
    inbox_stats(sched_inbox(b.sched), &st);
    REQUIRE_EQ_INT(st.n_waiting, 5);
    REQUIRE_EQ_INT(st.n_waiting_tokens, 90); /* of those that must wait */
    struct eng_job_params p = test_job_greedy(c[5], prompt_of(1), 5, 5);
    REQUIRE_EQ_INT(inbox_submit(sched_inbox(b.sched), &p, &c[5]->handle, err, sizeof(err)),
                   ENG_EQUEUEFULL);
    REQUIRE(strstr(err, "3 requests"));
    p.n_for_others = ENG_BEFORE_OTHERS; /* a later part of an admitted request */
    submit(&b, c[5], &p);
    inbox_pause(sched_inbox(b.sched), false);
    test_job_await_done(c[5]);
    test_job_free(c[5]);
    c[5] = test_job_new();
    for (int i = 0; i < 5; i++)
        test_job_await_done(c[i]);
    check_all_given_back(&b);

    inbox_pause(sched_inbox(b.sched), true);
    p = test_job_greedy(c[5], prompt_of(1), 40, 5);
    p.n_choices = 2;
    submit(&b, c[5], &p);
    p.n_choices = 1;
    p.n_prompt = 60;
    p.ctx = c[6];
    submit(&b, c[6], &p);
    p.ctx = c[7];
    REQUIRE_EQ_INT(inbox_submit(sched_inbox(b.sched), &p, &c[7]->handle, err, sizeof(err)),
                   ENG_EQUEUEFULL);
    REQUIRE(strstr(err, "prompt tokens"));
    inbox_pause(sched_inbox(b.sched), false);
    test_job_await_done(c[5]);
    test_job_await_done(c[6]);
    for (int i = 0; i < 8; i++)
        test_job_free(c[i]);
    close_bench(&b);
}

static void test_progress_of_the_prefill(void **state)
{
    (void)state;
    struct setup setup = {.n_parallel = 2, .chunk = 32};
    struct bench b = open_bench(&setup);
    for (int round = 0; round < 2; round++) { /* the second finds three pages in the cache */
        struct test_job *c = test_job_new();
        struct eng_job_params p = test_job_greedy(c, prompt_of(3), 100, 3);
        p.want_progress = true;
        p.n_choices = 2;
        submit(&b, c, &p);
        test_job_await_done(c);
        REQUIRE_EQ_INT(c->n_progress, 100);
        REQUIRE_EQ_INT(c->n_progress_events, round ? 1 : 4);
        test_job_free(c);
    }
    check_all_given_back(&b);
    close_bench(&b);
}

/* Places kept for others count for three quarters of the queue at most, and never for slots. */
static void test_places_are_kept(void **state)
{
    (void)state;
    struct setup setup = {.n_parallel = 1, .max_queued_jobs = 4};
    struct bench b = open_bench(&setup);
    struct test_job *c[5];
    char err[200] = "";
    int n_in = 0;
    static const struct {
        int n_kept, rc;
    } rows[] = {{9, 0},
                {9, 0},
                {9, ENG_EQUEUEFULL},
                {3, ENG_EQUEUEFULL},
                {2, 0},
                {2, ENG_EQUEUEFULL},
                {1, 0},
                {1, ENG_EQUEUEFULL},
                {0, 0},
                {0, ENG_EQUEUEFULL}};
    inbox_pause(sched_inbox(b.sched), true);
    for (size_t i = 0; i < N_OF(rows); i++) {
        struct test_job *one = test_job_new();
        struct eng_job_params p = test_job_greedy(one, prompt_of(1), 5, 5);
        p.n_for_others = rows[i].n_kept;
        int rc = inbox_submit(sched_inbox(b.sched), &p, &one->handle, err, sizeof(err));
        REQUIRE_MSG(rc == rows[i].rc, "row %zu: %d %s", i, rc, err);
        if (rc)
            test_job_free(one);
        else
            c[n_in++] = one;
    }
    inbox_pause(sched_inbox(b.sched), false);
    for (int i = 0; i < n_in; i++) {
        test_job_await_done(c[i]);
        test_job_free(c[i]);
    }
    close_bench(&b);
}

struct wanted_place {
    int priority;
    uint64_t key;
    int want; /* place */
};

/* Queues all jobs for one slot; each must start at the place it wants. */
static void check_places(const struct setup *setup, const struct wanted_place *jobs, size_t n)
{
    struct bench b = open_bench(setup);
    struct test_job *c[16];
    inbox_pause(sched_inbox(b.sched), true);
    test_jobs_started = 0;
    for (size_t i = 0; i < n; i++) {
        c[i] = test_job_new();
        struct eng_job_params p = test_job_greedy(c[i], prompt_of(1), 10, 3);
        p.priority = jobs[i].priority;
        p.fair_key = jobs[i].key;
        submit(&b, c[i], &p);
    }
    inbox_pause(sched_inbox(b.sched), false);
    for (size_t i = 0; i < n; i++)
        test_job_await_done(c[i]);
    for (size_t i = 0; i < n; i++) {
        REQUIRE_MSG(c[i]->started_at == jobs[i].want, "job %zu came %d, not %d", i,
                    c[i]->started_at, jobs[i].want);
        test_job_free(c[i]);
    }
    close_bench(&b);
}

/* Keys take turns; the urgent jobs of a key take its first turns and nobody else's. */
static void test_priority_within_a_key(void **state)
{
    (void)state;
    static const struct wanted_place jobs[] = {{0, 1, 6},  {0, 1, 7}, {0, 1, 8},
                                               {0, 2, 1},  {0, 2, 5}, {0, 3, 2},
                                               {-1, 1, 4}, {5, 4, 3}, {-1000000, 1, 0}};
    static const struct wanted_place same[] = {
        {5, 1, 3}, {5, 1, 4}, {-5, 1, 0}, {0, 1, 2}, {-5, 1, 1}};
    struct setup setup = {.n_parallel = 1};
    check_places(&setup, jobs, N_OF(jobs));
    check_places(&setup, same, N_OF(same));
}

static void test_priority_between_keys(void **state)
{
    (void)state;
    static const struct wanted_place jobs[] = {{0, 1, 2},  {0, 1, 5}, {0, 1, 7},
                                               {0, 2, 3},  {0, 2, 6}, {0, 3, 4},
                                               {-1, 1, 0}, {5, 4, 8}, {-1, 1, 1}};
    struct setup setup = {.n_parallel = 1, .global_priority = true};
    check_places(&setup, jobs, N_OF(jobs));
}

/* However many urgent jobs of another key there are, keys that wait long come next, once each. */
static void test_global_priority_does_not_starve(void **state)
{
    (void)state;
    static const struct wanted_place jobs[] = {{-1000000, 1, 2}, {-1000000, 1, 3},
                                               {-1000000, 1, 4}, {0, 2, 0},
                                               {7, 3, 1},        {-1000000, 1, 5}};
    struct setup setup = {.n_parallel = 1, .global_priority = true, .starving_us = 1};
    check_places(&setup, jobs, N_OF(jobs));
}

/* ---- slots of keys ------------------------------------------------------------------------- */

enum { N_KEYS = 4, N_OF_SCHEDULE = 16, PILOT = 99 };

struct schedule {
    struct bench b;
    struct inbox *in;
    int n_parallel, slots[N_KEYS]; /* of key 1 and so on; 0: no bound */
    uint32_t seed;
};

static int draw(struct schedule *s, int n)
{
    s->seed = s->seed * 1664525u + 1013904223u;
    return (int)(s->seed >> 10) % n;
}

/* Jobs of a key that wait and of which no choice has begun. */
static int count_own(const struct schedule *s, int key)
{
    int n = 0;
    pthread_mutex_lock(&s->in->lock);
    for (const struct eng_job *j = s->in->queue.head; j; j = j->next)
        n += j->p.fair_key == (uint64_t)key && j->n_admitted == 0 && !atomic_load(&j->cancel);
    pthread_mutex_unlock(&s->in->lock);
    return n;
}

/* A step stands at the gate: what could be admitted has been. */
static void check_slots(const struct schedule *s)
{
    int running[N_KEYS], n_free = s->n_parallel - s->in->p.n_running(s->in->p.ctx, PILOT);
    for (int k = 0; k < N_KEYS; k++) {
        running[k] = s->in->p.n_running(s->in->p.ctx, (uint64_t)k + 1);
        n_free -= running[k];
        REQUIRE(!s->slots[k] || running[k] <= s->slots[k]);
    }
    REQUIRE(n_free >= 0);
    pthread_mutex_lock(&s->in->lock);
    for (const struct eng_job *j = s->in->queue.head; j && n_free > 0; j = j->next) {
        int k = (int)j->p.fair_key - 1;
        REQUIRE_MSG(s->slots[k] && running[k] == s->slots[k], "a job of key %d waits, %d free", k,
                    n_free);
    }
    pthread_mutex_unlock(&s->in->lock);
}

/* Returns false if the job was refused, as it must be if its key has four waiting for each slot. */
static bool submit_random(struct schedule *s, struct test_job *c)
{
    char err[200] = "";
    int key = draw(s, N_KEYS), slots = s->slots[key];
    struct eng_job_params p =
        test_job_greedy(c, prompt_of(draw(s, 4)), 1 + draw(s, 60), 1 + draw(s, 6));
    p.fair_key = (uint64_t)key + 1;
    p.key_slots = slots;
    p.n_choices = 1 + draw(s, 3);
    p.priority = draw(s, 3);
    if (draw(s, 12) == 0) p.queue_deadline_us = 1;
    if (draw(s, 16) == 0) p.deadline_us = 1;
    int rc = inbox_submit(s->in, &p, &c->handle, err, sizeof(err));
    int n_free = slots - s->in->p.n_running(s->in->p.ctx, p.fair_key), n = count_own(s, key + 1);
    REQUIRE(rc == 0 || (rc == ENG_EQUEUEFULL && slots && strstr(err, "this key")));
    REQUIRE(!slots || (rc == 0 ? n <= n_free + 4 * slots : n == n_free + 4 * slots));
    return rc == 0;
}

static void run_schedule(uint32_t seed)
{
    struct schedule s = {.seed = seed * 2654435761u};
    struct test_job *c[N_OF_SCHEDULE], *pilot = test_job_new();
    int n = 0;
    s.n_parallel = 2 + draw(&s, 4);
    struct setup setup = {.n_parallel = s.n_parallel,
                          .global_priority = draw(&s, 2) == 0,
                          .starving_us = draw(&s, 2)};
    for (int k = 0; k < N_KEYS; k++)
        s.slots[k] = draw(&s, 4);
    s.b = open_bench(&setup);
    s.in = sched_inbox(s.b.sched);
    fake_close_gate(s.b.model);
    struct eng_job_params p = test_job_greedy(pilot, prompt_of(5), 1, 500);
    p.fair_key = PILOT;
    submit(&s.b, pilot, &p);
    for (int round = 0; round < 30; round++) {
        fake_await_step(s.b.model);
        check_slots(&s);
        for (int i = draw(&s, 3); i > 0 && n < N_OF_SCHEDULE; i--) {
            c[n] = test_job_new();
            if (submit_random(&s, c[n]))
                n++;
            else
                test_job_free(c[n]);
        }
        if (n && draw(&s, 5) == 0) eng_job_cancel(c[draw(&s, n)]->handle);
        if (n && draw(&s, 5) == 0) eng_job_stop_choice(c[draw(&s, n)]->handle, 0);
        fake_let_one(s.b.model);
    }
    eng_job_cancel(pilot->handle);
    fake_open_gate(s.b.model);
    for (int i = 0; i < n; i++) {
        test_job_await_done(c[i]);
        test_job_free(c[i]);
    }
    test_job_await_done(pilot);
    test_job_free(pilot);
    check_all_given_back(&s.b);
    for (uint64_t k = 1; k <= N_KEYS; k++)
        REQUIRE_EQ_INT(s.in->p.n_running(s.in->p.ctx, k), 0);
    close_bench(&s.b);
}

static int n_schedules = 150;

/* No key has more sequences than slots, a free slot is used if a job may have it, all jobs end. */
static void test_slots_of_keys(void **state)
{
    (void)state;
    for (int i = 1; i <= n_schedules; i++)
        run_schedule((uint32_t)i);
}

/* Choices that run one after the other are those that run at once. */
static void test_slots_change_no_answer(void **state)
{
    (void)state;
    struct setup setup = {.n_parallel = 4};
    struct bench b = open_bench(&setup);
    struct test_job *c[3];
    for (int slots = 0; slots < 3; slots++) {
        c[slots] = test_job_new();
        struct eng_job_params p = sampled_job(c[slots], prompt_of(1), 77, 30, 4242);
        p.n_choices = 4;
        p.fair_key = 7;
        p.key_slots = slots;
        submit(&b, c[slots], &p);
        test_job_await_done(c[slots]);
        REQUIRE(memcmp(c[slots]->ids, c[0]->ids, sizeof(c[0]->ids)) == 0);
    }
    for (int slots = 0; slots < 3; slots++)
        test_job_free(c[slots]);
    check_all_given_back(&b);
    close_bench(&b);
}

static void test_cancelled_jobs_do_not_wait(void **state)
{
    (void)state;
    struct setup setup = {.n_parallel = 1, .max_queued_jobs = 2};
    struct bench b = open_bench(&setup);
    struct test_job *c[5];
    struct eng_stats st;
    char err[200] = "";
    fake_close_gate(b.model); /* no round begins meanwhile */
    for (int i = 0; i < 5; i++)
        c[i] = test_job_new();
    struct eng_job_params p = test_job_greedy(c[0], prompt_of(1), 20, 3);
    submit(&b, c[0], &p);
    fake_await_step(b.model);
    for (int i = 1; i < 3; i++) {
        p.ctx = c[i];
        submit(&b, c[i], &p);
    }
    p.ctx = c[3];
    REQUIRE_EQ_INT(inbox_submit(sched_inbox(b.sched), &p, &c[3]->handle, err, sizeof(err)),
                   ENG_EQUEUEFULL);
    eng_job_cancel(c[1]->handle);
    inbox_stats(sched_inbox(b.sched), &st);
    REQUIRE_EQ_INT(st.n_waiting, 1);
    REQUIRE_EQ_INT(st.n_waiting_tokens, 20);
    submit(&b, c[3], &p); /* its place is free at once */
    p.ctx = c[4];
    REQUIRE_EQ_INT(inbox_submit(sched_inbox(b.sched), &p, &c[4]->handle, err, sizeof(err)),
                   ENG_EQUEUEFULL);
    fake_open_gate(b.model);
    for (int i = 0; i < 4; i++)
        test_job_await_done(c[i]);
    REQUIRE_EQ_INT(c[1]->finish[0], ENG_FINISH_CANCELLED);
    REQUIRE_EQ_INT(c[3]->finish[0], ENG_FINISH_LENGTH);
    check_all_given_back(&b);
    for (int i = 0; i < 5; i++)
        test_job_free(c[i]);
    close_bench(&b);
}

/* A key that comes back at once does not pass a key with a backlog more than every other time. */
static void test_turns_do_not_starve(void **state)
{
    (void)state;
    enum { BACKLOG = 6, RETURNS = 6 };
    struct setup setup = {.n_parallel = 1};
    struct bench b = open_bench(&setup);
    struct test_job *backlog[BACKLOG], *again[RETURNS];
    inbox_pause(sched_inbox(b.sched), true);
    test_jobs_started = 0;
    for (int i = 0; i < BACKLOG; i++) {
        backlog[i] = test_job_new();
        struct eng_job_params p = test_job_greedy(backlog[i], prompt_of(1), 10, 3);
        p.fair_key = 1;
        submit(&b, backlog[i], &p);
    }
    fake_close_gate(b.model);
    inbox_pause(sched_inbox(b.sched), false);
    for (int i = 0; i < RETURNS; i++) {
        again[i] = test_job_new();
        struct eng_job_params p = test_job_greedy(again[i], prompt_of(2), 10, 3);
        p.fair_key = 2;
        submit(&b, again[i], &p);
        fake_open_gate(b.model);
        test_job_await_started(again[i]);
        fake_close_gate(b.model); /* the next one is queued while this one runs */
    }
    fake_open_gate(b.model);
    for (int i = 0; i < BACKLOG; i++)
        test_job_await_done(backlog[i]);
    for (int i = 0; i < RETURNS; i++)
        test_job_await_done(again[i]);
    REQUIRE_MSG(backlog[3]->started_at <= 8, "the fourth of the backlog came %d",
                backlog[3]->started_at);
    REQUIRE_MSG(again[0]->started_at <= 2, "the first newcomer came %d", again[0]->started_at);
    for (int i = 0; i < BACKLOG; i++)
        test_job_free(backlog[i]);
    for (int i = 0; i < RETURNS; i++)
        test_job_free(again[i]);
    close_bench(&b);
}

/* A short prompt of another key has its rows in the next step, beside longer ones that came first. */
static void test_prompt_rows_are_shared_between_keys(void **state)
{
    (void)state;
    enum { LONG = 100, SHORT = 4, CHUNK = 16 };
    struct setup setup = {.n_parallel = 4, .chunk = CHUNK};
    struct bench b = open_bench(&setup);
    struct test_job *c[4];
    inbox_pause(sched_inbox(b.sched), true);
    for (int i = 0; i < 4; i++) {
        c[i] = test_job_new();
        struct eng_job_params p = test_job_greedy(c[i], prompt_of(i),
                                                  i < 2    ? LONG
                                                  : i == 2 ? SHORT
                                                           : LONG,
                                                  1);
        p.fair_key = i < 2 ? 1 : (uint64_t)i;
        submit(&b, c[i], &p);
    }
    inbox_pause(sched_inbox(b.sched), false);
    for (int i = 0; i < 4; i++)
        test_job_await_done(c[i]);
    const struct fake_step *first = &b.model->steps[0];
    REQUIRE_EQ_INT(first->n_segs, 3); /* the second one of a key waits for the first */
    REQUIRE_EQ_INT(first->n_rows, CHUNK);
    REQUIRE_EQ_INT(first->n_logit_rows, 1); /* the short one is through */
    for (int i = 0; i < b.model->n_steps; i++)
        REQUIRE(b.model->steps[i].n_rows <= CHUNK);
    for (int i = 0; i < 4; i++)
        test_job_free(c[i]);
    close_bench(&b);
}

/* A job that needs most pages is not passed by small ones behind it. */
static void test_big_job_is_not_starved(void **state)
{
    (void)state;
    struct setup setup = {.n_parallel = 4, .n_pages = 16, .ctx = 512};
    struct bench b = open_bench(&setup);
    struct test_job *c[4];
    inbox_pause(sched_inbox(b.sched), true);
    test_jobs_started = 0;
    static const int lengths[] = {40, 480, 40, 40};
    for (int i = 0; i < 4; i++) {
        c[i] = test_job_new();
        struct eng_job_params p = test_job_greedy(c[i], prompt_of(i), lengths[i], 20);
        submit(&b, c[i], &p);
    }
    inbox_pause(sched_inbox(b.sched), false);
    for (int i = 0; i < 4; i++) {
        test_job_await_done(c[i]);
        REQUIRE_EQ_INT(c[i]->started_at, i);
        test_job_free(c[i]);
    }
    close_bench(&b);
}

/* ---- ends of the scheduler ----------------------------------------------------------------- */

static void test_drain_and_destroy(void **state)
{
    (void)state;
    struct setup setup = {.n_parallel = 2};
    struct bench b = open_bench(&setup);
    struct test_job *c[5];
    char err[200] = "";
    fake_close_gate(b.model);
    for (int i = 0; i < 4; i++) {
        c[i] = test_job_new();
        struct eng_job_params p = test_job_greedy(c[i], prompt_of(i), 40, 400);
        submit(&b, c[i], &p);
    }
    fake_await_step(b.model);
    inbox_drain(sched_inbox(b.sched));
    c[4] = test_job_new();
    struct eng_job_params p = test_job_greedy(c[4], prompt_of(1), 40, 4);
    REQUIRE_EQ_INT(inbox_submit(sched_inbox(b.sched), &p, &c[4]->handle, err, sizeof(err)),
                   ENG_ECLOSED);
    sched_destroy(b.sched); /* with a step at the gate, which the closing ends */
    b.sched = NULL;
    for (int i = 0; i < 4; i++) {
        REQUIRE(c[i]->done);
        REQUIRE_EQ_INT(c[i]->finish[0], ENG_FINISH_CANCELLED);
    }
    for (int i = 0; i < 5; i++)
        test_job_free(c[i]);
    close_bench(&b);
}

static void test_submit_refuses_what_is_wrong(void **state)
{
    (void)state;
    struct setup setup = {.n_parallel = 1};
    struct bench b = open_bench(&setup);
    struct test_job *c = test_job_new();
    const struct eng_job_params good = test_job_greedy(c, prompt_of(1), 10, 5);
    const int32_t outside[] = {3, FAKE_VOCAB}, negative[] = {-1};
    struct eng_job_params cases[18];
    for (size_t i = 0; i < N_OF(cases); i++)
        cases[i] = good;
    cases[0].n_prompt = 0;
    cases[1].prompt = outside;
    cases[1].n_prompt = 2;
    cases[2].prompt = negative;
    cases[2].n_prompt = 1;
    cases[3].n_choices = 0;
    cases[4].n_choices = 17;
    cases[5].max_tokens = -1;
    cases[6].n_logprobs = ENG_MAX_LOGPROBS + 1;
    cases[7].stop_ids = outside;
    cases[7].n_stop_ids = 2;
    cases[8].sampling.temperature = -1;
    cases[9].want_pooled = true;
    cases[10].on_event = NULL;
    cases[11].prompt = NULL;
    cases[12].n_unpooled = 10;
    cases[13].listed_ids = outside;
    cases[13].n_listed_ids = 2;
    cases[14].n_listed_ids = ENG_MAX_LISTED + 1;
    cases[15].n_marks = ENG_MAX_MARKS + 1;
    cases[16].n_marks = 2;
    cases[16].marks[1] = 11;
    cases[17].n_marks = 1;
    cases[17].marks[0] = -1;
    for (size_t i = 0; i < N_OF(cases); i++) {
        char err[200] = "";
        struct eng_job *job = NULL;
        int rc = inbox_submit(sched_inbox(b.sched), &cases[i], &job, err, sizeof(err));
        REQUIRE_MSG(rc == ENG_EINVAL, "case %zu: %d", i, rc);
        REQUIRE_MSG(err[0] && !job, "case %zu", i);
    }
    test_job_free(c);
    close_bench(&b);
}

/* ---- everything at once -------------------------------------------------------------------- */

/*
 * A mixed load with cancellations, choices, tenants and little memory; every finished answer is
 * checked.
 */
static void test_mixed_load(void **state)
{
    (void)state;
    enum { N = 300 };
    struct setup setup = {.n_parallel = 6, .n_pages = 40, .chunk = 40, .ctx = 256};
    struct bench b = open_bench(&setup);
    struct test_job *c[N];
    uint32_t seed = 2024;
    for (int i = 0; i < N; i++) {
        seed = seed * 1664525u + 1013904223u;
        uint32_t r = seed >> 8;
        c[i] = test_job_new();
        int which = (int)(r % 6), n_prompt = 1 + (int)(r / 7 % 250);
        struct eng_job_params p =
            test_job_greedy(c[i], prompt_of(which), n_prompt, (int)(r / 11 % 40));
        p.n_choices = r / 13 % 5 == 0 ? 3 : 1;
        p.no_cache = r / 17 % 4 == 0;
        p.tenant[0] = r / 19 % 2;
        p.priority = (int)(r / 23 % 3);
        p.fair_key = r / 29 % 4;
        if (r / 31 % 6 == 0) p.n_prompt_logprobs = 1;
        if (r / 37 % 8 == 0) p.n_logprobs = 5;
        submit(&b, c[i], &p);
        if (r / 41 % 5 == 0) eng_job_cancel(c[i]->handle);
        if (i > 20 && r / 43 % 5 == 0) eng_job_cancel(c[i - 20]->handle);
    }
    int n_whole = 0;
    for (int i = 0; i < N; i++) {
        test_job_await_done(c[i]);
        const struct eng_job_params *p = &c[i]->handle->p;
        for (int j = 0; j < p->n_choices; j++) {
            if (c[i]->finish[j] != ENG_FINISH_LENGTH) continue;
            int n = (int)c[i]->handle->max_new;
            check_greedy(c[i], j, p->prompt, (int)p->n_prompt, n);
            n_whole++;
        }
    }
    REQUIRE_MSG(n_whole > N / 2, "%d answers were whole", n_whole);
    for (int i = 0; i < N; i++)
        test_job_free(c[i]);
    check_all_given_back(&b);
    close_bench(&b);
}

/* ---- spare jobs ---------------------------------------------------------------------------- */

enum { N_SPARE = 14, N_BESIDE = 40 };

/* Jobs of all kinds, the same with every call. */
static struct eng_job_params any_job(struct test_job *c, int i, bool spare)
{
    struct eng_job_params p =
        test_job_greedy(c, prompt_of(i % 5), 20 + 41 * (i % 4), 30 + 7 * i % 20);
    p.sampling.temperature = i % 3 ? 0.9f : 0;
    p.sampling.seed = (uint64_t)i;
    p.sampling.repetition_penalty = i % 2 ? 1.3f : 1.0f;
    p.sampling.presence_penalty = i % 4 == 2 ? 0.5f : 0;
    p.n_choices = i % 4 == 3 ? 3 : 1;
    p.no_cache = i % 5 == 4;
    p.n_logprobs = 2;
    p.n_prompt_logprobs = i % 6 == 2 ? 1 : -1;
    p.want_logits = i % 7 == 5;
    p.want_progress = i % 6 == 4;
    p.prediction = prompt_of(9);
    p.n_prediction = i % 3 == 1 ? 40 : 0;
    p.spare = spare;
    return p;
}

static void compare_jobs(const struct test_job *want, const struct test_job *got)
{
    for (int k = 0; k < TEST_JOB_CHOICES; k++) {
        int n = want->n_ids[k];
        REQUIRE_EQ_INT(got->n_ids[k], n);
        REQUIRE_EQ_INT(got->finish[k], want->finish[k]);
        REQUIRE(memcmp(got->ids[k], want->ids[k], sizeof(int32_t) * (size_t)n) == 0);
        REQUIRE(memcmp(got->logprob[k], want->logprob[k], sizeof(float) * (size_t)n) == 0);
        REQUIRE(memcmp(got->predicted[k], want->predicted[k], sizeof(int) * (size_t)n) == 0);
    }
    REQUIRE_EQ_INT(got->n_prompt_tokens, want->n_prompt_tokens);
    for (int i = 0; i < want->n_prompt_tokens; i++)
        REQUIRE(got->prompt_tokens[i].logprob == want->prompt_tokens[i].logprob);
    REQUIRE_EQ_INT(got->n_rows, want->n_rows);
    if (want->n_rows)
        REQUIRE(memcmp(got->rows, want->rows,
                       sizeof(float) * (size_t)want->n_rows * (size_t)want->row_len) == 0);
    REQUIRE_EQ_INT(got->usage.n_generated_tokens, want->usage.n_generated_tokens);
    if (got->n_choices_done == 1)
        REQUIRE_EQ_INT(got->usage.n_cached_tokens + got->usage.n_computed_prompt_tokens,
                       got->usage.n_prompt_tokens);
}

static bool is_done(struct test_job *j)
{
    pthread_mutex_lock(&j->lock);
    bool done = j->done;
    pthread_mutex_unlock(&j->lock);
    return done;
}

/* Lets one step run, unless all the jobs end first: then there may be none. */
static void let_one_of(struct fake_model *m, struct test_job *const *jobs, int n)
{
    bool waits = true;
    pthread_mutex_lock(&m->lock);
    m->permits = 1;
    pthread_cond_broadcast(&m->change);
    pthread_mutex_unlock(&m->lock);
    while (waits) {
        int i = 0;
        while (i < n && is_done(jobs[i]))
            i++;
        pthread_mutex_lock(&m->lock);
        waits = m->permits > 0 && i < n;
        if (!waits) m->permits = 0;
        pthread_mutex_unlock(&m->lock);
        sched_yield();
    }
}

/* Others take the slots and pages of spare jobs again and again; what these give is the same. */
static void check_parked(const struct setup *setup, struct test_job *const *want)
{
    struct bench b = open_bench(setup);
    struct test_job *spare[N_SPARE], *beside[N_BESIDE];
    struct eng_stats st;
    int n_steps = 0; /* that spare jobs take at least */
    int n_both = 0;  /* looks at which jobs of both kinds were in slots */
    fake_close_gate(b.model);
    for (int i = 0; i < N_SPARE; i++) {
        spare[i] = test_job_new();
        struct eng_job_params p = any_job(spare[i], i, true);
        submit(&b, spare[i], &p);
        n_steps += p.n_choices * (int)p.max_tokens;
    }
    n_steps = n_steps / (setup->n_parallel + 1) - N_BESIDE;
    for (int i = 0; i < N_BESIDE; i++) {
        beside[i] = test_job_new();
        struct eng_job_params p =
            test_job_greedy(beside[i], prompt_of(i % 6), 10 + 23 * (i % 9), 1 + i % 4);
        submit(&b, beside[i], &p);
        while (i % 3 && !is_done(beside[i])) /* the next step may be one of spare jobs alone */
            let_one_of(b.model, &beside[i], 1);
        for (int k = 0; k < i * 7 % 13 && n_steps > 0; k++, n_steps--)
            let_one_of(b.model, spare, N_SPARE);
        inbox_stats(sched_inbox(b.sched), &st);
        REQUIRE(st.n_spare >= 0 && st.n_spare <= st.n_running);
        n_both += st.n_spare > 0 && st.n_spare < st.n_running;
    }
    fake_open_gate(b.model);
    for (int i = 0; i < N_BESIDE; i++) {
        const struct eng_job_params *p = &beside[i]->handle->p;
        test_job_await_done(beside[i]);
        check_greedy(beside[i], 0, p->prompt, (int)p->n_prompt, (int)p->max_tokens);
        test_job_free(beside[i]);
    }
    for (int i = 0; i < N_SPARE; i++) {
        test_job_await_done(spare[i]);
        compare_jobs(want[i], spare[i]);
        test_job_free(spare[i]);
    }
    check_all_given_back(&b);
    inbox_stats(sched_inbox(b.sched), &st);
    REQUIRE_MSG(st.n_parked > 3, "parked %d times", (int)st.n_parked);
    REQUIRE(st.n_recomputed_tokens > 0 && st.n_spare == 0);
    REQUIRE(n_both > 0 || setup->n_parallel == 1);
    close_bench(&b);
}

static void test_parked_jobs_give_the_same(void **state)
{
    (void)state;
    static const struct setup setups[] = {
        {.n_parallel = 1},
        {.n_parallel = 3, .chunk = 7},
        {.n_parallel = 4, .chunk = 64, .no_prefix_cache = true},
        {.n_parallel = 6, .n_pages = 16},
        {.n_parallel = 3, .chunk = 16, .n_snapshots = 8},
        {.n_parallel = 3, .speculate = ENG_SPECULATE_ALWAYS, .n_threads = 2},
    };
    struct setup alone = {.n_parallel = 1, .no_prefix_cache = true};
    struct test_job *want[N_SPARE];
    struct bench b = open_bench(&alone);
    for (int i = 0; i < N_SPARE; i++) {
        want[i] = test_job_new();
        struct eng_job_params p = any_job(want[i], i, false);
        submit(&b, want[i], &p);
        test_job_await_done(want[i]);
    }
    close_bench(&b);
    for (size_t i = 0; i < N_OF(setups); i++)
        check_parked(&setups[i], want);
    for (int i = 0; i < N_SPARE; i++)
        test_job_free(want[i]);
}

static struct test_job *submit_spare(struct bench *b, int prompt, int n_prompt, int n)
{
    struct test_job *c = test_job_new();
    struct eng_job_params p = test_job_greedy(c, prompt_of(prompt), n_prompt, n);
    p.spare = true;
    p.fair_key = p.key_slots = 1;
    submit(b, c, &p);
    return c;
}

static struct eng_stats stats_of(struct bench *b)
{
    struct eng_stats st;
    inbox_stats(sched_inbox(b->sched), &st);
    return st;
}

/* The youngest spare job leaves its slot within a step, and comes back first. */
static void test_spare_jobs_give_way(void **state)
{
    (void)state;
    struct setup setup = {.n_parallel = 2, .max_queued_jobs = 1};
    struct bench b = open_bench(&setup);
    char err[200];
    fake_close_gate(b.model);
    struct test_job *old = submit_spare(&b, 1, 5, 40);
    fake_await_step(b.model);
    struct test_job *young = submit_spare(&b, 2, 5, 40);
    fake_let_one(b.model);
    fake_await_step(b.model); /* both are in it */
    struct test_job *next = submit_spare(&b, 3, 5, 40);
    REQUIRE_EQ_INT(stats_of(&b).n_waiting, 0);
    struct test_job *other = test_job_new(), *second = test_job_new(), *third = test_job_new();
    struct eng_job_params p = test_job_greedy(other, prompt_of(4), 5, 3);
    p.fair_key = p.key_slots = 1;
    submit(&b, other, &p);
    fake_let_one(b.model);
    fake_await_step(b.model);
    REQUIRE(other->started && !next->started);
    REQUIRE_EQ_INT(stats_of(&b).n_parked, 1);
    int n_young = young->n_ids[0];
    p.ctx = second; /* its key has its slot */
    submit(&b, second, &p);
    p.ctx = third;
    p.fair_key = 2;
    submit(&b, third, &p); /* takes the slot of the old one with the next step */
    for (int i = 0; i < 3; i++)
        fake_let_one(b.model);
    fake_await_step(b.model);
    REQUIRE(third->started && second->started && !next->started);
    REQUIRE_EQ_INT(young->n_ids[0], n_young);
    REQUIRE_EQ_INT(stats_of(&b).n_parked, 2);
    struct test_job *refused = test_job_new();
    p.ctx = refused; /* both slots are taken, and the queue has one place */
    submit(&b, refused, &p);
    REQUIRE_EQ_INT(inbox_submit(sched_inbox(b.sched), &p, &second->handle, err, sizeof(err)),
                   ENG_EQUEUEFULL);
    struct test_job *cancelled = submit_spare(&b, 5, 5, 40);
    eng_job_cancel(cancelled->handle);
    eng_job_stop_choice(young->handle, 0);
    fake_let_one(b.model);
    test_job_await_done(cancelled);
    test_job_await_done(young);
    REQUIRE_EQ_INT(young->finish[0], ENG_FINISH_STOP);
    REQUIRE_EQ_INT(young->n_ids[0], n_young);
    fake_open_gate(b.model);
    struct test_job *all[] = {other, second, third, refused, old, next, young, cancelled};
    for (int i = 0; i < 8; i++) {
        test_job_await_done(all[i]);
        if (i < 6)
            check_greedy(all[i], 0, all[i]->handle->p.prompt, 5, (int)all[i]->handle->max_new);
    }
    check_all_given_back(&b);
    for (int i = 0; i < 8; i++)
        test_job_free(all[i]);
    close_bench(&b);
}

/*
 * Beside one that decodes, rows of spare jobs take their part of its time, a few in a step; a row
 * costs a twentieth of a step here. Alone they have all.
 */
static void test_rows_beside_others(void **state)
{
    (void)state;
    enum { N = 200, N_MORE = 3 };
    struct setup setup = {.n_parallel = 1 + N_MORE, .speculate = ENG_SPECULATE_OFF};
    struct bench b = open_bench(&setup);
    struct test_job *all[1 + N_MORE] = {test_job_new()};
    struct eng_job_params p = test_job_greedy(all[0], prompt_of(1), 3, N);
    fake_close_gate(b.model);
    submit(&b, all[0], &p);
    fake_await_step(b.model);
    for (int i = 1; i <= N_MORE; i++)
        all[i] = submit_spare(&b, 1 + i, 3, N);
    fake_open_gate(b.model);
    for (int i = 0; i <= N_MORE; i++) {
        test_job_await_done(all[i]);
        check_greedy(all[i], 0, prompt_of(1 + i), 3, N);
        test_job_free(all[i]);
    }
    int n = 0, most = 0;
    for (int i = 1; i < N; i++) {
        int n_more = b.model->steps[i].n_rows - 1;
        n += n_more;
        if (n_more > most) most = n_more;
    }
    REQUIRE_MSG(n > N / 3 && n < N, "%d rows of spare jobs", n);
    REQUIRE_MSG(most <= 2, "%d of them in a step", most);
    REQUIRE(b.model->steps[N].n_rows >= N_MORE);
    close_bench(&b);
}

/* Spare prompts wait while others have rows, and come in short steps soon after. */
static void test_rows_of_spare_prompts(void **state)
{
    (void)state;
    struct setup setup = {.n_parallel = 3, .chunk = 64};
    struct bench b = open_bench(&setup);
    fake_close_gate(b.model);
    struct test_job *other = test_job_new();
    struct eng_job_params p = test_job_greedy(other, prompt_of(1), 50, 4);
    submit(&b, other, &p);
    fake_await_step(b.model);
    struct test_job *spare = submit_spare(&b, 2, 200, 2);
    struct test_job *last = test_job_new();
    p = test_job_greedy(last, prompt_of(3), 50, 1);
    submit(&b, last, &p);
    static const int want[] = {50, 1 + 50, 1, 1, 16, 32, 64, 64, 24, 1};
    for (size_t i = 0; i < N_OF(want); i++)
        fake_let_one(b.model);
    fake_open_gate(b.model);
    struct test_job *all[] = {other, spare, last};
    for (int i = 0; i < 3; i++) {
        test_job_await_done(all[i]);
        check_greedy(all[i], 0, all[i]->handle->p.prompt, (int)all[i]->handle->p.n_prompt,
                     (int)all[i]->handle->max_new);
        test_job_free(all[i]);
    }
    for (size_t i = 0; i < N_OF(want); i++)
        REQUIRE_MSG(b.model->steps[i].n_rows == want[i], "step %zu: %d rows, not %d", i,
                    b.model->steps[i].n_rows, want[i]);
    close_bench(&b);
}

/* The argument: how many schedules of keys with slots. */
int main(int argc, char **argv)
{
    if (argc > 1) n_schedules = (int)strtol(argv[1], NULL, 10);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers_do_not_depend_on_batch),
        cmocka_unit_test(test_steps_keep_their_bounds),
        cmocka_unit_test(test_choices_equal_single_jobs_and_prefill_once),
        cmocka_unit_test(test_cached_tokens_are_exact),
        cmocka_unit_test(test_written_tokens_and_misses),
        cmocka_unit_test(test_answers_are_cached_too),
        cmocka_unit_test(test_prefix_is_shared_while_it_is_computed),
        cmocka_unit_test(test_waiter_takes_over_from_a_cancelled_owner),
        cmocka_unit_test(test_sibling_takes_over_from_a_stopped_choice),
        cmocka_unit_test(test_small_cache_evicts_and_stays_right),
        cmocka_unit_test(test_end_of_context),
        cmocka_unit_test(test_stop_ids),
        cmocka_unit_test(test_eos_stops_unless_ignored),
        cmocka_unit_test(test_everything_banned_ends),
        cmocka_unit_test(test_non_finite_logits_end_one_job),
        cmocka_unit_test(test_prompt_logprobs_and_logits),
        cmocka_unit_test(test_listed_logprobs),
        cmocka_unit_test(test_prompt_rows_go_out_once_for_all_choices),
        cmocka_unit_test(test_embedding_is_the_mean),
        cmocka_unit_test(test_reader),
        cmocka_unit_test(test_cancel_in_a_step_waiting_and_running),
        cmocka_unit_test(test_cancelling_one_leaves_the_others),
        cmocka_unit_test(test_stop_choice_from_callback),
        cmocka_unit_test(test_deadlines),
        cmocka_unit_test(test_queue_bounds),
        cmocka_unit_test(test_progress_of_the_prefill),
        cmocka_unit_test(test_places_are_kept),
        cmocka_unit_test(test_priority_within_a_key),
        cmocka_unit_test(test_priority_between_keys),
        cmocka_unit_test(test_global_priority_does_not_starve),
        cmocka_unit_test(test_slots_of_keys),
        cmocka_unit_test(test_slots_change_no_answer),
        cmocka_unit_test(test_cancelled_jobs_do_not_wait),
        cmocka_unit_test(test_turns_do_not_starve),
        cmocka_unit_test(test_rows_of_a_shared_turn),
        cmocka_unit_test(test_prompt_rows_are_shared_between_keys),
        cmocka_unit_test(test_big_job_is_not_starved),
        cmocka_unit_test(test_drain_and_destroy),
        cmocka_unit_test(test_submit_refuses_what_is_wrong),
        cmocka_unit_test(test_mixed_load),
        cmocka_unit_test(test_parked_jobs_give_the_same),
        cmocka_unit_test(test_spare_jobs_give_way),
        cmocka_unit_test(test_rows_of_spare_prompts),
        cmocka_unit_test(test_rows_beside_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
