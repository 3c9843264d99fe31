/* SPDX-License-Identifier: MIT */
/* Messages of Ollama's dialect to those of chat: ids, results, what is refused; durations. */
#include "server/api/ollama_input.h"

#include "server_api_read/input_case.h"

#define ASK "{\"role\":\"user\",\"content\":\"a\"}"
#define CALLS(...) "{\"role\":\"assistant\",\"tool_calls\":[" __VA_ARGS__ "]}"
#define CALL(more, name, arguments)                                                                \
    "{" more "\"function\":{\"name\":\"" name "\",\"arguments\":" arguments "}}"
#define RESULT(more) "{\"role\":\"tool\"," more "\"content\":\"r\"}"
#define MADE(id, name, arguments)                                                                  \
    "{\"id\":\"" id "\",\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"arguments\":"  \
    "\"" arguments "\"}}"
#define MADE_CALLS(...) "{\"role\":\"assistant\",\"tool_calls\":[" __VA_ARGS__ "],\"content\":\"\"}"
#define GIVEN(id, name)                                                                            \
    "{\"role\":\"tool\",\"content\":\"r\",\"tool_call_id\":\"" id "\",\"name\":\"" name "\"}"

static json_t *convert(const struct srv_body *body, struct param_unknown *ignored)
{
    (void)ignored;
    return ollama_messages(body, json_object_get(body->root, "messages"));
}

#define BODY(...) "{\"messages\":[" __VA_ARGS__ "]}"

static const struct input_meaning meanings[] = {
    {BODY(ASK), "[" ASK "]"},
    {BODY("{\"role\":\"user\",\"content\":\"a\",\"images\":[]}"), "[" ASK "]"},
    {BODY("{\"role\":\"assistant\",\"thinking\":\"t\",\"tool_calls\":null}"),
     "[{\"role\":\"assistant\",\"content\":\"\",\"reasoning_content\":\"t\"}]"},
    /* arguments are an object as it was written, or a text; ids are made where there is none */
    {BODY(CALLS(CALL("", "f", "{ \"n\": 1.50 }") "," CALL("\"id\":\"x\",", "g", "\"{}\""))),
     "[" MADE_CALLS(MADE("call_0", "f", "{ \\\"n\\\": 1.50 }") "," MADE("x", "g", "{}")) "]"},
    /* a result goes to the call of its id, of its name, or to the first that waits */
    {BODY(CALLS(CALL("", "f", "{}") "," CALL("", "g", "{}") "," CALL(
         "\"id\":\"x\",", "f",
         "{}")) "," RESULT("\"tool_call_id\":\"x\",") "," RESULT("\"tool_name\":\"g\",") "," RESULT("")),
     "[" MADE_CALLS(MADE("call_0", "f", "{}") "," MADE("call_1", "g", "{}") "," MADE(
         "x", "f", "{}")) ","
                          "{\"role\":\"tool\",\"tool_call_id\":\"x\",\"content\":\"r\",\"name\":"
                          "\"f\"}," GIVEN("call_1", "g") "," GIVEN("call_0", "f") "]"},
    /* what chat_input_check refuses stays */
    {BODY("5,{\"role\":7,\"content\":\"\"}"), "[5,{\"role\":7,\"content\":\"\"}]"},
    {BODY(CALLS("5,{\"function\":{}}," CALL("", "f", "[]"))),
     "[" MADE_CALLS("{\"id\":\"call_0\",\"type\":\"function\"},"
                    "{\"id\":\"call_1\",\"type\":\"function\",\"function\":{\"arguments\":\"{}\"}},"
                    "{\"id\":\"call_2\",\"type\":\"function\",\"function\":{\"name\":\"f\","
                    "\"arguments\":[]}}") "]"},
};

static const struct input_refusal refusals[] = {
    {BODY(ASK "," RESULT("")), SRV_ERR_INVALID_VALUE, "messages[1].role", "no call before it"},
    {BODY(CALLS(CALL("", "f", "{}")) "," RESULT("") "," RESULT("")), SRV_ERR_INVALID_VALUE,
     "messages[2].role", "no call before it"},
    {BODY("{\"role\":\"user\",\"images\":[\"aa\"]}"), SRV_ERR_UNSUPPORTED, "messages[0].images",
     "not supported"},
};

static void test_messages(void **state)
{
    (void)state;
    check_inputs(meanings, sizeof(meanings) / sizeof(meanings[0]), refusals,
                 sizeof(refusals) / sizeof(refusals[0]), convert);
    /* of many calls 1024 wait for a result */
    char *many = repeated_body("{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[" CALL(
                                   "", "f", "{}") "]},{\"role\":\"assistant\",\"tool_calls\":[",
                               CALL("", "f", "{}"), 1024,
                               "]}," RESULT("\"tool_call_id\":\"call_1024\",") "]}");
    struct srv_body body;
    REQUIRE_EQ_INT(srv_body_read(&body, many, strlen(many), PARAM_MAX_VALUES), 0);
    json_t *list = convert(&body, NULL);
    const json_t *result = json_array_get(list, 2);
    REQUIRE_EQ_STR(json_string_value(json_object_get(result, "tool_call_id")), "call_0");
    json_decref(list);
    srv_body_finish(&body);
    free(many);
}

static void test_keep_alive(void **state)
{
    static const struct {
        const char *text;
        int rc;
        bool now;
    } rows[] = {{"{}", 0, false},
                {"{\"keep_alive\":null}", 0, false},
                {"{\"keep_alive\":0}", 0, true},
                {"{\"keep_alive\":-1}", 0, false},
                {"{\"keep_alive\":\"0\"}", 0, true},
                {"{\"keep_alive\":\"0s\"}", 0, true},
                {"{\"keep_alive\":\"-1s\"}", 0, false},
                {"{\"keep_alive\":\"1h30m\"}", 0, false},
                {"{\"keep_alive\":\"1.5ms\"}", 0, false},
                {"{\"keep_alive\":\"5\"}", -1, false},
                {"{\"keep_alive\":\"\"}", -1, false},
                {"{\"keep_alive\":\"9e9h\"}", -1, false},
                {"{\"keep_alive\":\"1.2.3s\"}", -1, false},
                {"{\"keep_alive\":\".s\"}", -1, false},
                {"{\"keep_alive\":{}}", -1, false},
                {"{\"keep_alive\":true}", -1, false}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        bool now = false;
        json_t *root = json_loads(rows[i].text, 0, NULL);
        int rc = ollama_read_keep_alive(root, &now);
        REQUIRE_MSG(rc == rows[i].rc && (rc || now == rows[i].now), "%s", rows[i].text);
        REQUIRE(!rc || !strcmp(param_error.path, "keep_alive"));
        json_decref(root);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_keep_alive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
