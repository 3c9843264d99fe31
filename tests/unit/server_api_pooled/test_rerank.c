/* SPDX-License-Identifier: MIT */
/* Scores of documents in each dialect's shape, their order and number, and refusals. */
#include "local_server.h"

static int open_ranker(void **state)
{
    char line[1200];
    (void)state;
    snprintf(line, sizeof(line), "serve --threads 1 --model %s", carried("demo-rerank"));
    return open_server(line);
}

#define ASK                                                                                        \
    "{\"query\": \"What do cows eat?\", \"documents\": [\"Paris is the capital of France.\", "     \
    "{\"text\": \"A cow eats grass.\"}]"

static void shapes(void **state)
{
    static const struct exchange jina[] = {
        {ASK "}",
         200,
         {{"results.0.index", "1"},
          {"results.1.index", "0"},
          {"results.2", "-"},
          {"results.0.document", "-"},
          {"usage.total_tokens", "*"}}},
        {ASK ", \"top_n\": 1, \"return_documents\": true}",
         200,
         {{"results.0.document.text", "A cow eats grass."}, {"results.1", "-"}}},
        {ASK ", \"top_k\": 2}", 200, {{"data.1.index", "0"}, {"results", "-"}}},
    };
    static const struct exchange cohere[] = {
        {ASK "}",
         200,
         {{"results.0.index", "1"}, {"meta.billed_units.search_units", "1"}, {"usage", "-"}}}};
    static const struct exchange tei[] = {
        {"{\"query\": \"a\", \"texts\": [\"a\", \"b\"]}", 200, {{"1.score", "*"}, {"2", "-"}}}};
    static const struct exchange scores[] = {
        {"{\"text_1\": \"a\", \"text_2\": [\"b\", \"c\"]}",
         200,
         {{"data.0.index", "0"}, {"data.1.object", "score"}, {"data.2", "-"}}}};
    (void)state;
    REQUIRE_EXCHANGES("/v1/rerank", jina);
    REQUIRE_EXCHANGES("/rerank", jina);
    REQUIRE_EXCHANGES("/v2/rerank", cohere);
    REQUIRE_EXCHANGES("/rerank", tei);
    REQUIRE_EXCHANGES("/v1/score", scores);
}

static void scores_are_ordered_shares(void **state)
{
    (void)state;
    send_request("POST", "/v1/rerank", ASK "}", NULL);
    double first = strtod(at("results.0.relevance_score"), NULL);
    double second = strtod(at("results.1.relevance_score"), NULL);
    REQUIRE_MSG(0 < second && second < first && first < 1, "%g %g", first, second);
    send_request("POST", "/v1/rerank", ASK ", \"raw_scores\": true}", NULL);
    double raw = strtod(at("results.0.relevance_score"), NULL);
    REQUIRE_MSG(raw != first, "%g", raw);
}

static void refuses(void **state)
{
    static const struct exchange rows[] = {
        {"{\"documents\": [\"a\"]}", 400, {{"error.param", "query"}}},
        {"{\"query\": \"a\"}", 400, {{"error.param", "documents"}}},
        {"{\"query\": \"a\", \"documents\": \"b\"}", 400, {{"error.param", "documents"}}},
        {"{\"query\": \"a\", \"documents\": []}", 400, {{"error.param", "documents"}}},
        {"{\"query\": 5, \"documents\": [\"b\"]}", 400, {{"error.param", "query"}}},
        {"{\"query\": \"a\", \"documents\": [\"b\", 5]}", 400, {{"error.param", "documents[1]"}}},
        {"{\"query\": \"a\", \"documents\": [\"b\"], \"top_n\": -1}",
         400,
         {{"error.param", "top_n"}}},
    };
    static const struct exchange pairs[] = {
        {"{\"text_1\": \"a\"}", 400, {{"error.param", "text_1"}}},
        {"{\"text_1\": [\"a\", \"b\"], \"text_2\": [\"a\", \"b\", \"c\"]}",
         400,
         {{"error.param", "text_2"}}},
    };
    (void)state;
    REQUIRE_EXCHANGES("/v1/rerank", rows);
    REQUIRE(strstr(at("detail"), "'top_n'")); /* as Jina's clients read it */
    REQUIRE_EXCHANGES("/v1/score", pairs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes),
        cmocka_unit_test(scores_are_ordered_shares),
        cmocka_unit_test(refuses),
    };
    return cmocka_run_group_tests(tests, open_ranker, close_server);
}
