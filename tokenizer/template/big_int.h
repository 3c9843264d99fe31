/* SPDX-License-Identifier: MIT */
/*
 * Integers beyond 64 bits: sign and magnitude, bounded. Results come back as the smallest kind of
 * value that holds them.
 */
#ifndef HEARTH_TOKENIZER_TEMPLATE_BIG_INT_H
#define HEARTH_TOKENIZER_TEMPLATE_BIG_INT_H

#include "tokenizer/template/value.h"

enum { JINJA_BIG_LIMBS = 1024 }; /* 32768 bits */

struct jinja_big {
    bool negative;
    uint32_t n;      /* limbs in use, the highest is not 0 */
    uint32_t limb[]; /* least significant first */
};

/* An INT, BOOL or BIG as a big. */
const struct jinja_big *jinja_big_of(struct jinja_run *r, struct jinja_value v);

struct jinja_value jinja_big_add(struct jinja_run *r, const struct jinja_big *a,
                                 const struct jinja_big *b, bool subtract);
struct jinja_value jinja_big_mul(struct jinja_run *r, const struct jinja_big *a,
                                 const struct jinja_big *b);
/* Floor division: q * b + rem = a, rem has the sign of b. b is not 0. */
void jinja_big_divmod(struct jinja_run *r, const struct jinja_big *a, const struct jinja_big *b,
                      struct jinja_value *ret_q, struct jinja_value *ret_rem);
int jinja_big_compare(const struct jinja_big *a, const struct jinja_big *b);
/* a / b to the nearest double. b is not 0. */
double jinja_big_ratio(struct jinja_run *r, const struct jinja_big *a, const struct jinja_big *b);
/* a / 2^(32 down) as the nearest double, infinite if it does not fit. */
double jinja_big_double(const struct jinja_big *a, uint32_t down);
/* An integral double of 2^53 or more. */
struct jinja_value jinja_big_from_double(struct jinja_run *r, double d);

/* A 64-bit integer with room for n >= 2 limbs. */
struct jinja_big *jinja_big_start(struct jinja_run *r, int64_t i, size_t n);
/* a = a * factor + digit, for reading digits. Takes a not negative, with room for all limbs. */
void jinja_big_push(struct jinja_run *r, struct jinja_big *a, uint32_t factor, uint32_t digit);
/* The value of a, which the caller does not change any more. */
struct jinja_value jinja_big_value(struct jinja_big *a);
char *jinja_big_digits(struct jinja_run *r, const struct jinja_big *a, int base);

#endif
