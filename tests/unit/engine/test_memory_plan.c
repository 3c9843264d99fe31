/* SPDX-License-Identifier: MIT */
/* The memory limit as cgroups state it, read from made-up trees of /proc and /sys. */
#include "test.h"

#include <sys/stat.h>
#include <unistd.h>

#include "engine/memory_plan.h"

static char root[200];

static void put(const char *path, const char *text)
{
    char full[600];
    snprintf(full, sizeof(full), "%s%s", root, path);
    for (char *p = full + strlen(root) + 1; *p; p++)
        if (*p == '/') {
            *p = '\0';
            mkdir(full, 0700);
            *p = '/';
        }
    FILE *f = fopen(full, "w");
    REQUIRE(f);
    fputs(text, f);
    fclose(f);
}

static int set_up(void **state)
{
    (void)state;
    snprintf(root, sizeof(root), "/tmp/hearth-memory-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    char command[300];
    snprintf(command, sizeof(command), "rm -r %s", root);
    return system(command) == 0 ? 0 : -1;
}

static void test_version_2(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/app/web\n");
    put("/sys/fs/cgroup/app/web/memory.max", "max\n");
    int64_t physical = mem_limit_bytes(root);
    REQUIRE(physical > 0);
    put("/sys/fs/cgroup/app/web/memory.max", "104857600\n");
    REQUIRE_EQ_INT(mem_limit_bytes(root), 104857600);
    put("/sys/fs/cgroup/app/memory.max", "52428800\n"); /* a level above is tighter */
    REQUIRE_EQ_INT(mem_limit_bytes(root), 52428800);
}

static void test_version_1(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/a/b\n1:name=systemd:/a\n");
    put("/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n");
    int64_t physical = mem_limit_bytes(root);
    put("/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "73400320\n");
    REQUIRE_EQ_INT(mem_limit_bytes(root), 73400320);
    REQUIRE(physical > 73400320);
}

/* In a container the group's own path is not mounted; the limit stands at the root. */
static void test_container(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/system.slice/docker-1234.scope\n");
    put("/sys/fs/cgroup/memory.max", "62914560\n");
    REQUIRE_EQ_INT(mem_limit_bytes(root), 62914560);
}

static void test_nonsense_is_no_limit(void **state)
{
    (void)state;
    int64_t none = mem_limit_bytes(root);
    put("/proc/self/cgroup", "garbage\n:::\n0::/x\n");
    put("/sys/fs/cgroup/x/memory.max", "-5\n");
    REQUIRE_EQ_INT(mem_limit_bytes(root), none);
    put("/sys/fs/cgroup/x/memory.max", "99999999999999999999999999\n");
    REQUIRE_EQ_INT(mem_limit_bytes(root), none);
    put("/sys/fs/cgroup/x/memory.max", "");
    REQUIRE_EQ_INT(mem_limit_bytes(root), none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_version_2, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_version_1, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_container, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_nonsense_is_no_limit, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
