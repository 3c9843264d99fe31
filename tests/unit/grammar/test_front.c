/* SPDX-License-Identifier: MIT */
/*
 * What cannot be compiled: the keyword is left out and named, what is beside it holds, and the
 * language only widens. Where nothing may be relaxed it is an error at that place.
 */
#include "schema_case.h"

struct left_out {
    const char *schema, *pointers[3];
    const char *in[CASE_TEXTS], *out[CASE_TEXTS];
};

static void check(const struct left_out *c, const struct gram_vocab *v, void *memory)
{
    const struct gram_options strict = {.strict = true}, closed = {.closed_objects = true};
    struct gram *g = toy_compile(v, GRAM_SCHEMA, c->schema, &closed);
    struct gram_error err;
    bool named = false;
    size_t n = 0;

    for (; n < gram_n_relaxed(g) && c->pointers[n]; n++)
        REQUIRE_EQ_STR(gram_relaxed(g, n), c->pointers[n]);
    REQUIRE_MSG(n == gram_n_relaxed(g) && !c->pointers[n], "%s: %zu", c->schema, n);
    for (const char *const *text = c->in; *text; text++)
        REQUIRE_MSG(takes(g, memory, *text), "%s must take %s", c->schema, *text);
    for (const char *const *text = c->out; *text; text++)
        REQUIRE_MSG(!takes(g, memory, *text), "%s must refuse %s", c->schema, *text);
    gram_release(g);
    int rc = gram_compile(&g, v, GRAM_SCHEMA, c->schema, strlen(c->schema), &strict, &err);
    for (n = 0; c->pointers[n]; n++)
        named |= !strcmp(err.pointer, c->pointers[n]);
    REQUIRE_MSG(rc == GRAM_EINVAL && named && err.keyword[0], "%s: %s", c->schema, err.message);
}

