/* SPDX-License-Identifier: MIT */
/*
 * The hand-written splitters against the patterns they replace, the translation of patterns, and
 * the bound on their work. Random text is seeded; the seed of a failure is printed.
 */
#include "test.h"

#include <utf8proc.h>

#include "base/utf8.h"
#include "tokenizer/bounded_regex.h"
#include "tokenizer/fast_split.h"
#include "tokenizer/regex_translate.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode.h"

static struct tok_uni uni;
static char err[256];

static int set_up(void **state)
{
    (void)state;
    return tok_uni_init(&uni);
}

static int tear_down(void **state)
{
    (void)state;
    tok_uni_finish(&uni);
    return 0;
}

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Characters at which the patterns decide something, and some of each kind. */
static const uint32_t interesting[] = {
    ' ',    ' ',     ' ',    '\n',   '\r',    '\t',    '\v',    '\'',   '\'',  's',  'S',    'l',
    'L',    'r',     'e',    'E',    'v',     't',     'm',     'd',    'D',   'a',  'Z',    '0',
    '1',    '9',     '!',    '.',    '-',     '/',     0x17F,   0x212A, 0x85,  0xA0, 0x180E, 0x2003,
    0x200B, 0x2028,  0x3000, 0xFEFF, 0xBD,    0xB2,    0x2167,  0x663,  0x301, 0xE9, 0x43C,  0x6C34,
    0xAC00, 0x1F469, 0xE000, 0x378,  0x10D50, 0x10D40, 0x323AF, 0,      0x1F,
};

static size_t random_text(char *out, size_t n_chars, uint64_t *seed)
{
    size_t len = 0;

    for (size_t i = 0; i < n_chars; i++) {
        uint64_t r = next_random(seed);
        uint32_t cp = interesting[r % N_OF(interesting)];
        if (r >> 60 == 0) cp = (uint32_t)(r >> 20) % 0x110000;
        if (cp >= 0xD800 && cp <= 0xDFFF) cp = 'x';
        len += utf8_put(out + len, cp);
    }
    return len;
}

/* Every match of the pattern is a piece of the splitter, and they leave nothing out. */
static void compare(enum tok_split_kind kind, const struct tok_regex *re,
                    struct tok_regex_scratch *rs, const char *text, size_t len, uint64_t seed)
{
    struct tok_regex_iter it = tok_regex_iter(re, text, len);
    size_t begin, end, at = 0;

    tok_regex_scratch_next(rs, len);
    while (at < len) {
        int more = tok_regex_next(&it, rs, &begin, &end, err, sizeof(err));
        size_t n = tok_split_next(kind, &uni, text + at, len - at);
        REQUIRE_MSG(more == 1 && begin == at && end == at + n,
                    "splitter %d, seed %llx, byte %zu: pattern [%zu, %zu), splitter %zu bytes",
                    (int)kind, (unsigned long long)seed, at, begin, end, n);
        at += n;
    }
}

static struct tok_regex *compile(const char *pattern)
{
    struct tok_regex *re = NULL;
    int rc = tok_regex_create(&re, &uni, pattern, strlen(pattern), err, sizeof(err));

    REQUIRE_MSG(rc == 0, "%s: %s", pattern, err);
    return re;
}

static void splitters_equal_their_patterns(void **state)
{
    static char text[4 * 64];

    (void)state;
    for (int kind = TOK_SPLIT_GPT2; kind <= TOK_SPLIT_QWEN2; kind++) {
        struct tok_regex *re = compile(tok_split_pattern((enum tok_split_kind)kind));
        struct tok_regex_scratch rs;
        tok_regex_scratch_init(&rs, 0);
        for (uint64_t i = 1; i <= 20000; i++) {
            uint64_t seed = i * 0x9E3779B97F4A7C15u, s = seed;
            size_t len = random_text(text, 1 + i % 40, &s);
            compare((enum tok_split_kind)kind, re, &rs, text, len, seed);
        }
        tok_regex_scratch_finish(&rs);
        tok_regex_destroy(re);
    }
}

