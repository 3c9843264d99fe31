/* SPDX-License-Identifier: MIT */
/* /api/version, tags, ps, show, pull, and the paths of Ollama that are not here. */
#include "local_server.h"

static void lists(void **state)
{
    static const char *const has[][2] = {{"models.0.name", "hearth-demo"},
                                         {"models.0.model", "hearth-demo"},
                                         {"models.0.details.format", "safetensors"},
                                         {"models.0.details.family", "llama"},
                                         {"models.0.details.parameter_size", "1.12M"},
                                         {"models.0.details.quantization_level", "BF16"},
                                         {"models.0.capabilities", "[\"completion\",\"tools\"]"},
                                         {"models.0.size", "2231040"}};
    (void)state;
    send_request("GET", "/api/version", NULL, NULL);
    REQUIRE(atoi(at("version")) > 0 || strcmp(at("version"), "0.6.4") != 0);
    for (int loaded = 0; loaded < 2; loaded++) {
        send_request("GET", loaded ? "/api/ps" : "/api/tags", NULL, NULL);
        for (size_t i = 0; i < sizeof(has) / sizeof(has[0]); i++)
            REQUIRE_EQ_STR(at(has[i][0]), has[i][1]);
        REQUIRE_EQ_INT(strlen(at("models.0.digest")), 64);
        REQUIRE_EQ_STR(at("models.0.context_length"), loaded ? "2048" : "-");
    }
}

static void one(void **state)
{
    static const struct exchange rows[] = {
        {"{\"model\": \"hearth-demo\"}",
         200,
         {{"model_info.general.architecture", "-"},
          {"capabilities", "[\"completion\",\"tools\"]"},
          {"parameters", "num_ctx 2048"},
          {"template", "{{ .Prompt }}"}}},
        {"{\"name\": \"hearth-demo:latest\", \"verbose\": true}",
         200,
         {{"details.family", "llama"}}},
        {"{\"model\": \"../x\"}", 404, {{"code", "model_not_found"}}},
        {"{\"model\": \":latest\"}", 404, {{"code", "model_not_found"}}},
        {"{}", 404, {{"code", "model_not_found"}}},
        {"{\"model\": 5}", 400, {{"code", "invalid_type"}}},
    };
    static const struct exchange pulls[] = {
        {"{\"model\": \"hearth-demo\", \"stream\": false}", 200, {{"status", "success"}}},
        {"{\"model\": \"registry/ns/x:tag\"}", 404, {{"error", "*"}}},
    };
    (void)state;
    REQUIRE_EXCHANGES("/api/show", rows);
    send_request("POST", "/api/show", rows[0].body, NULL);
    const json_t *info = json_object_get(answered.json, "model_info");
    REQUIRE_EQ_STR(json_string_value(json_object_get(info, "general.architecture")), "llama");
    REQUIRE_EQ_INT(json_integer_value(json_object_get(info, "llama.context_length")), 2048);
    REQUIRE_EXCHANGES("/api/pull", pulls);
    REQUIRE(strstr(at("error"), "hearth pull"));
}

static void others(void **state)
{
    static const char *const paths[] = {"create", "copy", "push", "blobs/x", "me"};
    (void)state;
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        char path[40];
        snprintf(path, sizeof(path), "/api/%s", paths[i]);
        send_request("POST", path, "{}", NULL);
        REQUIRE_EQ_INT(answered.status, 404);
        REQUIRE(!strncmp(at("error"), "There is no ", 12));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists),
        cmocka_unit_test(one),
        cmocka_unit_test(others),
    };
    return cmocka_run_group_tests(tests, open_demo, close_server);
}
