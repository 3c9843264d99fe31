/* SPDX-License-Identifier: MIT */
/* A failure and its sentence in one statement. */
#pragma once

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

/* Writes the sentence into err, cut to errlen, and returns rc. No argument may lie in err. */
__attribute__((format(printf, 4, 5))) static inline int fail_with(int rc, char *err, size_t errlen,
                                                                  const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(err, errlen, format, args);
    va_end(args);
    return rc;
}
