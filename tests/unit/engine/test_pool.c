/* SPDX-License-Identifier: MIT */
/*
 * The pool: every item once, phases in order, `stop`, reuse, idleness, and threads that come late.
 */
#include "engine/pool.h"
#include "fake_root.h"

#include <time.h>
#include <unistd.h>

#include "test.h"

enum { MAX_ITEMS = 400, MAX_PHASES = 600 };

/* One phase's record: how often each item ran, and what the phase before had done by then. */
struct record {
    atomic_int runs[MAX_ITEMS];
    atomic_int n_done;
    const struct record *before;
    int n_before; /* items of the phase before */
    atomic_int n_early;
    atomic_int in_use[8]; /* per thread: two items at once on one thread would be a fault */
    atomic_int n_shared;
};

static void note_item(void *arg, int item, int thread)
{
    struct record *r = arg;
    if (atomic_fetch_add(&r->in_use[thread], 1) != 0) atomic_fetch_add(&r->n_shared, 1);
    if (r->before && atomic_load(&r->before->n_done) != r->n_before)
        atomic_fetch_add(&r->n_early, 1);
    atomic_fetch_add(&r->runs[item], 1);
    atomic_fetch_add(&r->n_done, 1);
    atomic_fetch_sub(&r->in_use[thread], 1);
}

static struct pool *make_pool(int n_threads)
{
    struct pool *p = NULL;
    char err[200] = "";
    int rc = pool_create(&p, n_threads, err, sizeof(err));
    REQUIRE_MSG(rc == 0, "%s", err);
    REQUIRE_EQ_INT(pool_n_threads(p), n_threads);
    return p;
}

/* Phases of 0, 1, 2 ... items, in an order that puts empty ones first, last and side by side. */
static int items_of(int phase)
{
    static const int sizes[] = {0, 0, 1, 7, 0, 1, 1, 64, 2, 0, 0, 3, MAX_ITEMS, 1, 5, 0};
    return sizes[(size_t)phase % N_OF(sizes)];
}

static void check_run(struct pool *p, int n_phases)
{
    struct record *records = calloc((size_t)n_phases, sizeof(*records));
    struct pool_phase *phases = calloc((size_t)n_phases, sizeof(*phases));
    REQUIRE(records && phases);
    const struct record *before = NULL;
    int n_before = 0;
    for (int i = 0; i < n_phases; i++) {
        records[i].before = before;
        records[i].n_before = n_before;
        phases[i] = (struct pool_phase){note_item, &records[i], items_of(i)};
        if (items_of(i) == 0) continue;
        before = &records[i];
        n_before = items_of(i);
    }
    REQUIRE_EQ_INT(pool_run(p, phases, n_phases, NULL), n_phases);
    for (int i = 0; i < n_phases; i++) {
        REQUIRE_EQ_INT(records[i].n_done, items_of(i));
        REQUIRE_EQ_INT(records[i].n_early, 0);
        REQUIRE_EQ_INT(records[i].n_shared, 0);
        for (int k = 0; k < items_of(i); k++)
            REQUIRE_EQ_INT(records[i].runs[k], 1);
    }
    free(phases);
    free(records);
}

static void test_every_item_once_in_order(void **state)
{
    (void)state;
    for (int n_threads = 1; n_threads <= 4; n_threads++) {
        struct pool *p = make_pool(n_threads);
        static const int lengths[] = {0, 1, 2, 3, 16, MAX_PHASES};
        for (size_t i = 0; i < N_OF(lengths); i++)
            check_run(p, lengths[i]);
        pool_destroy(p);
    }
}

/* Many short runs: threads are caught spinning, going to sleep, and waking up. */
static void test_many_runs(void **state)
{
    (void)state;
    struct pool *p = make_pool(3);
    for (int i = 0; i < 300; i++) {
        check_run(p, i % 23);
        if (i % 50 == 0) usleep(300); /* workers go to sleep; nothing depends on it */
    }
    pool_destroy(p);
}

struct stopper {
    atomic_bool stop;
    atomic_int n_run;
};

