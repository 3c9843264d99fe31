/* SPDX-License-Identifier: MIT */
/*
 * Facts about tokens inside strings, for every grammar: which of them stay there, with how
 * many characters, and which close the string. One walk over the trie for each dialect.
 */
#include <stdlib.h>

#include "base/array.h"
#include "tokenizer/grammar/grammar.h"
#include "tokenizer/grammar/vocab.h"

/* The state of the walk at a depth. */
struct place {
    uint8_t state;
    uint16_t n_chars;
};

struct walk {
    struct gram_vocab *v;
    enum gram_dialect dialect;
    struct place places[GRAM_MAX_TOKEN_BYTES + 1];
    uint32_t cap_exits;
};

uint32_t gram_text_of_node(const struct gram_vocab *v, uint32_t node)
{
    while (v->nodes[node].id < 0)
        node++;
    return v->offsets[v->nodes[node].id];
}

static int add_exit(struct walk *w, uint32_t node, uint16_t n_chars)
{
    struct gram_vocab *v = w->v;
    uint32_t n = v->n_exits[w->dialect];
    if (ARRAY_ROOM(v->exits[w->dialect], w->cap_exits, n + 1, 64)) return GRAM_ENOMEM;
    struct gram_exit *e = &v->exits[w->dialect][n];
    *e = (struct gram_exit){.node = node,
                            .text = gram_text_of_node(v, node),
                            .n_bytes = v->nodes[node].depth,
                            .n_chars = n_chars};
    while (n > 0 && v->text[e->text + e->n_shared] == v->text[e[-1].text + e->n_shared])
        e->n_shared++;
    v->n_exits[w->dialect]++;
    return 0;
}

static int walk_trie(struct walk *w)
{
    struct gram_vocab *v = w->v;
    const uint8_t(*next)[256] = v->lexer.next[w->dialect];
    w->places[0] = (struct place){GRAM_LEX_BODY, 0};
    for (uint32_t i = 1; i < v->n_nodes;) {
        const struct gram_tok_node *node = &v->nodes[i];
        struct place p = w->places[node->depth - 1];
        uint8_t to = next[p.state][node->byte];
        if (to == GRAM_LEX_QUOTE) {
            int rc = add_exit(w, i, p.n_chars);
            if (rc) return rc;
        }
        if (to >= GRAM_LEX_QUOTE) {
            i = node->skip;
            continue;
        }
        p.n_chars = (uint16_t)(p.n_chars + (p.state == GRAM_LEX_BODY));
        p.state = to;
        w->places[node->depth] = p;
        if (node->id >= 0) gram_set_token(v, node, v->inside[w->dialect]);
        if (node->id >= 0 && w->dialect == GRAM_LEX_FREE) v->n_chars[node->id] = p.n_chars;
        i++;
    }
    return 0;
}

static bool is_inside(const struct gram_vocab *v, int32_t id)
{
    return v->inside[GRAM_LEX_FREE][id / 64] >> id % 64 & 1;
}

/* Ids by their number of characters, by counting. */
static int sort_by_chars(struct gram_vocab *v)
{
    uint32_t n = 0;
    for (int32_t id = 0; id < v->n_ids; id++)
        if (is_inside(v, id) && v->n_chars[id] > v->max_chars) v->max_chars = v->n_chars[id];
    v->by_chars = calloc((size_t)v->n_ids + 1, sizeof(*v->by_chars));
    v->first_with = calloc(v->max_chars + 3, sizeof(*v->first_with));
    if (!v->by_chars || !v->first_with) return GRAM_ENOMEM;
    uint32_t *first = v->first_with;
    for (int32_t id = 0; id < v->n_ids; id++)
        if (is_inside(v, id)) first[v->n_chars[id] + 2]++;
    for (uint32_t k = 2; k < v->max_chars + 3; k++)
        first[k] += first[k - 1];
    for (int32_t id = 0; id < v->n_ids; id++, n++)
        if (is_inside(v, id)) v->by_chars[first[v->n_chars[id] + 1]++] = id;
    return 0;
}

