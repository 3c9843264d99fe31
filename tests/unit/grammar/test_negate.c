/* SPDX-License-Identifier: MIT */
/* not: what can be negated is, keyword by keyword; what is not exact or has no opposite is relaxed. */
#include "schema_case.h"

static void test_negated(void **state)
{
    static const struct schema_case cases[] = {
        {"{\"type\":\"string\",\"not\":{\"minLength\":2}}", NULL, {"\"a\""}, {"\"ab\""}},
        {"{\"type\":\"integer\",\"not\":{\"anyOf\":[{\"minimum\":5},{\"maximum\":1}]}}",
         NULL,
         {"2", "4"},
         {"1", "5"}},
        {"{\"type\":\"integer\",\"not\":{\"allOf\":[{\"minimum\":5},{\"maximum\":7}]}}",
         NULL,
         {"4", "8"},
         {"5", "7"}},
        {"{\"type\":\"integer\",\"not\":{\"not\":{\"minimum\":5}}}", NULL, {"5"}, {"4"}},
        {"{\"type\":\"object\",\"not\":{\"required\":[\"a\",\"b\"]}}",
         NULL,
         {"{}", "{\"a\":1}", "{\"b\":1}"},
         {"{\"a\":1,\"b\":1}"}},
        {"{\"type\":\"object\",\"not\":{\"properties\":{\"a\":{\"type\":\"integer\"}}}}",
         NULL,
         {"{\"a\":\"x\"}"},
         {"{}", "{\"a\":1}"}},
        {"{\"type\":[\"null\",\"integer\"],\"not\":{\"$ref\":\"#/$defs/n\"},"
         "\"$defs\":{\"n\":{\"type\":\"null\"}}}",
         NULL,
         {"1"},
         {"null"}},
        {"{\"type\":\"integer\",\"not\":{\"if\":{\"minimum\":5},\"then\":{\"maximum\":7},"
         "\"else\":{\"maximum\":2}}}",
         NULL,
         {"8", "3", "4"},
         {"2", "5", "7"}},
        {"{\"type\":\"integer\",\"not\":{\"not\":{\"items\":{\"type\":\"null\"},"
         "\"type\":\"array\"}}}",
         "/not",
         {"1"},
         {"null"}},
        {"{\"type\":\"integer\",\"not\":{\"not\":{\"oneOf\":[{\"minimum\":5},{\"maximum\":7}]}}}",
         "/not",
         {"1"},
         {"null"}},
        {"{\"type\":\"integer\",\"not\":{\"not\":{\"allOf\":[{\"minimum\":5}]}}}",
         NULL,
         {"5"},
         {"4"}},
        {"{\"type\":\"array\",\"not\":{\"not\":{\"contains\":{}}}}", "/not", {"[1]"}, {"1"}},
        {"{\"type\":\"array\",\"not\":{\"not\":{\"allOf\":[{\"contains\":{}}]}}}",
         "/not",
         {"[1]"},
         {"1"}},
        {"{\"type\":\"array\",\"not\":{\"uniqueItems\":true}}", "/not", {"[]"}, {"1"}},
        {"{\"not\":{\"enum\":[[1]]},\"type\":\"boolean\"}", "/not", {"true"}, {"1"}},
    };
    (void)state;
    check_schemas(cases, sizeof(cases) / sizeof(cases[0]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_negated)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
