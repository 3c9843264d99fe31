/* SPDX-License-Identifier: MIT */
/*
 * The pull reader. Strings without escapes are handed out in place; others are unescaped into the
 * scratch buffer, which is never longer than the escaped form.
 */
#include "tokenizer/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tokenizer/tokenizer.h"

void tok_json_init(struct tok_json *r, const char *text, size_t len, char *err, size_t errlen)
{
    *r = (struct tok_json){.text = text, .len = len, .err = err, .errlen = errlen};
}

void tok_json_finish(struct tok_json *r)
{
    free(r->scratch);
    r->scratch = NULL;
}

static int fail(struct tok_json *r, const char *what)
{
    snprintf(r->err, r->errlen, "not valid JSON at byte %zu: %s", r->pos, what);
    return TOK_EINVAL;
}

char tok_json_peek(struct tok_json *r)
{
    while (r->pos < r->len) {
        char c = r->text[r->pos];
        if (c != ' ' && c != '\n' && c != '\r' && c != '\t') return c;
        r->pos++;
    }
    return 0;
}

int tok_json_open(struct tok_json *r, char open)
{
    if (tok_json_peek(r) != open) {
        return fail(r, open == '{' ? "an object should stand here" : "an array should stand here");
    }
    r->pos++;
    return 0;
}

int tok_json_more(struct tok_json *r, char close, bool *first)
{
    char c = tok_json_peek(r);

    if (c == close) {
        r->pos++;
        return 0;
    }
    if (*first) {
        *first = false;
        return 1;
    }
    if (c != ',') return fail(r, "a comma or a closing bracket should stand here");
    r->pos++;
    return 1;
}

/* Four hexadecimal digits at r->pos, or -1. */
static int32_t hex4(struct tok_json *r)
{
    int32_t v = 0;

    if (r->len - r->pos < 4) return -1;
    for (int i = 0; i < 4; i++) {
        char c = r->text[r->pos + (size_t)i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0) return -1;
        v = v * 16 + digit;
    }
    r->pos += 4;
    return v;
}

/* After "\u": one escape or, for surrogates, two. Appends UTF-8 at out; its length, or TOK_EINVAL. */
static int unicode_escape(struct tok_json *r, char *out)
{
    int32_t high = hex4(r), low;

    if (high < 0) return fail(r, "four hexadecimal digits should follow \\u");
    if (high >= 0xDC00 && high <= 0xDFFF) return fail(r, "a lone surrogate");
    if (high < 0xD800 || high > 0xDBFF) return (int)utf8_put(out, (uint32_t)high);
    if (r->len - r->pos < 6 || r->text[r->pos] != '\\' || r->text[r->pos + 1] != 'u') {
        return fail(r, "a lone surrogate");
    }
    r->pos += 2;
    low = hex4(r);
    if (low < 0xDC00 || low > 0xDFFF) return fail(r, "a lone surrogate");
    return (int)utf8_put(out,
                         0x10000 + ((uint32_t)(high - 0xD800) << 10) + (uint32_t)(low - 0xDC00));
}

/* After a backslash. Appends at out; its length or TOK_EINVAL. */
static int escape(struct tok_json *r, char *out)
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

/* Moves pos to the next quote or backslash; TOK_EINVAL for a control character or the end. */
static int scan_plain(struct tok_json *r)
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
static int reserve(struct tok_json *r, size_t n)
{
    size_t cap = r->scratch_cap ? r->scratch_cap : 256;

    if (n <= r->scratch_cap) return 0;
    while (cap < n)
        cap *= 2;
    char *p = realloc(r->scratch, cap);
    if (!p) return TOK_ENOMEM;
    r->scratch = p;
    r->scratch_cap = cap;
    return 0;
}

/* The rest of a string with escapes; begin is behind the opening quote, pos at the first escape. */
static int unescape(struct tok_json *r, size_t begin, const char **ret, size_t *ret_len)
{
    size_t n = 0;

    for (;;) {
        size_t plain = r->pos - begin;
        int rc = reserve(r, n + plain + 4);
        if (rc) return rc;
        memcpy(r->scratch + n, r->text + begin, plain);
        n += plain;
        if (r->text[r->pos++] == '"') break;
        rc = escape(r, r->scratch + n);
        if (rc < 0) return rc;
        n += (size_t)rc;
        begin = r->pos;
        rc = scan_plain(r);
        if (rc) return rc;
    }
    *ret = r->scratch;
    *ret_len = n;
    return 0;
}

