/* SPDX-License-Identifier: MIT */
/*
 * What the components of tokenizer.json have in common: typed access to their members, sequences of
 * them, and patterns ({"String": ...} or {"Regex": ...}) with the successive matches in a text.
 *
 * Errors: TOK_EINVAL with a sentence in err that names the component and the member.
 */
#ifndef HEARTH_TOKENIZER_COMPONENT_H
#define HEARTH_TOKENIZER_COMPONENT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tokenizer/regex.h"

/* Components a Sequence may hold in all. */
#define TOK_MAX_COMPONENTS 64

/* A string of ours, owned. */
struct tok_component_text {
    char *s;
    size_t len;
};
void tok_component_text_finish(struct tok_component_text *t);

/* Members of a component. fallback NULL: the member is required. JSON null counts as absent. */
int tok_component_bool(const json_t *json, const char *name, const bool *fallback, bool *ret,
                       char *err, size_t errlen);
int tok_component_uint(const json_t *json, const char *name, uint32_t max, uint32_t *ret, char *err,
                       size_t errlen);
/* ret->s is owned: tok_component_text_finish. */
int tok_component_string(const json_t *json, const char *name, struct tok_component_text *ret,
                         char *err, size_t errlen);
/* A string of exactly one character. */
int tok_component_char(const json_t *json, const char *name, uint32_t *ret, char *err,
                       size_t errlen);

/* The "unknown component" sentence; returns TOK_EINVAL. what is "normalizer" or the like. */
int tok_component_unknown(const char *what, const char *type, char *err, size_t errlen);

typedef int tok_component_fn(void *data, const char *type, const json_t *json, char *err,
                             size_t errlen);

/*
 * Calls fn for the component, or for each one of a Sequence in order (sequences may nest); `list`
 * is the Sequence's member. NULL and JSON null are no component. Stops at fn's first error.
 */
int tok_component_visit(const char *what, const char *list, const json_t *json,
                        tok_component_fn *fn, void *data, char *err, size_t errlen);

/* A pattern: a literal, or a regular expression when re is set. */
struct tok_component_pattern {
    struct tok_component_text literal;
    struct tok_regex *re;
};

/* Loads the member "pattern". Release with tok_component_pattern_finish. */
int tok_component_pattern(const json_t *json, const struct tok_uni *uni,
                          struct tok_component_pattern *ret, char *err, size_t errlen);
void tok_component_pattern_finish(struct tok_component_pattern *p);

struct tok_pattern_iter {
    const struct tok_component_pattern *p;
    struct tok_regex_iter re;
};

struct tok_pattern_iter tok_pattern_iter(const struct tok_component_pattern *p, const char *text,
                                         size_t len);

/* As tok_regex_next. */
int tok_pattern_next(struct tok_pattern_iter *it, struct tok_regex_scratch *s, size_t *ret_begin,
                     size_t *ret_end, char *err, size_t errlen);

#endif
