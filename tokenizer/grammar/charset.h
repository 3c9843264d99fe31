/* SPDX-License-Identifier: MIT */
/*
 * Sets of code points, as sorted ranges. The universe is U+0000-10FFFF without the surrogates. All
 * in temporary memory; a finished set is not changed any more.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gram_build;

struct gram_range {
    uint32_t lo, hi; /* both in it */
};

struct gram_charset {
    struct gram_range *ranges; /* sorted, disjoint, not touching; after gram_charset_finish */
    uint32_t n, cap;
};

#define GRAM_MAX_CODE_POINT 0x10FFFF

void gram_charset_add(struct gram_build *b, struct gram_charset *s, uint32_t lo, uint32_t hi);
void gram_charset_add_set(struct gram_build *b, struct gram_charset *s,
                          const struct gram_charset *other);

bool gram_charset_equal(const struct gram_charset *x, const struct gram_charset *y);

/* Sorts and joins, takes the surrogates out. */
void gram_charset_finish(struct gram_build *b, struct gram_charset *s);

/* The complement of a finished set. */
void gram_charset_invert(struct gram_build *b, struct gram_charset *s);

/* ECMA-262's classes: 'd', 'w', 's' and their complements 'D', 'W', 'S'; '.' is the dot. */
void gram_charset_add_class(struct gram_build *b, struct gram_charset *s, char name);

/*
 * \p{name}: a general category ("L", "Lu", "Letter", "General_Category=Lu", "gc=Lu"), "Any",
 * "ASCII", "Script=Latin", "sc=Latn". False if there is no such property.
 */
bool gram_charset_add_property(struct gram_build *b, struct gram_charset *s, const char *name,
                               size_t len);
