/* SPDX-License-Identifier: MIT */
/*
 * Filters on sequences, mappings and numbers. Those that give a generator in the reference give one
 * here, and find their mistakes, as there, when the first element is asked for.
 */
#include <string.h>

#include "tokenizer/template/dict.h"
#include "tokenizer/template/library.h"
#include "tokenizer/template/print.h"
#include "tokenizer/template/text_ops.h"

/* ---- attribute paths ----------------------------------------------------------------------- */

/* "a.b.0": looked up one after the other. No parts: the element itself. */
struct path {
    struct jinja_value *parts;
    size_t n;
    struct jinja_value otherwise; /* for a member undefined on the way, or JINJA_MISSING */
    bool fold_case;               /* strings at the end are compared in lower case */
};

/* Digits between dots are indices: "calls.0.name". */
static struct path make_path(struct jinja_run *r, struct jinja_value attr, bool fold_case)
{
    struct path p = {.otherwise = jinja_missing(), .fold_case = fold_case};
    struct jinja_str dot = JINJA_TEXT(".");
    if (jinja_is(attr, JINJA_NONE) || jinja_is(attr, JINJA_MISSING)) return p;
    if (!jinja_is(attr, JINJA_STR)) {
        p.parts = JINJA_NEW(r, struct jinja_value);
        p.parts[p.n++] = attr;
        return p;
    }
    struct jinja_list *l = jinja_str_split(r, attr.u.str, &dot, -1);
    for (size_t i = 0; i < l->n; i++) {
        const struct jinja_str *s = l->items[i].u.str;
        if (jinja_str_is_digits(s)) jinja_int_parse(r, s->s, s->len, false, &l->items[i]);
    }
    p.parts = l->items;
    p.n = l->n;
    return p;
}

/* Sorting and comparing by default do not tell upper from lower case. */
static struct jinja_value fold(struct jinja_run *r, struct jinja_value v)
{
    return jinja_is(v, JINJA_STR) ? jinja_str_case(r, v.u.str, JINJA_LOWER) : v;
}

/* Every step is obj[part]; one undefined on the way becomes the default, if there is one. */
static struct jinja_value follow(struct jinja_run *r, const struct path *p, struct jinja_value v)
{
    for (size_t i = 0; i < p->n; i++) {
        v = jinja_getitem(r, v, p->parts[i]);
        if (jinja_is(v, JINJA_UNDEFINED) && !jinja_is(p->otherwise, JINJA_MISSING) &&
            !jinja_is(p->otherwise, JINJA_NONE))
            v = p->otherwise;
    }
    return p->fold_case ? fold(r, v) : v;
}

/* ---- one element --------------------------------------------------------------------------- */

JINJA_FN(f_first)
{
    struct jinja_iter it;
    struct jinja_value first;
    jinja_iter_start(r, &it, v);
    if (jinja_iter_next(r, &it, &first)) return first;
    return jinja_undefined_hint(r, "No first item, sequence was empty.");
}

JINJA_FN(f_last)
{
    if (jinja_is(v, JINJA_STR) && v.u.str->len) {
        int32_t cp;
        size_t at = jinja_str_prev(v.u.str, v.u.str->len, &cp);
        return jinja_str_part_value(r, v.u.str, at, v.u.str->len - at);
    }
    if (!jinja_has_length(v)) jinja_raise(r, "'%s' object is not reversible", jinja_type_name(v));
    const struct jinja_list *l = jinja_to_list(r, v);
    return l->n ? l->items[l->n - 1] : jinja_undefined_hint(r, "No last item, sequence was empty.");
}

/* Of equal elements the first. */
static struct jinja_value extreme(struct jinja_run *r, struct jinja_value v,
                                  const struct jinja_value *a, bool max)
{
    struct path p = make_path(r, a[1], !jinja_truth(a[0]));
    struct jinja_iter it;
    struct jinja_value item, best, best_key = jinja_missing();
    jinja_iter_start(r, &it, v);
    while (jinja_iter_next(r, &it, &item)) {
        struct jinja_value key = follow(r, &p, item);
        bool better = jinja_is(best_key, JINJA_MISSING) ||
                      (max ? jinja_less(r, best_key, key, ">") : jinja_less(r, key, best_key, "<"));
        if (!better) continue;
        best = item;
        best_key = key;
    }
    if (!jinja_is(best_key, JINJA_MISSING)) return best;
    return jinja_undefined_hint(r, "No aggregated item, sequence was empty.");
}

JINJA_IS(f_max, extreme(r, v, a, true))
JINJA_IS(f_min, extreme(r, v, a, false))

