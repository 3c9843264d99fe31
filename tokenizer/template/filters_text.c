/* SPDX-License-Identifier: MIT */
/*
 * Filters on text.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "tokenizer/template/char_class.h"
#include "tokenizer/template/dict.h"
#include "tokenizer/template/iterate.h"
#include "tokenizer/template/library.h"
#include "tokenizer/template/number.h"
#include "tokenizer/template/print.h"
#include "tokenizer/template/text_ops.h"
#include "tokenizer/template/undefined.h"

static const struct jinja_str blank = JINJA_TEXT(" ");

/* The length of a value that is sliced like text; anything else is an error. */
static const struct jinja_str *text_of(struct jinja_run *r, struct jinja_value v)
{
    if (jinja_is(v, JINJA_UNDEFINED)) jinja_fail_undefined(r, v);
    return jinja_need_str(r, v, "filtered value");
}

/* ---- case, trim ---------------------------------------------------------------------------- */

JINJA_FILTER_IS(f_upper, jinja_str_case(r, jinja_to_str(r, v), JINJA_UPPER))
JINJA_FILTER_IS(f_lower, jinja_str_case(r, jinja_to_str(r, v), JINJA_LOWER))
JINJA_FILTER_IS(f_capitalize, jinja_str_case(r, jinja_to_str(r, v), JINJA_CAPITALIZE))
JINJA_FILTER_IS(f_string, jinja_from_str(jinja_to_str(r, v)))

static bool splits_words(int32_t cp)
{
    return cp == '-' || cp == '(' || cp == '{' || cp == '[' || cp == '<' || jinja_cp_space(cp);
}

/* Upper case after what splits words, lower case elsewhere; not str.title(). */
JINJA_FILTER_FN(f_title)
{
    const struct jinja_str *s = jinja_to_str(r, v);
    struct jinja_sb sb = {.r = r};
    jinja_spend_chars(r, s->len);
    for (size_t at = 0; at < s->len;) {
        jinja_spend(r, 4);
        size_t begin = at, first = at;
        bool splits = splits_words(jinja_str_next(s, &first));
        for (at = first; at < s->len;) {
            size_t next = at;
            if (splits_words(jinja_str_next(s, &next)) != splits) break;
            at = next;
        }
        const struct jinja_str *head = jinja_str_part(r, s, begin, first - begin);
        const struct jinja_str *tail = jinja_str_part(r, s, first, at - first);
        jinja_sb_add(&sb, jinja_str_case(r, head, JINJA_UPPER).u.str);
        jinja_sb_add(&sb, jinja_str_case(r, tail, JINJA_LOWER).u.str);
    }
    return jinja_sb_value(&sb);
}

JINJA_FILTER_FN(f_trim)
{
    const struct jinja_str *chars = jinja_maybe_str(r, a[0], "trim argument");
    return jinja_str_strip(r, jinja_to_str(r, v), chars, JINJA_BOTH);
}

JINJA_FILTER_FN(f_center)
{
    int64_t width = jinja_to_index(r, jinja_or(a[0], jinja_int(80)));
    return jinja_str_pad(r, jinja_to_str(r, v), width, &blank, JINJA_BOTH);
}

/* Works on str(): Markup loses its mark, as in the reference without autoescape. */
JINJA_FILTER_FN(f_replace)
{
    const struct jinja_str *old = jinja_to_str(r, a[0]), *new_ = jinja_to_str(r, a[1]);
    bool all = jinja_is(a[2], JINJA_MISSING) || jinja_is(a[2], JINJA_NONE);
    int64_t count = all ? -1 : jinja_to_index(r, a[2]);
    const struct jinja_str *s = jinja_str_as(r, jinja_to_str(r, v), false);
    return jinja_str_replace(r, s, old, new_, count);
}

/* The % operator with its values as arguments. */
JINJA_FILTER_FN(f_format)
{
    if (args->n_pos && args->n_kw)
        jinja_raise(r, "can't handle positional and keyword arguments at the same time");
    struct jinja_dict *d = jinja_dict_new(r);
    jinja_dict_add_kw(r, d, args);
    struct jinja_value values = args->n_kw
                                    ? jinja_from_dict(d)
                                    : jinja_from_tuple(jinja_list_of(r, args->pos, args->n_pos));
    return jinja_percent(r, jinja_to_str(r, v), values);
}

/* ---- join ---------------------------------------------------------------------------------- */

