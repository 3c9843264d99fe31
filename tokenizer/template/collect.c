/* SPDX-License-Identifier: MIT */
/*
 * Values: undefined ones, containers, walking, sorting; see value.h, and order.c for
 * the rest of it. Dicts keep insertion order in an array and add an open-addressing index once they
 * are more than a few entries long.
 */
#include "tokenizer/template/value.h"

#include <string.h>

#include "tokenizer/template/iterate.h"
#include "tokenizer/template/number.h"
#include "tokenizer/template/print.h"
#include "tokenizer/template/str.h"

enum {
    DICT_LINEAR = 8, /* entries up to which a dict is searched from end to end */
    PROBED_PER_STEP = 16,
};

/* ---- undefined ----------------------------------------------------------------------------- */

static struct jinja_value new_undefined(struct jinja_run *r, const char *hint, const char *name,
                                        const char *owner)
{
    struct jinja_undefined *u = JINJA_NEW(r, struct jinja_undefined);
    *u = (struct jinja_undefined){.hint = hint, .name = name, .owner = owner};
    return (struct jinja_value){.type = JINJA_UNDEFINED, .u.undefined = u};
}

struct jinja_value jinja_undefined_name(struct jinja_run *r, const char *name)
{
    return new_undefined(r, NULL, name, NULL);
}

struct jinja_value jinja_undefined_attr(struct jinja_run *r, struct jinja_value owner,
                                        struct jinja_value name)
{
    const struct jinja_str *s = jinja_is(name, JINJA_STR) ? name.u.str : jinja_repr(r, name, false);
    return new_undefined(r, NULL, jinja_copy(r, s->s, s->len), jinja_object_name(owner));
}

struct jinja_value jinja_undefined_hint(struct jinja_run *r, const char *hint)
{
    return new_undefined(r, hint, NULL, NULL);
}

void jinja_fail_undefined(struct jinja_run *r, struct jinja_value v)
{
    const struct jinja_undefined *u = v.u.undefined;
    if (u->hint) jinja_raise(r, "%s", u->hint);
    if (u->owner) jinja_raise(r, "'%s' has no attribute '%s'", u->owner, u->name);
    jinja_raise(r, "'%s' is undefined", u->name);
}

/* ---- lists --------------------------------------------------------------------------------- */

struct jinja_list *jinja_list_new(struct jinja_run *r, size_t n)
{
    struct jinja_list *l = JINJA_NEW(r, struct jinja_list);
    l->items = n ? JINJA_NEW_N(r, n, struct jinja_value) : NULL;
    l->cap = n;
    return l;
}

struct jinja_value jinja_from_list(struct jinja_list *l)
{
    return (struct jinja_value){.type = JINJA_LIST, .u.list = l};
}

struct jinja_value jinja_from_tuple(struct jinja_list *l)
{
    return (struct jinja_value){.type = JINJA_TUPLE, .u.list = l};
}

void jinja_list_add(struct jinja_run *r, struct jinja_list *l, struct jinja_value v)
{
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 4;
        l->items = jinja_grow(r, l->items, l->cap * sizeof(v), cap * sizeof(v));
        l->cap = cap;
    }
    l->items[l->n++] = v;
}

struct jinja_value jinja_pair_tuple(struct jinja_run *r, struct jinja_value a, struct jinja_value b)
{
    struct jinja_list *l = jinja_list_new(r, 2);
    jinja_list_add(r, l, a);
    jinja_list_add(r, l, b);
    return jinja_from_tuple(l);
}

/* ---- dicts --------------------------------------------------------------------------------- */

struct jinja_dict *jinja_dict_new(struct jinja_run *r)
{
    return JINJA_NEW(r, struct jinja_dict);
}

struct jinja_value jinja_from_dict(struct jinja_dict *d)
{
    return (struct jinja_value){.type = JINJA_DICT, .u.dict = d};
}

/* Equal hash first: comparing keys is what costs. */
static struct jinja_pair *find_pair(struct jinja_run *r, const struct jinja_dict *d,
                                    struct jinja_value key, uint64_t hash)
{
    if (!d->index) {
        for (size_t i = 0; i < d->n; i++)
            if (d->pairs[i].hash == hash && jinja_equal(r, d->pairs[i].key, key))
                return &d->pairs[i];
        return NULL;
    }
    struct jinja_pair *found = NULL;
    size_t n = 0, i = hash & (d->n_index - 1);
    for (; d->index[i] && !found; i = (i + 1) & (d->n_index - 1), n++) {
        struct jinja_pair *p = &d->pairs[d->index[i] - 1];
        if (p->hash == hash && jinja_equal(r, p->key, key)) found = p;
    }
    jinja_spend(r, n / PROBED_PER_STEP); /* keys of a request may be chosen to meet here */
    return found;
}

