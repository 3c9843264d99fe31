/* SPDX-License-Identifier: MIT */
/* /v1/completions and its kin: prompts of every form, scored echoes, best_of, holes, refusals. */
#include "local_server.h"

static void prompts_of_every_form(void **state)
{
    static const struct exchange rows[] = {
        {"{\"prompt\": \"Once upon\", \"max_tokens\": 2, \"temperature\": 0}",
         200,
         {{"object", "text_completion"},
          {"choices.0.finish_reason", "length"},
          {"choices.0.logprobs", "null"},
          {"usage.prompt_tokens", "2"},
          {"usage.completion_tokens", "2"}}},
        {"{\"prompt\": \"Once\", \"ignore_eos\": true}", 200, {{"usage.completion_tokens", "16"}}},
        {"{\"prompt\": [402, 405], \"max_tokens\": 1}",
         200,
         {{"usage.prompt_tokens", "2"}, {"choices.1", "-"}}},
        {"{\"prompt\": [\"One\", \"Two\"], \"n\": 2, \"max_tokens\": 1}",
         200,
         {{"choices.3.index", "3"}, {"choices.4", "-"}}},
        {"{\"prompt\": [[402], [405, 402]], \"max_tokens\": 1}",
         200,
         {{"usage.prompt_tokens", "3"}}},
        {"{\"prompt\": \"Once\", \"best_of\": 3, \"max_tokens\": 2, \"ignore_eos\": true}",
         200,
         {{"choices.0.index", "0"}, {"choices.1", "-"}, {"usage.completion_tokens", "6"}}},
    };
    (void)state;
    REQUIRE_EXCHANGES("/v1/completions", rows);
    REQUIRE_EXCHANGES("/completions", rows);
}

static void an_echo_is_scored(void **state)
{
    static const struct exchange rows[] = {
        {"{\"prompt\": \"Once upon\", \"echo\": true, \"max_tokens\": 0, \"logprobs\": 1}",
         200,
         {{"choices.0.text", "Once upon"},
          {"choices.0.logprobs.tokens", "[\"Once\",\" upon\"]"},
          {"choices.0.logprobs.token_logprobs.0", "null"},
          {"choices.0.logprobs.token_logprobs.1", "*"},
          {"choices.0.logprobs.text_offset", "[0,4]"},
          {"usage.completion_tokens", "0"}}},
        {"{\"prompt\": [402, 405], \"echo\": true, \"max_tokens\": 0, \"logprobs\": 0}",
         200,
         {{"choices.0.text", "Once upon"}, {"choices.0.logprobs.text_offset", "[0,4]"}}},
    };
    (void)state;
    REQUIRE_EXCHANGES("/v1/completions", rows);
}

static void the_native_shape(void **state)
{
    static const struct exchange rows[] = {
        {"{\"prompt\": \"Once\", \"n_predict\": 3, \"temperature\": 0, \"ignore_eos\": true}",
         200,
         {{"tokens_predicted", "3"}, {"stop_type", "limit"}, {"timings.predicted_n", "3"}}},
        {"{\"prompt\": \"Once\", \"n_probs\": 1}", 400, {{"error.param", "n_probs"}}},
    };
    (void)state;
    REQUIRE_EXCHANGES("/completion", rows);
}

/* The demo model has no marks around a hole. */
static void holes(void **state)
{
    static const struct exchange fim[] = {
        {"{\"prompt\": \"a\", \"suffix\": \"b\"}", 400, {{"error.param", "suffix"}}},
        {"{\"prompt\": [1]}", 400, {{"error.param", "prompt"}}},
    };
    static const struct exchange infill[] = {
        {"{}", 400, {{"error.param", "input_prefix"}}},
        {"{\"input_prefix\": \"a\"}", 400, {{"error.param", "input_suffix"}}},
        {"{\"input_prefix\": \"a\", \"input_suffix\": \"b\", \"prompt\": 5}",
         400,
         {{"error.param", "prompt"}}},
    };
    static const struct exchange open[] = {
        {"{\"prompt\": \"a\", \"suffix\": \"\", \"max_tokens\": 1}",
         200,
         {{"choices.0.index", "0"}}},
        {"{\"prompt\": \"a\", \"suffix\": \"b\"}", 400, {{"error.param", "suffix"}}},
    };
    (void)state;
    REQUIRE_EXCHANGES("/v1/fim/completions", fim);
    REQUIRE_EXCHANGES("/infill", infill);
    REQUIRE_EXCHANGES("/v1/completions", open);
}

static void refuses(void **state)
{
    static const struct exchange rows[] = {
        {"{}", 400, {{"error.param", "prompt"}}},
        {"{\"prompt\": []}", 400, {{"error.param", "prompt"}}},
        {"{\"prompt\": 5}", 400, {{"error.param", "prompt"}}},
        {"{\"prompt\": [\"a\", [402]]}", 400, {{"error.param", "prompt"}}},
        {"{\"prompt\": [402, \"a\"]}", 400, {{"error.param", "prompt"}}},
        {"{\"prompt\": [402, 100000]}", 400, {{"error.param", "prompt"}}},
        {"{\"prompt\": \"a\", \"best_of\": 1, \"n\": 2}", 400, {{"error.param", "best_of"}}},
        {"{\"prompt\": \"a\", \"best_of\": 2, \"stream\": true}", 400, {{"error.param", "best_of"}}},
        {"{\"prompt\": \"a\", \"suffix\": \"b\", \"echo\": true}", 400, {{"error.param", "echo"}}},
        {"{\"prompt\": \"a\", \"logprobs\": 21}", 400, {{"error.param", "logprobs"}}},
    };
    (void)state;
    REQUIRE_EXCHANGES("/v1/completions", rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts_of_every_form),
        cmocka_unit_test(an_echo_is_scored),
        cmocka_unit_test(the_native_shape),
        cmocka_unit_test(holes),
        cmocka_unit_test(refuses),
    };
    return cmocka_run_group_tests(tests, open_demo, close_server);
}
