/* SPDX-License-Identifier: MIT */
/*
 * GBNF, as llama.cpp's grammars/README.md defines it: rules "name ::= alternatives", one per line;
 * a line goes on after "::=" and "|", before "|", and inside parentheses.
 *
 * Rules that do not refer to themselves are written into those that use them where that stays
 * small, so that a regular part becomes one automaton.
 */
#include <string.h>

#include "tokenizer/grammar/build.h"
#include "tokenizer/grammar/charset.h"
#include "tokenizer/grammar/expr.h"
#include "tokenizer/grammar/front/gbnf_rules.h"
#include "tokenizer/grammar/rules.h"
#include "tokenizer/grammar/front/source.h"

enum { MAX_BYTES = 128 * 1024, MAX_GROUPS = 100 };

struct parser {
    struct gram_build *b;
    struct gram_source in;
    size_t counted; /* newlines before it have been counted in `line` */
    uint32_t line;
    int depth;
    struct gram_gbnf *out;
};

static struct gram_ex *read_alternatives(struct parser *p, bool nested);

/* The line in hand, from 1; what has been counted once is not counted again. */
static uint32_t line_of(struct parser *p)
{
    for (; p->counted < p->in.pos; p->counted++)
        p->line += p->in.text[p->counted] == '\n';
    return p->line + 1;
}

_Noreturn static void refuse(struct parser *p, const char *problem)
{
    gram_fail(p->b, GRAM_EGRAMMAR, "grammar line %u: %s", line_of(p), problem);
}

_Noreturn static void refuse_notation(struct parser *p, const char *notation)
{
    gram_fail(p->b, GRAM_EUNSUPPORTED, "grammar line %u: %s.", line_of(p), notation);
}

/* ---- characters ---------------------------------------------------------------------------- */

/* Blanks and comments; newlines too, if the rule may go on after them. */
static void skip_spaces(struct parser *p, bool newlines)
{
    for (;;) {
        int c = gram_source_peek(&p->in);
        if (c == '#') {
            while (gram_source_peek(&p->in) >= 0 && gram_source_peek(&p->in) != '\n')
                p->in.pos++;
        } else if (c == ' ' || c == '\t' || ((c == '\r' || c == '\n') && newlines)) {
            p->in.pos++;
        } else {
            return;
        }
    }
}

/* A newline may come before '|': no rule can begin with that. */
static void skip_to_bar(struct parser *p, bool newlines)
{
    skip_spaces(p, newlines);
    size_t here = p->in.pos;
    skip_spaces(p, true);
    if (gram_source_peek(&p->in) != '|') p->in.pos = here;
}