int tok_json_string(struct tok_json *r, const char **ret, size_t *ret_len)
{
    if (tok_json_peek(r) != '"') return fail(r, "a string should stand here");
    size_t begin = ++r->pos;
    int rc = scan_plain(r);
    if (rc) return rc;
    if (r->text[r->pos] == '\\') return unescape(r, begin, ret, ret_len);
    *ret = r->text + begin;
    *ret_len = r->pos++ - begin;
    return 0;
}

int tok_json_key(struct tok_json *r, const char **ret, size_t *ret_len)
{
    int rc = tok_json_string(r, ret, ret_len);

    if (rc) return rc;
    if (tok_json_peek(r) != ':') return fail(r, "a colon should stand here");
    r->pos++;
    return 0;
}

static size_t digits(struct tok_json *r)
{
    size_t begin = r->pos;

    while (r->pos < r->len && r->text[r->pos] >= '0' && r->text[r->pos] <= '9')
        r->pos++;
    return r->pos - begin;
}

static bool take(struct tok_json *r, char c)
{
    if (r->pos == r->len || r->text[r->pos] != c) return false;
    r->pos++;
    return true;
}

/* -? (0 | [1-9][0-9]*) (. [0-9]+)? ([eE] [+-]? [0-9]+)? */
static int skip_number(struct tok_json *r)
{
    take(r, '-');
    if (!take(r, '0') && digits(r) == 0) return fail(r, "a value should stand here");
    if (take(r, '.') && digits(r) == 0) return fail(r, "a digit should follow the point");
    if (take(r, 'e') || take(r, 'E')) {
        if (!take(r, '+')) take(r, '-');
        if (digits(r) == 0) return fail(r, "a digit should follow the exponent");
    }
    return 0;
}

int tok_json_uint(struct tok_json *r, uint32_t max, uint32_t *ret)
{
    uint64_t v = 0;

    tok_json_peek(r);
    size_t begin = r->pos;
    int rc = skip_number(r);
    if (rc) return rc;
    for (size_t i = begin; i < r->pos; i++) {
        if (r->text[i] < '0' || r->text[i] > '9')
            return fail(r, "a whole number from 0 should stand here");
        v = v * 10 + (uint64_t)(r->text[i] - '0');
        if (v > max) {
            snprintf(r->err, r->errlen, "the number %.*s at byte %zu is above the limit of %u",
                     (int)(r->pos - begin < 20 ? r->pos - begin : 20), r->text + begin, begin, max);
            return TOK_EINVAL;
        }
    }
    *ret = (uint32_t)v;
    return 0;
}

static int skip_word(struct tok_json *r, const char *word)
{
    size_t n = strlen(word);

    if (r->len - r->pos < n || memcmp(r->text + r->pos, word, n) != 0) {
        return fail(r, "a value should stand here");
    }
    r->pos += n;
    return 0;
}

/* A value that is no object and no array. */
static int skip_scalar(struct tok_json *r)
{
    const char *s;
    size_t n;

    switch (tok_json_peek(r)) {
    case '"': return tok_json_string(r, &s, &n);
    case 't': return skip_word(r, "true");
    case 'f': return skip_word(r, "false");
    case 'n': return skip_word(r, "null");
    default: return skip_number(r);
    }
}

/* The open brackets around the place a skip has reached, innermost last. */
struct nesting {
    char close[TOK_JSON_MAX_DEPTH];
    bool first[TOK_JSON_MAX_DEPTH];
    int depth;
};

/* Opens every bracket before the next scalar, or skips the scalar. */
static int skip_step(struct tok_json *r, struct nesting *n)
{
    char c = tok_json_peek(r);

    if (c != '{' && c != '[') return skip_scalar(r);
    if (n->depth == TOK_JSON_MAX_DEPTH) return fail(r, "nested too deep");
    n->close[n->depth] = c == '{' ? '}' : ']';
    n->first[n->depth++] = true;
    r->pos++;
    return 0;
}

int tok_json_skip(struct tok_json *r, const char **ret, size_t *ret_len)
{
    struct nesting n = {.depth = 0};
    const char *key;
    size_t len;

    tok_json_peek(r);
    size_t begin = r->pos;
    int rc = skip_step(r, &n);
    while (!rc && n.depth > 0) {
        char close = n.close[n.depth - 1];
        int more = tok_json_more(r, close, &n.first[n.depth - 1]);
        if (more < 0) return more;
        if (more == 0) {
            n.depth--;
            continue;
        }
        if (close == '}') rc = tok_json_key(r, &key, &len);
        if (!rc) rc = skip_step(r, &n);
    }
    if (rc) return rc;
    *ret = r->text + begin;
    *ret_len = r->pos - begin;
    return 0;
}

int tok_json_end(struct tok_json *r)
{
    return tok_json_peek(r) || r->pos < r->len ? fail(r, "something follows the end") : 0;
}
