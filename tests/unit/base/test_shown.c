/* SPDX-License-Identifier: MIT */
/* Control characters are spelled out, all else stays; nothing is cut inside a character. */
#include "test.h"

#include <stdio.h>
#include <string.h>

#include "base/shown.h"

static void test_texts(void **state)
{
    (void)state;
    static const struct {
        const char *text, *shown;
    } rows[] = {
        {"plain \u00e9\u65e5\U0001f600\u200d", "plain \u00e9\u65e5\U0001f600\u200d"},
        {"\x1b[2J\a\r\n\t\x7f", "\\x1b[2J\\x07\\x0d\\x0a\\x09\\x7f"},
        {"\xc2\x9b"
         "31m\xc2\x85",
         "\\x9b31m\\x85"},
        {"\u202etxt\u2066\u2069\u200e\u061c", "\\u202etxt\\u2066\\u2069\\u200e\\u061c"},
        {"\u2028\u2029\ufff9", "\\u2028\\u2029\\ufff9"},
        {"\x9b\xff\xe2\x80", "\\x9b\\xff\\xe2\\x80"},
        {"\u00a0\u2027\u202f\u2065\u206a\ufff8\ufffc",
         "\u00a0\u2027\u202f\u2065\u206a\ufff8\ufffc"},
    };
    char out[100];
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        shown_text(out, sizeof(out), rows[i].text, strlen(rows[i].text));
        REQUIRE_MSG(strcmp(out, rows[i].shown) == 0, "row %zu: %s", i, out);
    }
}

static void test_cuts(void **state)
{
    (void)state;
    static const char *const wanted[] = {"",  "",       "a",      "a",           "a",
                                         "a", "a\\x1b", "a\\x1b", "a\\x1b\u00e9"};
    char out[16];
    for (size_t size = 1; size <= 8; size++) {
        memset(out, '#', sizeof(out));
        shown_text(out, size, "a\x1b\u00e9", 4);
        REQUIRE_MSG(strcmp(out, wanted[size]) == 0 && out[size] == '#', "%zu: %s", size, out);
    }
}

static void test_streams(void **state)
{
    (void)state;
    char text[100] = "";
    FILE *f = fmemopen(text, sizeof(text), "w");
    REQUIRE(f && shown_write(f, "a\n\tb\x1b\r", 6));
    shown_line(f, "%s-%d", "c\nd\u202e", 7);
    fclose(f);
    REQUIRE_MSG(strcmp(text, "a\n\tb\\x1b\\x0dc\\x0ad\\u202e-7\n") == 0, "%s", text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_streams),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
