/* SPDX-License-Identifier: MIT */
/*
 * The keys are sorted, so that those below a node are a range of them. The children of a node lie
 * in one block of 256 units. A base that suits them is found with sets of 256 bits: the bases whose
 * child under c is free are the free units of the block, each moved from u to u ^ c. Only the last
 * few blocks are searched; those before them are nearly full.
 */
#include "tokenizer/piece_trie.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/fail.h"
#include "base/shown.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/tok_types.h"
#include "tokenizer/vocab.h"

#define OPEN_BLOCKS 16
#define MAX_BLOCKS (1u << 16)

_Static_assert(TOK_MAX_IDS <= 1u << 22, "an id and 1 fit in 23 bits");

struct block {
    uint64_t free[4];  /* units */
    uint64_t bases[4]; /* that no node has */
    uint32_t n_free;
};

struct builder {
    struct tok_trie *t;
    const struct tok_trie_key *keys;
    struct block blocks[OPEN_BLOCKS]; /* block i is at i % OPEN_BLOCKS */
    uint32_t n_blocks, cap_blocks;
};

static int compare_keys(const void *a, const void *b)
{
    const struct tok_trie_key *x = a, *y = b;
    int c = memcmp(x->s, y->s, x->len < y->len ? x->len : y->len);
    if (c || x->len != y->len) return c ? c : x->len < y->len ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static int add_block(struct builder *b)
{
    struct tok_trie *t = b->t;
    if (b->n_blocks == MAX_BLOCKS) return TOK_EINVAL;
    if (b->n_blocks == b->cap_blocks) {
        uint32_t cap = b->cap_blocks ? b->cap_blocks * 2 : 4;
        uint64_t *units = realloc(t->units, (size_t)cap * 256 * sizeof(*units));
        if (!units) return TOK_ENOMEM;
        t->units = units;
        b->cap_blocks = cap;
    }
    memset(t->units + (size_t)b->n_blocks * 256, 0, 256 * sizeof(*t->units));
    struct block *k = &b->blocks[b->n_blocks % OPEN_BLOCKS];
    memset(k->free, 0xFF, sizeof(k->free));
    memset(k->bases, 0xFF, sizeof(k->bases));
    k->n_free = 256;
    t->n_units = ++b->n_blocks * 256;
    return 0;
}

static void take(struct block *k, unsigned unit)
{
    k->free[unit / 64] &= ~(1ull << unit % 64);
    k->n_free--;
}

/* Bit i of the result is bit i ^ by of x; by is below 64. */
static uint64_t permute(uint64_t x, unsigned by)
{
    static const uint64_t low[6] = {0x5555555555555555u, 0x3333333333333333u, 0x0F0F0F0F0F0F0F0Fu,
                                    0x00FF00FF00FF00FFu, 0x0000FFFF0000FFFFu, 0x00000000FFFFFFFFu};
    for (unsigned i = 0; i < 6; i++)
        if (by >> i & 1) x = (x & low[i]) << (1u << i) | (x >> (1u << i) & low[i]);
    return x;
}

/* A base in the block whose units under all labels are free, or -1. */
static int base_in(const struct block *k, const uint8_t *labels, size_t n)
{
    if (k->n_free < n) return -1;
    for (unsigned word = 0; word < 4; word++) {
        uint64_t bases = k->bases[word];
        for (size_t i = 0; i < n && bases; i++)
            bases &= permute(k->free[word ^ labels[i] >> 6], labels[i] & 63);
        if (bases) return (int)(word * 64) + __builtin_ctzll(bases);
    }
    return -1;
}

/* Takes a base and the units under the labels for the children of a node. */
static int place(struct builder *b, uint32_t node, const uint8_t *labels, size_t n)
{
    uint32_t i = b->n_blocks > OPEN_BLOCKS ? b->n_blocks - OPEN_BLOCKS : 0;
    int found = -1;
    while (i < b->n_blocks && (found = base_in(&b->blocks[i % OPEN_BLOCKS], labels, n)) < 0)
        i++;
    if (found < 0) {
        int rc = add_block(b);
        if (rc) return rc;
        found = base_in(&b->blocks[i % OPEN_BLOCKS], labels, n);
        assert(found >= 0);
    }
    struct block *k = &b->blocks[i % OPEN_BLOCKS];
    uint32_t base = i * 256 + (uint32_t)found;
    k->bases[found / 64] &= ~(1ull << found % 64);
    b->t->units[node] |= (uint64_t)base << 32;
    for (size_t c = 0; c < n; c++) {
        take(k, (base ^ labels[c]) & 255);
        b->t->units[base ^ labels[c]] = 0x100u | labels[c];
    }
    return 0;
}

/* The end of the run of keys that share the byte at depth with the first. */
static size_t run_end(const struct builder *b, size_t begin, size_t end, size_t depth)
{
    size_t i = begin + 1;
    while (i < end && b->keys[i].s[depth] == b->keys[begin].s[depth])
        i++;
    return i;
}

/*
 * Builds what lies below a node: keys [begin, end), which share `depth` bytes. Recurses where they
 * part, so at most TOK_MAX_PIECE_BYTES deep.
 */
static int build(struct builder *b, uint32_t node, size_t begin, size_t end, size_t depth)
{
    uint8_t labels[256];
    size_t n;
    do {
        if (b->keys[begin].len == depth)
            b->t->units[node] |= (uint64_t)(b->keys[begin].id + 1) << 9;
        while (begin < end && b->keys[begin].len == depth)
            begin++;
        if (begin == end) return 0;
        n = 0;
        for (size_t i = begin; i < end; i = run_end(b, i, end, depth))
            labels[n++] = (uint8_t)b->keys[i].s[depth];
        int rc = place(b, node, labels, n);
        if (rc) return rc;
        if (n == 1) node = (uint32_t)(b->t->units[node] >> 32) ^ labels[0];
        depth++;
    } while (n == 1);
    uint32_t base = (uint32_t)(b->t->units[node] >> 32);
    for (size_t i = begin, next; i < end; i = next) {
        next = run_end(b, i, end, depth - 1);
        int rc = build(b, base ^ (uint8_t)b->keys[i].s[depth - 1], i, next, depth);
        if (rc) return rc;
    }
    return 0;
}

int tok_trie_of(struct tok_trie *t, struct tok_trie_key *keys, size_t n, char *err, size_t errlen)
{
    struct builder b = {.t = t, .keys = keys};
    int rc = add_block(&b);
    if (rc) return rc;
    take(&b.blocks[0], 0);         /* the root */
    b.blocks[0].bases[0] &= ~1ull; /* a node without children has base 0 */
    qsort(keys, n, sizeof(*keys), compare_keys);
    if (n) rc = build(&b, 0, 0, n, 0);
    if (rc == TOK_EINVAL) snprintf(err, errlen, "the vocabulary has more than 2^24 prefixes");
    uint64_t *units = realloc(t->units, t->n_units * sizeof(*units));
    if (units) t->units = units;
    return rc;
}

int tok_trie_build(struct tok_trie *t, const struct tok_vocab *vocab, const struct tok_added *added,
                   const char *prefix, size_t prefix_len, char *err, size_t errlen)
{
    AUTO_FREE struct tok_trie_key *keys = malloc((vocab->n_ids + (size_t)1) * sizeof(*keys));
    char shown[64];
    size_t n = 0, len;
    int rc = keys ? 0 : TOK_ENOMEM;
    for (int32_t id = 0; !rc && (uint32_t)id < vocab->n_ids; id++) {
        const char *s = tok_vocab_string(vocab, id, &len);
        const struct tok_added_token *token = tok_added_by_id(added, id);
        if (!s || len <= prefix_len || memcmp(s, prefix, prefix_len) != 0) continue;
        if (token && token->special) continue;
        if (len > TOK_MAX_PIECE_BYTES)
            rc = fail_with(TOK_EINVAL, err, errlen,
                           "token \"%s\" with id %d: it is longer than %d bytes",
                           shown_text(shown, sizeof(shown), s, len), id, TOK_MAX_PIECE_BYTES);
        keys[n++] = (struct tok_trie_key){s + prefix_len, len - prefix_len, id};
    }
    return rc ? rc : tok_trie_of(t, keys, n, err, errlen);
}

void tok_trie_finish(struct tok_trie *t)
{
    free(t->units);
    *t = (struct tok_trie){0};
}
