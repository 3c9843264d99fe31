/* SPDX-License-Identifier: MIT */
/*
 * The inbox without a scheduler: who is refused, which waiting jobs must end, what wakes the
 * thread. The test plays the scheduler's thread.
 */
#include "engine/inbox.h"

#include <string.h>

#include "base/clock.h"
#include "engine/eng_error.h"
#include "test.h"

enum { CTX = 64, VOCAB = 10, MAX_JOBS = 3, MAX_TOKENS = 40, SECOND_US = 1000000 };

struct scheduler {
    struct inbox in;
    int n_free;   /* jobs that start at once */
    int n_submit; /* calls of on_submit */
    atomic_int n_stop, n_rounds;
    bool run_once;
};

static const int32_t prompt[CTX];

static void on_event(void *ctx, const struct eng_event *e)
{
    (void)ctx;
    (void)e;
}

static bool starts_at_once(void *ctx, const struct backlog *waiting, struct eng_job *job)
{
    struct scheduler *s = ctx;
    job->waits = waiting->n_seqs >= s->n_free;
    return !job->waits;
}

static void on_submit(void *ctx)
{
    ((struct scheduler *)ctx)->n_submit++;
}

static void on_stop(void *ctx)
{
    atomic_fetch_add(&((struct scheduler *)ctx)->n_stop, 1);
}

static void open_inbox(struct scheduler *s, int n_free, int n_step_jobs)
{
    memset(s, 0, sizeof(*s));
    s->n_free = n_free;
    struct inbox_params p = {
        .limits = {.vocab = VOCAB, .ctx = CTX, .max_choices = 4, .no_prefix_cache = true},
        .max_jobs = MAX_JOBS,
        .n_step_jobs = n_step_jobs,
        .max_tokens = MAX_TOKENS,
        .starts_at_once = starts_at_once,
        .on_submit = on_submit,
        .on_stop = on_stop,
        .ctx = s,
    };
    inbox_init(&s->in, &p);
}

static struct eng_job_params job_params(int64_t n_prompt, int n_choices)
{
    return (struct eng_job_params){.prompt = prompt,
                                   .n_prompt = n_prompt,
                                   .n_choices = n_choices,
                                   .max_tokens = 1,
                                   .sampling = eng_sampling_default(),
                                   .n_logprobs = -1,
                                   .n_prompt_logprobs = -1,
                                   .on_event = on_event};
}

static int try_submit(struct scheduler *s, const struct eng_job_params *p, struct eng_job **ret)
{
    char err[200] = "";
    int rc = inbox_submit(&s->in, p, ret, err, sizeof(err));
    REQUIRE((rc == 0) == (err[0] == '\0'));
    return rc;
}

static struct eng_job *submit(struct scheduler *s, int64_t n_prompt, int n_choices)
{
    struct eng_job *job = NULL;
    struct eng_job_params p = job_params(n_prompt, n_choices);
    REQUIRE_EQ_INT(try_submit(s, &p, &job), 0);
    return job;
}

/* Both references: the caller's and the scheduler's. */
static void drop(struct eng_job *job)
{
    eng_job_release(job);
    eng_job_release(job);
}

static void close_inbox(struct scheduler *s)
{
    struct eng_job *job;
    enum eng_finish finish;
    atomic_store(&s->in.closing, true);
    while ((job = inbox_take_ended(&s->in, 0, &finish))) {
        REQUIRE_EQ_INT(finish, ENG_FINISH_CANCELLED);
        drop(job);
    }
    inbox_finish(&s->in);
}

static void the_queue_is_bounded_by_requests(void **state)
{
    (void)state;
    struct scheduler s;
    struct eng_job *job[8];
    struct eng_job_params p = job_params(1, 1);
    open_inbox(&s, 2, 0);
    for (int i = 0; i < 2 + MAX_JOBS; i++)
        job[i] = submit(&s, 1, 1);
    REQUIRE_EQ_INT(s.n_submit, 2 + MAX_JOBS);
    REQUIRE_EQ_INT(try_submit(&s, &p, &job[5]), ENG_EQUEUEFULL);
    REQUIRE_EQ_INT(s.n_submit, 2 + MAX_JOBS);
    p.n_for_others = ENG_BEFORE_OTHERS; /* of a request that was admitted */
    REQUIRE_EQ_INT(try_submit(&s, &p, &job[5]), 0);
    p.n_for_others = 0;
    eng_job_cancel(job[5]); /* a cancelled job leaves its place at once, */
    REQUIRE_EQ_INT(try_submit(&s, &p, &job[6]), ENG_EQUEUEFULL);
    eng_job_cancel(job[4]);
    REQUIRE_EQ_INT(try_submit(&s, &p, &job[6]), 0);
    struct eng_stats st; /* and is in no count */
    inbox_stats(&s.in, &st);
    REQUIRE_EQ_INT(st.n_waiting, 2 + MAX_JOBS);
    REQUIRE_EQ_INT(st.n_waiting_tokens, MAX_JOBS);
    p.n_for_others = 1;
    eng_job_cancel(job[6]);
    REQUIRE_EQ_INT(try_submit(&s, &p, &job[7]), ENG_EQUEUEFULL);
    close_inbox(&s);
}

