/* SPDX-License-Identifier: MIT */
/* /v1/chat/completions: an answer, its log-probabilities, its count, its stream, and refusals. */
#include "local_server.h"

#define ASK "\"messages\": [{\"role\": \"user\", \"content\": \"What is 2+2?\"}]"

static void answers(void **state)
{
    static const struct exchange rows[] = {
        {"{" ASK ", \"max_tokens\": 3, \"temperature\": 0}",
         200,
         {{"object", "chat.completion"},
          {"choices.0.message.role", "assistant"},
          {"choices.0.finish_reason", "length"},
          {"choices.0.logprobs", "null"},
          {"usage.prompt_tokens", "15"},
          {"usage.completion_tokens", "3"}}},
        {"{" ASK ", \"max_tokens\": 2, \"logprobs\": true, \"top_logprobs\": 0}",
         200,
         {{"choices.0.logprobs.content.1.top_logprobs", "[]"}, {"choices.1", "-"}}},
        {"{" ASK ", \"max_tokens\": 1, \"n\": 2, \"logprobs\": true, \"top_logprobs\": 2}",
         200,
         {{"choices.1.index", "1"},
          {"choices.2", "-"},
          {"choices.1.logprobs.content.0.top_logprobs.1.bytes", "*"},
          {"choices.1.logprobs.content.0.top_logprobs.2", "-"}}},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": \"assistant\", "
         "\"content\": \"A\"}], \"continue_final_message\": true, \"add_generation_prompt\": "
         "false, \"max_tokens\": 1}",
         200,
         {{"usage.completion_tokens", "1"}}},
    };
    (void)state;
    REQUIRE_EXCHANGES("/v1/chat/completions", rows);
    REQUIRE_EXCHANGES("/chat/completions", rows);
    REQUIRE(strncmp(at("id"), "chatcmpl-", 9) == 0);
}

static void counts(void **state)
{
    static const struct exchange rows[] = {
        {"{" ASK "}", 200, {{"object", "response.input_tokens"}, {"input_tokens", "15"}}},
        {"{}", 400, {{"error.param", "messages"}}},
    };
    (void)state;
    REQUIRE_EXCHANGES("/v1/chat/completions/input_tokens", rows);
}

static void streams(void **state)
{
    (void)state;
    send_request("POST", "/v1/chat/completions",
                 "{" ASK ", \"max_tokens\": 2, \"stream\": true, \"stream_options\": "
                 "{\"include_usage\": true}}",
                 NULL);
    REQUIRE_EQ_INT(answered.status, 200);
    const char *text = answered.text.data, *role = strstr(text, "\"role\":\"assistant\""),
               *finish = strstr(text, "\"finish_reason\":\"length\""),
               *usage = strstr(text, "\"completion_tokens\":2"),
               *done = strstr(text, "data: [DONE]");
    REQUIRE_MSG(role && role < finish && finish < usage && usage < done, "%s", text);
}

static void refuses(void **state)
{
    static const struct exchange rows[] = {
        {"{}", 400, {{"error.param", "messages"}, {"error.type", "invalid_request_error"}}},
        {"{\"messages\": []}", 400, {{"error.param", "messages"}}},
        {"{\"messages\": [{\"role\": \"x\", \"content\": \"a\"}]}",
         400,
         {{"error.param", "messages[0].role"}}},
        {"{" ASK ", \"top_logprobs\": 1}", 400, {{"error.param", "top_logprobs"}}},
        {"{" ASK ", \"logprobs\": true, \"top_logprobs\": 21}",
         400,
         {{"error.param", "top_logprobs"}}},
        {"{" ASK ", \"add_generation_prompt\": true, \"continue_final_message\": true}",
         400,
         {{"error.param", "continue_final_message"}}},
        {"{" ASK ", \"model\": \"none\"}", 404, {{"error.code", "model_not_found"}}},
        {"{" ASK ", \"n\": 17}", 400, {{"error.param", "n"}}},
    };
    (void)state;
    REQUIRE_EXCHANGES("/v1/chat/completions", rows);
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
