/* SPDX-License-Identifier: MIT */
/*
 * The pool. Its state is one 64-bit word, `claim`:
 *
 *     bits 63..40  number of the open phase, counted over all runs (wraps)
 *     bits 39..20  its items
 *     bits 19..0   the next item to be claimed
 *
 * A thread claims an item by adding 1 and uses the word returned: number, count and item come from
 * one atomic step, so a thread that slept through several phases can only claim an item of the
 * phase that is open now. A thread that holds an item keeps its phase, and so the run, from ending:
 * phases[] and base may be read without a lock. A thread adds only after it has seen an item, so
 * the low field overshoots by at most the number of threads.
 *
 * `done` counts finished items; the thread that brings it to the phase's count opens the next phase
 * by storing a new word. After the last phase a word without items is stored; the caller sees by
 * its number that the run has ended.
 *
 * Threads sleep on a mutex and a condition variable, only after spinning and yielding. A sleeper
 * counts itself and then reads the word again; an opener stores the word and then reads the count
 * (all sequentially consistent), so that one of the two sees the other.
 */
#include "engine/pool.h"

#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/cgroup.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/os_error.h"
#include "base/thread.h"
#include "engine/eng_error.h"

enum { FIELD_BITS = 20 };
static const uint64_t FIELD_MASK = ((uint64_t)1 << FIELD_BITS) - 1;
static const uint64_t NUMBER_MASK = ((uint64_t)1 << 24) - 1;
_Static_assert(POOL_MAX_ITEMS + POOL_MAX_THREADS < 1 << FIELD_BITS,
               "claims overshoot by a thread each");

/* Times after which waiting threads yield and sleep; see "waiting" in tests/bench/AB_LOG.md. */
enum { SPIN_US = 40, YIELD_US = 100, PAUSES_PER_LOOK = 32 };

struct worker {
    struct pool *pool;
    int thread;
    pthread_t handle;
};

struct pool {
    _Alignas(64) _Atomic uint64_t claim;
    _Alignas(64) atomic_int done;
    _Alignas(64) atomic_int n_sleeping;
    atomic_bool quit;
    /* of the current run; written before its first word is stored */
    const struct pool_phase *phases;
    int n_phases;
    const atomic_bool *stop;
    int n_done;    /* phases before the stop */
    uint64_t base; /* number of phases[0] */
    pthread_mutex_t lock;
    pthread_cond_t worker_wake; /* items, or quit */
    pthread_cond_t caller_wake; /* items, or the end of the run */
    int n_threads;
    int n_workers; /* threads made */
    struct worker workers[];
};

static uint64_t word_number(uint64_t word)
{
    return word >> (2 * FIELD_BITS);
}

static uint64_t word_count(uint64_t word)
{
    return (word >> FIELD_BITS) & FIELD_MASK;
}

static uint64_t word_next(uint64_t word)
{
    return word & FIELD_MASK;
}

static bool word_has_item(uint64_t word)
{
    return word_next(word) < word_count(word);
}

static void wake_sleepers(struct pool *p, bool workers)
{
    HOLD(&p->lock);
    if (workers) pthread_cond_broadcast(&p->worker_wake);
    pthread_cond_signal(&p->caller_wake);
}

/* Opens phases[i], or the next one that has items, or ends the run. */
static void open_phase(struct pool *p, int i)
{
    if (p->stop && atomic_load_explicit(p->stop, memory_order_relaxed)) {
        p->n_done = i;
        i = p->n_phases;
    }
    while (i < p->n_phases && p->phases[i].n_items == 0)
        i++;
    uint64_t count = i < p->n_phases ? (uint64_t)p->phases[i].n_items : 0;
    assert(count <= POOL_MAX_ITEMS);
    uint64_t number = (p->base + (uint64_t)i) & NUMBER_MASK;
    atomic_store_explicit(&p->done, 0, memory_order_relaxed);
    atomic_store(&p->claim, number << (2 * FIELD_BITS) | count << FIELD_BITS);
    /* A single item is for the thread that opened it; the end concerns the caller alone. */
    if (count != 1 && atomic_load(&p->n_sleeping) > 0) wake_sleepers(p, count > 0);
}

/* Claims one item and runs it. Returns false if there is none. */
static bool run_item(struct pool *p, int thread)
{
    uint64_t word = atomic_load_explicit(&p->claim, memory_order_relaxed);
    if (!word_has_item(word)) return false;
    word = atomic_fetch_add_explicit(&p->claim, 1, memory_order_acq_rel);
    if (!word_has_item(word)) return false;

    int i = (int)((word_number(word) - p->base) & NUMBER_MASK);
    const struct pool_phase *phase = &p->phases[i];
    phase->fn(phase->arg, (int)word_next(word), thread);
    int done = atomic_fetch_add_explicit(&p->done, 1, memory_order_acq_rel) + 1;
    if ((uint64_t)done == word_count(word)) open_phase(p, i + 1);
    return true;
}

/* ---- waiting ------------------------------------------------------------------------------- */

static void cpu_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

/* Returns true if there is an item or, for the caller, if the run has ended. */
static bool has_news(struct pool *p, bool caller, uint64_t end)
{
    uint64_t word = atomic_load(&p->claim);
    if (word_has_item(word)) return true;
    return caller ? word_number(word) == end : atomic_load(&p->quit);
}

