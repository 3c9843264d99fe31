/* SPDX-License-Identifier: MIT */
/*
 * The methods of str. Those that insert text escape it if the string is
 * Markup, as markupsafe does.
 */
#include <string.h>

#include "tokenizer/template/char_class.h"
#include "tokenizer/template/library.h"
#include "tokenizer/template/number.h"
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

static int64_t bound_or(struct jinja_run *r, struct jinja_value v, int64_t otherwise)
{
    if (jinja_is(v, JINJA_MISSING) || jinja_is(v, JINJA_NONE)) return otherwise;
    return jinja_to_bound(r, v);
}

static int64_t count_or(struct jinja_run *r, struct jinja_value v, int64_t otherwise)
{
    return jinja_is(v, JINJA_MISSING) ? otherwise : jinja_to_index(r, v);
}

/* Bytes [begin, end) for the character positions in a[1], a[2]; false where the span is empty of
 * any. */
static bool byte_span(struct jinja_run *r, const struct jinja_str *s, const struct jinja_value *a,
                      size_t *ret_begin, size_t *ret_end)
{
    int64_t n = (int64_t)jinja_str_chars(r, s);
    int64_t begin = bound_or(r, a[1], 0), end = bound_or(r, a[2], n);
    if (begin < 0) begin = begin + n < 0 ? 0 : begin + n;
    if (end < 0) end = end + n < 0 ? 0 : end + n;
    if (end > n) end = n;
    if (begin > end) return false;
    *ret_begin = jinja_str_char_at(r, s, (size_t)begin);
    *ret_end = end == n ? s->len : jinja_str_char_at(r, s, (size_t)end);
    return true;
}

/* ---- case and strip ------------------------------------------------------------------------ */

JINJA_METHOD_IS(str_upper, jinja_str_case(r, self.u.str, JINJA_UPPER))
JINJA_METHOD_IS(str_lower, jinja_str_case(r, self.u.str, JINJA_LOWER))
JINJA_METHOD_IS(str_title, jinja_str_case(r, self.u.str, JINJA_TITLE))
JINJA_METHOD_IS(str_capitalize, jinja_str_case(r, self.u.str, JINJA_CAPITALIZE))

static struct jinja_value strip(struct jinja_run *r, struct jinja_value self,
                                const struct jinja_value *a, enum jinja_sides sides)
{
    return jinja_str_strip(r, self.u.str, jinja_maybe_str(r, a[0], "strip argument"), sides);
}

JINJA_METHOD_IS(str_strip, strip(r, self, a, JINJA_BOTH))
JINJA_METHOD_IS(str_lstrip, strip(r, self, a, JINJA_LEFT))
JINJA_METHOD_IS(str_rstrip, strip(r, self, a, JINJA_RIGHT))

/* Once, unlike lstrip, and only as a whole. */
JINJA_METHOD_FN(str_removeprefix)
{
    const struct jinja_str *s = self.u.str, *prefix = need(r, a[0]);
    jinja_spend_bytes(r, prefix->len);
    size_t n = jinja_str_starts(s, prefix) ? prefix->len : 0;
    return jinja_str_part_value(r, s, n, s->len - n);
}

JINJA_METHOD_FN(str_removesuffix)
{
    const struct jinja_str *s = self.u.str, *suffix = need(r, a[0]);
    jinja_spend_bytes(r, suffix->len);
    size_t n = jinja_str_ends(s, suffix) ? suffix->len : 0;
    return jinja_str_part_value(r, s, 0, s->len - n);
}

/* ---- split, join, replace ------------------------------------------------------------------ */

JINJA_METHOD_FN(str_split)
{
    const struct jinja_str *sep = jinja_maybe_str(r, a[0], "separator");
    return jinja_from_list(jinja_str_split(r, self.u.str, sep, count_or(r, a[1], -1)));
}

JINJA_METHOD_IS(str_splitlines, jinja_from_list(jinja_str_lines(r, self.u.str, jinja_truth(a[0]))))

JINJA_METHOD_IS(str_join, jinja_str_join(r, self.u.str, a[0], true))

JINJA_METHOD_IS(str_format, jinja_format(r, self.u.str, args))

JINJA_METHOD_FN(str_replace)
{
    const struct jinja_str *old = need(r, a[0]);
    return jinja_str_replace(r, self.u.str, old, inserted(r, self, a[1]), count_or(r, a[2], -1));
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
    size_t begin, end;
    if (!byte_span(r, self.u.str, a, &begin, &end)) return jinja_bool(false);
    if (jinja_is(a[0], JINJA_TUPLE))
        for (size_t i = 0; i < a[0].u.list->n; i++)
            need(r, a[0].u.list->items[i]);
    return jinja_bool(affix(r, jinja_str_part(r, self.u.str, begin, end - begin), a[0], at_end));
}

JINJA_METHOD_IS(str_startswith, has_affix(r, self, a, false))
JINJA_METHOD_IS(str_endswith, has_affix(r, self, a, true))

