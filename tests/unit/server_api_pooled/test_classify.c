/* SPDX-License-Identifier: MIT */
/* Labels of texts: probabilities or logits, and refusals. */
#include "local_server.h"

static int open_labels(void **state)
{
    char line[1200];
    (void)state;
    snprintf(line, sizeof(line), "serve --threads 1 --model %s", carried("demo-rerank"));
    return open_server(line);
}

static void labels(void **state)
{
    static const struct exchange rows[] = {
        {"{\"input\": [\"one\", \"two\"]}",
         200,
         {{"data.0.index", "0"},
          {"data.1.index", "1"},
          {"data.1.num_classes", "1"},
          {"data.1.label", "*"},
          {"data.2", "-"},
          {"usage.total_tokens", "*"}}},
        {"{\"input\": \"one\"}",
         200,
         {{"data.0.probs.0", "*"}, {"data.0.probs.1", "-"}, {"data.1", "-"}}},
    };
    (void)state;
    REQUIRE_EXCHANGES("/classify", rows);
    REQUIRE_EXCHANGES("/v1/classify", rows);
    double share = strtod(at("data.0.probs.0"), NULL);
    REQUIRE_MSG(0 < share && share < 1, "%g", share);
    send_request("POST", "/classify", "{\"input\": \"one\", \"use_activation\": false}", NULL);
    REQUIRE(strtod(at("data.0.probs.0"), NULL) != share);
}

static void refuses(void **state)
{
    static const struct exchange rows[] = {
        {"{}", 400, {{"error.param", "input"}}},
        {"{\"input\": \"\"}", 400, {{"error.param", "input"}}},
        {"{\"input\": []}", 400, {{"error.param", "input"}}},
        {"{\"input\": 5}", 400, {{"error.param", "input"}}},
        {"{\"input\": \"a\", \"use_activation\": 5}", 400, {{"error.param", "use_activation"}}},
        {"{\"input\": \"a\", \"messages\": [5]}", 400, {{"error.param", "messages"}}},
        {"{\"input\": \"a\", \"truncation_side\": \"x\"}",
         400,
         {{"error.param", "truncation_side"}}},
        {"{\"input\": \"a\", \"model\": \"none\"}", 404, {{"error.code", "model_not_found"}}},
    };
    (void)state;
    REQUIRE_EXCHANGES("/classify", rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(labels),
        cmocka_unit_test(refuses),
    };
    return cmocka_run_group_tests(tests, open_labels, close_server);
}
