/* SPDX-License-Identifier: MIT */
/* hearth bench: a line for each measurement with the sizes that were asked for, and its speeds. */
#include "run_command.h"

#include <jansson.h>

#include "server/cli/cli.h"

static struct ran ran;

static void bench(const char *options)
{
    char line[1200];
    snprintf(line, sizeof(line), "bench --threads 1 --reps 2 %s --model %s", options, demo_dir());
    run_command(&ran, srv_cmd_bench, line, "");
}

static void check_line(const char *line, const char *test, int n_tokens, int n_batch, int context)
{
    json_t *row = json_loads(line, JSON_DISABLE_EOF_CHECK, NULL);
    REQUIRE_MSG(row, "%s", line);
    double speed = json_number_value(json_object_get(row, "tok_s"));
    REQUIRE_EQ_STR(json_string_value(json_object_get(row, "test")), test);
    REQUIRE_EQ_INT(json_integer_value(json_object_get(row, "tokens")), n_tokens);
    REQUIRE_EQ_INT(json_integer_value(json_object_get(row, "batch")), n_batch);
    REQUIRE_EQ_INT(json_integer_value(json_object_get(row, "context")), context);
    REQUIRE(json_number_value(json_object_get(row, "min")) <= speed && speed > 0);
    REQUIRE(json_number_value(json_object_get(row, "max")) >= speed);
    json_decref(row);
}

static void json_lines_have_sizes_and_speeds(void **state)
{
    (void)state;
    bench("--prefill 16,40 --decode 8 --batch 1,3 --context 32 --json");
    REQUIRE_MSG(ran.status == 0, "%s", ran.err);
    const char *line = ran.out;
    check_line(line, "prefill", 16, 1, 0);
    check_line(line = strchr(line, '\n') + 1, "prefill", 40, 1, 0);
    check_line(line = strchr(line, '\n') + 1, "decode", 8, 1, 32);
    check_line(line = strchr(line, '\n') + 1, "decode", 8, 3, 32);
    REQUIRE_EQ_STR(strchr(line, '\n'), "\n");
}

static void text_has_a_row_each(void **state)
{
    (void)state;
    bench("--prefill 16 --decode 8 --batch 2");
    REQUIRE_EQ_INT(ran.status, 0);
    REQUIRE(strncmp(ran.out, "prefill     16 tokens ", 22) == 0);
    REQUIRE(strstr(ran.out, "\ndecode       8 tokens, batch    2, context     0 "));
}

static void sizes_beyond_the_context_are_refused(void **state)
{
    (void)state;
    bench("--prefill 100000 --decode 8");
    REQUIRE(ran.status != 0 && ran.out[0] == '\0');
    REQUIRE_MSG(strstr(ran.err, "2048"), "%s", ran.err);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_lines_have_sizes_and_speeds),
        cmocka_unit_test(text_has_a_row_each),
        cmocka_unit_test(sizes_beyond_the_context_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
