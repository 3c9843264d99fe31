/* SPDX-License-Identifier: MIT */
/* /v1/responses: an answer and what it repeats, its stream, its count, refusals. */
#include "local_server.h"

#define ASK "\"input\": \"What is 2+2?\""

static void answers(void **state)
{
    static const struct exchange rows[] = {
        {"{" ASK ", \"max_output_tokens\": 2, \"temperature\": 0}",
         200,
         {{"object", "response"},
          {"status", "incomplete"},
          {"output.0.content.0.type", "output_text"},
          {"usage.input_tokens", "15"},
          {"usage.output_tokens", "2"},
          {"truncation", "disabled"}}},
        {"{\"input\": [{\"role\": \"user\", \"content\": \"What is 2+2?\"}], "
         "\"max_output_tokens\": 1}",
         200,
         {{"usage.input_tokens", "15"}, {"instructions", "null"}, {"metadata", "{}"}}},
        {"{" ASK
         ", \"max_output_tokens\": 1, \"instructions\": \"Be brief.\", \"metadata\": {\"a\": "
         "\"b\"}, \"tools\": [{\"type\": \"function\", \"name\": \"f\"}], \"tool_choice\": "
         "\"none\"}",
         200,
         {{"instructions", "Be brief."},
          {"metadata", "{\"a\":\"b\"}"},
          {"tools.0.name", "f"},
          {"tools.0.parameters", "null"},
          {"tools.0.strict", "null"},
          {"tools.1", "-"}}},
        {"{" ASK ", \"max_output_tokens\": 2, \"include\": [\"message.output_text.logprobs\"], "
         "\"top_logprobs\": 1}",
         200,
         {{"output.0.content.0.logprobs.0.top_logprobs.0.token", "*"},
          {"output.0.content.0.logprobs.0.top_logprobs.1", "-"}}},
    };
    (void)state;
    REQUIRE_EXCHANGES("/v1/responses", rows);
    REQUIRE_EXCHANGES("/responses", rows);
    REQUIRE(strncmp(at("id"), "resp_", 5) == 0 && !header_of("x-ignored-params"));
}

static void names_what_has_no_effect(void **state)
{
    (void)state;
    send_request("POST", "/v1/responses",
                 "{" ASK ", \"max_output_tokens\": 1, \"include\": [\"x\"], \"top_logprobs\": 1, "
                 "\"reasoning\": {\"effort\": \"low\", \"y\": 1}}",
                 NULL);
    REQUIRE_EQ_INT(answered.status, 200);
    const char *named = header_of("x-ignored-params");
    REQUIRE_MSG(named && strstr(named, "include") && strstr(named, "top_logprobs") &&
                    strstr(named, "reasoning.y"),
                "%s", named);
}

static void counts(void **state)
{
    static const struct exchange rows[] = {
        {"{" ASK "}", 200, {{"object", "response.input_tokens"}, {"input_tokens", "15"}}}};
    (void)state;
    REQUIRE_EXCHANGES("/v1/responses/input_tokens", rows);
}

static void streams(void **state)
{
    (void)state;
    send_request("POST", "/v1/responses", "{" ASK ", \"max_output_tokens\": 2, \"stream\": true}",
                 NULL);
    const char *text = answered.text.data, *created = strstr(text, "event: response.created"),
               *delta = strstr(text, "event: response.output_text.delta"),
               *end = strstr(text, "event: response.incomplete");
    REQUIRE_MSG(created && created < delta && delta < end, "%s", text);
}

static void refuses(void **state)
{
    static const struct exchange rows[] = {
        {"{}", 400, {{"error.param", "input"}}},
        {"{\"input\": 5}", 400, {{"error.param", "input"}}},
        {"{" ASK ", \"instructions\": 5}", 400, {{"error.param", "instructions"}}},
        {"{" ASK ", \"include\": \"x\"}", 400, {{"error.param", "include"}}},
        {"{" ASK ", \"include\": [5]}", 400, {{"error.param", "include"}}},
        {"{" ASK ", \"previous_response_id\": \"x\"}",
         400,
         {{"error.param", "previous_response_id"}}},
        {"{" ASK ", \"text\": {\"format\": {\"type\": \"x\"}}}",
         400,
         {{"error.param", "text.format.type"}}},
        {"{" ASK ", \"model\": \"none\"}", 404, {{"error.code", "model_not_found"}}},
    };
    (void)state;
    REQUIRE_EXCHANGES("/v1/responses", rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers), cmocka_unit_test(names_what_has_no_effect),
        cmocka_unit_test(counts),  cmocka_unit_test(streams),
        cmocka_unit_test(refuses),
    };
    return cmocka_run_group_tests(tests, open_demo, close_server);
}
