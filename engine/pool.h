/* SPDX-License-Identifier: MIT */
/*
 * A fixed set of threads that run a program: a list of phases, each a number of items.
 *
 * Threads claim items from an atomic counter. A phase ends when its items are done, not when every
 * thread has arrived, and the thread that finishes the last item opens the next phase: a thread
 * that lost its core delays only its own item. Waiting threads spin some tens of microseconds, then
 * yield, then sleep; an idle pool uses no CPU. Threads are not pinned.
 *
 * Items of one phase may run in any order and at once; phases run in order, and everything written
 * in one phase is seen by the next. Items partition outputs, never a reduction.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct pool;

enum {
    POOL_MAX_THREADS = 1024,
    POOL_MAX_ITEMS = 1000000, /* of one phase */
};

/*
 * n_items in [0, POOL_MAX_ITEMS]; a phase of 0 items is skipped. `thread` is in [0, pool_n_threads)
 * and selects the scratch: no two items with the same number run at once.
 */
struct pool_phase {
    void (*fn)(void *arg, int item, int thread);
    void *arg;
    int n_items;
};

/*
 * n_threads (1 .. POOL_MAX_THREADS) includes the caller of pool_run; n_threads - 1 threads are
 * started, with all signals blocked. Returns owned (pool_destroy), or ENG_EINVAL, ENG_ENOMEM,
 * ENG_EFAILED.
 */
int pool_create(struct pool **ret, int n_threads, char *err, size_t errlen);

/* Joins the threads; not during pool_run. NULL is fine. */
void pool_destroy(struct pool *p);

int pool_n_threads(const struct pool *p);

/*
 * Runs the phases, the caller as thread 0, and returns when all are done. One caller at a time.
 * Once `stop` (NULL: none) is true, phases not yet opened are skipped. Returns how many are done,
 * those without items included: n_phases, or the index of the first that was skipped.
 */
int pool_run(struct pool *p, const struct pool_phase *phases, int n_phases,
             const atomic_bool *stop);

/*
 * Cores this process may use: affinity, then the CPU quotas of its cgroups rounded up; at least 1.
 * root is for cgroup_visit: "" except in tests.
 */
int pool_usable_cores(const char *root);
