/* SPDX-License-Identifier: MIT */
/* /models/load and /models/unload: a swap, a model that leaves and comes back, refusals, and that
 * they are the operator's. */
#include "local_server.h"

static int open_for_operator(void **state)
{
    open_demo(state);
    local.core.server.operator_open = true;
    return 0;
}

static const char *with_dir(const char *format)
{
    static char body[1400];
    snprintf(body, sizeof(body), "{\"model\": \"%s\", %s}", carried("demo"), format);
    return body;
}

static void a_swap(void **state)
{
    (void)state;
    send_request("POST", "/models/load",
                 with_dir("\"alias\": [\"new\", \"newer\"], \"wait\": \"drained\""), NULL);
    REQUIRE_MSG(answered.status == 200, "%s", answered.text.data);
    REQUIRE_EQ_STR(at("success"), "true");
    REQUIRE_EQ_STR(at("model"), "new");
    REQUIRE_EQ_STR(at("draining"), "0");
    REQUIRE(strncmp(at("system_fingerprint"), "b", 1) == 0 && strcmp(at("previous"), "-") != 0);
    send_request("GET", "/v1/models", NULL, NULL);
    REQUIRE_EQ_STR(at("data.0.id"), "new");
    REQUIRE_EQ_STR(at("data.1.id"), "newer");
    send_request("POST", "/v1/models/load",
                 with_dir("\"alias\": [\"new\", \"newer\"], \"wait\": \"drained\""), NULL);
    REQUIRE_EQ_STR(at("unchanged"), "true");
}

static void leaving_and_coming_back(void **state)
{
    static const struct exchange out[] = {{"{\"model\": \"new\", \"wait\": \"drained\"}",
                                           200,
                                           {{"success", "true"}, {"model", "new"}}}};
    static const struct exchange again[] = {
        {"{\"model\": \"new\"}",
         400,
         {{"error.code", "model_not_loaded"}, {"error.param", "model"}}}};
    (void)state;
    REQUIRE_EXCHANGES("/models/unload", out);
    REQUIRE_EXCHANGES("/models/unload", again);
    send_request("GET", "/v1/models/new", NULL, NULL);
    REQUIRE_EQ_STR(at("status.value"), "unloaded");
    send_request("POST", "/v1/completions", "{\"prompt\": \"Once\", \"max_tokens\": 1}", NULL);
    REQUIRE_MSG(answered.status == 200, "%s", answered.text.data);
    send_request("GET", "/v1/models/new", NULL, NULL);
    REQUIRE_EQ_STR(at("status.value"), "loaded");
}

static void refuses(void **state)
{
    static const struct exchange load[] = {
        {"{\"model\": 5}", 400, {{"error.param", "model"}}},
        {"{\"model\": \"\"}", 400, {{"error.param", "model"}}},
        {"{\"model\": \"a\\u0007\"}", 400, {{"error.param", "model"}}},
        {"{\"model\": \"/none/there\"}", 404, {{"error.code", "model_not_found"}}},
        {"{\"alias\": []}", 400, {{"error.param", "alias"}}},
        {"{\"alias\": [5]}", 400, {{"error.param", "alias"}}},
        {"{\"wait\": 5}", 400, {{"error.param", "wait"}}},
        {"{\"wait\": \"x\"}", 400, {{"error.param", "wait"}}},
        {"{\"replace\": \"none\"}", 404, {{"error.param", "replace"}}},
    };
    static const struct exchange unload[] = {
        {"{\"model\": 5}", 400, {{"error.param", "model"}}},
        {"{\"model\": \"none\"}", 404, {{"error.code", "model_not_found"}}},
        {"{\"wait\": \"x\"}", 400, {{"error.param", "wait"}}},
    };
    (void)state;
    REQUIRE_EXCHANGES("/models/load", load);
    REQUIRE_EXCHANGES("/models/unload", unload);
    local.core.server.operator_open = false;
    send_request("POST", "/models/load", "{}", NULL);
    local.core.server.operator_open = true;
    REQUIRE_MSG(answered.status == 403 || answered.status == 404, "%d", answered.status);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_swap),
        cmocka_unit_test(leaving_and_coming_back),
        cmocka_unit_test(refuses),
    };
    return cmocka_run_group_tests(tests, open_for_operator, close_server);
}
