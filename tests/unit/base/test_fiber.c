/* SPDX-License-Identifier: MIT */
/* Fibers: left and entered again, on other threads too, dropped in the middle, used again. */
#include "base/fiber.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "test.h"

struct count {
    struct fiber *fiber;
    int n, end;
    bool returned;
    uintptr_t on_stack;
};

static void count_up(void *arg)
{
    struct count *c = arg;
    char local[20000];
    memset(local, c->end, sizeof(local));
    c->on_stack = (uintptr_t)local;
    while (c->n < c->end) {
        c->n++;
        fiber_pause(c->fiber);
        REQUIRE(local[c->n] == (char)c->end); /* as it was left */
    }
}

static void test_pauses_and_returns(void **state)
{
    (void)state;
    struct count c = {.fiber = fiber_create(), .end = 5};
    REQUIRE(c.fiber);
    for (int round = 0; round < 3; round++) {
        c.n = 0;
        fiber_start(c.fiber, count_up, &c);
        for (int i = 1; i <= c.end; i++) {
            REQUIRE(!fiber_resume(c.fiber));
            REQUIRE_EQ_INT(c.n, i);
        }
        REQUIRE(fiber_resume(c.fiber));
    }
    fiber_destroy(c.fiber);
    fiber_destroy(NULL);
}

static void *resume(void *arg)
{
    struct count *c = arg;
    c->returned = fiber_resume(c->fiber);
    return NULL;
}

static void test_goes_on_on_another_thread(void **state)
{
    (void)state;
    struct count c = {.fiber = fiber_create(), .end = 20};
    fiber_start(c.fiber, count_up, &c);
    for (int i = 1; i <= c.end + 1; i++) {
        pthread_t thread;
        REQUIRE_EQ_INT(pthread_create(&thread, NULL, resume, &c), 0);
        pthread_join(thread, NULL);
        REQUIRE_EQ_INT(c.returned, i > c.end);
    }
    REQUIRE_EQ_INT(c.n, c.end);
    fiber_destroy(c.fiber);
}

static void test_is_dropped(void **state)
{
    (void)state;
    struct fiber *f = fiber_create();
    for (int i = 0; i < 100; i++) {
        struct count c = {.fiber = f, .end = 3};
        fiber_start(f, count_up, &c);
        for (int k = 0; k < i % 5 && !c.returned; k++)
            c.returned = fiber_resume(f);
        REQUIRE_EQ_INT(c.returned, i % 5 == 4);
    }
    fiber_destroy(f);
}

/* The memory of one that was dropped in the middle is anybody's, for the address sanitizer too. */
static void test_leaves_clean_memory(void **state)
{
    (void)state;
    enum { BYTES = 1 << 14 };
    struct count c = {.fiber = fiber_create(), .end = 3};
    fiber_start(c.fiber, count_up, &c);
    REQUIRE(!fiber_resume(c.fiber));
    fiber_destroy(c.fiber);
    void *from = (void *)((c.on_stack - 64) & ~(uintptr_t)4095);
    char *again = mmap(from, BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    REQUIRE(again == from);
    memset(again, 1, BYTES);
    munmap(again, BYTES);
}

/* Two of them, one inside the other's turn. */
static void test_nests(void **state)
{
    (void)state;
    struct count a = {.fiber = fiber_create(), .end = 9}, b = {.fiber = fiber_create(), .end = 9};
    fiber_start(a.fiber, count_up, &a);
    fiber_start(b.fiber, count_up, &b);
    while (!a.returned) {
        resume(&a);
        resume(&b);
        REQUIRE_EQ_INT(a.n, b.n);
    }
    REQUIRE(b.returned);
    fiber_destroy(a.fiber);
    fiber_destroy(b.fiber);
}

static void use_stack(void *arg)
{
    volatile char room[4 << 20]; /* half of it */
    for (size_t i = 0; i < sizeof(room); i += 4096)
        room[i] = 1;
    *(bool *)arg = true;
}

static void test_has_a_thread_s_stack(void **state)
{
    (void)state;
    struct fiber *f = fiber_create();
    bool used = false;
    fiber_start(f, use_stack, &used);
    REQUIRE(fiber_resume(f) && used);
    fiber_destroy(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pauses_and_returns),
        cmocka_unit_test(test_goes_on_on_another_thread),
        cmocka_unit_test(test_is_dropped),
        cmocka_unit_test(test_leaves_clean_memory),
        cmocka_unit_test(test_nests),
        cmocka_unit_test(test_has_a_thread_s_stack),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
