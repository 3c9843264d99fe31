/* SPDX-License-Identifier: MIT */
/*
 * The values of a template: Python's, as far as templates can tell them apart.
 *
 * Values are small and passed by copy; what they point to lives in the arena of a run and never
 * changes, but for lists and dicts under construction and the few objects with a state (namespace,
 * cycler, joiner, loop, generator).
 *
 * Provenance: every string knows which of its bytes came from the request. The origin is a set of
 * bits; a string of both kinds has a parallel array with the origin of each byte. Other values from
 * the request carry a flag, so that their text counts as input too. Literals of the template and
 * what the library itself computes are trusted.
 */
#ifndef HEARTH_TOKENIZER_TEMPLATE_VALUE_H
#define HEARTH_TOKENIZER_TEMPLATE_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tokenizer/template/run.h"

struct jinja_big;
struct jinja_frame;
struct jinja_loop;
struct jinja_macro;
struct jinja_builtin;
struct jinja_gen;

enum jinja_type {
    JINJA_MISSING, /* no value at all: an unset variable, an argument not given; never seen by
                      templates */
    JINJA_UNDEFINED,
    JINJA_NONE,
    JINJA_BOOL,
    JINJA_INT,
    JINJA_BIG, /* an integer beyond 64 bits */
    JINJA_FLOAT,
    JINJA_STR,
    JINJA_LIST,
    JINJA_TUPLE,
    JINJA_DICT,
    JINJA_RANGE,
    JINJA_VIEW, /* dict.keys(), .values(), .items() */
    JINJA_GEN,  /* an iterator: what map, select, reverse and their like return */
    JINJA_NAMESPACE,
    JINJA_BUILTIN, /* a global function */
    JINJA_METHOD,  /* a built-in method with its object */
    JINJA_MACRO,
    JINJA_LOOP,
    JINJA_CYCLER,
    JINJA_JOINER,
};

enum jinja_origin { JINJA_TRUSTED = 1, JINJA_INPUT = 2, JINJA_MIXED = 3 };

struct jinja_value {
    uint8_t type; /* enum jinja_type */
    bool input;   /* not for strings: came from the request */
    union {
        int64_t i; /* BOOL, INT */
        double d;
        const struct jinja_big *big;
        const struct jinja_undefined *undefined;
        const struct jinja_str *str;
        struct jinja_list *list; /* LIST, TUPLE */
        struct jinja_dict *dict; /* DICT, NAMESPACE */
        const struct jinja_range *range;
        const struct jinja_view *view;
        struct jinja_gen *gen;
        const struct jinja_builtin *builtin;
        const struct jinja_bound *method;
        const struct jinja_macro *macro;
        struct jinja_loop *loop;
        struct jinja_cycler *cycler;
        struct jinja_joiner *joiner;
    } u;
};

/* How a value came to be undefined: what its use will say. */
struct jinja_undefined {
    const char *hint; /* the whole sentence, or NULL: made from name and owner */
    const char *name;
    const char *owner; /* "dict object" has no such attribute, or NULL: a variable */
};

struct jinja_str {
    const char *s; /* UTF-8, not NUL-terminated in general */
    size_t len;
    const uint8_t *mask; /* origin of each byte where origin is JINJA_MIXED, else NULL */
    struct jinja_sb
        *tail;      /* the buffer whose end this string is, or NULL: concatenation goes on in it */
    uint8_t origin; /* enum jinja_origin */
    bool markup;    /* HTML-safe: a Markup object */
};

struct jinja_list {
    struct jinja_value *items;
    size_t n;
    size_t cap;
    bool group; /* a tuple of groupby: has .grouper and .list */
};

struct jinja_pair {
    struct jinja_value key;
    struct jinja_value value;
    uint64_t hash;
};

/* In order of insertion; pairs are never taken out. */
struct jinja_dict {
    struct jinja_pair *pairs;
    size_t n;
    size_t cap;
    uint32_t *index; /* open addressing, position + 1; NULL while small */
    size_t n_index;  /* a power of two */
};

struct jinja_range {
    int64_t start, stop, step;
    int64_t n;
};

enum jinja_view_kind { JINJA_KEYS, JINJA_VALUES, JINJA_ITEMS };

struct jinja_view {
    enum jinja_view_kind kind;
    struct jinja_value dict;
};

struct jinja_cycler {
    struct jinja_list *items;
    size_t pos;
};

struct jinja_joiner {
    struct jinja_value sep;
    bool used;
};

/* A place in a walk over the elements of a value. */
struct jinja_iter {
    struct jinja_value over;
    size_t at; /* element, or byte of a string */
};

/* ---- making values ------------------------------------------------------------------------- */

static inline struct jinja_value jinja_missing(void)
{
    return (struct jinja_value){.type = JINJA_MISSING};
}

static inline struct jinja_value jinja_none(void)
{
    return (struct jinja_value){.type = JINJA_NONE};
}

static inline struct jinja_value jinja_bool(bool b)
{
    return (struct jinja_value){.type = JINJA_BOOL, .u.i = b};
}

static inline struct jinja_value jinja_int(int64_t i)
{
    return (struct jinja_value){.type = JINJA_INT, .u.i = i};
}

