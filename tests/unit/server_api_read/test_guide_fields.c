/* SPDX-License-Identifier: MIT */
/* What constrains an answer, in every spelling: kind and text, or the field that is refused. */
#include "test.h"

#include "server/api/read/guide_fields.h"

#define SCHEMA "{\"b\": 1, \"a\":123456789012345678901234567890}"

static const struct {
    const char *body, *param; /* NULL: the answer is free */
    enum gram_kind kind;
    const char *text;
} good[] = {
    {"{}", NULL, 0, NULL},
    {"{\"response_format\":{\"type\":\"text\"},\"guided_json\":null}", NULL, 0, NULL},
    {"{\"response_format\":{}}", NULL, 0, NULL},
    {"{\"response_format\":{\"type\":\"json_object\"}}", "response_format", GRAM_JSON_OBJECT, ""},
    {"{\"response_format\":{\"type\":\"json_object\",\"schema\":" SCHEMA "}}",
     "response_format.schema", GRAM_SCHEMA, SCHEMA},
    {"{\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":" SCHEMA "}}}",
     "response_format.json_schema.schema", GRAM_SCHEMA, SCHEMA},
    {"{\"response_format\":{\"type\":\"json_schema\",\"schema\":true}}", "response_format.schema",
     GRAM_SCHEMA, "true"},
    {"{\"response_format\":{\"type\":\"json\",\"value\":" SCHEMA "}}", "response_format.value",
     GRAM_SCHEMA, SCHEMA},
    {"{\"response_format\":{\"type\":\"regex\",\"value\":\"a\\u002b\"}}", "response_format.value",
     GRAM_REGEX, "a+"},
    {"{\"structured_outputs\":{\"choice\":[\"x\", \"y\"]}}", "structured_outputs.choice",
     GRAM_CHOICE, "[\"x\", \"y\"]"},
    {"{\"guided_json\":\"{\\\"a\\\":1}\"}", "guided_json", GRAM_SCHEMA, "{\"a\":1}"},
    {"{\"guided_json_object\":true}", "guided_json_object", GRAM_JSON_OBJECT, ""},
    {"{\"guided_json_object\":false}", NULL, 0, NULL},
    {"{\"guided_grammar\":\"root ::= x\"}", "guided_grammar", GRAM_GBNF, "root ::= x"},
    {"{\"grammar\":\"g\"}", "grammar", GRAM_GBNF, "g"},
    {"{\"ebnf\":\"g\"}", "ebnf", GRAM_GBNF, "g"},
    {"{\"regex\":\"r\"}", "regex", GRAM_REGEX, "r"},
    {"{\"json_schema\":" SCHEMA "}", "json_schema", GRAM_SCHEMA, SCHEMA},
    {"{\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":" SCHEMA "}},"
     "\"guided_json\":" SCHEMA ",\"structured_outputs\":{\"json\":" SCHEMA "}}",
     "response_format.json_schema.schema", GRAM_SCHEMA, SCHEMA},
    {"{\"guided_json\":\"{\\\"a\\\":[1,\\\"\\\\u00e9\\\"]}\",\"json_schema\":{\"a\": [1, "
     "\"\u00e9\"]}}",
     "guided_json", GRAM_SCHEMA, "{\"a\":[1,\"\\u00e9\"]}"},
    {"{\"response_format\":{\"type\":\"json_object\"},\"guided_json_object\":true}",
     "response_format", GRAM_JSON_OBJECT, ""},
    {"{\"guided_regex\":\"r\",\"regex\":\"r\"}", "guided_regex", GRAM_REGEX, "r"},
    {"{\"structured_outputs\":{\"choice\":[\"x\", \"y\"]},\"guided_choice\":[\"x\",\"y\"]}",
     "structured_outputs.choice", GRAM_CHOICE, "[\"x\", \"y\"]"},
};

static const struct {
    const char *body, *path;
    enum srv_error kind;
} bad[] = {
    {"{\"response_format\":5}", "response_format", SRV_ERR_INVALID_TYPE},
    {"{\"response_format\":{\"a\":1}}", "response_format.type", SRV_ERR_MISSING},
    {"{\"response_format\":{\"type\":\"yaml\"}}", "response_format.type", SRV_ERR_INVALID_VALUE},
    {"{\"response_format\":{\"type\":\"json_schema\"}}", "response_format.json_schema",
     SRV_ERR_MISSING},
    {"{\"response_format\":{\"type\":\"json_schema\",\"schema\":5}}", "response_format.schema",
     SRV_ERR_INVALID_TYPE},
    {"{\"structured_outputs\":{}}", "structured_outputs", SRV_ERR_INVALID_VALUE},
    {"{\"structured_outputs\":{\"structural_tag\":\"x\"}}", "structured_outputs.structural_tag",
     SRV_ERR_UNSUPPORTED},
    {"{\"regex\":5}", "regex", SRV_ERR_INVALID_TYPE},
    {"{\"guided_choice\":\"x\"}", "guided_choice", SRV_ERR_INVALID_TYPE},
    {"{\"guided_json_object\":1}", "guided_json_object", SRV_ERR_INVALID_TYPE},
    {"{\"regex\":\"r\",\"ebnf\":\"g\"}", "ebnf", SRV_ERR_INVALID_VALUE},
    {"{\"regex\":\"g\",\"ebnf\":\"g\"}", "ebnf", SRV_ERR_INVALID_VALUE},
    {"{\"guided_json\":{\"a\":1,\"b\":2},\"json_schema\":{\"b\":2,\"a\":1}}", "json_schema",
     SRV_ERR_INVALID_VALUE},
    {"{\"guided_choice\":[\"x\"],\"structured_outputs\":{\"choice\":[\"y\"]}}", "guided_choice",
     SRV_ERR_INVALID_VALUE},
    {"{\"structured_outputs\":{\"regex\":\"r\",\"whitespace_pattern\":\"x\","
     "\"disable_any_whitespace\":true}}",
     "structured_outputs.disable_any_whitespace", SRV_ERR_INVALID_VALUE},
};

static int read_text(const char *text, struct guide_ask *ask, struct srv_body *body)
{
    REQUIRE(!srv_body_read(body, text, strlen(text), PARAM_MAX_VALUES));
    return guide_ask_read(ask, body);
}

static void test_good(void **state)
{
    for (size_t i = 0; i < N_OF(good); i++) {
        struct guide_ask ask = {0};
        struct srv_body body;
        REQUIRE_MSG(!read_text(good[i].body, &ask, &body), "%s: %s", good[i].body,
                    param_error.message);
        REQUIRE_MSG((ask.param != NULL) == (good[i].param != NULL), "%s", good[i].body);
        if (good[i].param) {
            REQUIRE_EQ_STR(ask.param, good[i].param);
            REQUIRE_EQ_INT(ask.kind, good[i].kind);
            REQUIRE_MSG(ask.text.len == strlen(good[i].text) &&
                            !memcmp(ask.text.text, good[i].text, ask.text.len),
                        "%s", good[i].body);
        }
        srv_body_finish(&body);
    }
}

static void test_bad(void **state)
{
    for (size_t i = 0; i < N_OF(bad); i++) {
        struct guide_ask ask = {0};
        struct srv_body body;
        REQUIRE_MSG(read_text(bad[i].body, &ask, &body), "%s", bad[i].body);
        REQUIRE_EQ_STR(param_error.path, bad[i].path);
        REQUIRE_EQ_INT(param_error.kind, bad[i].kind);
        srv_body_finish(&body);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_bad),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
