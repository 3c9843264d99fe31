/* SPDX-License-Identifier: MIT */
/*
 * The bounded growable buffer. It is born with its maximum; an append that would pass it, or for
 * which no memory is available, marks the buffer failed and changes nothing, so a writer may append
 * without checking and look once at the end.
 *
 * Threads: unsafe; one owner at a time.
 */
#ifndef HEARTH_SERVER_BUF_H
#define HEARTH_SERVER_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct srv_buf {
    char *data; /* NUL-terminated whenever not NULL */
    size_t len;
    size_t cap;
    size_t max;
    bool failed;
    bool too_large; /* failed because of max */
};

void srv_buf_init(struct srv_buf *b, size_t max_bytes);
void srv_buf_finish(struct srv_buf *b);
void srv_buf_clear(struct srv_buf *b);

void srv_buf_add(struct srv_buf *b, const char *data, size_t len);
void srv_buf_puts(struct srv_buf *b, const char *text);
void srv_buf_printf(struct srv_buf *b, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- JSON, written by hand: quoted and escaped strings, numbers that are always finite ----- */

/* "text" with quotes; invalid UTF-8 becomes U+FFFD, so the output is always valid. */
void srv_buf_json_string(struct srv_buf *b, const char *text, size_t len);
/* The same without the quotes, for a string that comes in pieces; each ends with a character. */
void srv_buf_json_text(struct srv_buf *b, const char *text, size_t len);
void srv_buf_json_int(struct srv_buf *b, int64_t value);
/* 9 significant digits; NaN and infinities become -9999.0 or 9999.0 by sign (NaN: -9999.0). */
void srv_buf_json_number(struct srv_buf *b, double value);

#endif
