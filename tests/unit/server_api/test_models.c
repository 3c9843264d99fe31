/* SPDX-License-Identifier: MIT */
/* /v1/models: the list, one model, the pages of Anthropic's dialect. */
#include "local_server.h"

static const char *const anthropic[] = {"anthropic-version", "2023-06-01", NULL};

static int open_two(void **state)
{
    char line[1800];
    int n = snprintf(line, sizeof(line), "serve --threads 1 --model a=%s", carried("demo"));
    (void)state;
    snprintf(line + n, sizeof(line) - (size_t)n, " --model b=%s --alias org/x",
             carried("demo-embed"));
    return open_server(line);
}

static void get(const char *target, const char *const *headers, int status)
{
    send_request("GET", target, NULL, headers);
    REQUIRE_MSG(answered.status == status, "%s: %d: %s", target, answered.status,
                answered.text.data);
}

static void the_list(void **state)
{
    static const struct exchange rows[] = {
        {NULL,
         200,
         {{"object", "list"},
          {"data.0.id", "a"},
          {"data.0.owned_by", "hearth"},
          {"data.0.status.value", "loaded"},
          {"data.0.max_model_len", "2048"},
          {"data.0.meta.n_ctx_train", "2048"}}},
        {NULL,
         200,
         {{"data.0.aliases", "[\"org/x\"]"},
          {"data.1.id", "org/x"},
          {"data.1.root", "a"},
          {"data.1.aliases", "[]"},
          {"data.2.id", "b"},
          {"data.3", "-"}}},
        {NULL,
         200,
         {{"data.0.pinned", "false"}, {"data.0.in_flight", "0"}, {"data.0.meta.size", "*"}}},
    };
    (void)state;
    REQUIRE_EXCHANGES("/v1/models", rows);
    REQUIRE_EXCHANGES("/models", rows);
}

static void one_model(void **state)
{
    static const struct exchange slash[] = {{NULL, 200, {{"id", "org/x"}, {"meta.n_embd", "*"}}}};
    static const struct exchange none[] = {
        {NULL, 404, {{"error.code", "model_not_found"}, {"error.param", "model"}}}};
    (void)state;
    REQUIRE_EXCHANGES("/v1/models/org/x", slash);
    REQUIRE_EXCHANGES("/v1/models/none", none);
    REQUIRE(strstr(at("error.message"), "'none'"));
}

static void pages(void **state)
{
    (void)state;
    get("/v1/models", anthropic, 200);
    REQUIRE_EQ_STR(at("data.2.id"), "b");
    REQUIRE_EQ_STR(at("has_more"), "false");
    REQUIRE_EQ_STR(at("data.0.type"), "model");
    REQUIRE_EQ_STR(at("data.0.max_input_tokens"), "2048");
    REQUIRE_EQ_INT(strlen(at("data.0.created_at")), 20);
    get("/v1/models?limit=1", anthropic, 200);
    REQUIRE_EQ_STR(at("data.1"), "-");
    REQUIRE_EQ_STR(at("has_more"), "true");
    REQUIRE_EQ_STR(at("last_id"), "a");
    get("/v1/models?limit=1&after_id=a", anthropic, 200);
    REQUIRE_EQ_STR(at("first_id"), "org/x");
    get("/v1/models?limit=1&before_id=b", anthropic, 200);
    REQUIRE_EQ_STR(at("first_id"), "org/x");
    REQUIRE_EQ_STR(at("has_more"), "true");
    get("/v1/models?after_id=b", anthropic, 200);
    REQUIRE_EQ_STR(at("data"), "[]");
    REQUIRE_EQ_STR(at("first_id"), "null");
    for (int i = 0; i < 5; i++) {
        static const char *const bad[] = {"limit=0", "limit=1001", "limit=5x", "after_id=q",
                                          "before_id=q"};
        char target[64];
        snprintf(target, sizeof(target), "/v1/models?%s", bad[i]);
        get(target, anthropic, 400);
        REQUIRE_EQ_STR(at("type"), "error");
    }
    get("/v1/models/org/x", anthropic, 200);
    REQUIRE_EQ_STR(at("display_name"), "org/x");
    get("/v1/models/none", anthropic, 404);
    REQUIRE_EQ_STR(at("error.type"), "not_found_error");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_list),
        cmocka_unit_test(one_model),
        cmocka_unit_test(pages),
    };
    return cmocka_run_group_tests(tests, open_two, close_server);
}
