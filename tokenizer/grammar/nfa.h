/* SPDX-License-Identifier: MIT */
/*
 * Non-deterministic automata: one or several expressions ("parts") side by side, over classes of
 * code points that none of them tells apart. In temporary memory; dfa.c makes them deterministic.
 *
 * Thompson's construction, built from the end: a state is compiled with the state that follows it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "tokenizer/grammar/build.h"

struct gram_ex;

enum { GRAM_MAX_CLASSES = 255, GRAM_MAX_PARTS = 64 };

/* An expression as part of an automaton. */
struct gram_ex_part {
    const struct gram_ex *x;
    bool search; /* it matches if some part of the text does; else the whole text must */
};

enum gram_nfa_kind {
    GRAM_NFA_SET,   /* takes a code point of set `set`, goes to a */
    GRAM_NFA_SPLIT, /* goes to a and b */
    GRAM_NFA_BEGIN, /* assertions: goes to a if they hold */
    GRAM_NFA_END,
    GRAM_NFA_WORD,
    GRAM_NFA_NOT_WORD,
    GRAM_NFA_NEXT, /* a code point of set `set` follows, or none of it */
    GRAM_NFA_NOT_NEXT,
    GRAM_NFA_MATCH, /* the end of part `set` */
};

struct gram_nfa_state {
    uint8_t kind;
    uint32_t a, b;
    uint32_t set;
};

/* A run of code points of one class; it ends where the next begins. */
struct gram_class_run {
    uint32_t lo;
    uint8_t class;
};

/* Every code point has one class; the surrogates have none of use. */
struct gram_classes {
    struct gram_class_run *runs;
    uint32_t n_runs;
    uint32_t n; /* classes */
};

/*
 * A part that looks far ahead is a choice of ways: texts that must, and must not, match parts of
 * the automaton.
 */
struct gram_nfa_way {
    uint64_t must, must_not;
    uint32_t part; /* as it was given */
};

struct gram_nfa {
    struct gram_nfa_state *states;
    uint32_t n, cap;
    uint32_t start[GRAM_MAX_PARTS];
    uint32_t n_parts;
    const struct gram_ex_part *parts;
    uint64_t needed;           /* parts without which a text is of no interest */
    struct gram_nfa_way *ways; /* none: the parts are those that were given */
    uint32_t n_ways;
    struct gram_table sets; /* of code points, as their ranges */
    struct gram_classes classes;
    const uint8_t **set_classes; /* per set: its classes, a byte each */
    uint32_t *n_set_classes;
    bool has_words;                        /* \b or \B is used: */
    uint8_t is_word[GRAM_MAX_CLASSES + 1]; /* per class */
    bool has_next;                         /* a state looks at the next code point */
};

/*
 * Borrows parts. needed: those without which a text is of no interest. NULL if it would need more
 * than max_states states or too many classes.
 */
struct gram_nfa *gram_nfa_build(struct gram_build *b, const struct gram_ex_part *parts,
                                uint32_t n_parts, uint64_t needed, uint32_t max_states);

/* The parts as they were given that match, from those of the automaton. */
uint64_t gram_nfa_matched(const struct gram_nfa *nfa, uint64_t matched);

/*
 * An expression whose look-ahead (its ref) no automaton follows, or NULL. Followed are those to one
 * code point, and of the others those that are a fixed number of code points after the beginning
 * of the text (in a part that searches: after ^), those that a part that searches ends in, and
 * (?:(?!X).)* at the end of the text.
 */
const struct gram_ex *gram_nfa_refuses(struct gram_build *b, const struct gram_ex *x, bool search);

/* The run that holds cp. */
uint32_t gram_run_of(const struct gram_classes *classes, uint32_t cp);

/* The states of a deterministic automaton that can be reached, still with dead ends. */
struct gram_subset {
    uint32_t n_states; /* state 0 is the start */
    uint32_t n_classes;
    uint32_t *next;    /* [n_states][n_classes] */
    uint64_t *matched; /* [n_states]: parts that match a text that ends here */
};

/* In temporary memory. NULL if it has more states, or takes more steps. */
struct gram_subset *gram_subset_build(struct gram_build *b, const struct gram_nfa *nfa,
                                      uint32_t max_states, uint64_t max_steps);
