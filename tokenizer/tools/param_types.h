/* SPDX-License-Identifier: MIT */
/*
 * Which JSON types the schema of a tool allows each of its parameters: qwen-xml writes values
 * without quotes, so the schema says what a text stands for.
 *
 * Read are type, enum, const, anyOf, oneOf, allOf and local $ref. Threads: pure functions.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum param_type {
    PARAM_NULL = 1,
    PARAM_BOOLEAN = 2,
    PARAM_NUMBER = 4,
    PARAM_STRING = 8,
    PARAM_ARRAY = 16,
    PARAM_OBJECT = 32,
    PARAM_ANY = 63,
    PARAM_KNOWN = 64, /* the schema says something about the type */
};

struct param {
    char *name; /* owned; NULL: of an item or a key that is not declared */
    size_t name_len;
    unsigned types;
    const char *schema; /* of its own; borrowed from the tool's */
    size_t schema_len;
    bool required;
};

/* The parameters of a schema's text, valid JSON. Owned: param_types_free. 0 or TOK_ENOMEM. */
int param_types(const char *schema, size_t len, struct param **ret, size_t *ret_n);
void param_types_free(struct param *params, size_t n);

/* What a keyword of a schema, `items` or `additionalProperties`, says of values. Borrowed. */
struct param param_of(const char *schema, size_t len, const char *keyword);

/* The part of a schema that is about values of a type: where a $ref leads, or the only alternative
 * that allows the type. Borrowed. */
const char *param_branch(const char *schema, size_t len, enum param_type type, size_t *ret_len);

/* The parameter of this name, or NULL. */
const struct param *param_find(const struct param *params, size_t n, const char *name, size_t len);

/*
 * The keywords by which the schema of a tool, with its parameters params[0..n), says more than
 * which parameters there are, which of them are required and what each may be: a bit per name in
 * param_rules, which ends with NULL.
 */
enum { PARAM_RULE_REQUIRED = 1, PARAM_RULE_ALL_OF = 2 }; /* the first two */
extern const char *const param_rules[];
unsigned param_rules_of(const char *schema, size_t len, const struct param *params, size_t n);
