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

/* What is about a container: where a $ref leads, or the only alternative of its type. */
static void test_branches(void **state)
{
    (void)state;
    static const struct {
        const char *schema;
        enum param_type type;
        const char *branch; /* NULL: the schema itself */
    } rows[] = {
        {"{\"type\":\"array\"}", PARAM_ARRAY, NULL},
        {" {\"anyOf\":[{\"type\":\"array\",\"items\":{}},{\"type\":\"null\"}]}", PARAM_ARRAY,
         "{\"type\":\"array\",\"items\":{}}"},
        {"{\"oneOf\":[{\"$ref\":\"#/d\"},{\"const\":1}],\"d\":{\"type\":\"object\"}}", PARAM_OBJECT,
         "{\"type\":\"object\"}"},
        {"{\"anyOf\":[{\"type\":\"array\"},{\"type\":[\"array\",\"null\"]}]}", PARAM_ARRAY, NULL},
        {"{\"properties\":{},\"anyOf\":[{\"type\":\"object\"}]}", PARAM_OBJECT, NULL},
        {"{\"$ref\":\"#\"}", PARAM_OBJECT, NULL},
        {"{\"$ref\":\"#/nothing\"}", PARAM_OBJECT, NULL},
        {"true", PARAM_OBJECT, NULL},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        size_t len, skip = strspn(rows[i].schema, " ");
        const char *s = param_branch(rows[i].schema, strlen(rows[i].schema), rows[i].type, &len);
        const char *wanted = rows[i].branch ? rows[i].branch : rows[i].schema + skip;
        REQUIRE_MSG(len == strlen(wanted) && !memcmp(s, wanted, len), "%s: %.*s", rows[i].schema,
                    (int)len, s);
    }
    static const char list[] = "{\"items\":{\"type\":\"string\"},\"additionalProperties\":[]}";
    struct param p = param_of(list, sizeof(list) - 1, "items");
    REQUIRE(p.types == (S | K) && p.schema_len == 17 && !p.name);
    p = param_of(list, sizeof(list) - 1, "additionalProperties");
    REQUIRE(p.types == PARAM_ANY && p.schema_len == 2);
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

/* The names of the rules of a schema, with a comma behind each. */
static const char *rules_of(const char *schema)
{
    static char out[200];
    struct param *params;
    size_t n;
    REQUIRE(!param_types(schema, strlen(schema), &params, &n));
    unsigned rules = param_rules_of(schema, strlen(schema), params, n);
    param_types_free(params, n);
    out[0] = '\0';
    for (int i = 0; param_rules[i]; i++)
        if (rules >> i & 1) strcat(strcat(out, param_rules[i]), ",");
    return out;
}

static void test_rules(void **state)
{
    (void)state;
    REQUIRE_EQ_STR(
        rules_of("{\"type\":\"object\",\"title\":\"t\",\"properties\":{\"a\":{\"anyOf\":[]}},"
                 "\"required\":[\"a\"],\"additionalProperties\":{\"not\":{}}}"),
        "");
    REQUIRE_EQ_STR(rules_of("{\"required\":[\"a\"]}"), "required,");
    REQUIRE_EQ_STR(rules_of("{\"if\":{},\"maxProperties\":1}"), "if,maxProperties,");
    REQUIRE_EQ_STR(
        rules_of("{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"allOf\":[{\"not\":{}}]}}}"), "not,");
    REQUIRE_EQ_STR(rules_of("{\"properties\":{\"a\":{}},\"allOf\":[{\"properties\":{\"a\":{}}}]}"),
                   "allOf,");
    REQUIRE_EQ_STR(rules_of("{\"allOf\":[{\"properties\":{\"a\":{}},\"required\":[\"a\"]}]}"), "");
    REQUIRE_EQ_STR(rules_of("{\"$ref\":\"#\",\"enum\":[]}"), "enum,");
}

/* Names are required wherever a part that holds says so. */
static void test_required_of_all_parts(void **state)
{
    (void)state;
    static const char schema[] =
        "{\"properties\":{\"a\":{},\"b\":{}},\"$ref\":\"#/$defs/x\",\"$defs\":{"
        "\"x\":{\"allOf\":[{\"required\":[\"b\"]}]}}}";
    struct param *params;
    size_t n;
    REQUIRE(!param_types(schema, sizeof(schema) - 1, &params, &n));
    REQUIRE(n == 2 && !params[0].required && params[1].required);
    param_types_free(params, n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_branches),
        cmocka_unit_test(test_properties_of_all_parts),
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_required_of_all_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
