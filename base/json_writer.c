/* SPDX-License-Identifier: MIT */
/*
 * The JSON writer. What comes before a value depends on one flag: a comma follows every value and
 * every closing bracket, none follows an opening bracket or a name.
 */
#include "base/json_writer.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/shown.h"
#include "base/utf8.h"

void jw_init(struct jw *w, struct buf *out)
{
    *w = (struct jw){.out = out};
}

struct buf *jw_end(struct jw *w)
{
    assert(w->depth == 0 && !w->in_string && !w->named);
    return w->out;
}

/* ---- order --------------------------------------------------------------------------------- */

static bool in_object(const struct jw *w)
{
    return w->depth > 0 && (w->objects >> (w->depth - 1) & 1);
}

/* Comma, name and colon, as the next value needs them. */
static void begin_value(struct jw *w, const char *name)
{
    assert(!w->in_string && (name != NULL) == (in_object(w) && !w->named));
    assert(w->depth > 0 || !w->comma); /* one value at the top */
    if (w->comma) buf_add(w->out, ",", 1);
    if (name) {
        buf_add(w->out, "\"", 1);
        buf_puts(w->out, name);
        buf_add(w->out, "\":", 2);
    }
    w->comma = true;
    w->named = false;
}

static void add_value(struct jw *w, const char *name, const char *text, size_t len)
{
    begin_value(w, name);
    buf_add(w->out, text, len);
}

void jw_open(struct jw *w, const char *name, char bracket)
{
    assert(w->depth < JW_MAX_DEPTH && (bracket == '{' || bracket == '['));
    add_value(w, name, &bracket, 1);
    uint32_t bit = UINT32_C(1) << w->depth++;
    w->objects = bracket == '{' ? w->objects | bit : w->objects & ~bit;
    w->comma = false;
}

void jw_close(struct jw *w)
{
    assert(w->depth > 0 && !w->in_string && !w->named);
    buf_add(w->out, in_object(w) ? "}" : "]", 1);
    w->depth--;
    w->comma = true;
}

/* ---- strings ------------------------------------------------------------------------------- */

static bool is_plain(unsigned char c)
{
    return c >= 0x20 && c != '"' && c != '\\' && c != 0x7f;
}

/* Bytes at the start of s that are written as they are. */
static size_t plain_run(const unsigned char *s, size_t len)
{
    size_t i = 0;
    while (i < len) {
        if (s[i] < 0x80) {
            if (!is_plain(s[i])) break;
            i++;
            continue;
        }
        const unsigned char *p = s + i;
        if (utf8_classify(p, len - i) <= 0 || shown_is_unsafe(utf8_next(&p))) break;
        i = (size_t)(p - s);
    }
    return i;
}

/* Finds a character or bad byte at the start of s that must be escaped. Returns its bytes. */
static size_t add_escape(struct buf *b, const unsigned char *s, size_t len)
{
    static const char from[] = "\"\\\n\r\t\b\f", to[] = "\"\\nrtbf";
    const char *at = *s ? memchr(from, *s, sizeof(from) - 1) : NULL;
    const unsigned char *p = s;
    int n = utf8_classify(s, len);
    if (n <= 0)
        buf_puts(b, "\xef\xbf\xbd");
    else if (at)
        buf_add(b, (char[2]){'\\', to[at - from]}, 2);
    else
        buf_printf(b, "\\u%04x", (unsigned)utf8_next(&p));
    return n > 0 ? (size_t)n : 1;
}

void jw_string_part(struct jw *w, const char *text, size_t len)
{
    const unsigned char *s = (const unsigned char *)text;
    assert(w->in_string);
    for (;;) {
        size_t n = plain_run(s, len);
        buf_add(w->out, (const char *)s, n);
        if (n == len) break;
        n += add_escape(w->out, s + n, len - n);
        s += n;
        len -= n;
    }
}

void jw_string_begin(struct jw *w, const char *name)
{
    add_value(w, name, "\"", 1);
    w->in_string = true;
}

void jw_string_end(struct jw *w)
{
    assert(w->in_string);
    buf_add(w->out, "\"", 1);
    w->in_string = false;
}

bool jw_string_next(struct jw *w, const char *text, size_t len, size_t max, int64_t *at)
{
    size_t from = (size_t)*at;
    size_t to = len - from > max ? from + max : len;
    while (to < len && to > from && ((unsigned char)text[to] & 0xC0) == 0x80)
        to--;
    if (to > from) jw_string_part(w, text + from, to - from);
    *at = to == len ? 0 : (int64_t)to;
    return to == len;
}

