/* SPDX-License-Identifier: MIT */
/*
 * States of recurrent layers: snapshots, and what the prefix cache can give with them. The fake
 * model looks back at two tokens in its state and answers wrongly if they are not the right ones.
 */
#include "engine/state.h"

#include "engine/job.h"
#include "engine/model/hparams.h"
#include "fake_engine.h"
#include "test.h"

static void test_layout(void **state)
{
    (void)state;
    static struct eng_hparams hp = {.d_model = 5, .n_layers = 4, .n_taps = 3};
    struct state_layout l;
    state_layout_init(&l, &hp, NULL);
    REQUIRE(l.n_layers == 0 && l.n_floats == 0 && l.n_kept == 0);
    hp.layer_mixer[1] = hp.layer_mixer[3] = ENG_CONV;
    state_layout_init(&l, &hp, NULL);
    REQUIRE(l.n_layers == 2 && l.n_channels == 5 && l.n_taps == 3);
    REQUIRE(l.n_floats == 2 * 5 * STATE_ROWS && l.n_kept == 2 * 2 * 5);
}

/* What a position looks back at comes back, wherever it is, and nothing else changes. */
static void test_saved_and_restored(void **state)
{
    (void)state;
    static const struct state_layout l = {.n_layers = 2,
                                          .n_channels = 5,
                                          .n_taps = 4,
                                          .n_floats = 2 * 5 * STATE_ROWS,
                                          .n_kept = 2 * 3 * 5};
    float whole[2 * 5 * STATE_ROWS], other[2 * 5 * STATE_ROWS], kept[2 * 3 * 5];
    for (int i = 0; i < 2 * 5 * STATE_ROWS; i++)
        whole[i] = (float)i;
    for (int64_t pos = 3; pos < 3 + 2 * STATE_ROWS; pos++) {
        memset(kept, 0, sizeof(kept));
        state_save(&l, whole, pos, kept);
        memset(other, 0, sizeof(other));
        state_restore(&l, other, pos, kept);
        for (int i = 0; i < 2 * 5 * STATE_ROWS; i++) {
            int back = (int)(pos + 2 * STATE_ROWS - 1 - i / 5) % STATE_ROWS; /* 0: the last token */
            REQUIRE(other[i] == (back < 3 ? whole[i] : 0));
        }
    }
}

/* ---- with the prefix cache ----------------------------------------------------------------- */

static struct eng_usage ask(struct bench *b, const int32_t *prompt, int64_t n, int n_new)
{
    struct test_job *c = test_job_new();
    struct eng_job_params p = test_job_greedy(c, prompt, n, n_new);
    submit(b, c, &p);
    test_job_await_done(c);
    check_greedy(c, 0, prompt, (int)n, n_new);
    struct eng_usage usage = c->usage;
    test_job_free(c);
    return usage;
}

/*
 * A conversation: every turn's prompt is the one before, its answer, and something new. Returns the
 * prompt tokens that a turn computed beyond the new ones, at most.
 */
static int64_t converse(struct bench *b, int which, int n_turns, int n_new)
{
    int32_t text[MAX_PROMPT];
    int64_t most = 0, n = 70;
    memcpy(text, prompt_of(which), sizeof(text));
    for (int turn = 0; turn < n_turns; turn++) {
        int64_t n_asked = turn ? 17 + turn : n;
        struct eng_usage usage = ask(b, text, n, n_new);
        REQUIRE_EQ_INT(usage.n_computed_prompt_tokens + usage.n_cached_tokens, n);
        int64_t beyond = usage.n_computed_prompt_tokens - n_asked;
        if (beyond > most) most = beyond;
        fake_expect(text, n, text + n, n_new);
        n += n_new + 18 + turn;
        REQUIRE(n + n_new <= MAX_PROMPT);
    }
    return most;
}

static void test_turns_compute_what_is_new(void **state)
{
    (void)state;
    static const int chunks[] = {1, 7, 32, 33, 128};
    for (size_t i = 0; i < N_OF(chunks); i++)
        for (int drafts = 0; drafts < 2; drafts++) {
            struct setup setup = {.n_parallel = 2,
                                  .ctx = MAX_PROMPT,
                                  .n_pages = 40,
                                  .chunk = chunks[i],
                                  .n_snapshots = 4,
                                  .twin_blur = drafts ? 5 : 0,
                                  .speculate = drafts ? ENG_SPECULATE_ALWAYS : ENG_SPECULATE_OFF};
            struct bench b = open_bench(&setup);
            int64_t beyond = converse(&b, 3, 8, 30);
            /* the rest of a page, and the last id of the answer, which was not fed back */
            REQUIRE_MSG(beyond <= 33, "%d tokens computed again", (int)beyond);
            check_all_given_back(&b);
            close_bench(&b);
        }
}

/* Prompts that share a beginning: the second leaves a snapshot where they part. */
static void test_shared_beginning(void **state)
{
    (void)state;
    struct setup setup = {.n_parallel = 2, .n_snapshots = 8, .chunk = 64};
    struct bench b = open_bench(&setup);
    int32_t prompts[3][200];
    for (int i = 0; i < 3; i++) {
        memcpy(prompts[i], prompt_of(20 + i), sizeof(prompts[i]));
        memcpy(prompts[i], prompt_of(4), 100 * sizeof(int32_t));
    }
    REQUIRE_EQ_INT(ask(&b, prompts[0], 200, 3).n_cached_tokens, 0);
    struct eng_usage second = ask(&b, prompts[1], 200, 3);
    REQUIRE_EQ_INT(second.n_cached_tokens, 0);
    REQUIRE(second.miss == ENG_MISS_EVICTED && second.n_known_tokens == 96);
    REQUIRE_EQ_INT(ask(&b, prompts[2], 200, 3).n_cached_tokens, 96);
    REQUIRE_EQ_INT(ask(&b, prompts[1], 200, 3).n_cached_tokens, 192);
    close_bench(&b);
}

