/* SPDX-License-Identifier: MIT */
/*
 * The JSON reader: values accepted and refused, with the place of the fault; strings, raw numbers
 * and spans as they are handed out; limits. In the cases ' stands for ".
 */
#include "test.h"

#include <stdbool.h>

#include "base/json_reader.h"

static char text[4096], err[200];

static struct jr reader(const char *json, unsigned flags)
{
    struct jr r;
    size_t n = strlen(json);
    REQUIRE(n < sizeof(text));
    for (size_t i = 0; i <= n; i++)
        text[i] = json[i] == '\'' ? '"' : json[i];
    err[0] = '\0';
    jr_init(&r, text, n, flags, err, sizeof(err));
    return r;
}

/* Skips one value that must be the whole text. */
static int skip_all(const char *json, unsigned flags)
{
    struct jr r = reader(json, flags);
    const char *s;
    size_t n;
    int rc = jr_skip(&r, &s, &n);
    if (!rc) rc = jr_end(&r);
    REQUIRE_MSG(!rc == !err[0], "%s", json);
    jr_finish(&r);
    return rc;
}

static void test_accepted(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "{}",
        "[]",
        " [ ] ",
        "'a'",
        "0",
        "-0",
        "-12.50e+3",
        "1E9",
        "true",
        "false",
        "null",
        "{'a':{'b':[1,2,{'c':null}]},'a':1}",
        "'\\u00e9\\n\\/\\''",
        "'\\ud83d\\ude00'",
        "123456789012345678901234567890",
        "\t\r\n[1 , 2]\n",
        "''",
        "{'':''}",
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        REQUIRE_MSG(skip_all(cases[i], 0) == 0, "%s: %s", cases[i], err);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *json, *why;
    } cases[] = {
        {"", "at byte 0: expected a value"},
        {"{", "at byte 1: expected a string"},
        {"[1,]", "at byte 3: expected a value"},
        {"[1 2]", "at byte 3: expected a comma or a closing bracket"},
        {"{'a' 1}", "at byte 5: expected a colon"},
        {"{a:1}", "at byte 1: expected a string"},
        {"{'a':1,}", "at byte 7: expected a string"},
        {"[1}", "at byte 2: expected a comma or a closing bracket"},
        {"'a", "at byte 2: the text ends inside a string"},
        {"'a\\", "the text ends inside a string"},
        {"'a\nb'", "at byte 2: a control character in a string"},
        {"'\\x'", "an unknown escape in a string"},
        {"'\\u12g4'", "expected four hexadecimal digits after \\u"},
        {"'\\u12", "expected four hexadecimal digits after \\u"},
        {"'\\ud800'", "a lone surrogate"},
        {"'\\ud800\\u0041'", "a lone surrogate"},
        {"'\\udc00'", "a lone surrogate"},
        {"'\\u0000'", "\\u0000 is not allowed"},
        {"01", "at byte 1: text after the end"},
        {"-", "at byte 1: expected a value"},
        {"+1", "at byte 0: expected a value"},
        {".5", "at byte 0: expected a value"},
        {"1.", "at byte 2: expected a digit after the point"},
        {"1e+", "at byte 3: expected a digit in the exponent"},
        {"NaN", "at byte 0: NaN and Infinity are not numbers of JSON"},
        {"tru", "at byte 0: expected true or false"},
        {"nul", "at byte 0: expected null"},
        {"[] []", "at byte 3: text after the end"},
        {"[1]//", "at byte 3: text after the end"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        REQUIRE_MSG(skip_all(cases[i].json, 0) == JR_EINVAL, "%s", cases[i].json);
        REQUIRE_MSG(strstr(err, cases[i].why), "%s: %s", cases[i].json, err);
    }
}

static void test_flags(void **state)
{
    (void)state;
    REQUIRE_EQ_INT(skip_all("[NaN,Infinity,-Infinity,-1]", JR_CONSTANTS), 0);
    REQUIRE_EQ_INT(skip_all("[-NaN]", JR_CONSTANTS), JR_EINVAL);
    struct jr r = reader("'a\\u0000b'", JR_NUL);
    const char *s;
    size_t n;
    REQUIRE_EQ_INT(jr_string(&r, &s, &n), 0);
    REQUIRE(n == 3 && memcmp(s, "a\0b", 3) == 0);
    jr_finish(&r);
}

