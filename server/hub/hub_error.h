/* SPDX-License-Identifier: MIT */
/*
 * How fetching a model can fail. Functions of this folder return 0 or one of these, with a sentence
 * for people in `err`, a buffer of HUB_ERR_SIZE bytes. Its absolute value is the exit status.
 */
#ifndef HEARTH_SERVER_HUB_HUB_ERROR_H
#define HEARTH_SERVER_HUB_HUB_ERROR_H

#include <stdarg.h>
#include <stdio.h>

enum hub_error {
    HUB_EINTERNAL = -1,  /* out of memory, or a bug */
    HUB_EUSAGE = -2,     /* an invalid name, revision, endpoint or token */
    HUB_ENOTFOUND = -3,  /* no such model or revision */
    HUB_EDENIED = -4,    /* gated or private, or the token is not accepted */
    HUB_ENETWORK = -5,   /* not reached, too slow, rate limits, certificates, or offline */
    HUB_EWRONG = -6,     /* an invalid answer or content */
    HUB_EDISK = -7,      /* no space, or no permission to write */
    HUB_ENOTSERVED = -8, /* no model that this program can serve */
    HUB_ESTOPPED = -9,   /* asked to stop; no exit status of its own */
};

enum { HUB_ERR_SIZE = 600 };

/* Writes the sentence into err and returns rc. No argument may lie in err. */
__attribute__((format(printf, 3, 4))) static inline int hub_fail(char *err, int rc,
                                                                 const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(err, HUB_ERR_SIZE, format, args);
    va_end(args);
    return rc;
}

#endif
