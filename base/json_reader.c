/* SPDX-License-Identifier: MIT */
/*
 * The pull reader. Strings without escapes are handed out in place; others are unescaped into the
 * scratch buffer, which is never longer than the escaped form.
 */
#include "base/json_reader.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/fail.h"
#include "base/hex.h"
#include "base/utf8.h"

void jr_init(struct jr *r, const char *text, size_t len, unsigned flags, char *err, size_t errlen)
{
    *r = (struct jr){.text = text,
                     .len = len,
                     .flags = flags,
                     .max_depth = JR_MAX_DEPTH,
                     .problem = "a number or a nesting out of range",
                     .err = err,
                     .errlen = errlen};
}

void jr_finish(struct jr *r)
{
    free(r->scratch);
    r->scratch = NULL;
}

int jr_refuse(struct jr *r, int rc, const char *format, ...)
{
    if (r->failed) return r->failed;
    FORMAT_REST(r->err, r->errlen, format);
    return r->failed = rc;
}

static int fail(struct jr *r, const char *problem)
{
    if (!r->failed) r->problem = problem;
    return jr_refuse(r, JR_EINVAL, "not valid JSON at byte %zu: %s", r->pos, problem);
}

char jr_peek(struct jr *r)
{
    while (!r->failed && r->pos < r->len) {
        char c = r->text[r->pos];
        if (c != ' ' && c != '\n' && c != '\r' && c != '\t') return c;
        r->pos++;
    }
    return 0;
}

int jr_open(struct jr *r, char open)
{
    if (jr_peek(r) != open)
        return fail(r, open == '{' ? "expected an object" : "expected an array");
    if (r->depth >= r->max_depth)
        return jr_refuse(r, JR_EINVAL, "JSON at byte %zu nests deeper than %d levels", r->pos,
                         r->max_depth);
    r->depth++;
    r->pos++;
    r->begins = true;
    return 0;
}

int jr_more(struct jr *r, char close)
{
    bool first = r->begins;
    char c = jr_peek(r);
    r->begins = false;
    if (c == close) {
        r->depth--;
        r->pos++;
        return 0;
    }
    if (first && !r->failed) return 1;
    if (c != ',') return fail(r, "expected a comma or a closing bracket");
    r->pos++;
    return 1;
}

/* ---- strings ------------------------------------------------------------------------------- */

/* Four hexadecimal digits at r->pos, or -1. */
static int32_t hex4(struct jr *r)
{
    int32_t v = 0;
    if (r->len - r->pos < 4) return -1;
    for (int i = 0; i < 4; i++) {
        int digit = hex_value(r->text[r->pos + (size_t)i]);
        if (digit < 0) return -1;
        v = v * 16 + digit;
    }
    r->pos += 4;
    return v;
}

/* After "\u": one escape or, for surrogates, two. Appends UTF-8 at out; its length or JR_EINVAL. */
static int unicode_escape(struct jr *r, char *out)
{
    int32_t high = hex4(r), low;
    if (high < 0) return fail(r, "expected four hexadecimal digits after \\u");
    if (high == 0 && !(r->flags & JR_NUL)) return fail(r, "\\u0000 is not allowed");
    if (high >= 0xDC00 && high <= 0xDFFF) return fail(r, "a lone surrogate");
    if (high < 0xD800 || high > 0xDBFF) return (int)utf8_put(out, (uint32_t)high);
    if (r->len - r->pos < 6 || r->text[r->pos] != '\\' || r->text[r->pos + 1] != 'u')
        return fail(r, "a lone surrogate");
    r->pos += 2;
    low = hex4(r);
    if (low < 0xDC00 || low > 0xDFFF) return fail(r, "a lone surrogate");
    return (int)utf8_put(out,
                         0x10000 + ((uint32_t)(high - 0xD800) << 10) + (uint32_t)(low - 0xDC00));
}

/* After a backslash. Appends at out; its length or JR_EINVAL. */
static int escape(struct jr *r, char *out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *p;
    if (r->pos == r->len) return fail(r, "the text ends inside a string");
    char c = r->text[r->pos++];
    if (c == 'u') return unicode_escape(r, out);
    p = c ? strchr(from, c) : NULL;
    if (!p) return fail(r, "an unknown escape in a string");
    *out = to[p - from];
    return 1;
}

/* Moves pos to the next quote or backslash; JR_EINVAL for a control character or the end. */
static int scan_plain(struct jr *r)
{
    size_t i = r->pos;
    while (i < r->len) {
        unsigned char c = (unsigned char)r->text[i];
        if (c == '"' || c == '\\') {
            r->pos = i;
            return 0;
        }
        if (c < 0x20) break;
        i++;
    }
    r->pos = i;
    return fail(r,
                i < r->len ? "a control character in a string" : "the text ends inside a string");
}

/* Room for n bytes in the scratch buffer. */
static int reserve(struct jr *r, size_t n)
{
    if (!ARRAY_ROOM(r->scratch, r->scratch_cap, n, 256)) return 0;
    return jr_refuse(r, JR_ENOMEM, "no memory for a string of %zu bytes", n);
}

/* The rest of a string with escapes; begin is behind the opening quote, pos at the first escape. */
static int unescape(struct jr *r, size_t begin, const char **ret, size_t *ret_len)
{
    size_t n = 0;
    for (;;) {
        size_t plain = r->pos - begin;
        if (reserve(r, n + plain + 4)) return r->failed;
        memcpy(r->scratch + n, r->text + begin, plain);
        n += plain;
        if (r->text[r->pos++] == '"') break;
        int added = escape(r, r->scratch + n);
        if (added < 0) return added;
        n += (size_t)added;
        begin = r->pos;
        if (scan_plain(r)) return r->failed;
    }
    *ret = r->scratch;
    *ret_len = n;
    return 0;
}