JINJA_FN(f_default)
{
    bool replace = jinja_is(v, JINJA_UNDEFINED) || (jinja_truth(a[1]) && !jinja_truth(v));
    return replace ? jinja_or(a[0], jinja_lit(r, "")) : v;
}

JINJA_IS(f_length, jinja_int(jinja_length(r, v)))

/* ---- whole sequences ----------------------------------------------------------------------- */

JINJA_IS(f_list, jinja_tainted(jinja_from_list(jinja_to_list(r, v)), v.input))

static void refuse_reverse(struct jinja_run *r, struct jinja_value reverse)
{
    if (jinja_truth(reverse)) jinja_raise(r, "'reverse' is not supported in chat templates");
}

/* By one attribute, or by the elements themselves. */
JINJA_FN(f_sort)
{
    bool several = jinja_is(a[2], JINJA_STR) && memchr(a[2].u.str->s, ',', a[2].u.str->len);
    if (several) jinja_raise(r, "sort by several attributes is not supported in chat templates");
    refuse_reverse(r, a[0]);
    struct path path = make_path(r, a[2], !jinja_truth(a[1]));
    struct jinja_list *l = jinja_to_list(r, v);
    struct jinja_value *keys = JINJA_NEW_N(r, l->n, struct jinja_value);
    for (size_t i = 0; i < l->n; i++)
        keys[i] = follow(r, &path, l->items[i]);
    jinja_sort(r, keys, l->items, l->n);
    return jinja_tainted(jinja_from_list(l), v.input);
}

static size_t dictsort_position(struct jinja_run *r, struct jinja_value by)
{
    if (jinja_is(by, JINJA_MISSING)) return 0;
    if (jinja_is(by, JINJA_STR) && jinja_str_is(by.u.str, "key")) return 0;
    if (jinja_is(by, JINJA_STR) && jinja_str_is(by.u.str, "value")) return 1;
    jinja_raise(r, "You can only sort by either \"key\" or \"value\"");
}

/* Pairs by key or value; without case unless asked for. */
JINJA_FN(f_dictsort)
{
    size_t by = dictsort_position(r, a[1]);
    refuse_reverse(r, a[2]);
    if (jinja_is(v, JINJA_UNDEFINED)) jinja_fail_undefined(r, v);
    if (!jinja_is(v, JINJA_DICT))
        jinja_raise(r, "'%s' has no attribute 'items'", jinja_object_name(v));
    const struct jinja_dict *d = v.u.dict;
    struct jinja_list *l = jinja_list_new(r, d->n);
    struct jinja_value *keys = JINJA_NEW_N(r, d->n, struct jinja_value);
    for (size_t i = 0; i < d->n; i++) {
        jinja_list_add(r, l, jinja_pair_tuple(r, d->pairs[i].key, d->pairs[i].value));
        keys[i] = by ? d->pairs[i].value : d->pairs[i].key;
        if (!jinja_truth(a[0])) keys[i] = fold(r, keys[i]);
    }
    jinja_sort(r, keys, l->items, l->n);
    return jinja_tainted(jinja_from_list(l), v.input);
}

JINJA_FN(f_join)
{
    struct path p = make_path(r, a[1], false);
    const struct jinja_str *sep = jinja_to_str(r, jinja_or(a[0], jinja_lit(r, "")));
    if (p.n == 0) return jinja_str_join(r, sep, v, false);
    struct jinja_list *l = jinja_to_list(r, v);
    for (size_t i = 0; i < l->n; i++)
        l->items[i] = follow(r, &p, l->items[i]);
    return jinja_str_join(r, sep, jinja_from_list(l), false);
}

/* ---- generators ---------------------------------------------------------------------------- */

/* The state of map, select, reject, selectattr, rejectattr, unique, items. */
struct stage {
    struct jinja_value source;
    struct jinja_iter iter;
    struct jinja_args args;
    bool started;
    bool select, by_attr, reject; /* select and similar */
    struct path path;
    const struct jinja_function *function; /* that it is given, or NULL */
    struct jinja_dict *seen;               /* unique */
    size_t at;                             /* items */
};

/* The arguments outlive the call: the generator uses them when it is walked. */
static struct stage *new_stage(struct jinja_run *r, struct jinja_value source,
                               const struct jinja_args *args)
{
    struct stage *s = JINJA_NEW(r, struct stage);
    s->source = source;
    s->args = *args;
    s->args.pos = jinja_list_of(r, args->pos, args->n_pos)->items;
    return s;
}

static void drop_args(struct jinja_args *args, size_t n)
{
    args->pos += n;
    args->n_pos -= n;
}

static struct jinja_value keyword(const struct jinja_args *args, const char *name)
{
    for (size_t i = 0; i < args->n_kw; i++)
        if (jinja_str_is(args->keys[i], name)) return args->kw[i];
    return jinja_missing();
}

