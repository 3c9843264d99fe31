/* SPDX-License-Identifier: MIT */
/* Small parsers of header fields; see headers.h. */
#include "server/hub/headers.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { MAX_SECONDS = 1 << 30 };

bool hub_range_is(const char *text, int64_t from, int64_t size)
{
    char wanted[80];
    snprintf(wanted, sizeof(wanted), "bytes %lld-%lld/%lld", (long long)from, (long long)size - 1,
             (long long)size);
    return strcmp(text, wanted) == 0;
}

/* Reads a number at *p and moves *p after it. Returns -1 if there is none or it is too large. */
static int64_t take_number(const char **p)
{
    int64_t n = -1;
    for (; isdigit((unsigned char)**p); ++*p) {
        n = (n < 0 ? 0 : n) * 10 + (**p - '0');
        if (n > MAX_SECONDS) return -1;
    }
    return n;
}

static const char *skip_blanks(const char *p)
{
    return p + strspn(p, " \t");
}

/* ---- Link ----------------------------------------------------------------------------------- */

/* Behind a parameter's value, quoted or not, whose text it gives. */
static const char *take_value(const char *p, const char **ret, size_t *ret_len)
{
    if (*p != '"') {
        *ret = p;
        *ret_len = strcspn(p, ";, \t");
        return p + *ret_len;
    }
    *ret = ++p;
    while (*p && *p != '"')
        p += *p == '\\' && p[1] ? 2 : 1;
    *ret_len = (size_t)(p - *ret);
    return *p ? p + 1 : p;
}

/* Returns true if a list of words between blanks holds "next". */
static bool holds_next(const char *text, size_t len)
{
    const char *end = text + len;
    while (text < end) {
        const char *word = text;
        while (text < end && *text != ' ' && *text != '\t')
            text++;
        if (text - word == 4 && strncasecmp(word, "next", 4) == 0) return true;
        text++;
    }
    return false;
}

/* The parameters behind a target; *ret_next: one of them is rel="next". Behind the last one. */
static const char *take_parameters(const char *p, bool *ret_next)
{
    *ret_next = false;
    for (p = skip_blanks(p); *p == ';'; p = skip_blanks(p)) {
        p = skip_blanks(p + 1);
        const char *name = p, *value = NULL;
        size_t name_len = strcspn(p, "=;, \t"), value_len = 0;
        p = skip_blanks(p + name_len);
        if (*p == '=') p = take_value(skip_blanks(p + 1), &value, &value_len);
        if (value && name_len == 3 && strncasecmp(name, "rel", 3) == 0)
            *ret_next = *ret_next || holds_next(value, value_len);
    }
    return p;
}

int hub_link_next(const char *text, char *buf, size_t size)
{
    const char *p = skip_blanks(text);
    while (*p == '<') {
        const char *target = p + 1;
        size_t len = strcspn(target, "> \t");
        bool next;
        if (target[len] != '>') return -1;
        p = take_parameters(target + len + 1, &next);
        if (next) {
            if (len == 0 || len >= size) return -1;
            memcpy(buf, target, len);
            buf[len] = '\0';
            return 0;
        }
        if (*p != ',') return -1;
        p += strspn(p, ", \t");
    }
    return -1;
}

/* ---- waiting -------------------------------------------------------------------------------- */

int64_t hub_retry_after(const char *text, time_t now)
{
    const char *p = text;
    int64_t n = take_number(&p);
    if (n >= 0) return *skip_blanks(p) ? -1 : n;
    struct tm tm = {0};
    const char *end = strptime(text, "%a, %d %b %Y %H:%M:%S GMT", &tm);
    if (!end || *end) return -1;
    int64_t seconds = (int64_t)timegm(&tm) - (int64_t)now;
    return seconds < 0 ? 0 : seconds > MAX_SECONDS ? -1 : seconds;
}

/* The number behind "name=", as a parameter of a structured field; -1 if there is none. */
static int64_t find_parameter(const char *text, char name)
{
    for (const char *p = strchr(text, ';'); p; p = strchr(p, ';')) {
        p = skip_blanks(p + 1);
        if (*p != name) continue;
        const char *value = skip_blanks(p + 1);
        if (*value != '=') continue;
        value = skip_blanks(value + 1);
        return take_number(&value);
    }
    return -1;
}

int64_t hub_rate_limit(const char *text)
{
    return find_parameter(text, 'r') == 0 ? find_parameter(text, 't') : -1;
}
