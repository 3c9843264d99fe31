/* SPDX-License-Identifier: MIT */
/* The bounded buffer: its bound, its failure, and JSON that is always valid. */
#include "test.h"

#include <math.h>

#include "base/buf.h"

static void grows_to_its_maximum_and_no_further(void **state)
{
    struct buf b;
    (void)state;
    buf_init(&b, 1000);
    for (int i = 0; i < 1000; i++)
        buf_add(&b, "x", 1);
    REQUIRE(!b.failed);
    REQUIRE_EQ_INT(b.len, 1000);
    REQUIRE_EQ_INT(strlen(b.data), 1000);
    buf_add(&b, "y", 1);
    REQUIRE(b.failed);
    REQUIRE_EQ_INT(b.len, 1000);
    buf_add(&b, "", 0); /* a failed buffer stays failed */
    REQUIRE(b.failed);
    buf_clear(&b);
    REQUIRE(!b.failed && b.len == 0);
    buf_puts(&b, "again");
    REQUIRE_EQ_STR(b.data, "again");
    buf_finish(&b);
    buf_finish(&b);
}

static void printf_that_does_not_fit_changes_nothing(void **state)
{
    struct buf b;
    (void)state;
    buf_init(&b, 8);
    buf_printf(&b, "%d", 1234);
    buf_printf(&b, "%s", "12345");
    REQUIRE(b.failed);
    REQUIRE_EQ_STR(b.data, "1234");
    buf_finish(&b);
}

static void strings_are_valid_json(void **state)
{
    static const struct {
        const char *in;
        size_t len;
        const char *out;
    } cases[] = {
        {"", 0, "\"\""},
        {"a\"b\\c", 5, "\"a\\\"b\\\\c\""},
        {"\n\r\t\b\f", 5, "\"\\n\\r\\t\\b\\f\""},
        {"\x01\x1f\x7f", 3, "\"\\u0001\\u001f\\u007f\""},
        {"a\0b", 3, "\"a\\u0000b\""},
        {"h\xc3\xa9", 3, "\"h\xc3\xa9\""},
        {"\xf0\x9f\x99\x82", 4, "\"\xf0\x9f\x99\x82\""},
        {"\xff", 1, "\"\xef\xbf\xbd\""},
        {"\xc3", 1, "\"\xef\xbf\xbd\""},                                 /* cut */
        {"\xc0\x80", 2, "\"\xef\xbf\xbd\xef\xbf\xbd\""},                 /* overlong */
        {"\xed\xa0\x80", 3, "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""}, /* surrogate */
        {"\xf4\x90\x80\x80", 4, "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""},
        {"\xe2\x82"
         "A",
         3,
         "\"\xef\xbf\xbd\xef\xbf\xbd"
         "A\""},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct buf b;
        buf_init(&b, 1000);
        buf_json_string(&b, cases[i].in, cases[i].len);
        REQUIRE_EQ_STR(b.data, cases[i].out);
        buf_finish(&b);
    }
}

static void numbers_are_finite_and_real(void **state)
{
    static const struct {
        double in;
        const char *out;
    } cases[] = {{0.1, "0.1"},         {3, "3.0"},
                 {-0.25, "-0.25"},     {1e-20, "1e-20"},
                 {1e300, "1e+300"},    {1.0 / 3, "0.333333333"},
                 {INFINITY, "9999.0"}, {-INFINITY, "-9999.0"},
                 {NAN, "-9999.0"}};
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct buf b;
        buf_init(&b, 100);
        buf_json_number(&b, cases[i].in);
        REQUIRE_EQ_STR(b.data, cases[i].out);
        buf_clear(&b);
        buf_json_int(&b, INT64_MIN);
        REQUIRE_EQ_STR(b.data, "-9223372036854775808");
        buf_finish(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grows_to_its_maximum_and_no_further),
        cmocka_unit_test(printf_that_does_not_fit_changes_nothing),
        cmocka_unit_test(strings_are_valid_json),
        cmocka_unit_test(numbers_are_finite_and_real),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
