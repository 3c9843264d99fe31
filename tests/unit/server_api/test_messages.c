/* SPDX-License-Identifier: MIT */
/* /v1/messages: an answer, a continued one, counts, the events of a stream, refusals. */
#include "local_server.h"

#define ASK "\"messages\": [{\"role\": \"user\", \"content\": \"What is 2+2?\"}]"

static void answers(void **state)
{
    static const struct exchange rows[] = {
        {"{" ASK ", \"max_tokens\": 2, \"temperature\": 0}",
         200,
         {{"type", "message"},
          {"role", "assistant"},
          {"content.0.type", "text"},
          {"stop_reason", "max_tokens"},
          {"usage.input_tokens", "15"},
          {"usage.output_tokens", "2"}}},
        {"{" ASK ", \"max_tokens\": 60, \"temperature\": 0, \"stop_sequences\": [\"=\"]}",
         200,
         {{"stop_reason", "stop_sequence"}, {"stop_sequence", "="}}},
    };
    (void)state;
    REQUIRE_EXCHANGES("/v1/messages", rows);
    REQUIRE(strncmp(at("id"), "msg_", 4) == 0);
}

static void counts(void **state)
{
    static const struct exchange rows[] = {
        {"{" ASK "}", 200, {{"input_tokens", "15"}}},
        /* without the turn that an answer would open */
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"What is 2+2?\"}, {\"role\": "
         "\"assistant\", \"content\": \"2\"}]}",
         200,
         {{"input_tokens", "16"}}},
        {"{" ASK ", \"system\": \"Be brief.\"}", 200, {{"input_tokens", "*"}}},
    };
    (void)state;
    REQUIRE_EXCHANGES("/v1/messages/count_tokens", rows);
    REQUIRE(atoi(at("input_tokens")) > 17);
}

static void streams(void **state)
{
    static const char *const events[] = {"message_start",       "content_block_start",
                                         "content_block_delta", "content_block_stop",
                                         "message_delta",       "message_stop"};
    (void)state;
    send_request("POST", "/v1/messages", "{" ASK ", \"max_tokens\": 2, \"stream\": true}", NULL);
    const char *p = answered.text.data;
    for (size_t i = 0; p && i < sizeof(events) / sizeof(events[0]); i++) {
        char line[64];
        snprintf(line, sizeof(line), "event: %s\n", events[i]);
        p = strstr(p, line);
        REQUIRE_MSG(p, "%s: %s", events[i], answered.text.data);
    }
}

static void refuses(void **state)
{
    static const struct exchange rows[] = {
        {"{" ASK "}", 400, {{"type", "error"}, {"error.type", "invalid_request_error"}}},
        {"{" ASK ", \"max_tokens\": 0}", 400, {{"error.message", "*"}}},
        {"{\"max_tokens\": 1}", 400, {{"error.type", "invalid_request_error"}}},
        {"{\"messages\": [], \"max_tokens\": 1}", 400, {{"type", "error"}}},
        {"{" ASK ", \"max_tokens\": 1, \"thread\": {}}", 400, {{"error.details.error_code", "*"}}},
        {"{" ASK ", \"max_tokens\": 1, \"container\": \"x\"}", 400, {{"type", "error"}}},
        {"{" ASK ", \"max_tokens\": 1, \"model\": \"none\"}",
         404,
         {{"error.type", "not_found_error"}}},
        {"{" ASK ", \"max_tokens\": 1, \"cache_control\": 5}", 400, {{"type", "error"}}},
    };
    (void)state;
    REQUIRE_EXCHANGES("/v1/messages", rows);
    send_request("POST", "/v1/messages", rows[0].body, NULL);
    REQUIRE(strstr(at("error.message"), "'max_tokens' is required"));
    send_request("POST", "/v1/messages", rows[1].body, NULL);
    REQUIRE(strstr(at("error.message"), "at least 1"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers),
        cmocka_unit_test(counts),
        cmocka_unit_test(streams),
        cmocka_unit_test(refuses),
    };
    return cmocka_run_group_tests(tests, open_demo, close_server);
}
