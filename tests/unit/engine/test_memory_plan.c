/* SPDX-License-Identifier: MIT */
/* The memory limit that cgroups give, read from fake trees of /proc and /sys. */
#include "test.h"

#include "engine/memory_plan.h"
#include "fake_root.h"

static void test_version_2(void **state)
{
    (void)state;
    fake_root_put("/proc/self/cgroup", "0::/app/web\n");
    fake_root_put("/sys/fs/cgroup/app/web/memory.max", "max\n");
    int64_t physical = mem_limit_bytes(fake_root);
    REQUIRE(physical > 0);
    fake_root_put("/sys/fs/cgroup/app/web/memory.max", "104857600\n");
    REQUIRE_EQ_INT(mem_limit_bytes(fake_root), 104857600);
    fake_root_put("/sys/fs/cgroup/app/memory.max", "52428800\n"); /* a level above is tighter */
    REQUIRE_EQ_INT(mem_limit_bytes(fake_root), 52428800);
}

static void test_version_1(void **state)
{
    (void)state;
    fake_root_put("/proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/a/b\n1:name=systemd:/a\n");
    fake_root_put("/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n");
    int64_t physical = mem_limit_bytes(fake_root);
    fake_root_put("/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "73400320\n");
    REQUIRE_EQ_INT(mem_limit_bytes(fake_root), 73400320);
    REQUIRE(physical > 73400320);
}

/* In a container the group's own path is not mounted; the limit stands at the root. */
static void test_container(void **state)
{
    (void)state;
    fake_root_put("/proc/self/cgroup", "0::/system.slice/docker-1234.scope\n");
    fake_root_put("/sys/fs/cgroup/memory.max", "62914560\n");
    REQUIRE_EQ_INT(mem_limit_bytes(fake_root), 62914560);
}

static void test_nonsense_is_no_limit(void **state)
{
    (void)state;
    int64_t none = mem_limit_bytes(fake_root);
    fake_root_put("/proc/self/cgroup", "garbage\n:::\n0::/x\n");
    fake_root_put("/sys/fs/cgroup/x/memory.max", "-5\n");
    REQUIRE_EQ_INT(mem_limit_bytes(fake_root), none);
    fake_root_put("/sys/fs/cgroup/x/memory.max", "99999999999999999999999999\n");
    REQUIRE_EQ_INT(mem_limit_bytes(fake_root), none);
    fake_root_put("/sys/fs/cgroup/x/memory.max", "");
    REQUIRE_EQ_INT(mem_limit_bytes(fake_root), none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_version_2, fake_root_make, fake_root_remove),
        cmocka_unit_test_setup_teardown(test_version_1, fake_root_make, fake_root_remove),
        cmocka_unit_test_setup_teardown(test_container, fake_root_make, fake_root_remove),
        cmocka_unit_test_setup_teardown(test_nonsense_is_no_limit, fake_root_make,
                                        fake_root_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
