/* SPDX-License-Identifier: MIT */
/*
 * A trie of byte strings: the literals of enum and const, the declared keys of an object, the texts
 * of a choice. Leaves are numbered in the order of a walk, so the leaves below a node are a range.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gram_build;

#define GRAM_TRIE_NONE UINT32_MAX

struct gram_trie_node {
    uint32_t edges; /* the first of its edges */
    uint32_t leaf_lo, leaf_hi;
    uint32_t depth; /* bytes from the root */
    uint16_t n_edges;
    bool is_leaf; /* a string ends here: leaf leaf_lo */
};

struct gram_trie {
    struct gram_trie_node *nodes; /* [n_nodes]; 0 is the root */
    uint8_t *bytes;               /* of the edges */
    uint32_t *to;                 /* [n_edges] */
    uint32_t *leaves;             /* [n_leaves]: the caller's number of the string */
    uint32_t *lengths;            /* [n_leaves] */
    uint64_t *hashes;             /* [n_leaves], or NULL; filled by the caller */
    uint32_t n_nodes, n_edges, n_leaves;
};

/* A trie under construction, in temporary memory. Zero-initialise. */
struct gram_trie_builder {
    struct gram_trie_draft *nodes;
    uint32_t n, cap, n_strings;
};

/*
 * Adds a string under a number. Of two equal strings the first counts; returns false for the
 * second. any_case: after "\\u", as JSON writes control characters, the letters of hexadecimal
 * digits may have either case.
 */
bool gram_trie_add(struct gram_build *b, struct gram_trie_builder *t, const char *text, size_t len,
                   bool any_case, uint32_t number);

/* Lays it out in kept memory. */
void gram_trie_finish(struct gram_build *b, const struct gram_trie_builder *t,
                      struct gram_trie *ret);

/* The bytes from a node to the nearest string. */
static inline uint32_t gram_trie_rest(const struct gram_trie *t, uint32_t node)
{
    uint32_t rest = UINT32_MAX;
    for (uint32_t i = t->nodes[node].leaf_lo; i < t->nodes[node].leaf_hi; i++)
        if (t->lengths[i] - t->nodes[node].depth < rest)
            rest = t->lengths[i] - t->nodes[node].depth;
    return rest;
}

/* The node after a byte, or GRAM_TRIE_NONE. */
static inline uint32_t gram_trie_step(const struct gram_trie *t, uint32_t node, uint8_t byte)
{
    const struct gram_trie_node *n = &t->nodes[node];
    for (uint32_t e = n->edges; e < n->edges + n->n_edges; e++)
        if (t->bytes[e] == byte) return t->to[e];
    return GRAM_TRIE_NONE;
}
