/* SPDX-License-Identifier: MIT */
/* Scans over JSON text; see json_text.h. */
#include "server/api/json_text.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INT64_DIGITS = 19 };

const char *srv_json_skip_string(const char *p, const char *end)
{
    while (p < end && *p != '"')
        p += (*p == '\\' && p + 1 < end) ? 2 : 1;
    return p < end ? p : end;
}

/* ---- integers beyond 64 bits --------------------------------------------------------------- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Length of the run of characters that numbers are made of. */
static size_t number_length(const char *p, const char *end)
{
    size_t n = 0;
    while (p + n < end && (is_digit(p[n]) || (p[n] && strchr("+-.eE", p[n]))))
        n++;
    return n;
}

/* Returns true for -?[1-9][0-9]* outside the range of int64_t. */
static bool is_huge_integer(const char *p, size_t len)
{
    bool negative = len > 0 && p[0] == '-';
    p += negative;
    len -= negative;
    if (len < INT64_DIGITS || p[0] == '0') return false;
    for (size_t i = 0; i < len; i++)
        if (!is_digit(p[i])) return false;
    const char *limit = negative ? "9223372036854775808" : "9223372036854775807";
    return len > INT64_DIGITS || memcmp(p, limit, INT64_DIGITS) > 0;
}

/* The next huge integer from p on; NULL if there is none. */
static const char *next_huge(const char *p, const char *end, size_t *ret_len)
{
    while (p < end) {
        size_t n = number_length(p, end);
        if (is_huge_integer(p, n)) {
            *ret_len = n;
            return p;
        }
        if (*p == '"') p = srv_json_skip_string(p + 1, end);
        p += n ? n : p < end;
    }
    return NULL;
}

bool srv_json_has_huge_integer(const char *text, size_t len)
{
    size_t n;
    return next_huge(text, text + len, &n) != NULL;
}

void srv_json_round_huge_integers(char *text, size_t len)
{
    const char *end = text + len;
    size_t n;
    for (const char *p = next_huge(text, end, &n); p; p = next_huge(p + n, end, &n)) {
        char real[32];
        double value = strtod(p, NULL);
        if (!isfinite(value)) value = value > 0 ? DBL_MAX / 2 : -DBL_MAX / 2;
        /* 12 digits after the point keep the value above 2^63 and fit in 19 characters. */
        size_t used = (size_t)snprintf(real, sizeof(real), "%.12e", value);
        char *at = text + (p - text);
        memset(at, ' ', n);
        memcpy(at, real, used < n ? used : n);
    }
}

/* ---- members ------------------------------------------------------------------------------- */

static const char *skip_blanks(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\r'))
        p++;
    return p;
}

/* Skips a value of valid JSON. */
static const char *skip_value(const char *p, const char *end)
{
    int depth = 0;
    for (; p < end; p++) {
        if (*p == '"') p = srv_json_skip_string(p + 1, end);
        if (p >= end) break;
        if (*p == '[' || *p == '{') depth++;
        if (depth == 0 && strchr(",]} \t\n\r", *p)) return p;
        if (*p == ']' || *p == '}') depth--;
    }
    return p;
}

/* The character of an escape sequence after its backslash; -1 if it is not ASCII. */
static int escaped_character(const char *p, const char *end, size_t *ret_len)
{
    static const char names[] = "bfnrt", values[] = "\b\f\n\r\t";
    const char *name = strchr(names, *p);
    *ret_len = *p == 'u' ? 5 : 1;
    if (*p != 'u') return name ? values[name - names] : *p;
    char hex[5] = {0};
    if (end - p >= 5) memcpy(hex, p + 1, 4);
    long code = strtol(hex, NULL, 16);
    return code < 128 ? (int)code : -1;
}

/* Compares the inside of a JSON string with an ASCII key. */
static bool is_key(const char *p, const char *end, const char *key)
{
    while (p < end && *key) {
        size_t n = 1;
        int c = (unsigned char)*p;
        if (c == '\\') {
            c = escaped_character(p + 1, end, &n);
            n++;
        }
        if (c != *key++) return false;
        p += n;
    }
    return p >= end && !*key;
}

bool srv_json_member(const char *object, size_t len, const char *key, struct srv_span *ret)
{
    const char *end = object + len;
    const char *p = skip_blanks(object, end) + 1; /* after the brace */
    while ((p = skip_blanks(p, end)) < end && *p == '"') {
        const char *name = p + 1, *name_end = srv_json_skip_string(name, end);
        bool found = is_key(name, name_end, key);
        p = skip_blanks(name_end + 1, end);
        const char *value = skip_blanks(p + 1, end); /* after the colon */
        p = skip_value(value, end);
        if (found) {
            *ret = (struct srv_span){value, (size_t)(p - value)};
            return true;
        }
        p = skip_blanks(p, end);
        if (p < end && *p == ',') p++;
    }
    return false;
}
