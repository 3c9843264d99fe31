/* SPDX-License-Identifier: MIT */
/*
 * A writer of JSON text over a bounded buffer. It sets commas and colons, escapes strings, closes
 * each container with its own bracket and knows its depth, so that a text that was written to its
 * end is valid JSON. Compact: no white space.
 *
 *     jw_init(&w, &b);
 *     jw_open(&w, NULL, '{');
 *     jw_text(&w, "object", "list");
 *     jw_open(&w, "data", '[');
 *     jw_int(&w, NULL, 1);
 *     jw_close(&w);
 *     jw_close(&w);
 *     srv_reply(req, 200, NULL, jw_end(&w));
 *
 * Every value takes the member's name first: plain ASCII that needs no escape, NULL in an array, at
 * the top and after jw_key. A wrong order of calls is our mistake and asserted. A buffer that is
 * full or out of memory is noted in the buffer as always; the writer goes on.
 *
 * Threads: unsafe; one owner at a time.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf;

/* Deepest nesting that can be written. */
enum { JW_MAX_DEPTH = 32 };

struct jw {
    struct buf *out;  /* borrowed; may be replaced between two calls, to write a text in pieces */
    uint32_t objects; /* bit d: the container open at depth d + 1 is an object */
    int depth;        /* containers open */
    bool comma;       /* a value is in front of the next one */
    bool named;       /* jw_key has named the next value */
    bool in_string;   /* between jw_string_begin and jw_string_end */
};

/* Borrows out until jw_end. Text that is in it already stays in front. */
void jw_init(struct jw *w, struct buf *out);

/* Asserts that everything that was opened is closed; returns the buffer. */
struct buf *jw_end(struct jw *w);

/* bracket: '{' or '['. jw_close writes the bracket that closes the innermost container. */
void jw_open(struct jw *w, const char *name, char bracket);
void jw_close(struct jw *w);

/* The name of the next value, any text. */
void jw_key(struct jw *w, const char *name, size_t len);

/* Invalid UTF-8 becomes U+FFFD, one per byte. What base/shown.h calls unsafe is escaped, so that
 * JSON on a terminal does not control it either. */
void jw_string(struct jw *w, const char *name, const char *text, size_t len);

/* A string up to its NUL, or of len bytes; NULL is written as null. */
void jw_text(struct jw *w, const char *name, const char *text);
void jw_string_or_null(struct jw *w, const char *name, const char *text, size_t len);

/* One string in several parts, each of whole characters. */
void jw_string_begin(struct jw *w, const char *name);
void jw_string_part(struct jw *w, const char *text, size_t len);
void jw_string_end(struct jw *w);

/* The next part of a text inside a string, from byte *at on: whole characters, about max bytes.
 * Returns true, and sets *at to 0, after the last. */
bool jw_string_next(struct jw *w, const char *text, size_t len, size_t max, int64_t *at);

void jw_int(struct jw *w, const char *name, int64_t value);

/* The same; null for a negative one. */
void jw_count(struct jw *w, const char *name, int64_t value);

/* An array of n integers. */
void jw_ints(struct jw *w, const char *name, const int32_t *values, size_t n);

/* 9 significant digits, always with a point or an exponent; NaN and infinities become -9999.0 or
 * 9999.0 by sign (NaN: -9999.0). */
void jw_number(struct jw *w, const char *name, double value);

/* So many decimals; the value must be finite. */
void jw_fixed(struct jw *w, const char *name, double value, int decimals);

/* A value that is JSON text already, valid; it is put on one line. */
void jw_json(struct jw *w, const char *name, const char *json, size_t len);

void jw_bool(struct jw *w, const char *name, bool value);
void jw_null(struct jw *w, const char *name);

/*
 * Members of an object, as "id %s size %jd", one blank between words: names of letters, digits and
 * underscores, each with the conversion of its value: %s (NULL: null), %d and %jd (an intmax_t), %g
 * (as jw_number), %i (a bool), or null. "name {" opens an object as a member, "name [" an array,
 * "{" an object in an array or at the top; "}" closes the innermost.
 */
void jw_fields(struct jw *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
