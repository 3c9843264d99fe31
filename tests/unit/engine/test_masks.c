/* SPDX-License-Identifier: MIT */
/*
 * Slow masks: other sequences go on meanwhile, answers are the same bits as with quick ones, and
 * jobs end at any time. The guides here are as slow as the test wants: a mask is ready when the
 * test permits it.
 */
#include "engine/masks.h"

#include "test.h"

#include "fake_engine.h"

enum { N_PROMPT = 45 };

/* Allows the ids of one of three classes after the other, the end after n of them. */
struct guide {
    int at, n;
    int slow_from, slow_every; /* these positions have slow masks; slow_every 0: none */
    int64_t cost;              /* of a slow mask, in steps */
    atomic_int *permits;       /* a slow mask takes one, too, if not NULL */
    int refuse_at;             /* the id of this position is not taken; 0: never */
    int number;                /* for the list of masks made */
    atomic_bool over;          /* its job has ended */
};

static pthread_mutex_t made_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t made_changed = PTHREAD_COND_INITIALIZER;
static int made[1000], n_made; /* numbers of the guides whose slow masks were made */

static void note_made(int number)
{
    pthread_mutex_lock(&made_lock);
    made[n_made++ % (int)N_OF(made)] = number;
    pthread_cond_broadcast(&made_changed);
    pthread_mutex_unlock(&made_lock);
}

static int await_made(int n)
{
    pthread_mutex_lock(&made_lock);
    while (n_made < n)
        pthread_cond_wait(&made_changed, &made_lock);
    int number = made[n - 1];
    pthread_mutex_unlock(&made_lock);
    return number;
}

static bool is_slow(const struct guide *g)
{
    return g->slow_every && g->at >= g->slow_from && (g->at - g->slow_from) % g->slow_every == 0;
}

static bool take_permit(atomic_int *permits)
{
    int n = atomic_load(permits);
    while (n > 0)
        if (atomic_compare_exchange_weak(permits, &n, n - 1)) return true;
    return false;
}

/* False: the mask is given up. */
static bool be_slow(const struct guide *g, struct eng_pace *pace)
{
    enum { PIECE = 100 };
    for (int64_t done = 0; done < g->cost; done += PIECE) {
        pace->left -= PIECE;
        if (pace->left <= 0 && !pace->more(pace)) return false;
    }
    while (g->permits && !take_permit(g->permits))
        if (!pace->more(pace)) return false;
    return true;
}

static enum eng_guide_next guide_mask(void *ctx, uint64_t *bits, struct eng_pace *pace)
{
    struct guide *g = ctx;
    REQUIRE(!atomic_load(&g->over) && pace->left > 0);
    if (is_slow(g)) {
        if (!be_slow(g, pace)) return ENG_GUIDE_LATER;
        note_made(g->number);
    }
    REQUIRE(!atomic_load(&g->over));
    if (g->at == g->n) return ENG_GUIDE_END;
    if (g->at % 7 == 6) return ENG_GUIDE_FREE;
    *bits = 0;
    for (int i = g->at % 3; i < FAKE_POISON; i += 3)
        *bits |= 1ull << i;
    return ENG_GUIDE_MASK;
}

static bool can_take(const struct guide *g, int at, int32_t id)
{
    return at < g->n && (at % 7 == 6 || id % 3 == at % 3);
}

static bool guide_take(void *ctx, int32_t id)
{
    struct guide *g = ctx;
    REQUIRE(!atomic_load(&g->over));
    if ((g->refuse_at && g->at == g->refuse_at) || !can_take(g, g->at, id)) return false;
    g->at++;
    return true;
}

static bool guide_complete(void *ctx)
{
    const struct guide *g = ctx;
    return g->at == g->n;
}

static int guide_foresee(void *ctx, const int32_t *ids, int n)
{
    const struct guide *g = ctx;
    int i = 0;
    while (i < n && can_take(g, g->at + i, ids[i]))
        i++;
    return i;
}

