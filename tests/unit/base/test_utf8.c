/* SPDX-License-Identifier: MIT */
/* UTF-8: all code points there and back, and the malformed forms of the Unicode standard. */
#include "test.h"

#include <stdbool.h>

#include "base/utf8.h"

static void every_code_point_there_and_back(void **state)
{
    (void)state;
    for (uint32_t cp = 0; cp <= 0x10FFFF; cp++) {
        char text[8] = "xxxxxxxx";
        size_t n = utf8_put(text + 1, cp);
        if (cp >= 0xD800 && cp <= 0xDFFF) {
            REQUIRE_MSG(!utf8_valid(text + 1, n), "U+%X", (unsigned)cp);
            continue;
        }
        const unsigned char *p = (const unsigned char *)text + 1, *begin;
        REQUIRE_EQ_INT(n, cp < 0x80 ? 1 : cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4);
        REQUIRE_MSG(utf8_valid(text, n + 2), "U+%X", (unsigned)cp);
        REQUIRE_EQ_INT(utf8_len(*p), n);
        REQUIRE_EQ_INT(utf8_classify(p, n), n);
        for (size_t cut = 1; cut < n; cut++) {
            REQUIRE_EQ_INT(utf8_classify(p, cut), 0);
            REQUIRE(!utf8_valid(text + 1, cut));
        }
        REQUIRE_EQ_INT(utf8_next(&p), cp);
        REQUIRE(p == (const unsigned char *)text + 1 + n && text[1 + n] == 'x');
        REQUIRE_EQ_INT(utf8_before(p, &begin), cp);
        REQUIRE(begin == (const unsigned char *)text + 1);
    }
}

/* The rows around the table of well-formed sequences (3-7 of the standard). */
static void malformed_forms(void **state)
{
    static const char *const bad[] = {
        "\x80",         "\xBF",         "\xC0\x80",         "\xC1\xBF",         "\xC2",
        "\xC2\x7F",     "\xC2\xC0",     "\xE0\x80\x80",     "\xE0\x9F\xBF",     "\xE0\xA0",
        "\xED\xA0\x80", "\xED\xBF\xBF", "\xEF\xBF",         "\xEF\xBF\x7F",     "\xF0\x8F\xBF\xBF",
        "\xF0\x80\x80", "\xF0\x90\x80", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF",
        "\xFE",         "\xE1\x80\xC0", "\xF1\x80\x80\xC0",
    };
    static const char *const good[] = {
        "\x7F",         "\xC2\x80",     "\xDF\xBF",         "\xE0\xA0\x80",     "\xED\x9F\xBF",
        "\xEE\x80\x80", "\xEF\xBF\xBF", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF",
    };
    (void)state;
    char text[64];
    for (size_t i = 0; i < N_OF(bad); i++)
        for (int before = 0; before < 20; before++) { /* at each place of a word */
            snprintf(text, sizeof(text), "%.*sA%s%s", before, "aaaaaaaaaaaaaaaaaaaa", bad[i],
                     i % 2 ? "" : "bbbbbbbbb");
            REQUIRE_MSG(!utf8_valid(text, strlen(text)), "row %zu behind %d", i, before);
        }
    for (size_t i = 0; i < N_OF(good); i++)
        REQUIRE_MSG(utf8_valid(good[i], strlen(good[i])), "row %zu", i);
    REQUIRE(utf8_valid("", 0) && utf8_valid("a\0b", 3));
}

/* Maximal parts, each to be replaced by one U+FFFD: the example of the standard (table 3-8). */
static void maximal_parts_of_broken_characters(void **state)
{
    static const char text[] = "\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64";
    static const int parts[] = {1, -3, -2, -1, 1, -1, 1, -1, -1, 1};
    size_t at = 0, len = sizeof(text) - 1;
    (void)state;
    for (size_t i = 0; i < N_OF(parts); i++) {
        int n = utf8_classify((const unsigned char *)text + at, len - at < 4 ? len - at : 4);
        REQUIRE_EQ_INT(n, parts[i]);
        at += (size_t)(n < 0 ? -n : n);
    }
    REQUIRE_EQ_INT(at, len);
}

static void ascii_prefix(void **state)
{
    char text[64];
    (void)state;
    memset(text, 'a', sizeof(text));
    for (size_t len = 0; len < sizeof(text); len++) {
        REQUIRE_EQ_INT(utf8_ascii_prefix(text, len), len);
        for (size_t at = 0; at < len; at++) {
            text[at] = '\x80';
            REQUIRE_EQ_INT(utf8_ascii_prefix(text, len), at);
            text[at] = 'a';
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_point_there_and_back),
        cmocka_unit_test(malformed_forms),
        cmocka_unit_test(maximal_parts_of_broken_characters),
        cmocka_unit_test(ascii_prefix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
