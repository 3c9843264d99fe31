/* SPDX-License-Identifier: MIT */
/* Blocks of the Anthropic dialect to chat messages: what they become, what is refused and where. */
#include "server/api/read/history.h"

#include "input_case.h"

#define USER(...) "{\"messages\":[{\"role\":\"user\",\"content\":" __VA_ARGS__ "}]}"
#define USER_SAYS(...) "{\"role\":\"user\",\"content\":" __VA_ARGS__ "}"
#define SYSTEM(...) "{\"system\":\"s\",\"messages\":[" __VA_ARGS__ "]}"
#define ASSISTANT(...) "{\"messages\":[{\"role\":\"assistant\",\"content\":" __VA_ARGS__ "}]}"
#define USE(input) "{\"type\":\"tool_use\",\"id\":\"a\",\"name\":\"add\",\"input\":" input "}"
#define RESULT(...) "{\"type\":\"tool_result\",\"tool_use_id\":\"a\"" __VA_ARGS__ "}"
#define TEXT(text) "{\"type\":\"text\",\"text\":\"" text "\"}"
#define THINKING(text) "{\"type\":\"thinking\",\"thinking\":\"" text "\",\"signature\":\"s\"}"

#define CALL(arguments)                                                                            \
    "{\"id\":\"a\",\"type\":\"function\",\"function\":{\"name\":\"add\",\"arguments\":" arguments  \
    "}}"
#define TOOL(content) "{\"role\":\"tool\",\"tool_call_id\":\"a\",\"content\":[" content "]}"

static json_t *convert(const struct srv_body *body, struct param_unknown *ignored)
{
    json_t *ends = json_array(), *list = messages_to_chat(body, ends, ignored);
    json_decref(ends);
    return list;
}

static const struct input_meaning meanings[] = {
    {"{}", "[]"},
    {"{\"system\":null,\"messages\":null}", "[]"},
    {"{\"system\":\"s\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}",
     "[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"a\"}]"},
    {"{\"system\":[" TEXT("s") "]}", "[{\"role\":\"system\",\"content\":[" TEXT("s") "]}]"},
    {USER("[" TEXT("a") "," TEXT("b") "]"),
     "[{\"role\":\"user\",\"content\":[" TEXT("a") "," TEXT("b") "]}]"},
    /* instructions on the way; members of blocks that are for caches stay out of the template */
    {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"system\",\"content\":\"s\"}]"
     "}",
     "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"system\",\"content\":\"s\"}]"},
    {"{\"messages\":[{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"s\","
     "\"cache_control\":{\"type\":\"ephemeral\"}}]}]}",
     "[{\"role\":\"system\",\"content\":[" TEXT("s") "]}]"},
    {USER("[]"), "[{\"role\":\"user\",\"content\":[]}]"},
    /* calls: the input as it was written, digits, order and escapes too */
    {ASSISTANT("[" USE("{ \"b\": 1.50, \"a\":123456789012345678901234567890}") "]"),
     "[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[" CALL(
         "\"{ \\\"b\\\": 1.50, \\\"a\\\":123456789012345678901234567890}\"") "]}]"},
    {ASSISTANT("[" TEXT("Wait.") "," USE("{}") "," USE("{\"x\":\"\\u0041\"}") "]"),
     "[{\"role\":\"assistant\",\"content\":[" TEXT("Wait.") "],\"tool_calls\":[" CALL(
         "\"{}\"") "," CALL("\"{\\\"x\\\":\\\"\\\\u0041\\\"}\"") "]}]"},
    /* the input is that of its own block, wherever another member has the name */
    {ASSISTANT("[{\"input\":{\"a\":{\"input\":{}}},\"type\":\"tool_use\",\"id\":\"a\",\"name\":"
               "\"add\"}]"),
     "[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[" CALL(
         "\"{\\\"a\\\":{\\\"input\\\":{}}}\"") "]}]"},
    /* thinking: lines of one text, NUL bytes too; what is redacted is dropped */
    {ASSISTANT("[" THINKING("t") "," TEXT("c") "]"),
     "[{\"role\":\"assistant\",\"content\":[" TEXT("c") "],\"reasoning_content\":\"t\"}]"},
    {ASSISTANT("[" THINKING("a\\u0000b") "," THINKING("c\\u0000d") "]"),
     "[{\"role\":\"assistant\",\"content\":\"\",\"reasoning_content\":"
     "\"a\\u0000b\\nc\\u0000d\"}]"},
    {ASSISTANT("[{\"type\":\"redacted_thinking\",\"data\":\"x\"}]"),
     "[{\"role\":\"assistant\",\"content\":\"\"}]"},
    /* results come before the text of their message */
    {USER("[" TEXT("b") "," RESULT(",\"content\":\"3\"") "]"),
     "[" TOOL(TEXT("3")) ",{\"role\":\"user\",\"content\":[" TEXT("b") "]}]"},
    {USER("[" RESULT("") "," RESULT(",\"content\":null") "," RESULT(",\"content\":[]") "]"),
     "[" TOOL(TEXT("")) "," TOOL(TEXT("")) "," TOOL("") "]"},
    {USER("[" RESULT(",\"content\":[" TEXT("x") "," TEXT("y") "]") "]"),
     "[" TOOL(TEXT("x") "," TEXT("y")) "]"},
    {USER("[" RESULT(",\"is_error\":true,\"content\":\"no\\u0000\"") "," RESULT(
         ",\"is_error\":true,\"content\":\"Error: no\"") "," RESULT(",\"is_error\":false,"
                                                                    "\"content\":\"no\"") "]"),
     "[" TOOL(TEXT("Error: no\\u0000")) "," TOOL(TEXT("Error: no")) "," TOOL(TEXT("no")) "]"},
    /* documents and search results are text, in their messages and in results */
    {USER("[{\"type\":\"document\",\"source\":{\"type\":\"text\",\"media_type\":\"text/"
          "plain\",\"data\":"
          "\"a\\u0000b\"},\"title\":\"T\",\"context\":\"C\",\"citations\":{\"enabled\":false}}"
          "," TEXT("q") "]"),
     "[{\"role\":\"user\",\"content\":[" TEXT(
         "<document>\\nT\\nC\\na\\u0000b\\n</document>\\n") "," TEXT("q") "]}]"},
    {USER("[{\"type\":\"document\",\"source\":{\"type\":\"content\",\"content\":[" TEXT("a") "," TEXT(
         "b") "]}},{\"type\":\"document\",\"source\":{\"type\":\"content\",\"content\":\"c\"}}]"),
     "[{\"role\":\"user\",\"content\":[" TEXT("<document>\\na\\nb\\n</document>\\n") "," TEXT(
         "<document>\\nc\\n</document>\\n") "]}]"},
    {USER("[" RESULT(
         ",\"content\":[{\"type\":\"search_result\",\"source\":\"http://x\",\"title\":\"T\","
         "\"content\":[" TEXT("a") "]}]") "]"),
     "[" TOOL(TEXT("<search_result>\\nT\\nhttp://x\\na\\n</search_result>\\n")) "]"},
    {USER("[" RESULT(",\"is_error\":true,\"content\":[" TEXT("x") "," TEXT("y") "]") "]"),
     "[" TOOL(TEXT("Error: x") "," TEXT("y")) "]"},
};

