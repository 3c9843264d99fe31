/* SPDX-License-Identifier: MIT */
/* Messages read without an editor: lines, continued lines, quoted ones, and the end of the input. */
#include "run_command.h"

#include "server/cli/chat_input.h"
#include "server/cli/interrupt.h"

static struct ran ran;

static const struct {
    const char *input, *messages; /* each message in brackets */
} cases[] = {
    {"", ""},
    {"one", "[one]"},
    {"one\ntwo\n", "[one][two]"},
    {"\n\n", "[][]"},
    {"a \\\nb\\\nc\nd\n", "[a \nb\nc][d]"},
    {"\"\"\"a\nb\n\"\"\"\nc\n", "[a\nb][c]"},
    {"\"\"\"\na \\\nb\"\"\"\n", "[a \\\nb]"},
    {"\"\"\"one\"\"\"\n", "[one]"},
    {"a\"\"\"\n", "[a\"\"\"]"},
    {"\"\"\"never closed\n", ""},
};

static int print_messages(const struct srv_config *config)
{
    static const char *const words[] = {NULL};
    struct input in;
    char err[256], *message;
    int signal;
    (void)config;
    if (interrupt_begin() || input_init(&in, words, false, err, sizeof(err))) return 1;
    line_edit_destroy(in.edit); /* stdin is a file */
    in.edit = NULL;
    enum line_end end;
    while ((end = input_message(&in, &message, &signal)) == LINE_OK) {
        fprintf(stderr, "[%s]", message);
        free(message);
    }
    input_finish(&in);
    return end == LINE_EOF ? 0 : 2;
}

static void lines_become_messages(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        run_command(&ran, print_messages, "chat", cases[i].input);
        REQUIRE_EQ_INT(ran.status, 0);
        REQUIRE_EQ_STR(ran.err, cases[i].messages);
    }
}

static void each_line_is_asked_for(void **state)
{
    (void)state;
    run_command(&ran, print_messages, "chat", "a\\\nb\nc\n");
    REQUIRE_EQ_STR(ran.out, "> . > > ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_become_messages),
        cmocka_unit_test(each_line_is_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
