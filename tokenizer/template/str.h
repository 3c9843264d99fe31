/* SPDX-License-Identifier: MIT */
/*
 * Strings with provenance: the builder that every text operation goes through, and the operations
 * that filters, methods and printing share.
 *
 * Strings are valid UTF-8 throughout. Positions and lengths here are bytes unless a name says
 * chars, which are code points. Whatever copies text copies its origin with it.
 */
#pragma once

#include "tokenizer/template/value.h"

/* A growing text, on the stack or in the arena; starts as {.r = run}. Its bytes are the arena's. */
struct jinja_sb {
    struct jinja_run *r;
    char *data;
    uint8_t *mask; /* once both origins occur */
    size_t len;
    size_t cap;
    size_t max_bytes; /* 0: the arena's own limit */
    uint8_t origin;
};

void jinja_sb_add(struct jinja_sb *sb, const struct jinja_str *s);
void jinja_sb_add_part(struct jinja_sb *sb, const struct jinja_str *s, size_t begin, size_t len);
void jinja_sb_add_bytes(struct jinja_sb *sb, const char *bytes, size_t len, uint8_t origin);
void jinja_sb_add_lit(struct jinja_sb *sb, const char *text); /* trusted */
void jinja_sb_add_cp(struct jinja_sb *sb, int32_t cp, uint8_t origin);
void jinja_sb_repeat(struct jinja_sb *sb, const struct jinja_str *s, int64_t times);
/* Adds s between quotes; `put` adds the control characters, quotes and backslashes in it, and with
 * `ascii` all that is not printable ASCII. */
void jinja_sb_add_quoted(struct jinja_sb *sb, const struct jinja_str *s, char quote, bool ascii,
                         void (*put)(struct jinja_sb *sb, int32_t cp, char quote, uint8_t origin));

/* The text as a string; the builder is done. */
struct jinja_str *jinja_sb_str(struct jinja_sb *sb);
struct jinja_value jinja_sb_value(struct jinja_sb *sb);
/* The same, Markup if `like` is. */
struct jinja_value jinja_sb_value_like(struct jinja_sb *sb, const struct jinja_str *like);

/* Initializer of a string with trusted text that outlives it. */
#define JINJA_TEXT(text)                                                                           \
    {                                                                                              \
        .s = (text), .len = sizeof(text) - 1, .origin = JINJA_TRUSTED                              \
    }

/* ---- making strings ------------------------------------------------------------------------ */

/* A copy of the bytes. */
struct jinja_str *jinja_str_new(struct jinja_run *r, const char *bytes, size_t len, uint8_t origin);
/* Trusted text that outlives the run, not copied. */
struct jinja_value jinja_lit(struct jinja_run *r, const char *text);
/* Bytes [begin, begin + len) of s, sharing its memory. */
const struct jinja_str *jinja_str_part(struct jinja_run *r, const struct jinja_str *s, size_t begin,
                                       size_t len);
struct jinja_value jinja_str_part_value(struct jinja_run *r, const struct jinja_str *s,
                                        size_t begin, size_t len);
/* a + b; a Markup on either side escapes the other. */
const struct jinja_str *jinja_str_concat(struct jinja_run *r, const struct jinja_str *a,
                                         const struct jinja_str *b);
/* The same text as Markup or as a plain string. */
const struct jinja_str *jinja_str_as(struct jinja_run *r, const struct jinja_str *s, bool markup);
const struct jinja_str *jinja_str_escape(struct jinja_run *r, const struct jinja_str *s);
/* The same text, all of it counted as input. */
const struct jinja_str *jinja_str_tainted(struct jinja_run *r, const struct jinja_str *s);

/* ---- looking at strings -------------------------------------------------------------------- */

bool jinja_str_is(const struct jinja_str *s, const char *text);
bool jinja_str_equal(const struct jinja_str *a, const struct jinja_str *b);
int jinja_str_compare(const struct jinja_str *a, const struct jinja_str *b); /* by code point */
bool jinja_str_is_digits(const struct jinja_str *s); /* ASCII, and not empty */
bool jinja_str_starts(const struct jinja_str *s, const struct jinja_str *prefix);
bool jinja_str_ends(const struct jinja_str *s, const struct jinja_str *suffix);
/* Position of needle at or after `from`, or SIZE_MAX. */
size_t jinja_str_find(const struct jinja_str *s, const struct jinja_str *needle, size_t from);
uint8_t jinja_str_origin_at(const struct jinja_str *s, size_t at);

size_t jinja_str_chars(struct jinja_run *r, const struct jinja_str *s);
/* Position of the nth character; the length when there are fewer. */
size_t jinja_str_char_at(struct jinja_run *r, const struct jinja_str *s, size_t nth);
/* The code point at *at, which is moved past it. */
int32_t jinja_str_next(const struct jinja_str *s, size_t *at);
/* White space, as Python has it. */
bool jinja_cp_space(int32_t cp);
/* The position from `at` on of the first character that is not wanted. */
size_t jinja_str_skip(const struct jinja_str *s, size_t at, bool (*wanted)(int32_t cp));
/* The position of the character that ends at `end`; its code point in *ret. */
size_t jinja_str_prev(const struct jinja_str *s, size_t end, int32_t *ret);
