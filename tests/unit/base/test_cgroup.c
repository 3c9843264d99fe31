/* SPDX-License-Identifier: MIT */
/* The groups of a process, read from fake trees of /proc and /sys. */
#include "test.h"

#include "base/cgroup.h"
#include "fake_root.h"

static char visited[2000];

/* Appends "VERSION:PATH " without the fake root. */
static void note(void *ctx, const char *dir, int version)
{
    REQUIRE(ctx == visited && strncmp(dir, fake_root, strlen(fake_root)) == 0);
    size_t len = strlen(visited);
    snprintf(visited + len, sizeof(visited) - len, "%d:%s ", version, dir + strlen(fake_root));
}

static void test_groups_of_a_controller(void **state)
{
    (void)state;
    static const struct {
        const char *file, *controller, *want;
    } rows[] = {
        {"0::/app/web\n", "cpu", "2:/sys/fs/cgroup/app/web 2:/sys/fs/cgroup/app 2:/sys/fs/cgroup "},
        {"0::/\n", "cpu", "2:/sys/fs/cgroup/ 2:/sys/fs/cgroup "},
        {"5:cpu,cpuacct:/a\n4:memory:/b\n", "cpu", "1:/sys/fs/cgroup/cpu/a 1:/sys/fs/cgroup/cpu "},
        {"5:cpuacct,cpu:/a\n", "cpu", "1:/sys/fs/cgroup/cpu/a 1:/sys/fs/cgroup/cpu "},
        {"5:cpuset:/a\n6:cpuacct:/a\n", "cpu", ""},
        {"4:memory:/b\n0::/c\n", "memory",
         "1:/sys/fs/cgroup/memory/b 1:/sys/fs/cgroup/memory 2:/sys/fs/cgroup/c 2:/sys/fs/cgroup "},
        {"1:name=systemd:/a\n", "memory", ""},
        {"garbage\n:\n\n:::\n0::\n", "memory", ""},
        {"", "memory", ""},
    };
    for (size_t i = 0; i < N_OF(rows); i++) {
        fake_root_put("/proc/self/cgroup", rows[i].file);
        visited[0] = '\0';
        cgroup_visit(fake_root, rows[i].controller, note, visited);
        REQUIRE_MSG(strcmp(visited, rows[i].want) == 0, "row %zu: %s", i, visited);
    }
}

static void test_paths_too_long_are_left_out(void **state)
{
    (void)state;
    char text[4090] = "0::/";
    memset(text + 4, 'x', sizeof(text) - 5);
    fake_root_put("/proc/self/cgroup", text);
    visited[0] = '\0';
    cgroup_visit(fake_root, "cpu", note, visited);
    REQUIRE_EQ_STR(visited, "");
}

static void test_no_list_of_groups(void **state)
{
    (void)state;
    visited[0] = '\0';
    cgroup_visit(fake_root, "cpu", note, visited);
    REQUIRE_EQ_STR(visited, "");
}

static void test_lines(void **state)
{
    (void)state;
    char dir[300], line[8] = "";
    snprintf(dir, sizeof(dir), "%s/d", fake_root);
    REQUIRE(!cgroup_read_line(dir, "limit", line, sizeof(line)));
    fake_root_put("/d/limit", "");
    REQUIRE(!cgroup_read_line(dir, "limit", line, sizeof(line)));
    fake_root_put("/d/limit", "123456789\n");
    REQUIRE(cgroup_read_line(dir, "limit", line, sizeof(line)));
    REQUIRE_EQ_STR(line, "1234567");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_groups_of_a_controller, fake_root_make,
                                        fake_root_remove),
        cmocka_unit_test_setup_teardown(test_paths_too_long_are_left_out, fake_root_make,
                                        fake_root_remove),
        cmocka_unit_test_setup_teardown(test_no_list_of_groups, fake_root_make, fake_root_remove),
        cmocka_unit_test_setup_teardown(test_lines, fake_root_make, fake_root_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
