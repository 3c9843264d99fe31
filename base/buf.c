/* SPDX-License-Identifier: MIT */
/*
 * The bounded buffer. Capacity doubles up to the maximum; one byte more than the maximum is
 * allocated for the terminating NUL, which is not counted.
 */
#include "base/buf.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
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

/* ---- JSON ---------------------------------------------------------------------------------- */

static bool is_continuation(unsigned char c)
{
    return (c & 0xc0) == 0x80;
}

/*
 * Bytes of the valid UTF-8 character at s, or 0. A sequence is invalid when it is cut, overlong, a
 * surrogate or beyond U+10FFFF; the second byte's range decides all of these.
 */
static size_t valid_char(const unsigned char *s, size_t len)
{
    if (s[0] < 0x80) return 1;
    size_t need = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    if (s[0] < 0xc2 || s[0] > 0xf4 || len < need) return 0;
    unsigned char low = 0x80, high = 0xbf;
    if (s[0] == 0xe0) low = 0xa0;
    if (s[0] == 0xed) high = 0x9f;
    if (s[0] == 0xf0) low = 0x90;
    if (s[0] == 0xf4) high = 0x8f;
    if (s[1] < low || s[1] > high) return 0;
    for (size_t i = 2; i < need; i++) {
        if (!is_continuation(s[i])) return 0;
    }
    return need;
}

static void add_escape(struct buf *b, unsigned char c)
{
    static const char shorts[128] = {['"'] = '"',  ['\\'] = '\\', ['\n'] = 'n', ['\r'] = 'r',
                                     ['\t'] = 't', ['\b'] = 'b',  ['\f'] = 'f'};
    if (c < sizeof(shorts) && shorts[c]) {
        char pair[2] = {'\\', shorts[c]};
        buf_add(b, pair, 2);
    } else {
        buf_printf(b, "\\u%04x", c);
    }
}

void buf_json_string(struct buf *b, const char *text, size_t len)
{
    buf_add(b, "\"", 1);
    buf_json_text(b, text, len);
    buf_add(b, "\"", 1);
}

void buf_json_text(struct buf *b, const char *text, size_t len)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t plain = 0; /* start of the run not yet written */
    for (size_t i = 0; i < len;) {
        size_t n = valid_char(s + i, len - i);
        bool escape = s[i] < 0x20 || s[i] == '"' || s[i] == '\\' || s[i] == 0x7f;
        if (n && !escape) {
            i += n;
            continue;
        }
        buf_add(b, text + plain, i - plain);
        if (escape)
            add_escape(b, s[i]);
        else
            buf_puts(b, "\xef\xbf\xbd");
        plain = ++i;
    }
    buf_add(b, text + plain, len - plain);
}

void buf_json_int(struct buf *b, int64_t value)
{
    buf_printf(b, "%" PRId64, value);
}

void buf_json_number(struct buf *b, double value)
{
    if (isnan(value)) value = -9999.0;
    if (isinf(value)) value = value > 0 ? 9999.0 : -9999.0;
    char text[40];
    snprintf(text, sizeof(text), "%.9g", value);
    buf_puts(b, text);
    /* "3" would be read as an integer by clients that tell the two apart. */
    if (!strpbrk(text, ".e")) buf_puts(b, ".0");
}
