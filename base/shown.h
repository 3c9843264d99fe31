/* SPDX-License-Identifier: MIT */
/*
 * Text of strangers where people read it: on terminals, in messages and in logs. Control
 * characters (a terminal obeys those of Latin-1 too), what reorders or hides the text around it,
 * and bytes that are not UTF-8 are spelled \x1b or \u202e. Pure but for the streams; any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { SHOWN_CHAR_BYTES = 8, SHOWN_LINE_BYTES = 4096 };

/* Returns true if a character is never sent as it is. All of them are at most U+FFFF. */
static inline bool shown_is_unsafe(uint32_t c)
{
    return c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0x061C || c == 0x200E || c == 0x200F ||
           (c >= 0x2028 && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069) ||
           (c >= 0xFFF9 && c <= 0xFFFB);
}

/* The first character of s[0..len), len > 0, or its spelling. Returns the bytes in out and in
 * *ret_taken those of s. */
size_t shown_char(char out[SHOWN_CHAR_BYTES], const char *s, size_t len, size_t *ret_taken);

/* As many whole characters of s[0..len) as fit, and a NUL. Returns out. */
const char *shown_text(char *out, size_t size, const char *s, size_t len);

/* Writes s[0..len) with its newlines and tabs as they are. Returns false if that fails. */
bool shown_write(FILE *f, const char *s, size_t len);

/* Prints one line, cut to SHOWN_LINE_BYTES; nothing in it begins another one. */
void shown_line(FILE *f, const char *format, ...) __attribute__((format(printf, 2, 3)));