static const struct input_refusal refusals[] = {
    {"{\"messages\":{}}", SRV_ERR_INVALID_TYPE, "messages", "must be an array"},
    {"{\"system\":5,\"messages\":[]}", SRV_ERR_INVALID_TYPE, "system", "text blocks"},
    {"{\"messages\":[]}", SRV_ERR_INVALID_VALUE, "messages", "at least 1"},
    /* a system prompt does not make a conversation, and does not shift the places in it */
    {"{\"system\":\"s\",\"messages\":[]}", SRV_ERR_INVALID_VALUE, "messages", "at least 1"},
    {SYSTEM(USER_SAYS("\"a\"") ",5"), SRV_ERR_INVALID_TYPE, "messages.1", "must be an object"},
    {SYSTEM("{\"content\":\"a\"}"), SRV_ERR_MISSING, "messages.0.role", "messages.0.role: this"},
    {SYSTEM("{\"role\":5,\"content\":\"a\"}"), SRV_ERR_INVALID_TYPE, "messages.0.role", ""},
    {SYSTEM("{\"role\":\"tool\",\"content\":\"a\"}"), SRV_ERR_INVALID_VALUE, "messages.0.role",
     "must be 'user', 'assistant' or 'system'"},
    {SYSTEM("{\"role\":\"user\"}"), SRV_ERR_MISSING, "messages.0.content", ""},
    {SYSTEM(USER_SAYS("5")), SRV_ERR_INVALID_TYPE, "messages.0.content", "an array of blocks"},
    {SYSTEM(USER_SAYS("[{\"type\":\"image\"}]")), SRV_ERR_UNSUPPORTED, "messages.0.content.0",
     "blocks of type 'image'"},
    {SYSTEM(USER_SAYS("[" RESULT("") "]") "," USER_SAYS("[{\"type\":\"text\"}]")), SRV_ERR_MISSING,
     "messages.1.content.0.text", ""},
    {SYSTEM("{\"role\":\"system\",\"content\":[" USE("{}") "]}"), SRV_ERR_UNSUPPORTED,
     "messages.0.content.0", "'tool_use'"},
    {"{\"system\":[" TEXT("a") ",{\"type\":\"image\"}]}", SRV_ERR_UNSUPPORTED, "system.1",
     "system.1: only text"},
    {"{\"system\":[5]}", SRV_ERR_INVALID_TYPE, "system.0", "a block must be an object"},
    {"{\"system\":[{\"type\":\"text\"}]}", SRV_ERR_INVALID_TYPE, "system.0", "and a text"},
    {ASSISTANT("[" TEXT("a") ",{\"type\":\"tool_use\",\"name\":\"add\",\"input\":{}}]"),
     SRV_ERR_MISSING, "messages.0.content.1.id", "messages.0.content.1.id: this field is required"},
    {ASSISTANT("[{\"type\":\"tool_use\",\"id\":5,\"name\":\"add\",\"input\":{}}]"),
     SRV_ERR_INVALID_TYPE, "messages.0.content.0.id", "must be a string"},
    {ASSISTANT("[{\"type\":\"tool_use\",\"id\":\"a\",\"input\":{}}]"), SRV_ERR_MISSING,
     "messages.0.content.0.name", ""},
    {ASSISTANT("[{\"type\":\"tool_use\",\"id\":\"a\",\"name\":\"add\"}]"), SRV_ERR_MISSING,
     "messages.0.content.0.input", "must be an object"},
    {ASSISTANT("[" USE("\"{}\"") "]"), SRV_ERR_INVALID_TYPE, "messages.0.content.0.input",
     "must be an object"},
    {ASSISTANT("[{\"type\":\"thinking\"}]"), SRV_ERR_MISSING, "messages.0.content.0.thinking", ""},
    {ASSISTANT("[" USE("{}") "," RESULT("") "]"), SRV_ERR_UNSUPPORTED, "messages.0.content.1",
     "blocks of type 'tool_result' are not supported"},
    {ASSISTANT("[" USE("{}") ",5]"), SRV_ERR_INVALID_TYPE, "messages.0.content.1.type", ""},
    {ASSISTANT("[" USE("{}") ",{\"type\":\"text\"}]"), SRV_ERR_MISSING, "messages.0.content.1.text",
     ""},
    {USER("[{\"type\":\"tool_result\"}]"), SRV_ERR_MISSING, "messages.0.content.0.tool_use_id", ""},
    {USER("[" RESULT(",\"content\":5") "]"), SRV_ERR_INVALID_TYPE, "messages.0.content.0.content",
     "a string or text blocks"},
    {USER("[" RESULT(",\"content\":[" TEXT("x") ",{\"type\":\"text\"}]") "]"), SRV_ERR_UNSUPPORTED,
     "messages.0.content.0.content", "Only text is supported in tool results"},
    {USER("[" RESULT(
         "") ",{\"type\":\"document\",\"source\":{\"type\":\"base64\",\"data\":\"eA==\"}}]"),
     SRV_ERR_UNSUPPORTED, "messages.0.content.1", "only text is supported in documents"},
    {USER("[{\"type\":\"document\"}]"), SRV_ERR_UNSUPPORTED, "messages.0.content.0", "only text"},
    {USER("[{\"type\":\"search_result\",\"content\":[" TEXT("a") ",{\"type\":\"image\"}]}]"),
     SRV_ERR_UNSUPPORTED, "messages.0.content.0", "only text"},
    {USER("[" USE("{}") "]"), SRV_ERR_UNSUPPORTED, "messages.0.content.0", "'tool_use'"},
    {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"user\",\"content\":[" RESULT(
         "") ",{\"type\":\"text\",\"text\":5}]}]}",
     SRV_ERR_INVALID_TYPE, "messages.1.content.1.text", ""},
};

