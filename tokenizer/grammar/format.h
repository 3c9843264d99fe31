/* SPDX-License-Identifier: MIT */
/*
 * The formats that are asserted: regular expressions of strings, and bounds of integers. Times have
 * no leap seconds, which common parsers refuse.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum gram_format {
    GRAM_FORMAT_NONE, /* not asserted */
    GRAM_FORMAT_REGEX,
    GRAM_FORMAT_INTEGER, /* int32, int64: bounds of integers */
};

enum gram_format gram_format_find(const char *name, size_t len);

/*
 * The expression that the whole string must match; *max is the longest it may be (0: no limit).
 * leap_seconds: with those at 23:59:60 UTC.
 */
const char *gram_format_regex(const char *name, size_t len, bool leap_seconds, uint32_t *ret_max);

/* The bounds of int32 or int64, as JSON numbers. */
void gram_format_bounds(const char *name, size_t len, const char **low, const char **high);
