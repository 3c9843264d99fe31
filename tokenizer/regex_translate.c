/* SPDX-License-Identifier: MIT */
/*
 * One pass from left to right. The output position of the last atom is remembered, because a
 * quantifier may have to be wrapped around it; open groups form a stack of such positions.
 *
 * Sets are emitted as the inside of a class: PCRE2's own property plus the code points its Unicode
 * version lacks. A negated set inside a class has no such form and is spelled out as ranges.
 */
#include "tokenizer/regex_translate.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/hex.h"
#include "base/utf8.h"
#include "tokenizer/regex_class.h"
#include "tokenizer/tok_types.h"

#define CALLOUT "(?C1)"
#define MAX_COMPLEMENTS 16 /* each one walks through all code points */

enum { MAX_OUT_BYTES = 1 << 30 };

struct group {
    size_t atom;   /* where the group begins in the output */
    bool caseless; /* as it was outside */
    bool look;     /* an assertion: not repeated */
};

struct translator {
    const struct tok_uni *uni;
    const unsigned char *p, *end;
    struct buf out;
    struct group groups[TOK_PATTERN_MAX_DEPTH];
    int depth;
    bool caseless, class_negated;
    bool has_atom; /* something that a quantifier may repeat was just written */
    bool at_start; /* nothing was written in this group yet */
    size_t atom;   /* its position in the output */
    uint32_t last_literal;
    int n_complements;
    char *err;
    size_t errlen;
};

