/* SPDX-License-Identifier: MIT */
/* Problems found in a model directory: the first for the caller, all of them for a listing. */
#include "engine/model/problems.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/shown.h"

/* The listing stops here; the count continues. */
enum { MAX_LISTED = 50, LINE_BYTES = 1024 };

int eng_report_problem(struct eng_report *r, int rc, const char *fmt, ...)
{
    char raw[LINE_BYTES], text[LINE_BYTES];
    FORMAT_REST(raw, sizeof(raw), fmt);
    shown_text(text, sizeof(text), raw, strlen(raw)); /* names from a file may hold any bytes */
    if (r->n_problems++ == 0) {
        r->rc = rc;
        if (r->errlen) snprintf(r->err, r->errlen, "%s", text);
    }
    if (r->problem && r->n_problems <= MAX_LISTED) r->problem(r->ctx, text);
    return rc;
}
