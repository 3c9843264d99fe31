/* SPDX-License-Identifier: MIT */
/*
 * The byte alphabet of byte-level vocabularies: each byte is written as one printable character.
 * Printable Latin-1 bytes stand for themselves, the other 68 follow from U+0100 on.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* The character that writes a byte. */
static inline uint32_t tok_bytelevel_char(uint8_t b)
{
    if (b <= 0x20) return 0x100u + b;
    if (b >= 0x7F && b <= 0xA0) return 0x121u + b - 0x7Fu;
    return b == 0xAD ? 0x143 : b;
}

/* The byte that a character writes, or -1 for a character outside the alphabet. */
static inline int tok_bytelevel_byte(uint32_t cp)
{
    if (cp >= 0x100 && cp <= 0x120) return (int)(cp - 0x100);
    if (cp >= 0x121 && cp <= 0x142) return (int)(cp - 0x121 + 0x7F);
    if (cp == 0x143) return 0xAD;
    return cp < 0x100 && tok_bytelevel_char((uint8_t)cp) == cp ? (int)cp : -1;
}

/*
 * The bytes that a token of valid UTF-8 writes, into out (room for len). Returns their number, or
 * -1 when a character is outside the alphabet.
 */
ptrdiff_t tok_bytelevel_decode(const char *token, size_t len, char *out);

/* Writes bytes in the alphabet into out (room for 2 * len); returns the length. */
size_t tok_bytelevel_encode(const char *bytes, size_t len, char *out);
