/* SPDX-License-Identifier: MIT */
/* Breakpoints of a Messages body: which are refused, where, and how many there may be. */
#include "test.h"

#include "server/api/read/cache_fields.h"

#define MARK "\"cache_control\":{\"type\":\"ephemeral\"}"
#define BAD "\"cache_control\":{\"type\":\"x\"}"

static const struct {
    const char *body, *path; /* NULL: good */
} cases[] = {
    {"{}", NULL},
    {"{" MARK ",\"system\":\"s\",\"messages\":[{\"content\":\"c\"}]}", NULL},
    {"{\"cache_control\":null}", NULL},
    {"{\"cache_control\":5}", "cache_control"},
    {"{\"cache_control\":{}}", "cache_control.type"},
    {"{" BAD "}", "cache_control"},
    {"{\"cache_control\":{\"type\":\"ephemeral\",\"ttl\":\"5m\"}}", NULL},
    {"{\"cache_control\":{\"type\":\"ephemeral\",\"ttl\":\"1h\"}}", NULL},
    {"{\"cache_control\":{\"type\":\"ephemeral\",\"ttl\":\"2h\"}}", "cache_control.ephemeral.ttl"},
    {"{\"cache_control\":{\"type\":\"ephemeral\",\"ttl\":5}}", "cache_control.ephemeral.ttl"},
    {"{\"tools\":[{},{" BAD "}]}", "tools.1.cache_control"},
    {"{\"system\":[{" BAD "}]}", "system.0.cache_control"},
    {"{\"messages\":[{},{\"content\":[{" BAD "}]}]}", "messages.1.content.0.cache_control"},
    {"{\"messages\":[{\"content\":[{\"content\":[{" BAD "}]}]}]}",
     "messages.0.content.0.content.0.cache_control"},
    /* four of blocks and tools; the body's own does not count */
    {"{" MARK ",\"tools\":[{" MARK "}],\"system\":[{" MARK "}],\"messages\":[{\"content\":[{" MARK
     "},{\"content\":[{" MARK "}]}]}]}",
     NULL},
    {"{\"tools\":[{" MARK "},{" MARK "}],\"system\":[{" MARK "}],\"messages\":[{\"content\":[{" MARK
     "},{\"content\":[{" MARK "}]}]}]}",
     ""},
};

static void test_cases(void **state)
{
    for (size_t i = 0; i < N_OF(cases); i++) {
        json_t *body = json_loads(cases[i].body, 0, NULL);
        REQUIRE(body);
        int rc = cache_control_check(body);
        REQUIRE_MSG((rc == 0) == (cases[i].path == NULL), "%s: %s", cases[i].body,
                    param_error.message);
        if (rc) REQUIRE_EQ_STR(param_error.path, cases[i].path);
        json_decref(body);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
