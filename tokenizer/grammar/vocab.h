/* SPDX-License-Identifier: MIT */
/*
 * A vocabulary as the machine sees it: all tokens in one trie, and the facts about tokens
 * inside strings whatever the grammar. Immutable once created.
 *
 * The trie is an array in the order of a walk. A node's first child, if it has one, is the next
 * node; `skip` is the first node after its subtree. Depth counts bytes; node 0 is the root.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tokenizer/grammar/gram_types.h"
#include "tokenizer/grammar/lexer.h"

struct gram_tok_node {
    uint32_t skip;
    int32_t id; /* of the token that ends here, or -1; others with its text: next_same */
    uint16_t depth;
    uint8_t byte;
    bool has_same;
    uint32_t below; /* groups of the characters in its subtree, itself left out */
};

/* A place in the trie right after the closing quote of a string that a token began inside. */
struct gram_exit {
    uint32_t node;
    uint32_t text; /* offset of the bytes up to and with the quote */
    uint16_t n_bytes;
    uint16_t n_chars;  /* before the quote */
    uint16_t n_shared; /* bytes that it has in common with the exit before it */
};

enum { GRAM_CHAR_SETS = 32 };

struct gram_vocab {
    int32_t n_ids;
    size_t n_words; /* of a mask */
    struct gram_tok_node *nodes;
    uint32_t n_nodes;
    uint32_t root_child[256]; /* 0: none */
    char *text;               /* of all tokens */
    uint32_t *offsets;        /* [n_ids + 1] */
    int32_t *next_same;       /* [n_ids]: the next higher id with the same text, or 0 */
    int32_t byte_ids[256];
    uint64_t spellable[4];
    int32_t *end_ids;
    size_t n_end_ids;
    struct gram_lexer lexer;

    /* tokens that begin between two characters of a string and do not leave it */
    uint64_t *inside[2];                   /* [n_words], by dialect */
    uint64_t *with[GRAM_CHAR_GROUPS];      /* [n_words]: those with a character of the group */
    uint64_t *at_most[GRAM_CHAR_SETS + 1]; /* free dialect: with at most so many characters */
    uint16_t *n_chars;                     /* [n_ids]: characters begun */
    int32_t *by_chars;                     /* ids by n_chars, ascending */
    uint32_t *first_with;                  /* [max_chars + 2]: first of by_chars with so many */
    uint32_t max_chars;
    struct gram_exit *exits[2];
    uint32_t n_exits[2];

    /* nodes by their byte, those of the root left out: where a leaf can end inside a token */
    uint32_t *by_byte; /* [first_by_byte[256]] */
    uint32_t first_by_byte[257];
    uint32_t max_bytes; /* of a token */
};

/* Sets the bits of a node's token. */
static inline void gram_set_bit(uint64_t *bits, int32_t id)
{
    bits[id / 64] |= (uint64_t)1 << id % 64;
}

static inline void gram_set_token(const struct gram_vocab *v, const struct gram_tok_node *n,
                                  uint64_t *bits)
{
    gram_set_bit(bits, n->id);
    for (int32_t id = n->has_same ? v->next_same[n->id] : 0; id; id = v->next_same[id])
        gram_set_bit(bits, id);
}

/* The tokens of nodes first..end-1. */
static inline void gram_set_tokens(const struct gram_vocab *v, uint32_t first, uint32_t end,
                                   uint64_t *bits)
{
    for (uint32_t i = first; i < end; i++)
        if (v->nodes[i].id >= 0) gram_set_token(v, &v->nodes[i], bits);
}

/* The id ends an answer. */
bool gram_vocab_is_end(const struct gram_vocab *v, int32_t id);

/* The bytes of an id; NULL if it has none or is not an id. */
const char *gram_vocab_text(const struct gram_vocab *v, int32_t id, size_t *ret_len);

/*
 * All the bytes that JSON is made of are spellable: braces, digits, letters of escapes and so on.
 */
bool gram_vocab_spells_json(const struct gram_vocab *v, uint8_t *ret_missing);

/*
 * Tokens spell the text: every byte by itself, and after each 0xFF a special token as a whole.
 */
bool gram_vocab_spells(const struct gram_vocab *v, const char *text, size_t len);

/* The longest token that text begins with, and its length; -1 if there is none. */
int32_t gram_vocab_longest(const struct gram_vocab *v, const char *text, size_t len,
                           size_t *ret_len);

/* The offset in v->text of some token below a node: its first `depth` bytes lead to the node. */
uint32_t gram_text_of_node(const struct gram_vocab *v, uint32_t node);

/* Adds the tokens all of whose characters are of these groups, a bit each. */
void gram_vocab_add_groups(const struct gram_vocab *v, uint32_t groups, uint64_t *bits);

/* Fills the facts about tokens inside strings. 0 or GRAM_ENOMEM. */
int gram_vocab_read_strings(struct gram_vocab *v);
