/* SPDX-License-Identifier: MIT */
/*
 * The values of a template: Python's, as far as templates can tell them apart.
 *
 * Values are small and passed by copy; what they point to lives in the arena of a run and never
 * changes, but for lists and dicts under construction and the few objects with a state (namespace,
 * loop, generator).
 *
 * Provenance: every string knows which of its bytes came from the request. The origin is a set of
 * bits; a string of both kinds has a parallel array with the origin of each byte. Other values from
 * the request carry a flag, so that their text counts as input too. Literals of the template and
 * what the library itself computes are trusted.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tokenizer/template/run.h"

struct jinja_function;
struct jinja_frame;
struct jinja_gen;
struct jinja_loop;
struct jinja_macro_code;

enum jinja_type {
    JINJA_MISSING, /* no value at all: an unset variable, an argument not given; never seen by
                      templates */
    JINJA_UNDEFINED,
    JINJA_NONE,
    JINJA_BOOL,
    JINJA_INT,
    JINJA_BIG, /* an integer over 64 bits: the text of its decimal digits */
    JINJA_FLOAT,
    JINJA_STR,
    JINJA_LIST,
    JINJA_TUPLE,
    JINJA_DICT,
    JINJA_RANGE,
    JINJA_VIEW, /* dict.keys(), .values(), .items() */
    JINJA_GEN,  /* an iterator: the result of map, select and similar */
    JINJA_NAMESPACE,
    JINJA_BUILTIN, /* a global function */
    JINJA_METHOD,  /* a built-in method with its object */
    JINJA_MACRO,
    JINJA_LOOP,
};

enum jinja_origin { JINJA_TRUSTED = 1, JINJA_INPUT = 2, JINJA_MIXED = 3 };

