/* SPDX-License-Identifier: MIT */
/* Turns: one at a time, by used time per share. */
#include "engine/cores.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "engine/engine.h"
#include "engine/pool.h"
#include "test.h"

static struct eng_cores *cores;

static void open_cores(int n_threads)
{
    char err[200] = "";
    REQUIRE_MSG(eng_cores_create(&cores, n_threads, err, sizeof(err)) == 0, "%s", err);
}

enum { N_THREADS = 4, N_ROUNDS = 2000 };

static atomic_int n_inside, n_at_once, n_waited_for;

static void *take_turns(void *arg)
{
    struct cores_member *member;
    (void)arg;
    REQUIRE_EQ_INT(cores_join(cores, 1, &member), 0);
    for (int i = 0; i < N_ROUNDS; i++) {
        cores_enter(member);
        if (atomic_fetch_add(&n_inside, 1) != 0) atomic_fetch_add(&n_at_once, 1);
        atomic_fetch_sub(&n_inside, 1);
        if (cores_leave(member, false)) atomic_fetch_add(&n_waited_for, 1);
    }
    cores_quit(member);
    return NULL;
}

static void test_one_at_a_time(void **state)
{
    (void)state;
    pthread_t threads[N_THREADS];
    open_cores(1);
    for (int i = 0; i < N_THREADS; i++)
        REQUIRE_EQ_INT(pthread_create(&threads[i], NULL, take_turns, NULL), 0);
    for (int i = 0; i < N_THREADS; i++)
        pthread_join(threads[i], NULL);
    REQUIRE_EQ_INT(atomic_load(&n_at_once), 0);
    REQUIRE(atomic_load(&n_waited_for) < N_THREADS * N_ROUNDS);
    eng_cores_destroy(cores);
}

static atomic_bool asked;

static void *ask_once(void *arg)
{
    struct cores_member *member;
    REQUIRE_EQ_INT(cores_join(cores, 1, &member), 0);
    atomic_store(&asked, true);
    cores_enter(member);
    atomic_store((atomic_bool *)arg, true);
    cores_leave(member, false);
    cores_quit(member);
    return NULL;
}

/* A thread that leaves and asks again at once does not overtake the one that waits. */
static void test_the_waiting_one_is_next(void **state)
{
    (void)state;
    pthread_t other;
    struct cores_member *member;
    atomic_bool had_turn;
    atomic_init(&had_turn, false);
    open_cores(1);
    REQUIRE_EQ_INT(cores_join(cores, 1, &member), 0);
    cores_enter(member);
    REQUIRE_EQ_INT(pthread_create(&other, NULL, ask_once, &had_turn), 0);
    bool waits = false;
    while (!waits) { /* until the other has asked: before, leaving finds nobody */
        REQUIRE(!atomic_load(&had_turn));
        if (!atomic_load(&asked)) continue;
        waits = cores_leave(member, false);
        cores_enter(member);
        if (atomic_load(&had_turn)) break;
    }
    REQUIRE(atomic_load(&had_turn));
    REQUIRE(!cores_leave(member, true));
    pthread_join(other, NULL);
    cores_quit(member);
    eng_cores_destroy(cores);
}

/* Two that always want the turn, with steps of different length. The clock moves by steps alone:
 * times are the same on a busy machine. */
struct greedy {
    int share;
    uint64_t step_us, used_us;
};

static atomic_bool given_time, ends;
static _Atomic uint64_t time_us;
static atomic_int n_blocked;

int __real_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);
int __real_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock);
int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock);
int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *lock,
                                  const struct timespec *until);

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret)
{
    if (!atomic_load(&given_time)) return __real_clock_gettime(clock, ret);
    uint64_t us = atomic_load(&time_us);
    *ret = (struct timespec){(time_t)(us / 1000000), (long)(us % 1000000) * 1000};
    return 0;
}

int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock)
{
    atomic_fetch_add(&n_blocked, 1);
    int rc = __real_pthread_cond_wait(cond, lock);
    atomic_fetch_sub(&n_blocked, 1);
    return rc;
}

/* It looks again and again for whether the given time is over. */
int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *lock,
                                  const struct timespec *until)
{
    (void)cond, (void)until;
    pthread_mutex_unlock(lock);
    sched_yield();
    return pthread_mutex_lock(lock);
}

static void *want_always(void *arg)
{
    struct greedy *g = arg;
    struct cores_member *member;
    REQUIRE_EQ_INT(cores_join(cores, g->share, &member), 0);
    while (!atomic_load(&ends)) {
        cores_enter(member);
        while (!atomic_load(&n_blocked) && !atomic_load(&ends))
            sched_yield(); /* a step lasts until the other one has asked */
        atomic_fetch_add(&time_us, g->step_us);
        g->used_us += g->step_us;
        if (g->used_us > 300000) atomic_store(&ends, true);
        cores_leave(member, true);
    }
    cores_quit(member);
    return NULL;
}