/* ---- jobs ---------------------------------------------------------------------------------- */

/* A job whose choices are guided alike. */
struct guided {
    struct test_job *job;
    struct guide guides[TEST_JOB_CHOICES];
    struct eng_guide table[TEST_JOB_CHOICES];
    int32_t prediction[100];
};

static struct guided *begin(struct bench *b, const struct guide *like, int n_choices,
                            int64_t max_tokens, const struct test_job *predicted)
{
    struct guided *g = calloc(1, sizeof(*g));
    g->job = test_job_new();
    struct eng_job_params p = test_job_greedy(g->job, prompt_of(3), N_PROMPT, max_tokens);
    p.sampling.temperature = 1.3f;
    p.n_choices = n_choices;
    p.guides = g->table;
    for (int i = 0; i < n_choices; i++) {
        g->guides[i] = *like;
        g->table[i] = (struct eng_guide){.ctx = &g->guides[i],
                                         .mask = guide_mask,
                                         .take = guide_take,
                                         .complete = guide_complete,
                                         .foresee = guide_foresee};
    }
    if (predicted) {
        p.prediction = g->prediction;
        p.n_prediction = predicted->n_ids[0];
        memcpy(g->prediction, predicted->ids[0], (size_t)predicted->n_ids[0] * sizeof(int32_t));
    }
    submit(b, g->job, &p);
    return g;
}

static void await_end(struct guided *g)
{
    test_job_await_done(g->job);
    for (int i = 0; i < TEST_JOB_CHOICES; i++)
        atomic_store(&g->guides[i].over, true);
}

static void destroy(struct guided *g)
{
    test_job_free(g->job);
    free(g);
}

static void require_same(const struct test_job *a, const struct test_job *b)
{
    for (int i = 0; i < TEST_JOB_CHOICES; i++) {
        REQUIRE_EQ_INT(a->n_ids[i], b->n_ids[i]);
        for (int k = 0; k < a->n_ids[i]; k++)
            REQUIRE_EQ_INT(a->ids[i][k], b->ids[i][k]);
        REQUIRE_EQ_INT(a->finish[i], b->finish[i]);
        REQUIRE_EQ_INT(a->stop_id[i], b->stop_id[i]);
    }
    REQUIRE_EQ_INT(a->usage.n_generated_tokens, b->usage.n_generated_tokens);
}

static uint64_t late_masks(struct bench *b)
{
    struct eng_stats st;
    inbox_stats(sched_inbox(b->sched), &st);
    return st.n_late_masks;
}

/* ---- tests --------------------------------------------------------------------------------- */

/* While a mask is not ready, a neighbour gets its whole answer; then the answer goes on. */
static void test_neighbours_go_on(void **state)
{
    (void)state;
    for (int threads = 0; threads <= 2; threads++) {
        atomic_int permits = 0;
        struct bench b =
            open_bench(&(struct setup){.n_threads = threads, .speculate = ENG_SPECULATE_OFF});
        struct guide slow = {.n = 40, .slow_from = 3, .slow_every = 1, .cost = 5000};
        struct guided *quick = begin(&b, &(struct guide){.n = 40}, 2, 50, NULL);
        await_end(quick);
        check_all_given_back(&b);
        REQUIRE_EQ_INT(late_masks(&b), 0);
        slow.permits = &permits;
        struct guided *g = begin(&b, &slow, 2, 50, NULL);
        test_job_await_tokens(g->job, 3);
        struct test_job *neighbour = test_job_new();
        struct eng_job_params p = test_job_greedy(neighbour, prompt_of(1), N_PROMPT, 60);
        submit(&b, neighbour, &p);
        test_job_await_done(neighbour);
        check_greedy(neighbour, 0, prompt_of(1), N_PROMPT, 60);
        REQUIRE_EQ_INT(g->job->n_ids[0], 3); /* the fourth token has no mask */
        REQUIRE(late_masks(&b) >= 60);
        atomic_store(&permits, 1000);
        await_end(g);
        require_same(quick->job, g->job);
        test_job_free(neighbour);
        destroy(quick);
        destroy(g);
        close_bench(&b);
    }
}