/* Linear probing; there is always a free place. */
static void index_pair(struct jinja_run *r, struct jinja_dict *d, size_t at)
{
    size_t n = 0, i = d->pairs[at].hash & (d->n_index - 1);
    for (; d->index[i]; i = (i + 1) & (d->n_index - 1))
        n++;
    jinja_spend(r, n / PROBED_PER_STEP);
    d->index[i] = (uint32_t)(at + 1);
}

/* Keeps the index at most half full. */
static void grow_index(struct jinja_run *r, struct jinja_dict *d)
{
    if (d->n <= DICT_LINEAR || d->n * 2 <= d->n_index) return;
    d->n_index = d->n_index ? d->n_index * 2 : 32;
    d->index = JINJA_NEW_N(r, d->n_index, uint32_t);
    for (size_t i = 0; i + 1 < d->n; i++)
        index_pair(r, d, i);
}

/* The pair is appended before the index grows, so that a new index leaves it to the last line. */
void jinja_dict_put(struct jinja_run *r, struct jinja_dict *d, struct jinja_value key,
                    struct jinja_value value)
{
    uint64_t hash = jinja_hash(r, key);
    struct jinja_pair *p = find_pair(r, d, key, hash);
    if (p) {
        p->value = value;
        return;
    }
    if (d->n == d->cap) {
        size_t cap = d->cap ? d->cap * 2 : 4;
        if (cap > UINT32_MAX / 4) jinja_fail(r, JINJA_ELIMIT, "a dict of %zu entries", cap);
        d->pairs = jinja_grow(r, d->pairs, d->cap * sizeof(*p), cap * sizeof(*p));
        d->cap = cap;
    }
    d->pairs[d->n++] = (struct jinja_pair){.key = key, .value = value, .hash = hash};
    grow_index(r, d);
    if (d->index) index_pair(r, d, d->n - 1);
}

void jinja_dict_put_name(struct jinja_run *r, struct jinja_dict *d, const char *name,
                         struct jinja_value value)
{
    jinja_dict_put(r, d, jinja_lit(r, name), value);
}

struct jinja_value *jinja_dict_get(struct jinja_run *r, const struct jinja_dict *d,
                                   struct jinja_value key)
{
    struct jinja_pair *p = find_pair(r, d, key, jinja_hash(r, key));
    return p ? &p->value : NULL;
}

struct jinja_value *jinja_dict_get_name(struct jinja_run *r, const struct jinja_dict *d,
                                        const char *name)
{
    struct jinja_str s = {.s = name, .len = strlen(name), .origin = JINJA_TRUSTED};
    return jinja_dict_get(r, d, jinja_from_str(&s));
}

/* ---- what kind of value -------------------------------------------------------------------- */

const char *jinja_type_name(struct jinja_value v)
{
    switch (v.type) {
    case JINJA_UNDEFINED: return "Undefined";
    case JINJA_NONE: return "NoneType";
    case JINJA_BOOL: return "bool";
    case JINJA_INT:
    case JINJA_BIG: return "int";
    case JINJA_FLOAT: return "float";
    case JINJA_STR: return v.u.str->markup ? "Markup" : "str";
    case JINJA_LIST: return "list";
    case JINJA_TUPLE: return "tuple";
    case JINJA_DICT: return "dict";
    case JINJA_RANGE: return "range";
    case JINJA_VIEW: {
        static const char *const names[] = {"dict_keys", "dict_values", "dict_items"};
        return names[v.u.view->kind];
    }
    case JINJA_GEN: return jinja_gen_name(v.u.gen);
    case JINJA_NAMESPACE: return "Namespace";
    case JINJA_BUILTIN: return "function";
    case JINJA_METHOD: return "builtin_function_or_method";
    case JINJA_MACRO: return "Macro";
    case JINJA_LOOP: return "LoopContext";
    case JINJA_CYCLER: return "Cycler";
    case JINJA_JOINER: return "Joiner";
    default: return "missing";
    }
}

const char *jinja_object_name(struct jinja_value v)
{
    switch (v.type) {
    case JINJA_UNDEFINED: return "jinja2.runtime.Undefined object";
    case JINJA_NONE: return "None";
    case JINJA_BOOL: return "bool object";
    case JINJA_INT:
    case JINJA_BIG: return "int object";
    case JINJA_FLOAT: return "float object";
    case JINJA_STR: return "str object";
    case JINJA_LIST: return "list object";
    case JINJA_TUPLE: return "tuple object";
    case JINJA_DICT: return "dict object";
    case JINJA_RANGE: return "range object";
    case JINJA_NAMESPACE: return "jinja2.utils.Namespace object";
    case JINJA_MACRO: return "jinja2.runtime.Macro object";
    case JINJA_LOOP: return "jinja2.runtime.LoopContext object";
    default: return jinja_type_name(v);
    }
}

