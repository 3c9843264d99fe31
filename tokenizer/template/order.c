/* SPDX-License-Identifier: MIT */
/*
 * Values: equality, order, membership, hashing; see value.h. All of it recurses into
 * containers, with a limit.
 */
#include "tokenizer/template/value.h"

#include <string.h>

#include "tokenizer/template/iterate.h"
#include "tokenizer/template/number.h"
#include "tokenizer/template/print.h"
#include "tokenizer/template/str.h"

enum { BIG_STEPS = 8 /* of looking at all limbs of an integer beyond 64 bits */ };

/* ---- comparison ---------------------------------------------------------------------------- */

static bool equal_in(struct jinja_run *r, struct jinja_value a, struct jinja_value b, int depth);

static void check_depth(struct jinja_run *r, int depth)
{
    jinja_spend(r, 1);
    if (depth > JINJA_MAX_VALUE_DEPTH)
        jinja_fail(r, JINJA_ELIMIT, "a value nested deeper than %d", JINJA_MAX_VALUE_DEPTH);
}

static bool lists_equal(struct jinja_run *r, const struct jinja_list *a, const struct jinja_list *b,
                        int depth)
{
    if (a->n != b->n) return false;
    for (size_t i = 0; i < a->n; i++)
        if (!equal_in(r, a->items[i], b->items[i], depth)) return false;
    return true;
}

static bool dicts_equal(struct jinja_run *r, const struct jinja_dict *a, const struct jinja_dict *b,
                        int depth)
{
    if (a->n != b->n) return false;
    for (size_t i = 0; i < a->n; i++) {
        const struct jinja_value *v = jinja_dict_get(r, b, a->pairs[i].key);
        if (!v || !equal_in(r, a->pairs[i].value, *v, depth)) return false;
    }
    return true;
}

static bool ranges_equal(const struct jinja_range *a, const struct jinja_range *b)
{
    if (a->n != b->n) return false;
    return a->n == 0 || (a->start == b->start && (a->n == 1 || a->step == b->step));
}

/* keys() and items() compare as sets, values() by identity. */
static bool views_equal(struct jinja_run *r, const struct jinja_view *a, const struct jinja_view *b,
                        int depth)
{
    if (a->kind != b->kind || a->kind == JINJA_VALUES) return a == b;
    if (a->kind == JINJA_ITEMS) return dicts_equal(r, a->dict.u.dict, b->dict.u.dict, depth);
    const struct jinja_dict *x = a->dict.u.dict, *y = b->dict.u.dict;
    if (x->n != y->n) return false;
    for (size_t i = 0; i < x->n; i++)
        if (!jinja_dict_get(r, y, x->pairs[i].key)) return false;
    return true;
}

/* Numbers of all kinds compare by value; those beyond 64 bits have up to a thousand limbs. */
static int compare_numbers(struct jinja_run *r, struct jinja_value a, struct jinja_value b)
{
    if (jinja_is(a, JINJA_BIG) || jinja_is(b, JINJA_BIG)) jinja_spend(r, BIG_STEPS);
    return jinja_num_compare(a, b);
}

/* True equals 1; a list is never a tuple. */
static bool equal_in(struct jinja_run *r, struct jinja_value a, struct jinja_value b, int depth)
{
    check_depth(r, depth);
    if (jinja_is_number(a) && jinja_is_number(b)) return compare_numbers(r, a, b) == 0;
    if (a.type != b.type) return false;
    switch (a.type) {
    case JINJA_STR: jinja_spend_bytes(r, a.u.str->len); return jinja_str_equal(a.u.str, b.u.str);
    case JINJA_LIST:
    case JINJA_TUPLE: return lists_equal(r, a.u.list, b.u.list, depth + 1);
    case JINJA_DICT: return dicts_equal(r, a.u.dict, b.u.dict, depth + 1);
    case JINJA_RANGE: return ranges_equal(a.u.range, b.u.range);
    case JINJA_VIEW: return views_equal(r, a.u.view, b.u.view, depth + 1);
    case JINJA_MISSING:
    case JINJA_UNDEFINED:
    case JINJA_NONE: return true;
    default: return jinja_same(a, b);
    }
}

bool jinja_equal(struct jinja_run *r, struct jinja_value a, struct jinja_value b)
{
    return equal_in(r, a, b, 0);
}

/* Identity, for `is sameas`: objects by address, and the values CPython has only once. */
bool jinja_same(struct jinja_value a, struct jinja_value b)
{
    if (a.type != b.type) return false;
    switch (a.type) {
    case JINJA_NONE: return true;
    case JINJA_BOOL: return a.u.i == b.u.i;
    case JINJA_INT:
        return a.u.i == b.u.i && a.u.i >= -5 && a.u.i <= 256; /* as CPython keeps them */
    case JINJA_FLOAT: return false;
    case JINJA_STR:
        return a.u.str == b.u.str || (a.u.str->len <= 1 && jinja_str_equal(a.u.str, b.u.str));
    case JINJA_METHOD: return false;
    default: return a.u.dict == b.u.dict;
    }
}

static bool lists_less(struct jinja_run *r, const struct jinja_list *a, const struct jinja_list *b,
                       const char *op, int depth);

