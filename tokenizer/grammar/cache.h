/* SPDX-License-Identifier: MIT */
/*
 * Masks of automaton states, shared by all answers under a grammar: the tokens that, begun between
 * two characters, stay inside. An entry is claimed by one thread, filled, published, and never
 * changed; another thread that wants it meanwhile computes its own. Where the cache is full the
 * same set is computed again every time.
 */
#ifndef HEARTH_GRAMMAR_CACHE_H
#define HEARTH_GRAMMAR_CACHE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gram_dfa;
struct gram_vocab;

enum { GRAM_MAX_CACHED = 256 };

struct gram_cache {
    uint64_t *bits; /* [n][words of a mask]; touched only when used */
    uint32_t n;
    atomic_uint used;
};

/*
 * Adds the tokens that stay inside the automaton from state q, lengths not looked at, to bits.
 * Returns true if they were computed now.
 */
bool gram_cache_add(struct gram_cache *c, const struct gram_vocab *v, const struct gram_dfa *d,
                    uint32_t q, uint64_t *bits);

/*
 * The same set if it is in the cache, or can be put there; else NULL. Sets *ret_made if it was
 * computed now.
 */
const uint64_t *gram_cache_get(struct gram_cache *c, const struct gram_vocab *v,
                               const struct gram_dfa *d, uint32_t q, bool *ret_made);

#endif
