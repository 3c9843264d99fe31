/* SPDX-License-Identifier: MIT */
/* Which bytes a configuration may take, so that a walk need not try all of them. */
#include <string.h>

#include "tokenizer/grammar/compiled.h"
#include "tokenizer/grammar/machine.h"

static void add_byte(uint64_t bytes[4], uint8_t byte)
{
    bytes[byte / 64] |= (uint64_t)1 << byte % 64;
}

static void add_text(uint64_t bytes[4], const char *text)
{
    for (; *text; text++)
        add_byte(bytes, (uint8_t)*text);
}

static void add_spaces(const struct gram *g, uint16_t state, uint64_t bytes[4])
{
    for (const char *p = " \n\t\r"; *p; p++)
        if (gram_space_step(g, state, (uint8_t)*p) != GRAM_NO_SPACE) add_byte(bytes, (uint8_t)*p);
}

static void add_edges(const struct gram_trie *t, uint32_t node, uint64_t bytes[4])
{
    const struct gram_trie_node *n = &t->nodes[node];
    for (uint32_t e = n->edges; e < n->edges + n->n_edges; e++)
        add_byte(bytes, t->bytes[e]);
}

/* Bytes that any value can begin with. */
#define VALUE_BEGINNINGS "\"{[-0123456789tfn"

static void add_between(const struct gram *g, const struct gram_config *c, uint64_t bytes[4])
{
    add_spaces(g, c->d, bytes);
    switch (c->kind) {
    case GRAM_AT_VALUE:
        bytes[0] |= g->rules.values[c->node].first[0];
        bytes[1] |= g->rules.values[c->node].first[1];
        break;
    case GRAM_AT_OBJECT: add_text(bytes, "\"}"); break;
    case GRAM_AT_KEY: add_byte(bytes, '"'); break;
    case GRAM_AT_COLON: add_byte(bytes, ':'); break;
    case GRAM_AT_ARRAY: add_text(bytes, VALUE_BEGINNINGS "]"); break;
    default: add_text(bytes, ",}]"); break;
    }
}

void gram_config_bytes(const struct gram *g, const struct gram_config *c, uint64_t bytes[4])
{
    switch (c->kind) {
    case GRAM_AT_END: break;
    case GRAM_IN_LITERAL: add_edges(&g->rules.tries[c->node], (uint32_t)c->s1, bytes); break;
    case GRAM_IN_WORDS: add_edges(g->rules.nodes[c->node].trie, (uint32_t)c->s1, bytes); break;
    case GRAM_IN_NUMBER: add_text(bytes, "0123456789.eE+-"); break;
    case GRAM_IN_KEY:
        add_byte(bytes, '"');
        if ((uint32_t)c->s1 == UINT32_MAX)
            add_edges(&g->rules.objects[c->node].trie, (uint32_t)(c->s1 >> 32), bytes);
        else
            memset(bytes, 0xFF, 4 * sizeof(*bytes));
        break;
    default:
        if (c->kind <= GRAM_AT_NEXT)
            add_between(g, c, bytes);
        else
            memset(bytes, 0xFF, 4 * sizeof(*bytes));
        break;
    }
}
