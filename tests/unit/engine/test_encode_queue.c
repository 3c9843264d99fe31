/* SPDX-License-Identifier: MIT */
/*
 * The scheduler of encoders on a model that computes nothing: a text's row is made of its ids, and
 * steps can be held back, so that the order and the ends of texts can be told.
 */
#include "engine/encode_queue.h"

#include <math.h>
#include <stdatomic.h>
#include <time.h>

#include "engine/inbox.h"
#include "engine/kv/kv.h"
#include "engine_job.h"

enum { ROWS = 128, TEXTS = 4, WIDTH = 3, VOCAB = 50, POISON = 49, MAX_STEPS = 500 };

static struct {
    pthread_mutex_t lock;
    pthread_cond_t change;
    bool gated;
    int permits, n_waiting;
    int n_texts[MAX_STEPS], n_rows[MAX_STEPS], n_steps;
    int32_t first_id[MAX_STEPS]; /* of the step's first text */
    float rows[ENCODE_URGENT_TEXTS][WIDTH];
} model = {.lock = PTHREAD_MUTEX_INITIALIZER, .change = PTHREAD_COND_INITIALIZER};

enum {
    STEP_PAGES = ROWS / KV_PAGE_TOKENS + TEXTS,
    ALL_PAGES = STEP_PAGES + ENCODE_URGENT_ROWS / KV_PAGE_TOKENS + ENCODE_URGENT_TEXTS
};

static uint8_t page_bytes[ALL_PAGES];
static uint8_t *pages[ALL_PAGES];
static const struct fwd_step *resting;
static int urgent; /* the second model's context: it passes the gate */

static bool pass_gate(const atomic_bool *stop)
{
    pthread_mutex_lock(&model.lock);
    model.n_waiting = 1;
    pthread_cond_broadcast(&model.change);
    while (model.gated && model.permits == 0 && !atomic_load(stop)) {
        struct timespec t;
        clock_gettime(CLOCK_REALTIME, &t);
        t.tv_nsec = (t.tv_nsec + 1000000) % 1000000000; /* looks at `stop` now and then */
        pthread_cond_timedwait(&model.change, &model.lock, &t);
    }
    bool go = !atomic_load(stop);
    if (go && model.gated) model.permits--;
    model.n_waiting = 0;
    pthread_mutex_unlock(&model.lock);
    return go;
}

static bool run_model(struct fwd *ctx, const struct fwd_step *step)
{
    if (!ctx && !pass_gate(step->stop)) {
        resting = step;
        return false;
    }
    int n_rows = 0;
    REQUIRE(step->n_segs > 0 && step->n_segs <= (ctx ? ENCODE_URGENT_TEXTS : TEXTS));
    uint8_t *const *next = ctx ? pages + STEP_PAGES : pages;
    for (int i = 0; i < step->n_segs; i++) {
        const struct fwd_segment *s = &step->segs[i];
        REQUIRE(s->pos0 == 0 && s->ends && s->pool && s->pages == next);
        next += kv_pages_of(s->n_tokens); /* no page is shared */
        n_rows += s->n_tokens;
        for (int d = 0; d < WIDTH; d++)
            model.rows[i][d] = (float)(s->n_tokens * 100 + d + 10 * s->n_first);
        if (s->tokens[0] == POISON) model.rows[i][1] = NAN;
    }
    REQUIRE(n_rows <= ROWS && next <= pages + (ctx ? ALL_PAGES : STEP_PAGES));
    REQUIRE(model.n_steps < MAX_STEPS);
    model.n_texts[model.n_steps] = step->n_segs;
    model.first_id[model.n_steps] = step->segs[0].tokens[0];
    model.n_rows[model.n_steps++] = n_rows;
    return true;
}

static bool resume_model(struct fwd *ctx)
{
    return run_model(ctx, resting);
}

static const float *pooled(const struct fwd *ctx, int segment)
{
    (void)ctx;
    return model.rows[segment];
}

