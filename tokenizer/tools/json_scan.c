/* SPDX-License-Identifier: MIT */
/* A JSON value checked as its bytes come; see json_scan.h. */
#include "tokenizer/tools/json_scan.h"

#include <stdio.h>
#include <string.h>

#include "base/auto.h"
#include "base/hex.h"
#include "base/json_reader.h"
#include "base/utf8.h"

enum state {
    VALUE,     /* a value must come */
    FIRST,     /* after '[': a value or ']' */
    FIRST_KEY, /* after '{': a name or '}' */
    KEY,       /* after ',' of an object */
    COLON,
    AFTER, /* after a value in a container */
    STRING,
    ESCAPE,
    HEX,
    LITERAL,
    MINUS, /* the states of a number, by what came last */
    ZERO,
    INTEGER,
    POINT,
    FRACTION,
    EXPONENT,
    EXPONENT_SIGN,
    EXPONENT_DIGITS,
    DONE,
};

void json_scan_begin(struct json_scan *s)
{
    memset(s, 0, sizeof(*s));
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

bool json_in_object(const struct json_nesting *n)
{
    unsigned d = n->depth - 1u;
    return n->objects[d / 64] >> d % 64 & 1;
}

bool json_nest(struct json_nesting *n, bool object)
{
    if (n->depth == JSON_SCAN_DEPTH) return false;
    uint64_t bit = 1ull << n->depth % 64, *word = &n->objects[n->depth / 64];
    *word = object ? *word | bit : *word & ~bit;
    n->depth++;
    return true;
}

/* A code point or half of one. */
static int put_code(struct json_unescape *u, uint32_t code, char out[4])
{
    bool high = code >= 0xD800 && code < 0xDC00, low = code >= 0xDC00 && code < 0xE000;
    u->n = 0;
    if (low != (u->high != 0)) return -1;
    if (low) code = 0x10000 + ((u->high - 0xD800) << 10) + (code - 0xDC00);
    u->high = high ? code : 0;
    return high ? 0 : (int)utf8_put(out, code);
}

int json_unescape(struct json_unescape *u, char byte, char out[4])
{
    static const char letters[] = "\"\\/bfnrt", codes[] = "\"\\/\b\f\n\r\t";
    const char *at = byte ? strchr(letters, byte) : NULL;
    int digit = hex_value(byte);
    if (u->n == 0) {
        *out = byte;
        u->n = byte == '\\';
        return u->n ? 0 : (unsigned char)byte < 0x20 || u->high ? -1 : 1;
    }
    if (u->n == 1 && byte != 'u') return at ? put_code(u, (uint8_t)codes[at - letters], out) : -1;
    if (u->n > 1 && digit < 0) return -1;
    u->code = u->n > 1 ? u->code << 4 | (uint32_t)digit : 0;
    return ++u->n < 6 ? 0 : put_code(u, u->code, out);
}

size_t json_escape(char c, char ret[8])
{
    static const char plain[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    const char *at = c ? strchr(plain, c) : NULL;
    if (at) return (size_t)snprintf(ret, 8, "\\%c", letters[at - plain]);
    return (unsigned char)c < 0x20 ? (size_t)snprintf(ret, 8, "\\u%04x", (unsigned)c) : 0;
}

static void value_ended(struct json_scan *s)
{
    s->state = s->nesting.depth ? AFTER : DONE;
}

static bool open_container(struct json_scan *s, bool object)
{
    if (!json_nest(&s->nesting, object)) return false;
    s->state = object ? FIRST_KEY : FIRST;
    return true;
}

static bool close_container(struct json_scan *s, char c)
{
    if (!s->nesting.depth || c != (json_in_object(&s->nesting) ? '}' : ']')) return false;
    s->nesting.depth--;
    value_ended(s);
    return true;
}

static bool begin_string(struct json_scan *s, bool key)
{
    s->key = key;
    s->state = STRING;
    return true;
}

static bool begin_literal(struct json_scan *s, const char *rest)
{
    s->literal = rest;
    s->state = LITERAL;
    return true;
}

static bool begin_value(struct json_scan *s, char c)
{
    switch (c) {
    case '{': return open_container(s, true);
    case '[': return open_container(s, false);
    case '"': return begin_string(s, false);
    case 't': return begin_literal(s, "rue");
    case 'f': return begin_literal(s, "alse");
    case 'n': return begin_literal(s, "ull");
    case '-': s->state = MINUS; return true;
    case '0': s->state = ZERO; return true;
    }
    s->state = INTEGER;
    return is_digit(c);
}

static bool is_number_end(unsigned state)
{
    return state == ZERO || state == INTEGER || state == FRACTION || state == EXPONENT_DIGITS;
}

/* The state after a byte of a number, or AFTER if the number ended before it; -1: cannot come. */
static int next_in_number(unsigned state, char c)
{
    bool exponent = c == 'e' || c == 'E';
    if (is_digit(c)) {
        if (state == MINUS) return c == '0' ? ZERO : INTEGER;
        if (state == ZERO) return -1;
        if (state == POINT) return FRACTION;
        if (state == EXPONENT || state == EXPONENT_SIGN) return EXPONENT_DIGITS;
        return (int)state;
    }
    if (c == '.' && (state == ZERO || state == INTEGER)) return POINT;
    if (exponent && is_number_end(state) && state != EXPONENT_DIGITS) return EXPONENT;
    if ((c == '+' || c == '-') && state == EXPONENT) return EXPONENT_SIGN;
    return is_number_end(state) ? AFTER : -1;
}

static bool after_value(struct json_scan *s, char c)
{
    if (c != ',') return close_container(s, c);
    s->state = json_in_object(&s->nesting) ? KEY : VALUE;
    return true;
}

static bool in_string(struct json_scan *s, char c)
{
    if (c == '\\')
        s->state = ESCAPE;
    else if (c == '"' && s->key)
        s->state = COLON;
    else if (c == '"')
        value_ended(s);
    return (unsigned char)c >= 0x20;
}

static bool in_escape(struct json_scan *s, char c)
{
    s->state = c == 'u' ? HEX : STRING;
    s->digits = 4;
    return c && strchr("\"\\/bfnrtu", c);
}

static bool in_hex(struct json_scan *s, char c)
{
    char lower = (char)(c | 0x20);
    if (--s->digits == 0) s->state = STRING;
    return is_digit(c) || (lower >= 'a' && lower <= 'f');
}

static bool in_literal(struct json_scan *s, char c)
{
    if (c != *s->literal) return false;
    if (!*++s->literal) value_ended(s);
    return true;
}

/* Takes a byte. *again: the byte ended a number and is still to be taken. */
static bool take(struct json_scan *s, char c, bool *again)
{
    *again = false;
    if (s->state <= AFTER && json_is_space(c)) return true;
    switch ((enum state)s->state) {
    case FIRST:
        if (c == ']') return close_container(s, c);
        return begin_value(s, c);
    case VALUE: return begin_value(s, c);
    case FIRST_KEY:
        if (c == '}') return close_container(s, c);
        return c == '"' && begin_string(s, true);
    case KEY: return c == '"' && begin_string(s, true);
    case COLON: s->state = VALUE; return c == ':';
    case AFTER: return after_value(s, c);
    case STRING: return in_string(s, c);
    case ESCAPE: return in_escape(s, c);
    case HEX: return in_hex(s, c);
    case LITERAL: return in_literal(s, c);
    case DONE: return false;
    default: break;
    }
    int next = next_in_number(s->state, c);
    *again = next == AFTER;
    if (*again)
        value_ended(s);
    else if (next >= 0)
        s->state = (uint8_t)next;
    return next >= 0;
}

/* The end of the plain characters of a string. */
static const char *skip_plain(const char *p, const char *end)
{
    while (p < end && (unsigned char)*p >= 0x20 && *p != '"' && *p != '\\')
        p++;
    return p;
}

enum json_scan_result json_scan(struct json_scan *s, const char *p, const char *end,
                                const char **ret)
{
    while (p < end && s->state != DONE) {
        bool again;
        if (s->state == STRING && (p = skip_plain(p, end)) == end) break;
        *ret = p;
        if (!take(s, *p, &again)) return JSON_SCAN_FAIL;
        p += !again;
    }
    *ret = p;
    return s->state == DONE ? JSON_SCAN_DONE : JSON_SCAN_MORE;
}

bool json_scan_complete(const struct json_scan *s)
{
    return s->state == DONE || (s->nesting.depth == 0 && is_number_end(s->state));
}

const char *json_member(const char *object, size_t len, const char *name, size_t *ret_len)
{
    AUTO(jr_finish) struct jr r;
    char err[128];
    const char *key, *found = NULL, *value;
    size_t n, value_len;
    jr_init(&r, object, len, JR_NUL | JR_CONSTANTS, err, sizeof(err));
    jr_open(&r, '{');
    while (!found && jr_member(&r, &key, &n) > 0) {
        bool hit = n == strlen(name) && memcmp(key, name, n) == 0;
        if (jr_skip(&r, &value, &value_len) || !hit) continue;
        found = value;
        *ret_len = value_len;
    }
    return found;
}