static void stop_in_third(void *arg, int item, int thread)
{
    struct stopper *s = arg;
    (void)thread;
    atomic_fetch_add(&s->n_run, 1);
    if (item == 2) atomic_store(&s->stop, true);
}

static void test_stop_passes_over_the_rest(void **state)
{
    (void)state;
    struct pool *p = make_pool(2);
    struct stopper s = {.stop = false};
    struct pool_phase phases[6];
    for (size_t i = 0; i < N_OF(phases); i++)
        phases[i] = (struct pool_phase){stop_in_third, &s, (int)i < 3 ? 2 : 3};
    REQUIRE_EQ_INT(pool_run(p, phases, (int)N_OF(phases), &s.stop), 4);
    REQUIRE_EQ_INT(s.n_run, 2 + 2 + 2 + 3);
    s.n_run = 0;
    REQUIRE_EQ_INT(pool_run(p, phases, (int)N_OF(phases), &s.stop), 0);
    REQUIRE_EQ_INT(s.n_run, 0);
    atomic_store(&s.stop, false);
    REQUIRE_EQ_INT(pool_run(p, phases, 3, &s.stop), 3);
    REQUIRE_EQ_INT(s.n_run, 6);
    pool_destroy(p);
}

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Between runs the workers sleep: over 100 ms of idleness they use less than 5 ms of CPU. */
static void test_idle_pool_uses_no_cpu(void **state)
{
    (void)state;
    struct pool *p = make_pool(4);
    check_run(p, 16);
    double before = cpu_seconds();
    usleep(100000);
    double used = cpu_seconds() - before;
    REQUIRE_MSG(used < 0.005, "%.1f ms of CPU in 100 ms of idleness", used * 1e3);
    check_run(p, 16);
    pool_destroy(p);
}

static void test_bad_sizes_and_cores(void **state)
{
    (void)state;
    struct pool *p = NULL;
    char err[200] = "";
    static const int bad[] = {0, -1, POOL_MAX_THREADS + 1};
    for (size_t i = 0; i < N_OF(bad); i++) {
        REQUIRE(pool_create(&p, bad[i], err, sizeof(err)) != 0);
        REQUIRE(p == NULL && strstr(err, "threads") != NULL);
    }
    pool_destroy(NULL);
    int cores = pool_usable_cores("");
    REQUIRE(cores >= 1 && cores <= (int)sysconf(_SC_NPROCESSORS_CONF));
}

static void test_cpu_quotas(void **state)
{
    (void)state;
    int all = pool_usable_cores(fake_root), two = all < 2 ? all : 2;
    fake_root_put("/proc/self/cgroup", "0::/a/b\n");
    fake_root_put("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    REQUIRE_EQ_INT(pool_usable_cores(fake_root), all);
    fake_root_put("/sys/fs/cgroup/a/b/cpu.max", "100001 100000\n"); /* rounded up */
    REQUIRE_EQ_INT(pool_usable_cores(fake_root), two);
    fake_root_put("/sys/fs/cgroup/a/cpu.max", "50000 100000\n"); /* a level above is tighter */
    REQUIRE_EQ_INT(pool_usable_cores(fake_root), 1);
    fake_root_put("/proc/self/cgroup", "3:cpu,cpuacct:/g\n");
    fake_root_put("/sys/fs/cgroup/cpu/g/cpu.cfs_quota_us", "100000\n");
    REQUIRE_EQ_INT(pool_usable_cores(fake_root), all); /* no period: no quota */
    fake_root_put("/sys/fs/cgroup/cpu/g/cpu.cfs_period_us", "100000\n");
    REQUIRE_EQ_INT(pool_usable_cores(fake_root), 1);
    fake_root_put("/sys/fs/cgroup/cpu/g/cpu.cfs_quota_us", "-1\n");
    REQUIRE_EQ_INT(pool_usable_cores(fake_root), all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_item_once_in_order),
        cmocka_unit_test(test_many_runs),
        cmocka_unit_test(test_stop_passes_over_the_rest),
        cmocka_unit_test(test_idle_pool_uses_no_cpu),
        cmocka_unit_test(test_bad_sizes_and_cores),
        cmocka_unit_test_setup_teardown(test_cpu_quotas, fake_root_make, fake_root_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