struct jinja_value {
    uint8_t type; /* enum jinja_type */
    bool input;   /* not for strings: came from the request */
    union {
        int64_t i; /* BOOL, INT */
        double d;
        const struct jinja_undefined *undefined;
        const struct jinja_str *str; /* STR; BIG: sign and digits, NUL-terminated */
        struct jinja_list *list;     /* LIST, TUPLE, VIEW */
        struct jinja_dict *dict;     /* DICT, NAMESPACE */
        const struct jinja_range *range;
        struct jinja_gen *gen;
        const struct jinja_function *builtin;
        const struct jinja_bound *method;
        const struct jinja_macro *macro;
        struct jinja_loop *loop;
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

struct jinja_macro {
    const struct jinja_macro_code *code;
    struct jinja_frame *frame; /* where it was defined */
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

/* ---- lists, tuples ------------------------------------------------------------------------- */

/* An empty list with room for n elements. */
struct jinja_list *jinja_list_new(struct jinja_run *r, size_t n);
/* A list of these elements. */
struct jinja_list *jinja_list_of(struct jinja_run *r, const struct jinja_value *items, size_t n);
struct jinja_value jinja_from_list(struct jinja_list *l);
struct jinja_value jinja_from_tuple(struct jinja_list *l);
void jinja_list_add(struct jinja_run *r, struct jinja_list *l, struct jinja_value v);
struct jinja_value jinja_pair_tuple(struct jinja_run *r, struct jinja_value a,
                                    struct jinja_value b);

/* ---- what Python's built-in functions say of a value --------------------------------------- */

/* type(v).__name__ */
const char *jinja_type_name(struct jinja_value v);
/* The same as the reference's messages have it: "dict object", "None". */
const char *jinja_object_name(struct jinja_value v);
bool jinja_truth(struct jinja_value v);
bool jinja_is_number(struct jinja_value v);  /* bool, int, big, float */
bool jinja_is_integer(struct jinja_value v); /* bool, int, big */
bool jinja_has_length(struct jinja_value v);
bool jinja_is_iterable(struct jinja_value v);

/* An argument that must be a string; `what` names it in the error. */
const struct jinja_str *jinja_need_str(struct jinja_run *r, struct jinja_value v, const char *what);
/* The same, but none and missing are NULL. */
const struct jinja_str *jinja_maybe_str(struct jinja_run *r, struct jinja_value v,
                                        const char *what);

/* ---- order and membership, order.c --------------------------------------------------------- */

/* a < b; `op` names the operator in the error. */
bool jinja_less(struct jinja_run *r, struct jinja_value a, struct jinja_value b, const char *op);
/* item in container */
bool jinja_contains(struct jinja_run *r, struct jinja_value container, struct jinja_value item);

/* Orders `keys` ascending (Python's sorted: stable, by < alone) and permutes `items` alike. */
void jinja_sort(struct jinja_run *r, struct jinja_value *keys, struct jinja_value *items, size_t n);

/* ---- undefined values ---------------------------------------------------------- */

/*
 * Undefined by variable name (borrowed for the run), by attribute of an object, or with a sentence
 * of its own (borrowed for the run). They print as nothing, and fail in most other uses.
 */
struct jinja_value jinja_undefined_name(struct jinja_run *r, const char *name);
struct jinja_value jinja_undefined_attr(struct jinja_run *r, struct jinja_value owner,
                                        const struct jinja_str *name);
struct jinja_value jinja_undefined_hint(struct jinja_run *r, const char *hint);
_Noreturn void jinja_fail_undefined(struct jinja_run *r, struct jinja_value v);

/* ---- numbers, number.c ---------------------------------------------------------------------- */

enum jinja_op {
    JINJA_ADD,
    JINJA_SUB,
    JINJA_MUL,
    JINJA_MOD,
};

const char *jinja_op_name(enum jinja_op op);

/* Both operands are numbers (bool, int, big, float). */
struct jinja_value jinja_arith(struct jinja_run *r, enum jinja_op op, struct jinja_value a,
                               struct jinja_value b);
struct jinja_value jinja_negate(struct jinja_run *r, struct jinja_value v);
/* -1, 0, 1; 2 where one is not a number (NaN). */
int jinja_num_compare(struct jinja_run *r, struct jinja_value a, struct jinja_value b);
uint64_t jinja_num_hash(struct jinja_run *r, struct jinja_value v);

/* An index or a count: an int or a bool. Fails otherwise, and for integers over 64 bits. */
int64_t jinja_to_index(struct jinja_run *r, struct jinja_value v);
/*
 * An integer from decimal digits. Returns false when the text is not one, or has over 4,300 digits.
 */
bool jinja_int_parse(struct jinja_run *r, const char *digits, size_t len, bool negative,
                     struct jinja_value *ret);
/* The decimal digits of an integer, sign included; NUL-terminated, borrowed for the run. */
const char *jinja_int_digits(struct jinja_run *r, struct jinja_value v);

/* ---- walks, iterate.c ----------------------------------------------------------------------- */

/* A place in a walk over the elements of a value. */
struct jinja_iter {
    struct jinja_value over;
    size_t at; /* element, or byte of a string */
};

/* Fails for values that are not iterable. */
void jinja_iter_start(struct jinja_run *r, struct jinja_iter *it, struct jinja_value v);
bool jinja_iter_next(struct jinja_run *r, struct jinja_iter *it, struct jinja_value *ret);
struct jinja_list *jinja_to_list(struct jinja_run *r, struct jinja_value v);

/* len(v) */
int64_t jinja_length(struct jinja_run *r, struct jinja_value v);

/*
 * A generator gives each element once. `next` computes the next one from `state` or returns false
 * from then on.
 */
struct jinja_gen {
    bool (*next)(struct jinja_run *r, void *state, struct jinja_value *ret);
    void *state;
    bool done;
};

struct jinja_value jinja_gen_new(struct jinja_run *r,
                                 bool (*next)(struct jinja_run *, void *, struct jinja_value *),
                                 void *state);
bool jinja_gen_next(struct jinja_run *r, struct jinja_gen *gen, struct jinja_value *ret);

/* The special variable of a for loop, and the walk itself. */
struct jinja_loop {
    struct jinja_value iterable;
    struct jinja_iter iter;
    int64_t index0;                            /* -1 before the first element */
    int64_t length;                            /* -1: not known yet */
    struct jinja_value before, current, after; /* after: peeked, or JINJA_MISSING */
    bool exhausted;
};

void jinja_loop_init(struct jinja_run *r, struct jinja_loop *loop, struct jinja_value iterable);
/* The next element; `loop` now describes it. */
bool jinja_loop_next(struct jinja_run *r, struct jinja_loop *loop, struct jinja_value *ret);
/* The number of elements; reads a generator to its end to know. */
int64_t jinja_loop_length(struct jinja_run *r, struct jinja_loop *loop);
/* The element after the current one, or JINJA_MISSING. */
struct jinja_value jinja_loop_peek(struct jinja_run *r, struct jinja_loop *loop);
