/* SPDX-License-Identifier: MIT */
/*
 * A recursive descent parser of ECMA-262 patterns:
 *
 *   alternatives: terms | terms ...     terms: (assertion | look-ahead | atom quantifier?)*
 *
 * Groups do not capture anything here, lazy quantifiers mean the same language as greedy ones.
 * Where a look-ahead can be followed is up to nfa.c.
 */
#include "tokenizer/grammar/front/ecma_regex.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "tokenizer/grammar/build.h"
#include "tokenizer/grammar/json_doc.h"
#include "tokenizer/grammar/charset.h"
#include "tokenizer/grammar/expr.h"
#include "tokenizer/grammar/nfa.h"
#include "tokenizer/grammar/front/source.h"

enum { MAX_GROUPS = 100 };

struct parser {
    struct gram_build *b;
    const struct gram_regex_source *source;
    struct gram_source in;
    int depth;
};

static struct gram_ex *read_alternatives(struct parser *p);

__attribute__((format(printf, 2, 3))) _Noreturn static void refuse(struct parser *p,
                                                                   const char *format, ...)
{
    char problem[200];
    FORMAT_REST(problem, sizeof(problem), format);
    if (p->source->at) gram_fail_at(p->b, p->source->at, p->source->keyword, "%s", problem);
    gram_fail(p->b, GRAM_EGRAMMAR, "%s: %s", p->source->what, problem);
}

/* Ends the parsing of a pattern that means something, at a byte. */
_Noreturn static void not_supported(struct parser *p, const char *what, size_t byte)
{
    if (p->source->at)
        gram_leave_out(p->b, p->source->at, p->source->keyword, "%s at byte %zu is not supported.",
                       what, byte);
    refuse(p, "%s at byte %zu is not supported.", what, byte);
}

static bool at_end(const struct parser *p)
{
    return p->in.pos == p->in.len;
}

/* ---- escapes ------------------------------------------------------------------------------- */

/* n hexadecimal digits, or -1 and nothing taken. */
static int32_t read_hex(struct parser *p, size_t n)
{
    size_t begin = p->in.pos;
    uint32_t v;
    if (gram_source_hex(&p->in, n, &v) == n) return (int32_t)v;
    p->in.pos = begin;
    return -1;
}

/* \u{H...} after the brace. */
static uint32_t read_braced_hex(struct parser *p, size_t begin)
{
    uint32_t v;
    size_t n = gram_source_hex(&p->in, SIZE_MAX, &v);
    if (v > GRAM_MAX_CODE_POINT) refuse(p, "the escape at byte %zu is above U+10FFFF.", begin);
    if (n == 0 || !gram_source_accept(&p->in, "}"))
        refuse(p, "malformed escape \\u{} at byte %zu.", begin);
    return v;
}

/* \uHHHH, two of them for a surrogate pair, or \u{H}; begin is at the backslash. */
static uint32_t read_unicode_escape(struct parser *p, size_t begin)
{
    if (gram_source_accept(&p->in, "{")) return read_braced_hex(p, begin);
    int32_t high = read_hex(p, 4);
    if (high < 0) refuse(p, "malformed escape \\u at byte %zu.", begin);
    if (high < 0xD800 || high > 0xDBFF || !gram_source_at(&p->in, "\\u")) return (uint32_t)high;
    size_t second = p->in.pos;
    p->in.pos += 2;
    int32_t low = read_hex(p, 4);
    if (low < 0xDC00 || low > 0xDFFF) {
        p->in.pos = second;
        return (uint32_t)high;
    }
    return 0x10000 + (((uint32_t)high - 0xD800) << 10) + ((uint32_t)low - 0xDC00);
}

