/* SPDX-License-Identifier: MIT */
/*
 * The library of templates: filters, tests, methods and global functions, each a row of a table.
 */
#pragma once

#include "tokenizer/template/str.h"

/* The arguments of a call, evaluated. */
struct jinja_args {
    struct jinja_value *pos;
    size_t n_pos;
    const struct jinja_str **keys;
    struct jinja_value *kw;
    size_t n_kw;
};

enum { JINJA_MAX_PARAMS = 6 };

/*
 * A function with Python-like parameters: `params` names them, separated by blanks, the first
 * n_required of them must be given. After a leading '/' they cannot be given by name. A function
 * with params NULL takes whatever comes, as `args`.
 */
struct jinja_signature {
    const char *params;
    size_t n_required;
};

/*
 * A filter, a test, a method or a global function: `v` is the value before the bar or `is`, or the
 * object; `a` are the bound parameters, `args` the raw arguments.
 */
struct jinja_function {
    const char *name;
    struct jinja_value (*call)(struct jinja_run *r, struct jinja_value v,
                               const struct jinja_value *a, const struct jinja_args *args);
    struct jinja_signature signature;
};

struct jinja_bound {
    const struct jinja_function *method;
    struct jinja_value self;
};

/* The heads of table functions; not every one needs all it is given. */
#define JINJA_UNUSED __attribute__((unused))
#define JINJA_FN(fn)                                                                               \
    static struct jinja_value fn(                                                                  \
        JINJA_UNUSED struct jinja_run *r, JINJA_UNUSED struct jinja_value v,                       \
        JINJA_UNUSED const struct jinja_value *a, JINJA_UNUSED const struct jinja_args *args)

/* The same with a body of one expression. */
#define JINJA_IS(fn, result)                                                                       \
    JINJA_FN(fn)                                                                                   \
    {                                                                                              \
        return result;                                                                             \
    }

/* The tables; the last row has no name. */
extern const struct jinja_function jinja_filters[];      /* filters.c */
extern const struct jinja_function jinja_text_filters[]; /* filters_text.c */
extern const struct jinja_function jinja_tests[];        /* is_tests.c: of bools */
extern const struct jinja_function jinja_str_methods[];  /* methods.c */

/* By name, or NULL. */
const struct jinja_function *jinja_find_function(const struct jinja_function *table,
                                                 const struct jinja_str *name);
const struct jinja_function *jinja_find_filter(const struct jinja_str *name);

struct jinja_value jinja_apply(struct jinja_run *r, const struct jinja_function *f,
                               struct jinja_value v, const struct jinja_args *args);

/* obj.name and obj[key] as the sandbox has them: a member not there, or not safe, is undefined. */
struct jinja_value jinja_getattr(struct jinja_run *r, struct jinja_value obj,
                                 struct jinja_value name);
struct jinja_value jinja_getitem(struct jinja_run *r, struct jinja_value obj,
                                 struct jinja_value key);
/* obj[start:stop:step]; JINJA_NONE or JINJA_MISSING for those left out. */
struct jinja_value jinja_slice(struct jinja_run *r, struct jinja_value obj,
                               struct jinja_value start, struct jinja_value stop,
                               struct jinja_value step);

/* a op b on numbers, strings and lists. */
struct jinja_value jinja_binary(struct jinja_run *r, int op, struct jinja_value a,
                                struct jinja_value b);

/*
 * sep.join(str(x) for x in items); with `strict` every element must be a string. (filters_text.c)
 */
struct jinja_value jinja_str_join(struct jinja_run *r, const struct jinja_str *sep,
                                  struct jinja_value items, bool strict);

/* format.format(*args, **kwargs), of the fields {}, {0} and {name}. */
struct jinja_value jinja_format(struct jinja_run *r, const struct jinja_str *format,
                                const struct jinja_args *args);
/* Fails if the format is wrong or has a field of another kind. */
void jinja_check_format(struct jinja_run *r, const struct jinja_str *format);

/* The global functions of every template, added to a context that does not have them. */
void jinja_add_globals(struct jinja_run *r, struct jinja_dict *context);

/* A default for a parameter that was not given. */
static inline struct jinja_value jinja_or(struct jinja_value v, struct jinja_value otherwise)
{
    return v.type == JINJA_MISSING ? otherwise : v;
}