static void test_left_out(void **state)
{
    static const struct left_out cases[] = {
        {"{\"type\":\"string\",\"pattern\":\"(?<=a)b\",\"maxLength\":3}",
         {"/pattern"},
         {"\"x\""},
         {"\"abcd\"", "1"}},
        {"{\"type\":\"string\",\"pattern\":\"a*(?=bc)d\"}", {"/pattern"}, {"\"x\""}, {"1"}},
        {"{\"type\":\"string\",\"pattern\":\"(?=a(?=bc))..x\"}", {"/pattern"}, {"\"x\""}, {"1"}},
        {"{\"items\":{\"pattern\":\"(a)\\\\1\"},\"type\":\"array\"}",
         {"/items/pattern"},
         {"[\"x\"]"},
         {"1"}},
        {"{\"type\":\"string\",\"pattern\":\"(?<n>a)\\\\k<n>\"}", {"/pattern"}, {"\"x\""}, {"1"}},
        {"{\"type\":\"string\",\"pattern\":\"\\\\p{Nope}\"}", {"/pattern"}, {"\"x\""}, {"1"}},
        {"{\"type\":\"string\",\"pattern\":\"\\\\Aa\\\\Z\"}", {"/pattern"}, {"\"x\""}, {"1"}},
        {"{\"type\":\"string\",\"pattern\":\"(?i)a\"}", {"/pattern"}, {"\"x\""}, {"1"}},
        {"{\"type\":\"string\",\"pattern\":\"a++\"}", {"/pattern"}, {"\"x\""}, {"1"}},
        {"{\"type\":\"string\",\"pattern\":\"a{3000000000}\"}", {"/pattern"}, {"\"x\""}, {"1"}},
        /* of two patterns the large one */
        {"{\"type\":\"string\",\"pattern\":\"^[ab]*$\",\"allOf\":[{\"pattern\":"
         "\"^[ab]*a[ab]{16}$\"}]}",
         {"/allOf/0/pattern"},
         {"\"ab\""},
         {"\"c\""}},
        {"{\"pattern\":\"^[ab]*a[ab]{16}$\",\"enum\":[\"c\",1]}",
         {"/pattern"},
         {"\"c\"", "1"},
         {"2"}},
        /* the opposite of what is not known is not known */
        {"{\"type\":\"string\",\"not\":{\"pattern\":\"(?<=a)b\"}}",
         {"/not", "/not/pattern"},
         {"\"x\"", "\"ab\""},
         {"1"}},
        {"{\"type\":\"string\",\"if\":{\"pattern\":\"(?<=a)b\"},\"then\":false}",
         {"/if", "/if/pattern"},
         {"\"x\"", "\"ab\""},
         {"1"}},
        /* keys that may match the pattern are not additional ones */
        {"{\"type\":\"object\",\"patternProperties\":{\"(?<=a)b\":{\"type\":\"integer\"},\"^c\":{"
         "\"type\":\"null\"}},\"additionalProperties\":false}",
         {"/patternProperties/(?<=a)b"},
         {"{\"ab\":\"x\"}", "{\"c\":null}"},
         {"{\"c\":1}"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"null\"}},\"patternProperties\":{"
         "\"(?<=a)b\":true}}",
         {"/patternProperties/(?<=a)b"},
         {"{\"ab\":1}", "{\"a\":null}"},
         {"{\"a\":1}"}},
        {"{\"type\":\"object\",\"propertyNames\":{\"minLength\":5000}}",
         {"/propertyNames"},
         {"{\"a\":1}"},
         {"1"}},
        {"{\"type\":\"object\",\"propertyNames\":{\"pattern\":\"^[ab]*a[ab]{16}$\"}}",
         {"/propertyNames"},
         {"{\"c\":1}"},
         {"1"}},
        {"{\"type\":\"object\",\"required\":[\"c\"],\"propertyNames\":{\"pattern\":"
         "\"^[ab]*a[ab]{16}$\"}}",
         {"/propertyNames"},
         {"{\"c\":1}"},
         {"{}"}},
        {"{\"type\":\"object\",\"dependentRequired\":{\"a\":[\"b\"]},\"minProperties\":2,"
         "\"maxProperties\":3}",
         {"/dependentRequired"},
         {"{\"a\":1,\"c\":1}"},
         {"{\"a\":1}"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"https://x.org/y.json\"}},"
         "\"required\":[\"a\"]}",
         {"/properties/a/$ref"},
         {"{\"a\":1}"},
         {"{}"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"null\"}},\"allOf\":[{\"$ref\":"
         "\"https://x.org/y.json\"}]}",
         {"/allOf/0/$ref"},
         {"{\"a\":null,\"b\":1}"},
         {"{\"a\":1}"}},
        {"{\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"properties\":{\"a\":{\"$ref\":"
         "\"y.json#/b\",\"type\":\"null\"}},\"type\":\"object\"}",
         {"/properties/a/$ref"},
         {"{\"a\":1}"},
         {"{\"b\":1}"}},
        {"{\"type\":\"boolean\",\"not\":{\"$ref\":\"https://x.org/y.json\"}}",
         {"/not", "/not/$ref"},
         {"true"},
         {"1"}},
        {"{\"type\":\"array\",\"$ref\":\"https://x.org/y.json\",\"unevaluatedItems\":false}",
         {"/$ref", "/unevaluatedItems"},
         {"[1]"},
         {"1"}},
        {"{\"type\":\"array\",\"items\":{\"$dynamicRef\":\"#a\",\"type\":\"integer\"}}",
         {"/items/$dynamicRef"},
         {"[1]"},
         {"[true]"}},
        {"{\"$schema\":\"https://json-schema.org/draft/2019-09/schema\",\"$recursiveRef\":\"#\","
         "\"type\":\"null\"}",
         {"/$recursiveRef"},
         {"null"},
         {"1"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"pattern\":\"(?<=a)b\"},\"b\":{\"pattern\":"
         "\"\\\\1\"}}}",
         {"/properties/a/pattern", "/properties/b/pattern"},
         {"{\"a\":\"x\",\"b\":\"x\"}"},
         {"{\"c\":1}"}},
    };
    (void)state;
    struct gram_vocab *v = toy_vocab();
    void *memory = toy_state_memory();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        check(&cases[i], v, memory);
    free(memory);
    gram_vocab_destroy(v);
}

/* Writes head, then n times the piece with its number in it, then tail, into text. */
static void repeat(char *text, size_t size, const char *head, int n, const char *piece,
                   const char *tail)
{
    size_t len = (size_t)snprintf(text, size, "%s", head);
    for (int i = 0; i < n; i++)
        len += (size_t)snprintf(text + len, size - len, "%s%s%d%s", i ? "," : "", piece, i,
                                strchr(piece, '{') ? "\"]}" : "");
    snprintf(text + len, size - len, "%s", tail);
}

static void test_too_many(void **state)
{
    (void)state;
    enum { SIZE = 100000 };
    char *text = malloc(SIZE), *twice = malloc(2 * SIZE);
    struct gram_vocab *v = toy_vocab();
    void *memory = toy_state_memory();
    REQUIRE(text && twice);
    repeat(text, SIZE, "{\"items\":{\"enum\":[", 10001, "", "]},\"type\":\"array\"}");
    check(&(struct left_out){text, {"/items/enum"}, {"[\"x\"]"}, {"1"}}, v, memory);
    repeat(text, SIZE, "[", 17, "{\"required\":[\"k", "]");
    snprintf(twice, 2 * SIZE, "{\"type\":\"object\",\"anyOf\":%s,\"allOf\":[{\"anyOf\":%s}]}", text,
             text);
    check(&(struct left_out){twice, {"/allOf/0/anyOf"}, {"{\"k1\":1}"}, {"{}"}}, v, memory);
    snprintf(twice, 2 * SIZE, "{\"type\":\"string\",\"pattern\":\"%04097d\"}", 0);
    check(&(struct left_out){twice, {"/pattern"}, {"\"x\""}, {"1"}}, v, memory);
    free(memory);
    gram_vocab_destroy(v);
    free(text);
    free(twice);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_left_out),
                                       cmocka_unit_test(test_too_many)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
