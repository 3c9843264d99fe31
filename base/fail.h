/* SPDX-License-Identifier: MIT */
/* A failure and its sentence in one statement, and the texts of functions with a format. */
#pragma once

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

/* In a function with "...": vsnprintf of its arguments after the one named format. */
#define FORMAT_REST(buf, size, format)                                                             \
    ({                                                                                             \
        va_list args_;                                                                             \
        va_start(args_, format);                                                                   \
        int len_ = vsnprintf(buf, size, format, args_);                                            \
        va_end(args_);                                                                             \
        len_;                                                                                      \
    })

/* Writes the sentence into err, cut to errlen, and returns rc. No argument may lie in err. */
__attribute__((format(printf, 4, 5))) static inline int fail_with(int rc, char *err, size_t errlen,
                                                                  const char *format, ...)
{
    FORMAT_REST(err, errlen, format);
    return rc;
}