static struct encode_queue *open_queue(int max_queued_jobs)
{
    struct encode_queue *q = NULL;
    char err[200] = "";
    for (size_t i = 0; i < sizeof(page_bytes); i++)
        pages[i] = &page_bytes[i];
    REQUIRE_EQ_INT(encode_pages(ROWS, TEXTS), sizeof(page_bytes));
    model.n_steps = 0;
    model.gated = false;
    struct encode_params p = {
        .model = {.run = run_model,
                  .resume = resume_model,
                  .pooled = pooled,
                  .vocab = VOCAB,
                  .d_model = 8,
                  .pooled_width = WIDTH},
        .pages = pages,
        .max_rows = ROWS,
        .max_texts = TEXTS,
        .ctx = 100,
        .in = {.max_jobs = max_queued_jobs, .max_tokens = 2000},
    };
    p.urgent = p.model;
    p.urgent.ctx = (void *)&urgent;
    int rc = encode_create(&q, &p, err, sizeof(err));
    REQUIRE_MSG(rc == 0, "%s", err);
    return q;
}

static void hold(void)
{
    pthread_mutex_lock(&model.lock);
    model.gated = true;
    model.permits = 0;
    pthread_mutex_unlock(&model.lock);
}

static void let_go(int permits)
{
    pthread_mutex_lock(&model.lock);
    model.permits += permits;
    if (permits < 0) model.gated = false;
    pthread_cond_broadcast(&model.change);
    pthread_mutex_unlock(&model.lock);
}

static void await_step(void)
{
    pthread_mutex_lock(&model.lock);
    while (!model.n_waiting)
        pthread_cond_wait(&model.change, &model.lock);
    pthread_mutex_unlock(&model.lock);
}

static int32_t texts[VOCAB][100];

static const int32_t *text_of(int32_t id)
{
    for (int i = 0; i < 100; i++)
        texts[id][i] = id;
    return texts[id];
}

static struct eng_job_params params_of(struct test_job *j, int32_t id, int64_t n)
{
    struct eng_job_params p = test_job_greedy(j, text_of(id), n, 0);
    p.want_pooled = true;
    return p;
}

static int try_submit(struct encode_queue *q, struct test_job *j, const struct eng_job_params *p)
{
    char err[200] = "";
    int rc = inbox_submit(encode_inbox(q), p, &j->handle, err, sizeof(err));
    REQUIRE((rc == 0) == (err[0] == '\0'));
    return rc;
}

static struct test_job *submit(struct encode_queue *q, int32_t id, int64_t n, int priority)
{
    struct test_job *j = test_job_new();
    struct eng_job_params p = params_of(j, id, n);
    p.priority = priority;
    REQUIRE_EQ_INT(try_submit(q, j, &p), 0);
    return j;
}

static void expect(struct test_job *j, enum eng_finish finish)
{
    test_job_await_done(j);
    REQUIRE_EQ_INT(j->finish[0], finish);
    REQUIRE((j->embedding != NULL) == (finish == ENG_FINISH_LENGTH));
    test_job_free(j);
}

