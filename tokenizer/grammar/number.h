/* SPDX-License-Identifier: MIT */
/*
 * JSON numbers within bounds, digit by digit. A number is never looked up: from the digits so far
 * follows the interval of the values they can become, and a digit may come only if that interval
 * still holds a number of the language.
 *
 * Bounds without multiples: sizes are compared digit by digit with those of the bounds, and all
 * that is kept is how the comparison stands. Bounds are inclusive and on the grid of the last
 * place, so an interval of digits and an interval of bounds have a number in common if they
 * overlap.
 *
 * With multiples or excluded values the size itself is kept, times a power of ten, in 128 bits.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct gram_build;
struct gram_decimal;

typedef unsigned __int128 gram_u128;

enum {
    GRAM_NUM_INTEGER_DIGITS = 19, /* before the point, unless a bound has more */
    GRAM_NUM_PLACES = 17,         /* after it */
    GRAM_NUM_MAX_EXPONENT = 199,
    GRAM_NUM_EXACT_DIGITS = 19, /* before the point, where values are kept */
};

/* The digits of a bound, the point left out. */
struct gram_num_bound {
    const char *digits;
    uint32_t n_integer, n_places; /* no zero at the end of the places */
};

/* The sizes that numbers of one sign may have. */
struct gram_num_side {
    bool possible, has_low, has_high;
    struct gram_num_bound low, high;
    gram_u128 exact_low, exact_high; /* if values are kept */
};

struct gram_number {
    bool integer;     /* neither fraction nor exponent */
    bool not_integer; /* the value is not an integer */
    bool exponent;    /* may have one */
    bool exact;       /* values are kept: */
    uint32_t max_integer, max_places;
    uint32_t places;              /* the value times 10^places is an integer */
    uint64_t multiple;            /* and a multiple of this */
    gram_u128 one;                /* 10^places */
    const gram_u128 *excluded[2]; /* and none of these, ascending, by sign */
    uint32_t n_excluded[2];
    struct gram_num_side side[2]; /* 0: zero and more, 1: negative */
};

/* Where a number stands. Zero-initialise; at most 128 bits matter besides the phase. */
struct gram_num_state {
    uint8_t phase;
    bool negative;
    uint16_t n_integer; /* digits so far */
    uint16_t n_places;
    uint8_t n_exponent;
    uint16_t exponent;
    int8_t low, high;   /* the digits so far against those of the bounds: -1, 0, 1 */
    bool nonzero_place; /* some digit after the point is not 0 */
    gram_u128 value;    /* exact: all digits so far as an integer */
};

/* Takes one byte. False, and *s is undefined, if no number of the language can begin so. */
bool gram_number_step(const struct gram_number *n, struct gram_num_state *s, uint8_t byte);

/* The digits so far are a number of the language. */
bool gram_number_complete(const struct gram_number *n, const struct gram_num_state *s);

/* Some byte can follow. */
bool gram_number_extends(const struct gram_number *n, const struct gram_num_state *s);

/* Bytes of a number that the digits so far can become, a short one; 0 if they are one. */
uint32_t gram_number_rest(const struct gram_number *n, const struct gram_num_state *s);

/* With values kept: there is a number of a sign (0: zero and more, 1: negative) at all. */
bool gram_number_side_fits(const struct gram_number *n, int sign);

/* Of a complete number whose value is kept. */
uint64_t gram_number_hash(const struct gram_num_state *s);

/* A state in 128 bits and a word, and back. */
void gram_number_pack(const struct gram_number *n, const struct gram_num_state *s, uint16_t *word,
                      uint64_t bits[2]);
void gram_number_unpack(const struct gram_number *n, struct gram_num_state *s, uint16_t word,
                        const uint64_t bits[2]);
