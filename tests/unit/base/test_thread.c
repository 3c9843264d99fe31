/* SPDX-License-Identifier: MIT */
/* Threads have their name and stack and leave the process' signals to others. */
#include "test.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>

#include "base/clock.h"
#include "base/thread.h"

enum { STACK_BYTES = 3 << 20 };

struct seen {
    sigset_t blocked;
    size_t stack_bytes;
};

static void *look(void *arg)
{
    struct seen *seen = arg;
    pthread_attr_t attr;
    pthread_sigmask(SIG_SETMASK, NULL, &seen->blocked);
    pthread_getattr_np(pthread_self(), &attr);
    pthread_attr_getstacksize(&attr, &seen->stack_bytes);
    pthread_attr_destroy(&attr);
    return NULL;
}

static void a_thread_is_as_asked_for(void **state)
{
    struct seen seen = {.stack_bytes = 0};
    sigset_t before, after;
    pthread_t thread;
    (void)state;
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    REQUIRE_EQ_INT(thread_start(&thread, "test-thread", STACK_BYTES, look, &seen), 0);
    pthread_join(thread, NULL);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    REQUIRE_EQ_INT(seen.stack_bytes, STACK_BYTES);
    REQUIRE_EQ_INT(sigismember(&seen.blocked, SIGTERM), 1);
    REQUIRE_EQ_INT(sigismember(&seen.blocked, SIGHUP), 1);
    REQUIRE_EQ_INT(sigismember(&seen.blocked, SIGSEGV), 0);
    REQUIRE_EQ_INT(sigismember(&seen.blocked, SIGABRT), 0);
    for (int sig = 1; sig < 32; sig++) /* the caller's mask is as before */
        REQUIRE_EQ_INT(sigismember(&after, sig), sigismember(&before, sig));
}

static void a_stack_that_cannot_be_is_an_error(void **state)
{
    pthread_t thread;
    struct seen seen;
    (void)state;
    REQUIRE_EQ_INT(thread_start(&thread, "test-thread", 1, look, &seen), EINVAL);
}

static void waits_end_at_a_time_of_the_clock(void **state)
{
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t cond;
    uint64_t start = clock_now_us();
    struct timespec until = clock_after_ms(5);
    int rc = 0;
    (void)state;
    thread_cond_init(&cond);
    pthread_mutex_lock(&lock);
    while (!rc)
        rc = pthread_cond_timedwait(&cond, &lock, &until);
    pthread_mutex_unlock(&lock);
    REQUIRE_EQ_INT(rc, ETIMEDOUT);
    REQUIRE(clock_now_us() - start >= 4000);
    pthread_cond_destroy(&cond);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_is_as_asked_for),
        cmocka_unit_test(a_stack_that_cannot_be_is_an_error),
        cmocka_unit_test(waits_end_at_a_time_of_the_clock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
