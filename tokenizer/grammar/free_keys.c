/* SPDX-License-Identifier: MIT */
/* The automaton of an object's free keys, next to the trie of its declared ones. */
#include "tokenizer/grammar/rules.h"

#include "tokenizer/grammar/build.h"
#include "tokenizer/grammar/json_doc.h"

struct gram_dfa *gram_free_automaton(struct gram_build *b, const struct gram_key_draft *draft)
{
    struct gram_dfa *d = gram_add_dfa(b, &draft->params);
    if (!d) gram_leave_out(b, draft->at, draft->keyword, "too complex: patterns of keys.");
    return d;
}

/* The automaton's state at each node of the trie; dead: q is GRAM_DFA_DEAD. */
static void place_nodes(const struct gram_object *o, struct gram_dfa_place *places)
{
    const struct gram_trie *t = &o->trie;
    for (uint32_t i = 0; i < t->n_nodes; i++)
        places[i].q = GRAM_DFA_DEAD;
    places[0] = (struct gram_dfa_place){o->free_keys->start, 0, 0};
    for (uint32_t i = 0; i < t->n_nodes; i++)
        for (uint32_t e = t->nodes[i].edges; e < t->nodes[i].edges + t->nodes[i].n_edges; e++) {
            struct gram_dfa_place p = places[i];
            if (p.q == GRAM_DFA_DEAD) continue;
            if (gram_dfa_take(o->free_keys, &p, t->bytes[e]) == GRAM_DFA_STEP_ON)
                places[t->to[e]] = p;
        }
}

/* A longer key that is not in the trie begins like node i and goes on by a byte. */
static bool continues_by(const struct gram_object *o, uint32_t i, struct gram_dfa_place place,
                         const uint8_t *alive, uint8_t byte)
{
    uint32_t child = gram_trie_step(&o->trie, i, byte);
    if (child != GRAM_TRIE_NONE && !alive[child]) return false;
    return gram_dfa_take(o->free_keys, &place, byte) == GRAM_DFA_STEP_ON;
}

/* Some longer key begins so. *last is the byte of the last node that could go on, tried first. */
static bool continues(struct gram_build *b, const struct gram_object *o, uint32_t i,
                      const struct gram_dfa_place *place, const uint8_t *alive, uint8_t *last)
{
    gram_steps(b, 1);
    if (continues_by(o, i, *place, alive, *last)) return true;
    for (int byte = 255; byte >= 0; byte--) {
        if (byte % 8 == 0) gram_steps(b, 1);
        if (!continues_by(o, i, *place, alive, (uint8_t)byte)) continue;
        *last = (uint8_t)byte;
        return true;
    }
    return false;
}

void gram_object_build_free(struct gram_build *b, struct gram_object *o)
{
    uint32_t n = o->trie.n_nodes;
    uint8_t last = 0;
    uint8_t *alive = gram_keep(b, n), *more = gram_keep(b, n);
    struct gram_dfa_place *places = gram_temp_array(b, n, sizeof(*places));
    if (!o->free_keys) o->free_keys = gram_free_automaton(b, o->draft);
    o->free_values = gram_keep_copy(b, o->draft->values, o->draft->n_values, sizeof(uint32_t));
    o->prefix_alive = alive;
    o->prefix_more = more;
    if (o->free_keys->n_states == 0) {
        o->free_kind = GRAM_FREE_NONE;
        return;
    }
    place_nodes(o, places);
    o->all_alive = true;
    for (uint32_t i = n; i-- > 0;) {
        const struct gram_dfa_place *p = &places[i];
        if (p->q == GRAM_DFA_DEAD) continue;
        more[i] = continues(b, o, i, p, alive, &last);
        bool is_key = !p->decoder && o->free_keys->outcome[p->q] && !o->trie.nodes[i].is_leaf;
        alive[i] = more[i] || is_key;
        o->all_alive &= alive[i];
    }
    gram_steps(b, n / 4 + 1);
    if (!alive[0]) o->free_kind = GRAM_FREE_NONE;
}
