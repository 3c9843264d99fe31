/* SPDX-License-Identifier: MIT */
/*
 * The bounded growable buffer. It is born with its maximum; an append that would pass it, or for
 * which no memory is available, marks the buffer failed and changes nothing, so a writer may append
 * without checking and look once at the end.
 *
 * Threads: unsafe; one owner at a time.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

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
