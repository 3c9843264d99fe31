/* SPDX-License-Identifier: MIT */
/* Input items of Responses to chat messages: which are one turn, what is refused and where. */
#include "server/api/read/history.h"

#include "input_case.h"

#define INPUT(...) "{\"input\":[" __VA_ARGS__ "]}"
#define SAYS(role, content) "{\"role\":\"" role "\",\"content\":" content "}"
#define CALLS(id)                                                                                  \
    "{\"type\":\"function_call\",\"call_id\":\"" id "\",\"name\":\"add\",\"arguments\":"           \
    "\"{\\\"a\\\": 1}\"}"
#define OUTPUT(output) "{\"type\":\"function_call_output\",\"call_id\":\"a\",\"output\":" output "}"
#define THINKS(text)                                                                               \
    "{\"type\":\"reasoning\",\"id\":\"rs_1\",\"summary\":[],\"content\":[{\"type\":"               \
    "\"reasoning_text\",\"text\":\"" text "\"}]}"
#define OUT(text) "{\"type\":\"output_text\",\"text\":\"" text "\",\"annotations\":[]}"
#define IN(text) "{\"type\":\"input_text\",\"text\":\"" text "\"}"

#define TEXT(text) "{\"type\":\"text\",\"text\":\"" text "\"}"
#define CALL(id)                                                                                   \
    "{\"id\":\"" id "\",\"type\":\"function\",\"function\":{\"name\":\"add\",\"arguments\":"       \
    "\"{\\\"a\\\": 1}\"}}"
#define TURN(content, ...) "{\"role\":\"assistant\",\"content\":" content __VA_ARGS__ "}"
#define TOOL(content) "{\"role\":\"tool\",\"tool_call_id\":\"a\",\"content\":" content "}"

static json_t *convert(const struct srv_body *body, struct param_unknown *ignored)
{
    json_t *ends = json_array(), *list = responses_to_chat(body, ends, ignored);
    json_decref(ends);
    return list;
}

static const struct input_meaning meanings[] = {
    {"{\"input\":\"a\"}", "[" SAYS("user", "\"a\"") "]"},
    {"{\"instructions\":\"s\",\"input\":\"a\"}",
     "[" SAYS("system", "\"s\"") "," SAYS("user", "\"a\"") "]"},
    {INPUT(""), "[]"},
    {INPUT(SAYS("user", "[" IN("a") "," IN("b\\u0000") "]")),
     "[" SAYS("user", "[" TEXT("a") "," TEXT("b\\u0000") "]") "]"},
    /* reasoning, message and calls next to each other are one turn, in any order */
    {INPUT(THINKS("t") "," SAYS("assistant", "[" OUT("Wait.") "]") "," CALLS("a") "," CALLS("b")),
     "[" TURN("[" TEXT("Wait.") "]",
              ",\"reasoning_content\":\"t\",\"tool_calls\":[" CALL("a") "," CALL("b") "]") "]"},
    /* a call of a namespace's tool has the name that the model wrote */
    {INPUT("{\"type\":\"function_call\",\"call_id\":\"a\",\"namespace\":\"crm\",\"name\":\"add\","
           "\"arguments\":\"{}\"}"),
     "[" TURN("null", ",\"tool_calls\":[{\"id\":\"a\",\"type\":\"function\",\"function\":{\"name\":"
                      "\"crm__add\",\"arguments\":\"{}\"}}]") "]"},
    {INPUT(CALLS("a") "," SAYS("assistant", "\"And.\"")),
     "[" TURN("[" TEXT("And.") "]", ",\"tool_calls\":[" CALL("a") "]") "]"},
    {INPUT(SAYS("assistant", "\"A.\"") "," CALLS("a") "," SAYS("assistant", "[" OUT("B.") "]")),
     "[" TURN("[" TEXT("A.") "," TEXT("B.") "]", ",\"tool_calls\":[" CALL("a") "]") "]"},
    {INPUT(CALLS("a")), "[" TURN("null", ",\"tool_calls\":[" CALL("a") "]") "]"},
    {INPUT(SAYS("assistant", "\"\"") "," CALLS("a")),
     "[" TURN("null", ",\"tool_calls\":[" CALL("a") "]") "]"},
    /* a message after a message is another turn, and so is reasoning after reasoning */
    {INPUT(SAYS("assistant", "\"A.\"") "," SAYS("assistant", "\"B.\"")),
     "[" TURN("\"A.\"") "," TURN("\"B.\"") "]"},
    {INPUT(THINKS("t") "," CALLS("a") "," THINKS("u") "," CALLS("b")),
     "[" TURN("null", ",\"reasoning_content\":\"t\",\"tool_calls\":[" CALL("a") "]") "," TURN(
         "null", ",\"reasoning_content\":\"u\",\"tool_calls\":[" CALL("b") "]") "]"},
    /* a result ends the turn */
    {INPUT(CALLS("a") "," OUTPUT("\"3\"") "," CALLS("b")),
     "[" TURN("null", ",\"tool_calls\":[" CALL("a") "]") "," TOOL("\"3\"") "," TURN(
         "null", ",\"tool_calls\":[" CALL("b") "]") "]"},
    {INPUT(OUTPUT("[" IN("3") "," IN("4") "]")), "[" TOOL("[" TEXT("3") "," TEXT("4") "]") "]"},
    /* reasoning: its text, or else its summary, which may be empty */
    {INPUT("{\"type\":\"reasoning\",\"summary\":[]}"), "[]"},
    {INPUT("{\"type\":\"reasoning\",\"summary\":[{\"type\":\"summary_text\",\"text\":\"a\\u0000\"},"
           "{\"type\":\"summary_text\",\"text\":\"b\"}]}"),
     "[" TURN("\"\"", ",\"reasoning_content\":\"a\\u0000\\nb\"") "]"},
    {INPUT("{\"type\":\"reasoning\",\"encrypted_content\":null,\"summary\":[{\"type\":"
           "\"summary_text\",\"text\":\"s\"}],\"content\":[{\"type\":\"reasoning_text\",\"text\":"
           "\"t\"}]}," SAYS("user", "\"a\"")),
     "[" TURN("\"\"", ",\"reasoning_content\":\"t\"") "," SAYS("user", "\"a\"") "]"},
};