_Noreturn static void fail_unknown(struct jinja_run *r, const char *what, struct jinja_value name)
{
    const struct jinja_str *s = jinja_repr(r, name);
    jinja_raise(r, "No %s named %.*s.", what, (int)s->len, s->s);
}

/* map('filter', ...) or map(attribute='a.b', default=x) */
static void start_map(struct jinja_run *r, struct stage *s)
{
    struct jinja_value attr = keyword(&s->args, "attribute");
    if (s->args.n_pos == 0 && !jinja_is(attr, JINJA_MISSING)) {
        struct jinja_value otherwise = keyword(&s->args, "default");
        if (s->args.n_kw > 1u + !jinja_is(otherwise, JINJA_MISSING))
            jinja_raise(r, "map got an unexpected keyword argument");
        s->path = make_path(r, attr, false);
        s->path.otherwise = otherwise;
        return;
    }
    if (s->args.n_pos == 0) jinja_raise(r, "map requires a filter argument");
    struct jinja_value name = s->args.pos[0];
    s->function = jinja_is(name, JINJA_STR) ? jinja_find_filter(name.u.str) : NULL;
    if (!s->function) fail_unknown(r, "filter", name);
    drop_args(&s->args, 1);
}

/* select('test', ...), selectattr('a.b', 'test', ...); without a test truth decides. */
static void start_select(struct jinja_run *r, struct stage *s)
{
    if (s->by_attr) {
        if (s->args.n_pos == 0) jinja_raise(r, "Missing parameter for attribute name");
        s->path = make_path(r, s->args.pos[0], false);
        drop_args(&s->args, 1);
    }
    if (s->args.n_pos == 0) return;
    struct jinja_value name = s->args.pos[0];
    s->function = jinja_is(name, JINJA_STR) ? jinja_find_function(jinja_tests, name.u.str) : NULL;
    if (!s->function) fail_unknown(r, "test", name);
    drop_args(&s->args, 1);
}

/* A value that is false gives nothing and is not looked into. */
static bool next_in_stage(struct jinja_run *r, void *state, struct jinja_value *ret)
{
    struct stage *s = state;
    if (!s->started) {
        if (!jinja_truth(s->source)) return false;
        (s->select ? start_select : start_map)(r, s);
        jinja_iter_start(r, &s->iter, s->source);
        s->started = true;
    }
    while (jinja_iter_next(r, &s->iter, ret)) {
        struct jinja_value v = follow(r, &s->path, *ret);
        if (s->function) v = jinja_apply(r, s->function, v, &s->args);
        if (!s->select) *ret = v;
        if (!s->select || jinja_truth(v) != s->reject) return true;
    }
    return false;
}

JINJA_IS(f_map, jinja_gen_new(r, next_in_stage, new_stage(r, v, args)))

static struct jinja_value select(struct jinja_run *r, struct jinja_value v,
                                 const struct jinja_args *args, bool by_attr, bool reject)
{
    struct stage *s = new_stage(r, v, args);
    s->select = true;
    s->by_attr = by_attr;
    s->reject = reject;
    return jinja_gen_new(r, next_in_stage, s);
}

JINJA_IS(f_select, select(r, v, args, false, false))
JINJA_IS(f_reject, select(r, v, args, false, true))
JINJA_IS(f_selectattr, select(r, v, args, true, false))
JINJA_IS(f_rejectattr, select(r, v, args, true, true))

/* Remembers what it has given; elements that cannot be hashed cannot be compared so. */
static bool next_unique(struct jinja_run *r, void *state, struct jinja_value *ret)
{
    struct stage *s = state;
    if (!s->started) jinja_iter_start(r, &s->iter, s->source);
    s->started = true;
    while (jinja_iter_next(r, &s->iter, ret)) {
        struct jinja_value key = follow(r, &s->path, *ret);
        if (jinja_dict_get(r, s->seen, key)) continue;
        jinja_dict_put(r, s->seen, key, jinja_none());
        return true;
    }
    return false;
}

JINJA_FN(f_unique)
{
    struct stage *s = new_stage(r, v, args);
    s->path = make_path(r, a[1], !jinja_truth(a[0]));
    s->seen = jinja_dict_new(r);
    return jinja_gen_new(r, next_unique, s);
}

/* Undefined is an empty mapping here, which is what the filter is for. */
static bool next_item(struct jinja_run *r, void *state, struct jinja_value *ret)
{
    struct stage *s = state;
    if (jinja_is(s->source, JINJA_UNDEFINED)) return false;
    if (!jinja_is(s->source, JINJA_DICT)) jinja_raise(r, "Can only get item pairs from a mapping.");
    const struct jinja_dict *d = s->source.u.dict;
    if (s->at >= d->n) return false;
    const struct jinja_pair *p = &d->pairs[s->at++];
    *ret = jinja_pair_tuple(r, p->key, p->value);
    return true;
}