/* The method wants strings and escapes them for a Markup separator; the filter takes anything. */
struct jinja_value jinja_str_join(struct jinja_run *r, const struct jinja_str *sep,
                                  struct jinja_value items, bool strict)
{
    struct jinja_sb sb = {.r = r};
    struct jinja_iter it;
    struct jinja_value v;
    jinja_iter_start(r, &it, items);
    for (size_t i = 0; jinja_iter_next(r, &it, &v); i++) {
        if (strict && !sep->markup && !jinja_is(v, JINJA_STR))
            jinja_raise(r, "sequence item %zu: expected str instance, %s found", i,
                        jinja_type_name(v));
        const struct jinja_str *s = jinja_to_str(r, v);
        if (strict && sep->markup) s = jinja_str_escape(r, s);
        if (i) jinja_sb_add(&sb, sep);
        jinja_spend_bytes(r, s->len);
        jinja_sb_add(&sb, s);
    }
    struct jinja_str *joined = jinja_sb_str(&sb);
    joined->markup = strict && sep->markup;
    return jinja_from_str(joined);
}

/* ---- HTML ---------------------------------------------------------------------------------- */

JINJA_FILTER_IS(f_escape, jinja_from_str(jinja_str_escape(r, jinja_to_str(r, v))))
JINJA_FILTER_IS(f_forceescape,
                jinja_from_str(jinja_str_escape(r, jinja_str_as(r, jinja_to_str(r, v), false))))
JINJA_FILTER_IS(f_safe, jinja_from_str(jinja_str_as(r, jinja_to_str(r, v), true)))

static bool is_bad_key_char(char c)
{
    return strchr(" \t\n\r\f\v/>=", c) && c;
}

/* name="value" pairs; none and undefined are left out. */
JINJA_FILTER_FN(f_xmlattr)
{
    struct jinja_sb sb = {.r = r};
    if (!jinja_is(v, JINJA_DICT)) jinja_raise(r, "xmlattr needs a mapping");
    bool autospace = jinja_truth(jinja_or(a[0], jinja_bool(true)));
    for (size_t i = 0; i < v.u.dict->n; i++) {
        const struct jinja_pair *p = &v.u.dict->pairs[i];
        if (jinja_is(p->value, JINJA_NONE) || jinja_is(p->value, JINJA_UNDEFINED)) continue;
        const struct jinja_str *key = jinja_need_str(r, p->key, "attribute name");
        for (size_t k = 0; k < key->len; k++)
            if (is_bad_key_char(key->s[k])) jinja_raise(r, "Invalid character in attribute name");
        if (sb.len || autospace) jinja_sb_add_lit(&sb, " ");
        jinja_sb_add(&sb, jinja_str_escape(r, key));
        jinja_sb_add_lit(&sb, "=\"");
        jinja_sb_add(&sb, jinja_str_escape(r, jinja_to_str(r, p->value)));
        jinja_sb_add_lit(&sb, "\"");
    }
    return jinja_sb_value(&sb);
}

/* ---- lines and lengths --------------------------------------------------------------------- */

/* Every line but the first and the empty ones, unless asked for. */
JINJA_FILTER_FN(f_indent)
{
    const struct jinja_str *s = text_of(r, v), newline = JINJA_TEXT("\n");
    struct jinja_sb sb = {.r = r}, in = {.r = r};
    if (jinja_is(a[0], JINJA_STR))
        jinja_sb_add(&in, a[0].u.str);
    else
        jinja_sb_repeat(&in, &blank, jinja_to_index(r, jinja_or(a[0], jinja_int(4))));
    const struct jinja_str *indent = jinja_sb_str(&in);
    bool first = jinja_truth(a[1]), empty = jinja_truth(a[2]);
    struct jinja_list *lines =
        jinja_str_lines(r, jinja_str_concat(r, jinja_str_as(r, s, false), &newline), false);
    for (size_t i = 0; i < lines->n; i++) {
        const struct jinja_str *line = lines->items[i].u.str;
        if (i) jinja_sb_add(&sb, &newline);
        if (i ? empty || line->len > 0 : first) {
            jinja_spend_bytes(r, indent->len);
            jinja_sb_add(&sb, indent);
        }
        jinja_sb_add(&sb, line);
    }
    return jinja_sb_value_like(&sb, s);
}