/* Wherever masks are slow, the answer is the same, with drafts too. */
static void test_answers_do_not_depend_on_it(void **state)
{
    (void)state;
    static const struct guide kinds[] = {
        {.n = 40, .slow_every = 1, .cost = 5000},
        {.n = 40, .slow_every = 3, .cost = 50000},
        {.n = 40, .slow_every = 1000, .cost = 5000},                  /* the first one alone */
        {.n = 40, .slow_from = 40, .slow_every = 1, .cost = 5000},    /* the end */
        {.n = 40, .slow_from = 7, .slow_every = 2, .cost = 1900},     /* nearly slow */
        {.n = 60, .slow_from = 49, .slow_every = 1, .cost = 1000000}, /* the last of a cut answer */
    };
    static const struct setup setups[] = {
        {.n_threads = 0, .speculate = ENG_SPECULATE_OFF},
        {.n_threads = 2, .speculate = ENG_SPECULATE_OFF, .chunk = 7},
        {.n_threads = 3, .speculate = ENG_SPECULATE_ALWAYS, .n_parallel = 2},
    };
    for (size_t i = 0; i < N_OF(kinds); i++) {
        for (size_t k = 0; k < N_OF(setups); k++) {
            struct bench b = open_bench(&setups[k]);
            int max_tokens = kinds[i].n == 40 ? 40 : 50; /* the answer ends with the last token */
            struct guided *quick = begin(&b, &(struct guide){.n = kinds[i].n}, 3, max_tokens, NULL);
            await_end(quick);
            REQUIRE_EQ_INT(quick->job->finish[0],
                           kinds[i].n == 40 ? ENG_FINISH_STOP : ENG_FINISH_LENGTH);
            struct guided *slow = begin(&b, &kinds[i], 3, max_tokens, quick->job);
            struct guided *other = begin(&b, &kinds[i], 3, max_tokens, NULL);
            await_end(slow);
            await_end(other);
            require_same(quick->job, slow->job);
            require_same(quick->job, other->job);
            check_all_given_back(&b);
            destroy(quick);
            destroy(slow);
            destroy(other);
            close_bench(&b);
        }
    }
}

/* Jobs end while their masks are under way; what the lanes held is dropped. */
static void test_ends_while_a_mask_is_made(void **state)
{
    (void)state;
    atomic_int permits = 0;
    struct bench b = open_bench(&(struct setup){.n_threads = 2});
    for (int from = 0; from <= 2; from++) {
        struct guide never = {.n = 40, .slow_from = from, .slow_every = 1, .permits = &permits};
        struct guided *g = begin(&b, &never, 3, 50, NULL);
        test_job_await_tokens(g->job, from);
        for (int i = 0; i < 3; i++)
            eng_job_stop_choice(g->job->handle, i);
        await_end(g);
        REQUIRE_EQ_INT(g->job->finish[2], ENG_FINISH_STOP);
        destroy(g);
        g = begin(&b, &never, 4, 50, NULL);
        test_job_await_started(g->job);
        eng_job_cancel(g->job->handle);
        await_end(g);
        REQUIRE_EQ_INT(g->job->finish[3], ENG_FINISH_CANCELLED);
        destroy(g);
        check_all_given_back(&b);
    }
    struct guided *after =
        begin(&b, &(struct guide){.n = 40, .slow_every = 1, .cost = 9000}, 3, 50, NULL);
    await_end(after);
    REQUIRE_EQ_INT(after->job->n_ids[2], 40);
    destroy(after);
    struct guide never = {.n = 40, .slow_from = 1, .slow_every = 1, .permits = &permits};
    struct guided *last = begin(&b, &never, 2, 50, NULL);
    test_job_await_tokens(last->job, 1);
    close_bench(&b);
    REQUIRE_EQ_INT(last->job->finish[0], ENG_FINISH_CANCELLED);
    destroy(last);
}