static void test_pulling(void **state)
{
    (void)state;
    struct jr r = reader(" {'k\\n' : [ 7 , -1.50e2 , 'x\\u00e9' ], 'b':true,'n':null} ", 0);
    const char *s;
    size_t n;
    uint32_t v = 0;

    REQUIRE_EQ_INT(jr_peek(&r), '{');
    REQUIRE_EQ_INT(jr_open(&r, '{'), 0);
    REQUIRE_EQ_INT(jr_more(&r, '}'), 1);
    REQUIRE_EQ_INT(jr_key(&r, &s, &n), 0);
    REQUIRE(n == 2 && memcmp(s, "k\n", 2) == 0);
    REQUIRE_EQ_INT(jr_open(&r, '['), 0);
    REQUIRE_EQ_INT(jr_more(&r, ']'), 1);
    REQUIRE_EQ_INT(jr_uint(&r, 7, &v), 0);
    REQUIRE_EQ_INT(v, 7);
    REQUIRE_EQ_INT(jr_more(&r, ']'), 1);
    REQUIRE_EQ_INT(jr_number(&r, &s, &n), 0);
    REQUIRE(n == 7 && memcmp(s, "-1.50e2", 7) == 0);
    REQUIRE_EQ_INT(jr_more(&r, ']'), 1);
    REQUIRE_EQ_INT(jr_string(&r, &s, &n), 0);
    REQUIRE(n == 3 && memcmp(s, "x\xc3\xa9", 3) == 0);
    REQUIRE_EQ_INT(jr_more(&r, ']'), 0);
    REQUIRE_EQ_INT(jr_more(&r, '}'), 1);
    REQUIRE_EQ_INT(jr_key(&r, &s, &n), 0);
    REQUIRE_EQ_INT(jr_scalar(&r, &s, &n), 't');
    REQUIRE(n == 4 && memcmp(s, "true", 4) == 0);
    REQUIRE_EQ_INT(jr_member(&r, &s, &n), 1);
    REQUIRE(n == 1 && *s == 'n');
    REQUIRE_EQ_INT(jr_scalar(&r, &s, &n), 'n');
    REQUIRE_EQ_INT(jr_more(&r, '}'), 0);
    REQUIRE_EQ_INT(jr_end(&r), 0);
    jr_finish(&r);
}

static void test_span(void **state)
{
    (void)state;
    struct jr r = reader("[ {'a' : [1, 2]} , 5]", 0);
    const char *s;
    size_t n;
    REQUIRE_EQ_INT(jr_open(&r, '['), 0);
    REQUIRE_EQ_INT(jr_more(&r, ']'), 1);
    REQUIRE_EQ_INT(jr_skip(&r, &s, &n), 0);
    REQUIRE(n == 14 && memcmp(s, "{\"a\" : [1, 2]}", 14) == 0);
    REQUIRE_EQ_INT(r.depth, 1);
    jr_finish(&r);
}

static void test_limits(void **state)
{
    (void)state;
    char deep[700];
    for (int depth = 9; depth <= 300; depth += 291) {
        memset(deep, '[', (size_t)depth);
        memset(deep + depth, ']', (size_t)depth);
        deep[2 * depth] = '\0';
        REQUIRE_EQ_INT(skip_all(deep, 0), depth > JR_MAX_DEPTH ? JR_EINVAL : 0);
    }
    REQUIRE(strstr(err, "nests deeper than 256 levels"));
    struct jr r = reader("[[[]]]", 0);
    const char *s;
    size_t n;
    r.max_depth = 2;
    REQUIRE_EQ_INT(jr_skip(&r, &s, &n), JR_EINVAL);
    REQUIRE(strstr(err, "at byte 2 nests deeper than 2 levels"));
    uint32_t v;
    r = reader("4294967296", 0);
    REQUIRE_EQ_INT(jr_uint(&r, UINT32_MAX, &v), JR_EINVAL);
    REQUIRE(strstr(err, "above the limit of 4294967295"));
    r = reader("1.0", 0);
    REQUIRE_EQ_INT(jr_uint(&r, 5, &v), JR_EINVAL);
}

/* Whatever is asked for, what is given is empty, the first error stays and the place too. */
static void test_sticky(void **state)
{
    (void)state;
    struct jr r = reader("[1 'a', 2]", 0);
    const char *s = NULL;
    size_t n = 1;
    uint32_t v = 1;
    REQUIRE_EQ_INT(jr_open(&r, '['), 0);
    REQUIRE_EQ_INT(jr_more(&r, ']'), 1);
    REQUIRE_EQ_INT(jr_uint(&r, 7, &v), 0);
    REQUIRE_EQ_INT(jr_more(&r, ']'), JR_EINVAL);
    REQUIRE(strstr(err, "at byte 3: expected a comma"));
    REQUIRE_EQ_INT(jr_peek(&r), 0);
    REQUIRE_EQ_INT(jr_string(&r, &s, &n), JR_EINVAL);
    REQUIRE(n == 0 && *s == '\0');
    s = NULL;
    n = 1;
    REQUIRE_EQ_INT(jr_number(&r, &s, &n), JR_EINVAL);
    REQUIRE(n == 0 && *s == '\0');
    REQUIRE_EQ_INT(jr_uint(&r, 7, &v), JR_EINVAL);
    REQUIRE_EQ_INT(v, 0);
    s = NULL;
    REQUIRE_EQ_INT(jr_skip(&r, &s, &n), JR_EINVAL);
    REQUIRE(n == 0 && *s == '\0');
    REQUIRE_EQ_INT(jr_scalar(&r, &s, &n), 0);
    REQUIRE_EQ_INT(jr_open(&r, '['), JR_EINVAL);
    REQUIRE_EQ_INT(jr_more(&r, ']'), JR_EINVAL);
    REQUIRE_EQ_INT(jr_member(&r, &s, &n), JR_EINVAL);
    REQUIRE_EQ_INT(jr_refuse(&r, JR_ENOMEM, "another"), JR_EINVAL);
    REQUIRE_EQ_INT(jr_end(&r), JR_EINVAL);
    REQUIRE(strstr(err, "at byte 3: expected a comma"));
    REQUIRE_EQ_INT(r.pos, 3);
    jr_finish(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accepted), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_flags),    cmocka_unit_test(test_pulling),
        cmocka_unit_test(test_span),     cmocka_unit_test(test_limits),
        cmocka_unit_test(test_sticky),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
