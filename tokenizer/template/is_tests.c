/* SPDX-License-Identifier: MIT */
/*
 * The tests of `is`.
 */
#include "tokenizer/template/dict.h"
#include "tokenizer/template/library.h"

static bool remainder_is(struct jinja_run *r, struct jinja_value v, struct jinja_value by,
                         int wanted)
{
    return jinja_equal(r, jinja_binary(r, JINJA_MOD, v, by), jinja_int(wanted));
}

JINJA_IS(is_odd, jinja_bool(remainder_is(r, v, jinja_int(2), 1)))
JINJA_IS(is_even, jinja_bool(remainder_is(r, v, jinja_int(2), 0)))
JINJA_IS(is_defined, jinja_bool(!jinja_is(v, JINJA_UNDEFINED)))
JINJA_IS(is_undefined, jinja_bool(jinja_is(v, JINJA_UNDEFINED)))
JINJA_IS(is_none, jinja_bool(jinja_is(v, JINJA_NONE)))
JINJA_IS(is_boolean, jinja_bool(jinja_is(v, JINJA_BOOL)))
JINJA_IS(is_false, jinja_bool(jinja_is(v, JINJA_BOOL) && !v.u.i))
JINJA_IS(is_true, jinja_bool(jinja_is(v, JINJA_BOOL) && v.u.i))
JINJA_IS(is_integer, jinja_bool(jinja_is(v, JINJA_INT) || jinja_is(v, JINJA_BIG)))
JINJA_IS(is_float, jinja_bool(jinja_is(v, JINJA_FLOAT)))
JINJA_IS(is_string, jinja_bool(jinja_is(v, JINJA_STR)))
JINJA_IS(is_mapping, jinja_bool(jinja_is(v, JINJA_DICT)))
JINJA_IS(is_number, jinja_bool(jinja_is_number(v)))
JINJA_IS(is_iterable, jinja_bool(jinja_is_iterable(v)))
JINJA_IS(is_in, jinja_bool(jinja_contains(r, a[0], v)))
JINJA_IS(is_eq, jinja_bool(jinja_equal(r, v, a[0])))
JINJA_IS(is_ne, jinja_bool(!jinja_equal(r, v, a[0])))
JINJA_IS(is_lt, jinja_bool(jinja_less(r, v, a[0], "<")))
JINJA_IS(is_gt, jinja_bool(jinja_less(r, a[0], v, ">")))
JINJA_IS(is_le, jinja_bool(jinja_less(r, v, a[0], "<=") || jinja_equal(r, v, a[0])))
JINJA_IS(is_ge, jinja_bool(jinja_less(r, a[0], v, ">=") || jinja_equal(r, v, a[0])))

/* Has a length and elements by index or key. */
JINJA_IS(is_sequence,
         jinja_bool(jinja_is(v, JINJA_UNDEFINED) || (v.type >= JINJA_STR && v.type <= JINJA_RANGE)))

JINJA_FN(is_filter)
{
    if (!jinja_is_hashable(r, v)) jinja_raise(r, "unhashable type: '%s'", jinja_type_name(v));
    return jinja_bool(jinja_is(v, JINJA_STR) && jinja_find_filter(v.u.str));
}

JINJA_FN(is_test)
{
    if (!jinja_is_hashable(r, v)) jinja_raise(r, "unhashable type: '%s'", jinja_type_name(v));
    return jinja_bool(jinja_is(v, JINJA_STR) && jinja_find_function(jinja_tests, v.u.str));
}

const struct jinja_function jinja_tests[] = {
    {"odd", is_odd, {"", 0}},
    {"even", is_even, {"", 0}},
    {"defined", is_defined, {"", 0}},
    {"undefined", is_undefined, {"", 0}},
    {"filter", is_filter, {"", 0}},
    {"test", is_test, {"", 0}},
    {"none", is_none, {"", 0}},
    {"boolean", is_boolean, {"", 0}},
    {"false", is_false, {"", 0}},
    {"true", is_true, {"", 0}},
    {"integer", is_integer, {"", 0}},
    {"float", is_float, {"", 0}},
    {"string", is_string, {"", 0}},
    {"mapping", is_mapping, {"", 0}},
    {"number", is_number, {"", 0}},
    {"sequence", is_sequence, {"", 0}},
    {"iterable", is_iterable, {"", 0}},
    {"in", is_in, {"seq", 1}},
    {"==", is_eq, {"/b", 1}},
    {"eq", is_eq, {"/b", 1}},
    {"equalto", is_eq, {"/b", 1}},
    {"!=", is_ne, {"/b", 1}},
    {"ne", is_ne, {"/b", 1}},
    {">", is_gt, {"/b", 1}},
    {"gt", is_gt, {"/b", 1}},
    {"greaterthan", is_gt, {"/b", 1}},
    {"ge", is_ge, {"/b", 1}},
    {">=", is_ge, {"/b", 1}},
    {"<", is_lt, {"/b", 1}},
    {"lt", is_lt, {"/b", 1}},
    {"lessthan", is_lt, {"/b", 1}},
    {"<=", is_le, {"/b", 1}},
    {"le", is_le, {"/b", 1}},
    {NULL, NULL, {NULL, 0}},
};