/* A character escape; p is past the backslash and its letter c. */
static uint32_t read_char_escape(struct parser *p, uint32_t c, size_t begin)
{
    static const char from[] = "tnvfr", to[] = "\t\n\v\f\r";
    const char *known = c < 0x80 && c ? strchr(from, (int)c) : NULL;
    if (known) return (uint32_t)to[known - from];
    if (c == '0' && (at_end(p) || p->in.text[p->in.pos] < '0' || p->in.text[p->in.pos] > '9'))
        return 0;
    if (c >= '0' && c <= '9') not_supported(p, "back-reference", begin);
    if (c == 'x') {
        int32_t v = read_hex(p, 2);
        if (v < 0) refuse(p, "malformed escape \\x at byte %zu.", begin);
        return (uint32_t)v;
    }
    if (c == 'u') return read_unicode_escape(p, begin);
    if (c == 'c' && !at_end(p)) {
        uint32_t letter = gram_source_char(&p->in);
        if ((letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z'))
            return letter % 32;
        refuse(p, "malformed escape \\c at byte %zu.", begin);
    }
    if (c == 'k') not_supported(p, "back-reference", begin);
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
        not_supported(p, gram_text(p->b, "escape \\%c", (int)c), begin);
    return c;
}

/* \p{name} or \P{name}, after the letter. */
static void read_property(struct parser *p, bool inverted, size_t begin, struct gram_charset *set)
{
    struct gram_charset property = {0};
    const char *close = gram_source_accept(&p->in, "{")
                            ? memchr(p->in.text + p->in.pos, '}', p->in.len - p->in.pos)
                            : NULL;
    if (!close) refuse(p, "malformed property at byte %zu.", begin);
    size_t n = (size_t)(close - p->in.text) - p->in.pos;
    if (!gram_charset_add_property(p->b, &property, p->in.text + p->in.pos, n))
        not_supported(
            p, gram_text(p->b, "the property %s", gram_quote(p->b, p->in.text + p->in.pos, n)),
            begin);
    p->in.pos += n + 1;
    gram_charset_finish(p->b, &property);
    if (inverted) gram_charset_invert(p->b, &property);
    gram_charset_add_set(p->b, set, &property);
}

/* \d \D \w \W \s \S \p \P: true if it was one, with its characters added to the set. */
static bool read_class_escape(struct parser *p, uint32_t c, size_t begin, struct gram_charset *set)
{
    if (c == 'p' || c == 'P') {
        read_property(p, c == 'P', begin, set);
        return true;
    }
    if (c >= 0x80 || !c || !strchr("dDwWsS", (int)c)) return false;
    gram_charset_add_class(p->b, set, (char)c);
    return true;
}

/* ---- classes ------------------------------------------------------------------------------- */

/* One atom of a class. True: a character, in *ret; false: a class escape, added to the set. */
static bool read_class_atom(struct parser *p, struct gram_charset *set, uint32_t *ret)
{
    size_t begin = p->in.pos;
    uint32_t c = gram_source_char(&p->in);
    if (c == '\\') {
        if (at_end(p)) refuse(p, "the pattern ends in a backslash.");
        c = gram_source_char(&p->in);
        if (read_class_escape(p, c, begin, set)) return false;
        *ret = c == 'b' ? '\b' : c == '-' ? '-' : read_char_escape(p, c, begin);
        return true;
    }
    *ret = c;
    return true;
}

/* After the '[', up to and with the ']'. */
static struct gram_ex *read_class(struct parser *p)
{
    struct gram_charset *set = gram_temp(p->b, sizeof(*set));
    size_t begin = p->in.pos - 1;
    bool inverted = gram_source_accept(&p->in, "^");
    while (!gram_source_accept(&p->in, "]")) {
        uint32_t lo, hi;
        if (at_end(p)) refuse(p, "the class at byte %zu does not end.", begin);
        size_t atom = p->in.pos;
        bool is_char = read_class_atom(p, set, &lo);
        if (!gram_source_at(&p->in, "-") || gram_source_at(&p->in, "-]") ||
            p->in.pos + 1 == p->in.len) {
            if (is_char) gram_charset_add(p->b, set, lo, lo);
            continue;
        }
        p->in.pos++;
        bool is_range = read_class_atom(p, set, &hi) && is_char;
        if (!is_range) { /* as in [\w-.]: the dash is a dash */
            gram_charset_add(p->b, set, '-', '-');
            if (is_char)
                gram_charset_add(p->b, set, lo, lo);
            else
                gram_charset_add(p->b, set, hi, hi);
            continue;
        }
        if (lo > hi) refuse(p, "the range at byte %zu is out of order.", atom);
        gram_charset_add(p->b, set, lo, hi);
    }
    gram_charset_finish(p->b, set);
    if (inverted) gram_charset_invert(p->b, set);
    return gram_ex_set(p->b, set);
}

/* ---- quantifiers --------------------------------------------------------------------------- */

/* A count up to 2^31 - 1; false if there is no digit. */
static bool read_count(struct parser *p, uint32_t *ret)
{
    size_t begin = p->in.pos;
    bool some = gram_source_count(&p->in, ret);
    if (*ret > INT32_MAX) not_supported(p, "a count above 2147483647", begin);
    return some;
}

/* {n}, {n,} or {n,m}; anything else leaves the brace to be itself. */
static bool read_braces(struct parser *p, uint32_t *min, uint32_t *max)
{
    size_t begin = p->in.pos;
    if (gram_source_accept(&p->in, "{") && read_count(p, min)) {
        *max = *min;
        if (gram_source_accept(&p->in, ",") && !read_count(p, max)) *max = GRAM_INFINITE;
        if (gram_source_accept(&p->in, "}")) {
            if (*max < *min) refuse(p, "the quantifier at byte %zu is out of order.", begin);
            return true;
        }
    }
    p->in.pos = begin;
    return false;
}

static bool read_quantifier(struct parser *p, uint32_t *min, uint32_t *max)
{
    return gram_source_times(&p->in, min, max) || read_braces(p, min, max);
}

static struct gram_ex *read_quantified(struct parser *p, struct gram_ex *x)
{
    uint32_t min, max;
    size_t begin = p->in.pos;
    if (!read_quantifier(p, &min, &max)) return x;
    gram_source_accept(&p->in, "?"); /* lazy: the same language */
    size_t next = p->in.pos;
    uint32_t ignored, too;
    if (read_quantifier(p, &ignored, &too)) {
        if (p->in.text[next] == '+') not_supported(p, "possessive quantifier", begin);
        refuse(p, "there is nothing to repeat at byte %zu.", next);
    }
    return gram_ex_rep(p->b, x, min, max);
}

/* ---- atoms --------------------------------------------------------------------------------- */

/* (?<name> after the '<' */
static void read_group_name(struct parser *p, size_t begin)
{
    size_t first = p->in.pos;
    while (!at_end(p) && p->in.text[p->in.pos] != '>')
        p->in.pos++;
    if (p->in.pos == first || !gram_source_accept(&p->in, ">"))
        refuse(p, "malformed group at byte %zu.", begin);
}

/* After the '('; a look-ahead comes back with *quantifiable false. */
static struct gram_ex *read_group(struct parser *p, bool *quantifiable)
{
    size_t begin = p->in.pos - 1;
    bool negated = gram_source_accept(&p->in, "?!");
    *quantifiable = !negated && !gram_source_accept(&p->in, "?=");
    if (gram_source_at(&p->in, "?<=") || gram_source_at(&p->in, "?<!"))
        not_supported(p, "look-behind", begin);
    if (*quantifiable && gram_source_accept(&p->in, "?<"))
        read_group_name(p, begin);
    else if (*quantifiable && gram_source_at(&p->in, "?") && !gram_source_accept(&p->in, "?:"))
        not_supported(p, "the group", begin);
    if (++p->depth > MAX_GROUPS)
        not_supported(p, gram_text(p->b, "nesting of more than %d groups", MAX_GROUPS), begin);
    struct gram_ex *x = read_alternatives(p);
    p->depth--;
    if (!gram_source_accept(&p->in, ")")) refuse(p, "the group at byte %zu does not end.", begin);
    return *quantifiable ? x : gram_ex_look(p->b, x, negated, (uint32_t)begin);
}

/* After the backslash; an assertion comes back with *quantifiable false. */
static struct gram_ex *read_escape(struct parser *p, bool *quantifiable)
{
    size_t begin = p->in.pos - 1;
    if (at_end(p)) refuse(p, "the pattern ends in a backslash.");
    uint32_t c = gram_source_char(&p->in);
    if (c == 'b' || c == 'B') {
        *quantifiable = false;
        return gram_ex_new(p->b, c == 'b' ? GRAM_EX_WORD : GRAM_EX_NOT_WORD);
    }
    struct gram_charset *set = gram_temp(p->b, sizeof(*set));
    if (!read_class_escape(p, c, begin, set)) {
        c = read_char_escape(p, c, begin);
        gram_charset_add(p->b, set, c, c);
    }
    gram_charset_finish(p->b, set);
    return gram_ex_set(p->b, set);
}

static struct gram_ex *read_term(struct parser *p)
{
    bool quantifiable = true;
    size_t begin = p->in.pos;
    uint32_t min, max;
    struct gram_ex *x;
    if (gram_source_at(&p->in, "*") || gram_source_at(&p->in, "+") || gram_source_at(&p->in, "?") ||
        read_braces(p, &min, &max))
        refuse(p, "there is nothing to repeat at byte %zu.", begin);
    if (gram_source_accept(&p->in, "(")) {
        x = read_group(p, &quantifiable);
    } else if (gram_source_accept(&p->in, "[")) {
        x = read_class(p);
    } else if (gram_source_accept(&p->in, "\\")) {
        x = read_escape(p, &quantifiable);
    } else if (gram_source_accept(&p->in, ".")) {
        struct gram_charset *set = gram_temp(p->b, sizeof(*set));
        gram_charset_add_class(p->b, set, '.');
        gram_charset_finish(p->b, set);
        x = gram_ex_set(p->b, set);
    } else if (gram_source_at(&p->in, "^") || gram_source_at(&p->in, "$")) {
        x = gram_ex_new(p->b, gram_source_at(&p->in, "^") ? GRAM_EX_BEGIN : GRAM_EX_END);
        quantifiable = false;
        p->in.pos++;
    } else {
        x = gram_ex_char(p->b, gram_source_char(&p->in));
    }
    begin = p->in.pos;
    if (quantifiable) return read_quantified(p, x);
    if (read_quantifier(p, &min, &max)) refuse(p, "there is nothing to repeat at byte %zu.", begin);
    return x;
}

static struct gram_ex *read_alternatives(struct parser *p)
{
    struct gram_ex_list alternatives = {0};
    do {
        struct gram_ex_list terms = {0};
        while (!at_end(p) && !gram_source_at(&p->in, "|") && !gram_source_at(&p->in, ")"))
            gram_ex_push(p->b, &terms, read_term(p));
        gram_ex_push(p->b, &alternatives, gram_ex_seq(p->b, &terms));
    } while (gram_source_accept(&p->in, "|"));
    return gram_ex_alt(p->b, &alternatives);
}

struct gram_ex *gram_regex_parse(struct gram_build *b, const char *text, size_t len,
                                 const struct gram_regex_source *source)
{
    struct parser p = {.b = b, .source = source, .in = {.text = text, .len = len}};
    if (!utf8_valid(text, len)) refuse(&p, "not valid UTF-8.");
    struct gram_ex *x = read_alternatives(&p);
    if (!at_end(&p)) refuse(&p, "unmatched ) at byte %zu.", p.in.pos);
    const struct gram_ex *look = gram_nfa_refuses(b, x, source->search);
    if (look) not_supported(&p, "look-ahead", look->ref);
    return x;
}