static bool is_name_char(int c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

static size_t read_name(struct parser *p)
{
    size_t begin = p->in.pos;
    while (is_name_char(gram_source_peek(&p->in)))
        p->in.pos++;
    return p->in.pos - begin;
}

static uint32_t read_hex(struct parser *p, size_t n)
{
    uint32_t v;
    if (gram_source_hex(&p->in, n, &v) < n) refuse(p, "expected a hexadecimal digit.");
    if (v > GRAM_MAX_CODE_POINT) refuse(p, "the escape is above U+10FFFF.");
    return v;
}

/* One character of a literal or class. */
static uint32_t read_char(struct parser *p)
{
    static const char from[] = "tnr\\\"[]", to[] = "\t\n\r\\\"[]";
    if (gram_source_peek(&p->in) < 0) refuse(p, "the grammar ends inside a literal or class.");
    if (!gram_source_accept(&p->in, "\\")) return gram_source_char(&p->in);
    if (gram_source_accept(&p->in, "x")) return read_hex(p, 2);
    if (gram_source_accept(&p->in, "u")) return read_hex(p, 4);
    if (gram_source_accept(&p->in, "U")) return read_hex(p, 8);
    int c = gram_source_peek(&p->in);
    const char *known = c > 0 ? strchr(from, c) : NULL;
    if (!known) refuse(p, "unknown escape.");
    p->in.pos++;
    return (uint32_t)to[known - from];
}

/* ---- elements ------------------------------------------------------------------------------ */

static struct gram_ex *read_literal(struct parser *p)
{
    struct gram_ex_list chars = {0};
    while (!gram_source_accept(&p->in, "\"")) {
        if (gram_source_peek(&p->in) == '\n') refuse(p, "the literal does not end on its line.");
        gram_ex_push(p->b, &chars, gram_ex_char(p->b, read_char(p)));
    }
    return gram_ex_seq(p->b, &chars);
}

static struct gram_ex *read_class(struct parser *p)
{
    struct gram_charset *set = gram_temp(p->b, sizeof(*set));
    bool inverted = gram_source_accept(&p->in, "^");
    while (!gram_source_accept(&p->in, "]")) {
        if (gram_source_peek(&p->in) == '\n') refuse(p, "the class does not end on its line.");
        uint32_t lo = read_char(p), hi = lo;
        if (gram_source_peek(&p->in) == '-' && !gram_source_at(&p->in, "-]")) {
            p->in.pos++;
            hi = read_char(p);
        }
        if (lo > hi) refuse(p, "the range is out of order.");
        gram_charset_add(p->b, set, lo, hi);
    }
    gram_charset_finish(p->b, set);
    if (inverted) gram_charset_invert(p->b, set);
    return gram_ex_set(p->b, set);
}

static struct gram_ex *read_reference(struct parser *p)
{
    static const char *const macros[] = {"TagDispatch", "TokenTagDispatch", "Repeat", "Token",
                                         "ExcludeToken"};
    const char *name = p->in.text + p->in.pos;
    uint32_t line = line_of(p);
    size_t n = read_name(p);
    for (size_t i = 0; gram_source_peek(&p->in) == '(' && i < sizeof(macros) / sizeof(macros[0]);
         i++)
        if (strlen(macros[i]) == n && memcmp(macros[i], name, n) == 0)
            refuse_notation(p, "macros are not supported");
    return gram_ex_rule(p->b, gram_gbnf_rule(p->b, p->out, name, n, line));
}

static struct gram_ex *read_group(struct parser *p)
{
    if (gram_source_at(&p->in, "=") || gram_source_at(&p->in, "!"))
        refuse_notation(p, "look-ahead is not supported");
    if (++p->depth > MAX_GROUPS) refuse(p, "groups nest too deep.");
    skip_spaces(p, true);
    struct gram_ex *x = read_alternatives(p, true);
    p->depth--;
    if (!gram_source_accept(&p->in, ")")) refuse(p, "expected ')'.");
    return x;
}

static struct gram_ex *read_element(struct parser *p)
{
    if (gram_source_accept(&p->in, "\"")) return read_literal(p);
    if (gram_source_accept(&p->in, "[")) return read_class(p);
    if (gram_source_accept(&p->in, "(")) return read_group(p);
    if (gram_source_accept(&p->in, ".")) return gram_ex_any(p->b);
    if (gram_source_at(&p->in, "<") || gram_source_at(&p->in, "!<"))
        refuse_notation(p, "references to tokens are not supported");
    if (is_name_char(gram_source_peek(&p->in))) return read_reference(p);
    if (gram_source_peek(&p->in) >= 0 && strchr("*+?{", gram_source_peek(&p->in)))
        refuse(p, "there is nothing to repeat.");
    return NULL;
}

/* ---- repetition ---------------------------------------------------------------------------- */

static uint32_t read_count(struct parser *p)
{
    uint32_t v;
    bool some = gram_source_count(&p->in, &v);
    if (v > INT32_MAX) refuse(p, "the count is above 2147483647.");
    if (!some) refuse(p, "expected a count.");
    return v;
}

static void read_braces(struct parser *p, uint32_t *min, uint32_t *max, bool nested)
{
    skip_spaces(p, nested);
    *min = *max = read_count(p);
    skip_spaces(p, nested);
    if (gram_source_accept(&p->in, ",")) {
        skip_spaces(p, nested);
        *max = gram_source_peek(&p->in) == '}' ? GRAM_INFINITE : read_count(p);
        skip_spaces(p, nested);
    }
    if (!gram_source_accept(&p->in, "}")) refuse(p, "expected '}'.");
    if (*max < *min) refuse(p, "the repetition is out of order.");
}

static struct gram_ex *read_repeated(struct parser *p, struct gram_ex *x, bool nested)
{
    uint32_t min, max;
    skip_spaces(p, nested);
    if (gram_source_accept(&p->in, "{"))
        read_braces(p, &min, &max, nested);
    else if (!gram_source_times(&p->in, &min, &max))
        return x;
    skip_spaces(p, nested);
    if (gram_source_peek(&p->in) >= 0 && strchr("*+?{", gram_source_peek(&p->in)))
        refuse(p, "two quantifiers in a row.");
    return gram_ex_rep(p->b, x, min, max);
}

/* ---- rules --------------------------------------------------------------------------------- */

static struct gram_ex *read_sequence(struct parser *p, bool nested)
{
    struct gram_ex_list list = {0};
    struct gram_ex *x;
    while ((x = read_element(p))) {
        gram_ex_push(p->b, &list, read_repeated(p, x, nested));
        skip_spaces(p, nested);
    }
    return gram_ex_seq(p->b, &list);
}

static struct gram_ex *read_alternatives(struct parser *p, bool nested)
{
    struct gram_ex_list list = {0};
    do {
        skip_spaces(p, list.n > 0 || nested);
        if (list.n > 0 && gram_source_peek(&p->in) < 0) refuse(p, "expected an alternative.");
        gram_ex_push(p->b, &list, read_sequence(p, nested));
        skip_to_bar(p, nested);
    } while (gram_source_accept(&p->in, "|"));
    return gram_ex_alt(p->b, &list);
}

/* name ::= alternatives, up to the end of the line. */
static void read_rule(struct parser *p)
{
    const char *name = p->in.text + p->in.pos;
    uint32_t line = line_of(p);
    size_t n = read_name(p);
    if (gram_source_at(&p->in, "%") ||
        (n && !gram_source_at(&p->in, "::=") && gram_source_at(&p->in, ":")))
        refuse_notation(p, "Lark's notation is not supported");
    if (n == 0) refuse(p, "expected the name of a rule.");
    skip_spaces(p, false);
    if (!gram_source_accept(&p->in, "::=")) refuse(p, "expected '::='.");
    skip_spaces(p, true);
    struct gram_ex *x = read_alternatives(p, false);
    skip_spaces(p, false);
    if (gram_source_peek(&p->in) >= 0 && gram_source_peek(&p->in) != '\n' &&
        gram_source_peek(&p->in) != '\r')
        refuse(p, "expected the end of the line.");
    gram_gbnf_define(p->b, p->out, name, n, line, x);
    skip_spaces(p, true);
}

uint32_t gram_gbnf_node(struct gram_build *b, const char *text, size_t len)
{
    struct parser p = {.b = b, .in = {.text = text, .len = len}};
    if (len > MAX_BYTES)
        gram_fail(b, GRAM_EGRAMMAR, "grammar: %zu bytes; at most %d.", len, MAX_BYTES);
    if (!utf8_valid(text, len)) gram_fail(b, GRAM_EGRAMMAR, "grammar: not valid UTF-8.");
    p.out = gram_temp(b, sizeof(*p.out));
    skip_spaces(&p, true);
    if (p.in.pos == len) gram_fail(b, GRAM_EGRAMMAR, "grammar: it is empty.");
    while (p.in.pos < len)
        read_rule(&p);
    return gram_gbnf_finish(b, p.out);
}