static inline struct jinja_value jinja_float(double d)
{
    return (struct jinja_value){.type = JINJA_FLOAT, .u.d = d};
}

static inline struct jinja_value jinja_from_str(const struct jinja_str *s)
{
    return (struct jinja_value){.type = JINJA_STR, .u.str = s};
}

static inline bool jinja_is(struct jinja_value v, enum jinja_type type)
{
    return v.type == type;
}

/* The value, marked as computed from `from` too (scalars and containers; strings know better). */
static inline struct jinja_value jinja_tainted(struct jinja_value v, bool input)
{
    v.input = v.input || input;
    return v;
}

/* Undefined: by variable name, by attribute of an object, or with a sentence of its own. */
struct jinja_value jinja_undefined_name(struct jinja_run *r, const char *name);
struct jinja_value jinja_undefined_attr(struct jinja_run *r, struct jinja_value owner,
                                        struct jinja_value name);
struct jinja_value jinja_undefined_hint(struct jinja_run *r, const char *hint);
_Noreturn void jinja_fail_undefined(struct jinja_run *r, struct jinja_value v);

/* ---- lists, tuples, dicts ------------------------------------------------------------------ */

/* An empty list with room for n elements; as a value by the two calls after it. */
struct jinja_list *jinja_list_new(struct jinja_run *r, size_t n);
struct jinja_value jinja_from_list(struct jinja_list *l);
struct jinja_value jinja_from_tuple(struct jinja_list *l);
void jinja_list_add(struct jinja_run *r, struct jinja_list *l, struct jinja_value v);
struct jinja_value jinja_pair_tuple(struct jinja_run *r, struct jinja_value a,
                                    struct jinja_value b);

struct jinja_dict *jinja_dict_new(struct jinja_run *r);
struct jinja_value jinja_from_dict(struct jinja_dict *d);
/* An equal key keeps its place and gets the new value. Fails for unhashable keys. */
void jinja_dict_put(struct jinja_run *r, struct jinja_dict *d, struct jinja_value key,
                    struct jinja_value value);
void jinja_dict_put_name(struct jinja_run *r, struct jinja_dict *d, const char *name,
                         struct jinja_value value);
/* The value of a key, or NULL. Fails for unhashable keys. */
struct jinja_value *jinja_dict_get(struct jinja_run *r, const struct jinja_dict *d,
                                   struct jinja_value key);
struct jinja_value *jinja_dict_get_name(struct jinja_run *r, const struct jinja_dict *d,
                                        const char *name);

/* ---- what Python's built-in functions say of a value --------------------------------------- */

/* type(v).__name__ */
const char *jinja_type_name(struct jinja_value v);
/* The same as the reference's messages have it: "dict object", "None". */
const char *jinja_object_name(struct jinja_value v);
/* NULL: the body of a call block. (exec.c) */
const struct jinja_str *jinja_macro_name(const struct jinja_macro *macro);
bool jinja_truth(struct jinja_value v);
bool jinja_is_number(struct jinja_value v);  /* bool, int, big, float */
bool jinja_is_integer(struct jinja_value v); /* bool, int, big */
bool jinja_has_length(struct jinja_value v);
bool jinja_is_iterable(struct jinja_value v);
bool jinja_is_callable(struct jinja_value v);
bool jinja_is_hashable(struct jinja_run *r, struct jinja_value v);

/* len(v) */
int64_t jinja_length(struct jinja_run *r, struct jinja_value v);

bool jinja_equal(struct jinja_run *r, struct jinja_value a, struct jinja_value b);
bool jinja_same(struct jinja_value a, struct jinja_value b); /* a is b */
/* a < b; `op` names the operator in the error. */
bool jinja_less(struct jinja_run *r, struct jinja_value a, struct jinja_value b, const char *op);
/* item in container */
bool jinja_contains(struct jinja_run *r, struct jinja_value container, struct jinja_value item);
uint64_t jinja_hash(struct jinja_run *r, struct jinja_value v);

/* Walks; fails for what cannot be walked. */
void jinja_iter_start(struct jinja_run *r, struct jinja_iter *it, struct jinja_value v);
bool jinja_iter_next(struct jinja_run *r, struct jinja_iter *it, struct jinja_value *ret);
struct jinja_list *jinja_to_list(struct jinja_run *r, struct jinja_value v);

/* The elements of v from the last to the first, as a list; fails for what cannot be reversed. */
struct jinja_list *jinja_reversed(struct jinja_run *r, struct jinja_value v);

/* An index or a count: an int or a bool. Fails otherwise, and for integers beyond 64 bits. */
int64_t jinja_to_index(struct jinja_run *r, struct jinja_value v);
/* The same for the ends of a slice, where integers beyond 64 bits stand for the furthest. */
int64_t jinja_to_bound(struct jinja_run *r, struct jinja_value v);

/* Orders `keys` ascending (Python's sorted: stable, by < alone) and permutes `items` alike. */
void jinja_sort(struct jinja_run *r, struct jinja_value *keys, struct jinja_value *items, size_t n,
                bool reverse);

#endif
