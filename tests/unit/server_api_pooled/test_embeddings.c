/* SPDX-License-Identifier: MIT */
/* Vectors in each dialect's shape, their numbers, and refusals. */
#include "local_server.h"

static int open_encoder(void **state)
{
    char line[1200];
    (void)state;
    snprintf(line, sizeof(line), "serve --threads 1 --model %s", carried("demo-embed"));
    return open_server(line);
}

static void shapes(void **state)
{
    static const struct exchange openai[] = {
        {"{\"input\": [\"one\", \"two words\"]}",
         200,
         {{"object", "list"},
          {"data.1.object", "embedding"},
          {"data.1.index", "1"},
          {"data.1.embedding.0", "*"},
          {"data.2", "-"},
          {"usage.total_tokens", "*"}}},
        {"{\"input\": \"one\", \"dimensions\": 2}",
         200,
         {{"data.0.embedding.1", "*"}, {"data.0.embedding.2", "-"}}},
        {"{\"input\": [5, 6]}", 200, {{"data.0.embedding.0", "*"}, {"data.1", "-"}}},
    };
    static const struct exchange tei[] = {
        {"{\"inputs\": \"one\"}", 200, {{"0.0", "*"}, {"1", "-"}}}};
    static const struct exchange cohere[] = {{"{\"texts\": [\"one\"], \"input_type\": "
                                              "\"search_query\", \"embedding_types\": [\"float\"]}",
                                              200,
                                              {{"embeddings.float.0.0", "*"},
                                               {"response_type", "embeddings_by_type"},
                                               {"meta.billed_units.input_tokens", "*"}}}};
    static const struct exchange ollama[] = {
        {"{\"input\": \"one\"}", 200, {{"embeddings.0.0", "*"}, {"prompt_eval_count", "*"}}}};
    static const struct exchange one[] = {
        {"{\"prompt\": \"one\"}", 200, {{"embedding.0", "*"}, {"embeddings", "-"}}}};
    static const struct exchange llama[] = {
        {"{\"content\": \"one\"}", 200, {{"0.index", "0"}, {"0.embedding.0.0", "*"}}}};
    (void)state;
    REQUIRE_EXCHANGES("/v1/embeddings", openai);
    REQUIRE_EXCHANGES("/embed", tei);
    REQUIRE_EXCHANGES("/", tei);
    REQUIRE_EXCHANGES("/v2/embed", cohere);
    REQUIRE_EXCHANGES("/api/embed", ollama);
    REQUIRE_EXCHANGES("/api/embeddings", one);
    REQUIRE_EXCHANGES("/embedding", llama);
}

static void lengths(void **state)
{
    double sum = 0;
    char path[40];
    (void)state;
    send_request("POST", "/v1/embeddings", "{\"input\": \"one\", \"dimensions\": 4}", NULL);
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof(path), "data.0.embedding.%d", i);
        sum += strtod(at(path), NULL) * strtod(at(path), NULL);
    }
    REQUIRE_MSG(sum > 0.9999 && sum < 1.0001, "%g", sum);
    send_request("POST", "/v1/embeddings",
                 "{\"input\": \"one\", \"dimensions\": 2, \"encoding_format\": \"base64\"}", NULL);
    const char *text = at("data.0.embedding");
    REQUIRE_MSG(strlen(text) == 12 && text[11] == '=' && text[10] != '=', "%s", text);
}

static void refuses(void **state)
{
    static const struct exchange rows[] = {
        {"{}", 400, {{"error.param", "input"}}},
        {"{\"input\": \"\"}", 400, {{"error.param", "input"}}},
        {"{\"input\": []}", 400, {{"error.param", "input"}}},
        {"{\"input\": {}}", 400, {{"error.param", "input"}}},
        {"{\"input\": \"a\", \"dimensions\": 0}", 400, {{"error.param", "dimensions"}}},
        {"{\"input\": \"a\", \"dimensions\": 100000}", 400, {{"error.param", "dimensions"}}},
        {"{\"input\": \"a\", \"encoding_format\": \"x\"}",
         400,
         {{"error.param", "encoding_format"}}},
        {"{\"input\": \"a\", \"embd_normalize\": 1}", 400, {{"error.param", "embd_normalize"}}},
        {"{\"input\": \"a\", \"embedding_types\": [\"int8\"]}",
         400,
         {{"error.param", "embedding_types"}}},
        {"{\"input\": \"a\", \"prompt_name\": \"x\"}", 400, {{"error.param", "prompt_name"}}},
        {"{\"input\": \"a\", \"model\": \"none\"}", 404, {{"error.code", "model_not_found"}}},
    };
    (void)state;
    REQUIRE_EXCHANGES("/v1/embeddings", rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes),
        cmocka_unit_test(lengths),
        cmocka_unit_test(refuses),
    };
    return cmocka_run_group_tests(tests, open_encoder, close_server);
}
