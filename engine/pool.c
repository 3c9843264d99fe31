/* SPDX-License-Identifier: MIT */
/*
 * The pool. Everything turns on one 64-bit word, `claim`:
 *
 *     bits 63..40  number of the open phase, counted on over all runs (wraps)
 *     bits 39..20  its items
 *     bits 19..0   the next item to be claimed
 *
 * A thread claims by adding 1 and looks at the word it got back: number, count and item come from
 * one atomic step, so that a thread which slept through several phases can only claim an item of
 * the phase open at that moment, never a stale one. Whoever holds an item keeps its phase, and so
 * the run, from ending: phases[] and base may be read without a lock. The add is made only after
 * a look that found an item, so that the low field overshoots by at most the number of threads.
 *
 * `done` counts finished items; the thread that brings it to the phase's count opens the next phase
 * by storing a new word. After the last phase a word without items is stored, whose number tells
 * the caller that the run is over.
 *
 * Sleeping is a mutex and a condition variable, used only after spinning and yielding. A sleeper
 * counts itself and then looks at the word again; an opener stores the word and then looks at the
 * count (all sequentially consistent), so that one of the two sees the other.
 */
#include "engine/pool.h"

#include <limits.h>
#include <pthread.h> /* and with it the system's scheduler.h */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/engine.h"

enum { FIELD_BITS = 20 };
static const uint64_t FIELD_MASK = ((uint64_t)1 << FIELD_BITS) - 1;
static const uint64_t NUMBER_MASK = ((uint64_t)1 << 24) - 1;

/* How long to wait in which way, measured: see "waiting" in tests/bench/AB_LOG.md. */
enum { SPIN_NS = 40000, YIELD_NS = 100000, PAUSES_PER_LOOK = 32 };

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
    /* of the present run; written before its first word is stored */
    const struct pool_phase *phases;
    int n_phases;
    const atomic_bool *stop;
    bool stopped;
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
    pthread_mutex_lock(&p->lock);
    if (workers) pthread_cond_broadcast(&p->worker_wake);
    pthread_cond_signal(&p->caller_wake);
    pthread_mutex_unlock(&p->lock);
}

/* Opens phases[i], or the next one that has items, or ends the run. */
static void open_phase(struct pool *p, int i)
{
    if (p->stop && atomic_load_explicit(p->stop, memory_order_relaxed)) p->stopped = true;
    while (i < p->n_phases && (p->stopped || p->phases[i].n_items == 0))
        i++;
    uint64_t count = i < p->n_phases ? (uint64_t)p->phases[i].n_items : 0;
    uint64_t number = (p->base + (uint64_t)i) & NUMBER_MASK;
    atomic_store_explicit(&p->done, 0, memory_order_relaxed);
    atomic_store(&p->claim, number << (2 * FIELD_BITS) | count << FIELD_BITS);
    /* A single item is for whoever opened it; the end concerns the caller alone. */
    if (count != 1 && atomic_load(&p->n_sleeping) > 0) wake_sleepers(p, count > 0);
}

/* Claims one item and runs it; false when there was none. */
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

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* What a thread waits for: an item, and the caller also for the end of the run. */
static bool has_news(struct pool *p, bool caller, uint64_t end)
{
    uint64_t word = atomic_load(&p->claim);
    if (word_has_item(word)) return true;
    return caller ? word_number(word) == end : atomic_load(&p->quit);
}

static void sleep_for_news(struct pool *p, bool caller, uint64_t end)
{
    pthread_cond_t *wake = caller ? &p->caller_wake : &p->worker_wake;
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->n_sleeping, 1);
    while (!has_news(p, caller, end))
        pthread_cond_wait(wake, &p->lock);
    atomic_fetch_sub(&p->n_sleeping, 1);
    pthread_mutex_unlock(&p->lock);
}

static void wait_for_news(struct pool *p, bool caller, uint64_t end)
{
    int64_t start = 0;
    for (;;) {
        for (int i = 0; i < PAUSES_PER_LOOK; i++) {
            if (has_news(p, caller, end)) return;
            cpu_pause();
        }
        int64_t now = now_ns();
        if (start == 0) start = now;
        if (now - start > YIELD_NS) break;
        if (now - start > SPIN_NS) sched_yield();
    }
    sleep_for_news(p, caller, end);
}

/* ---- threads ------------------------------------------------------------------------------- */

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    while (!atomic_load_explicit(&w->pool->quit, memory_order_relaxed)) {
        if (!run_item(w->pool, w->thread)) wait_for_news(w->pool, false, 0);
    }
    return NULL;
}

bool pool_run(struct pool *p, const struct pool_phase *phases, int n_phases,
              const atomic_bool *stop)
{
    p->phases = phases;
    p->n_phases = n_phases;
    p->stop = stop;
    p->stopped = false;
    uint64_t end = (p->base + (uint64_t)n_phases) & NUMBER_MASK;
    open_phase(p, 0);
    while (word_number(atomic_load_explicit(&p->claim, memory_order_acquire)) != end) {
        if (!run_item(p, 0)) wait_for_news(p, true, end);
    }
    p->base = (end + 1) & NUMBER_MASK;
    return !p->stopped;
}

