/* SPDX-License-Identifier: MIT */
/* Which messages the chat routes take, the path of what is wrong, and where messages end in a prompt.
 * Linked with --wrap=tok_token_bytes and --wrap=tok_is_special: every token is one byte, and those
 * below 10 are control tokens. */
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
        json_t *messages = json_loads(cases[i].messages, JSON_DECODE_ANY, NULL);
        REQUIRE(messages);
        int rc = chat_input_check(messages, "msgs");
        REQUIRE_MSG((rc == 0) == (cases[i].kind < 0), "%s: %s", cases[i].messages,
                    param_error.message);
        if (rc) REQUIRE_EQ_INT(param_error.kind, cases[i].kind);
        if (rc) REQUIRE_EQ_STR(param_error.path, cases[i].path);
        REQUIRE_MSG(strstr(param_error.message, cases[i].words), "%s: %s", cases[i].messages,
                    param_error.message);
        json_decref(messages);
    }
    REQUIRE(chat_input_check(NULL, "msgs") < 0 && param_error.kind == SRV_ERR_MISSING);
}

/* So many messages are taken, one more is not. */
static void test_most_messages(void **state)
{
    json_t *messages = json_array();
    (void)state;
    for (int i = 0; i < 4096; i++)
        json_array_append_new(messages, json_pack("{s:s,s:s}", "role", "user", "content", "a"));
    REQUIRE_EQ_INT(chat_input_check(messages, "msgs"), 0);
    json_array_append_new(messages, json_pack("{s:s,s:s}", "role", "user", "content", "a"));
    REQUIRE(chat_input_check(messages, "msgs") < 0 && strstr(param_error.message, "4097"));
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
        json_t *body = json_loads(flags[i].body, 0, NULL);
        REQUIRE((chat_input_check_flags(body) == 0) == flags[i].fine);
        json_decref(body);
    }
}

/* ---- ends of messages ---------------------------------------------------------------------- */

bool __wrap_tok_is_special(const struct tok *t, int32_t id);
size_t __wrap_tok_token_bytes(const struct tok *t, int32_t id, char *buf, size_t size);

bool __wrap_tok_is_special(const struct tok *t, int32_t id)
{
    (void)t;
    return id < 10;
}

size_t __wrap_tok_token_bytes(const struct tok *t, int32_t id, char *buf, size_t size)
{
    (void)t, (void)id, (void)buf, (void)size;
    return 1;
}

enum { MOST_TOKENS = 1000 };

/* A prompt as written: < and > are control tokens, letters text of the request, the rest the
 * template's. */
static int ends_of(const char *text, const char *roles, int64_t ret[CHAT_MOST_ENDS])
{
    int32_t ids[MOST_TOKENS];
    struct tok_range input[MOST_TOKENS];
    struct tok_prompt prompt = {.len = strlen(text), .input = input};
    json_t *messages = json_array();
    REQUIRE(prompt.len <= MOST_TOKENS);
    for (size_t i = 0; i < prompt.len; i++) {
        char c = text[i];
        ids[i] = c == '<' ? 1 : c == '>' ? 2 : 10 + c;
        if (c < 'a' || c > 'z') continue;
        bool goes_on = prompt.n_input > 0 && input[prompt.n_input - 1].end == i;
        if (!goes_on) input[prompt.n_input++] = (struct tok_range){i, i};
        input[prompt.n_input - 1].end = i + 1;
    }
    for (; *roles; roles++)
        json_array_append_new(messages, json_pack("{s:s}", "role",
                                                  *roles == 'u'   ? "user"
                                                  : *roles == 'a' ? "assistant"
                                                                  : "tool"));
    int n = chat_input_ends(NULL, &prompt, ids, (int64_t)prompt.len, messages, ret);
    json_decref(messages);
    return n;
}

static void check_ends(const char *text, const char *roles, const char *want)
{
    int64_t ends[CHAT_MOST_ENDS];
    int n = ends_of(text, roles, ends);
    char got[300] = "";
    for (int i = 0; i < n; i++)
        snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s%d", i ? " " : "", (int)ends[i]);
    REQUIRE_MSG(!strcmp(got, want), "%s: %s, not %s", text, got, want);
}

static void test_ends(void **state)
{
    (void)state;
    check_ends("", "", "");
    check_ends("<abc", "u", "");
    check_ends("<.ab>.<.", "u", "4");
    check_ends("<SYS>.<.ab>.<.", "u", "10"); /* nothing of the request comes before the second */
    check_ends("<.ab.c>.<.de>.<.", "su", "6 12");
    check_ends("<sys:ab>.<user:cd>.<", "su", "7 17");
    check_ends("a>b>c>", "uuu", "1 3 5");
    check_ends("<>ab<cd>>ef>", "uau", "4 7 11"); /* of two control tokens the first */
}

/* The first, and those of the last turn with the one before it: up to two for a message. */
static void test_last_turn(void **state)
{
    (void)state;
    check_ends("a>b>c>d>e>f>g>h>i>", "uauauauau", "1 13 15 17");
    check_ends("a>b>c>d>e>f>g>h>i>", "uauauauat", "1 5 7 9 11 13 15 17");
    check_ends("a>b>c>d>e>f>g>h>i>", "uauauauua", "1 9 11 13 15 17");
    check_ends("a>b>c>d>e>f>g>h>i>", "aaaat", "1 3 5 7 9 11 13 15 17"); /* nobody's turn */
}

static void test_most_ends(void **state)
{
    char text[201], roles[101];
    int64_t ends[CHAT_MOST_ENDS];
    (void)state;
    for (int i = 0; i < 100; i++) {
        text[2 * i] = 'a';
        text[2 * i + 1] = '>';
        roles[i] = i ? 'a' : 'u';
    }
    text[200] = roles[100] = '\0';
    REQUIRE_EQ_INT(ends_of(text, roles, ends), CHAT_MOST_ENDS);
    REQUIRE_EQ_INT(ends[0], 1);
    for (int i = 1; i < CHAT_MOST_ENDS; i++)
        REQUIRE_EQ_INT(ends[i], 199 - 2 * (CHAT_MOST_ENDS - 1 - i));
    REQUIRE_EQ_INT(ends[CHAT_MOST_ENDS - 1], 199);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages),  cmocka_unit_test(test_most_messages),
        cmocka_unit_test(test_flags),     cmocka_unit_test(test_ends),
        cmocka_unit_test(test_last_turn), cmocka_unit_test(test_most_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