bool jinja_is_integer(struct jinja_value v)
{
    return v.type >= JINJA_BOOL && v.type <= JINJA_BIG;
}

bool jinja_is_number(struct jinja_value v)
{
    return v.type >= JINJA_BOOL && v.type <= JINJA_FLOAT;
}

/* Empty, zero and none are false; a generator is true even if nothing will come. */
bool jinja_truth(struct jinja_value v)
{
    switch (v.type) {
    case JINJA_MISSING:
    case JINJA_UNDEFINED:
    case JINJA_NONE: return false;
    case JINJA_BOOL:
    case JINJA_INT: return v.u.i != 0;
    case JINJA_FLOAT: return v.u.d != 0;
    case JINJA_STR: return v.u.str->len > 0;
    case JINJA_LIST:
    case JINJA_TUPLE: return v.u.list->n > 0;
    case JINJA_DICT: return v.u.dict->n > 0;
    case JINJA_RANGE: return v.u.range->n > 0;
    case JINJA_VIEW: return v.u.view->dict.u.dict->n > 0;
    default: return true;
    }
}

/* len() works; undefined has length 0. */
bool jinja_has_length(struct jinja_value v)
{
    return v.type == JINJA_UNDEFINED || (v.type >= JINJA_STR && v.type <= JINJA_VIEW) ||
           v.type == JINJA_LOOP;
}

bool jinja_is_iterable(struct jinja_value v)
{
    return v.type == JINJA_UNDEFINED || (v.type >= JINJA_STR && v.type <= JINJA_GEN) ||
           v.type == JINJA_LOOP;
}

/* callable(): undefined says yes, and fails when it is called. */
bool jinja_is_callable(struct jinja_value v)
{
    return v.type == JINJA_UNDEFINED || (v.type >= JINJA_BUILTIN && v.type <= JINJA_LOOP) ||
           v.type == JINJA_JOINER;
}

int64_t jinja_length(struct jinja_run *r, struct jinja_value v)
{
    switch (v.type) {
    case JINJA_UNDEFINED: return 0;
    case JINJA_STR: return (int64_t)jinja_str_chars(r, v.u.str);
    case JINJA_LIST:
    case JINJA_TUPLE: return (int64_t)v.u.list->n;
    case JINJA_DICT: return (int64_t)v.u.dict->n;
    case JINJA_RANGE: return v.u.range->n;
    case JINJA_VIEW: return (int64_t)v.u.view->dict.u.dict->n;
    case JINJA_LOOP: return jinja_loop_length(r, v.u.loop);
    default: jinja_raise(r, "object of type '%s' has no len()", jinja_type_name(v));
    }
}

int64_t jinja_to_bound(struct jinja_run *r, struct jinja_value v)
{
    if (jinja_is(v, JINJA_BIG)) return jinja_int_sign(v) < 0 ? INT64_MIN : INT64_MAX;
    return jinja_to_index(r, v);
}

int64_t jinja_to_index(struct jinja_run *r, struct jinja_value v)
{
    if (jinja_is(v, JINJA_BIG)) jinja_raise(r, "cannot fit 'int' into an index-sized integer");
    if (!jinja_is_integer(v))
        jinja_raise(r, "'%s' object cannot be interpreted as an integer", jinja_type_name(v));
    return v.u.i;
}

/* ---- walking ------------------------------------------------------------------------------- */

void jinja_iter_start(struct jinja_run *r, struct jinja_iter *it, struct jinja_value v)
{
    if (!jinja_is_iterable(v)) jinja_raise(r, "'%s' object is not iterable", jinja_type_name(v));
    *it = (struct jinja_iter){.over = v};
}

static bool next_char(struct jinja_run *r, struct jinja_iter *it, struct jinja_value *ret)
{
    const struct jinja_str *s = it->over.u.str;
    if (it->at >= s->len) return false;
    size_t begin = it->at;
    jinja_str_next(s, &it->at);
    const struct jinja_str *c = jinja_str_part(r, s, begin, it->at - begin);
    *ret = jinja_from_str(jinja_str_as(r, c, false)); /* the elements of a Markup are plain */
    return true;
}

static struct jinja_value view_at(struct jinja_run *r, enum jinja_view_kind kind,
                                  const struct jinja_pair *p)
{
    if (kind == JINJA_KEYS) return p->key;
    return kind == JINJA_VALUES ? p->value : jinja_pair_tuple(r, p->key, p->value);
}

