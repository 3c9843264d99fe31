/* SPDX-License-Identifier: MIT */
/* hearth inspect: the report on the demo model as text and JSON, and on a folder without one. */
#include "run_command.h"

#include <jansson.h>

#include "server/cli/cli.h"

static struct ran ran;

static void inspect(const char *options, const char *dir)
{
    char line[1200];
    snprintf(line, sizeof(line), "inspect %s --model %s", options, dir);
    run_command(&ran, srv_cmd_inspect, line, "");
}

static void text_begins_with_the_verdict(void **state)
{
    static const char *const lines[] = {
        "verdict: can be served\nfamily: Llama: 5 layers, tied\narchitecture: LlamaForCausalLM ",
        "\ntensors: 47 of 2231040 bytes, 0 not used\n",
        "\ntokenizer: 1024 tokens\n",
        "\nend of sequence: 2, 0\n",
        "\ntool calls: list (fallback), ",
        "\nreasoning: none\n",
    };
    (void)state;
    inspect("", demo_dir());
    REQUIRE_EQ_INT(ran.status, 0);
    REQUIRE_EQ_STR(ran.err, "");
    REQUIRE(strstr(ran.out, lines[0]) == ran.out);
    for (size_t i = 1; i < sizeof(lines) / sizeof(lines[0]); i++)
        REQUIRE_MSG(strstr(ran.out, lines[i]), "%s", lines[i]);
}

static void json_has_the_same(void **state)
{
    (void)state;
    inspect("--json", demo_dir());
    json_t *report = json_loads(ran.out, 0, NULL);
    REQUIRE(ran.status == 0 && report);
    REQUIRE(json_is_true(json_object_get(report, "can_be_served")));
    REQUIRE_EQ_INT(json_array_size(json_object_get(report, "problems")), 0);
    json_t *tensors = json_object_get(report, "tensors"), *first = json_array_get(tensors, 0);
    json_t *numerics = json_object_get(report, "numerics");
    REQUIRE_EQ_INT(json_array_size(tensors), 47);
    REQUIRE_EQ_INT(json_integer_value(json_object_get(first, "bytes")), 1024 * 128 * 2);
    REQUIRE(json_is_true(json_object_get(first, "used")));
    REQUIRE_EQ_INT(json_array_size(numerics), 4);
    json_decref(report);
}

static void a_problem_is_the_verdict(void **state)
{
    char empty[] = "/tmp/hearth-test-XXXXXX", err[512];
    struct srv_config config = {.model = empty};
    (void)state;
    REQUIRE(mkdtemp(empty));
    inspect("", empty);
    REQUIRE_EQ_INT(ran.status, 1);
    REQUIRE(strncmp(ran.out, "verdict: cannot be served: ", 27) == 0);
    REQUIRE(strstr(ran.err, "cannot be served: ") && strstr(ran.err, "config.json"));
    REQUIRE(srv_inspect_check(&config, err, sizeof(err)) == -1 && strstr(err, "config.json"));
    config.model = demo_dir();
    REQUIRE_EQ_INT(srv_inspect_check(&config, err, sizeof(err)), 0);
    rmdir(empty);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_begins_with_the_verdict),
        cmocka_unit_test(json_has_the_same),
        cmocka_unit_test(a_problem_is_the_verdict),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
