/* SPDX-License-Identifier: MIT */
/* The model that a request gets where there are several: by its body or query, and with one reading of the body. */
#include "base/json_reader.h"
#include "local_server.h"

/* Readings of the body that was sent last; threads that load read other texts. */
static const char *_Atomic sent;
static atomic_int n_readings;

void __real_jr_init(struct jr *r, const char *text, size_t len, unsigned flags, char *err,
                    size_t errlen);
void __wrap_jr_init(struct jr *r, const char *text, size_t len, unsigned flags, char *err,
                    size_t errlen);

void __wrap_jr_init(struct jr *r, const char *text, size_t len, unsigned flags, char *err,
                    size_t errlen)
{
    const char *body = sent;
    n_readings += body && len == strlen(body) && !memcmp(text, body, len);
    __real_jr_init(r, text, len, flags, err, errlen);
}

static int open_two(void **state)
{
    char line[1800];
    int n = snprintf(line, sizeof(line), "serve --threads 1 --model a=%s", carried("demo"));
    (void)state;
    snprintf(line + n, sizeof(line) - (size_t)n, " --model b=%s", carried("demo-embed"));
    return open_server(line);
}

static void the_model_of_a_body(void **state)
{
    static const struct {
        const char *target, *body;
        int status;
        const char *path, *value;
    } rows[] = {
        {"/tokenize", "{\"prompt\":\"x\",\"model\":\"a\"}", 200, "tokens", "*"},
        {"/v1/embeddings", "{\"input\":\"x\",\"model\":\"b\"}", 200, "model", "b"},
        {"/v1/embeddings?model=b", "{\"input\":\"x\"}", 200, "model", "b"},
        {"/v1/completions?model=b", "{\"prompt\":\"x\",\"max_tokens\":1,\"model\":\"a\"}", 200,
         "model", "a"},
        {"/v1/completions", "{\"prompt\":\"x\",\"max_tokens\":1}", 200, "model", "a"},
        {"/v1/completions", "{\"prompt\":\"x\",\"max_tokens\":1,\"model\":\"\"}", 200, "model",
         "a"},
        {"/v1/completions", "{\"prompt\":\"x\",\"model\":\"b\\u0000\",\"max_tokens\":1}", 400,
         "error.param", "model"},
        {"/v1/completions", "{\"prompt\":\"x\",\"model\":\"none\"}", 404, "error.code",
         "model_not_found"},
        {"/v1/completions", "{\"prompt\":\"x\",\"model\":7}", 400, "error.param", "model"},
        {"/v1/completions", "{\"model\":\"a\",", 400, "error.code", "invalid_json"},
        {"/v1/completions", "[]", 400, "error.code", "invalid_json"},
        {"/v1/completions", "", 400, "error.code", "invalid_json"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        n_readings = 0;
        sent = rows[i].body;
        send_request("POST", rows[i].target, rows[i].body, NULL);
        const char *found = at(rows[i].path);
        bool good = strcmp(rows[i].value, "*") == 0 ? strcmp(found, "-") != 0
                                                    : strcmp(found, rows[i].value) == 0;
        REQUIRE_MSG(answered.status == rows[i].status && good, "%s %s: %s", rows[i].target,
                    rows[i].body, answered.text.data);
        REQUIRE_EQ_INT(n_readings, 1);
    }
}

/* An unloaded model that is not loaded for this request; what has been read of it is freed. */
static void no_load(void **state)
{
    const char *const body = "{\"input\":\"x\",\"model\":\"b\"}";
    (void)state;
    int n_draining;
    REQUIRE(srv_models_unload(&local.core.app.models, 1, &n_draining, NULL) == SRV_UNLOAD_OK);
    n_readings = 0;
    sent = body;
    send_request("POST", "/v1/embeddings?autoload=false", body, NULL);
    REQUIRE_MSG(answered.status == 400 && !strcmp(at("error.code"), "model_not_loaded"), "%s",
                answered.text.data);
    REQUIRE_EQ_INT(n_readings, 1);
    send_request("POST", "/v1/embeddings", body, NULL);
    REQUIRE_MSG(answered.status == 200, "%s", answered.text.data);
    REQUIRE_EQ_INT(n_readings, 2); /* the second of two requests: once, though it has waited */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_model_of_a_body),
        cmocka_unit_test(no_load),
    };
    return cmocka_run_group_tests(tests, open_two, close_server);
}