/* Each code point between letters, spaces and digits. */
static void splitters_agree_on_every_code_point(void **state)
{
    char text[64];

    (void)state;
    for (int kind = TOK_SPLIT_GPT2; kind <= TOK_SPLIT_QWEN2; kind++) {
        struct tok_regex *re = compile(tok_split_pattern((enum tok_split_kind)kind));
        struct tok_regex_scratch rs;
        tok_regex_scratch_init(&rs, 0);
        for (uint32_t cp = 0; cp < 0x110000; cp += cp < 0x3100 ? 1 : 13) {
            size_t n = 0;
            if (cp >= 0xD800 && cp <= 0xDFFF) continue;
            n += utf8_put(text + n, 'a');
            n += utf8_put(text + n, cp);
            n += utf8_put(text + n, 'b');
            n += utf8_put(text + n, ' ');
            n += utf8_put(text + n, cp);
            n += utf8_put(text + n, '1');
            n += utf8_put(text + n, cp);
            compare((enum tok_split_kind)kind, re, &rs, text, n, cp);
        }
        tok_regex_scratch_finish(&rs);
        tok_regex_destroy(re);
    }
}

/* ---- classes ------------------------------------------------------------------------------- */

static bool has_category(uint32_t cp, uint32_t categories)
{
    return categories >> (tok_uni_props(&uni, cp) & TOK_UNI_CATEGORY) & 1;
}

#define BIT(category) (1u << UTF8PROC_CATEGORY_##category)
#define L (BIT(LU) | BIT(LL) | BIT(LT) | BIT(LM) | BIT(LO))
#define N (BIT(ND) | BIT(NL) | BIT(NO))

static bool is_white(uint32_t cp)
{
    return tok_uni_props(&uni, cp) & TOK_UNI_WHITE;
}

/* A class of a pattern has exactly the members that the table has. */
static void classes_have_the_members_of_the_table(void **state)
{
    static const struct {
        const char *pattern;
        uint32_t categories;
        bool white, negated;
    } cases[] = {
        {"\\p{L}", L, false, false},
        {"\\P{L}", L, false, true},
        {"[\\P{L}]", L, false, true},
        {"[^\\p{L}]", L, false, true},
        {"\\p{^L}", L, false, true},
        {"\\p{N}", N, false, false},
        {"[\\P{N}]", N, false, true},
        {"\\d", BIT(ND), false, false},
        {"\\p{Lu}", BIT(LU), false, false},
        {"\\p{ other-letter }", BIT(LO), false, false},
        {"\\s", 0, true, false},
        {"\\S", 0, true, true},
        {"[\\S]", 0, true, true},
        {"[^\\s]", 0, true, true},
    };
    char text[4];

    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct tok_regex *re = compile(cases[i].pattern);
        struct tok_regex_scratch rs;
        size_t begin, end;
        tok_regex_scratch_init(&rs, 1000000000);
        for (uint32_t cp = 0; cp < 0x110000; cp += cp < 0x20000 ? 1 : 7) {
            if (cp >= 0xD800 && cp <= 0xDFFF) continue;
            struct tok_regex_iter it = tok_regex_iter(re, text, utf8_put(text, cp));
            bool member = cases[i].white ? is_white(cp) : has_category(cp, cases[i].categories);
            int found = tok_regex_next(&it, &rs, &begin, &end, err, sizeof(err));
            REQUIRE_MSG(found == (member != cases[i].negated), "%s at U+%04X: %d", cases[i].pattern,
                        cp, found);
        }
        tok_regex_scratch_finish(&rs);
        tok_regex_destroy(re);
    }
}

/* ---- what is refused ----------------------------------------------------------------------- */