/* The character position of a needle, or -1. */
static int64_t find(struct jinja_run *r, struct jinja_value self, const struct jinja_value *a,
                    bool last)
{
    const struct jinja_str *s = self.u.str, *needle = need(r, a[0]);
    size_t begin, end;
    if (!byte_span(r, s, a, &begin, &end)) return -1;
    const struct jinja_str *part = jinja_str_part(r, s, begin, end - begin);
    jinja_spend_search(r, part->len);
    size_t at =
        last ? jinja_str_rfind(r, part, needle, part->len) : jinja_str_find(part, needle, 0);
    return at == SIZE_MAX ? -1 : (int64_t)jinja_str_chars_before(s, begin + at);
}

static struct jinja_value index_of(struct jinja_run *r, int64_t at)
{
    if (at < 0) jinja_raise(r, "substring not found");
    return jinja_int(at);
}

JINJA_METHOD_IS(str_find, jinja_int(find(r, self, a, false)))
JINJA_METHOD_IS(str_rfind, jinja_int(find(r, self, a, true)))
JINJA_METHOD_IS(str_index, index_of(r, find(r, self, a, false)))
JINJA_METHOD_IS(str_rindex, index_of(r, find(r, self, a, true)))

JINJA_METHOD_FN(str_count)
{
    const struct jinja_str *needle = need(r, a[0]);
    size_t begin, end;
    if (!byte_span(r, self.u.str, a, &begin, &end)) return jinja_int(0);
    const struct jinja_str *part = jinja_str_part(r, self.u.str, begin, end - begin);
    if (needle->len == 0) return jinja_int((int64_t)jinja_str_chars(r, part) + 1);
    int64_t n = 0;
    jinja_spend_search(r, part->len);
    for (size_t at = jinja_str_find(part, needle, 0); at != SIZE_MAX; n++) {
        jinja_spend(r, 1);
        at = jinja_str_find(part, needle, at + needle->len);
    }
    return jinja_int(n);
}

/* ---- predicates ---------------------------------------------------------------------------- */

/* True if there are characters and all of them pass. */
static struct jinja_value all_chars(struct jinja_run *r, const struct jinja_str *s,
                                    bool (*passes)(int32_t))
{
    jinja_spend_chars(r, s->len);
    for (size_t at = 0; at < s->len;)
        if (!passes(jinja_str_next(s, &at))) return jinja_bool(false);
    return jinja_bool(s->len > 0);
}

JINJA_METHOD_IS(str_isalnum, all_chars(r, self.u.str, jinja_cp_alnum))
JINJA_METHOD_IS(str_isalpha, all_chars(r, self.u.str, jinja_cp_alpha))
JINJA_METHOD_IS(str_isdigit, all_chars(r, self.u.str, jinja_cp_digit))
JINJA_METHOD_IS(str_isspace, all_chars(r, self.u.str, jinja_cp_space))

JINJA_METHOD_IS(str_islower, jinja_bool(jinja_str_is_case(r, self.u.str, JINJA_LOWER)))
JINJA_METHOD_IS(str_isupper, jinja_bool(jinja_str_is_case(r, self.u.str, JINJA_UPPER)))

const struct jinja_method jinja_str_methods[] = {
    {"split", str_split, {"sep maxsplit", 0}},
    {"strip", str_strip, {"/chars", 0}},
    {"lstrip", str_lstrip, {"/chars", 0}},
    {"rstrip", str_rstrip, {"/chars", 0}},
    {"startswith", str_startswith, {"/prefix start end", 1}},
    {"endswith", str_endswith, {"/suffix start end", 1}},
    {"replace", str_replace, {"/old new count", 2}},
    {"upper", str_upper, {"/", 0}},
    {"lower", str_lower, {"/", 0}},
    {"title", str_title, {"/", 0}},
    {"capitalize", str_capitalize, {"/", 0}},
    {"removeprefix", str_removeprefix, {"/prefix", 1}},
    {"removesuffix", str_removesuffix, {"/suffix", 1}},
    {"splitlines", str_splitlines, {"keepends", 0}},
    {"join", str_join, {"/iterable", 1}},
    {"format", str_format, {NULL, 0}},
    {"find", str_find, {"/sub start end", 1}},
    {"rfind", str_rfind, {"/sub start end", 1}},
    {"index", str_index, {"/sub start end", 1}},
    {"rindex", str_rindex, {"/sub start end", 1}},
    {"count", str_count, {"/sub start end", 1}},
    {"isalnum", str_isalnum, {"/", 0}},
    {"isalpha", str_isalpha, {"/", 0}},
    {"isdigit", str_isdigit, {"/", 0}},
    {"islower", str_islower, {"/", 0}},
    {"isspace", str_isspace, {"/", 0}},
    {"isupper", str_isupper, {"/", 0}},
    {NULL, NULL, {NULL, 0}},
};
