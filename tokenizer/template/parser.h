/* SPDX-License-Identifier: MIT */
/*
 * The parser: statements (parser.c) and expressions (parse_expr.c), recursive descent over a
 * cursor.
 */
#pragma once

#include "tokenizer/template/ast.h"
#include "tokenizer/template/lexer.h"

/* Parses a template; its names are not resolved yet. */
void jinja_parse(struct jinja_run *r, const char *source, size_t len, struct jinja_tree *ret);

/* ---- expressions, for parser.c ------------------------------------------------------------- */

struct jinja_node *jinja_parse_expression(struct jinja_cursor *c, bool with_cond);

enum jinja_tuple_flags {
    JINJA_TUPLE_SIMPLE = 1,    /* names and literals only: targets */
    JINJA_TUPLE_NO_COND = 2,   /* elements are not conditional expressions */
    JINJA_TUPLE_PAREN = 4,     /* in parentheses: may be empty */
    JINJA_TUPLE_NAMESPACE = 8, /* ns.attr is allowed */
};
struct jinja_node *jinja_parse_tuple(struct jinja_cursor *c, unsigned flags);
/* A chain of filters on `subject` (NULL in filter blocks); with `inline_` the first has no '|'. */
struct jinja_node *jinja_parse_filters(struct jinja_cursor *c, struct jinja_node *subject,
                                       bool inline_);
