/* SPDX-License-Identifier: MIT */
/*
 * Numbers of a template: Python's integers (64 bits, and beyond that up to a bound), floats, and
 * the arithmetic between them.
 */
#ifndef HEARTH_TOKENIZER_TEMPLATE_NUMBER_H
#define HEARTH_TOKENIZER_TEMPLATE_NUMBER_H

#include "tokenizer/template/value.h"

enum jinja_op {
    JINJA_ADD,
    JINJA_SUB,
    JINJA_MUL,
    JINJA_DIV,
    JINJA_FLOORDIV,
    JINJA_MOD,
    JINJA_POW,
};

const char *jinja_op_name(enum jinja_op op);

/* Both operands are numbers (bool, int, big, float). */
struct jinja_value jinja_arith(struct jinja_run *r, enum jinja_op op, struct jinja_value a,
                               struct jinja_value b);
struct jinja_value jinja_negate(struct jinja_run *r, struct jinja_value v);
/* -1, 0, 1; 2 where one is not a number (NaN). */
int jinja_num_compare(struct jinja_run *r, struct jinja_value a, struct jinja_value b);
uint64_t jinja_num_hash(struct jinja_run *r, struct jinja_value v);

/* float(v) of a number; fails where an integer is too large. */
double jinja_to_double(struct jinja_run *r, struct jinja_value v);
/* int(d), towards zero; fails for infinities and NaN. */
struct jinja_value jinja_int_from_double(struct jinja_run *r, double d);
/* The sign of an integer: -1, 0, 1. */
int jinja_int_sign(struct jinja_value v);

/* An index or a count: an int or a bool. Fails otherwise, and for integers beyond 64 bits. */
int64_t jinja_to_index(struct jinja_run *r, struct jinja_value v);
/* The same for the ends of a slice, where integers beyond 64 bits mean the furthest. */
int64_t jinja_to_bound(struct jinja_run *r, struct jinja_value v);

/* 0 to 35 for a digit or an ASCII letter, 99 for anything else. */
int jinja_digit_value(char c);

/*
 * An integer from digits of a base (2 to 36), underscores between them allowed. Returns false, and
 * nothing, when the text is not one. Fails when it is too large.
 */
bool jinja_int_parse(struct jinja_run *r, const char *digits, size_t len, int base, bool negative,
                     struct jinja_value *ret);
/* The digits of an integer, sign included. Returned string is the arena's. */
char *jinja_int_digits(struct jinja_run *r, struct jinja_value v, int base);

/* float(text) as Python reads it: white space, sign, underscores, inf, nan. False: it is none. */
bool jinja_float_parse(struct jinja_run *r, const char *text, size_t len, double *ret);
/* int(text, base) as Python reads it. False: it is none. */
bool jinja_int_from_text(struct jinja_run *r, const struct jinja_value *text, int base,
                         struct jinja_value *ret);

/* round(v, digits) of a number. */
struct jinja_value jinja_round(struct jinja_run *r, struct jinja_value v, int64_t digits);

#endif
