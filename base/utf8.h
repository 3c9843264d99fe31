/* SPDX-License-Identifier: MIT */
/*
 * UTF-8: validation once at the door, then unchecked reading. Pure functions, any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Returns true if text[0..len) is well-formed UTF-8: no surrogate or overlong form, up to U+10FFFF.
 */
bool utf8_valid(const char *text, size_t len);

/* Bytes of text[0..len) before the first one above 0x7F. */
size_t utf8_ascii_prefix(const char *text, size_t len);

/* Whether a text ends with another one. */
bool utf8_ends_with(const char *text, const char *end);

/* Writes cp at out (room for 4) and returns its length. */
size_t utf8_put(char *out, uint32_t cp);

/*
 * Classifies the start of the bytes s[0..len), 1 to 4 of them, whatever they are.
 * n > 0: a complete character of n bytes; 0: the beginning of a character; n < 0: -n bad bytes, the
 * maximal part of a broken character, which readers replace by one U+FFFD.
 */
int utf8_classify(const unsigned char *s, size_t len);

/* Characters of valid text. */
static inline size_t utf8_count(const char *text, size_t len)
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++)
        n += ((unsigned char)text[i] & 0xC0) != 0x80;
    return n;
}

/* Length of the character that starts with the byte b, in valid text. */
static inline size_t utf8_len(unsigned char b)
{
    return b < 0x80 ? 1 : b < 0xE0 ? 2 : b < 0xF0 ? 3 : 4;
}

/* Reads the character at *p of valid text and moves *p behind it. */
static inline uint32_t utf8_next(const unsigned char **p)
{
    const unsigned char *s = *p;
    uint32_t b = s[0];
    if (b < 0x80) {
        *p = s + 1;
        return b;
    }
    if (b < 0xE0) {
        *p = s + 2;
        return (b & 0x1F) << 6 | (s[1] & 0x3Fu);
    }
    if (b < 0xF0) {
        *p = s + 3;
        return (b & 0x0F) << 12 | (s[1] & 0x3Fu) << 6 | (s[2] & 0x3Fu);
    }
    *p = s + 4;
    return (b & 0x07) << 18 | (s[1] & 0x3Fu) << 12 | (s[2] & 0x3Fu) << 6 | (s[3] & 0x3Fu);
}

/* Reads the character that ends at end (exclusive) of valid text that begins at or before it. */
static inline uint32_t utf8_before(const unsigned char *end, const unsigned char **ret_begin)
{
    const unsigned char *s = end - 1;
    while ((*s & 0xC0) == 0x80)
        s--;
    *ret_begin = s;
    return utf8_next(&s);
}
