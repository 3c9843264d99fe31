/* SPDX-License-Identifier: MIT */
/*
 * Template source as tokens, and the cursor with which the parser reads them.
 */
#pragma once

#include "tokenizer/template/value.h"

/* Of a token; an operator of one character is that character. */
enum jinja_token_type {
    JINJA_T_EOF,
    JINJA_T_DATA,
    JINJA_T_VARIABLE_BEGIN,
    JINJA_T_VARIABLE_END,
    JINJA_T_BLOCK_BEGIN,
    JINJA_T_BLOCK_END,
    JINJA_T_NAME,
    JINJA_T_STRING,
    JINJA_T_NUMBER,
    JINJA_T_FLOORDIV = '/' << 8 | '/',
    JINJA_T_POW = '*' << 8 | '*',
    JINJA_T_EQ = '=' << 8 | '=',
    JINJA_T_NE = '!' << 8 | '=',
    JINJA_T_GTEQ = '>' << 8 | '=',
    JINJA_T_LTEQ = '<' << 8 | '=',
};

struct jinja_token {
    int type;
    int line;
    const struct jinja_str *text; /* DATA, NAME, STRING */
    struct jinja_value number;    /* INTEGER, FLOAT */
};

/* The tokens of a template and the place of the parser among them. */
struct jinja_cursor {
    struct jinja_run *r;
    struct jinja_token *tokens; /* the last is EOF */
    size_t n, cap;
    size_t at;
    int depth; /* of the recursive descent */
};

/* Cuts a template into tokens and starts at the first; fails on text that is not a token. */
void jinja_lex(struct jinja_run *r, const char *source, size_t len, struct jinja_cursor *ret);

const struct jinja_token *jinja_peek(const struct jinja_cursor *c);
const struct jinja_token *jinja_look(const struct jinja_cursor *c); /* one further */
const struct jinja_token *jinja_advance(struct jinja_cursor *c);    /* returns the one it leaves */
bool jinja_at_name(const struct jinja_cursor *c, const char *name);
bool jinja_skip_name(struct jinja_cursor *c, const char *name);
bool jinja_skip(struct jinja_cursor *c, int type);
const struct jinja_token *jinja_expect(struct jinja_cursor *c, int type, const char *what);

void jinja_descend(struct jinja_cursor *c); /* one level deeper; fails at JINJA_MAX_NESTING */
void jinja_ascend(struct jinja_cursor *c);

/* The name of a token in errors. */
const char *jinja_token_name(const struct jinja_token *t, struct jinja_run *r);
