/* SPDX-License-Identifier: MIT */
/* /tokenize, /detokenize, /apply-template and /tokenizer_info in the dialects they know. */
#include "local_server.h"

static void to_ids(void **state)
{
    static const struct exchange rows[] = {
        {"{\"content\": \"Once upon\"}", 200, {{"tokens", "[402,405]"}, {"count", "-"}}},
        {"{\"content\": \"Once\", \"with_pieces\": true}",
         200,
         {{"tokens", "[{\"id\":402,\"piece\":\"Once\"}]"}}},
        {"{\"content\": \"\\u0001\", \"with_pieces\": true}", 200, {{"tokens.0.piece", "*"}}},
        {"{\"content\": \"<|im_end|>\"}", 200, {{"tokens.1", "-"}}},
        {"{\"content\": \"<|im_end|>\", \"parse_special\": false}", 200, {{"tokens.1", "*"}}},
        {"{\"prompt\": \"Once upon\"}",
         200,
         {{"count", "2"},
          {"max_model_len", "2048"},
          {"tokens", "[402,405]"},
          {"token_strs", "null"}}},
        {"{\"prompt\": \"Once\", \"return_token_strs\": true}", 200, {{"token_strs", "[\"Once\"]"}}},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"What is 2+2?\"}]}",
         200,
         {{"count", "15"}}},
        {"{\"inputs\": \"Once upon\"}",
         200,
         {{"0.id", "402"},
          {"0.start", "0"},
          {"0.stop", "4"},
          {"1.text", " upon"},
          {"1.start", "4"},
          {"1.stop", "9"}}},
    };
    (void)state;
    REQUIRE_EXCHANGES("/tokenize", rows);
    REQUIRE_EXCHANGES("/v1/tokenize", rows);
}

static void and_back(void **state)
{
    static const struct exchange rows[] = {
        {"{\"tokens\": [402, 405]}", 200, {{"content", "Once upon"}, {"prompt", "Once upon"}}},
        {"{\"tokens\": [402], \"model\": \"default\"}", 200, {{"content", "-"}, {"prompt", "Once"}}},
        {"{\"tokens\": []}", 200, {{"content", ""}}},
        {"{}", 400, {{"error.param", "tokens"}}},
        {"{\"tokens\": 5}", 400, {{"error.param", "tokens"}}},
        {"{\"tokens\": [1024]}", 400, {{"error.param", "tokens"}}},
    };
    (void)state;
    REQUIRE_EXCHANGES("/detokenize", rows);
}

static void a_template(void **state)
{
    static const struct exchange rows[] = {
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}",
         200,
         {{"prompt", "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n"}}},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}], \"add_generation_prompt\": "
         "false}",
         200,
         {{"prompt", "<|im_start|>user\nx<|im_end|>\n"}}},
        {"{}", 400, {{"error.param", "messages"}}},
        {"{\"messages\": 5}", 400, {{"error.param", "messages"}}},
    };
    (void)state;
    REQUIRE_EXCHANGES("/apply-template", rows);
}

static void refuses(void **state)
{
    static const struct exchange rows[] = {
        {"{}", 400, {{"error.param", "content"}}},
        {"{\"content\": 5}", 400, {{"error.param", "content"}}},
        {"{\"prompt\": [5]}", 400, {{"error.param", "prompt"}}},
        {"{\"inputs\": {}}", 400, {{"error.param", "inputs"}}},
        {"{\"content\": \"a\", \"model\": \"none\"}", 404, {{"error.code", "model_not_found"}}},
        {"{\"content\": \"a\"", 400, {{"error.type", "invalid_request_error"}}},
    };
    (void)state;
    REQUIRE_EXCHANGES("/tokenize", rows);
    send_request("POST", "/tokenize", "{\"content\": \"a\", \"nonsense\": 1}", NULL);
    REQUIRE_EQ_STR(header_of("x-ignored-params"), "nonsense");
}

static void the_configuration(void **state)
{
    static const struct exchange rows[] = {
        {NULL, 200, {{"tokenizer_class", "*"}, {"chat_template", "*"}}}};
    (void)state;
    REQUIRE_EXCHANGES("/tokenizer_info", rows);
    REQUIRE(strstr(at("chat_template"), "im_start"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(to_ids),
        cmocka_unit_test(and_back),
        cmocka_unit_test(a_template),
        cmocka_unit_test(refuses),
        cmocka_unit_test(the_configuration),
    };
    return cmocka_run_group_tests(tests, open_demo, close_server);
}
