/* SPDX-License-Identifier: MIT */
/*
 * Values: lists, and what a value is; see value.h.
 */
#include "tokenizer/template/value.h"

#include <string.h>

#include "tokenizer/template/iterate.h"

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
    if (l->n == l->cap) l->items = jinja_room(r, l->items, l->n, &l->cap, sizeof(v));
    l->items[l->n++] = v;
}

struct jinja_list *jinja_list_of(struct jinja_run *r, const struct jinja_value *items, size_t n)
{
    struct jinja_list *l = jinja_list_new(r, n);
    if (n) memcpy(l->items, items, n * sizeof(*items));
    l->n = n;
    return l;
}

struct jinja_value jinja_pair_tuple(struct jinja_run *r, struct jinja_value a, struct jinja_value b)
{
    return jinja_from_tuple(jinja_list_of(r, (struct jinja_value[]){a, b}, 2));
}

void jinja_list_reverse(struct jinja_list *l)
{
    for (size_t i = 0, j = l->n; i + 1 < j; i++) {
        struct jinja_value t = l->items[i];
        l->items[i] = l->items[--j];
        l->items[j] = t;
    }
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
    case JINJA_GEN: return v.u.gen->name;
    case JINJA_NAMESPACE: return "Namespace";
    case JINJA_BUILTIN: return "function";
    case JINJA_METHOD: return "builtin_function_or_method";
    case JINJA_MACRO: return "Macro";
    case JINJA_LOOP: return "LoopContext";
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

const struct jinja_str *jinja_need_str(struct jinja_run *r, struct jinja_value v, const char *what)
{
    if (!jinja_is(v, JINJA_STR)) jinja_raise(r, "%s must be str, not %s", what, jinja_type_name(v));
    return v.u.str;
}

const struct jinja_str *jinja_maybe_str(struct jinja_run *r, struct jinja_value v, const char *what)
{
    if (jinja_is(v, JINJA_NONE) || jinja_is(v, JINJA_MISSING)) return NULL;
    return jinja_need_str(r, v, what);
}
