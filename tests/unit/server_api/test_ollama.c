/* SPDX-License-Identifier: MIT */
/* /api/chat and /api/generate: whole answers, lines, loading without a prompt, refusals. */
#include "local_server.h"

#define ASK "\"messages\": [{\"role\": \"user\", \"content\": \"What is 2+2?\"}]"
#define SHORT "\"options\": {\"temperature\": 0, \"num_predict\": 2}"
#define WHOLE "\"stream\": false"

static void chat(void **state)
{
    static const struct exchange rows[] = {
        {"{" ASK ", " WHOLE ", " SHORT "}",
         200,
         {{"message.role", "assistant"},
          {"done", "true"},
          {"done_reason", "length"},
          {"prompt_eval_count", "15"},
          {"eval_count", "2"},
          {"model", "hearth-demo"}}},
        /* a tag is taken, and the model is named as it was asked for */
        {"{\"model\": \"hearth-demo:latest\", " ASK ", " WHOLE ", " SHORT "}",
         200,
         {{"model", "hearth-demo:latest"}}},
        {"{" ASK ", " WHOLE ", \"options\": {\"temperature\": 0, \"repeat_penalty\": 0, \"stop\": "
         "\"=\", \"num_predict\": -2, \"num_ctx\": 9}}",
         200,
         {{"done_reason", "stop"}}},
        {"{" ASK ", " WHOLE ", " SHORT ", \"logprobs\": true, \"top_logprobs\": 1}",
         200,
         {{"logprobs.1.token", "*"}, {"logprobs.0.top_logprobs.0.token", "*"}}},
        {"{" ASK ", " WHOLE ", \"format\": {\"type\": \"object\", \"properties\": {\"a\": "
         "{\"const\": 5}}, \"required\": [\"a\"]}}",
         200,
         {{"done_reason", "stop"}}},
    };
    (void)state;
    REQUIRE_EXCHANGES("/api/chat", rows);
    REQUIRE(strstr(at("message.content"), "5"));
    send_request("POST", "/api/chat", rows[2].body, NULL);
    REQUIRE(strstr(header_of("x-ignored-params"), "num_ctx"));
}

static void lines(void **state)
{
    (void)state;
    send_request("POST", "/api/chat", "{" ASK ", " SHORT "}", NULL);
    REQUIRE_EQ_STR(answered.req->content_type, "application/x-ndjson");
    int n = 0;
    for (char *line = strtok(answered.text.data, "\n"); line; line = strtok(NULL, "\n"), n++) {
        json_t *object = json_loads(line, 0, NULL);
        REQUIRE_MSG(
            json_object_get(object, "model") && json_object_get(object, "created_at") &&
                json_is_string(json_object_get(json_object_get(object, "message"), "content")) &&
                json_is_boolean(json_object_get(object, "done")),
            "%s", line);
        json_decref(object);
    }
    REQUIRE(n >= 2);
}

static void generates(void **state)
{
    static const struct exchange rows[] = {
        {"{\"prompt\": \"What is 2+2?\", " WHOLE ", " SHORT "}",
         200,
         {{"response", "*"}, {"prompt_eval_count", "15"}, {"message", "-"}}},
        {"{\"prompt\": \"What is 2+2?\", \"raw\": true, " WHOLE ", " SHORT "}",
         200,
         {{"prompt_eval_count", "7"}, {"eval_count", "2"}}},
        {"{\"prompt\": \"a\", \"system\": \"Be brief.\", " WHOLE ", " SHORT "}",
         200,
         {{"prompt_eval_count", "*"}}},
        /* nothing is asked for: the model is loaded */
        {"{}", 200, {{"done_reason", "load"}, {"response", ""}, {"done", "true"}}},
        {"{\"prompt\": \"\", \"keep_alive\": 0}", 200, {{"done_reason", "load"}}},
    };
    (void)state;
    REQUIRE_EXCHANGES("/api/generate", rows);
    REQUIRE_EQ_STR(header_of("x-ignored-params"), "keep_alive"); /* the client may not unload */
    send_request("POST", "/api/chat", "{\"messages\": []}", NULL);
    REQUIRE_EQ_STR(at("message.content"), "");
}

static void refuses(void **state)
{
    static const struct exchange rows[] = {
        {"{" ASK ", \"think\": true}", 400, {{"code", "unsupported_parameter"}, {"error", "*"}}},
        {"{" ASK ", \"options\": []}", 400, {{"code", "invalid_type"}}},
        {"{" ASK ", \"options\": {\"num_predict\": 1e400}}", 400, {{"error", "*"}}},
        {"{" ASK ", \"format\": \"yaml\"}", 400, {{"code", "invalid_type"}}},
        {"{" ASK ", \"format\": 5}", 400, {{"code", "invalid_type"}}},
        {"{" ASK ", \"think\": \"max \"}", 400, {{"code", "invalid_value"}}},
        {"{" ASK ", \"keep_alive\": \"9e9h\"}", 400, {{"code", "invalid_value"}}},
        {"{\"messages\": 5}", 400, {{"code", "invalid_type"}}},
        {"{\"messages\": [{\"role\": \"tool\", \"content\": \"4\"}]}",
         400,
         {{"code", "invalid_value"}}},
        {"{\"model\": \"hearth-demo:latest:latest\", " ASK "}", 404, {{"code", "model_not_found"}}},
    };
    static const struct exchange prompts[] = {
        {"{\"prompt\": 5}", 400, {{"code", "invalid_type"}}},
        {"{\"prompt\": \"a\", \"raw\": true, \"system\": \"b\"}", 400, {{"code", "invalid_value"}}},
        {"{\"prompt\": \"a\", \"suffix\": \"b\"}", 400, {{"code", "unsupported_parameter"}}},
        {"{\"prompt\": \"a\", \"images\": [\"aa\"]}", 400, {{"code", "unsupported_parameter"}}},
        {"{\"prompt\": \"a\", \"template\": \"b\"}", 400, {{"code", "unsupported_parameter"}}},
    };
    (void)state;
    REQUIRE_EXCHANGES("/api/chat", rows);
    REQUIRE_EXCHANGES("/api/generate", prompts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chat),
        cmocka_unit_test(lines),
        cmocka_unit_test(generates),
        cmocka_unit_test(refuses),
    };
    return cmocka_run_group_tests(tests, open_demo, close_server);
}