static const struct input_refusal refusals[] = {
    {INPUT("5"), SRV_ERR_UNSUPPORTED, "input[0]", "'input[0]' must be a message."},
    {INPUT(SAYS("user", "\"a\"") ",{\"type\":\"item_reference\",\"id\":\"a\"}"),
     SRV_ERR_UNSUPPORTED, "input[1]", "but is of type 'item_reference'"},
    /* the instructions do not shift the places */
    {"{\"instructions\":\"s\",\"input\":[{\"content\":\"a\"}]}", SRV_ERR_MISSING, "input[0].role",
     "'input[0].role' is required."},
    {INPUT(SAYS("user", "\"a\"") "," SAYS("wizard", "\"a\"")), SRV_ERR_INVALID_VALUE,
     "input[1].role", "must be one of"},
    {INPUT("{\"role\":\"user\"}"), SRV_ERR_MISSING, "input[0].content", ""},
    {INPUT(SAYS("user", "5")), SRV_ERR_INVALID_TYPE, "input[0].content", ""},
    {INPUT(THINKS("t") "," SAYS("assistant", "5")), SRV_ERR_INVALID_TYPE, "input[1].content", ""},
    {INPUT("{\"type\":\"function_call\",\"name\":\"a\",\"arguments\":\"{}\"}"), SRV_ERR_MISSING,
     "input[0].call_id", "'input[0].call_id' is required."},
    {INPUT("{\"type\":\"function_call\",\"call_id\":\"a\",\"name\":5,\"arguments\":\"{}\"}"),
     SRV_ERR_INVALID_TYPE, "input[0].name", "must be a string"},
    {INPUT("{\"type\":\"function_call\",\"call_id\":\"a\",\"name\":\"b\",\"arguments\":{}}"),
     SRV_ERR_INVALID_TYPE, "input[0].arguments", "must be a string"},
    {INPUT("{\"type\":\"function_call_output\",\"output\":\"a\"}"), SRV_ERR_MISSING,
     "input[0].call_id", ""},
    {INPUT("{\"type\":\"function_call_output\",\"call_id\":\"a\"}"), SRV_ERR_MISSING,
     "input[0].output", ""},
    {INPUT(OUTPUT("{}")), SRV_ERR_INVALID_TYPE, "input[0].output", ""},
    {INPUT(SAYS("user", "[" IN("a") ",{\"type\":\"input_image\",\"image_url\":\"x\"}]")),
     SRV_ERR_UNSUPPORTED, "input[0].content[1]",
     "is of type 'input_image'; only text is supported"},
    {INPUT(OUTPUT("[{\"a\":1}]")), SRV_ERR_INVALID_TYPE, "input[0].output[0]", "a type and a text"},
    {INPUT(SAYS("user", "[{\"type\":\"input_text\"}]")), SRV_ERR_INVALID_TYPE,
     "input[0].content[0]", "a type and a text"},
    {INPUT(SAYS("user", "[5]")), SRV_ERR_INVALID_TYPE, "input[0].content[0]", ""},
    {INPUT("{\"type\":\"reasoning\",\"summary\":[{\"type\":\"summary_text\",\"text\":5}]}"),
     SRV_ERR_INVALID_TYPE, "input[0].summary[0]", ""},
};

