/* SPDX-License-Identifier: MIT */
/* Expressions to nodes of the machine; see rules.h. */

#include <assert.h>
#include <string.h>

#include "base/utf8.h"
#include "tokenizer/grammar/build.h"
#include "tokenizer/grammar/charset.h"
#include "tokenizer/grammar/rules.h"
#include "tokenizer/grammar/vocab.h"

/* Larger expressions are taken apart before anybody tries to make an automaton of them. */
enum { MAX_LEAF_SIZE = 4000 };

uint32_t gram_node_leaf(struct gram_build *b, const struct gram_dfa *dfa)
{
    uint32_t node = gram_add_node(b, GRAM_NODE_LEAF);
    b->rules->nodes[node].dfa = dfa;
    return node;
}

/* An automaton for all of x, or GRAM_NONE if it would be too large. */
static uint32_t leaf_of(struct gram_build *b, const struct gram_ex *x)
{
    struct gram_ex_part part = {.x = x};
    struct gram_ex *shorter = (struct gram_ex *)x;
    struct gram_dfa_params params = {.parts = &part,
                                     .n_parts = 1,
                                     .needed = 1,
                                     .max = GRAM_INFINITE,
                                     .spellable = b->vocab->spellable,
                                     .max_steps = (b->max_steps - b->steps) / 4 + 1};
    if (gram_ex_hoist_count(b, &shorter, &params.min, &params.max)) part.x = shorter;
    if (part.x->size > MAX_LEAF_SIZE) return GRAM_NONE;
    struct gram_dfa *d = gram_add_dfa(b, &params);
    return d ? gram_node_leaf(b, d) : GRAM_NONE;
}

/* ---- texts --------------------------------------------------------------------------------- */

static bool is_char(const struct gram_ex *x)
{
    return x->kind == GRAM_EX_SET && x->set->n == 1 && x->set->ranges[0].lo == x->set->ranges[0].hi;
}

static bool is_text(const struct gram_ex *x)
{
    if (x->kind != GRAM_EX_SEQ) return is_char(x);
    for (uint32_t i = 0; i < x->n; i++)
        if (!is_char(x->kids[i])) return false;
    return true;
}

uint32_t gram_node_text(struct gram_build *b, const char *text, size_t len)
{
    struct gram_trie_builder trie = {0};
    if (gram_vocab_spells(b->vocab, text, len)) gram_trie_add(b, &trie, text, len, false, 0);
    return gram_node_texts(b, &trie, 0, NULL);
}

uint32_t gram_node_texts(struct gram_build *b, const struct gram_trie_builder *texts, uint32_t n,
                         const uint32_t *kids)
{
    struct gram_trie *kept = gram_keep(b, sizeof(*kept));
    gram_trie_finish(b, texts, kept);
    uint32_t node = gram_node_with(b, GRAM_NODE_LITERALS, n, kids);
    b->rules->nodes[node].trie = kept;
    return node;
}

/* A literal needs no automaton. */
static uint32_t text_node(struct gram_build *b, const struct gram_ex *x)
{
    uint32_t n = x->kind == GRAM_EX_SEQ ? x->n : 1;
    char *text = gram_temp(b, 4 * (size_t)n);
    size_t len = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct gram_ex *c = x->kind == GRAM_EX_SEQ ? x->kids[i] : x;
        assert(c->kind == GRAM_EX_SET && c->set->n == 1);
        len += utf8_put(text + len, c->set->ranges[0].lo);
    }
    return gram_node_text(b, text, len);
}

/* ---- taking apart -------------------------------------------------------------------------- */

uint32_t gram_node_with(struct gram_build *b, enum gram_node_kind kind, uint32_t n,
                        const uint32_t *kids)
{
    assert(n == 0 || kids);
    uint32_t node = gram_add_node(b, kind);
    b->rules->nodes[node].n = n;
    b->rules->nodes[node].kids = gram_temp_array(b, n, sizeof(*kids));
    if (n) memcpy(b->rules->nodes[node].kids, kids, n * sizeof(*kids));
    return node;
}

/* Neighbours that are regular become one leaf, as long as it is not too large. */
static uint32_t seq_node(struct gram_build *b, const struct gram_ex *x, const uint32_t *rules)
{
    uint32_t *kids = gram_temp_array(b, x->n, sizeof(*kids)), n = 0;
    assert(x->n > 0);
    for (uint32_t i = 0, end; i < x->n; i = end) {
        uint64_t size = x->kids[i]->size;
        for (end = i + 1; end < x->n && !x->kids[i]->has_rules && !x->kids[end]->has_rules; end++) {
            size += x->kids[end]->size;
            if (size > MAX_LEAF_SIZE || (i == 0 && end + 1 == x->n)) break;
        }
        kids[n++] = gram_node_of(b, gram_ex_slice(b, x, i, end), rules);
    }
    return n == 1 ? kids[0] : gram_node_with(b, GRAM_NODE_SEQ, n, kids);
}

static uint32_t alt_node(struct gram_build *b, const struct gram_ex *x, const uint32_t *rules)
{
    uint32_t *kids = gram_temp_array(b, x->n + 1, sizeof(*kids)), n = 0;
    struct gram_ex_list regular = {0};
    for (uint32_t i = 0; i < x->n; i++) {
        if (!x->kids[i]->has_rules && x->kids[i]->size <= MAX_LEAF_SIZE / 8)
            gram_ex_push(b, &regular, x->kids[i]);
        else
            kids[n++] = gram_node_of(b, x->kids[i], rules);
    }
    if (regular.n == x->n) { /* all together were too large */
        for (uint32_t i = 0; i < x->n; i++)
            kids[n++] = gram_node_of(b, x->kids[i], rules);
    } else if (regular.n) {
        kids[n++] = gram_node_of(b, gram_ex_alt(b, &regular), rules);
    }
    return n == 1 ? kids[0] : gram_node_with(b, GRAM_NODE_ALT, n, kids);
}

uint32_t gram_node_rep(struct gram_build *b, uint32_t kid, uint32_t min, uint32_t max)
{
    uint32_t node = gram_node_with(b, GRAM_NODE_REP, 1, &kid);
    b->rules->nodes[node].min = min;
    b->rules->nodes[node].max = max;
    return node;
}

uint32_t gram_node_of(struct gram_build *b, const struct gram_ex *x, const uint32_t *rules)
{
    uint32_t node;
    if (is_text(x)) return text_node(b, x);
    if (x->kind != GRAM_EX_EMPTY && !x->has_rules) {
        node = leaf_of(b, x);
        if (node != GRAM_NONE) return node;
        if (x->looks && x->kind != GRAM_EX_ALT)
            gram_fail(b, GRAM_EGRAMMAR, "The expression is too complex to look ahead in.");
    }
    switch (x->kind) {
    case GRAM_EX_EMPTY: return gram_add_node(b, GRAM_NODE_EMPTY);
    case GRAM_EX_SEQ: return seq_node(b, x, rules);
    case GRAM_EX_ALT: return alt_node(b, x, rules);
    case GRAM_EX_REP: return gram_node_rep(b, gram_node_of(b, x->kids[0], rules), x->min, x->max);
    case GRAM_EX_RULE: return rules[x->ref];
    default: gram_fail(b, GRAM_EGRAMMAR, "The expression is too complex.");
    }
}
