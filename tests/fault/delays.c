/* SPDX-License-Identifier: MIT */
/*
 * A library for LD_PRELOAD that waits before every lock, so that threads meet in other orders than
 * on a quiet machine; for tests only.
 *
 *   DELAY_US=n    a random time of up to n microseconds; 0: none
 *   DELAY_SEED=k  other times
 *
 * Threads: every function may be called on any.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

static atomic_uint n_threads;
static uint64_t delay_us, seed;

static uint64_t number(const char *name)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : 0;
}

__attribute__((constructor)) static void begin(void)
{
    delay_us = number("DELAY_US");
    seed = number("DELAY_SEED");
}

static void wait_a_while(void)
{
    static _Thread_local uint64_t state;
    if (!state) {
        prctl(PR_SET_TIMERSLACK, 1);
        state = (seed << 32) + 2 * (uint64_t)atomic_fetch_add(&n_threads, 1) + 1;
    }
    state = state * 6364136223846793005u + 1442695040888963407u;
    struct timespec t = {0, (long)((state >> 33) % (delay_us + 1)) * 1000};
    nanosleep(&t, NULL);
}

int pthread_mutex_lock(pthread_mutex_t *lock)
{
    static int (*_Atomic next)(pthread_mutex_t *);
    if (!next) next = (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_lock");
    if (delay_us) wait_a_while();
    return next(lock);
}
