/* SPDX-License-Identifier: MIT */
/* Turns: one at a time, in the order of asking. */
#include "engine/turns.h"

#include <pthread.h>
#include <stdatomic.h>

#include "engine/engine.h"
#include "test.h"

enum { N_THREADS = 4, N_ROUNDS = 2000 };

static struct eng_turns *turns;
static atomic_int n_inside, n_at_once, n_waited_for;

static void *take_turns(void *arg)
{
    (void)arg;
    for (int i = 0; i < N_ROUNDS; i++) {
        turns_enter(turns);
        if (atomic_fetch_add(&n_inside, 1) != 0) atomic_fetch_add(&n_at_once, 1);
        atomic_fetch_sub(&n_inside, 1);
        if (turns_leave(turns)) atomic_fetch_add(&n_waited_for, 1);
    }
    return NULL;
}

static void test_one_at_a_time(void **state)
{
    (void)state;
    pthread_t threads[N_THREADS];
    REQUIRE_EQ_INT(eng_turns_create(&turns), 0);
    for (int i = 0; i < N_THREADS; i++)
        REQUIRE_EQ_INT(pthread_create(&threads[i], NULL, take_turns, NULL), 0);
    for (int i = 0; i < N_THREADS; i++)
        pthread_join(threads[i], NULL);
    REQUIRE_EQ_INT(atomic_load(&n_at_once), 0);
    REQUIRE(atomic_load(&n_waited_for) < N_THREADS * N_ROUNDS);
    eng_turns_destroy(turns);
}

static atomic_bool asked;

static void *ask_once(void *arg)
{
    atomic_store(&asked, true);
    turns_enter(turns);
    atomic_store((atomic_bool *)arg, true);
    turns_leave(turns);
    return NULL;
}

/* A thread that leaves and asks again at once does not overtake the one that waits. */
static void test_the_waiting_one_is_next(void **state)
{
    (void)state;
    pthread_t other;
    atomic_bool had_turn;
    atomic_init(&had_turn, false);
    REQUIRE_EQ_INT(eng_turns_create(&turns), 0);
    turns_enter(turns);
    REQUIRE_EQ_INT(pthread_create(&other, NULL, ask_once, &had_turn), 0);
    bool waits = false;
    while (!waits) { /* until the other has asked: before, leaving finds nobody */
        REQUIRE(!atomic_load(&had_turn));
        if (!atomic_load(&asked)) continue;
        waits = turns_leave(turns);
        turns_enter(turns);
        if (atomic_load(&had_turn)) break;
    }
    REQUIRE(atomic_load(&had_turn));
    REQUIRE(!turns_leave(turns));
    pthread_join(other, NULL);
    eng_turns_destroy(turns);
}

static void test_alone(void **state)
{
    (void)state;
    turns_enter(NULL);
    REQUIRE(!turns_leave(NULL));
    eng_turns_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_at_a_time),
        cmocka_unit_test(test_the_waiting_one_is_next),
        cmocka_unit_test(test_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
