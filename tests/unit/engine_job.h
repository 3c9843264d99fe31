/* SPDX-License-Identifier: MIT */
/* One greedy job on a real engine, for tests: submit, wait, look. */
#ifndef HEARTH_TESTS_ENGINE_JOB_H
#define HEARTH_TESTS_ENGINE_JOB_H

#include <pthread.h>

#include "engine/engine.h"
#include "test.h"

enum { TEST_JOB_MAX_TOKENS = 1024 };

struct test_job {
    struct eng_job *handle;
    int32_t ids[TEST_JOB_MAX_TOKENS];
    int n_ids;
    enum eng_finish finish;
    struct eng_usage usage;
    bool started, done;
    pthread_mutex_t lock;
    pthread_cond_t changed;
};

static inline void test_job_event(void *ctx, const struct eng_event *e)
{
    struct test_job *j = ctx;
    pthread_mutex_lock(&j->lock);
    if (e->type == ENG_EVENT_STARTED) j->started = true;
    if (e->type == ENG_EVENT_TOKEN && j->n_ids < TEST_JOB_MAX_TOKENS) j->ids[j->n_ids++] = e->id;
    if (e->type == ENG_EVENT_CHOICE_DONE) j->finish = e->finish;
    if (e->type == ENG_EVENT_JOB_DONE) {
        j->usage = *e->usage;
        j->done = true;
    }
    pthread_cond_broadcast(&j->changed);
    pthread_mutex_unlock(&j->lock);
}

/* Greedy, without end tokens; the test may change the parameters before it submits. */
static inline struct eng_job_params test_job_params(struct test_job *j, const int32_t *prompt,
                                                    int64_t n_prompt, int64_t max_tokens)
{
    memset(j, 0, sizeof(*j));
    pthread_mutex_init(&j->lock, NULL);
    pthread_cond_init(&j->changed, NULL);
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

static inline void test_job_submit(struct eng *e, struct test_job *j,
                                   const struct eng_job_params *p)
{
    char err[300] = "";
    int rc = eng_job_submit(e, p, &j->handle, err, sizeof(err));
    REQUIRE_MSG(rc == 0, "%s", err);
}

/* Waits for n tokens, or the end. */
static inline void test_job_await_tokens(struct test_job *j, int n)
{
    pthread_mutex_lock(&j->lock);
    while (j->n_ids < n && !j->done)
        pthread_cond_wait(&j->changed, &j->lock);
    pthread_mutex_unlock(&j->lock);
}

static inline void test_job_await_started(struct test_job *j)
{
    pthread_mutex_lock(&j->lock);
    while (!j->started)
        pthread_cond_wait(&j->changed, &j->lock);
    pthread_mutex_unlock(&j->lock);
}

static inline void test_job_finish(struct test_job *j)
{
    pthread_mutex_lock(&j->lock);
    while (!j->done)
        pthread_cond_wait(&j->changed, &j->lock);
    pthread_mutex_unlock(&j->lock);
    eng_job_release(j->handle);
    pthread_mutex_destroy(&j->lock);
    pthread_cond_destroy(&j->changed);
}

#endif