JINJA_IS(f_items, jinja_gen_new(r, next_item, new_stage(r, v, args)))

/* ---- numbers ------------------------------------------------------------------------------- */

/* Of a text only its digits are read, with a sign and white space around them. */
JINJA_FN(f_int)
{
    struct jinja_value n;
    if (jinja_is(v, JINJA_UNDEFINED)) jinja_fail_undefined(r, v);
    if (jinja_is(v, JINJA_BOOL)) v.type = JINJA_INT;
    if (jinja_is_integer(v)) return v;
    if (jinja_is(v, JINJA_FLOAT)) {
        if (!(v.u.d > -9.0e18 && v.u.d < 9.0e18))
            jinja_raise(r, "int of a float beyond 64 bits is not supported in chat templates");
        return jinja_tainted(jinja_int((int64_t)v.u.d), v.input);
    }
    if (!jinja_is(v, JINJA_STR)) return jinja_or(a[0], jinja_int(0));
    const struct jinja_str *s = jinja_str_strip(r, v.u.str, NULL, JINJA_BOTH).u.str;
    jinja_spend(r, s->len);
    bool sign = s->len && (s->s[0] == '-' || s->s[0] == '+');
    if (!jinja_int_parse(r, s->s + sign, s->len - sign, sign && s->s[0] == '-', &n))
        jinja_raise(r, "int of a text other than an integer is not supported in chat templates");
    return jinja_tainted(n, (s->origin & JINJA_INPUT) != 0);
}

/* ---- JSON ---------------------------------------------------------------------------------- */

/* A number of blanks, or the text itself; none is not 0: that one breaks lines. */
static const struct jinja_str *json_indent(struct jinja_run *r, struct jinja_value v)
{
    if (jinja_is(v, JINJA_NONE) || jinja_is(v, JINJA_MISSING)) return NULL;
    if (jinja_is(v, JINJA_STR)) return v.u.str;
    struct jinja_sb sb = {.r = r};
    struct jinja_str blank = JINJA_TEXT(" ");
    jinja_sb_repeat(&sb, &blank, jinja_to_index(r, v));
    return jinja_sb_str(&sb);
}

/* json.dumps with transformers' defaults: nothing escaped for HTML, nothing for ASCII. */
JINJA_FN(f_tojson)
{
    struct jinja_json_style style = {.ensure_ascii = jinja_truth(a[0]),
                                     .sort_keys = jinja_truth(a[3])};
    style.indent = json_indent(r, a[1]);
    style.item_sep = jinja_lit(r, style.indent ? "," : ", ").u.str;
    style.key_sep = jinja_lit(r, ": ").u.str;
    if (!jinja_is(a[2], JINJA_MISSING) && !jinja_is(a[2], JINJA_NONE)) {
        const struct jinja_list *l = jinja_to_list(r, a[2]);
        if (l->n != 2) jinja_raise(r, "separators must be two strings, not %zu", l->n);
        style.item_sep = jinja_need_str(r, l->items[0], "item separator");
        style.key_sep = jinja_need_str(r, l->items[1], "key separator");
    }
    return jinja_json_dumps(r, v, &style);
}

const struct jinja_function jinja_filters[] = {
    {"tojson", f_tojson, {"ensure_ascii indent separators sort_keys", 0}},
    {"length", f_length, {"", 0}},
    {"count", f_length, {"", 0}},
    {"items", f_items, {"", 0}},
    {"join", f_join, {"d attribute", 0}},
    {"default", f_default, {"default_value boolean", 0}},
    {"d", f_default, {"default_value boolean", 0}},
    {"list", f_list, {"", 0}},
    {"selectattr", f_selectattr, {NULL, 0}},
    {"rejectattr", f_rejectattr, {NULL, 0}},
    {"select", f_select, {NULL, 0}},
    {"reject", f_reject, {NULL, 0}},
    {"map", f_map, {NULL, 0}},
    {"dictsort", f_dictsort, {"case_sensitive by reverse", 0}},
    {"unique", f_unique, {"case_sensitive attribute", 0}},
    {"sort", f_sort, {"reverse case_sensitive attribute", 0}},
    {"first", f_first, {"", 0}},
    {"last", f_last, {"", 0}},
    {"min", f_min, {"case_sensitive attribute", 0}},
    {"max", f_max, {"case_sensitive attribute", 0}},
    {"int", f_int, {"default", 0}},
    {NULL, NULL, {NULL, 0}},
};