static int start_workers(struct pool *p, char *err, size_t errlen)
{
    sigset_t all, before;
    int failed = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int i = 0; i < p->n_threads - 1; i++) {
        struct worker *w = &p->workers[i];
        *w = (struct worker){.pool = p, .thread = i + 1};
        failed = pthread_create(&w->handle, NULL, worker_main, w);
        if (failed) break;
        p->n_workers++;
        pthread_setname_np(w->handle, "hearth-compute");
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!failed) return 0;
    snprintf(err, errlen, "compute thread %d of %d cannot be started: %s", p->n_workers + 2,
             p->n_threads, strerror(failed));
    return ENG_EFAILED;
}

int pool_create(struct pool **ret, int n_threads, char *err, size_t errlen)
{
    if (n_threads < 1 || n_threads > POOL_MAX_THREADS) {
        snprintf(err, errlen, "%d compute threads: must be 1 to %d", n_threads, POOL_MAX_THREADS);
        return ENG_EINVAL;
    }
    size_t bytes = sizeof(struct pool) + (size_t)(n_threads - 1) * sizeof(struct worker);
    struct pool *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!p) {
        snprintf(err, errlen, "no memory for a pool of %d threads", n_threads);
        return ENG_ENOMEM;
    }
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

static bool read_line(const char *path, char *line, size_t size)
{
    FILE *f = fopen(path, "re");
    if (!f) return false;
    bool ok = fgets(line, (int)size, f) != NULL;
    fclose(f);
    return ok;
}

/* Cores by quota and period in microseconds, rounded up; INT_MAX where there is no quota. */
static int quota_cores(int64_t quota, int64_t period)
{
    if (quota <= 0 || period <= 0) return INT_MAX;
    int64_t cores = (quota - 1) / period + 1;
    return cores < INT_MAX ? (int)cores : INT_MAX;
}

/* cpu.max of one version 2 group: "max 100000" or "150000 100000". */
static int group_v2_cores(const char *dir)
{
    char path[4200], line[128];
    snprintf(path, sizeof(path), "%s/cpu.max", dir);
    if (!read_line(path, line, sizeof(line))) return INT_MAX;
    char *end;
    long long quota = strtoll(line, &end, 10);
    return end == line ? INT_MAX : quota_cores(quota, strtoll(end, NULL, 10));
}

static int group_v1_cores(const char *dir)
{
    char path[4200], quota[64], period[64];
    snprintf(path, sizeof(path), "%s/cpu.cfs_quota_us", dir);
    if (!read_line(path, quota, sizeof(quota))) return INT_MAX;
    snprintf(path, sizeof(path), "%s/cpu.cfs_period_us", dir);
    if (!read_line(path, period, sizeof(period))) return INT_MAX;
    return quota_cores(strtoll(quota, NULL, 10), strtoll(period, NULL, 10));
}

/* The tightest quota from a group up to the mount point: every level above binds too. */
static int path_cores(const char *mount, const char *group, int (*cores_of)(const char *dir))
{
    char dir[4100];
    int len = snprintf(dir, sizeof(dir), "%s%s", mount, group);
    if (len < 0 || (size_t)len >= sizeof(dir)) return INT_MAX;
    int best = INT_MAX;
    size_t root = strlen(mount);
    for (;;) {
        int cores = cores_of(dir);
        if (cores < best) best = cores;
        char *slash = strrchr(dir + root, '/');
        if (!slash) return best;
        *slash = '\0';
    }
}

/* One line of /proc/self/cgroup: "0::/group" (version 2), or "4:cpu,cpuacct:/group". */
static int line_cores(char *line)
{
    line[strcspn(line, "\n")] = '\0';
    char *controllers = strchr(line, ':');
    char *group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group) return INT_MAX;
    *group++ = '\0';
    controllers++;
    if (!*controllers) return path_cores("/sys/fs/cgroup", group, group_v2_cores);
    if (strcmp(controllers, "cpu") != 0 && !strstr(controllers, "cpu,") &&
        !strstr(controllers, ",cpu"))
        return INT_MAX;
    /* in a container the group's own path is often not mounted, its limits stand at the root */
    return path_cores("/sys/fs/cgroup/cpu", group, group_v1_cores);
}

static int cgroup_cores(void)
{
    FILE *f = fopen("/proc/self/cgroup", "re");
    if (!f) return INT_MAX;
    char line[4096];
    int best = INT_MAX;
    while (fgets(line, sizeof(line), f)) {
        int cores = line_cores(line);
        if (cores < best) best = cores;
    }
    fclose(f);
    return best;
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

int pool_usable_cores(void)
{
    int n = affinity_cores(), quota = cgroup_cores();
    if (quota < n) n = quota;
    if (n > POOL_MAX_THREADS) n = POOL_MAX_THREADS;
    return n < 1 ? 1 : n;
}
