/* SPDX-License-Identifier: MIT */
/*
 * Attributes and items, as the immutable sandbox gives them out: attributes come from a table per
 * type, methods that would change their object are undefined and say so when called, and names with
 * a leading underscore are not looked up on objects at all.
 */
#include <string.h>

#include "tokenizer/template/dict.h"
#include "tokenizer/template/library.h"
#include "tokenizer/template/print.h"

static struct jinja_value unsafe_attr(struct jinja_run *r, struct jinja_value obj, const char *name)
{
    struct jinja_sb sb = {.r = r};
    jinja_sb_add_lit(&sb, "access to attribute '");
    jinja_sb_add_lit(&sb, name);
    jinja_sb_add_lit(&sb, "' of '");
    jinja_sb_add_lit(&sb, jinja_type_name(obj));
    jinja_sb_add_lit(&sb, "' object is unsafe.");
    return jinja_undefined_hint(r, jinja_copy(r, sb.data, sb.len));
}

/* ---- methods of lists, tuples, dicts, loops, numbers --------------------------------------- */

JINJA_FN(dict_get)
{
    const struct jinja_value *found = jinja_dict_get(r, v.u.dict, a[0]);
    return found ? *found : jinja_or(a[1], jinja_none());
}

enum view { KEYS, VALUES, ITEMS };

static struct jinja_value dict_view(struct jinja_run *r, struct jinja_value self, enum view of)
{
    const struct jinja_dict *d = self.u.dict;
    struct jinja_list *l = jinja_list_new(r, d->n);
    jinja_spend(r, 1 + d->n / 4);
    for (size_t i = 0; i < d->n; i++) {
        const struct jinja_pair *p = &d->pairs[i];
        jinja_list_add(r, l,
                       of == KEYS     ? p->key
                       : of == VALUES ? p->value
                                      : jinja_pair_tuple(r, p->key, p->value));
    }
    return jinja_tainted((struct jinja_value){.type = JINJA_VIEW, .u.list = l}, self.input);
}

JINJA_IS(dict_keys, dict_view(r, v, KEYS))
JINJA_IS(dict_values, dict_view(r, v, VALUES))
JINJA_IS(dict_items, dict_view(r, v, ITEMS))

/* A row without a function is a method that would change its object. */
static const struct jinja_function list_methods[] = {
    {"append", NULL, {NULL, 0}},  {"clear", NULL, {NULL, 0}}, {"extend", NULL, {NULL, 0}},
    {"insert", NULL, {NULL, 0}},  {"pop", NULL, {NULL, 0}},   {"remove", NULL, {NULL, 0}},
    {"reverse", NULL, {NULL, 0}}, {"sort", NULL, {NULL, 0}},  {NULL, NULL, {NULL, 0}},
};

static const struct jinja_function dict_methods[] = {
    {"get", dict_get, {"/key default", 1}},
    {"keys", dict_keys, {"/", 0}},
    {"values", dict_values, {"/", 0}},
    {"items", dict_items, {"/", 0}},
    {"clear", NULL, {NULL, 0}},
    {"pop", NULL, {NULL, 0}},
    {"popitem", NULL, {NULL, 0}},
    {"setdefault", NULL, {NULL, 0}},
    {"update", NULL, {NULL, 0}},
    {NULL, NULL, {NULL, 0}},
};

static struct jinja_value find_method(struct jinja_run *r, struct jinja_value obj,
                                      const struct jinja_str *name)
{
    const struct jinja_function *table = jinja_is(obj, JINJA_STR)    ? jinja_str_methods
                                         : jinja_is(obj, JINJA_LIST) ? list_methods
                                         : jinja_is(obj, JINJA_DICT) ? dict_methods
                                                                     : NULL;
    const struct jinja_function *m = table ? jinja_find_function(table, name) : NULL;
    if (!m) return jinja_missing();
    if (!m->call) return unsafe_attr(r, obj, m->name);
    struct jinja_bound *bound = JINJA_NEW(r, struct jinja_bound); /* to be called, perhaps later */
    *bound = (struct jinja_bound){m, obj};
    return (struct jinja_value){.type = JINJA_METHOD, .u.method = bound};
}

/* ---- plain attributes ---------------------------------------------------------------------- */

/* The length and the next items may be read ahead from a generator. */
static struct jinja_value loop_attr(struct jinja_run *r, struct jinja_loop *loop,
                                    const struct jinja_str *name)
{
    if (jinja_str_is(name, "index")) return jinja_int(loop->index0 + 1);
    if (jinja_str_is(name, "index0")) return jinja_int(loop->index0);
    if (jinja_str_is(name, "first")) return jinja_bool(loop->index0 == 0);
    if (jinja_str_is(name, "last"))
        return jinja_bool(jinja_is(jinja_loop_peek(r, loop), JINJA_MISSING));
    if (jinja_str_is(name, "length")) return jinja_int(jinja_loop_length(r, loop));
    if (jinja_str_is(name, "revindex")) return jinja_int(jinja_loop_length(r, loop) - loop->index0);
    if (jinja_str_is(name, "revindex0"))
        return jinja_int(jinja_loop_length(r, loop) - loop->index0 - 1);
    if (jinja_str_is(name, "depth")) return jinja_int(1);
    if (jinja_str_is(name, "depth0")) return jinja_int(0);
    if (jinja_str_is(name, "previtem"))
        return loop->index0 == 0 ? jinja_undefined_hint(r, "there is no previous item")
                                 : loop->before;
    if (jinja_str_is(name, "nextitem"))
        return jinja_or(jinja_loop_peek(r, loop), jinja_undefined_hint(r, "there is no next item"));
    return jinja_missing();
}

