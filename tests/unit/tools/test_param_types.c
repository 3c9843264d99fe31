/* SPDX-License-Identifier: MIT */
/* The types that a schema allows the parameters of a tool. */
#include "test.h"

#include "tokenizer/tools/param_types.h"

enum { S = PARAM_STRING, N = PARAM_NUMBER, Z = PARAM_NULL, K = PARAM_KNOWN };

/* Each schema is that of parameter "p", with $defs a: string, b: a or null. */
static const struct {
    const char *schema;
    unsigned types;
} cases[] = {
    {"{}", PARAM_ANY},
    {"true", PARAM_ANY},
    {"{\"minLength\":3}", PARAM_ANY},
    {"{\"type\":\"string\"}", S | K},
    {"{\"type\":[\"integer\",\"null\"]}", N | Z | K},
    {"{\"enum\":[\"a\",1,null]}", S | N | Z | K},
    {"{\"const\":{}}", PARAM_OBJECT | K},
    {"{\"anyOf\":[{\"type\":\"array\"},{\"const\":true}]}", PARAM_ARRAY | PARAM_BOOLEAN | K},
    {"{\"anyOf\":[{\"type\":\"array\"},{}]}", PARAM_ANY},
    {"{\"oneOf\":[{\"$ref\":\"#/$defs/b\"},{\"type\":\"number\"}]}", S | Z | N | K},
    {"{\"allOf\":[{\"type\":[\"string\",\"null\"]},{\"enum\":[\"x\",1]}]}", S | K},
    {"{\"type\":[\"string\",\"null\"],\"$ref\":\"#/$defs/a\"}", S | K},
    {"{\"$ref\":\"#/$defs/list/1\"}", N | K},
    {"{\"$ref\":\"#/$defs/loop\"}", PARAM_ANY},
    {"{\"$ref\":\"#/$defs/c~1d%25\"}", Z | K},
    {"{\"$ref\":\"#/nothing\"}", PARAM_ANY},
};

static void test_types(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char schema[1000];
        struct param *params;
        size_t n;
        int len = snprintf(
            schema, sizeof(schema),
            " {\"$defs\":{\"a\":{\"type\":\"string\"},\"b\":{\"anyOf\":[{\"$ref\":\"#/$defs/a\"},"
            "{\"type\":\"null\"}]},\"list\":[1,{\"type\":\"number\"}],\"loop\":{\"anyOf\":[{\"$"
            "ref\":"
            "\"#/$defs/loop\"},{\"$ref\":\"#/$defs/loop\"}]},\"c/d%%\":{\"const\":null}},"
            "\"properties\":{\"q\":{},\"p\":%s},\"required\":[\"p\"]}",
            cases[i].schema);
        REQUIRE(!param_types(schema, (size_t)len, &params, &n));
        REQUIRE_EQ_INT(n, 2);
        REQUIRE(params[1].required && !params[0].required && params[1].name[0] == 'p');
        REQUIRE_MSG(params[1].types == cases[i].types, "%s: %u", cases[i].schema, params[1].types);
        REQUIRE_EQ_INT(params[1].schema_len, strlen(cases[i].schema));
        param_types_free(params, n);
    }
}

static void test_properties_of_all_parts(void **state)
{
    (void)state;
    static const char schema[] =
        "{\"$ref\":\"#/$defs/x\",\"allOf\":[{\"properties\":{\"b\":{\"type\":\"null\"}}}],"
        "\"$defs\":{\"x\":{\"properties\":{\"a\":{},\"b\":{}}}}}";
    struct param *params;
    size_t n;
    REQUIRE(!param_types(schema, sizeof(schema) - 1, &params, &n));
    REQUIRE_EQ_INT(n, 2);
    param_types_free(params, n);
    REQUIRE(!param_types("true", 4, &params, &n));
    REQUIRE_EQ_INT(n, 0);
    param_types_free(params, n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_properties_of_all_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