static void the_queue_is_bounded_by_tokens(void **state)
{
    (void)state;
    struct scheduler s;
    struct eng_job *job;
    struct eng_job_params p = job_params(MAX_TOKENS - 29, 1);
    open_inbox(&s, 1, 0);
    submit(&s, CTX, 1); /* starts at once, so its length does not count */
    submit(&s, 30, 1);
    REQUIRE_EQ_INT(try_submit(&s, &p, &job), ENG_EQUEUEFULL);
    p.n_prompt--;
    REQUIRE_EQ_INT(try_submit(&s, &p, &job), 0);
    close_inbox(&s);
}

/* Of three places the job leaves so many, of 40 tokens the same share. */
static void places_for_others_have_tokens(void **state)
{
    (void)state;
    static const struct {
        int n_for_others, most_tokens;
    } rows[] = {{0, 40}, {1, 27}, {2, 14}};
    struct eng_job *job;
    for (size_t i = 0; i < N_OF(rows); i++) {
        struct scheduler s;
        open_inbox(&s, 1, 0);
        submit(&s, 1, 1);
        struct eng_job_params p = job_params(rows[i].most_tokens + 1, 1);
        p.n_for_others = rows[i].n_for_others;
        REQUIRE_EQ_INT(try_submit(&s, &p, &job), ENG_EQUEUEFULL);
        p.n_prompt--;
        REQUIRE_EQ_INT(try_submit(&s, &p, &job), 0);
        close_inbox(&s);
    }
}

/* One choice waits, but the prompt has been admitted and does not count any more. */
static void a_job_that_has_started_counts_as_sequences(void **state)
{
    (void)state;
    struct scheduler s;
    struct eng_stats st;
    open_inbox(&s, 0, 0);
    submit(&s, 10, 2)->n_admitted = 1;
    submit(&s, 5, 3);
    inbox_stats(&s.in, &st);
    REQUIRE_EQ_INT(st.n_waiting, 1 + 3);
    REQUIRE_EQ_INT(st.n_waiting_tokens, 5);
    close_inbox(&s);
}

static void the_next_step_takes_some(void **state)
{
    (void)state;
    struct scheduler s;
    struct eng_job *job;
    struct eng_job_params p = job_params(1, 1);
    open_inbox(&s, 0, 2);
    for (int i = 0; i < 2 + MAX_JOBS; i++)
        submit(&s, 1, 1);
    REQUIRE_EQ_INT(try_submit(&s, &p, &job), ENG_EQUEUEFULL);
    close_inbox(&s);
}

static void waiting_jobs_end_in_order(void **state)
{
    (void)state;
    struct scheduler s;
    struct eng_job *late, *waited, *stopped, *started, *cancelled, *got;
    enum eng_finish finish = 0;
    struct eng_job_params p = job_params(1, 1);
    open_inbox(&s, 10, 0);
    p.deadline_us = SECOND_US;
    REQUIRE_EQ_INT(try_submit(&s, &p, &late), 0);
    p = job_params(1, 1);
    p.queue_deadline_us = SECOND_US;
    REQUIRE_EQ_INT(try_submit(&s, &p, &waited), 0);
    p.n_choices = 2;
    REQUIRE_EQ_INT(try_submit(&s, &p, &started), 0);
    started->n_admitted = 1; /* its first choice runs: it waits no longer */
    stopped = submit(&s, 1, 1);
    eng_job_stop_choice(stopped, 0);
    cancelled = submit(&s, 1, 1);
    eng_job_cancel(cancelled);
    struct eng_job *both = submit(&s, 1, 2);
    eng_job_stop_choice(both, 0); /* the other choice is to run */
    const struct {
        struct eng_job *job;
        enum eng_finish finish;
    } before[] = {{stopped, ENG_FINISH_STOP}, {cancelled, ENG_FINISH_CANCELLED}},
      after[] = {{late, ENG_FINISH_DEADLINE}, {waited, ENG_FINISH_QUEUE_TIMEOUT}};
    for (int i = 0; i < 2; i++) {
        REQUIRE((got = inbox_take_ended(&s.in, SECOND_US - 1, &finish)) == before[i].job);
        REQUIRE_EQ_INT(finish, before[i].finish);
        drop(got);
    }
    REQUIRE(!inbox_take_ended(&s.in, SECOND_US - 1, &finish));
    for (int i = 0; i < 2; i++) {
        REQUIRE((got = inbox_take_ended(&s.in, SECOND_US, &finish)) == after[i].job);
        REQUIRE_EQ_INT(finish, after[i].finish);
        drop(got);
    }
    REQUIRE(!inbox_take_ended(&s.in, SECOND_US, &finish));
    close_inbox(&s);
}

