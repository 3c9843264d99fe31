/* SPDX-License-Identifier: MIT */
/*
 * A vocabulary as a trie over bytes, for models that ask which tokens begin at a place of the text
 * (WordPiece, Unigram). It is a double array: the child of a node under byte c is the unit at
 * base ^ c, if that unit's label is c. No two nodes share a base, so the label is proof enough.
 *
 * Threads: const once built.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Longest token; it bounds the work at each place of a text. */
#define TOK_MAX_PIECE_BYTES 1024

struct tok_trie {
    uint64_t *units;  /* base << 32 | (id + 1) << 9 | taken << 8 | label */
    uint32_t n_units; /* a multiple of 256 */
};

struct tok_added;
struct tok_vocab;

struct tok_trie_key {
    const char *s;
    size_t len; /* 1 to TOK_MAX_PIECE_BYTES */
    int32_t id;
};

/* Builds a zeroed trie of n keys, which are sorted; of equal ones the lowest id counts. 0,
 * TOK_ENOMEM, or TOK_EINVAL with a sentence for more than 2^24 nodes. */
int tok_trie_of(struct tok_trie *t, struct tok_trie_key *keys, size_t n, char *err, size_t errlen);

/* No key is in the trie. */
static inline bool tok_trie_is_empty(const struct tok_trie *t)
{
    return !(t->units[0] >> 32);
}

/*
 * Builds a zeroed trie of the tokens that begin with a prefix, without it; one then empty is
 * left out. So are the special tokens of `added`: no text spells them. 0, TOK_ENOMEM, or TOK_EINVAL
 * with a sentence for a token that is too long, or for more than 2^24 nodes.
 */
int tok_trie_build(struct tok_trie *t, const struct tok_vocab *vocab, const struct tok_added *added,
                   const char *prefix, size_t prefix_len, char *err, size_t errlen);

/* Zeroed memory is fine. */
void tok_trie_finish(struct tok_trie *t);

/* Goes from *node (0: the root) down by a byte. False, with *node kept, if no token goes on so. */
static inline bool tok_trie_step(const struct tok_trie *t, uint32_t *node, unsigned char c)
{
    uint32_t next = (uint32_t)(t->units[*node] >> 32) ^ c;
    if ((t->units[next] & 0x1FF) != (0x100u | c)) return false;
    *node = next;
    return true;
}

/* The id of the token that ends at a node, or -1. */
static inline int32_t tok_trie_id(const struct tok_trie *t, uint32_t node)
{
    return (int32_t)((uint32_t)t->units[node] >> 9) - 1;
}