/* The first prompt of those that share a beginning leaves a snapshot where a message ends. */
static void test_marks(void **state)
{
    (void)state;
    static const int chunks[] = {1, 7, 32, 128};
    for (size_t i = 0; i < N_OF(chunks); i++) {
        struct setup setup = {.n_parallel = 1, .n_pages = 40, .n_snapshots = 8, .chunk = chunks[i]};
        struct bench b = open_bench(&setup);
        int32_t prompts[3][300];
        static const int shared[3] = {300, 110, 180};
        static const int64_t marks[] = {300, 111, 31, 0, 130, 179};
        for (int k = 0; k < 3; k++) {
            memcpy(prompts[k], prompt_of(20 + k), sizeof(prompts[k]));
            memcpy(prompts[k], prompt_of(4), (size_t)shared[k] * sizeof(int32_t));
        }
        struct test_job *c = test_job_new();
        struct eng_job_params p = test_job_greedy(c, prompts[0], 300, 2);
        memcpy(p.marks, marks, sizeof(marks));
        p.n_marks = N_OF(marks);
        submit(&b, c, &p);
        test_job_await_done(c);
        check_greedy(c, 0, prompts[0], 300, 2);
        test_job_free(c);
        struct eng_stats st;
        inbox_stats(sched_inbox(b.sched), &st);
        REQUIRE_EQ_INT(st.n_snapshots, 4); /* 96, 128, 160 and 288 */
        REQUIRE_EQ_INT(ask(&b, prompts[1], 300, 3).n_cached_tokens, 96);
        REQUIRE_EQ_INT(ask(&b, prompts[2], 300, 3).n_cached_tokens, 160);
        REQUIRE_EQ_INT(ask(&b, prompts[0], 300, 3).n_cached_tokens, 288);
        check_all_given_back(&b);
        close_bench(&b);
    }
}

/* A second request waits for the first one's pages, and goes on from its snapshots. */
static void test_followers(void **state)
{
    (void)state;
    struct setup setup = {.n_parallel = 2, .n_snapshots = 8, .chunk = 50};
    struct bench b = open_bench(&setup);
    struct test_job *c[2];
    fake_close_gate(b.model);
    for (int i = 0; i < 2; i++) {
        c[i] = test_job_new();
        struct eng_job_params p = test_job_greedy(c[i], prompt_of(5), 300 - 50 * i, 10);
        submit(&b, c[i], &p);
    }
    fake_open_gate(b.model);
    for (int i = 0; i < 2; i++) {
        test_job_await_done(c[i]);
        check_greedy(c[i], 0, prompt_of(5), 300 - 50 * i, 10);
    }
    REQUIRE(c[0]->usage.n_cached_tokens == 0 && c[1]->usage.n_cached_tokens >= 192);
    for (int i = 0; i < 2; i++)
        test_job_free(c[i]);
    close_bench(&b);
}

/* Few pages and snapshots, many conversations at once, choices, jobs that are cancelled. */
static void test_mixed_load_with_states(void **state)
{
    (void)state;
    enum { N = 200 };
    struct setup setup = {.n_parallel = 5,
                          .n_pages = 40,
                          .chunk = 40,
                          .ctx = 256,
                          .n_snapshots = 5,
                          .twin_blur = 4,
                          .speculate = ENG_SPECULATE_ALWAYS};
    struct bench b = open_bench(&setup);
    struct test_job *c[N];
    uint32_t seed = 7;
    for (int i = 0; i < N; i++) {
        seed = seed * 1664525u + 1013904223u;
        uint32_t r = seed >> 8;
        c[i] = test_job_new();
        struct eng_job_params p = test_job_greedy(c[i], prompt_of((int)(r % 5)),
                                                  1 + (int)(r / 7 % 200), (int)(r / 11 % 50));
        p.n_choices = r / 13 % 5 == 0 ? 4 : 1;
        p.no_cache = r / 17 % 6 == 0;
        if (r / 31 % 8 == 0) p.n_prompt_logprobs = 1;
        submit(&b, c[i], &p);
        if (r / 41 % 5 == 0) eng_job_cancel(c[i]->handle);
        if (i > 20 && r / 43 % 5 == 0) eng_job_cancel(c[i - 20]->handle);
    }
    int64_t n_cached = 0, n_whole = 0;
    for (int i = 0; i < N; i++) {
        test_job_await_done(c[i]);
        const struct eng_job_params *p = &c[i]->handle->p;
        n_cached += c[i]->usage.n_cached_tokens;
        for (int j = 0; j < p->n_choices; j++) {
            if (c[i]->finish[j] != ENG_FINISH_LENGTH) continue;
            check_greedy(c[i], j, p->prompt, (int)p->n_prompt, (int)c[i]->handle->max_new);
            n_whole++;
        }
    }
    REQUIRE_MSG(n_whole > N / 2 && n_cached > 500, "%d whole, %d cached", (int)n_whole,
                (int)n_cached);
    for (int i = 0; i < N; i++)
        test_job_free(c[i]);
    check_all_given_back(&b);
    close_bench(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout),
        cmocka_unit_test(test_saved_and_restored),
        cmocka_unit_test(test_turns_compute_what_is_new),
        cmocka_unit_test(test_shared_beginning),
        cmocka_unit_test(test_marks),
        cmocka_unit_test(test_followers),
        cmocka_unit_test(test_mixed_load_with_states),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
