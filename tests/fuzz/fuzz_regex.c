/* SPDX-License-Identifier: MIT */
/*
 * Fuzzes regular expressions: a pattern, and behind a zero byte a text. Where both dialects have a
 * pattern and mean the same by it, PCRE2 agrees on ASCII texts.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "grammar_check.h"

/* Spellings that mean other things to PCRE2. */
static bool means_the_same(const uint8_t *pattern, size_t n)
{
    static const char *const others[] = {"[:",  "[]",  "[.",  "[=",  "{,",
                                         "\\p", "\\P", "\\0", "\\u", "(?<"};
    static const size_t n_others = sizeof(others) / sizeof(others[0]);

    for (size_t i = 0; i < n; i++) {
        if (pattern[i] >= 0x80) return false;
        for (size_t k = 0; k < n_others && i + 1 < n; k++)
            if (memcmp(pattern + i, others[k], 2) == 0 &&
                (others[k][2] == 0 || (i + 2 < n && pattern[i + 2] == (uint8_t)others[k][2])))
                return false;
    }
    return true;
}

static bool is_plain(const uint8_t *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (text[i] >= 0x80 || text[i] == '\r') return false;
    return true;
}

static pcre2_code *compile_other(const uint8_t *pattern, size_t n)
{
    int code;
    PCRE2_SIZE at;
    return pcre2_compile(pattern, n,
                         PCRE2_ANCHORED | PCRE2_ENDANCHORED | PCRE2_DOLLAR_ENDONLY |
                             PCRE2_ALT_BSUX | PCRE2_ALLOW_EMPTY_CLASS | PCRE2_UTF,
                         &code, &at, NULL);
}

/* 1: matches, 0: does not, -1: it gave up. */
static int match_other(const pcre2_code *code, const uint8_t *text, size_t n)
{
    pcre2_match_data *data = pcre2_match_data_create_from_pattern(code, NULL);
    pcre2_match_context *context = pcre2_match_context_create(NULL);

    CHECK(data && context);
    pcre2_set_match_limit(context, 100000);
    int rc = pcre2_match(code, text, n, 0, 0, data, context);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
    return rc >= 0 ? 1 : rc == PCRE2_ERROR_NOMATCH ? 0 : -1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *text;
    size_t n_text, n = fuzz_cut(data, size, &text, &n_text);
    struct gram *g = fuzz_compile(GRAM_REGEX, data, n, false);

    if (!g) return 0;
    bool accepted = fuzz_text(g, text, n_text);
    fuzz_answer(g, text, n_text);
    gram_release(g);
    if (!means_the_same(data, n) || !is_plain(text, n_text)) return 0;
    pcre2_code *code = compile_other(data, n);
    if (!code) return 0;
    int other = match_other(code, text, n_text);
    pcre2_code_free(code);
    CHECK(other < 0 || other == accepted);
    return 0;
}
