/* SPDX-License-Identifier: MIT */
/* Masks of automaton states; see compiled.h. */
#include "tokenizer/grammar/compiled.h"

#include <stdbool.h>

#include "tokenizer/grammar/dfa.h"
#include "tokenizer/grammar/grammar.h"
#include "tokenizer/grammar/vocab.h"

/* Values of a state's slot; entry i is READY + i. */
enum { EMPTY, BUSY, READY };

/* The state of the walk at a depth. */
struct place {
    uint16_t q, decoder;
    bool safe; /* all characters so far are safe in the state where the token begins */
};

/* gram_dfa_take without lengths and quotes. */
static bool step(const struct gram_dfa *d, struct place *p, uint8_t byte)
{
    uint16_t to = gram_decoder_step(&d->decoder, p->decoder, byte);
    if (to >= GRAM_DEC_QUOTE) return false;
    if (to & GRAM_DEC_CLASS) {
        p->q = (uint16_t)gram_dfa_next(d, p->q, to & 0xFF);
        p->decoder = 0;
        return p->q != GRAM_DFA_DEAD;
    }
    p->decoder = to;
    const uint64_t *live = d->live + (size_t)p->q * d->decoder.n_words;
    const uint64_t *reach = d->decoder.reach + (size_t)to * d->decoder.n_words;
    for (uint32_t w = 0; w < d->decoder.n_words; w++)
        if (live[w] & reach[w]) return true;
    return false;
}

/* Tokens of characters that are safe come as a set; the walk leaves out where it sees only such. */
static void compute(const struct gram_vocab *v, const struct gram_dfa *d, uint32_t q,
                    uint64_t *bits)
{
    struct place places[GRAM_MAX_TOKEN_BYTES + 1];
    bool is_safe[256];
    for (int byte = 0; byte < 256; byte++)
        is_safe[byte] = d->safe[q] >> gram_char_group((uint8_t)byte) & 1;
    if (d->safe[q]) gram_vocab_add_groups(v, d->safe[q], bits);
    places[0] = (struct place){(uint16_t)q, 0, true};
    for (uint32_t i = 1; i < v->n_nodes;) {
        const struct gram_tok_node *node = &v->nodes[i];
        struct place p = places[node->depth - 1];
        p.safe = p.safe && is_safe[node->byte];
        if ((p.safe && !(node->below & ~d->safe[q])) || !step(d, &p, node->byte)) {
            i = node->skip;
            continue;
        }
        places[node->depth] = p;
        if (p.decoder == 0 && !(node->below & ~d->safe[p.q])) { /* all below goes on */
            gram_set_tokens(v, i, node->skip, bits);
            i = node->skip;
            continue;
        }
        if (node->id >= 0) gram_set_token(v, node, bits);
        i++;
    }
}

const uint64_t *gram_cache_get(struct gram_cache *c, const struct gram_vocab *v,
                               const struct gram_dfa *d, uint32_t q, bool *ret_made)
{
    /* The set of a state from which all texts go on is the vocabulary's own. */
    if (d->decoder.json && d->immortal[q]) return v->inside[GRAM_LEX_PLAIN];
    if (!d->slots) return NULL;
    uint32_t slot = atomic_load_explicit(&d->slots[q], memory_order_acquire);
    if (slot >= READY) return c->bits + (size_t)(slot - READY) * v->n_words;
    if (slot == BUSY || atomic_load_explicit(&c->used, memory_order_relaxed) >= c->n) return NULL;
    if (!atomic_compare_exchange_strong(&d->slots[q], &slot, BUSY)) return NULL;
    uint32_t i = atomic_fetch_add(&c->used, 1);
    if (i >= c->n) return NULL; /* the slot stays busy: there is no entry left for it */
    uint64_t *bits = c->bits + (size_t)i * v->n_words;
    compute(v, d, q, bits);
    *ret_made = true;
    atomic_store_explicit(&d->slots[q], READY + i, memory_order_release);
    return bits;
}

bool gram_cache_add(struct gram_cache *c, const struct gram_vocab *v, const struct gram_dfa *d,
                    uint32_t q, uint64_t *bits)
{
    bool made = false;
    const uint64_t *set = gram_cache_get(c, v, d, q, &made);
    if (!set) {
        compute(v, d, q, bits);
        return true;
    }
    for (size_t w = 0; w < v->n_words; w++)
        bits[w] |= set[w];
    return made;
}
