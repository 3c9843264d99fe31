/* SPDX-License-Identifier: MIT */
/*
 * The formats of strings that are asserted. Most are regular expressions. date-time and time know
 * when a leap second can be; they are functions from a state and a character to the next state, and
 * only where they meet other keywords a regular expression, without leap seconds other than at
 * 23:59:60 UTC itself.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum gram_format {
    GRAM_FORMAT_NONE,      /* not asserted */
    GRAM_FORMAT_DATE_TIME, /* functions */
    GRAM_FORMAT_TIME,
    GRAM_FORMAT_REGEX,
    GRAM_FORMAT_INTEGER, /* int32, int64: bounds of integers */
};

enum gram_format gram_format_find(const char *name, size_t len);

/* The expression that the whole string must match; *max is the longest it may be (0: no limit). */
const char *gram_format_regex(const char *name, size_t len, bool leap_seconds, uint32_t *ret_max);

/* The bounds of int32 or int64, as JSON numbers. */
void gram_format_bounds(const char *name, size_t len, const char **low, const char **high);

#define GRAM_FORMAT_DEAD UINT64_MAX

/* Functions: the first state is 0. f is the format, and may have this bit: no leap seconds. */
enum { GRAM_FORMAT_NO_LEAP = 128 };
uint64_t gram_format_step(unsigned f, uint64_t state, uint8_t c);
bool gram_format_complete(uint64_t state);
uint32_t gram_format_rest(unsigned f, uint64_t state); /* the fewest characters to that */
