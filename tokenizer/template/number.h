/* SPDX-License-Identifier: MIT */
/*
 * Numbers of a template: integers of 64 bits, floats, and the arithmetic between them; longer
 * integers as they are spelled.
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
};

const char *jinja_op_name(enum jinja_op op);

/* Both operands are numbers (bool, int, big, float). */
struct jinja_value jinja_arith(struct jinja_run *r, enum jinja_op op, struct jinja_value a,
                               struct jinja_value b);
struct jinja_value jinja_negate(struct jinja_run *r, struct jinja_value v);
/* -1, 0, 1; 2 where one is not a number (NaN). */
int jinja_num_compare(struct jinja_run *r, struct jinja_value a, struct jinja_value b);
uint64_t jinja_num_hash(struct jinja_run *r, struct jinja_value v);

/* float(v) of a number. */
double jinja_to_double(struct jinja_run *r, struct jinja_value v);
/* int(d), towards zero; fails for infinities, NaN and over 64 bits. */
struct jinja_value jinja_int_from_double(struct jinja_run *r, double d);

/* An index or a count: an int or a bool. Fails otherwise, and for integers over 64 bits. */
int64_t jinja_to_index(struct jinja_run *r, struct jinja_value v);
/* The same for the ends of a slice, where integers over 64 bits mean the furthest. */
int64_t jinja_to_bound(struct jinja_run *r, struct jinja_value v);

/* 0 to 35 for a digit or an ASCII letter, 99 for anything else. */
int jinja_digit_value(char c);

/*
 * An integer from digits of a base (2 to 36), underscores between them allowed. Returns false, and
 * nothing, when the text is not one, or has over 4,300 digits. Over 64 bits only in base 10.
 */
bool jinja_int_parse(struct jinja_run *r, const char *digits, size_t len, int base, bool negative,
                     struct jinja_value *ret);
/* The decimal digits of an integer, sign included; NUL-terminated, borrowed for the run. */
const char *jinja_int_digits(struct jinja_run *r, struct jinja_value v);

/* float(text) for sign, digits, underscores, point, exponent. False: it is none. */
bool jinja_float_parse(struct jinja_run *r, const char *text, size_t len, double *ret);
/* int(text), else int(float(text)), of ASCII text with white space around it. False: it is none. */
bool jinja_int_from_text(struct jinja_run *r, const struct jinja_str *s, struct jinja_value *ret);

#endif