/* Texts go in order, as many as fit rows and places; each gets its own row. */
static void test_steps(void **state)
{
    (void)state;
    struct encode_queue *q = open_queue(100);
    static const int lengths[] = {100, 30, 20, 90, 5, 5, 5, 5, 5, 64, 64};
    static const int want_texts[] = {1, 2, 4, 3, 1}, want_rows[] = {100, 50, 105, 74, 64};
    enum { N = sizeof(lengths) / sizeof(lengths[0]) };
    struct test_job *jobs[N], *first;
    hold();
    first = submit(q, 0, 1, 0);
    await_step();
    for (int i = 0; i < N; i++)
        jobs[i] = submit(q, i + 1, lengths[i], 0);
    struct eng_stats stats;
    inbox_stats(encode_inbox(q), &stats);
    REQUIRE_EQ_INT(stats.n_running, 1);
    REQUIRE_EQ_INT(stats.n_waiting, N);
    let_go(-1);
    test_job_await_done(first);
    test_job_free(first);
    for (int i = 0; i < N; i++) {
        test_job_await_done(jobs[i]);
        for (int d = 0; d < WIDTH; d++)
            REQUIRE(jobs[i]->embedding[d] == (float)(lengths[i] * 100 + d));
        REQUIRE_EQ_INT(jobs[i]->usage.n_computed_prompt_tokens, lengths[i]);
        REQUIRE(jobs[i]->started);
        expect(jobs[i], ENG_FINISH_LENGTH);
    }
    inbox_stop(encode_inbox(q));
    inbox_stats(encode_inbox(q), &stats);
    REQUIRE_EQ_INT(stats.n_jobs_done, N + 1);
    REQUIRE_EQ_INT(stats.n_prompt_tokens, 1 + 393);
    REQUIRE(stats.n_running == 0 && stats.n_waiting == 0);
    /* a text that does not fit waits, and so do those behind it */
    int at = 1;
    for (size_t i = 0; i < sizeof(want_texts) / sizeof(want_texts[0]); i++, at++)
        REQUIRE_MSG(model.n_texts[at] == want_texts[i] && model.n_rows[at] == want_rows[i],
                    "step %d: %d texts", at, model.n_texts[at]);
    encode_destroy(q);
}

/* A text whose numbers are not finite fails alone. */
static void test_not_finite(void **state)
{
    (void)state;
    struct encode_queue *q = open_queue(100);
    struct test_job *a, *b, *c, *first;
    hold();
    first = submit(q, 0, 1, 0);
    await_step();
    a = submit(q, 1, 5, 0);
    b = submit(q, POISON, 5, 0);
    c = submit(q, 2, 5, 0);
    let_go(-1);
    expect(first, ENG_FINISH_LENGTH);
    expect(a, ENG_FINISH_LENGTH);
    expect(b, ENG_FINISH_ERROR);
    expect(c, ENG_FINISH_LENGTH);
    struct eng_stats stats;
    inbox_stats(encode_inbox(q), &stats);
    REQUIRE_EQ_INT(stats.n_jobs_failed, 1);
    encode_destroy(q);
}

/* The ends of a text that waits: its handle, a choice that is stopped, time, the end of the queue. */
static void test_ends(void **state)
{
    (void)state;
    struct encode_queue *q = open_queue(100);
    hold();
    struct test_job *running = submit(q, 0, 1, 0);
    await_step();
    struct test_job *cancelled = submit(q, 1, 5, 0), *stopped = submit(q, 2, 5, 0);
    struct test_job *late = test_job_new(), *waited = test_job_new();
    struct eng_job_params p = params_of(late, 3, 5);
    p.deadline_us = 1;
    REQUIRE_EQ_INT(try_submit(q, late, &p), 0);
    p = params_of(waited, 4, 5);
    p.queue_deadline_us = 1;
    REQUIRE_EQ_INT(try_submit(q, waited, &p), 0);
    struct test_job *good = submit(q, 5, 5, 0);
    eng_job_cancel(cancelled->handle);
    eng_job_stop_choice(stopped->handle, 0);
    let_go(1);
    expect(running, ENG_FINISH_LENGTH);
    expect(cancelled, ENG_FINISH_CANCELLED);
    expect(stopped, ENG_FINISH_STOP);
    expect(late, ENG_FINISH_DEADLINE);
    expect(waited, ENG_FINISH_QUEUE_TIMEOUT);
    await_step(); /* the good one is in it */
    struct test_job *behind = submit(q, 6, 5, 0), *refused = test_job_new();
    inbox_drain(encode_inbox(q));
    p = params_of(refused, 7, 5);
    REQUIRE_EQ_INT(try_submit(q, refused, &p), ENG_ECLOSED);
    inbox_stop(encode_inbox(q));
    expect(good, ENG_FINISH_CANCELLED);
    expect(behind, ENG_FINISH_CANCELLED);
    test_job_free(refused);
    encode_destroy(q);
}

