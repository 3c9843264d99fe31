/* SPDX-License-Identifier: MIT */
/*
 * Added tokens: strings that are recognised in the text before anything is split or merged.
 *
 * There are two sets. Those with "normalized": false are looked for in the text as it came, the
 * rest afterwards in each normalized stretch between them. A search finds the leftmost match, of
 * several at one place the longest; matches do not overlap.
 *
 * Threads: const once loaded.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tokenizer/normalize.h"
#include "tokenizer/piece_trie.h"
#include "tokenizer/tok_types.h"
#include "tokenizer/unicode.h"
#include "tokenizer/vocab.h"

/* Longest content; it bounds the work at each place of the text. */
#define TOK_MAX_ADDED_BYTES TOK_MAX_PIECE_BYTES

struct tok_added_token {
    char *content; /* owned, NUL-terminated */
    size_t len;
    int32_t id;
    bool special, normalized, single_word, lstrip, rstrip;
};

struct tok_added {
    const struct tok_uni *uni;      /* borrowed */
    struct tok_added_token *tokens; /* [n_tokens] special ones first, else in the file's order */
    size_t n_tokens;
    uint32_t *by_id;         /* [n_tokens] indices, ids ascending */
    struct tok_trie sets[2]; /* of contents, and of normalized ones; ids are indices of tokens */
};

/*
 * Loads "added_tokens" (NULL or JSON null: none) over a complete vocabulary. Ids that the reference
 * would not give are refused, as are tokens that occur twice.
 */
int tok_added_load(struct tok_added *a, const struct tok_uni *uni, const json_t *json,
                   const struct tok_vocab *vocab, const struct tok_normalizer *normalizer,
                   char *err, size_t errlen);
/* Zeroed memory is fine. */
void tok_added_finish(struct tok_added *a);

/* NULL when there is none. Borrowed. */
const struct tok_added_token *tok_added_by_id(const struct tok_added *a, int32_t id);
const struct tok_added_token *tok_added_by_content(const struct tok_added *a, const char *s,
                                                   size_t len);

/* Where bytes of a text come from, and which of them no special token may touch. */
struct tok_added_scope {
    const uint32_t *origin; /* of each byte, or NULL: base and on */
    uint32_t base;
    const struct tok_range *input; /* sorted, disjoint, in terms of origins */
    size_t n_input;
    bool parse_special; /* false: special tokens are plain text */
};

/* A walk over a text, from one added token to the next. */
struct tok_added_iter {
    const struct tok_added *a;
    const struct tok_trie *set;
    const struct tok_added_scope *scope;
    const char *text;
    size_t len;
    size_t pos;  /* where the search goes on */
    size_t done; /* up to here the text was handed out */
};

/* which: 0 before normalization, 1 after it. Borrows scope and text. */
struct tok_added_iter tok_added_iter(const struct tok_added *a, int which,
                                     const struct tok_added_scope *scope, const char *text,
                                     size_t len);

/*
 * The next stretch: text [*ret_begin, *ret_end), perhaps empty, and the token after it, NULL for
 * the last stretch. False when the text is used up.
 */
bool tok_added_next(struct tok_added_iter *it, size_t *ret_begin, size_t *ret_end,
                    const struct tok_added_token **ret_token);
