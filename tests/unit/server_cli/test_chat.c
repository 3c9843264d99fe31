/* SPDX-License-Identifier: MIT */
/* hearth chat without a terminal: one question, one answer, as text, JSON or a refusal. */
#include "run_command.h"

#include <jansson.h>

#include "server/cli/cli.h"

static struct ran ran, again;

static void chat(struct ran *r, const char *options, const char *input)
{
    char line[1200];
    snprintf(line, sizeof(line), "chat --threads 1 --temperature 0 -n 6 %s --model %s", options,
             demo_dir());
    run_command(r, srv_cmd_chat, line, input);
}

static void a_question_is_answered(void **state)
{
    (void)state;
    chat(&ran, "", "Hello\n");
    REQUIRE_MSG(ran.status == 0 && !ran.err[0], "%s", ran.err);
    size_t len = strlen(ran.out);
    REQUIRE(len > 1 && ran.out[len - 1] == '\n');
    chat(&again, "-p Hello", "");
    REQUIRE_EQ_STR(again.out, ran.out);
    chat(&again, "-p Hello --timings", "");
    REQUIRE_EQ_STR(again.out, ran.out);
    REQUIRE_MSG(strstr(again.err, ", 6 written, "), "%s", again.err);
}

static void json_counts_the_tokens(void **state)
{
    (void)state;
    chat(&again, "", "Hello\n");
    chat(&ran, "--json", "Hello\n");
    json_t *answer = json_loads(ran.out, 0, NULL), *usage = json_object_get(answer, "usage");
    json_t *choice = json_array_get(json_object_get(answer, "choices"), 0);
    const char *text =
        json_string_value(json_object_get(json_object_get(choice, "message"), "content"));
    int n_prompt = (int)json_integer_value(json_object_get(usage, "prompt_tokens"));
    REQUIRE(ran.status == 0 && text && n_prompt > 0);
    REQUIRE(strncmp(again.out, text, strlen(text)) == 0);
    REQUIRE_EQ_STR(json_string_value(json_object_get(choice, "finish_reason")), "length");
    REQUIRE_EQ_INT(json_integer_value(json_object_get(usage, "completion_tokens")), 6);
    REQUIRE_EQ_INT(json_integer_value(json_object_get(usage, "total_tokens")), n_prompt + 6);
    json_decref(answer);
}

static void a_fault_is_one_line(void **state)
{
    static const struct {
        const char *options, *input, *err;
        int status;
    } cases[] = {
        {"", "", "no", SRV_EXIT_USAGE},
        {"", "\xff\n", "UTF-8", SRV_EXIT_USAGE},
        {"--url http://127.0.0.1:1 --regex a", "a", "cannot be used with --url", SRV_EXIT_USAGE},
        {"--url http://127.0.0.1:1", "a", "127.0.0.1", 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        chat(&ran, cases[i].options, cases[i].input);
        REQUIRE_MSG(ran.status == cases[i].status, "%zu: %d: %s", i, ran.status, ran.err);
        REQUIRE_MSG(strstr(ran.err, cases[i].err), "%zu: %s", i, ran.err);
        REQUIRE(!ran.out[0] && strchr(ran.err, '\n') == strrchr(ran.err, '\n'));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_question_is_answered),
        cmocka_unit_test(json_counts_the_tokens),
        cmocka_unit_test(a_fault_is_one_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
