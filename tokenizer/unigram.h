/* SPDX-License-Identifier: MIT */
/*
 * Unigram: one piece of text -> the ids whose scores (log-probabilities) have the largest sum.
 *
 * A character without a token of its own may be taken as unknown, at the lowest score of the
 * vocabulary less 10. Neighbouring unknown characters become one unknown token, or their bytes'
 * tokens with byte_fallback. Of equal sums the one whose last token begins first counts, as in the
 * reference; sums are taken from left to right in double precision, like there.
 *
 * Threads: a unigram is const once prepared. A scratch belongs to one call at a time.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tokenizer/piece_trie.h"
#include "tokenizer/tok_types.h"
#include "tokenizer/vocab.h"

struct tok_added;

struct tok_unigram {
    const struct tok_vocab *vocab; /* borrowed */
    double *score;                 /* [n_scores] by id */
    uint32_t n_scores, cap_scores;
    int32_t unk_id; /* -1: none */
    bool byte_fallback;

    struct tok_trie trie;
    double unk_score;
    int32_t byte_id[256]; /* -1: none */
    uint32_t window;      /* a power of two above the longest token's bytes */
};

/*
 * Adds the score of the next id, as the file writes it. The value is the reference's, whose reading
 * of decimals is not always the nearest double. TOK_EINVAL for one that is not finite.
 */
int tok_unigram_add_score(struct tok_unigram *u, const char *number, size_t len, char *err,
                          size_t errlen);

/*
 * Builds the tables when vocabulary, scores and flags are set. Special tokens of `added` are left
 * out: no text spells them. TOK_EINVAL names a token that is too long, or an unk_id out of range.
 */
int tok_unigram_prepare(struct tok_unigram *u, const struct tok_added *added, char *err,
                        size_t errlen);

/* Zeroed memory is fine. */
void tok_unigram_finish(struct tok_unigram *u);

/* Working memory of one tok_encode call. Zero-initialise. */
struct tok_unigram_scratch {
    int32_t *last; /* [cap] the token that ends at a place, on the best way there */
    size_t cap;
    double *sum; /* [window] of the best ways to the places ahead */
};

void tok_unigram_scratch_finish(struct tok_unigram_scratch *s);

/*
 * Appends the ids of one piece (valid UTF-8). The time is O(len), times the longest token at worst;
 * the memory 4 bytes per byte. TOK_EINVAL if the unknown token is needed but there is none.
 */
int tok_unigram_encode(const struct tok_unigram *u, struct tok_unigram_scratch *s,
                       const char *piece, size_t len, struct tok_ids *ids, char *err,
                       size_t errlen);
