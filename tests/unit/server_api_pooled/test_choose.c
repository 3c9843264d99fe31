/* SPDX-License-Identifier: MIT */
/* /v1/choose and choice_probabilities: probabilities, their order and number, refusals. */
#include <math.h>

#include "local_server.h"

static double number_at(const char *path)
{
    return strtod(at(path), NULL);
}

static void probabilities(void **state)
{
    static const struct exchange rows[] = {
        {"{\"prompt\": \"2+2=\", \"choices\": [\"5\", \"4\"]}",
         200,
         {{"object", "*"}, {"choices.2", "-"}}},
        {"{\"prompt\": [402], \"choices\": [[405], [406, 405]], \"normalise\": \"mean\"}",
         200,
         {{"choices.1.index", "*"}}},
        {"{\"prompt\": \"Once\", \"choices\": [\" upon\", \" a\", \" the\"], \"top\": 1}",
         200,
         {{"choices.0.text", " upon"}, {"choices.1", "-"}}},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"choices\": [\"a\", \"b\"]}",
         200,
         {{"choices.1.probability", "*"}}},
    };
    (void)state;
    REQUIRE_EXCHANGES("/v1/choose", rows);
    send_request("POST", "/v1/choose", rows[0].body, NULL);
    double sum = number_at("choices.0.probability") + number_at("choices.1.probability");
    REQUIRE_MSG(fabs(sum - 1) < 1e-6, "%s", answered.text.data);
    REQUIRE_EQ_STR(at("choices.0.text"), "5"); /* in their order */
    bool first = number_at("choices.0.probability") > number_at("choices.1.probability");
    send_request("POST", "/v1/choose",
                 "{\"prompt\": \"2+2=\", \"choices\": [\"5\", \"4\"], \"top\": 2}", NULL);
    REQUIRE_EQ_STR(at("choices.0.text"), first ? "5" : "4"); /* best first */
}

static void of_a_chat(void **state)
{
#define CHAT                                                                                       \
    "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"choice_probabilities\": true"
    static const struct exchange rows[] = {
        {CHAT ", \"structured_outputs\": {\"choice\": [\"a\", \"b\"]}}",
         200,
         {{"choices.0.finish_reason", "stop"},
          {"choices.0.choice_probabilities.1", "*"},
          {"choices.0.logprobs", "null"}}},
        {CHAT "}", 400, {{"error.param", "structured_outputs.choice"}}},
        {CHAT ", \"guided_choice\": [\"a\", \"b\"], \"n\": 2}", 400, {{"error.param", "n"}}},
        {CHAT ", \"guided_choice\": [\"a\", \"b\"], \"logprobs\": true}",
         400,
         {{"error.param", "logprobs"}}},
        {CHAT ", \"guided_choice\": [\"a\", \"b\"], \"stream\": true}",
         400,
         {{"error.param", "stream"}}},
    };
    (void)state;
    REQUIRE_EXCHANGES("/v1/chat/completions", rows);
}

static void refuses(void **state)
{
    static const struct exchange rows[] = {
        {"{\"choices\": [\"a\", \"b\"]}", 400, {{"error.param", "prompt"}}},
        {"{\"prompt\": \"a\", \"messages\": [], \"choices\": [\"a\", \"b\"]}",
         400,
         {{"error.param", "prompt"}}},
        {"{\"prompt\": 5, \"choices\": [\"a\", \"b\"]}", 400, {{"error.param", "prompt"}}},
        {"{\"prompt\": \"a\"}", 400, {{"error.param", "choices"}}},
        {"{\"prompt\": \"a\", \"choices\": [\"b\"]}", 400, {{"error.param", "choices"}}},
        {"{\"prompt\": \"a\", \"choices\": [\"b\", \"b\"]}", 400, {{"error.param", "choices"}}},
        {"{\"prompt\": \"a\", \"choices\": [\"b\", \"\"]}", 400, {{"error.param", "choices[1]"}}},
        {"{\"prompt\": \"a\", \"choices\": [\"b\", 5]}", 400, {{"error.param", "choices[1]"}}},
        {"{\"prompt\": \"a\", \"choices\": [\"b\", \"c\"], \"top\": 0}",
         400,
         {{"error.param", "top"}}},
        {"{\"prompt\": \"a\", \"choices\": [\"b\", \"c\"], \"normalise\": \"x\"}",
         400,
         {{"error.param", "normalise"}}},
    };
    (void)state;
    REQUIRE_EXCHANGES("/v1/choose", rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(probabilities),
        cmocka_unit_test(of_a_chat),
        cmocka_unit_test(refuses),
    };
    return cmocka_run_group_tests(tests, open_demo, close_server);
}
