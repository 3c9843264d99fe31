/* SPDX-License-Identifier: MIT */
/* Which messages the chat routes take, and the path of what is wrong. */
#include "server/api/read/chat_input.h"

#include "test.h"

#define CALLS(calls) "[{\"role\":\"assistant\",\"tool_calls\":" calls "}]"

static const struct {
    const char *messages;
    int kind; /* -1: fine, else enum srv_error */
    const char *path, *words;
} cases[] = {
    {"[{\"role\":\"user\",\"content\":\"a\"}]", -1, "", ""},
    {"[{\"role\":\"developer\",\"content\":[{\"type\":\"text\",\"text\":\"a\"}]}]", -1, "", ""},
    {"[{\"role\":\"assistant\",\"content\":null}]", -1, "", ""},
    {CALLS("[{\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]"), -1, "", ""},
    {"[{\"role\":\"assistant\",\"content\":\"a\",\"tool_calls\":null}]", -1, "", ""},
    {"[{\"role\":\"tool\",\"tool_call_id\":\"x\",\"content\":\"a\"}]", -1, "", ""},
    {"[{\"role\":\"user\",\"content\":\"a\",\"tool_calls\":5}]", -1, "", ""},
    {"5", SRV_ERR_INVALID_TYPE, "msgs", "must be an array"},
    {"[]", SRV_ERR_INVALID_VALUE, "msgs", "holds 0 messages; 1 to 4096"},
    {"[5]", SRV_ERR_INVALID_TYPE, "msgs[0]", "must be an object"},
    {"[{\"content\":\"a\"}]", SRV_ERR_MISSING, "msgs[0].role", "required"},
    {"[{\"role\":5}]", SRV_ERR_INVALID_TYPE, "msgs[0].role", "must be a string"},
    {"[{\"role\":\"robot\"}]", SRV_ERR_INVALID_VALUE, "msgs[0].role", "one of system"},
    {"[{\"role\":\"user\"}]", SRV_ERR_MISSING, "msgs[0].content", "required"},
    {"[{\"role\":\"user\",\"content\":null}]", SRV_ERR_MISSING, "msgs[0].content", "required"},
    {"[{\"role\":\"assistant\"}]", SRV_ERR_MISSING, "msgs[0].content", "required"},
    {"[{\"role\":\"user\",\"content\":5}]", SRV_ERR_INVALID_TYPE, "msgs[0].content",
     "array of content"},
    {"[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"user\",\"content\":[5]}]",
     SRV_ERR_INVALID_TYPE, "msgs[1].content[0]", "object with a type"},
    {"[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"image_url\"}]"
     "}]",
     SRV_ERR_UNSUPPORTED, "msgs[0].content[1]", "is of type 'image_url'; only"},
    {"[{\"role\":\"tool\",\"content\":[{\"type\":\"image_url\"}]}]", SRV_ERR_UNSUPPORTED,
     "msgs[0].content[0]", "in tool results"},
    {"[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":5}]}]", SRV_ERR_INVALID_TYPE,
     "msgs[0].content[0]", ".text' must be a string"},
    {"[{\"role\":\"tool\",\"content\":\"a\"}]", SRV_ERR_MISSING, "msgs[0].tool_call_id",
     "required"},
    {"[{\"role\":\"tool\",\"content\":\"a\",\"tool_call_id\":5}]", SRV_ERR_INVALID_TYPE,
     "msgs[0].tool_call_id", "must be a string"},
    {"[{\"role\":\"assistant\",\"content\":\"a\",\"tool_calls\":5}]", SRV_ERR_INVALID_TYPE,
     "msgs[0].tool_calls", "array of calls"},
    {CALLS("[{}]"), SRV_ERR_MISSING, "msgs[0].tool_calls[0].function", "an object"},
    {CALLS("[{\"function\":5}]"), SRV_ERR_INVALID_TYPE, "msgs[0].tool_calls[0].function",
     "an object"},
    {CALLS("[{\"function\":{\"arguments\":\"\"}}]"), SRV_ERR_MISSING,
     "msgs[0].tool_calls[0].function.name", ""},
    {CALLS("[{\"function\":{\"name\":\"f\",\"arguments\":{}}}]"), SRV_ERR_INVALID_TYPE,
     "msgs[0].tool_calls[0].function.arguments", "must be a string"},
};

static void test_messages(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct param_error err = {0};
        json_t *messages = json_loads(cases[i].messages, JSON_DECODE_ANY, NULL);
        REQUIRE(messages);
        int rc = chat_input_check(messages, "msgs", &err);
        REQUIRE_MSG((rc == 0) == (cases[i].kind < 0), "%s: %s", cases[i].messages, err.message);
        if (rc) REQUIRE_EQ_INT(err.kind, cases[i].kind);
        if (rc) REQUIRE_EQ_STR(err.path, cases[i].path);
        REQUIRE_MSG(strstr(err.message, cases[i].words), "%s: %s", cases[i].messages, err.message);
        json_decref(messages);
    }
    struct param_error err;
    REQUIRE(chat_input_check(NULL, "msgs", &err) < 0 && err.kind == SRV_ERR_MISSING);
}

/* So many messages are taken, one more is not. */
static void test_most_messages(void **state)
{
    json_t *messages = json_array();
    struct param_error err;
    (void)state;
    for (int i = 0; i < 4096; i++)
        json_array_append_new(messages, json_pack("{s:s,s:s}", "role", "user", "content", "a"));
    REQUIRE_EQ_INT(chat_input_check(messages, "msgs", &err), 0);
    json_array_append_new(messages, json_pack("{s:s,s:s}", "role", "user", "content", "a"));
    REQUIRE(chat_input_check(messages, "msgs", &err) < 0 && strstr(err.message, "4097"));
    json_decref(messages);
}

static void test_flags(void **state)
{
    static const struct {
        const char *body;
        bool fine;
    } flags[] = {
        {"{}", true},
        {"{\"continue_final_message\":true}", true},
        {"{\"continue_final_message\":true,\"add_generation_prompt\":false}", true},
        {"{\"continue_final_message\":false,\"add_generation_prompt\":true}", true},
        {"{\"continue_final_message\":true,\"add_generation_prompt\":true}", false},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(flags); i++) {
        struct param_error err;
        json_t *body = json_loads(flags[i].body, 0, NULL);
        REQUIRE((chat_input_check_flags(body, &err) == 0) == flags[i].fine);
        json_decref(body);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_most_messages),
        cmocka_unit_test(test_flags),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
