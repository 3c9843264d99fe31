/* SPDX-License-Identifier: MIT */
/*
 * The bounded growable buffer. It is born with its maximum; an append that would pass it, or for
 * which no memory is available, marks the buffer failed and changes nothing, so a writer may append
 * without checking and look once at the end.
 *
 * Threads: unsafe; one owner at a time.
 */
#ifndef HEARTH_BASE_BUF_H
#define HEARTH_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf {
    char *data; /* NUL-terminated whenever not NULL */
    size_t len;
    size_t cap;
    size_t max;
    bool failed;
    bool too_large; /* failed because of max */
};

void buf_init(struct buf *b, size_t max_bytes);
void buf_finish(struct buf *b);
void buf_clear(struct buf *b);

void buf_add(struct buf *b, const char *data, size_t len);
void buf_puts(struct buf *b, const char *text);
void buf_printf(struct buf *b, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- JSON, written by hand: quoted and escaped strings, numbers that are always finite ----- */

/* "text" with quotes; invalid UTF-8 becomes U+FFFD, so the output is always valid. */
void buf_json_string(struct buf *b, const char *text, size_t len);
/* The same without the quotes, for a string that comes in pieces; each ends with a character. */
void buf_json_text(struct buf *b, const char *text, size_t len);
void buf_json_int(struct buf *b, int64_t value);
/* 9 significant digits; NaN and infinities become -9999.0 or 9999.0 by sign (NaN: -9999.0). */
void buf_json_number(struct buf *b, double value);

#endif
