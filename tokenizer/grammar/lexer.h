/* SPDX-License-Identifier: MIT */
/*
 * The inside of JSON strings, byte by byte: a table of some thirty states for each of two dialects,
 * the same for all grammars of a vocabulary. A free string may use any escape; a plain one has a
 * single spelling for each character (see the README), so that a key cannot be written twice.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum gram_dialect {
    GRAM_LEX_FREE,
    GRAM_LEX_PLAIN,
};

/* States. GRAM_LEX_BODY is between characters; the others are inside of one. */
enum {
    GRAM_LEX_BODY,
    GRAM_LEX_ESCAPE, /* after a backslash */
    GRAM_LEX_CONT1,  /* continuation bytes to come */
    GRAM_LEX_CONT2,
    GRAM_LEX_CONT3,
    GRAM_LEX_E0,
    GRAM_LEX_ED,
    GRAM_LEX_F0,
    GRAM_LEX_F4,   /* the second byte is restricted */
    GRAM_LEX_HEX4, /* hexadecimal digits of \u to come */
    GRAM_LEX_HEX3,
    GRAM_LEX_HEX2,
    GRAM_LEX_HEX1,
    GRAM_LEX_D, /* \uD: a surrogate, perhaps */
    GRAM_LEX_HIGH2,
    GRAM_LEX_HIGH1, /* digits of a high surrogate */
    GRAM_LEX_PAIR,  /* after a high surrogate: \uDC00 to \uDFFF must follow */
    GRAM_LEX_PAIR_U,
    GRAM_LEX_PAIR_D,
    GRAM_LEX_LOW3,
    GRAM_LEX_LOW2,
    GRAM_LEX_LOW1,
    GRAM_LEX_U0, /* plain: \u, \u0, \u00, \u000, \u001 */
    GRAM_LEX_U00,
    GRAM_LEX_U000,
    GRAM_LEX_U0000,
    GRAM_LEX_U0010,
    GRAM_LEX_STATES,
    GRAM_LEX_QUOTE = 0xFE, /* results of a byte that are not states */
    GRAM_LEX_DEAD = 0xFF,
};

/*
 * Groups of characters that automata seldom tell apart, as bits of a set. Characters that JSON
 * escapes, and bytes that are not UTF-8, are "other".
 */
enum { GRAM_CHAR_BEYOND = 29, /* ASCII */ GRAM_CHAR_OTHER, GRAM_CHAR_GROUPS };

int gram_char_group(uint8_t byte);

struct gram_lexer {
    uint8_t next[2][GRAM_LEX_STATES][256];
    uint8_t rest[2][GRAM_LEX_STATES]; /* bytes to the end of the character */
};

/* spellable: a bit per byte; others match nothing. */
void gram_lexer_build(struct gram_lexer *l, const uint64_t spellable[4]);

/* ---- hashes of strings: over their spelling in the plain dialect --------------------------- */

#define GRAM_HASH_SEED 0xCBF29CE484222325u

static inline uint64_t gram_hash_byte(uint64_t h, uint8_t byte)
{
    h = (h ^ byte) * 0x9FB21C651E98DF25u;
    return h ^ h >> 28;
}

/* Hashes of remembered keys never have this bit off; numbers of free words never have it on. */
static inline uint64_t gram_hash_end(uint64_t h)
{
    return h | (uint64_t)1 << 63;
}

uint64_t gram_hash_bytes(uint64_t h, const char *text, uint64_t len);

/* One more byte of the plain dialect. last_digit: it ends \u00XX, where case does not matter. */
static inline uint64_t gram_hash_plain(uint64_t h, uint8_t byte, bool last_digit)
{
    return gram_hash_byte(h, last_digit && byte >= 'A' ? byte | 0x20 : byte);
}

/*
 * One more byte of the free dialect, which leads from one state to another. *escape keeps the
 * digits of an escape and is 0 between characters.
 */
uint64_t gram_hash_free(uint64_t h, uint8_t from, uint8_t to, uint8_t byte, uint32_t *escape);
