/* SPDX-License-Identifier: MIT */
/* Input items of Responses to chat messages: which are one turn, what is refused and where. */
#include "server/api/read/responses_input.h"

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
    {INPUT(SAYS("user", "\"a\"") ",{\"type\":\"web_search_call\"}"), SRV_ERR_UNSUPPORTED,
     "input[1]", "but is of type 'web_search_call'"},
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
    {INPUT(OUTPUT("[" IN("a") ",{\"type\":\"input_image\",\"image_url\":\"x\"}]")),
     SRV_ERR_UNSUPPORTED, "input[0].output[1]", "is of type 'input_image'; only text is supported"},
    {INPUT(SAYS("user", "[{\"type\":\"input_text\"}]")), SRV_ERR_INVALID_TYPE,
     "input[0].content[0]", "a type and a text"},
    {INPUT(SAYS("user", "[5]")), SRV_ERR_INVALID_TYPE, "input[0].content[0]", ""},
    {INPUT("{\"type\":\"reasoning\",\"content\":[{\"type\":\"text\",\"text\":\"a\"}]}"),
     SRV_ERR_UNSUPPORTED, "input[0].content[0]", "'text'"},
    {INPUT("{\"type\":\"reasoning\",\"summary\":[{\"type\":\"summary_text\",\"text\":5}]}"),
     SRV_ERR_INVALID_TYPE, "input[0].summary[0]", ""},
};

static json_t *convert(const struct srv_body *body, struct param_error *err)
{
    return responses_to_chat(json_object_get(body->root, "instructions"),
                             json_object_get(body->root, "input"), err);
}

static void test_inputs(void **state)
{
    check_inputs(meanings, N_OF(meanings), refusals, N_OF(refusals), convert);
}

/* Time for each item must not grow with their number: else this takes minutes. */
static void test_many(void **state)
{
    struct param_error err = {0};
    char *body =
        repeated_body("{\"input\":[", CALLS("a") "," SAYS("assistant", "\"b\""), 20000, "]}");
    json_t *list = convert_text(body, convert, &err);
    REQUIRE_MSG(list, "%s", err.message);
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