/* Longer by the leeway is not long enough to be cut; words stay whole unless killwords. */
JINJA_FILTER_FN(f_truncate)
{
    int64_t length = jinja_to_bound(r, jinja_or(a[0], jinja_int(255)));
    const struct jinja_str *end = jinja_need_str(r, jinja_or(a[2], jinja_lit(r, "...")), "end");
    bool no_leeway = jinja_is(a[3], JINJA_MISSING) || jinja_is(a[3], JINJA_NONE);
    int64_t leeway = no_leeway ? 5 : jinja_to_bound(r, a[3]);
    int64_t n_end = (int64_t)jinja_str_chars(r, end);
    if (length < n_end)
        jinja_raise(r, "expected length >= %lld, got %lld", (long long)n_end, (long long)length);
    if (leeway < 0) jinja_raise(r, "expected leeway >= 0, got %lld", (long long)leeway);
    int64_t n;
    if (__builtin_add_overflow(length, leeway, &n) || jinja_length(r, v) <= n) return v;
    const struct jinja_str *s = text_of(r, v);
    const struct jinja_str *cut =
        jinja_str_part(r, s, 0, jinja_str_char_at(r, s, (size_t)(length - n_end)));
    if (!jinja_truth(a[1])) {
        size_t space = jinja_str_rfind(r, cut, &blank, cut->len);
        if (space != SIZE_MAX) cut = jinja_str_part(r, cut, 0, space);
    }
    return jinja_from_str(jinja_str_concat(r, cut, end));
}

/* Runs of letters, digits and underscores. */
JINJA_FILTER_FN(f_wordcount)
{
    const struct jinja_str *s = jinja_to_str(r, v);
    int64_t n = 0;
    bool in_word = false;
    jinja_spend_chars(r, s->len);
    for (size_t at = 0; at < s->len;) {
        bool word = jinja_cp_word(jinja_str_next(s, &at));
        n += word && !in_word;
        in_word = word;
    }
    return jinja_int(n);
}

/* ---- word wrap ----------------------------------------------------------------------------- */

/* A paragraph being wrapped, after Python's textwrap. */
struct wrap {
    struct jinja_run *r;
    const struct jinja_str *s;
    size_t width;
    bool break_long, break_hyphens;
    struct jinja_list *chunks;
    struct jinja_list *lines;
};

/* textwrap's white space is ASCII's; \w and letters are Unicode's. */
static bool is_wrap_space(int32_t cp)
{
    return cp == ' ' || (cp >= '\t' && cp <= '\r');
}

static bool is_wrap_letter(int32_t cp)
{
    return jinja_cp_word(cp) && !jinja_cp_digit(cp);
}

static bool is_wrap_punct(int32_t cp)
{
    return jinja_cp_word(cp) || (cp > 0 && cp < 0x80 && strchr("!\"'&.,?", (char)cp));
}

static int32_t cp_at(const struct wrap *w, size_t at)
{
    return at < w->s->len ? jinja_str_next(w->s, &at) : -1;
}

static int32_t cp_before(const struct wrap *w, size_t at, size_t *ret_at)
{
    int32_t cp = -1;
    *ret_at = at ? jinja_str_prev(w->s, at, &cp) : 0;
    return cp;
}

/* A run of two or more dashes at `at` before a word: its end, or 0. */
static size_t dash_end(const struct wrap *w, size_t at)
{
    size_t end = at;
    while (end < w->s->len && w->s->s[end] == '-')
        end++;
    return end - at >= 2 && jinja_cp_word(cp_at(w, end)) ? end : 0;
}

/* True if a word may be broken after the hyphen at `at`: letters on both sides. */
static bool is_hyphen_break(const struct wrap *w, size_t at)
{
    size_t one, two, next = at + 1;
    int32_t before = cp_before(w, at, &one), further = cp_before(w, one, &two);
    if (w->s->s[at] != '-' || !is_wrap_letter(before)) return false;
    size_t three;
    bool letters =
        is_wrap_letter(further) || (further == '-' && is_wrap_letter(cp_before(w, two, &three)));
    if (!letters || next >= w->s->len || !is_wrap_letter(jinja_str_next(w->s, &next))) return false;
    if (cp_at(w, next) == '-') next++;
    return is_wrap_letter(cp_at(w, next));
}

/* The end of the chunk at `at`: white space, dashes, or (part of) a word. */
static size_t chunk_end(const struct wrap *w, size_t at)
{
    size_t ignored, end = at;
    if (is_wrap_space(cp_at(w, at))) {
        while (end < w->s->len && is_wrap_space(cp_at(w, end)))
            end++;
        return end;
    }
    if (w->break_hyphens && is_wrap_punct(cp_before(w, at, &ignored)) && dash_end(w, at))
        return dash_end(w, at);
    while (end < w->s->len && !is_wrap_space(cp_at(w, end))) {
        if (w->break_hyphens && end > at && is_hyphen_break(w, end)) return end + 1;
        if (w->break_hyphens && end > at && is_wrap_punct(cp_before(w, end, &ignored)) &&
            dash_end(w, end))
            return end;
        jinja_str_next(w->s, &end);
    }
    return end;
}

