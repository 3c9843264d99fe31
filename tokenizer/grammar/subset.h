/* SPDX-License-Identifier: MIT */
/*
 * The subset construction: all states of a deterministic automaton that can be reached, still with
 * dead ends. Internal to dfa.c.
 */
#ifndef HEARTH_GRAMMAR_SUBSET_H
#define HEARTH_GRAMMAR_SUBSET_H

#include <stdint.h>

struct gram_build;
struct gram_nfa;

struct gram_subset {
    uint32_t n_states; /* state 0 is the start */
    uint32_t n_classes;
    uint32_t *next;    /* [n_states][n_classes] */
    uint64_t *matched; /* [n_states]: parts that match a text that ends here */
};

/* In temporary memory. NULL if it has more states, or takes more steps. */
struct gram_subset *gram_subset_build(struct gram_build *b, const struct gram_nfa *nfa,
                                      uint32_t max_states, uint64_t max_steps);

#endif
