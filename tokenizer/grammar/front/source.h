/* SPDX-License-Identifier: MIT */
/* The text that a front end reads, valid UTF-8, and how far it has come. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/hex.h"
#include "base/utf8.h"
#include "tokenizer/grammar/gram_types.h"

struct gram_source {
    const char *text;
    size_t len, pos;
};

/* The next byte, or -1 at the end. */
static inline int gram_source_peek(const struct gram_source *s)
{
    return s->pos < s->len ? (unsigned char)s->text[s->pos] : -1;
}

static inline bool gram_source_at(const struct gram_source *s, const char *word)
{
    size_t n = strlen(word);
    return s->len - s->pos >= n && memcmp(s->text + s->pos, word, n) == 0;
}

/* Reads the word if it is next. */
static inline bool gram_source_accept(struct gram_source *s, const char *word)
{
    if (!gram_source_at(s, word)) return false;
    s->pos += strlen(word);
    return true;
}

/* Reads *, + or ? as a number of times; false if none is next. */
static inline bool gram_source_times(struct gram_source *s, uint32_t *min, uint32_t *max)
{
    *min = gram_source_at(s, "+");
    *max = gram_source_at(s, "?") ? 1 : GRAM_INFINITE;
    return gram_source_accept(s, "*") || gram_source_accept(s, "+") || gram_source_accept(s, "?");
}

/* Reads up to max hexadecimal digits; returns how many. More than 32 bits are UINT32_MAX. */
static inline size_t gram_source_hex(struct gram_source *s, size_t max, uint32_t *ret)
{
    size_t n = 0;
    int digit;
    for (*ret = 0; n < max && (digit = hex_value(gram_source_peek(s))) >= 0; n++, s->pos++)
        *ret = *ret >> 28 ? UINT32_MAX : *ret << 4 | (uint32_t)digit;
    return n;
}

/* Reads a count, at most 2^31 if it is more; false if there is no digit. */
static inline bool gram_source_count(struct gram_source *s, uint32_t *ret)
{
    uint64_t v = 0;
    size_t begin = s->pos;
    for (int c; (c = gram_source_peek(s)) >= '0' && c <= '9'; s->pos++)
        if (v <= INT32_MAX) v = v * 10 + (uint64_t)(c - '0');
    *ret = v <= INT32_MAX ? (uint32_t)v : 1u << 31;
    return s->pos > begin;
}

/* Reads the next character; the text is not at its end. */
static inline uint32_t gram_source_char(struct gram_source *s)
{
    const unsigned char *p = (const unsigned char *)s->text + s->pos;
    uint32_t cp = utf8_next(&p);
    s->pos = (size_t)((const char *)p - s->text);
    return cp;
}
