/* SPDX-License-Identifier: MIT */
/*
 * Byte-pair encoding: one piece of text -> ids.
 *
 * A piece is cut into symbols (bytes in byte mode, characters otherwise); then, as long as some
 * neighbours are a known merge, the one of lowest rank is merged, the leftmost of equals. A
 * character without a token becomes byte tokens, the unknown token or nothing, as in the reference.
 *
 * Threads: a bpe is const once built. A scratch belongs to one call at a time.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tokenizer/tok_types.h"
#include "tokenizer/vocab.h"

struct tok_bpe_char {
    uint32_t cp; /* code point + 1, or 0 for a free slot */
    int32_t id;
};

struct tok_bpe {
    const struct tok_vocab *vocab; /* borrowed */

    uint64_t *merges; /* pair of ids << 22 | rank + 1, or 0; open addressing */
    uint32_t n_slots; /* a power of two */
    unsigned hash_shift;
    uint32_t *merge_id; /* [n_merges] the id a merge makes, by rank */
    uint32_t n_merges, cap_merges;

    bool byte_mode; /* pieces are raw bytes, each a symbol of the byte alphabet */
    bool byte_fallback, fuse_unk, ignore_merges, has_unk;
    bool split_marks;      /* no token goes on from another character to U+2581 */
    int32_t unk_id;        /* -1: not in the vocabulary */
    int32_t byte_id[256];  /* byte mode: symbol of a byte; otherwise its fallback token; -1: none */
    int32_t ascii_id[128]; /* token of an ASCII character, or -1 */
    struct tok_bpe_char *chars; /* tokens of the other characters; open addressing */
    uint32_t n_chars;
    struct tok_vocab raw; /* byte mode with ignore_merges: tokens by the bytes they write */
    uint32_t max_token_bytes;
};

/* Adds the next merge, the pair (a, b) of vocabulary strings. TOK_EINVAL: err names what is
 * unknown. */
int tok_bpe_add_merge(struct tok_bpe *b, const char *left, size_t left_len, const char *right,
                      size_t right_len, char *err, size_t errlen);

/* When vocabulary, merges and flags are set: builds the tables of symbols. 0 or a tok_error. */
int tok_bpe_prepare(struct tok_bpe *b, char *err, size_t errlen);

/* Zeroed memory is fine. */
void tok_bpe_finish(struct tok_bpe *b);

struct tok_bpe_cached;

/* Working memory of one tok_encode call. */
struct tok_bpe_scratch {
    uint32_t *words; /* arrays over the symbols of a piece */
    size_t cap;      /* symbols they have room for */
    uint64_t *heap;
    size_t heap_cap;
    struct tok_bpe_cached *cache; /* pieces met before in this call, or NULL */
    uint32_t cache_mask;
};

/* text_len: how much text the call will encode; sizes the cache. Zeroed memory is a scratch
 * without. */
void tok_bpe_scratch_init(struct tok_bpe_scratch *s, size_t text_len);
void tok_bpe_scratch_finish(struct tok_bpe_scratch *s);

/*
 * Appends the ids of one piece (valid UTF-8). O(n log n). TOK_EINVAL when the unknown token is
 * needed but not in the vocabulary.
 */
int tok_bpe_encode(const struct tok_bpe *b, struct tok_bpe_scratch *s, const char *piece,
                   size_t len, struct tok_ids *ids, char *err, size_t errlen);