int jr_string(struct jr *r, const char **ret, size_t *ret_len)
{
    *ret = "";
    *ret_len = 0;
    if (jr_peek(r) != '"') return fail(r, "expected a string");
    size_t begin = ++r->pos;
    if (scan_plain(r)) return r->failed;
    if (r->text[r->pos] == '\\') return unescape(r, begin, ret, ret_len);
    *ret = r->text + begin;
    *ret_len = r->pos++ - begin;
    return 0;
}

int jr_key(struct jr *r, const char **ret, size_t *ret_len)
{
    jr_string(r, ret, ret_len);
    if (jr_peek(r) != ':') return fail(r, "expected a colon");
    r->pos++;
    return 0;
}

int jr_member(struct jr *r, const char **ret, size_t *ret_len)
{
    int more = jr_more(r, '}');
    if (more > 0) jr_key(r, ret, ret_len);
    return r->failed ? r->failed : more;
}

/* ---- numbers and words --------------------------------------------------------------------- */

static size_t skip_digits(struct jr *r)
{
    size_t begin = r->pos;
    while (r->pos < r->len && r->text[r->pos] >= '0' && r->text[r->pos] <= '9')
        r->pos++;
    return r->pos - begin;
}

static bool take(struct jr *r, char c)
{
    if (r->pos == r->len || r->text[r->pos] != c) return false;
    r->pos++;
    return true;
}

static bool take_word(struct jr *r, const char *word)
{
    size_t n = strlen(word);
    if (r->failed || r->len - r->pos < n || memcmp(r->text + r->pos, word, n) != 0) return false;
    r->pos += n;
    return true;
}

/* -? (0 | [1-9][0-9]*) (. [0-9]+)? ([eE] [+-]? [0-9]+)? */
static int skip_number(struct jr *r)
{
    size_t begin = r->pos;
    if (r->failed) return r->failed;
    if (take_word(r, "NaN") || take_word(r, "Infinity") || take_word(r, "-Infinity")) {
        if (r->flags & JR_CONSTANTS) return 0;
        r->pos = begin;
        return fail(r, "NaN and Infinity are not numbers of JSON");
    }
    take(r, '-');
    if (!take(r, '0') && skip_digits(r) == 0) return fail(r, "expected a value");
    if (take(r, '.') && skip_digits(r) == 0) return fail(r, "expected a digit after the point");
    if (take(r, 'e') || take(r, 'E')) {
        if (!take(r, '+')) take(r, '-');
        if (skip_digits(r) == 0) return fail(r, "expected a digit in the exponent");
    }
    return 0;
}

/* The text that was read from begin on, not unescaped. */
static int give(struct jr *r, size_t begin, const char **ret, size_t *ret_len)
{
    *ret = r->failed ? "" : r->text + begin;
    *ret_len = r->failed ? 0 : r->pos - begin;
    return r->failed;
}

int jr_number(struct jr *r, const char **ret, size_t *ret_len)
{
    jr_peek(r);
    size_t begin = r->pos;
    skip_number(r);
    return give(r, begin, ret, ret_len);
}

int jr_uint(struct jr *r, uint32_t max, uint32_t *ret)
{
    const char *s;
    size_t n;
    uint64_t v = 0;
    *ret = 0;
    jr_number(r, &s, &n);
    for (size_t i = 0; i < n; i++) {
        if (s[i] < '0' || s[i] > '9') return fail(r, "expected an integer from 0");
        v = v * 10 + (uint64_t)(s[i] - '0');
        if (v > max)
            return jr_refuse(r, JR_EINVAL, "the number %.*s at byte %zu is above the limit of %u",
                             (int)(n < 20 ? n : 20), s, r->pos - n, max);
    }
    *ret = (uint32_t)v;
    return r->failed;
}

char jr_scalar(struct jr *r, const char **ret, size_t *ret_len)
{
    char first = jr_peek(r);
    size_t begin = r->pos;
    bool named = first == 't' || first == 'f' || first == 'n';
    if (first == '"') {
        jr_string(r, ret, ret_len);
        return r->failed ? 0 : first;
    }
    if (!named)
        skip_number(r);
    else if (!take_word(r, "true") && !take_word(r, "false") && !take_word(r, "null"))
        fail(r, first == 'n' ? "expected null" : "expected true or false");
    give(r, begin, ret, ret_len);
    return r->failed ? 0 : first;
}

/* ---- whole values -------------------------------------------------------------------------- */

static void skip_value(struct jr *r)
{
    const char *s;
    size_t n;
    char open = jr_peek(r), close = open == '{' ? '}' : ']';
    if (open != '{' && open != '[') {
        jr_scalar(r, &s, &n);
        return;
    }
    jr_open(r, open);
    while (jr_more(r, close) > 0) {
        if (close == '}') jr_key(r, &s, &n);
        skip_value(r);
    }
}

int jr_skip(struct jr *r, const char **ret, size_t *ret_len)
{
    if (r->max_depth > JR_MAX_DEPTH) r->max_depth = JR_MAX_DEPTH;
    jr_peek(r);
    size_t begin = r->pos;
    skip_value(r);
    return give(r, begin, ret, ret_len);
}

int jr_end(struct jr *r)
{
    jr_peek(r);
    return r->pos < r->len ? fail(r, "text after the end") : r->failed;
}