/* By steps alone the ratios would be 1 and 1/8. */
static void test_shares(void **state)
{
    (void)state;
    static const struct {
        struct greedy a, b;
        double ratio;
    } cases[] = {{{2, 400, 0}, {1, 400, 0}, 2}, {{1, 250, 0}, {1, 2000, 0}, 1}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct greedy a = cases[i].a, b = cases[i].b;
        pthread_t thread;
        atomic_store(&ends, false);
        atomic_store(&time_us, 1);
        atomic_store(&given_time, true);
        open_cores(1);
        REQUIRE_EQ_INT(pthread_create(&thread, NULL, want_always, &b), 0);
        want_always(&a);
        pthread_join(thread, NULL);
        atomic_store(&given_time, false);
        double ratio = (double)a.used_us / (double)b.used_us / cases[i].ratio;
        REQUIRE_MSG(ratio > 0.93 && ratio < 1.07, "%zu: %.2f", i, ratio);
        eng_cores_destroy(cores);
    }
}

static struct cores_member *first, *second;
static atomic_int order;

static void *take_a_turn(void *arg)
{
    cores_enter(arg);
    int place = atomic_fetch_add(&order, 1);
    cores_leave(arg, false);
    return (void *)(intptr_t)place;
}

/* One that gives way is last, whoever has used less, until it does not any more. */
static void test_giving_way(void **state)
{
    (void)state;
    for (int again = 0; again < 2; again++) {
        pthread_t threads[2];
        void *places[2];
        struct cores_member *holder;
        open_cores(1);
        struct cores_member **members[] = {&holder, &first, &second};
        for (int i = 0; i < 3; i++)
            REQUIRE_EQ_INT(cores_join(cores, 1, members[i]), 0);
        atomic_store(&order, 0);
        atomic_store(&n_blocked, 0);
        cores_enter(holder);
        cores_give_way(first, true);
        REQUIRE_EQ_INT(pthread_create(&threads[0], NULL, take_a_turn, first), 0);
        while (atomic_load(&n_blocked) < 1)
            sched_yield();
        REQUIRE(!cores_leave(holder, true)); /* it is not shared with one that gives way */
        cores_enter(holder);
        REQUIRE_EQ_INT(pthread_create(&threads[1], NULL, take_a_turn, second), 0);
        while (atomic_load(&n_blocked) < 2)
            sched_yield();
        if (again) cores_give_way(first, false);
        REQUIRE(cores_leave(holder, false));
        for (int i = 0; i < 2; i++)
            pthread_join(threads[i], &places[i]);
        REQUIRE_EQ_INT((int)(intptr_t)places[0], !again);
        for (int i = 0; i < 3; i++)
            cores_quit(*members[i]);
        eng_cores_destroy(cores);
    }
}

/* ---- the pool ------------------------------------------------------------------------------ */

enum { N_ITEMS = 64, N_RUNS = 200 };

static void count_item(void *arg, int item, int thread)
{
    int *counts = arg;
    (void)thread;
    counts[item]++;
}

static void *run_pool(void *arg)
{
    struct cores_member *member;
    struct pool_phase phases[] = {{count_item, arg, N_ITEMS}, {count_item, arg, N_ITEMS}};
    REQUIRE_EQ_INT(cores_join(cores, 1, &member), 0);
    for (int i = 0; i < N_RUNS; i++) {
        cores_enter(member);
        REQUIRE_EQ_INT(pool_run(cores_pool(cores), phases, 2, NULL), 2);
        cores_leave(member, i % 2);
    }
    cores_quit(member);
    return NULL;
}

/* Engines of four threads run phases on the same three: none loses an item, or runs one twice. */
static void test_one_pool(void **state)
{
    (void)state;
    pthread_t threads[N_THREADS];
    int counts[N_THREADS][N_ITEMS] = {0};
    open_cores(3);
    for (int i = 0; i < N_THREADS; i++)
        REQUIRE_EQ_INT(pthread_create(&threads[i], NULL, run_pool, counts[i]), 0);
    for (int i = 0; i < N_THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < N_THREADS; i++)
        for (int k = 0; k < N_ITEMS; k++)
            REQUIRE_EQ_INT(counts[i][k], 2 * N_RUNS);
    eng_cores_destroy(cores);
}

static void test_bad_number_of_threads(void **state)
{
    (void)state;
    struct eng_cores *none = NULL;
    char err[200] = "";
    REQUIRE_EQ_INT(eng_cores_create(&none, 5000, err, sizeof(err)), ENG_EINVAL);
    REQUIRE(!none && strstr(err, "5000 compute threads"));
}

static void test_alone(void **state)
{
    (void)state;
    cores_enter(NULL);
    REQUIRE(!cores_leave(NULL, true));
    cores_quit(NULL);
    eng_cores_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_at_a_time), cmocka_unit_test(test_the_waiting_one_is_next),
        cmocka_unit_test(test_shares),        cmocka_unit_test(test_giving_way),
        cmocka_unit_test(test_one_pool),      cmocka_unit_test(test_bad_number_of_threads),
        cmocka_unit_test(test_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
