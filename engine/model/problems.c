/* SPDX-License-Identifier: MIT */
/* Problems found in a model directory: the first for the caller, all of them for a listing. */
#include "engine/model/problems.h"

#include <stdarg.h>
#include <stdio.h>

/* The listing stops here; the count continues. */
enum { MAX_LISTED = 50, LINE_BYTES = 1024 };

/* Names from a file may hold any bytes; a problem is one line of text. */
static void blank_controls(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f) *text = '?';
}

int eng_report_problem(struct eng_report *r, int rc, const char *fmt, ...)
{
    char text[LINE_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    blank_controls(text);
    if (r->n_problems++ == 0) {
        r->rc = rc;
        if (r->errlen) snprintf(r->err, r->errlen, "%s", text);
    }
    if (r->problem && r->n_problems <= MAX_LISTED) r->problem(r->ctx, text);
    return rc;
}
