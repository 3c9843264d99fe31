/* SPDX-License-Identifier: MIT */
/* Scans over JSON text; see json_text.h. */
#include "server/api/json_text.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_reader.h"

enum { INT64_DIGITS = 19 };

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
        if (*p == '"')
            p = jr_behind_string(p + 1, end);
        else
            p += n ? n : 1;
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

bool srv_json_member(const char *object, size_t len, const char *key, struct srv_span *ret)
{
    struct jr r;
    const char *name;
    size_t name_len;
    char err[64]; /* valid JSON gives none */
    bool first = true, found = false;
    jr_init(&r, object, len, JR_NUL, err, sizeof(err));
    int rc = jr_open(&r, '{');
    while (!rc && !found && jr_more(&r, '}', &first) == 1) {
        rc = jr_key(&r, &name, &name_len);
        found = !rc && name_len == strlen(key) && memcmp(name, key, name_len) == 0;
        if (!rc) rc = jr_skip(&r, &ret->text, &ret->len);
    }
    jr_finish(&r);
    return found && !rc;
}