void jw_string(struct jw *w, const char *name, const char *text, size_t len)
{
    jw_string_begin(w, name);
    jw_string_part(w, text, len);
    jw_string_end(w);
}

void jw_string_or_null(struct jw *w, const char *name, const char *text, size_t len)
{
    if (text)
        jw_string(w, name, text, len);
    else
        jw_null(w, name);
}

void jw_text(struct jw *w, const char *name, const char *text)
{
    jw_string_or_null(w, name, text, text ? strlen(text) : 0);
}

void jw_key(struct jw *w, const char *name, size_t len)
{
    assert(in_object(w) && !w->named);
    w->named = true; /* a string in the place of a value */
    jw_string(w, NULL, name, len);
    buf_add(w->out, ":", 1);
    w->named = true;
    w->comma = false;
}

/* ---- other values -------------------------------------------------------------------------- */

void jw_int(struct jw *w, const char *name, int64_t value)
{
    char text[20]; /* -9223372036854775808 */
    size_t at = sizeof(text);
    uint64_t v = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    do
        text[--at] = (char)('0' + v % 10);
    while (v /= 10);
    if (value < 0) text[--at] = '-';
    add_value(w, name, text + at, sizeof(text) - at);
}

void jw_count(struct jw *w, const char *name, int64_t value)
{
    if (value < 0)
        jw_null(w, name);
    else
        jw_int(w, name, value);
}

void jw_ints(struct jw *w, const char *name, const int32_t *values, size_t n)
{
    jw_open(w, name, '[');
    for (size_t i = 0; i < n; i++)
        jw_int(w, NULL, values[i]);
    jw_close(w);
}

void jw_number(struct jw *w, const char *name, double value)
{
    char text[40];
    if (isnan(value)) value = -9999;
    if (isinf(value)) value = value > 0 ? 9999 : -9999;
    int len = snprintf(text, sizeof(text) - 2, "%.9g", value);
    /* "3" would be read as an integer by clients that tell the two apart. */
    if (!strpbrk(text, ".e")) len += snprintf(text + len, 3, ".0");
    add_value(w, name, text, (size_t)len);
}

void jw_fixed(struct jw *w, const char *name, double value, int decimals)
{
    begin_value(w, name);
    buf_printf(w->out, "%.*f", decimals, value);
}

/* JSON has line ends only between its tokens. */
void jw_json(struct jw *w, const char *name, const char *json, size_t len)
{
    begin_value(w, name);
    for (size_t i = 0, n; i < len; i += n + 1) {
        for (n = 0; i + n < len && json[i + n] != '\n' && json[i + n] != '\r';)
            n++;
        buf_add(w->out, json + i, n);
    }
}

void jw_bool(struct jw *w, const char *name, bool value)
{
    add_value(w, name, value ? "true" : "false", value ? 4 : 5);
}

void jw_null(struct jw *w, const char *name)
{
    add_value(w, name, "null", 4);
}

/* The value of a member, by its conversion after the %. */
static void add_argument(struct jw *w, const char *name, const char *conversion, va_list *args)
{
    switch (*conversion) {
    case 's': jw_text(w, name, va_arg(*args, const char *)); break;
    case 'd': jw_int(w, name, va_arg(*args, int)); break;
    case 'j': jw_int(w, name, va_arg(*args, intmax_t)); break;
    case 'i': jw_bool(w, name, va_arg(*args, int)); break;
    default: assert(*conversion == 'g'); jw_number(w, name, va_arg(*args, double));
    }
}

void jw_fields(struct jw *w, const char *format, ...)
{
    char name[64];
    va_list args;
    va_start(args, format);
    for (const char *p = format, *value; *p; p = value + (*value == ' ')) {
        value = strchrnul(p, ' ');
        size_t len = (size_t)(value - p);
        if (*p == '}' || *p == ']') {
            jw_close(w);
            continue;
        }
        if (*p == '{') {
            jw_open(w, NULL, '{');
            continue;
        }
        assert(len < sizeof(name));
        memcpy(name, p, len);
        name[len] = '\0';
        value++;
        if (*value == '%')
            add_argument(w, name, value + 1, &args);
        else if (*value == 'n')
            jw_null(w, name);
        else
            jw_open(w, name, *value);
        value = strchrnul(value, ' ');
    }
    va_end(args);
}