static void sleep_for_news(struct pool *p, bool caller, uint64_t end)
{
    pthread_cond_t *wake = caller ? &p->caller_wake : &p->worker_wake;
    HOLD(&p->lock);
    atomic_fetch_add(&p->n_sleeping, 1);
    while (!has_news(p, caller, end))
        pthread_cond_wait(wake, &p->lock);
    atomic_fetch_sub(&p->n_sleeping, 1);
}

static void wait_for_news(struct pool *p, bool caller, uint64_t end)
{
    uint64_t start = 0;
    for (;;) {
        for (int i = 0; i < PAUSES_PER_LOOK; i++) {
            if (has_news(p, caller, end)) return;
            cpu_pause();
        }
        uint64_t now = clock_now_us();
        if (start == 0) start = now;
        if (now - start > YIELD_US) break;
        if (now - start > SPIN_US) sched_yield();
    }
    sleep_for_news(p, caller, end);
}

/* ---- threads ------------------------------------------------------------------------------- */

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    while (!atomic_load_explicit(&w->pool->quit, memory_order_relaxed))
        if (!run_item(w->pool, w->thread)) wait_for_news(w->pool, false, 0);
    return NULL;
}

int pool_run(struct pool *p, const struct pool_phase *phases, int n_phases, const atomic_bool *stop)
{
    assert(n_phases >= 0 && (uint64_t)n_phases < NUMBER_MASK);
    assert(!word_has_item(atomic_load(&p->claim))); /* one run at a time */
    p->phases = phases;
    p->n_phases = n_phases;
    p->stop = stop;
    p->n_done = n_phases;
    uint64_t end = (p->base + (uint64_t)n_phases) & NUMBER_MASK;
    open_phase(p, 0);
    while (word_number(atomic_load_explicit(&p->claim, memory_order_acquire)) != end)
        if (!run_item(p, 0)) wait_for_news(p, true, end);
    p->base = (end + 1) & NUMBER_MASK;
    return p->n_done;
}

static int start_workers(struct pool *p, char *err, size_t errlen)
{
    int failed = 0;
    for (int i = 0; i < p->n_threads - 1; i++) {
        struct worker *w = &p->workers[i];
        *w = (struct worker){.pool = p, .thread = i + 1};
        failed = thread_start(&w->handle, "hearth-compute", 0, worker_main, w);
        if (failed) break;
        p->n_workers++;
    }
    if (!failed) return 0;
    return fail_with(ENG_ENOMEM, err, errlen, "compute thread %d of %d cannot be started: %s%s",
                     p->n_workers + 2, p->n_threads, strerror(failed), os_error_remedy(failed));
}

int pool_create(struct pool **ret, int n_threads, char *err, size_t errlen)
{
    if (n_threads < 1 || n_threads > POOL_MAX_THREADS)
        return fail_with(ENG_EINVAL, err, errlen, "%d compute threads: must be 1 to %d", n_threads,
                         POOL_MAX_THREADS);
    size_t bytes = sizeof(struct pool) + (size_t)(n_threads - 1) * sizeof(struct worker);
    struct pool *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!p)
        return fail_with(ENG_ENOMEM, err, errlen, "no memory for a pool of %d threads", n_threads);
    memset(p, 0, bytes);
    p->n_threads = n_threads;
    p->base = 1; /* the word is 0 before the first run */
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->worker_wake, NULL);
    pthread_cond_init(&p->caller_wake, NULL);
    int rc = start_workers(p, err, errlen);
    if (rc) {
        pool_destroy(p);
        return rc;
    }
    *ret = p;
    return 0;
}

void pool_destroy(struct pool *p)
{
    if (!p) return;
    atomic_store(&p->quit, true);
    wake_sleepers(p, true);
    for (int i = 0; i < p->n_workers; i++)
        pthread_join(p->workers[i].handle, NULL);
    pthread_cond_destroy(&p->caller_wake);
    pthread_cond_destroy(&p->worker_wake);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

int pool_n_threads(const struct pool *p)
{
    return p->n_threads;
}

/* ---- usable cores -------------------------------------------------------------------------- */

/* Version 2 has quota and period in one file, "max 100000" or "150000 100000"; version 1 in two. */
static void take_quota(void *ctx, const char *dir, int version)
{
    int64_t *best = ctx;
    char line[128], second[64], *end;
    if (!cgroup_read_line(dir, version == 2 ? "cpu.max" : "cpu.cfs_quota_us", line, sizeof(line)) ||
        (version == 1 && !cgroup_read_line(dir, "cpu.cfs_period_us", second, sizeof(second))))
        return;
    int64_t quota = strtoll(line, &end, 10);
    int64_t period = strtoll(version == 2 ? end : second, NULL, 10);
    if (quota <= 0 || period <= 0) return;
    int64_t cores = (quota - 1) / period + 1;
    if (cores < *best) *best = cores;
}

static int affinity_cores(void)
{
    enum { MAX_CPUS = 16384 };
    cpu_set_t *set = CPU_ALLOC(MAX_CPUS);
    if (!set) return 1;
    size_t bytes = CPU_ALLOC_SIZE(MAX_CPUS);
    int n = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 1;
    CPU_FREE(set);
    return n;
}

int pool_usable_cores(const char *root)
{
    int64_t n = affinity_cores();
    cgroup_visit(root, "cpu", take_quota, &n);
    if (n > POOL_MAX_THREADS) n = POOL_MAX_THREADS;
    return n < 1 ? 1 : (int)n;
}
