/* SPDX-License-Identifier: MIT */
/*
 * The bounded buffer. Capacity doubles up to the maximum; one byte more than the maximum is
 * allocated for the terminating NUL, which is not counted.
 */
#include "base/buf.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_BYTES = 256 };

void buf_init(struct buf *b, size_t max_bytes)
{
    *b = (struct buf){.max = max_bytes};
}

void buf_finish(struct buf *b)
{
    free(b->data);
    *b = (struct buf){.max = b->max};
}

void buf_clear(struct buf *b)
{
    b->len = 0;
    b->failed = b->too_large = false;
    if (b->data) b->data[0] = '\0';
}

/* Room for `more` bytes and the NUL, or the buffer has failed. */
static bool reserve(struct buf *b, size_t more)
{
    assert(b->len <= b->cap && b->cap <= b->max);
    if (b->failed) return false;
    if (more > b->max - b->len) {
        b->failed = b->too_large = true;
        return false;
    }
    size_t wanted = b->len + more;
    if (b->data && wanted <= b->cap) return true;
    size_t cap = b->cap ? b->cap : FIRST_BYTES;
    while (cap < wanted)
        cap *= 2; /* wanted <= max, which is far below half the address space */
    if (cap > b->max) cap = b->max;
    char *data = realloc(b->data, cap + 1);
    if (!data) {
        b->failed = true;
        return false;
    }
    b->data = data;
    b->cap = cap;
    return true;
}

void buf_add(struct buf *b, const char *data, size_t len)
{
    if (!reserve(b, len)) return;
    if (len) memcpy(b->data + b->len, data, len);
    b->len += len;
    b->data[b->len] = '\0';
}

void buf_puts(struct buf *b, const char *text)
{
    buf_add(b, text, strlen(text));
}

void buf_printf(struct buf *b, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    va_list again;
    va_copy(again, args);
    int len = vsnprintf(NULL, 0, format, args);
    if (len < 0) b->failed = true;
    if (len >= 0 && reserve(b, (size_t)len)) {
        vsnprintf(b->data + b->len, (size_t)len + 1, format, again);
        b->len += (size_t)len;
    }
    va_end(again);
    va_end(args);
}