#define refuse(t, what, ...)                                                                       \
    fail_with(TOK_EINVAL, (t)->err, (t)->errlen, "regular expression: " what " is not supported",  \
              ##__VA_ARGS__)

/* ---- sets ---------------------------------------------------------------------------------- */

/* A set as an item of a class. */
static int put_class_item(struct translator *t, struct tok_char_set *set)
{
    set->in_class = true;
    set->folded = t->caseless;
    if (t->caseless && tok_char_set_folds(t->uni, set, t->class_negated))
        return refuse(t, "this set of characters inside (?i) and [...]");
    if (!set->negated) {
        tok_char_set_put(&t->out, set);
        return 0;
    }
    if (set->script) return refuse(t, "\\P{%s} inside [...]", set->script);
    if (t->n_complements++ == MAX_COMPLEMENTS)
        return refuse(t, "so many negated sets inside [...]");
    tok_char_set_put_complement(&t->out, t->uni, set);
    return 0;
}

/* A set that stands alone. */
static void put_alone(struct translator *t, const struct tok_char_set *set)
{
    buf_puts(&t->out, set->negated ? "[^" : "[");
    tok_char_set_put(&t->out, set);
    buf_puts(&t->out, "]");
}

/* ---- escapes ------------------------------------------------------------------------------- */

static int find_property(struct translator *t, const char *name, size_t len,
                         struct tok_char_set *set)
{
    if (!tok_char_set_find(name, len, set))
        return refuse(t, "the property \\p{%.*s}", (int)(len < 40 ? len : 40), name);
    if (t->caseless && tok_char_set_is_cased(set))
        return refuse(t, "\\p{%.*s} inside (?i)", (int)len, name);
    return 0;
}

/* After \p or \P: {Name} or {^Name}. */
static int parse_property(struct translator *t, struct tok_char_set *set)
{
    const unsigned char *close;
    if (t->p == t->end || *t->p != '{') return refuse(t, "\\p without braces");
    close = memchr(t->p, '}', (size_t)(t->end - t->p));
    if (!close) return refuse(t, "\\p{ without a closing brace");
    t->p++;
    if (*t->p == '^') {
        set->negated = !set->negated;
        t->p++;
    }
    int rc = find_property(t, (const char *)t->p, (size_t)(close - t->p), set);
    t->p = close + 1;
    return rc;
}

/*
 * Returns true if the escape names a set; then it is parsed. c is the letter after the backslash.
 */
static int parse_set(struct translator *t, unsigned char c, struct tok_char_set *set,
                     bool *ret_is_set)
{
    *ret_is_set = tok_char_set_escape(c, set);
    if (c != 'p' && c != 'P') return 0;
    *ret_is_set = true;
    return parse_property(t, set);
}

/* Up to max hexadecimal digits; returns how many. */
static int parse_hex(struct translator *t, int max, uint32_t *ret)
{
    int n = 0;
    uint32_t v = 0;
    for (; n < max && t->p < t->end; n++, t->p++) {
        int digit = hex_value((unsigned char)*t->p);
        if (digit < 0) break;
        v = v << 4 | (uint32_t)digit;
    }
    *ret = v;
    return n;
}

/* \xHH, \x{H...}, \uHHHH: the code point. */
static int parse_code_point(struct translator *t, unsigned char kind, uint32_t *ret)
{
    bool braces = kind == 'x' && t->p < t->end && *t->p == '{';
    int n;
    if (braces) t->p++;
    n = parse_hex(t, braces ? 6 : kind == 'x' ? 2 : 4, ret);
    if (braces && (t->p == t->end || *t->p++ != '}')) n = 0;
    if (n == 0 || (kind == 'u' && n != 4)) return refuse(t, "a broken \\%c escape", kind);
    if (*ret > 0x10FFFF || (*ret >= 0xD800 && *ret <= 0xDFFF))
        return refuse(t, "\\%c{%x}, which is not a character,", kind, *ret);
    if (kind == 'x' && !braces && *ret > 0x7F) return refuse(t, "\\x%02X (a lone byte)", *ret);
    return 0;
}

/* An escape that stands for one character; c is the letter after the backslash. */
static int parse_char_escape(struct translator *t, unsigned char c, uint32_t *ret)
{
    static const char from[] = "tnrfvae", to[] = "\t\n\r\f\v\a\033";
    const char *p = c ? strchr(from, c) : NULL;
    if (p) {
        *ret = (uint32_t)(unsigned char)to[p - from];
        return 0;
    }
    if (c == 'x' || c == 'u') return parse_code_point(t, c, ret);
    if (c >= 0x80 || (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z'))
        return refuse(t, "the escape \\%c", c < 0x80 ? c : '?');
    *ret = c;
    return 0;
}

/* ---- atoms --------------------------------------------------------------------------------- */

static void begin_atom(struct translator *t)
{
    t->atom = t->out.len;
    t->has_atom = true;
    t->at_start = false;
    t->last_literal = 0;
}

/*
 * The reference folds some pairs of letters into one character when case does not count ("ss" and
 * the sharp s); PCRE2 does not.
 */
static int literal(struct translator *t, uint32_t cp)
{
    static const char *const folding[] = {"ss", "ff", "fi", "fl", "st"};
    if (t->caseless && cp >= 0x80) return refuse(t, "U+%04X inside (?i)", cp);
    for (size_t i = 0; t->caseless && i < sizeof(folding) / sizeof(folding[0]); i++)
        if ((t->last_literal | 0x20) == (uint32_t)folding[i][0] &&
            (cp | 0x20) == (uint32_t)folding[i][1]) {
            return refuse(t, "\"%s\" inside (?i)", folding[i]);
        }
    begin_atom(t);
    tok_pattern_put_range(&t->out, cp, cp);
    t->last_literal = cp;
    return 0;
}

/* \b and \B by the reference's notion of a word. */
static void word_boundary(struct translator *t, bool negated)
{
    struct tok_char_set word;
    static const char *const parts[2][5] = {
        {"(?:(?<=", ")(?!", ")|(?<!", ")(?=", "))"},
        {"(?:(?<=", ")(?=", ")|(?<!", ")(?!", "))"},
    };
    tok_char_set_escape('w', &word);
    for (int i = 0; i < 5; i++) {
        buf_puts(&t->out, parts[negated][i]);
        if (i < 4) put_alone(t, &word);
    }
}

static int escape(struct translator *t)
{
    struct tok_char_set set;
    bool is_set;
    uint32_t cp = 0;
    if (t->p == t->end) return refuse(t, "a backslash at the end");
    unsigned char c = *t->p++;
    int rc = parse_set(t, c, &set, &is_set);
    if (rc) return rc;
    if (is_set) {
        begin_atom(t);
        put_alone(t, &set);
        return 0;
    }
    if (c == 'b' || c == 'B' || c == 'A' || c == 'z' || c == 'Z') {
        if ((c | 0x20) == 'b')
            word_boundary(t, c == 'B');
        else
            buf_add(&t->out, (const char *)t->p - 2, 2);
        t->has_atom = t->at_start = false;
        t->last_literal = 0;
        return 0;
    }
    rc = parse_char_escape(t, c, &cp);
    return rc ? rc : literal(t, cp);
}

/* One end of a range or a single character of a class; *ret_is_set when it was a set. */
static int class_atom(struct translator *t, uint32_t *ret, bool *ret_is_set)
{
    struct tok_char_set set;
    *ret_is_set = false;
    if (*t->p != '\\') {
        *ret = utf8_next(&t->p);
        return 0;
    }
    t->p++;
    if (t->p == t->end) return refuse(t, "a backslash at the end");
    unsigned char c = *t->p++;
    int rc = parse_set(t, c, &set, ret_is_set);
    if (rc) return rc;
    if (*ret_is_set) return put_class_item(t, &set);
    if (c == 'b') {
        *ret = '\b';
        return 0;
    }
    return parse_char_escape(t, c, ret);
}

static int class_item(struct translator *t)
{
    uint32_t first = 0, last;
    bool is_set;
    if (*t->p == '[')
        return refuse(
            t, "%s", t->p + 1 < t->end && t->p[1] == ':' ? "[: :] inside [...]" : "[ inside [...]");
    if (*t->p == '&' && t->p + 1 < t->end && t->p[1] == '&')
        return refuse(t, "class intersection &&");
    int rc = class_atom(t, &first, &is_set);
    if (rc || is_set) return rc;
    last = first;
    if (t->end - t->p >= 2 && t->p[0] == '-' && t->p[1] != ']') {
        t->p++;
        rc = class_atom(t, &last, &is_set);
        if (rc) return rc;
        if (is_set || last < first)
            return refuse(t, "a range of [...] whose ends are out of order");
    }
    if (t->caseless && last >= 0x80) return refuse(t, "U+%04X inside (?i)", last);
    tok_pattern_put_range(&t->out, first, last);
    return 0;
}

static int class_expression(struct translator *t)
{
    begin_atom(t);
    buf_puts(&t->out, "[");
    t->class_negated = t->p < t->end && *t->p == '^';
    if (t->class_negated) {
        buf_puts(&t->out, "^");
        t->p++;
    }
    if (t->p < t->end && *t->p == ']') return refuse(t, "] at the front of [...]");
    while (t->p < t->end && *t->p != ']') {
        int rc = class_item(t);
        if (rc) return rc;
    }
    if (t->p == t->end) return refuse(t, "[ without ]");
    t->p++;
    buf_puts(&t->out, "]");
    return 0;
}

/* ---- groups -------------------------------------------------------------------------------- */

static int push_group(struct translator *t, const char *open, bool look)
{
    if (t->depth == TOK_PATTERN_MAX_DEPTH)
        return refuse(t, "nesting deeper than %d", TOK_PATTERN_MAX_DEPTH);
    t->groups[t->depth++] = (struct group){t->out.len, t->caseless, look};
    buf_puts(&t->out, open);
    t->has_atom = false;
    t->at_start = true;
    t->last_literal = 0;
    return 0;
}

/* (?i:...), (?m-i:...), (?i): options for a group, or for the rest of the enclosing one. */
static int option_group(struct translator *t)
{
    bool on = true, caseless = t->caseless;
    char open[16] = "(?";
    for (; t->p < t->end && *t->p != ':' && *t->p != ')'; t->p++) {
        char letter[2] = {*t->p == 'm' ? 's' : (char)*t->p,
                          0}; /* Ruby's m lets the dot match all */
        if (!strchr("im-", *t->p) || !*t->p || strlen(open) > 8)
            return refuse(t, "the group (?%.8s", (const char *)t->p);
        if (*t->p == '-') on = false;
        if (*t->p == 'i') caseless = on;
        strncat(open, letter, sizeof(open) - strlen(open) - 1);
    }
    if (t->p == t->end) return refuse(t, "( without )");
    bool whole = *t->p++ == ')';
    if (whole && !t->at_start) return refuse(t, "an option in the middle, such as a(?i)b,");
    if (whole) {
        buf_puts(&t->out, open);
        buf_puts(&t->out, ")");
        t->caseless = caseless;
        return 0;
    }
    strncat(open, ":", sizeof(open) - strlen(open) - 1);
    int rc = push_group(t, open, false);
    t->caseless = caseless;
    return rc;
}

static int open_group(struct translator *t)
{
    static const struct {
        const char *open;
        bool look;
    } known[] = {{"?:", false}, {"?=", true},  {"?!", true},
                 {"?<=", true}, {"?<!", true}, {"?>", false}};
    size_t left = (size_t)(t->end - t->p);
    char open[8];
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        size_t n = strlen(known[i].open);
        if (left < n || memcmp(t->p, known[i].open, n) != 0) continue;
        t->p += n;
        snprintf(open, sizeof(open), "(%s", known[i].open);
        return push_group(t, open, known[i].look);
    }
    if (left > 1 && t->p[0] == '?' && strchr("im-", t->p[1]) && t->p[1]) {
        t->p++;
        return option_group(t);
    }
    if (left && (t->p[0] == '?' || t->p[0] == '*'))
        return refuse(t, "the group (%.*s", (int)(left < 6 ? left : 6), (const char *)t->p);
    return push_group(t, "(?:", false); /* captures are not used here */
}

static int close_group(struct translator *t)
{
    if (t->depth == 0) return refuse(t, ") without (");
    const struct group *g = &t->groups[--t->depth];
    buf_puts(&t->out, ")");
    t->atom = g->atom;
    t->has_atom = !g->look;
    t->caseless = g->caseless;
    t->at_start = false;
    t->last_literal = 0;
    return 0;
}

/* ---- quantifiers --------------------------------------------------------------------------- */

struct repeat {
    bool interval;
    bool exact; /* {n} */
    char text[32];
};

static bool parse_count(const unsigned char **p, const unsigned char *end, unsigned *ret)
{
    const unsigned char *begin = *p;
    unsigned v = 0;
    for (; *p < end && **p >= '0' && **p <= '9' && v < 100000; ++*p)
        v = v * 10 + (**p - '0');
    *ret = v;
    return *p > begin;
}

/* {n}, {n,}, {n,m}, {,m} after the brace at t->p[-1]; false: the brace is a plain character. */
static bool parse_interval(struct translator *t, struct repeat *ret)
{
    const unsigned char *p = t->p;
    unsigned low, high = 0;
    bool has_low = parse_count(&p, t->end, &low), comma = p < t->end && *p == ',', has_high = false;
    if (comma) {
        p++;
        has_high = parse_count(&p, t->end, &high);
    }
    if ((!has_low && !has_high) || p == t->end || *p != '}') return false;
    t->p = p + 1;
    *ret = (struct repeat){.interval = true, .exact = !comma};
    if (!comma)
        snprintf(ret->text, sizeof(ret->text), "{%u}", low);
    else if (!has_high)
        snprintf(ret->text, sizeof(ret->text), "{%u,}", low);
    else
        snprintf(ret->text, sizeof(ret->text), "{%u,%u}", has_low ? low : 0, high);
    return true;
}

/* "(?:" before the last atom. */
static void wrap_atom(struct translator *t)
{
    buf_puts(&t->out, "(?:");
    if (t->out.failed) return;
    memmove(t->out.data + t->atom + 3, t->out.data + t->atom, t->out.len - 3 - t->atom);
    memcpy(t->out.data + t->atom, "(?:", 3);
}

/* Writes a quantifier with its suffix. In Ruby {n,m}+ repeats the interval, elsewhere + is
 * possessive. */
static int repeat(struct translator *t, const struct repeat *r)
{
    char suffix = t->p < t->end && (*t->p == '?' || *t->p == '+') ? (char)*t->p : 0;
    if (!t->has_atom) return refuse(t, "a quantifier with nothing to repeat");
    if (suffix) t->p++;
    if (r->exact && suffix == '?') return refuse(t, "{n}?");
    if (r->interval && suffix == '+') {
        wrap_atom(t);
        buf_puts(&t->out, r->text);
        buf_puts(&t->out, ")+");
    } else {
        buf_puts(&t->out, r->text);
        buf_add(&t->out, &suffix, suffix != 0);
    }
    if (t->p < t->end && (*t->p == '*' || *t->p == '+' || *t->p == '?'))
        return refuse(t, "a quantifier behind a quantifier");
    buf_puts(&t->out, CALLOUT);
    t->has_atom = false;
    t->last_literal = 0;
    return 0;
}

/* ---- the pass ------------------------------------------------------------------------------ */

static int quantifier(struct translator *t, unsigned char c)
{
    struct repeat r = {.interval = false};
    if (c == '{' && !parse_interval(t, &r)) return literal(t, '{');
    if (c != '{') r.text[0] = (char)c;
    return repeat(t, &r);
}

static int step(struct translator *t)
{
    unsigned char c = *t->p;
    if (c >= 0x80) return literal(t, utf8_next(&t->p));
    t->p++;
    switch (c) {
    case '\\': return escape(t);
    case '[': return class_expression(t);
    case '(': return open_group(t);
    case ')': return close_group(t);
    case '*':
    case '+':
    case '?':
    case '{': return quantifier(t, c);
    case '.':
        begin_atom(t);
        buf_puts(&t->out, ".");
        return 0;
    case '|':
    case '^':
    case '$':
        buf_add(&t->out, (const char *)&c, 1);
        t->has_atom = t->at_start = false;
        t->last_literal = 0;
        return 0;
    default: return literal(t, c);
    }
}

int tok_pattern_translate(const struct tok_uni *uni, const char *pattern, size_t len, char **ret,
                          size_t *ret_len, char *err, size_t errlen)
{
    struct translator t = {.uni = uni,
                           .p = (const unsigned char *)pattern,
                           .out = {.max = MAX_OUT_BYTES},
                           .err = err,
                           .errlen = errlen,
                           .at_start = true};
    int rc = 0;
    t.end = t.p + len;
    if (len > TOK_PATTERN_MAX_BYTES)
        rc = refuse(&t, "a pattern of more than %d bytes", TOK_PATTERN_MAX_BYTES);
    while (!rc && t.p < t.end)
        rc = step(&t);
    if (!rc && t.depth > 0) rc = refuse(&t, "( without )");
    buf_add(&t.out, "", 0);
    if (!rc && t.out.failed) rc = TOK_ENOMEM;
    if (rc) {
        buf_finish(&t.out);
        return rc;
    }
    *ret = t.out.data;
    *ret_len = t.out.len;
    return 0;
}
