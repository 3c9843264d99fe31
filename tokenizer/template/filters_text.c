/* SPDX-License-Identifier: MIT */
/*
 * Filters on text.
 */

#include "tokenizer/template/library.h"
#include "tokenizer/template/print.h"
#include "tokenizer/template/text_ops.h"

static const struct jinja_str blank = JINJA_TEXT(" ");

/* The length of a value that is sliced like text; anything else is an error. */
static const struct jinja_str *text_of(struct jinja_run *r, struct jinja_value v)
{
    if (jinja_is(v, JINJA_UNDEFINED)) jinja_fail_undefined(r, v);
    return jinja_need_str(r, v, "filtered value");
}

/* ---- case, trim ---------------------------------------------------------------------------- */

JINJA_IS(f_upper, jinja_str_case(r, jinja_to_str(r, v), JINJA_UPPER))
JINJA_IS(f_lower, jinja_str_case(r, jinja_to_str(r, v), JINJA_LOWER))
JINJA_IS(f_capitalize, jinja_str_case(r, jinja_to_str(r, v), JINJA_CAPITALIZE))
JINJA_IS(f_string, jinja_from_str(jinja_to_str(r, v)))

JINJA_FN(f_trim)
{
    const struct jinja_str *chars = jinja_maybe_str(r, a[0], "trim argument");
    return jinja_str_strip(r, jinja_to_str(r, v), chars, JINJA_BOTH);
}

/* Works on str(): Markup loses its mark, as in the reference without autoescape. */
JINJA_FN(f_replace)
{
    const struct jinja_str *old = jinja_to_str(r, a[0]), *new_ = jinja_to_str(r, a[1]);
    bool all = jinja_is(a[2], JINJA_MISSING) || jinja_is(a[2], JINJA_NONE);
    int64_t count = all ? -1 : jinja_to_index(r, a[2]);
    const struct jinja_str *s = jinja_str_as(r, jinja_to_str(r, v), false);
    return jinja_str_replace(r, s, old, new_, count);
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

/* ---- Markup ---------------------------------------------------------------------------------- */

JINJA_IS(f_safe, jinja_from_str(jinja_str_as(r, jinja_to_str(r, v), true)))

/* ---- lines ---------------------------------------------------------------------------------- */

/* Every line but the first and the empty ones, unless asked for. */
JINJA_FN(f_indent)
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

const struct jinja_function jinja_text_filters[] = {
    {"trim", f_trim, {"chars", 0}},
    {"string", f_string, {"", 0}},
    {"safe", f_safe, {"", 0}},
    {"upper", f_upper, {"", 0}},
    {"lower", f_lower, {"", 0}},
    {"replace", f_replace, {"old new count", 2}},
    {"indent", f_indent, {"width first blank", 0}},
    {"capitalize", f_capitalize, {"", 0}},
    {NULL, NULL, {NULL, 0}},
};