/* Rounds of a scheduler that admits what waits. */
static void *run(void *arg)
{
    struct scheduler *s = arg;
    struct eng_job *job;
    enum eng_finish finish;
    while (inbox_await(&s->in, false)) {
        while ((job = inbox_take_ended(&s->in, 0, &finish)))
            eng_job_release(job);
        pthread_mutex_lock(&s->in.lock);
        job = s->in.queue.head;
        if (job) queue_remove(&s->in.queue, job);
        pthread_mutex_unlock(&s->in.lock);
        if (job) eng_job_release(job);
        atomic_fetch_add(&s->n_rounds, 1);
        struct eng_stats st = {.n_steps = (uint64_t)atomic_load(&s->n_rounds)};
        inbox_publish(&s->in, &st);
    }
    return NULL;
}

static void await_rounds(struct scheduler *s, uint64_t n)
{
    struct eng_stats st;
    do {
        inbox_stats(&s->in, &st);
    } while (st.n_steps < n);
}

static void jobs_and_news_wake_the_thread(void **state)
{
    (void)state;
    struct scheduler s;
    open_inbox(&s, 10, 0);
    char err[200];
    REQUIRE_EQ_INT(inbox_start(&s.in, "test-inbox", run, &s, err, sizeof(err)), 0);
    eng_job_release(submit(&s, 1, 1));
    await_rounds(&s, 1);
    inbox_tell(&s.in);
    await_rounds(&s, 2);
    inbox_pause(&s.in, true);
    eng_job_release(submit(&s, 1, 1));
    inbox_tell(&s.in);
    struct eng_stats st;
    inbox_stats(&s.in, &st);
    REQUIRE_EQ_INT(st.n_waiting, 1); /* still, whoever was told */
    inbox_pause(&s.in, false);
    await_rounds(&s, 3);
    inbox_drain(&s.in);
    struct eng_job_params p = job_params(1, 1);
    struct eng_job *job;
    REQUIRE_EQ_INT(try_submit(&s, &p, &job), ENG_ECLOSED);
    inbox_stop(&s.in);
    REQUIRE_EQ_INT(atomic_load(&s.n_stop), 1);
    inbox_stop(&s.in); /* a second time does nothing */
    REQUIRE_EQ_INT(atomic_load(&s.n_stop), 1);
    inbox_finish(&s.in);
}

static void news_end_a_wait(void **state)
{
    (void)state;
    struct scheduler s;
    open_inbox(&s, 10, 0);
    inbox_tell(&s.in);
    inbox_await_news(&s.in, 100000); /* told before: at once */
    uint64_t start = clock_now_us();
    inbox_await_news(&s.in, 5); /* not told again: the time ends it */
    REQUIRE(clock_now_us() - start >= 4000);
    atomic_store(&s.in.closing, true);
    REQUIRE(inbox_await(&s.in, true)); /* what runs is to be ended first */
    REQUIRE(!inbox_await(&s.in, false));
    inbox_finish(&s.in);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_queue_is_bounded_by_requests),
        cmocka_unit_test(the_queue_is_bounded_by_tokens),
        cmocka_unit_test(places_for_others_have_tokens),
        cmocka_unit_test(a_job_that_has_started_counts_as_sequences),
        cmocka_unit_test(the_next_step_takes_some),
        cmocka_unit_test(waiting_jobs_end_in_order),
        cmocka_unit_test(jobs_and_news_wake_the_thread),
        cmocka_unit_test(news_end_a_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