/* Attributes that are values; methods are looked for after them. */
static struct jinja_value plain_attr(struct jinja_run *r, struct jinja_value obj,
                                     const struct jinja_str *name)
{
    switch (obj.type) {
    case JINJA_NAMESPACE: {
        const struct jinja_value *v = jinja_dict_get(r, obj.u.dict, jinja_from_str(name));
        return v ? *v : jinja_missing();
    }
    case JINJA_LOOP: return loop_attr(r, obj.u.loop, name);
    default: return jinja_missing();
    }
}

/* Attributes of the type itself, methods included; JINJA_MISSING if there is none. */
static struct jinja_value type_attr(struct jinja_run *r, struct jinja_value obj,
                                    const struct jinja_str *name)
{
    struct jinja_value v = plain_attr(r, obj, name);
    if (jinja_is(v, JINJA_MISSING)) v = find_method(r, obj, name);
    if (!jinja_is(v, JINJA_MISSING) && name->len && name->s[0] == '_')
        return unsafe_attr(r, obj, jinja_copy(r, name->s, name->len));
    return v;
}

/* ---- lookup -------------------------------------------------------------------------------- */

/* obj.name: an attribute first, then the item of that name. */
struct jinja_value jinja_getattr(struct jinja_run *r, struct jinja_value obj,
                                 struct jinja_value name)
{
    if (jinja_is(obj, JINJA_UNDEFINED)) jinja_fail_undefined(r, obj);
    struct jinja_value v = type_attr(r, obj, name.u.str);
    if (!jinja_is(v, JINJA_MISSING)) return v;
    if (name.u.str->len > 1 && memcmp(name.u.str->s, "__", 2) == 0)
        return unsafe_attr(r, obj, jinja_copy(r, name.u.str->s, name.u.str->len));
    if (jinja_is(obj, JINJA_DICT)) {
        const struct jinja_value *item = jinja_dict_get(r, obj.u.dict, name);
        if (item) return *item;
    }
    return jinja_undefined_attr(r, obj, name.u.str);
}

/* The nth element, counted from the end where n < 0; JINJA_MISSING if there is none. */
static struct jinja_value element_at(struct jinja_run *r, struct jinja_value obj, int64_t n)
{
    int64_t len = jinja_length(r, obj);
    if (n < 0 && n >= -len) n += len;
    if (n < 0 || n >= len) return jinja_missing();
    if (jinja_is(obj, JINJA_STR)) {
        size_t begin = jinja_str_char_at(r, obj.u.str, (size_t)n), end = begin;
        jinja_str_next(obj.u.str, &end);
        return jinja_str_part_value(r, obj.u.str, begin, end - begin);
    }
    if (jinja_is(obj, JINJA_RANGE)) return jinja_int(obj.u.range->start + n * obj.u.range->step);
    return obj.u.list->items[n];
}

/* obj[key] of Python; JINJA_MISSING if that raises. */
static struct jinja_value find_item(struct jinja_run *r, struct jinja_value obj,
                                    struct jinja_value key)
{
    if (jinja_is(obj, JINJA_DICT)) {
        if (!jinja_is_hashable(r, key)) return jinja_missing();
        const struct jinja_value *v = jinja_dict_get(r, obj.u.dict, key);
        return v ? *v : jinja_missing();
    }
    bool indexed = (obj.type >= JINJA_STR && obj.type <= JINJA_TUPLE) || jinja_is(obj, JINJA_RANGE);
    if (!indexed || !jinja_is_integer(key) || jinja_is(key, JINJA_BIG)) return jinja_missing();
    return element_at(r, obj, jinja_to_index(r, key));
}

/* obj[key]: an item first, then, for names, the attribute. */
struct jinja_value jinja_getitem(struct jinja_run *r, struct jinja_value obj,
                                 struct jinja_value key)
{
    if (jinja_is(obj, JINJA_UNDEFINED)) jinja_fail_undefined(r, obj);
    struct jinja_value v = find_item(r, obj, key);
    if (jinja_is(v, JINJA_MISSING) && jinja_is(key, JINJA_STR)) v = type_attr(r, obj, key.u.str);
    if (!jinja_is(v, JINJA_MISSING)) return v;
    bool text = jinja_is(key, JINJA_STR);
    return jinja_undefined_attr(r, obj, text ? key.u.str : jinja_repr(r, key));
}
