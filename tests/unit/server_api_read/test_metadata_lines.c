/* SPDX-License-Identifier: MIT */
/* Lines of agents' vendors in front of a prompt: how long they are, what is left, what is named. */
#include "test.h"

#include "server/api/read/metadata_lines.h"

static const struct {
    const char *text;
    size_t length;
} texts[] = {
    {"", 0},
    {"hello", 0},
    {"x-anthropic-billing-header: a", 29},
    {"x-anthropic-a: b\nhello", 17},
    {"x-anthropic-a: b\nx-anthropic-c:\n \t\n\nhello", 36},
    {"\nx-anthropic-a: b\n", 0},
    {"x-anthropic-: b\n", 0},
    {"x-anthropic-A: b\n", 0},
    {"x-anthropic-a b\n", 0},
};

static void test_lengths(void **state)
{
    for (size_t i = 0; i < N_OF(texts); i++) {
        json_t *text = json_string(texts[i].text);
        REQUIRE_EQ_INT(metadata_lines_of_text(text), texts[i].length);
        json_decref(text);
    }
}

#define LINES "x-anthropic-a: b\\nx-anthropic-c: d\\n"

/* NULL: the messages do not begin with such lines. */
static const struct {
    const char *messages, *sent, *made;
} lists[] = {
    {"[{\"role\":\"user\",\"content\":\"" LINES "hi\"}]", NULL, NULL},
    {"[{\"role\":\"system\",\"content\":\"hi\"}]", NULL, NULL},
    {"[{\"role\":\"system\",\"content\":\"" LINES "hi\"}, {\"n\": 1e0}]",
     "[{\"role\":\"system\",\"content\":\"hi\"},{\"n\": 1e0}]",
     "[{\"role\":\"system\",\"content\":\"hi\"},{\"n\":1.0}]"},
    {"[{\"role\":\"developer\",\"content\":\"" LINES "\"}, {\"n\": 1e0}]", "[{\"n\": 1e0}]",
     "[{\"n\":1.0}]"},
    {"[{\"role\":\"system\",\"content\":\"" LINES "\"}]",
     "[{\"role\":\"system\",\"content\":\"\"}]", "[{\"role\":\"system\",\"content\":\"\"}]"},
    {"[{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"" LINES
     "\"},{\"type\":\"text\",\"text\":\"x\"}]}]",
     "[{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"x\"}]}]",
     "[{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"x\"}]}]"},
    {"[{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"" LINES "hi\"}]}]",
     "[{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"hi\"}]}]",
     "[{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"hi\"}]}]"},
};

static void check_taken(const json_t *messages, const struct srv_body *body, const char *expected)
{
    struct param_unknown noted = {0};
    struct metadata_lines lines = {.place = "messages[0]", .noted = &noted};
    json_t *list = metadata_lines_take(messages, &lines);
    char *text = srv_body_list_text(body, list);
    REQUIRE_EQ_STR(text, expected);
    json_decref(list);
    REQUIRE_EQ_INT(lines.n, 2);
    REQUIRE_EQ_STR(noted.list, "messages[0]:x-anthropic-a,messages[0]:x-anthropic-c");
    free(text);
}

static void test_lists(void **state)
{
    for (size_t i = 0; i < N_OF(lists); i++) {
        char text[512];
        struct srv_body body;
        snprintf(text, sizeof(text), "{\"messages\": %s }", lists[i].messages);
        REQUIRE(!srv_body_read(&body, text, strlen(text), PARAM_MAX_VALUES));
        const json_t *messages = json_object_get(body.root, "messages");
        REQUIRE((metadata_lines_length(messages) > 0) == (lists[i].sent != NULL));
        if (lists[i].sent) {
            check_taken(messages, &body, lists[i].sent);
            check_taken(messages, NULL, lists[i].made);
        }
        srv_body_finish(&body);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_lists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
