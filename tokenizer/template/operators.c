/* SPDX-License-Identifier: MIT */
/*
 * Binary operators on all kinds of values, and slices.
 */
#include <assert.h>

#include "tokenizer/template/library.h"

/* ---- binary operators ---------------------------------------------------------------------- */

/* The brackets of the result are input only where both lists were. */
static struct jinja_value concat_lists(struct jinja_run *r, struct jinja_value a,
                                       struct jinja_value b)
{
    const struct jinja_list *x = a.u.list, *y = b.u.list;
    struct jinja_list *l = jinja_list_new(r, x->n + y->n);
    jinja_spend(r, 1 + (x->n + y->n) / 4);
    for (size_t i = 0; i < x->n; i++)
        jinja_list_add(r, l, x->items[i]);
    for (size_t i = 0; i < y->n; i++)
        jinja_list_add(r, l, y->items[i]);
    struct jinja_value v = jinja_is(a, JINJA_LIST) ? jinja_from_list(l) : jinja_from_tuple(l);
    return jinja_tainted(v, a.input && b.input);
}

/* A count below zero counts as zero. */
static struct jinja_value repeat(struct jinja_run *r, struct jinja_value seq, struct jinja_value by)
{
    int64_t times = jinja_to_index(r, by);
    struct jinja_sb sb = {.r = r};
    if (!jinja_is(seq, JINJA_STR))
        jinja_raise(r, "'*' on a %s is not supported in chat templates", jinja_type_name(seq));
    jinja_sb_repeat(&sb, seq.u.str, times < 0 ? 0 : times);
    return jinja_sb_value_like(&sb, seq.u.str);
}

static bool is_sequence(struct jinja_value v)
{
    return v.type >= JINJA_STR && v.type <= JINJA_TUPLE;
}

struct jinja_value jinja_binary(struct jinja_run *r, int op, struct jinja_value a,
                                struct jinja_value b)
{
    if (op == JINJA_MOD && jinja_is(a, JINJA_STR))
        jinja_raise(r, "'%%' on a string is not supported in chat templates");
    if (jinja_is(a, JINJA_UNDEFINED)) jinja_fail_undefined(r, a);
    if (jinja_is(b, JINJA_UNDEFINED)) jinja_fail_undefined(r, b);
    if (jinja_is_number(a) && jinja_is_number(b)) return jinja_arith(r, (enum jinja_op)op, a, b);
    if (op == JINJA_ADD && a.type == b.type && is_sequence(a)) {
        if (!jinja_is(a, JINJA_STR)) return concat_lists(r, a, b);
        return jinja_from_str(jinja_str_concat(r, a.u.str, b.u.str));
    }
    if (op == JINJA_MUL && is_sequence(a) && jinja_is_integer(b)) return repeat(r, a, b);
    if (op == JINJA_MUL && is_sequence(b) && jinja_is_integer(a)) return repeat(r, b, a);
    if (op == JINJA_ADD && is_sequence(a))
        jinja_raise(r, "can only concatenate %s (not \"%s\") to %s", jinja_type_name(a),
                    jinja_type_name(b), jinja_type_name(a));
    jinja_raise(r, "unsupported operand type(s) for %s: '%s' and '%s'",
                jinja_op_name((enum jinja_op)op), jinja_type_name(a), jinja_type_name(b));
}

/* ---- slices -------------------------------------------------------------------------------- */

/* start, stop and step clamped to a sequence, and how many elements they pick. */
struct span {
    int64_t start, stop, step, n;
};

static bool left_out(struct jinja_value v)
{
    return jinja_is(v, JINJA_NONE) || jinja_is(v, JINJA_MISSING);
}

static int64_t slice_index(struct jinja_run *r, struct jinja_value v)
{
    if (jinja_is(v, JINJA_UNDEFINED) || !jinja_is_integer(v))
        jinja_raise(r, "slice indices must be integers or None or have an __index__ method");
    return jinja_to_index(r, v);
}

/* Python's rule: from the end if negative, and never past the ends. */
static int64_t clamp(int64_t i, int64_t n, int64_t step)
{
    if (i < 0) {
        i = i < -n ? -1 : i + n;
        return i < 0 ? (step < 0 ? -1 : 0) : i;
    }
    return i >= n ? (step < 0 ? n - 1 : n) : i;
}

static struct span adjust(struct jinja_run *r, int64_t n, struct jinja_value start,
                          struct jinja_value stop, struct jinja_value step)
{
    struct span s = {.step = left_out(step) ? 1 : slice_index(r, step)};
    if (s.step == 0) jinja_raise(r, "slice step cannot be zero");
    if (s.step < -INT64_MAX) s.step = -INT64_MAX;
    s.start = left_out(start) ? (s.step < 0 ? n - 1 : 0) : clamp(slice_index(r, start), n, s.step);
    s.stop = left_out(stop) ? (s.step < 0 ? -1 : n) : clamp(slice_index(r, stop), n, s.step);
    if (s.step > 0 && s.start < s.stop) s.n = (s.stop - s.start - 1) / s.step + 1;
    if (s.step < 0 && s.stop < s.start) s.n = (s.start - s.stop - 1) / -s.step + 1;
    assert(s.n >= 0 && s.n <= n);
    return s;
}

/* Also for steps other than 1 and backwards. */
static struct jinja_value slice_list(struct jinja_run *r, struct jinja_value obj, struct span s)
{
    struct jinja_list *l = jinja_list_new(r, (size_t)s.n);
    jinja_spend(r, 1 + (uint64_t)s.n / 4);
    for (int64_t i = 0, at = s.start; i < s.n; i++, at += s.step)
        jinja_list_add(r, l, obj.u.list->items[at]);
    struct jinja_value v = jinja_is(obj, JINJA_LIST) ? jinja_from_list(l) : jinja_from_tuple(l);
    return jinja_tainted(v, obj.input);
}

static struct jinja_value slice_str(struct jinja_run *r, const struct jinja_str *str,
                                    struct jinja_value start, struct jinja_value stop,
                                    struct jinja_value step)
{
    int64_t n = (int64_t)jinja_str_chars(r, str);
    struct span s = adjust(r, n, start, stop, step);
    if (s.step != 1)
        jinja_raise(r, "a slice of a string with a step is not supported in chat templates");
    size_t begin = jinja_str_char_at(r, str, (size_t)s.start), end = begin;
    if (s.n)
        end = s.start + s.n == n ? str->len : jinja_str_char_at(r, str, (size_t)(s.start + s.n));
    return jinja_str_part_value(r, str, begin, end - begin);
}

struct jinja_value jinja_slice(struct jinja_run *r, struct jinja_value obj,
                               struct jinja_value start, struct jinja_value stop,
                               struct jinja_value step)
{
    switch (obj.type) {
    case JINJA_STR: return slice_str(r, obj.u.str, start, stop, step);
    case JINJA_LIST:
    case JINJA_TUPLE:
        return slice_list(r, obj, adjust(r, (int64_t)obj.u.list->n, start, stop, step));
    case JINJA_UNDEFINED: jinja_fail_undefined(r, obj);
    default:
        jinja_raise(r, "a slice of a '%s' is not supported in chat templates",
                    jinja_type_name(obj));
    }
}
