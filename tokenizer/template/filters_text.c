/* SPDX-License-Identifier: MIT */
/*
 * Filters on text.
 */
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
    {"truncate", f_truncate, {"length killwords end leeway", 0}},
    {"wordcount", f_wordcount, {"", 0}},
    {NULL, NULL, {NULL, 0}},
};
