/* SPDX-License-Identifier: MIT */
/*
 * The methods of str. Those that insert text escape it if the string is
 * Markup, as markupsafe does.
 */

#include "tokenizer/template/library.h"
#include "tokenizer/template/text_ops.h"

/* ---- arguments ----------------------------------------------------------------------------- */

static const struct jinja_str *need(struct jinja_run *r, struct jinja_value v)
{
    return jinja_need_str(r, v, "argument");
}

/* Text that goes into the result. */
static const struct jinja_str *inserted(struct jinja_run *r, struct jinja_value self,
                                        struct jinja_value v)
{
    const struct jinja_str *s = need(r, v);
    return self.u.str->markup ? jinja_str_escape(r, s) : s;
}

static int64_t count_or(struct jinja_run *r, struct jinja_value v, int64_t otherwise)
{
    return jinja_is(v, JINJA_MISSING) ? otherwise : jinja_to_index(r, v);
}

/* ---- case and strip ------------------------------------------------------------------------ */

JINJA_IS(str_upper, jinja_str_case(r, v.u.str, JINJA_UPPER))
JINJA_IS(str_lower, jinja_str_case(r, v.u.str, JINJA_LOWER))
JINJA_IS(str_title, jinja_str_case(r, v.u.str, JINJA_TITLE))
JINJA_IS(str_capitalize, jinja_str_case(r, v.u.str, JINJA_CAPITALIZE))

static struct jinja_value strip(struct jinja_run *r, struct jinja_value self,
                                const struct jinja_value *a, enum jinja_sides sides)
{
    return jinja_str_strip(r, self.u.str, jinja_maybe_str(r, a[0], "strip argument"), sides);
}

JINJA_IS(str_strip, strip(r, v, a, JINJA_BOTH))
JINJA_IS(str_lstrip, strip(r, v, a, JINJA_LEFT))
JINJA_IS(str_rstrip, strip(r, v, a, JINJA_RIGHT))

/* ---- split, join, replace ------------------------------------------------------------------ */

JINJA_FN(str_split)
{
    const struct jinja_str *sep = jinja_maybe_str(r, a[0], "separator");
    return jinja_from_list(jinja_str_split(r, v.u.str, sep, count_or(r, a[1], -1)));
}

JINJA_IS(str_splitlines, jinja_from_list(jinja_str_lines(r, v.u.str, jinja_truth(a[0]))))

JINJA_IS(str_join, jinja_str_join(r, v.u.str, a[0], true))

JINJA_IS(str_format, jinja_format(r, v.u.str, args))

JINJA_FN(str_replace)
{
    const struct jinja_str *old = need(r, a[0]);
    return jinja_str_replace(r, v.u.str, old, inserted(r, v, a[1]), count_or(r, a[2], -1));
}

/* ---- search -------------------------------------------------------------------------------- */

/* A tuple asks for any of its elements. */
static bool affix(struct jinja_run *r, const struct jinja_str *s, struct jinja_value v, bool at_end)
{
    if (jinja_is(v, JINJA_TUPLE)) {
        for (size_t i = 0; i < v.u.list->n; i++)
            if (affix(r, s, v.u.list->items[i], at_end)) return true;
        return false;
    }
    jinja_spend(r, 1);
    jinja_spend_bytes(r, need(r, v)->len);
    return at_end ? jinja_str_ends(s, need(r, v)) : jinja_str_starts(s, need(r, v));
}

/* All of a tuple's elements must be strings, also those not reached. */
static struct jinja_value has_affix(struct jinja_run *r, struct jinja_value self,
                                    const struct jinja_value *a, bool at_end)
{
    if (jinja_is(a[0], JINJA_TUPLE))
        for (size_t i = 0; i < a[0].u.list->n; i++)
            need(r, a[0].u.list->items[i]);
    return jinja_bool(affix(r, self.u.str, a[0], at_end));
}

JINJA_IS(str_startswith, has_affix(r, v, a, false))
JINJA_IS(str_endswith, has_affix(r, v, a, true))

const struct jinja_function jinja_str_methods[] = {
    {"split", str_split, {"sep maxsplit", 0}},
    {"strip", str_strip, {"/chars", 0}},
    {"lstrip", str_lstrip, {"/chars", 0}},
    {"rstrip", str_rstrip, {"/chars", 0}},
    {"startswith", str_startswith, {"/prefix", 1}},
    {"endswith", str_endswith, {"/suffix", 1}},
    {"replace", str_replace, {"/old new count", 2}},
    {"upper", str_upper, {"/", 0}},
    {"lower", str_lower, {"/", 0}},
    {"title", str_title, {"/", 0}},
    {"capitalize", str_capitalize, {"/", 0}},
    {"splitlines", str_splitlines, {"keepends", 0}},
    {"join", str_join, {"/iterable", 1}},
    {"format", str_format, {NULL, 0}},
    {NULL, NULL, {NULL, 0}},
};
