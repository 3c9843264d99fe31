/* SPDX-License-Identifier: MIT */
/*
 * Sets of characters that a pattern names (\s, \p{L}, \p{Han} ...) and how they are written for
 * PCRE2. The inside of a class is put, without the brackets.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "tokenizer/unicode.h"

/* first-last, or a single character; escaped where need be. */
void tok_pattern_put_range(struct buf *o, uint32_t first, uint32_t last);

/* A set of characters that an escape names. */
struct tok_char_set {
    uint32_t categories; /* one bit for each general category */
    bool white;          /* White_Space */
    bool word;           /* \w: the categories and some more */
    bool hex;            /* 0-9 A-F a-f */
    const char *script;  /* PCRE2's spelling, or NULL */
    uint32_t script_index;
    bool negated;
    bool in_class; /* an item of [...] */
    bool folded;   /* case does not count: \p{L} gains U+0345 there */
};

/* \s \d \w \h and their negations, by the letter after the backslash. False: not a set, as \p. */
bool tok_char_set_escape(unsigned char c, struct tok_char_set *set);

/* A property or script by its name; sets only what it is. False: unknown. */
bool tok_char_set_find(const char *name, size_t len, struct tok_char_set *set);

/* Returns true if the set tells upper from lower case. */
bool tok_char_set_is_cased(const struct tok_char_set *set);

/*
 * Returns true if the reference makes more of this item of a class when case does not count: the
 * sharp s also matches "ss", for one, but not in a negated class.
 */
bool tok_char_set_folds(const struct tok_uni *uni, const struct tok_char_set *set,
                        bool class_negated);

/* Puts the members; negated is the caller's business. */
void tok_char_set_put(struct buf *o, const struct tok_char_set *set);

/* Puts all other characters, as ranges. Not for scripts. Walks through all code points. */
void tok_char_set_put_complement(struct buf *o, const struct tok_uni *uni,
                                 const struct tok_char_set *set);
