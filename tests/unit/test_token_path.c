/* SPDX-License-Identifier: MIT */
/*
 * Nothing is allocated on the token path: every allocating call of the engine is counted (the linker
 * sends them here, see meson.build) while jobs of all kinds generate, from the first token of the
 * last of them to the last token of the first.
 */
#include "test.h"

#include <stdatomic.h>

#include "engine/engine.h"
#include "engine_job.h"

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_aligned_alloc(size_t align, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);

static atomic_int n_allocations;

void *__wrap_malloc(size_t n)
{
    atomic_fetch_add(&n_allocations, 1);
    return __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    atomic_fetch_add(&n_allocations, 1);
    return __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    atomic_fetch_add(&n_allocations, 1);
    return __real_realloc(p, n);
}

void *__wrap_aligned_alloc(size_t align, size_t n)
{
    atomic_fetch_add(&n_allocations, 1);
    return __real_aligned_alloc(align, n);
}

static void test_nothing_is_allocated(void **state)
{
    (void)state;
    enum { N_JOBS = 6, N_PROMPT = 60, N_NEW = 150, N_COUNTED = 100 };
    char dir[1000], err[500] = "";
    snprintf(dir, sizeof(dir), "%s/tests/golden/models/llama-bias-tied-f32", test_source_root());
    struct eng *e = NULL;
    struct eng_params params = {.model_dir = dir, .n_threads = 2, .n_parallel = N_JOBS};
    REQUIRE_MSG(eng_open(&e, &params, err, sizeof(err)) == 0, "%s", err);
    static struct test_job jobs[N_JOBS];
    int32_t prompt[N_PROMPT];
    for (int i = 0; i < N_PROMPT; i++) prompt[i] = i % 50 + 3;
    eng_debug_pause(e, true);
    for (int i = 0; i < N_JOBS; i++) {
        struct eng_job_params p = test_job_params(&jobs[i], prompt, N_PROMPT - i, N_NEW);
        struct eng_sampling *s = &p.sampling;
        s->temperature = i == 0 ? 0.0f : 1.0f;
        s->top_k = i == 1 ? 40 : 0;
        s->top_p = i == 2 ? 0.9f : 1.0f;
        s->typical_p = i == 3 ? 0.8f : 1.0f;
        s->repetition_penalty = i == 4 ? 1.1f : 1.0f;
        p.n_logprobs = i == 5 ? 20 : -1;
        test_job_submit(e, &jobs[i], &p);
    }
    int before_start = atomic_load(&n_allocations);
    REQUIRE_MSG(before_start > 0, "the count does not count");
    eng_debug_pause(e, false);
    for (int i = 0; i < N_JOBS; i++) test_job_await_tokens(&jobs[i], 1);
    int before = atomic_load(&n_allocations);
    for (int i = 0; i < N_JOBS; i++) test_job_await_tokens(&jobs[i], N_COUNTED);
    int after = atomic_load(&n_allocations);
    REQUIRE_EQ_INT(after - before, 0);
    REQUIRE_EQ_INT(before - before_start, 0); /* nor while prompts are computed */
    for (int i = 0; i < N_JOBS; i++) {
        test_job_finish(&jobs[i]);
        REQUIRE_EQ_INT(jobs[i].n_ids, N_NEW);
    }
    eng_close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_nothing_is_allocated)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
