/* SPDX-License-Identifier: MIT */
/*
 * Both families sort characters into four kinds: letters, numbers, white space, others. A match is
 * a run of one kind with a rule for the characters before and after it; white space gives its last
 * character to the word that follows, unless the text ends there.
 */
#include "tokenizer/fast_split.h"

#include <string.h>

#include "base/utf8.h"

enum kind { LETTER = 1, NUMBER = 2, WHITE = 4, OTHER = 8 };

static const struct {
    const char *pattern;
    int max_digits; /* 0: a space before, any number of them */
} known[] = {
    [TOK_SPLIT_GPT2] =
        {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", 0},
    [TOK_SPLIT_LLAMA3] = {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|"
                          " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
                          3},
    [TOK_SPLIT_QWEN2] = {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|"
                         " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
                         1},
};

const char *tok_split_pattern(enum tok_split_kind kind)
{
    return known[kind].pattern;
}

bool tok_split_find(const char *pattern, size_t len, enum tok_split_kind *ret)
{
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strlen(known[i].pattern) != len || memcmp(known[i].pattern, pattern, len) != 0)
            continue;
        *ret = (enum tok_split_kind)i;
        return true;
    }
    return false;
}

/* clang-format off */
static const uint8_t ascii_kind[128] = {
    8, 8, 8, 8, 8, 8, 8, 8, 8, 4, 4, 4, 4, 4, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8,
    4, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 8, 8, 8, 8, 8, 8,
    8, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 8, 8, 8, 8, 8,
    8, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 8, 8, 8, 8, 8,
};
/* clang-format on */

/* Kind of the character at *p, which moves past it. */
static inline unsigned next_kind(const struct tok_uni *uni, const unsigned char **p)
{
    if (**p < 0x80) return ascii_kind[*(*p)++];
    unsigned props = tok_uni_props(uni, utf8_next(p));
    return props & TOK_UNI_LETTER   ? LETTER
           : props & TOK_UNI_NUMBER ? NUMBER
           : props & TOK_UNI_WHITE  ? WHITE
                                    : OTHER;
}

/* Kind of the character at p, or 0 at the end. */
static inline unsigned kind_at(const struct tok_uni *uni, const unsigned char *p,
                               const unsigned char *end)
{
    return p < end ? next_kind(uni, &p) : 0;
}

/* The end of the run of one kind that begins at p. */
static inline const unsigned char *run(const struct tok_uni *uni, const unsigned char *p,
                                       const unsigned char *end, unsigned kind)
{
    while (p < end) {
        const unsigned char *next = p;
        if (next_kind(uni, &next) != kind) break;
        p = next;
    }
    return p;
}

static inline bool is_newline(unsigned char c)
{
    return c == '\r' || c == '\n';
}

/* Length of 's 't 'm 'd 're 've 'll after an apostrophe, or 0. fold: in any case, and with the
 * long s. */
static size_t contraction(const unsigned char *s, const unsigned char *end, bool fold)
{
    unsigned char bit = fold ? 0x20 : 0;
    if (end - s < 2) return 0;
    unsigned char a = s[1] | bit, b = end - s > 2 ? s[2] | bit : 0;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return 3;
    return fold && end - s > 2 && s[1] == 0xC5 && s[2] == 0xBF ? 3 : 0;
}

/* \s+(?!\S)|\s+ at white space: a run that something follows leaves its last character. */
static const unsigned char *white_run(const struct tok_uni *uni, const unsigned char *p,
                                      const unsigned char *end)
{
    const unsigned char *stop = run(uni, p, end, WHITE), *last;
    if (stop == end) return stop;
    utf8_before(stop, &last);
    return last > p ? last : stop;
}

static const unsigned char *next_gpt2(const struct tok_uni *uni, const unsigned char *p,
                                      const unsigned char *end)
{
    if (*p == '\'') {
        size_t n = contraction(p, end, false);
        if (n) return p + n;
    }
    const unsigned char *word = p + (*p == ' ');
    unsigned kind = kind_at(uni, word, end);
    if (kind && kind != WHITE) return run(uni, word, end, kind);
    return white_run(uni, p, end);
}

/* \s*[\r\n]+ at white space: up to the last line break of the run. */
static const unsigned char *white_lines(const struct tok_uni *uni, const unsigned char *p,
                                        const unsigned char *end)
{
    const unsigned char *stop = run(uni, p, end, WHITE);
    while (stop > p && !is_newline(stop[-1]))
        stop--;
    return stop > p ? stop : white_run(uni, p, end);
}

static const unsigned char *next_llama3(const struct tok_uni *uni, const unsigned char *p,
                                        const unsigned char *end, int max_digits)
{
    const unsigned char *second = p, *q;
    unsigned kind;
    if (*p == '\'') {
        size_t n = contraction(p, end, true);
        if (n) return p + n;
    }
    kind = next_kind(uni, &second);
    if (kind == LETTER) return run(uni, second, end, LETTER);
    if (kind == NUMBER) {
        for (q = second; --max_digits > 0 && kind_at(uni, q, end) == NUMBER;)
            next_kind(uni, &q);
        return q;
    }
    if (!is_newline(*p) && kind_at(uni, second, end) == LETTER)
        return run(uni, second, end, LETTER);
    if (kind == OTHER || (*p == ' ' && kind_at(uni, second, end) == OTHER)) {
        q = run(uni, second, end, OTHER);
        while (q < end && is_newline(*q))
            q++;
        return q;
    }
    return white_lines(uni, p, end);
}

size_t tok_split_next(enum tok_split_kind kind, const struct tok_uni *uni, const char *s,
                      size_t len)
{
    const unsigned char *p = (const unsigned char *)s, *end = p + len;
    if (kind == TOK_SPLIT_GPT2) return (size_t)(next_gpt2(uni, p, end) - p);
    return (size_t)(next_llama3(uni, p, end, known[kind].max_digits) - p);
}
