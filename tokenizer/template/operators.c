/* SPDX-License-Identifier: MIT */
/*
 * Binary operators on all kinds of values, and slices.
 */
#include "tokenizer/template/library.h"
#include "tokenizer/template/number.h"
#include "tokenizer/template/undefined.h"

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
    if (times < 0) times = 0;
    if (jinja_is(seq, JINJA_STR)) {
        struct jinja_sb sb = {.r = r};
        jinja_sb_repeat(&sb, seq.u.str, times);
        return jinja_sb_value_like(&sb, seq.u.str);
    }
    const struct jinja_list *from = seq.u.list;
    uint64_t total;
    if (__builtin_mul_overflow((uint64_t)times, (uint64_t)from->n, &total) || total > UINT32_MAX)
        jinja_fail(r, JINJA_ELIMIT, "a list repeated %lld times is too long", (long long)times);
    jinja_spend(r, total);
    struct jinja_list *l = jinja_list_new(r, total);
    for (int64_t i = 0; i < times && from->n; i++)
        for (size_t k = 0; k < from->n; k++)
            jinja_list_add(r, l, from->items[k]);
    struct jinja_value v = jinja_is(seq, JINJA_LIST) ? jinja_from_list(l) : jinja_from_tuple(l);
    return jinja_tainted(v, seq.input);
}

static bool is_sequence(struct jinja_value v)
{
    return v.type >= JINJA_STR && v.type <= JINJA_TUPLE;
}

/* % on a string formats, before undefined operands are refused: '%s' % x is fine. */
struct jinja_value jinja_binary(struct jinja_run *r, int op, struct jinja_value a,
                                struct jinja_value b)
{
    if (op == JINJA_MOD && jinja_is(a, JINJA_STR)) return jinja_percent(r, a.u.str, b);
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
    return jinja_to_bound(r, v);
}

/* Python's rule: from the end if negative, and never beyond the ends. */
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

/* Characters one by one, for steps other than 1. */
static struct jinja_value pick_chars(struct jinja_run *r, const struct jinja_str *str,
                                     struct span s, int64_t n_chars)
{
    size_t *offsets = JINJA_NEW_N(r, (size_t)n_chars + 1, size_t);
    struct jinja_sb sb = {.r = r};
    size_t at = 0;
    jinja_spend_chars(r, str->len);
    for (int64_t i = 0; i < n_chars; i++) {
        offsets[i] = at;
        jinja_str_next(str, &at);
    }
    offsets[n_chars] = str->len;
    for (int64_t i = 0, k = s.start; i < s.n; i++, k += s.step)
        jinja_sb_add_part(&sb, str, offsets[k], offsets[k + 1] - offsets[k]);
    return jinja_sb_value_like(&sb, str);
}

static struct jinja_value slice_str(struct jinja_run *r, const struct jinja_str *str,
                                    struct jinja_value start, struct jinja_value stop,
                                    struct jinja_value step)
{
    int64_t n = (int64_t)jinja_str_chars(r, str);
    struct span s = adjust(r, n, start, stop, step);
    if (s.step != 1) return pick_chars(r, str, s, n);
    size_t begin = jinja_str_char_at(r, str, (size_t)s.start), end = begin;
    if (s.n)
        end = s.start + s.n == n ? str->len : jinja_str_char_at(r, str, (size_t)(s.start + s.n));
    return jinja_str_part_value(r, str, begin, end - begin);
}

/* A range again, not a list. */
static struct jinja_value slice_range(struct jinja_run *r, const struct jinja_range *from,
                                      struct span s)
{
    struct jinja_range *range = JINJA_NEW(r, struct jinja_range);
    range->start = from->start + s.start * from->step;
    range->step = s.n > 1 ? from->step * s.step : from->step;
    range->n = s.n;
    range->stop = from->start + s.stop * from->step;
    return (struct jinja_value){.type = JINJA_RANGE, .u.range = range};
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
    case JINJA_RANGE:
        return slice_range(r, obj.u.range, adjust(r, obj.u.range->n, start, stop, step));
    case JINJA_UNDEFINED: jinja_fail_undefined(r, obj);
    default: jinja_raise(r, "'%s' object cannot be sliced", jinja_type_name(obj));
    }
}
