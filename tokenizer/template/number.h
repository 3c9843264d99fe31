/* SPDX-License-Identifier: MIT */
/*
 * Numbers of a template: integers of 64 bits and their arithmetic; longer ones as they are spelled,
 * and floats, are printed and compared.
 */
#ifndef HEARTH_TOKENIZER_TEMPLATE_NUMBER_H
#define HEARTH_TOKENIZER_TEMPLATE_NUMBER_H

#include "tokenizer/template/value.h"

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

#endif