static void test_refusals(void **state)
{
    (void)state;
    struct encode_queue *q = open_queue(4);
    struct test_job *jobs[TEXTS + 4], *running, *j = test_job_new();
    const struct eng_job_params good = params_of(j, 1, 5);
    struct eng_job_params cases[7];
    for (int i = 0; i < 7; i++)
        cases[i] = good;
    cases[0].n_prompt = 101;
    cases[1].want_pooled = false;
    cases[2].max_tokens = 1;
    cases[3].n_choices = 2;
    cases[4].n_first = 6;
    cases[5].n_unpooled = 5;
    cases[6].want_logits = true;
    static const int want[] = {ENG_ECONTEXT, ENG_EUNSUPPORTED, ENG_EINVAL,      ENG_EINVAL,
                               ENG_EINVAL,   ENG_EINVAL,       ENG_EUNSUPPORTED};
    for (int i = 0; i < 7; i++)
        REQUIRE_MSG(try_submit(q, j, &cases[i]) == want[i], "case %d", i);
    hold();
    running = submit(q, 0, 1, 0);
    await_step();
    for (int i = 0; i < TEXTS + 3; i++) /* a step of them, and three that really wait */
        jobs[i] = submit(q, 1, 5, 0);
    struct eng_job_params p = good;
    p.n_for_others = 1;
    REQUIRE_EQ_INT(try_submit(q, j, &p), ENG_EQUEUEFULL);
    jobs[TEXTS + 3] = submit(q, 1, 5, 0);
    REQUIRE_EQ_INT(try_submit(q, j, &good), ENG_EQUEUEFULL);
    p = good;
    p.n_for_others = ENG_BEFORE_OTHERS;
    REQUIRE_EQ_INT(try_submit(q, j, &p), 0);
    let_go(-1);
    expect(running, ENG_FINISH_LENGTH);
    for (int i = 0; i < TEXTS + 4; i++)
        expect(jobs[i], ENG_FINISH_LENGTH);
    expect(j, ENG_FINISH_LENGTH);
    encode_destroy(q);
}

/* Those that leave half of the queue free leave half of its tokens too; a query passes. */
static void test_parts_leave_room(void **state)
{
    (void)state;
    enum { N = 11 };
    struct encode_queue *q = open_queue(100);
    struct test_job *parts[N], *running, *query;
    hold();
    running = submit(q, 0, 1, 0);
    await_step();
    for (int i = 0; i < N; i++) {
        parts[i] = test_job_new();
        struct eng_job_params p = params_of(parts[i], 1, i < 10 ? 100 : 1);
        p.n_for_others = i > 0 ? 50 : 0;
        REQUIRE_EQ_INT(try_submit(q, parts[i], &p), i == 10 ? ENG_EQUEUEFULL : 0);
    }
    query = submit(q, 3, 16, 0);
    let_go(-1);
    expect(running, ENG_FINISH_LENGTH);
    for (int i = 0; i < N - 1; i++)
        expect(parts[i], ENG_FINISH_LENGTH);
    expect(query, ENG_FINISH_LENGTH);
    test_job_free(parts[N - 1]);
    encode_destroy(q);
}

