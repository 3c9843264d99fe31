/* SPDX-License-Identifier: MIT */
/* Bytes as digits, and digits as numbers. Any thread. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Writes 2 n lower-case digits and a NUL. Returns to. */
static inline char *hex_write(char *to, const uint8_t *bytes, size_t n)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        to[2 * i] = digits[bytes[i] >> 4];
        to[2 * i + 1] = digits[bytes[i] & 15];
    }
    to[2 * n] = '\0';
    return to;
}

/* The value of a digit of either case; -1 for any other character. */
static inline int hex_value(int c)
{
    if (c >= '0' && c <= '9') return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}