static size_t chunk_chars(const struct wrap *w, size_t i)
{
    return jinja_str_chars(w->r, w->chunks->items[i].u.str);
}

static bool is_blank(const struct jinja_str *s)
{
    for (size_t at = 0; at < s->len;)
        if (!jinja_cp_space(jinja_str_next(s, &at))) return false;
    return true;
}

/* Cuts the chunk at i so that its head fits into `room`, after a hyphen if there is one. */
static const struct jinja_str *break_chunk(struct wrap *w, size_t i, size_t room)
{
    const struct jinja_str *s = w->chunks->items[i].u.str;
    size_t end = jinja_str_char_at(w->r, s, room), at = end;
    bool only_dashes = true;
    while (at > 0 && s->s[at - 1] != '-')
        at--;
    for (size_t k = 0; k + 1 < at; k++)
        only_dashes = only_dashes && s->s[k] == '-';
    if (w->break_hyphens && at > 1 && !only_dashes) end = at;
    w->chunks->items[i] = jinja_str_part_value(w->r, s, end, s->len - end);
    return jinja_str_part(w->r, s, 0, end);
}

/* One line from chunk i on; returns the chunk to go on with. */
static size_t wrap_line(struct wrap *w, size_t i)
{
    struct jinja_list *line = jinja_list_new(w->r, 8);
    const struct jinja_str *none = jinja_lit(w->r, "").u.str;
    size_t used = 0, n = w->chunks->n;
    if (w->lines->n && is_blank(w->chunks->items[i].u.str)) i++;
    for (; i < n && used + chunk_chars(w, i) <= w->width; i++) {
        used += chunk_chars(w, i);
        jinja_list_add(w->r, line, w->chunks->items[i]);
    }
    if (i < n && chunk_chars(w, i) > w->width) {
        if (w->break_long)
            jinja_list_add(w->r, line, jinja_from_str(break_chunk(w, i, w->width - used)));
        else if (line->n == 0)
            jinja_list_add(w->r, line, w->chunks->items[i++]);
    }
    if (line->n && is_blank(line->items[line->n - 1].u.str)) line->n--;
    if (line->n)
        jinja_list_add(w->r, w->lines, jinja_str_join(w->r, none, jinja_from_list(line), false));
    return i;
}

/* Chunks first, then lines filled with as many as fit. */
static void wrap_paragraph(struct wrap *w)
{
    w->chunks = jinja_list_new(w->r, 8);
    jinja_spend_chars(w->r, w->s->len);
    for (size_t at = 0; at < w->s->len;) {
        jinja_spend(w->r, 4);
        size_t end = chunk_end(w, at);
        jinja_list_add(w->r, w->chunks, jinja_str_part_value(w->r, w->s, at, end - at));
        at = end;
    }
    w->lines = jinja_list_new(w->r, 4);
    for (size_t i = 0; i < w->chunks->n;) {
        jinja_spend(w->r, 1);
        i = wrap_line(w, i);
    }
}

/* Lines that are there stay; each is wrapped by itself. */
JINJA_FILTER_FN(f_wordwrap)
{
    struct wrap w = {.r = r};
    int64_t width = jinja_to_index(r, jinja_or(a[0], jinja_int(79)));
    const struct jinja_str *sep = jinja_maybe_str(r, a[2], "wrapstring");
    if (!sep) sep = jinja_lit(r, "\n").u.str;
    if (width <= 0) jinja_raise(r, "invalid width %lld (must be > 0)", (long long)width);
    w.width = (size_t)width;
    w.break_long = jinja_truth(jinja_or(a[1], jinja_bool(true)));
    w.break_hyphens = jinja_truth(jinja_or(a[3], jinja_bool(true)));
    struct jinja_list *paragraphs = jinja_str_lines(r, text_of(r, v), false);
    for (size_t i = 0; i < paragraphs->n; i++) {
        w.s = paragraphs->items[i].u.str;
        wrap_paragraph(&w);
        paragraphs->items[i] = jinja_str_join(r, sep, jinja_from_list(w.lines), false);
    }
    return jinja_str_join(r, sep, jinja_from_list(paragraphs), false);
}

/* ---- others -------------------------------------------------------------------------------- */

