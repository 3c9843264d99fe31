/* SPDX-License-Identifier: MIT */
/*
 * Values: lists, and what a value is; see value.h.
 */
#include "tokenizer/template/value.h"

#include <assert.h>
#include <string.h>

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

/* ---- what kind of value -------------------------------------------------------------------- */

static const struct {
    const char *name, *object;
} names[] = {
    [JINJA_MISSING] = {"missing", NULL},
    [JINJA_UNDEFINED] = {"Undefined", "jinja2.runtime.Undefined object"},
    [JINJA_NONE] = {"NoneType", "None"},
    [JINJA_BOOL] = {"bool", "bool object"},
    [JINJA_INT] = {"int", "int object"},
    [JINJA_BIG] = {"int", "int object"},
    [JINJA_FLOAT] = {"float", "float object"},
    [JINJA_STR] = {"str", "str object"},
    [JINJA_LIST] = {"list", "list object"},
    [JINJA_TUPLE] = {"tuple", "tuple object"},
    [JINJA_DICT] = {"dict", "dict object"},
    [JINJA_RANGE] = {"range", "range object"},
    [JINJA_VIEW] = {"dict view", NULL},
    [JINJA_GEN] = {"generator", NULL},
    [JINJA_NAMESPACE] = {"Namespace", "jinja2.utils.Namespace object"},
    [JINJA_BUILTIN] = {"function", NULL},
    [JINJA_METHOD] = {"builtin_function_or_method", NULL},
    [JINJA_MACRO] = {"Macro", "jinja2.runtime.Macro object"},
    [JINJA_LOOP] = {"LoopContext", "jinja2.runtime.LoopContext object"},
};

const char *jinja_type_name(struct jinja_value v)
{
    assert(v.type < sizeof(names) / sizeof(names[0]));
    return jinja_is(v, JINJA_STR) && v.u.str->markup ? "Markup" : names[v.type].name;
}

const char *jinja_object_name(struct jinja_value v)
{
    assert(v.type < sizeof(names) / sizeof(names[0]));
    return names[v.type].object ? names[v.type].object : jinja_type_name(v);
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
    case JINJA_TUPLE:
    case JINJA_VIEW: return v.u.list->n > 0;
    case JINJA_RANGE: return v.u.range->n > 0;
    case JINJA_DICT: return v.u.dict->n > 0;
    default: return true;
    }
}

/* len() works; undefined has length 0. */
bool jinja_has_length(struct jinja_value v)
{
    return v.type == JINJA_UNDEFINED || (v.type >= JINJA_STR && v.type <= JINJA_VIEW);
}

bool jinja_is_iterable(struct jinja_value v)
{
    return v.type == JINJA_UNDEFINED || (v.type >= JINJA_STR && v.type <= JINJA_GEN);
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

/* ---- undefined values ---------------------------------------------------------------------- */

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
                                        const struct jinja_str *name)
{
    return new_undefined(r, NULL, jinja_copy(r, name->s, name->len), jinja_object_name(owner));
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