static void patterns_without_an_equal_are_refused_by_name(void **state)
{
    static const struct {
        const char *pattern, *why;
    } cases[] = {
        {"[a-z&&[^b]]", "&&"},
        {"[a[bc]]", "[ inside"},
        {"[[:alpha:]]", "[: :]"},
        {"a(?i)b", "(?i)"},
        {"(a)\\1", "\\1"},
        {"\\p{Emoji}", "Emoji"},
        {"\\pL", "braces"},
        {"\\X", "\\X"},
        {"(?<n>a)", "(?<n"},
        {"(?~a)", "(?~a"},
        {"(*SKIP)", "(*"},
        {"a**", "behind a quantifier"},
        {"*a", "nothing to repeat"},
        {"a{2}?", "{n}?"},
        {"(?i:ss)", "\"ss\""},
        {"(?i:\xc3\xa9)", "U+00E9"},
        {"(?x:a)", "(?x:a)"},
        {"[]a]", "] at the front"},
        {"[a", "[ without"},
        {"(a", "( without"},
        {"a)", ") without"},
        {"\\", "backslash"},
        {"[z-a]", "out of order"},
        {"\\xff", "\\xFF"},
        {"\\x{d800}", "not a character"},
        {"\\u12", "\\u"},
        {"(?i:\\p{Lu})", "\\p{Lu}"},
        {"(?i:[\\S])", "(?i)"},
        {"(?i:[^\\p{M}])", "(?i)"},
        {"[\\P{Han}]", "\\P{Han}"},
        {"(?=a)*", "nothing to repeat"},
        {"\\p{L", "brace"},
    };

    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct tok_regex *re = NULL;
        int rc = tok_regex_create(&re, &uni, cases[i].pattern, strlen(cases[i].pattern), err,
                                  sizeof(err));
        REQUIRE_MSG(rc == TOK_EINVAL && strstr(err, cases[i].why), "%s: %d, %s", cases[i].pattern,
                    rc, err);
    }
}

static void a_pattern_of_great_length_or_depth_is_refused(void **state)
{
    static char pattern[TOK_PATTERN_MAX_BYTES + 2];
    struct tok_regex *re = NULL;

    (void)state;
    memset(pattern, 'a', sizeof(pattern) - 1);
    REQUIRE_EQ_INT(tok_regex_create(&re, &uni, pattern, strlen(pattern), err, sizeof(err)),
                   TOK_EINVAL);
    memset(pattern, '(', 2000);
    pattern[2000] = 0;
    REQUIRE_EQ_INT(tok_regex_create(&re, &uni, pattern, strlen(pattern), err, sizeof(err)),
                   TOK_EINVAL);
}

/* ---- the bound on work --------------------------------------------------------------------- */

/* Runs a pattern over a text of one repeated character; the result of the last search. */
static int run_over(const char *pattern, char c, size_t len)
{
    struct tok_regex *re = compile(pattern);
    struct tok_regex_scratch rs;
    size_t begin, end;
    char *text = malloc(len);
    int more;

    REQUIRE(text);
    memset(text, c, len);
    struct tok_regex_iter it = tok_regex_iter(re, text, len);
    tok_regex_scratch_init(&rs, len);
    while ((more = tok_regex_next(&it, &rs, &begin, &end, err, sizeof(err))) == 1)
        continue;
    tok_regex_scratch_finish(&rs);
    tok_regex_destroy(re);
    free(text);
    return more;
}

static void patterns_that_explode_end_in_an_error(void **state)
{
    static const char *const patterns[] = {
        "(a+)+[bc]", "(a|a)*[bc]",    "(?:a*)*[bc]",    "a*a*a*[bc]", "a*[bc]|a",
        "a*+[bc]|a", "(?=a*+[bc])|a", "(?:a?){30}[bc]", ".*.*[xy]",   "(?>a*)[bc]|a",
    };

    (void)state;
    for (size_t i = 0; i < N_OF(patterns); i++) {
        int rc = run_over(patterns[i], 'a', 100000);
        REQUIRE_MSG(rc == TOK_ELIMIT, "%s: %d", patterns[i], rc);
        REQUIRE(strstr(err, "takes too long"));
    }
}

static void ordinary_patterns_stay_within_the_bound(void **state)
{
    static const char chars[] = {'a', 'A', ' ', '\n', '1', '!'};

    (void)state;
    for (int kind = TOK_SPLIT_GPT2; kind <= TOK_SPLIT_QWEN2; kind++) {
        for (size_t i = 0; i < sizeof(chars); i++) {
            REQUIRE_EQ_INT(run_over(tok_split_pattern((enum tok_split_kind)kind), chars[i], 300000),
                           0);
        }
    }
    REQUIRE_EQ_INT(run_over("(?:ab)+|a", 'a', 300000), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(splitters_equal_their_patterns),
        cmocka_unit_test(splitters_agree_on_every_code_point),
        cmocka_unit_test(classes_have_the_members_of_the_table),
        cmocka_unit_test(patterns_without_an_equal_are_refused_by_name),
        cmocka_unit_test(a_pattern_of_great_length_or_depth_is_refused),
        cmocka_unit_test(patterns_that_explode_end_in_an_error),
        cmocka_unit_test(ordinary_patterns_stay_within_the_bound),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
