/* SPDX-License-Identifier: MIT */
/*
 * oneOf: branches that contradict each other need nothing more, others exclude each other, and what
 * can be neither is relaxed.
 */
#include "schema_case.h"

/* Each pair of branches is seen to be disjoint: by types, values, counts, keys, values of keys. */
static void test_contradictions(void **state)
{
    static const struct schema_case cases[] = {
        {"{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"string\"}]}", NULL, {"1", "\"a\""}, {"[]"}},
        {"{\"oneOf\":[{\"enum\":[1,\"a\"]},{\"enum\":[2,\"b\"]},{\"const\":3}]}",
         NULL,
         {"1", "\"b\"", "3"},
         {"4", "\"c\""}},
        {"{\"type\":\"string\",\"oneOf\":[{\"maxLength\":1},{\"minLength\":2}]}",
         NULL,
         {"\"\"", "\"ab\""},
         {"1"}},
        {"{\"type\":\"array\",\"items\":{\"type\":\"null\"},"
         "\"oneOf\":[{\"maxItems\":1},{\"minItems\":2}]}",
         NULL,
         {"[]", "[null,null]"},
         {"[1]"}},
        {"{\"type\":\"integer\",\"oneOf\":[{\"maximum\":1},{\"minimum\":2}]}",
         NULL,
         {"1", "2"},
         {0}},
        {"{\"type\":\"object\",\"oneOf\":[{\"properties\":{\"a\":{\"type\":\"array\"}},"
         "\"required\":[\"a\"]},{\"properties\":{\"a\":{\"type\":\"boolean\"}},"
         "\"required\":[\"a\"]}]}",
         NULL,
         {"{\"a\":[1]}", "{\"a\":true}"},
         {"{}", "{\"a\":null}"}},
        {"{\"type\":\"object\",\"oneOf\":[{\"properties\":{\"a\":false}},{\"required\":[\"a\"]}]}",
         NULL,
         {"{\"a\":1}", "{}"},
         {0}},
    };
    (void)state;
    check_schemas(cases, sizeof(cases) / sizeof(cases[0]));
}

/* Branches that overlap and can be negated: exactly one of them holds. */
static void test_exactly_one(void **state)
{
    static const struct schema_case cases[] = {
        {"{\"type\":\"object\",\"oneOf\":[{\"properties\":{\"a\":{\"const\":1}}},"
         "{\"required\":[\"b\"]}]}",
         NULL,
         {"{\"a\":1}", "{\"a\":2,\"b\":3}", "{\"c\":0}"},
         {"{\"a\":1,\"b\":3}", "{\"a\":2}", "{\"b\":3}"}},
        {"{\"oneOf\":[{\"type\":\"integer\",\"minimum\":3},{\"type\":\"integer\",\"maximum\":7},"
         "{\"type\":\"null\"}]}",
         NULL,
         {"2", "8", "null"},
         {"3", "7", "true"}},
        {"{\"oneOf\":[{\"type\":\"array\",\"items\":{\"type\":\"integer\"}},{\"type\":\"array\","
         "\"items\":{\"type\":\"boolean\"}}]}",
         "/oneOf",
         {"[1]", "[true]", "[]"},
         {"[null]"}},
    };
    (void)state;
    check_schemas(cases, sizeof(cases) / sizeof(cases[0]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_contradictions),
        cmocka_unit_test(test_exactly_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