static void fill_at_most(struct gram_vocab *v)
{
    for (int32_t id = 0; id < v->n_ids; id++)
        if (is_inside(v, id) && v->n_chars[id] <= GRAM_CHAR_SETS)
            gram_set_bit(v->at_most[v->n_chars[id]], id);
    for (int k = 2; k <= GRAM_CHAR_SETS; k++)
        for (size_t w = 0; w < v->n_words; w++)
            v->at_most[k][w] |= v->at_most[k - 1][w];
}

/* The group of each node; then, from the last node to the first, all below. */
static int find_groups(struct gram_vocab *v)
{
    uint8_t *groups = malloc(v->n_nodes), state[GRAM_MAX_TOKEN_BYTES + 1];
    uint32_t path[GRAM_MAX_TOKEN_BYTES + 1] = {0};
    uint32_t sums[GRAM_MAX_TOKEN_BYTES + 2] = {0}; /* of the nodes of a depth that were passed */
    if (!groups) return GRAM_ENOMEM;
    state[0] = GRAM_LEX_BODY;
    for (uint32_t i = 1; i < v->n_nodes; i++) {
        const struct gram_tok_node *node = &v->nodes[i];
        uint8_t before = state[node->depth - 1], to = GRAM_LEX_DEAD;
        if (before < GRAM_LEX_STATES) to = v->lexer.next[GRAM_LEX_PLAIN][before][node->byte];
        state[node->depth] = to;
        groups[i] = (uint8_t)(to == GRAM_LEX_DEAD ? GRAM_CHAR_OTHER : gram_char_group(node->byte));
        path[node->depth] = path[node->depth - 1] | (uint32_t)1 << groups[i];
        for (uint32_t left = node->id >= 0 ? path[node->depth] : 0; left; left &= left - 1)
            gram_set_token(v, node, v->with[__builtin_ctz(left)]);
    }
    for (uint32_t i = v->n_nodes; i-- > 1;) {
        struct gram_tok_node *node = &v->nodes[i];
        node->below = sums[node->depth + 1];
        sums[node->depth + 1] = 0;
        sums[node->depth] |= node->below | (uint32_t)1 << groups[i];
    }
    free(groups);
    return 0;
}

void gram_vocab_add_groups(const struct gram_vocab *v, uint32_t groups, uint64_t *bits)
{
    const uint64_t *without[GRAM_CHAR_GROUPS];
    int n = 0;
    groups &= ~(1u << GRAM_CHAR_OTHER);
    for (int g = 0; g < GRAM_CHAR_GROUPS; g++)
        if (!(groups >> g & 1)) without[n++] = v->with[g];
    for (size_t w = 0; w < v->n_words; w++) {
        uint64_t set = v->inside[GRAM_LEX_PLAIN][w];
        for (int i = 0; i < n; i++)
            set &= ~without[i][w];
        bits[w] |= set;
    }
}

int gram_vocab_read_strings(struct gram_vocab *v)
{
    uint64_t *sets = calloc((GRAM_CHAR_SETS + GRAM_CHAR_GROUPS) * v->n_words, sizeof(*sets));
    v->at_most[1] = sets;
    v->n_chars = calloc((size_t)v->n_ids, sizeof(*v->n_chars));
    v->inside[0] = calloc(v->n_words, sizeof(*v->inside[0]));
    v->inside[1] = calloc(v->n_words, sizeof(*v->inside[1]));
    struct walk *w = calloc(1, sizeof(*w));
    int rc = sets && v->n_chars && v->inside[0] && v->inside[1] && w ? 0 : GRAM_ENOMEM;
    for (int k = 2; !rc && k <= GRAM_CHAR_SETS; k++)
        v->at_most[k] = sets + (size_t)(k - 1) * v->n_words;
    for (int g = 0; !rc && g < GRAM_CHAR_GROUPS; g++)
        v->with[g] = sets + (size_t)(GRAM_CHAR_SETS + g) * v->n_words;
    for (int dialect = 0; !rc && dialect < 2; dialect++) {
        *w = (struct walk){.v = v, .dialect = dialect};
        rc = walk_trie(w);
    }
    free(w);
    if (!rc) rc = find_groups(v);
    if (rc) return rc;
    for (int32_t id = 0; id < v->n_ids; id++) /* ids that share a text share its count */
        if (v->next_same[id]) v->n_chars[v->next_same[id]] = v->n_chars[id];
    rc = sort_by_chars(v);
    if (!rc) fill_at_most(v);
    return rc;
}
