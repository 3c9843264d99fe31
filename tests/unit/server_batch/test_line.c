/* SPDX-License-Identifier: MIT */
/* Lines of requests: what is taken of them, and the code of each that cannot run. */
#include "server/batch/line.h"

#include <stdlib.h>
#include <string.h>

#include "server/http/endpoint.h"
#include "test.h"

static const struct srv_route routes[] = {
    {.method = "POST", .path = "/v1/embeddings", .flags = SRV_ROUTE_BARE},
    {.method = "GET", .path = "/v1/models"},
    {.method = "POST", .path = "/models/load", .flags = SRV_ROUTE_OPERATOR},
    {.method = "POST",
     .path = "/api/chat",
     .flags = SRV_ROUTE_STREAMS,
     .dialect = SRV_DIALECT_OLLAMA},
    {0},
};
static const struct srv_route *const tables[] = {routes, NULL};

#define TO(url) "\"method\":\"POST\",\"url\":\"" url "\""
#define EMBED TO("/v1/embeddings")

static void test_lines(void **state)
{
    (void)state;
    static const struct {
        const char *line, *code, *body;
    } cases[] = {
        {"{\"custom_id\":\"a\"," EMBED ",\"body\":{\"input\":[1]}}", NULL, "{\"input\":[1]}"},
        {"{\"custom_id\":\"\\u0062\"," TO("/embeddings") ",\"body\":{},\"more\":[{}]}", NULL, "{}"},
        {"{\"custom_id\":\"b\"," EMBED ",\"body\":{}}", "duplicate_custom_id", NULL},
        {"{\"custom_id\":\"c\"," EMBED ",\"body\":{\"stream\":false,\"stream\":true}}",
         "stream_not_supported", NULL},
        {"{\"custom_id\":\"d\"," TO("/api/chat") ",\"body\":{}}", "stream_not_supported", NULL},
        {"{\"custom_id\":\"e\"," TO("/api/chat") ",\"body\":{\"stream\":false}}", NULL,
         "{\"stream\":false}"},
        {"{\"custom_id\":\"f\"," EMBED ",\"body\":[]}", "missing_required_parameter", NULL},
        {"{" EMBED ",\"body\":{}}", "missing_required_parameter", NULL},
        {"{\"custom_id\":7," EMBED ",\"body\":{}}", "missing_required_parameter", NULL},
        {"{\"custom_id\":\"\"," EMBED ",\"body\":{}}", "invalid_value", NULL},
        {"{\"custom_id\":\"g\",\"method\":\"GET\",\"url\":\"/v1/models\",\"body\":{}}",
         "invalid_method", NULL},
        {"{\"custom_id\":\"h\"," TO("/v1/models") ",\"body\":{}}", "url_mismatch", NULL},
        {"{\"custom_id\":\"i\"," TO("/models/load") ",\"body\":{}}", "url_mismatch", NULL},
        {"{\"custom_id\":\"j\"," TO("/v1/embeddings\\u0000") ",\"body\":{}}", "invalid_json_line",
         NULL},
        {"{\"custom_id\":\"k\"", "invalid_json_line", NULL},
        {"[]", "invalid_json_line", NULL},
        {"{\"custom_id\":\"\xff\"}", "invalid_json_line", NULL},
    };
    void *ids = NULL;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct batch_line p;
        struct batch_refusal why;
        size_t n = strlen(cases[i].line);
        REQUIRE_EQ_INT(batch_line_read(&p, cases[i].line, n, tables, &ids, &why), 0);
        REQUIRE_MSG(why.code && cases[i].code ? !strcmp(why.code, cases[i].code)
                                              : !why.code && !cases[i].code,
                    "line %zu: %s: %s", i, why.code ? why.code : "good", why.message);
        if (!cases[i].body) continue;
        REQUIRE_EQ_INT(p.n_body, strlen(cases[i].body));
        REQUIRE(memcmp(p.body, cases[i].body, p.n_body) == 0);
    }
    batch_line_forget(&ids);
    REQUIRE(!ids);
}

/* Ids of 1 to 512 characters, whatever they are. */
static void test_lengths_of_ids(void **state)
{
    (void)state;
    static const struct {
        const char *character;
        int n;
        bool good;
    } cases[] = {{"0", 1, true},
                 {"0", 512, true},
                 {"0", 513, false},
                 {"\xf0\x9f\x98\x80", 512, true},
                 {"\xf0\x9f\x98\x80", 513, false},
                 {"\\u00e9", 512, true},
                 {"\\u00e9", 513, false}};
    void *ids = NULL;
    for (size_t i = 0; i < N_OF(cases); i++) {
        char line[4000], *end = stpcpy(line, "{\"custom_id\":\"");
        struct batch_line p;
        struct batch_refusal why;
        for (int n = 0; n < cases[i].n; n++)
            end = stpcpy(end, cases[i].character);
        stpcpy(end, "\"," EMBED ",\"body\":{}}");
        REQUIRE_EQ_INT(batch_line_read(&p, line, strlen(line), tables, &ids, &why), 0);
        REQUIRE_EQ_INT(!why.code, cases[i].good);
        REQUIRE_EQ_INT(p.n_custom_id, cases[i].n);
    }
    batch_line_forget(&ids);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_lengths_of_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
