/* SPDX-License-Identifier: MIT */
/* Tries of byte strings; see trie.h. */
#include "tokenizer/grammar/trie.h"

#include <assert.h>

#include "tokenizer/grammar/build.h"

/* A node under construction: its edges are a list, newest last. */
struct gram_trie_draft {
    uint32_t first, last; /* edges: 0 is none */
    uint32_t next;        /* this is also the edge that leads here: the next one of its parent */
    uint32_t to;          /* the node it leads to: itself, or the one of another case */
    uint32_t number;      /* of the string that ends here, + 1 */
    uint32_t n_edges;
    uint8_t byte;
};

static uint32_t new_node(struct gram_build *b, struct gram_trie_builder *t, uint8_t byte)
{
    t->nodes = gram_grow(b, t->nodes, t->n, &t->cap, sizeof(*t->nodes));
    t->nodes[t->n] = (struct gram_trie_draft){.byte = byte, .to = t->n};
    return t->n++;
}

static uint32_t find(struct gram_build *b, const struct gram_trie_builder *t, uint32_t node,
                     uint8_t byte)
{
    uint32_t n = 0;
    for (uint32_t e = t->nodes[node].first; e; e = t->nodes[e].next) {
        if (++n % 16 == 0) gram_steps(b, 1);
        if (t->nodes[e].byte == byte) return t->nodes[e].to;
    }
    return 0;
}

static void link_edge(struct gram_trie_builder *t, uint32_t node, uint32_t edge)
{
    struct gram_trie_draft *n = &t->nodes[node];
    if (n->last)
        t->nodes[n->last].next = edge;
    else
        n->first = edge;
    n->last = edge;
    n->n_edges++;
}

/* The node after a byte, made if need be; with its other case, if there is one. */
static uint32_t descend(struct gram_build *b, struct gram_trie_builder *t, uint32_t node,
                        uint8_t byte, bool any_case)
{
    uint32_t child = find(b, t, node, byte);
    if (child) return child;
    child = new_node(b, t, byte);
    link_edge(t, node, child);
    uint8_t lower = byte | 0x20;
    if (any_case && lower >= 'a' && lower <= 'f') {
        uint32_t edge = new_node(b, t, byte ^ 0x20);
        t->nodes[edge].to = child;
        link_edge(t, node, edge);
    }
    return child;
}

bool gram_trie_add(struct gram_build *b, struct gram_trie_builder *t, const char *text, size_t len,
                   bool any_case, uint32_t number)
{
    uint32_t node = 0;
    size_t escape_end = 0, hex_end = 0;
    if (t->n == 0) new_node(b, t, 0);
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '\\' && i >= escape_end && i + 1 < len) {
            escape_end = i + 2;
            if (text[i + 1] == 'u') hex_end = escape_end + 4;
        }
        bool is_hex = any_case && i >= escape_end && i < hex_end;
        node = descend(b, t, node, (uint8_t)text[i], is_hex);
    }
    gram_steps(b, len / 4 + 1);
    if (t->nodes[node].number) return false;
    t->nodes[node].number = number + 1;
    t->n_strings++;
    return true;
}

/* ---- layout -------------------------------------------------------------------------------- */

struct layout {
    const struct gram_trie_builder *t;
    struct gram_trie *out;
    uint32_t *place; /* draft -> node + 1 */
};

/* An open node of the walk, and its next edge. */
struct open_node {
    uint32_t node, edge, at;
};

static void enter(struct layout *l, struct open_node *o, uint32_t draft, uint32_t depth)
{
    const struct gram_trie_draft *d = &l->t->nodes[draft];
    struct gram_trie *out = l->out;
    assert(!l->place[draft]); /* a node has one place */
    l->place[draft] = out->n_nodes + 1;
    out->nodes[out->n_nodes] = (struct gram_trie_node){.edges = out->n_edges,
                                                       .leaf_lo = out->n_leaves,
                                                       .depth = depth,
                                                       .n_edges = (uint16_t)d->n_edges,
                                                       .is_leaf = d->number != 0};
    if (d->number) out->lengths[out->n_leaves] = depth;
    if (d->number) out->leaves[out->n_leaves++] = d->number - 1;
    *o = (struct open_node){out->n_nodes++, d->first, out->n_edges};
    out->n_edges += d->n_edges;
}

/* Numbers nodes, edges and leaves in the order of a depth-first walk. */
static void walk(struct layout *l, struct open_node *stack)
{
    uint32_t depth = 0;
    enter(l, &stack[depth++], 0, 0);
    while (depth > 0) {
        struct open_node *o = &stack[depth - 1];
        if (!o->edge) {
            l->out->nodes[o->node].leaf_hi = l->out->n_leaves;
            depth--;
            continue;
        }
        const struct gram_trie_draft *e = &l->t->nodes[o->edge];
        uint32_t at = o->at++;
        o->edge = e->next;
        l->out->bytes[at] = e->byte;
        if (!l->place[e->to]) {
            enter(l, &stack[depth], e->to, depth);
            depth++;
        }
        l->out->to[at] = l->place[e->to] - 1;
    }
}

void gram_trie_finish(struct gram_build *b, const struct gram_trie_builder *t,
                      struct gram_trie *ret)
{
    struct layout l = {.t = t, .out = ret};
    uint32_t n = t->n ? t->n : 1;
    *ret = (struct gram_trie){.nodes = gram_keep_array(b, n, sizeof(*ret->nodes))};
    if (t->n) {
        ret->bytes = gram_keep(b, n);
        ret->to = gram_keep_array(b, n, sizeof(*ret->to));
        ret->leaves = gram_keep_array(b, t->n_strings + 1, sizeof(*ret->leaves));
        ret->lengths = gram_keep_array(b, t->n_strings + 1, sizeof(*ret->lengths));
        l.place = gram_temp_array(b, n, sizeof(*l.place));
        walk(&l, gram_temp_array(b, n + 1, sizeof(struct open_node)));
    }
    assert(ret->n_leaves == t->n_strings && ret->n_edges < n);
    if (!ret->n_nodes) ret->n_nodes = 1;
}
