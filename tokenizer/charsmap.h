/* SPDX-License-Identifier: MIT */
/*
 * SentencePiece's precompiled map of characters: byte strings and what replaces them. In the file
 * it is base64 of a 32-bit length, a double array of that many bytes, and the replacements, each
 * with a NUL after it.
 *
 * Threads: const once loaded.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "tokenizer/unicode.h"

struct tok_charsmap;

/* Loads the member "precompiled_charsmap". Returns owned: tok_charsmap_destroy. */
int tok_charsmap_load(struct tok_charsmap **ret, const json_t *json, char *err, size_t errlen);

/* NULL is fine. */
void tok_charsmap_destroy(struct tok_charsmap *m);

/* A walk over a text, from one replacement to the next. */
struct tok_charsmap_iter {
    const struct tok_charsmap *m;
    const struct tok_uni *uni;
    const unsigned char *text;
    size_t len;
    size_t pos;
    size_t by_char; /* before here characters are looked up one by one */
};

/* Borrows all; text is valid UTF-8. */
struct tok_charsmap_iter tok_charsmap_iter(const struct tok_charsmap *m, const struct tok_uni *uni,
                                           const char *text, size_t len);

/*
 * The next part of the text that is replaced, [*ret_begin, *ret_end), and by what: UTF-8, borrowed
 * from the map. False when the text is used up. The whole walk is linear.
 *
 * A cluster of characters (an extended grapheme cluster) below 6 bytes is replaced as a whole if it
 * begins with a key of the map, by the replacement of the shortest such key; otherwise each of its
 * characters is looked up in the same way. So does the reference, which drops the rest.
 */
bool tok_charsmap_next(struct tok_charsmap_iter *it, size_t *ret_begin, size_t *ret_end,
                       const char **ret, size_t *ret_len);