/* The prompt is computed while the first masks are made, but for its last row. */
static void test_first_masks(void **state)
{
    (void)state;
    atomic_int permits = 0;
    struct bench b = open_bench(&(struct setup){.chunk = 16});
    struct guide slow = {.n = 5, .slow_every = 100, .permits = &permits};
    struct guided *g = begin(&b, &slow, 3, 50, NULL);
    struct test_job *neighbour = test_job_new();
    struct eng_job_params p = test_job_greedy(neighbour, prompt_of(1), N_PROMPT, 30);
    submit(&b, neighbour, &p);
    test_job_await_done(neighbour);
    check_greedy(neighbour, 0, prompt_of(1), N_PROMPT, 30);
    REQUIRE(!g->job->done && g->job->n_ids[0] == 0);
    atomic_store(&permits, 3);
    await_end(g);
    REQUIRE_EQ_INT(g->job->n_ids[0], 5);
    REQUIRE_EQ_INT(g->job->usage.n_computed_prompt_tokens, N_PROMPT); /* once for all choices */
    test_job_free(neighbour);
    destroy(g);
    close_bench(&b);
}

/* Three choices of one job and the one of another: their masks take turns by jobs. */
static void test_jobs_take_turns(void **state)
{
    (void)state;
    enum { ROUNDS = 30 };
    atomic_int permits = 0;
    struct bench b = open_bench(&(struct setup){.n_threads = 0});
    struct guide slow = {
        .n = 90, .slow_from = 1, .slow_every = 1, .cost = 5000, .permits = &permits};
    n_made = 0;
    struct guided *many = begin(&b, &slow, 3, 100, NULL);
    test_job_await_tokens(many->job, 1);
    slow.number = 1;
    struct guided *one = begin(&b, &slow, 1, 100, NULL);
    test_job_await_tokens(one->job, 1);
    int n_ones = 0;
    for (int i = 1; i <= ROUNDS; i++) {
        atomic_fetch_add(&permits, 1);
        /* With its next token it waits again, before the mask that is begun now is permitted. */
        if (await_made(i) == 1) test_job_await_tokens(one->job, 1 + ++n_ones);
    }
    REQUIRE_MSG(n_ones >= ROUNDS / 2 - 2, "%d of %d", n_ones, ROUNDS);
    for (int i = 3; i < ROUNDS; i++)
        REQUIRE_MSG(made[i] != made[i - 1], "mask %d", i);
    eng_job_cancel(many->job->handle);
    eng_job_cancel(one->job->handle);
    await_end(many);
    await_end(one);
    destroy(many);
    destroy(one);
    close_bench(&b);
}

/* An id that the guide does not take is noticed later, but ends the choice all the same. */
static void test_refused_later(void **state)
{
    (void)state;
    struct bench b = open_bench(&(struct setup){.n_threads = 2});
    struct guide slow = {.n = 40, .slow_every = 1, .cost = 5000, .refuse_at = 5};
    struct guided *g = begin(&b, &slow, 2, 50, NULL);
    await_end(g);
    REQUIRE_EQ_INT(g->job->finish[0], ENG_FINISH_ERROR);
    REQUIRE_EQ_INT(g->job->finish[1], ENG_FINISH_ERROR);
    destroy(g);
    close_bench(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_neighbours_go_on),
        cmocka_unit_test(test_answers_do_not_depend_on_it),
        cmocka_unit_test(test_ends_while_a_mask_is_made),
        cmocka_unit_test(test_first_masks),
        cmocka_unit_test(test_jobs_take_turns),
        cmocka_unit_test(test_refused_later),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
