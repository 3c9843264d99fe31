/* SPDX-License-Identifier: MIT */
/* The text workers: who may begin, and in which order. */
#include "test.h"

#include <pthread.h>

#include "server/http/text_workers.h"

enum { MAX_ITEMS = 64 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t change = PTHREAD_COND_INITIALIZER;
static int order[MAX_ITEMS], n_begun, n_ended, n_running_large, most_running_large;
static bool gate_open, large_gate_open;

struct item {
    struct srv_work_item work;
    int number;
};

static void run(struct srv_work_item *work)
{
    struct item *item = (struct item *)work;
    bool large = work->class == SRV_WORK_LARGE;
    pthread_mutex_lock(&lock);
    order[n_begun++] = item->number;
    n_running_large += large;
    if (n_running_large > most_running_large) most_running_large = n_running_large;
    pthread_cond_broadcast(&change);
    while (large ? !large_gate_open : !gate_open)
        pthread_cond_wait(&change, &lock);
    n_running_large -= large;
    n_ended++;
    pthread_cond_broadcast(&change);
    pthread_mutex_unlock(&lock);
}

static void reset(void)
{
    n_begun = n_ended = n_running_large = most_running_large = 0;
    gate_open = large_gate_open = false;
}

static struct srv_work *start(int n_workers)
{
    char err[200] = "";
    struct srv_work *w = NULL;
    reset();
    REQUIRE_MSG(srv_work_create(&w, n_workers, err, sizeof(err)) == 0, "%s", err);
    return w;
}

static void push(struct srv_work *w, struct item *item, int number, enum srv_work_class class,
                 uint64_t key)
{
    *item = (struct item){.work = {.class = class, .key = key, .run = run}, .number = number};
    srv_work_push(w, &item->work);
}

static void set_gates(bool small, bool large)
{
    pthread_mutex_lock(&lock);
    gate_open = small;
    large_gate_open = large;
    pthread_cond_broadcast(&change);
    pthread_mutex_unlock(&lock);
}

static void await(const int *counter, int n)
{
    pthread_mutex_lock(&lock);
    while (*counter < n)
        pthread_cond_wait(&change, &lock);
    pthread_mutex_unlock(&lock);
}

/* Twelve large items are queued first; small ones and wakes pass them, and all end. */
static void test_small_items_pass_large_ones(void **state)
{
    (void)state;
    static const int sizes[] = {3, 4, 6};
    for (size_t k = 0; k < N_OF(sizes); k++) {
        struct srv_work *w = start(sizes[k]);
        struct item large[12], small[8], wake[4];
        for (int i = 0; i < 12; i++)
            push(w, &large[i], i, SRV_WORK_LARGE, 1);
        await(&n_begun, sizes[k] > 3 ? sizes[k] - 2 : 1);
        set_gates(true, false);
        for (int i = 0; i < 8; i++)
            push(w, &small[i], 100 + i, SRV_WORK_SMALL, 1);
        for (int i = 0; i < 4; i++)
            push(w, &wake[i], 200 + i, SRV_WORK_WAKE, 1);
        await(&n_ended, 12); /* while every large one that began still runs */
        REQUIRE_EQ_INT(most_running_large, sizes[k] > 3 ? sizes[k] - 2 : 1);
        set_gates(true, true);
        await(&n_ended, 24);
        srv_work_destroy(w);
    }
}

/*
 * One or two workers take the sizes in turns, so that neither line waits for the whole other one.
 */
static void test_few_workers_alternate(void **state)
{
    (void)state;
    for (int n = 1; n <= 2; n++) {
        struct srv_work *w = start(n);
        struct item first, large[3], small[3];
        push(w, &first, 0, SRV_WORK_SMALL, 1);
        await(&n_begun, 1);
        for (int i = 0; i < 3; i++)
            push(w, &large[i], 10 + i, SRV_WORK_LARGE, 1);
        for (int i = 0; i < 3; i++)
            push(w, &small[i], 20 + i, SRV_WORK_SMALL, 1);
        set_gates(true, true);
        await(&n_ended, 7);
        static const int want[] = {0, 10, 20, 11, 21, 12, 22};
        for (int i = 0; i < 7; i++)
            REQUIRE_EQ_INT(order[i], want[i]);
        srv_work_destroy(w);
    }
}

static void test_keys_take_turns(void **state)
{
    (void)state;
    struct srv_work *w = start(1);
    static const uint64_t keys[] = {1, 1, 1, 1, 2, 2, 3};
    static const int want[] = {99, 4, 6, 0, 5, 1, 2, 3}; /* key 1 has had the first */
    struct item first, items[N_OF(keys)];
    push(w, &first, 99, SRV_WORK_SMALL, 1);
    await(&n_begun, 1);
    for (int i = 0; i < (int)N_OF(keys); i++)
        push(w, &items[i], i, SRV_WORK_SMALL, keys[i]);
    set_gates(true, true);
    await(&n_ended, 8);
    for (int i = 0; i < 8; i++)
        REQUIRE_EQ_INT(order[i], want[i]);
    srv_work_destroy(w);
}

/* Items that come between others: a key that has waited for none is next, but passes another one once only. */
static void test_keys_that_come_and_go(void **state)
{
    static const struct {
        int number; /* -1: the next one runs, and is `key` */
        int key;
    } steps[] = {{0, 1},  {1, 1},   {2, 1},   {-1, 0},  {10, 2},  {-1, 10}, {11, 2},
                 {-1, 1}, {20, 3},  {3, 1},   {-1, 11}, {-1, 20}, {21, 3},  {12, 2},
                 {-1, 2}, {-1, 21}, {-1, 12}, {22, 3},  {-1, 3},  {-1, 22}};
    struct srv_work *w = start(0);
    struct item items[30];
    (void)state;
    set_gates(true, true);
    for (size_t i = 0; i < N_OF(steps); i++) {
        if (steps[i].number >= 0) {
            push(w, &items[steps[i].number], steps[i].number, SRV_WORK_SMALL,
                 (uint64_t)steps[i].key);
            continue;
        }
        REQUIRE(srv_work_run_next(w));
        REQUIRE_MSG(order[n_begun - 1] == steps[i].key, "step %zu: %d", i, order[n_begun - 1]);
    }
    REQUIRE(!srv_work_run_next(w));
    srv_work_destroy(w);
}

/* Destroying runs what is queued. */
static void test_destroy_runs_the_rest(void **state)
{
    (void)state;
    struct srv_work *w = start(3);
    struct item items[30];
    set_gates(true, true);
    for (int i = 0; i < 30; i++)
        push(w, &items[i], i, (enum srv_work_class)(i % 3), (uint64_t)i % 4);
    srv_work_destroy(w);
    REQUIRE_EQ_INT(n_ended, 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_items_pass_large_ones),
        cmocka_unit_test(test_few_workers_alternate),
        cmocka_unit_test(test_keys_take_turns),
        cmocka_unit_test(test_keys_that_come_and_go),
        cmocka_unit_test(test_destroy_runs_the_rest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
