/* SPDX-License-Identifier: MIT */
/* Trees of jansson's while memory runs out: who builds one learns of it. Linked with --wrap=malloc. */
#include "server/api/read/json_memory.h"

#include <pthread.h>

#include <jansson.h>

#include "test.h"

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);

static _Thread_local int n_left = -1; /* allocations until one fails; -1: none does */

void *__wrap_malloc(size_t size)
{
    if (n_left == 0) return NULL;
    if (n_left > 0) n_left--;
    return __real_malloc(size);
}

/* {"a": ["b"]}, or less of it if an allocation after the first n fails. */
static json_t *build(int n)
{
    n_left = n;
    json_t *list = json_array(), *tree = json_object();
    json_array_append_new(list, json_string("b"));
    json_object_set_new(tree, "a", list);
    n_left = -1;
    return tree;
}

static bool is_whole(const json_t *tree)
{
    const json_t *text = json_array_get(json_object_get(tree, "a"), 0);
    return text && !strcmp(json_string_value(text), "b");
}

/* Each failure is told, once; a tree without one is whole. */
static void test_failures_are_told(void **state)
{
    int n_failures = 0;
    bool failed = true;
    (void)state;
    REQUIRE(!srv_json_ran_out());
    for (int n = 0; failed; n++) {
        json_t *tree = build(n);
        failed = srv_json_ran_out();
        REQUIRE_MSG(is_whole(tree) == !failed, "with %d allocations", n);
        REQUIRE(!srv_json_ran_out());
        n_failures += failed;
        json_decref(tree);
    }
    REQUIRE_MSG(n_failures >= 4, "%d failures", n_failures);
}

/* The sum of several trees is asked for once. */
static void test_failures_are_kept(void **state)
{
    (void)state;
    json_decref(build(1));
    json_decref(build(-1));
    REQUIRE(srv_json_ran_out());
    json_decref(build(-1));
    REQUIRE(!srv_json_ran_out());
}

static void *ask(void *ret)
{
    *(bool *)ret = srv_json_ran_out();
    return NULL;
}

static void test_other_threads_do_not_learn_of_it(void **state)
{
    pthread_t thread;
    bool told = true;
    (void)state;
    json_decref(build(1));
    REQUIRE_EQ_INT(pthread_create(&thread, NULL, ask, &told), 0);
    pthread_join(thread, NULL);
    REQUIRE(!told && srv_json_ran_out());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_failures_are_told),
        cmocka_unit_test(test_failures_are_kept),
        cmocka_unit_test(test_other_threads_do_not_learn_of_it),
    };
    srv_json_watch_memory();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
