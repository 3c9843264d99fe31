/* SPDX-License-Identifier: MIT */
/*
 * Every allocating call of the engine comes through here (the linker sends it, see meson.build).
 *
 * Nothing is allocated on the token path: calls are counted while jobs of all kinds generate. And
 * where memory cannot be had, opening and submitting say so and leave nothing behind: each call in
 * turn is made to fail.
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
static atomic_int fail_at; /* the number of the call that fails; 0: none */

static bool may_allocate(void)
{
    return atomic_fetch_add(&n_allocations, 1) + 1 != atomic_load(&fail_at);
}

void *__wrap_malloc(size_t n)
{
    return may_allocate() ? __real_malloc(n) : NULL;
}

void *__wrap_calloc(size_t n, size_t size)
{
    return may_allocate() ? __real_calloc(n, size) : NULL;
}

void *__wrap_realloc(void *p, size_t n)
{
    return may_allocate() ? __real_realloc(p, n) : NULL;
}

void *__wrap_aligned_alloc(size_t align, size_t n)
{
    return may_allocate() ? __real_aligned_alloc(align, n) : NULL;
}

static int open_engine(struct eng **ret, int n_parallel, char *err, size_t errlen)
{
    char dir[1000];
    snprintf(dir, sizeof(dir), "%s/tests/golden/models/llama-bias-tied-f32", test_source_root());
    struct eng_params params = {.model_dir = dir, .n_threads = 2, .n_parallel = n_parallel};
    return eng_open(ret, &params, err, errlen);
}

/* A guide that allows every other id, and never an end. ctx: the size of the vocabulary. */
static enum eng_guide_next odd_ids(void *ctx, uint64_t *bits, struct eng_pace *pace)
{
    (void)pace;
    const int32_t *vocab = ctx;
    memset(bits, 0, ((size_t)*vocab + 63) / 64 * sizeof(*bits));
    for (int32_t id = 1; id < *vocab; id += 2)
        bits[id / 64] |= 1ull << id % 64;
    return ENG_GUIDE_MASK;
}

static bool take_odd(void *ctx, int32_t id)
{
    (void)ctx;
    return id % 2 == 1;
}

static bool never(void *ctx)
{
    (void)ctx;
    return false;
}

static void test_nothing_is_allocated(void **state)
{
    (void)state;
    enum { N_JOBS = 8, N_PROMPT = 60, N_NEW = 150, N_COUNTED = 100 };
    char err[500] = "";
    struct eng *e = NULL;
    REQUIRE_MSG(open_engine(&e, N_JOBS, err, sizeof(err)) == 0, "%s", err);
    static struct test_job jobs[N_JOBS];
    int32_t prompt[N_PROMPT], vocab = eng_info(e)->vocab_size;
    struct eng_guide guide = {.ctx = &vocab, .mask = odd_ids, .take = take_odd, .complete = never};
    for (int i = 0; i < N_PROMPT; i++)
        prompt[i] = i % 50 + 3;
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
        if (i >= 6) p.guides = &guide;
        test_job_submit(e, &jobs[i], &p);
    }
    int before_start = atomic_load(&n_allocations);
    REQUIRE_MSG(before_start > 0, "the count does not count");
    eng_debug_pause(e, false);
    for (int i = 0; i < N_JOBS; i++)
        test_job_await_tokens(&jobs[i], 1);
    int before = atomic_load(&n_allocations);
    for (int i = 0; i < N_JOBS; i++)
        test_job_await_tokens(&jobs[i], N_COUNTED);
    int after = atomic_load(&n_allocations);
    REQUIRE_EQ_INT(after - before, 0);
    REQUIRE_EQ_INT(before - before_start, 0); /* nor while prompts are computed */
    for (int i = 0; i < N_JOBS; i++) {
        test_job_finish(&jobs[i]);
        REQUIRE_EQ_INT(jobs[i].n_ids[0], N_NEW);
        for (int k = 0; k < N_NEW && i >= 6; k++)
            REQUIRE(jobs[i].ids[0][k] % 2 == 1);
    }
    eng_close(e);
}

/* Opening with the k-th allocation failing, for every k there is. */
static void test_opening_without_memory(void **state)
{
    (void)state;
    int n_failed = 0;
    for (int k = 1;; k++) {
        struct eng *e = NULL;
        char err[500] = "";
        atomic_store(&n_allocations, 0);
        atomic_store(&fail_at, k);
        int rc = open_engine(&e, 2, err, sizeof(err));
        bool reached = atomic_load(&n_allocations) >= k;
        atomic_store(&fail_at, 0);
        if (rc) {
            REQUIRE_MSG(rc == ENG_ENOMEM, "allocation %d: %d, %s", k, rc, err);
            REQUIRE_MSG(err[0] && !e, "allocation %d", k);
            n_failed++;
        }
        eng_close(e);
        if (!reached) break;
    }
    REQUIRE(n_failed > 20);
}

static void test_submitting_without_memory(void **state)
{
    (void)state;
    char err[500] = "";
    struct eng *e = NULL;
    struct test_job job;
    static const int32_t prompt[] = {1, 2, 3};
    REQUIRE_MSG(open_engine(&e, 1, err, sizeof(err)) == 0, "%s", err);
    struct eng_job_params p = test_job_params(&job, prompt, 3, 5);
    atomic_store(&n_allocations, 0);
    atomic_store(&fail_at, 1);
    REQUIRE_EQ_INT(eng_job_submit(e, &p, &job.handle, err, sizeof(err)), ENG_ENOMEM);
    REQUIRE(err[0]);
    atomic_store(&fail_at, 0);
    test_job_submit(e, &job, &p);
    test_job_finish(&job);
    REQUIRE_EQ_INT(job.n_ids[0], 5);
    eng_close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_allocated),
        cmocka_unit_test(test_opening_without_memory),
        cmocka_unit_test(test_submitting_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