#define FOREIGN(type, ...) "{\"type\":\"" type "\"," __VA_ARGS__ "}"
#define SERVER_USE(id) FOREIGN("server_tool_use", "\"id\":\"" id "\",\"name\":\"add\",\"input\":{}")
#define CALLED(id)                                                                                 \
    "\"tool_calls\":[{\"id\":\"" id "\",\"type\":\"function\",\"function\":{\"name\":\"add\","     \
    "\"arguments\":\"{}\"}}]"
#define GIVES(type, content)                                                                       \
    FOREIGN(type "_tool_result", "\"tool_use_id\":\"a\",\"content\":" content)
#define SAID(...) "{\"role\":\"assistant\",\"content\":" __VA_ARGS__ "}"

/* Histories of another provider: what it ran is in the assistant's message. */
static const struct input_history histories[] = {
    {ASSISTANT("[" TEXT("x") "," SERVER_USE("a") "," GIVES(
         "mcp", "[" TEXT("3") ",{\"type\":\"image\"}]") "," TEXT("y") "]"),
     "[" SAID("[" TEXT("x") "]," CALLED("a")) "," TOOL(
         TEXT("3") "," TEXT("[image left out]")) "," SAID("[" TEXT("y") "]") "]",
     "messages.0.content.2.content.1=image"},
    {ASSISTANT("[" SERVER_USE("a") "," GIVES(
         "code_execution", "{\"stdout\":\"o\",\"stderr\":\"\",\"content\":[]}") "]"),
     "[" SAID("null," CALLED("a")) "," TOOL(
         TEXT("{\\\"stdout\\\":\\\"o\\\",\\\"stderr\\\":\\\"\\\",\\\"content\\\":[]}")) "]",
     NULL},
    {ASSISTANT("[" SERVER_USE("a") "," GIVES(
         "web_fetch",
         "{\"content\":{\"type\":\"document\",\"source\":{\"type\":\"text\",\"data\":\"p\"}}}") "]"),
     "[" SAID("null," CALLED("a")) "," TOOL(TEXT("<document>\\np\\n</document>\\n")) "]", NULL},
    /* a call goes with its result if that has no text; one that runs yet stays */
    {ASSISTANT("[" SERVER_USE("a") "," GIVES(
         "web_search",
         "[{\"type\":\"web_search_result\",\"url\":\"u\"}]") "," TEXT("y") "," SERVER_USE("b") "]"),
     "[" SAID("[" TEXT("y") "]," CALLED("b")) "]",
     "messages.0.content.0=server_tool_use,messages.0.content.1=web_search_tool_result"},
    {ASSISTANT("[" SERVER_USE("a") "," GIVES("web_fetch",
                                             "{\"content\":{\"type\":\"document\",\"source\":{"
                                             "\"type\":\"base64\",\"data\":\"eA\"}}}") "]"),
     "[" SAID("null," CALLED("a")) "," TOOL(TEXT("[file left out]")) "]",
     "messages.0.content.1.content.0=document"},
    {ASSISTANT("[" SERVER_USE("a") "," GIVES("code_execution", "{\"error_code\":\"x\"}") "]"),
     "[" SAID("\"\"") "]",
     "messages.0.content.0=server_tool_use,messages.0.content.1=code_execution_tool_result"},
    {ASSISTANT("[" FOREIGN("container_upload", "\"file_id\":\"f\"") "," FOREIGN(
         "compaction",
         "\"content\":\"So far.\"") "," FOREIGN("compaction",
                                                "\"content\":null") "," FOREIGN("wizard",
                                                                                "\"a\":1") "]"),
     "[" SAID("[" TEXT("So far.") "]") "]",
     "messages.0.content.0=container_upload,messages.0.content.2=compaction,messages.0.content.3="
     "wizard"},
    /* the client's own results */
    {USER("[" RESULT(
         ",\"content\":[{\"type\":\"tool_reference\",\"tool_name\":\"t\"},{\"type\":\"image\","
         "\"source\":{}},{\"type\":\"document\",\"title\":\"T\",\"source\":{\"type\":\"url\"}}]") "]"),
     "[" TOOL(TEXT("[image left out]") "," TEXT("[file left out: T]")) "]",
     "messages.0.content.0.content.0=tool_reference,messages.0.content.0.content.1=image,"
     "messages.0.content.0.content.2=document"},
    {USER("[" FOREIGN("tool_addition", "\"tool\":{}") "," TEXT("a") "]"),
     "[{\"role\":\"user\",\"content\":[" TEXT("a") "]}]", "messages.0.content.0=tool_addition"},
};

static void test_inputs(void **state)
{
    check_histories(histories, N_OF(histories), convert);
    check_inputs(meanings, N_OF(meanings), refusals, N_OF(refusals), convert);
}

/* Time for each block must not grow with their number: else this takes minutes. */
static void test_many(void **state)
{
    struct param_unknown ignored = {0};
    char *body = repeated_body("{\"messages\":[{\"role\":\"assistant\",\"content\":[",
                               THINKING("some words on the way"), 20000, "]}]}");
    json_t *list = convert_text(body, convert, &ignored);
    REQUIRE_MSG(list, "%s", param_error.message);
    const json_t *thinking = json_object_get(json_array_get(list, 0), "reasoning_content");
    REQUIRE_EQ_INT(json_string_length(thinking), 20000 * 22 - 1);
    json_decref(list);
    free(body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_inputs),
        cmocka_unit_test(test_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
