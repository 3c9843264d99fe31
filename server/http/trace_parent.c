/* SPDX-License-Identifier: MIT */
/* Reading the header traceparent. See trace_parent.h. */
#include "server/http/trace_parent.h"

#include <string.h>

enum { TRACE_ID_AT = 3, TRACE_ID_CHARS = 32, SPAN_ID_AT = 36, SPAN_ID_CHARS = 16 };

static bool is_hex(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

/* Digits where the form has an x, its own character elsewhere. */
static bool has_form(const char *value)
{
    static const char form[] = "xx-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx-xxxxxxxxxxxxxxxx-xx";
    _Static_assert(sizeof(form) == SRV_TRACE_PARENT_CHARS + 1, "the four fields");
    for (int i = 0; i < SRV_TRACE_PARENT_CHARS; i++)
        if (form[i] == 'x' ? !is_hex(value[i]) : value[i] != form[i]) return false;
    return true;
}

static bool is_zero(const char *digits, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (digits[i] != '0') return false;
    return true;
}

bool srv_trace_parent_read(char ret[SRV_TRACE_PARENT_CHARS + 1], const char *value, size_t len)
{
    if (len < SRV_TRACE_PARENT_CHARS || !has_form(value)) return false;
    bool is_first_version = is_zero(value, 2);
    bool ends = len == SRV_TRACE_PARENT_CHARS ||
                (!is_first_version && value[SRV_TRACE_PARENT_CHARS] == '-');
    if (!ends || strncmp(value, "ff", 2) == 0) return false;
    if (is_zero(value + TRACE_ID_AT, TRACE_ID_CHARS) || is_zero(value + SPAN_ID_AT, SPAN_ID_CHARS))
        return false;
    memcpy(ret, value, SRV_TRACE_PARENT_CHARS);
    ret[SRV_TRACE_PARENT_CHARS] = '\0';
    return true;
}
