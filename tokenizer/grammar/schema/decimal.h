/* SPDX-License-Identifier: MIT */
/*
 * Exact decimal numbers, as JSON spells them: bounds, constants and multiples of a schema are
 * compared by value, never rounded.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gram_build;

/* (-1)^negative * digits * 10^exp; no zero at either end of the digits; no digits: zero. */
struct gram_decimal {
    bool negative;
    const char *digits; /* '0'..'9', not terminated */
    uint32_t n;
    int64_t exp;
};

/* The value of a JSON number, which a NUL follows, exactly. Its digits lie in temporary memory. */
struct gram_decimal gram_decimal_read(struct gram_build *b, const char *text, size_t len);

/*
 * The value of a bound: as it is if it is an integer of 64 bits, else the shortest decimal that
 * reads back as the same double. *ret_infinite is set if it is over every double (the value is
 * then only good for its sign).
 */
struct gram_decimal gram_decimal_bound(struct gram_build *b, const char *text, size_t len,
                                       bool *ret_infinite);

int gram_decimal_compare(const struct gram_decimal *x, const struct gram_decimal *y);

bool gram_decimal_is_integer(const struct gram_decimal *x);

/* Returns true if x * 10^places is an integer multiple of m, which is positive. */
bool gram_decimal_is_multiple(const struct gram_decimal *x, uint64_t m, int places);

/* Digits before the point (1 for values below 1) and after it. */
uint32_t gram_decimal_integer_digits(const struct gram_decimal *x);
uint32_t gram_decimal_places(const struct gram_decimal *x);

/* The digit for 10^power, '0' outside of the digits. */
char gram_decimal_digit(const struct gram_decimal *x, int64_t power);

/* The value times 10^places if that is an integer below 2^64; false if not. */
bool gram_decimal_scaled(const struct gram_decimal *x, int places, uint64_t *ret);

/*
 * The spelling as a JSON number, in temporary memory, NUL-terminated: plain digits unless
 * they are very many, else with an exponent.
 */
const char *gram_decimal_print(struct gram_build *b, const struct gram_decimal *x);