/* Queries are read while a step of a lower priority rests; then it goes on, and others wait for it. */
static void test_query_beside_bulk(void **state)
{
    (void)state;
    enum { N_BULK = 3, N_QUERIES = ENCODE_URGENT_TEXTS + 1 };
    struct encode_queue *q = open_queue(100);
    struct test_job *bulk[N_BULK], *queries[N_QUERIES];
    hold();
    bulk[0] = submit(q, 1, 100, 9);
    await_step();
    for (int i = 1; i < N_BULK; i++)
        bulk[i] = submit(q, 1 + i, 32, 9);
    for (int i = 0; i < N_QUERIES; i++)
        queries[i] = submit(q, 10 + i, 16, i % 2);
    for (int i = 0; i < N_QUERIES; i++)
        expect(queries[i], ENG_FINISH_LENGTH); /* the bulk job's step is still held */
    int n_steps = model.n_steps;
    let_go(-1);
    for (int i = 0; i < N_BULK; i++)
        expect(bulk[i], ENG_FINISH_LENGTH);
    REQUIRE_EQ_INT(model.first_id[n_steps], 1);
    REQUIRE_EQ_INT(model.n_rows[n_steps], 100);
    REQUIRE_EQ_INT(model.first_id[n_steps + 1], 2);
    encode_destroy(q);
}

/* A step holds no text that is less urgent than its first. */
static void test_steps_of_one_priority(void **state)
{
    (void)state;
    struct encode_queue *q = open_queue(100);
    struct test_job *jobs[4];
    static const int priority[] = {9, 0, 0, 9};
    inbox_pause(encode_inbox(q), true);
    for (int i = 0; i < 4; i++)
        jobs[i] = submit(q, 1 + i, 5, priority[i]);
    inbox_pause(encode_inbox(q), false);
    for (int i = 0; i < 4; i++)
        expect(jobs[i], ENG_FINISH_LENGTH);
    REQUIRE_EQ_INT(model.n_steps, 2);
    REQUIRE(model.n_texts[0] == 2 && model.first_id[0] == 2);
    REQUIRE(model.n_texts[1] == 2 && model.first_id[1] == 1);
    encode_destroy(q);
}

/* A spare text is read when no other waits, and its step rests for one that comes. */
static void test_spare_text(void **state)
{
    (void)state;
    struct encode_queue *q = open_queue(1);
    struct test_job *spare = test_job_new();
    struct eng_job_params p = params_of(spare, 3, 5);
    struct eng_stats stats;
    p.spare = true;
    hold();
    struct test_job *running = submit(q, 0, 1, 0);
    await_step();
    REQUIRE_EQ_INT(try_submit(q, spare, &p), 0);
    struct test_job *other = submit(q, 1, 5, 9);
    let_go(1);
    expect(running, ENG_FINISH_LENGTH);
    await_step();
    let_go(1); /* the other one, alone */
    expect(other, ENG_FINISH_LENGTH);
    await_step();
    REQUIRE(spare->started && !spare->done);
    inbox_stats(encode_inbox(q), &stats);
    REQUIRE(stats.n_running == 1 && stats.n_spare == 1);
    struct test_job *comes = submit(q, 2, 5, 9);
    expect(comes, ENG_FINISH_LENGTH); /* while the spare one rests */
    REQUIRE(!spare->done);
    let_go(-1);
    expect(spare, ENG_FINISH_LENGTH);
    inbox_stop(encode_inbox(q));
    inbox_stats(encode_inbox(q), &stats);
    REQUIRE(stats.n_running == 0 && stats.n_spare == 0);
    encode_destroy(q);
}

static void test_pair(void **state)
{
    (void)state;
    struct encode_queue *q = open_queue(10);
    struct test_job *j = test_job_new();
    struct eng_job_params p = params_of(j, 1, 7);
    p.n_first = 4;
    inbox_pause(encode_inbox(q), true);
    REQUIRE_EQ_INT(try_submit(q, j, &p), 0);
    inbox_pause(encode_inbox(q), false);
    test_job_await_done(j);
    REQUIRE(j->embedding[0] == 740);
    expect(j, ENG_FINISH_LENGTH);
    encode_destroy(q);
    encode_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_parts_leave_room),
        cmocka_unit_test(test_query_beside_bulk),
        cmocka_unit_test(test_steps_of_one_priority),
        cmocka_unit_test(test_spare_text),
        cmocka_unit_test(test_pair),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
