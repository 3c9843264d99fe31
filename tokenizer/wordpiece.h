/* SPDX-License-Identifier: MIT */
/*
 * WordPiece: one word -> ids, from left to right the longest token each time. Tokens that go on in
 * a word are written with a prefix ("##") in the vocabulary. A word of too many characters, or with
 * a place where no token begins, becomes the unknown token as a whole.
 *
 * Threads: const once prepared.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "tokenizer/json_component.h"
#include "tokenizer/piece_trie.h"
#include "tokenizer/tok_types.h"
#include "tokenizer/vocab.h"

struct tok_added;

struct tok_wordpiece {
    struct tok_component_text prefix; /* owned; set before tok_wordpiece_prepare, as are: */
    uint32_t max_chars;               /* per word */
    int32_t unk_id;                   /* -1: not in the vocabulary */
    struct tok_trie begin, more;      /* tokens at the beginning of a word, and after it */
};

/*
 * Builds the tries. Special tokens of `added` are left out: no text spells them. TOK_EINVAL names a
 * token that is too long.
 */
int tok_wordpiece_prepare(struct tok_wordpiece *w, const struct tok_vocab *vocab,
                          const struct tok_added *added, char *err, size_t errlen);

/* Zeroed memory is fine. */
void tok_wordpiece_finish(struct tok_wordpiece *w);

/*
 * Appends the ids of one word (valid UTF-8). The time is O(len), times the longest token at worst.
 * TOK_EINVAL if the unknown token is needed but not in the vocabulary.
 */
int tok_wordpiece_encode(const struct tok_wordpiece *w, const char *word, size_t len,
                         struct tok_ids *ids, char *err, size_t errlen);
