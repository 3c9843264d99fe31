/* SPDX-License-Identifier: MIT */
/* The text that a front end reads, valid UTF-8, and how far it has come. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

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

/* Reads the next character; the text is not at its end. */
static inline uint32_t gram_source_char(struct gram_source *s)
{
    const unsigned char *p = (const unsigned char *)s->text + s->pos;
    uint32_t cp = utf8_next(&p);
    s->pos = (size_t)((const char *)p - s->text);
    return cp;
}
