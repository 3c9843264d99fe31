/* SPDX-License-Identifier: MIT */
/*
 * Text operations that filters and str methods share, with Python's semantics. They cost time
 * linear in their input and output.
 */
#pragma once

#include "tokenizer/template/str.h"

enum jinja_case { JINJA_UPPER, JINJA_LOWER, JINJA_TITLE, JINJA_CAPITALIZE };

/* A new string in the other case; Markup stays Markup. */
struct jinja_value jinja_str_case(struct jinja_run *r, const struct jinja_str *s,
                                  enum jinja_case to);

enum jinja_sides { JINJA_LEFT = 1, JINJA_RIGHT = 2, JINJA_BOTH = 3 };

/* Without leading and/or trailing characters of `chars` (NULL: white space). */
struct jinja_value jinja_str_strip(struct jinja_run *r, const struct jinja_str *s,
                                   const struct jinja_str *chars, enum jinja_sides sides);

/* At most `count` replacements, all where it is negative. */
struct jinja_value jinja_str_replace(struct jinja_run *r, const struct jinja_str *s,
                                     const struct jinja_str *old, const struct jinja_str *new_,
                                     int64_t count);

/* Pieces between separators (NULL: runs of white space); at most max splits where it is >= 0. */
struct jinja_list *jinja_str_split(struct jinja_run *r, const struct jinja_str *s,
                                   const struct jinja_str *sep, int64_t max);
struct jinja_list *jinja_str_lines(struct jinja_run *r, const struct jinja_str *s, bool keep_ends);
