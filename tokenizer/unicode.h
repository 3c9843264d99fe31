/* SPDX-License-Identifier: MIT */
/*
 * Character classes and case as the reference tokenizer library sees them (its Unicode version, not
 * that of the libraries we happen to be built with). Made once in tok_open, const afterwards.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Properties of a code point: the category, as utf8proc numbers it, in the low five bits, flags
 * above. */
enum {
    TOK_UNI_CATEGORY = 0x1F,
    TOK_UNI_WHITE = 0x20,     /* White_Space */
    TOK_UNI_WORD = 0x40,      /* a word character for added tokens and the Whitespace splitter */
    TOK_UNI_PUNCT = 0x80,     /* for the Punctuation splitter */
    TOK_UNI_NFC_CARE = 0x100, /* NFC may change it, or it may join the character before it */
    TOK_UNI_LETTER = 0x200,
    TOK_UNI_NUMBER = 0x400,
    TOK_UNI_BERT_DROP = 0x800,  /* BertNormalizer's clean_text drops it */
    TOK_UNI_BERT_MARK = 0x1000, /* its strip_accents does */
};

struct tok_uni_range {
    uint32_t first, last;
    uint32_t value;
};

/* Threads: const after tok_uni_init. */
struct tok_uni {
    uint16_t page[0x110000 >> 8]; /* the block of each page of 256 code points */
    uint16_t (*blocks)[256];      /* properties */
};

/* 0 or TOK_ENOMEM. Release with tok_uni_finish, which also takes a zeroed struct. */
int tok_uni_init(struct tok_uni *u);
void tok_uni_finish(struct tok_uni *u);

/* Properties of a code point up to U+10FFFF. */
static inline unsigned tok_uni_props(const struct tok_uni *u, uint32_t cp)
{
    return u->blocks[u->page[cp >> 8]][cp & 0xFF];
}

/* Returns true if the reference's normalization is too old to know cp and leaves it alone. */
bool tok_uni_is_inert(uint32_t cp);

/* Lowercase of cp: one or two code points into out; returns how many. */
size_t tok_uni_lower(uint32_t cp, uint32_t out[2]);

/* For the pattern translator: code points by which it must add to PCRE2's own classes. */
enum tok_uni_list {
    TOK_UNI_NEWER,        /* value: the category */
    TOK_UNI_WORD_EXTRA,   /* \w besides L, M, Nd, Nl, Pc */
    TOK_UNI_NEWER_SCRIPT, /* value: the script's index */
    TOK_UNI_WHITE_SPACE,
};
const struct tok_uni_range *tok_uni_ranges(enum tok_uni_list list, size_t *ret_n);

/* Returns true if a script name (any case) is known; then its index and PCRE2's spelling. */
bool tok_uni_script(const char *name, size_t len, uint32_t *ret_index, const char **ret_spelling);
