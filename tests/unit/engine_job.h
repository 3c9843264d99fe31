/* SPDX-License-Identifier: MIT */
/*
 * One job of an engine or a scheduler, for tests: submit, wait, look. Records every event and fails
 * on one that must not come.
 */
#pragma once

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "test.h"

enum { TEST_JOB_CHOICES = 4, TEST_JOB_MAX_TOKENS = 1024 };

struct test_job {
    struct eng_job *handle;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool started, done;
    int started_at; /* place among all jobs started, see test_jobs_started */
    int32_t ids[TEST_JOB_CHOICES][TEST_JOB_MAX_TOKENS];
    float logprob[TEST_JOB_CHOICES][TEST_JOB_MAX_TOKENS];
    int predicted[TEST_JOB_CHOICES][TEST_JOB_MAX_TOKENS];
    int n_ids[TEST_JOB_CHOICES];
    enum eng_finish finish[TEST_JOB_CHOICES];
    int32_t stop_id[TEST_JOB_CHOICES];
    int n_choices_done;
    struct eng_event *prompt_tokens; /* [n_prompt_tokens] */
    int n_prompt_tokens;
    float *rows; /* [n_rows][row_len], by position */
    int n_rows;
    int64_t row_len;
    float *embedding;
    struct eng_usage usage;
    int64_t n_progress;
    int n_progress_events;
    int cancel_at; /* cancel from the callback at this token; 0: never */
    int stop_at;   /* stop the choice likewise */
};

static int test_jobs_started; /* scheduler thread */

static inline void *test_job_append(void *list, int n, const void *item, size_t size)
{
    char *grown = realloc(list, ((size_t)n + 1) * size);
    memcpy(grown + (size_t)n * size, item, size);
    return grown;
}

static inline void test_job_take_token(struct test_job *j, const struct eng_event *e)
{
    int i = e->choice, n = j->n_ids[i]++;
    assert_int_equal(e->index, n);
    j->ids[i][n] = e->id;
    j->logprob[i][n] = e->logprob;
    j->predicted[i][n] = e->predicted;
    if (j->cancel_at == n + 1) eng_job_cancel(j->handle);
    if (j->stop_at == n + 1) eng_job_stop_choice(j->handle, i);
}

static inline void test_job_take_event(struct test_job *j, const struct eng_event *e)
{
    int i = e->choice;
    switch (e->type) {
    case ENG_EVENT_STARTED:
        j->started = true;
        j->started_at = test_jobs_started++;
        break;
    case ENG_EVENT_PROMPT_TOKEN:
        j->prompt_tokens = test_job_append(j->prompt_tokens, j->n_prompt_tokens++, e, sizeof(*e));
        break;
    case ENG_EVENT_TOKEN: test_job_take_token(j, e); break;
    case ENG_EVENT_LOGITS:
        assert_int_equal(e->index, j->n_rows);
        j->row_len = e->n_logits;
        j->rows = test_job_append(j->rows, j->n_rows++, e->logits,
                                  (size_t)e->n_logits * sizeof(*j->rows));
        break;
    case ENG_EVENT_POOLED:
        j->embedding = test_job_append(j->embedding, 0, e->logits,
                                       (size_t)e->n_logits * sizeof(*j->embedding));
        break;
    case ENG_EVENT_PROGRESS:
        REQUIRE(e->index > j->n_progress && e->usage->n_cached_tokens <= e->index);
        REQUIRE_EQ_INT(j->n_ids[i], 0);
        j->n_progress = e->index;
        j->n_progress_events++;
        break;
    case ENG_EVENT_CHOICE_DONE:
        assert_int_equal(j->finish[i], 0);
        j->finish[i] = e->finish;
        j->stop_id[i] = e->stop_id;
        j->n_choices_done++;
        break;
    case ENG_EVENT_JOB_DONE:
        j->usage = *e->usage;
        j->done = true;
        break;
    }
}

static inline void test_job_event(void *ctx, const struct eng_event *e)
{
    struct test_job *j = ctx;
    pthread_mutex_lock(&j->lock);
    assert_false(j->done);
    test_job_take_event(j, e);
    pthread_cond_broadcast(&j->changed);
    pthread_mutex_unlock(&j->lock);
}

static inline void test_job_init(struct test_job *j)
{
    memset(j, 0, sizeof(*j));
    pthread_mutex_init(&j->lock, NULL);
    pthread_cond_init(&j->changed, NULL);
}

static inline struct test_job *test_job_new(void)
{
    struct test_job *j = malloc(sizeof(*j));
    test_job_init(j);
    return j;
}

/* Greedy, without end tokens; the test may change the parameters before it submits. */
static inline struct eng_job_params test_job_greedy(struct test_job *j, const int32_t *prompt,
                                                    int64_t n_prompt, int64_t max_tokens)
{
    struct eng_job_params p = {
        .prompt = prompt,
        .n_prompt = n_prompt,
        .n_choices = 1,
        .max_tokens = max_tokens,
        .sampling = eng_sampling_default(),
        .ignore_eos = true,
        .n_logprobs = -1,
        .n_prompt_logprobs = -1,
        .on_event = test_job_event,
        .ctx = j,
    };
    p.sampling.temperature = 0;
    return p;
}

/* The same for a job that was not initialised. */
static inline struct eng_job_params test_job_params(struct test_job *j, const int32_t *prompt,
                                                    int64_t n_prompt, int64_t max_tokens)
{
    test_job_init(j);
    return test_job_greedy(j, prompt, n_prompt, max_tokens);
}

static inline void test_job_submit(struct eng *e, struct test_job *j,
                                   const struct eng_job_params *p)
{
    char err[300] = "";
    int rc = eng_job_submit(e, p, &j->handle, err, sizeof(err));
    REQUIRE_MSG(rc == 0, "%s", err);
}

/* Waits for n tokens of the first choice, or the end. */
static inline void test_job_await_tokens(struct test_job *j, int n)
{
    pthread_mutex_lock(&j->lock);
    while (j->n_ids[0] < n && !j->done)
        pthread_cond_wait(&j->changed, &j->lock);
    pthread_mutex_unlock(&j->lock);
}

static inline void test_job_await(struct test_job *j, const bool *flag)
{
    pthread_mutex_lock(&j->lock);
    while (!*flag)
        pthread_cond_wait(&j->changed, &j->lock);
    pthread_mutex_unlock(&j->lock);
}

static inline void test_job_await_started(struct test_job *j)
{
    test_job_await(j, &j->started);
}

static inline void test_job_await_done(struct test_job *j)
{
    test_job_await(j, &j->done);
}

static inline void test_job_destroy(struct test_job *j)
{
    eng_job_release(j->handle);
    pthread_mutex_destroy(&j->lock);
    pthread_cond_destroy(&j->changed);
    free(j->prompt_tokens);
    free(j->rows);
    free(j->embedding);
}

static inline void test_job_finish(struct test_job *j)
{
    test_job_await_done(j);
    test_job_destroy(j);
}

static inline void test_job_free(struct test_job *j)
{
    test_job_destroy(j);
    free(j);
}