#define ITEM(type, ...) "{\"type\":\"" type "\"," __VA_ARGS__ "}"
#define OWN_CALL(id, name, arguments)                                                              \
    TURN("null", ",\"tool_calls\":[{\"id\":\"" id "\",\"type\":\"function\",\"function\":{"        \
                 "\"name\":\"" name "\",\"arguments\":\"" arguments "\"}}]")
#define SHELL "{\"type\":\"exec\",\"command\":[\"ls\"],\"timeout_ms\":1e3}"
#define SHELL_OUTPUT                                                                               \
    "\"[{\\\"stdout\\\":\\\"o\\\",\\\"stderr\\\":\\\"\\\",\\\"outcome\\\":{\\\"type\\\":"          \
    "\\\"exit\\\",\\\"exit_code\\\":0}}]\""
#define SHELL_TEXT "{\\\"type\\\":\\\"exec\\\",\\\"command\\\":[\\\"ls\\\"],\\\"timeout_ms\\\":1e3}"

/* Histories of another provider. */
static const struct input_history histories[] = {
    {INPUT(
         ITEM("custom_tool_call", "\"call_id\":\"a\",\"name\":\"edit\",\"input\":\"*** \\u0000\"") "," ITEM(
             "custom_tool_call_output", "\"call_id\":\"a\",\"output\":[" IN("ok") "]")),
     "[" OWN_CALL("a", "edit",
                  "{\\\"input\\\": \\\"*** \\\\u0000\\\"}") "," TOOL("[" TEXT("ok") "]") "]",
     NULL},
    {INPUT(ITEM("local_shell_call", "\"id\":\"l\",\"call_id\":\"a\",\"action\":" SHELL) "," ITEM(
         "local_shell_call_output", "\"id\":\"a\",\"output\":\"x\"")),
     "[" OWN_CALL("a", "local_shell", SHELL_TEXT) "," TOOL("\"x\"") "]", NULL},
    {INPUT(ITEM("shell_call", "\"call_id\":\"a\",\"action\":{\"commands\":[]}") "," ITEM(
         "shell_call_output", "\"call_id\":\"a\",\"output\":[{\"stdout\":\"o\",\"stderr\":\"\","
                              "\"outcome\":{\"type\":\"exit\",\"exit_code\":0}}]")),
     "[" OWN_CALL("a", "shell", "{\\\"commands\\\":[]}") "," TOOL(SHELL_OUTPUT) "]", NULL},
    {INPUT(
         ITEM("apply_patch_call", "\"call_id\":\"a\",\"operation\":{\"type\":\"delete_file\"}") "," ITEM(
             "apply_patch_call_output",
             "\"call_id\":\"a\",\"status\":\"failed\",\"output\":\"no\"")),
     "[" OWN_CALL("a", "apply_patch", "{\\\"type\\\":\\\"delete_file\\\"}") "," TOOL("\"no\"") "]",
     NULL},
    {INPUT(ITEM("mcp_call",
                "\"id\":\"a\",\"server_label\":\"s\",\"name\":\"f\",\"arguments\":\"{}\","
                "\"output\":\"3\"") "," SAYS("assistant", "[" OUT("3!") "]")),
     "[" OWN_CALL("a", "f", "{}") "," TOOL("\"3\"") "," TURN("[" TEXT("3!") "]") "]", NULL},
    {INPUT(ITEM("mcp_call",
                "\"id\":\"a\",\"name\":\"f\",\"arguments\":\"{}\",\"output\":null,\"error\":{"
                "\"type\":\"http_error\",\"code\":5,\"message\":\"no\"}")),
     "[" OWN_CALL("a", "f", "{}") "," TOOL(
         "\"{\\\"type\\\":\\\"http_error\\\",\\\"code\\\":5,\\\"message\\\":\\\"no\\\"}\"") "]",
     NULL},
    {INPUT(ITEM("code_interpreter_call",
                "\"id\":\"a\",\"code\":\"1\",\"outputs\":[{\"type\":\"logs\",\"logs\":"
                "\"l\"},{\"type\":\"image\",\"url\":\"u\"}]")),
     "[" OWN_CALL("a", "code_interpreter", "{\\\"code\\\": \\\"1\\\"}") "," TOOL(
         "[" TEXT("l") "," TEXT("[image left out]") "]") "]",
     "input[0].outputs[1]=image"},
    {INPUT(ITEM("file_search_call",
                "\"id\":\"a\",\"queries\":[\"q\"],\"results\":[{\"text\":\"t\"}]")),
     "[" OWN_CALL("a", "file_search",
                  "{\\\"queries\\\": [\\\"q\\\"]}") "," TOOL("\"[{\\\"text\\\":\\\"t\\\"}]\"") "]",
     NULL},
    {INPUT(ITEM("program", "\"id\":\"p\",\"call_id\":\"a\",\"code\":\"1\"") "," ITEM(
         "program_output", "\"call_id\":\"a\",\"result\":\"2\"")),
     "[" OWN_CALL("a", "program", "{\\\"code\\\": \\\"1\\\"}") "," TOOL("\"2\"") "]", NULL},
    /* without text, and types nobody knows */
    {INPUT(SAYS("user", "\"a\"") "," ITEM("compaction", "\"encrypted_content\":\"x\"") "," ITEM(
         "wizardry", "\"a\":1") "," ITEM("web_search_call", "\"id\":\"w\"")),
     "[" SAYS("user", "\"a\"") "]",
     "input[1]=compaction,input[2]=wizardry,input[3]=web_search_call"},
    {INPUT(
         ITEM("mcp_call", "\"id\":\"a\",\"name\":\"f\",\"arguments\":\"{}\",\"error\":null") "," ITEM(
             "code_interpreter_call", "\"id\":\"b\",\"code\":null,\"outputs\":null")),
     "[]", "input[0]=mcp_call,input[1]=code_interpreter_call"},
    /* a call goes with its result, whichever of them has no text */
    {INPUT(ITEM("tool_search_call",
                "\"call_id\":\"a\",\"arguments\":{}") "," OUTPUT("\"x\"") "," CALLS("b")),
     "[" TURN("null", ",\"tool_calls\":[" CALL("b") "]") "]",
     "input[0]=tool_search_call,input[1]=function_call_output"},
    {INPUT(CALLS("a") "," ITEM("wizard_output", "\"call_id\":\"a\"") "," CALLS("")),
     "[" TURN("null", ",\"tool_calls\":[" CALL("") "]") "]",
     "input[0]=function_call,input[1]=wizard_output"},
    /* parts */
    {INPUT(SAYS("assistant", "[{\"type\":\"refusal\",\"refusal\":\"No.\"},{\"type\":\"wizard\"}]")),
     "[" TURN("[" TEXT("No.") "]") "]", "input[0].content[1]=wizard"},
    {INPUT("{\"type\":\"reasoning\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":"
           "\"reasoning_text\",\"text\":\"b\"}]}"),
     "[" TURN("\"\"", ",\"reasoning_content\":\"b\"") "]", "input[0].content[0]=text"},
    {INPUT(OUTPUT(
         "[" IN("a") ",{\"type\":\"input_image\",\"image_url\":\"x\"},{\"type\":\"input_file\","
                     "\"filename\":\"b.pdf\"},{\"type\":\"input_file\"},{\"type\":\"wizard\"}]")),
     "[" TOOL("[" TEXT("a") "," TEXT("[image left out]") "," TEXT(
         "[file left out: b.pdf]") "," TEXT("[file left out]") "]") "]",
     "input[0].output[1]=input_image,input[0].output[2]=input_file,input[0].output[3]=input_file,"
     "input[0].output[4]=wizard"},
};

static void test_inputs(void **state)
{
    check_histories(histories, N_OF(histories), convert);
    check_inputs(meanings, N_OF(meanings), refusals, N_OF(refusals), convert);
}

/* Time for each item must not grow with their number: else this takes minutes. */
static void test_many(void **state)
{
    struct param_unknown ignored = {0};
    char *body =
        repeated_body("{\"input\":[", CALLS("a") "," SAYS("assistant", "\"b\""), 20000, "]}");
    json_t *list = convert_text(body, convert, &ignored);
    REQUIRE_MSG(list, "%s", param_error.message);
    const json_t *turn = json_array_get(list, 0);
    REQUIRE_EQ_INT(json_array_size(list), 1);
    REQUIRE_EQ_INT(json_array_size(json_object_get(turn, "content")), 20000);
    REQUIRE_EQ_INT(json_array_size(json_object_get(turn, "tool_calls")), 20000);
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