/* Nothing that can be walked changes its length, so a position is enough of a state. */
bool jinja_iter_next(struct jinja_run *r, struct jinja_iter *it, struct jinja_value *ret)
{
    struct jinja_value v = it->over;
    jinja_spend(r, 1);
    switch (v.type) {
    case JINJA_STR: return next_char(r, it, ret);
    case JINJA_LIST:
    case JINJA_TUPLE:
        if (it->at >= v.u.list->n) return false;
        *ret = v.u.list->items[it->at++];
        return true;
    case JINJA_DICT:
        if (it->at >= v.u.dict->n) return false;
        *ret = v.u.dict->pairs[it->at++].key;
        return true;
    case JINJA_VIEW:
        if (it->at >= v.u.view->dict.u.dict->n) return false;
        *ret = view_at(r, v.u.view->kind, &v.u.view->dict.u.dict->pairs[it->at++]);
        return true;
    case JINJA_RANGE:
        if (it->at >= (size_t)v.u.range->n) return false;
        *ret = jinja_int(v.u.range->start + (int64_t)it->at++ * v.u.range->step);
        return true;
    case JINJA_GEN: return jinja_gen_next(r, v.u.gen, ret);
    case JINJA_LOOP: return jinja_loop_next_pair(r, v, ret);
    default: return false;
    }
}

struct jinja_list *jinja_to_list(struct jinja_run *r, struct jinja_value v)
{
    struct jinja_list *l =
        jinja_list_new(r, jinja_has_length(v) && !jinja_is(v, JINJA_STR) && !jinja_is(v, JINJA_LOOP)
                              ? (size_t)jinja_length(r, v)
                              : 0);
    struct jinja_iter it;
    struct jinja_value item;
    jinja_iter_start(r, &it, v);
    while (jinja_iter_next(r, &it, &item))
        jinja_list_add(r, l, item);
    return l;
}

/* Python asks for a length and items by number, or for a method of its own. */
struct jinja_list *jinja_reversed(struct jinja_run *r, struct jinja_value v)
{
    bool ok = jinja_has_length(v) && !jinja_is(v, JINJA_LOOP);
    if (!ok) jinja_raise(r, "'%s' object is not reversible", jinja_type_name(v));
    struct jinja_list *l = jinja_to_list(r, v);
    for (size_t i = 0, j = l->n; i + 1 < j; i++) {
        struct jinja_value t = l->items[i];
        l->items[i] = l->items[--j];
        l->items[j] = t;
    }
    return l;
}

/* ---- sorting ------------------------------------------------------------------------------- */

/* Merges two neighbouring sorted runs of `order`; the left one wins ties. */
static void merge(struct jinja_run *r, const struct jinja_value *keys, size_t *order, size_t *tmp,
                  size_t lo, size_t mid, size_t hi)
{
    size_t i = lo, j = mid, n = 0;
    while (i < mid && j < hi)
        tmp[n++] = jinja_less(r, keys[order[j]], keys[order[i]], "<") ? order[j++] : order[i++];
    while (i < mid)
        tmp[n++] = order[i++];
    memcpy(order + lo, tmp, n * sizeof(*tmp)); /* what is left of the right run is in place */
}

static void reverse_order(size_t *order, size_t n)
{
    for (size_t i = 0, j = n; i + 1 < j; i++) {
        size_t t = order[i];
        order[i] = order[--j];
        order[j] = t;
    }
}

/* A merge sort from below: stable, and n log n comparisons whatever the order was. */
void jinja_sort(struct jinja_run *r, struct jinja_value *keys, struct jinja_value *items, size_t n,
                bool reverse)
{
    if (n < 2) return;
    size_t *order = JINJA_NEW_N(r, n, size_t), *tmp = JINJA_NEW_N(r, n, size_t);
    for (size_t i = 0; i < n; i++)
        order[i] = i;
    if (reverse) reverse_order(order, n); /* sorting backwards keeps equal elements in place */
    for (size_t width = 1; width < n; width *= 2)
        for (size_t lo = 0; lo + width < n; lo += 2 * width) {
            size_t hi = lo + 2 * width < n ? lo + 2 * width : n;
            merge(r, keys, order, tmp, lo, lo + width, hi);
        }
    if (reverse) reverse_order(order, n);
    struct jinja_value *sorted = JINJA_NEW_N(r, 2 * n, struct jinja_value);
    for (size_t i = 0; i < n; i++) {
        sorted[i] = keys[order[i]];
        sorted[n + i] = items[order[i]];
    }
    memcpy(keys, sorted, n * sizeof(*keys));
    memcpy(items, sorted + n, n * sizeof(*items));
}