/* Percent signs for all but letters, digits and _.-~ and, outside of queries, the slash. */
static void add_quoted(struct jinja_sb *sb, const struct jinja_str *s, bool query)
{
    static const char hex[] = "0123456789ABCDEF";
    jinja_spend_chars(sb->r, s->len);
    for (size_t i = 0; i < s->len; i++) {
        unsigned char c = (unsigned char)s->s[i];
        uint8_t origin = jinja_str_origin_at(s, i);
        char escaped[3] = {'%', hex[c >> 4], hex[c & 15]};
        bool plain =
            c < 0x80 && (isalnum(c) || strchr("_.-~", (char)c) || (c == '/' && !query)) && c;
        if (plain)
            jinja_sb_add_part(sb, s, i, 1);
        else if (c == ' ' && query)
            jinja_sb_add_bytes(sb, "+", 1, origin);
        else
            jinja_sb_add_bytes(sb, escaped, 3, origin);
    }
}

JINJA_FILTER_FN(f_urlencode)
{
    struct jinja_sb sb = {.r = r};
    struct jinja_iter it;
    struct jinja_value pair;
    if (jinja_is(v, JINJA_STR) || !jinja_is_iterable(v)) {
        add_quoted(&sb, jinja_to_str(r, v), false);
        return jinja_sb_value(&sb);
    }
    const struct jinja_view items = {.kind = JINJA_ITEMS, .dict = v};
    if (jinja_is(v, JINJA_DICT)) v = (struct jinja_value){.type = JINJA_VIEW, .u.view = &items};
    jinja_iter_start(r, &it, v);
    while (jinja_iter_next(r, &it, &pair)) {
        const struct jinja_list *l = jinja_to_list(r, pair);
        if (l->n != 2) jinja_raise(r, "urlencode needs pairs, not %zu values", l->n);
        if (sb.len) jinja_sb_add_lit(&sb, "&");
        add_quoted(&sb, jinja_to_str(r, l->items[0]), true);
        jinja_sb_add_lit(&sb, "=");
        add_quoted(&sb, jinja_to_str(r, l->items[1]), true);
    }
    return jinja_sb_value(&sb);
}

static double size_of(struct jinja_run *r, struct jinja_value v)
{
    double d;
    if (jinja_is(v, JINJA_UNDEFINED)) jinja_fail_undefined(r, v);
    if (jinja_is_number(v)) return jinja_to_double(r, v);
    if (jinja_is(v, JINJA_STR) && jinja_float_parse(r, v.u.str->s, v.u.str->len, &d)) return d;
    jinja_raise(r, "filesizeformat needs a number");
}

/* kB to YB, or KiB to YiB. */
JINJA_FILTER_FN(f_filesizeformat)
{
    static const char units[] = "kMGTPEZY";
    bool binary = jinja_truth(a[0]);
    double base = binary ? 1024 : 1000, bytes = size_of(r, v), unit = base;
    char buf[64];
    if (bytes == 1) return jinja_lit(r, "1 Byte");
    if (bytes < base) {
        const char *digits = jinja_int_digits(r, jinja_int_from_double(r, bytes), 10);
        snprintf(buf, sizeof(buf), "%.40s Bytes", digits);
    } else {
        size_t i = 0;
        while (i + 1 < sizeof(units) - 1 && bytes >= unit * base) {
            unit *= base;
            i++;
        }
        char prefix = binary ? (char)toupper((unsigned char)units[i]) : units[i];
        int n = snprintf(buf, sizeof(buf), "%.1f %c%s", base * bytes / (unit * base), prefix,
                         binary ? "iB" : "B");
        jinja_spend_digits(r, (size_t)n);
    }
    return jinja_from_str(
        jinja_str_new(r, buf, strlen(buf), v.input ? JINJA_INPUT : JINJA_TRUSTED));
}

const struct jinja_filter jinja_text_filters[] = {
    {"trim", f_trim, {"chars", 0}},
    {"string", f_string, {"", 0}},
    {"safe", f_safe, {"", 0}},
    {"upper", f_upper, {"", 0}},
    {"lower", f_lower, {"", 0}},
    {"replace", f_replace, {"old new count", 2}},
    {"indent", f_indent, {"width first blank", 0}},
    {"capitalize", f_capitalize, {"", 0}},
    {"title", f_title, {"", 0}},
    {"format", f_format, {NULL, 0}},
    {"e", f_escape, {"", 0}},
    {"escape", f_escape, {"", 0}},
    {"forceescape", f_forceescape, {"", 0}},
    {"center", f_center, {"width", 0}},
    {"truncate", f_truncate, {"length killwords end leeway", 0}},
    {"wordcount", f_wordcount, {"", 0}},
    {"wordwrap", f_wordwrap, {"width break_long_words wrapstring break_on_hyphens", 0}},
    {"urlencode", f_urlencode, {"", 0}},
    {"filesizeformat", f_filesizeformat, {"binary", 0}},
    {"xmlattr", f_xmlattr, {"autospace", 0}},
    {NULL, NULL, {NULL, 0}},
};
