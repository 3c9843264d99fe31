/* SPDX-License-Identifier: MIT */
/*
 * Finding filters and tests by name, binding arguments to parameters, and applying. The tables are
 * in the files of each kind.
 */
#include "tokenizer/template/library.h"

#include <assert.h>
#include <string.h>

const struct jinja_function *jinja_find_function(const struct jinja_function *table,
                                                 const struct jinja_str *name)
{
    for (; table->name; table++)
        if (jinja_str_is(name, table->name)) return table;
    return NULL;
}

const struct jinja_function *jinja_find_filter(const struct jinja_str *name)
{
    const struct jinja_function *f = jinja_find_function(jinja_filters, name);
    return f ? f : jinja_find_function(jinja_text_filters, name);
}

/* The position of a name in a list, or -1. */
static int find_name(const char *names, const struct jinja_str *name)
{
    for (int i = 0; *names; i++) {
        size_t n = strcspn(names, " ");
        if (n == name->len && memcmp(names, name->s, n) == 0) return i;
        names += n + (names[n] == ' ');
    }
    return -1;
}

static size_t count_params(const char *params)
{
    size_t n = *params != '\0';
    for (; *params; params++)
        n += *params == ' ';
    return n;
}

/* Sorts arguments into parameters: ret[i] is the ith, or JINJA_MISSING. */
static void bind(struct jinja_run *r, const char *name, struct jinja_signature signature,
                 const struct jinja_args *args, struct jinja_value ret[JINJA_MAX_PARAMS])
{
    bool by_name = signature.params[0] != '/';
    const char *params = signature.params + !by_name;
    size_t n = count_params(params);
    assert(n <= JINJA_MAX_PARAMS && signature.n_required <= n);
    for (size_t i = 0; i < JINJA_MAX_PARAMS; i++)
        ret[i] = jinja_missing();
    if (args->n_pos > n)
        jinja_raise(r, "%s takes at most %zu argument(s), %zu given", name, n, args->n_pos);
    for (size_t i = 0; i < args->n_pos; i++)
        ret[i] = args->pos[i];
    for (size_t i = 0; i < args->n_kw; i++) {
        int at = by_name ? find_name(params, args->keys[i]) : -1;
        if (at < 0)
            jinja_raise(r, "%s got an unexpected keyword argument '%.*s'", name,
                        (int)args->keys[i]->len, args->keys[i]->s);
        if (!jinja_is(ret[at], JINJA_MISSING))
            jinja_raise(r, "%s got multiple values for argument '%.*s'", name,
                        (int)args->keys[i]->len, args->keys[i]->s);
        ret[at] = args->kw[i];
    }
    for (size_t i = 0; i < signature.n_required; i++)
        if (jinja_is(ret[i], JINJA_MISSING))
            jinja_raise(r, "%s is missing a required argument (%zu of %zu)", name, i + 1, n);
}

struct jinja_value jinja_apply(struct jinja_run *r, const struct jinja_function *f,
                               struct jinja_value v, const struct jinja_args *args)
{
    struct jinja_value bound[JINJA_MAX_PARAMS];
    if (f->signature.params) bind(r, f->name, f->signature, args, bound);
    return f->call(r, v, bound, args);
}
