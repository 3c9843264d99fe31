/* SPDX-License-Identifier: MIT */
/* A compiled grammar as the files of the library see it. */
#pragma once

#include <stdatomic.h>

#include "tokenizer/grammar/build.h"
#include "tokenizer/grammar/machine.h"
#include "tokenizer/grammar/rules.h"

/* White space between the tokens of JSON. */
struct gram_spaces {
    const struct gram_dfa *dfa; /* begins in state 0; a token may follow where it has an outcome */
    uint32_t n;                 /* states; 0: no white space */
    bool styled;                /* by style.h instead */
};

/*
 * Masks of automaton states, shared by all answers under a grammar: the tokens that, begun between
 * two characters, stay inside. An entry is claimed by one thread, filled, published, and never
 * changed; another thread that wants it meanwhile computes its own. Where the cache is full the
 * same set is computed again every time.
 */
enum { GRAM_MAX_CACHED = 256 };

struct gram_cache {
    uint64_t *bits; /* [n][words of a mask]; touched only when used */
    uint32_t n;
    atomic_uint used;
};

struct gram {
    const struct gram_vocab *vocab;
    struct gram_arena keep;
    struct gram_rules rules; /* its arrays are kept too */
    struct gram_spaces spaces;
    const char **relaxed;
    uint32_t n_relaxed;
    struct gram_cache cache;
};

static inline const struct gram_object *gram_object_of(const struct gram_machine *m,
                                                       const struct gram_frame *f)
{
    return &m->g->rules.objects[f->node];
}

/* The rule, or what the options put in its place. */
void gram_spaces_build(struct gram_build *b, struct gram_spaces *ret);

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