/* Only numbers, strings and sequences of one kind have an order. */
static bool less_in(struct jinja_run *r, struct jinja_value a, struct jinja_value b, const char *op,
                    int depth)
{
    check_depth(r, depth);
    if (jinja_is_number(a) && jinja_is_number(b)) return compare_numbers(r, a, b) == -1;
    if (jinja_is(a, JINJA_UNDEFINED)) jinja_fail_undefined(r, a);
    if (jinja_is(b, JINJA_UNDEFINED)) jinja_fail_undefined(r, b);
    if (jinja_is(a, JINJA_STR) && jinja_is(b, JINJA_STR)) {
        jinja_spend_bytes(r, a.u.str->len < b.u.str->len ? a.u.str->len : b.u.str->len);
        return jinja_str_compare(a.u.str, b.u.str) < 0;
    }
    if (a.type == b.type && (jinja_is(a, JINJA_LIST) || jinja_is(a, JINJA_TUPLE)))
        return lists_less(r, a.u.list, b.u.list, op, depth + 1);
    jinja_raise(r, "'%s' not supported between instances of '%s' and '%s'", op, jinja_type_name(a),
                jinja_type_name(b));
}

/* The first elements that differ decide; else the shorter is less. */
static bool lists_less(struct jinja_run *r, const struct jinja_list *a, const struct jinja_list *b,
                       const char *op, int depth)
{
    for (size_t i = 0; i < a->n && i < b->n; i++)
        if (!equal_in(r, a->items[i], b->items[i], depth))
            return less_in(r, a->items[i], b->items[i], op, depth);
    return a->n < b->n;
}

bool jinja_less(struct jinja_run *r, struct jinja_value a, struct jinja_value b, const char *op)
{
    return less_in(r, a, b, op, 0);
}

static bool walk_contains(struct jinja_run *r, struct jinja_value container,
                          struct jinja_value item)
{
    struct jinja_iter it;
    struct jinja_value v;
    jinja_iter_start(r, &it, container);
    while (jinja_iter_next(r, &it, &v))
        if (jinja_equal(r, v, item)) return true;
    return false;
}

/* (key, value) in d.items() */
static bool items_contain(struct jinja_run *r, const struct jinja_dict *d, struct jinja_value item)
{
    if (!jinja_is(item, JINJA_TUPLE) || item.u.list->n != 2) return false;
    const struct jinja_value *v = jinja_dict_get(r, d, item.u.list->items[0]);
    return v && jinja_equal(r, *v, item.u.list->items[1]);
}

bool jinja_contains(struct jinja_run *r, struct jinja_value container, struct jinja_value item)
{
    switch (container.type) {
    case JINJA_STR:
        if (!jinja_is(item, JINJA_STR))
            jinja_raise(r, "'in <string>' requires string as left operand, not %s",
                        jinja_type_name(item));
        jinja_spend_search(r, container.u.str->len + item.u.str->len);
        return jinja_str_find(container.u.str, item.u.str, 0) != SIZE_MAX;
    case JINJA_DICT: return jinja_dict_get(r, container.u.dict, item) != NULL;
    case JINJA_VIEW:
        if (container.u.view->kind == JINJA_KEYS)
            return jinja_dict_get(r, container.u.view->dict.u.dict, item) != NULL;
        if (container.u.view->kind == JINJA_ITEMS)
            return items_contain(r, container.u.view->dict.u.dict, item);
        return walk_contains(r, container, item);
    default:
        if (!jinja_is_iterable(container))
            jinja_raise(r, "argument of type '%s' is not iterable", jinja_type_name(container));
        return walk_contains(r, container, item);
    }
}

/* ---- hashing ------------------------------------------------------------------------------- */

static uint64_t hash_bytes(const char *s, size_t len)
{
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < len; i++)
        h = (h ^ (unsigned char)s[i]) * 0x100000001B3u;
    return h ^ h >> 29;
}

/* Equal values must have equal hashes: 1, 1.0 and True share theirs. */
static uint64_t hash_in(struct jinja_run *r, struct jinja_value v, int depth)
{
    uint64_t h = 0x345678;
    check_depth(r, depth);
    if (jinja_is(v, JINJA_BIG)) jinja_spend(r, BIG_STEPS);
    if (jinja_is_number(v)) return jinja_num_hash(v);
    switch (v.type) {
    case JINJA_STR: jinja_spend_bytes(r, v.u.str->len); return hash_bytes(v.u.str->s, v.u.str->len);
    case JINJA_TUPLE:
        for (size_t i = 0; i < v.u.list->n; i++)
            h = (h ^ hash_in(r, v.u.list->items[i], depth + 1)) * 0x100000001B3u + 97531;
        return h;
    case JINJA_LIST:
    case JINJA_DICT:
    case JINJA_VIEW: jinja_raise(r, "unhashable type: '%s'", jinja_type_name(v));
    case JINJA_RANGE: return (uint64_t)v.u.range->n;
    case JINJA_NONE:
    case JINJA_UNDEFINED: return v.type;
    default: return (uint64_t)(uintptr_t)v.u.dict >> 4;
    }
}

uint64_t jinja_hash(struct jinja_run *r, struct jinja_value v)
{
    return hash_in(r, v, 0);
}

bool jinja_is_hashable(struct jinja_run *r, struct jinja_value v)
{
    if (jinja_is(v, JINJA_LIST) || jinja_is(v, JINJA_DICT) || jinja_is(v, JINJA_VIEW)) return false;
    if (!jinja_is(v, JINJA_TUPLE)) return true;
    jinja_spend(r, 1 + v.u.list->n);
    for (size_t i = 0; i < v.u.list->n; i++)
        if (!jinja_is_hashable(r, v.u.list->items[i])) return false;
    return true;
}
