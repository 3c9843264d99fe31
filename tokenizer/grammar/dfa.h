/* SPDX-License-Identifier: MIT */
/*
 * Deterministic automata over code points, for strings, keys, and the leaves of grammars: one or
 * several expressions run side by side, and an outcome is computed from which of them matched. This
 * is how patterns, formats and lengths are intersected and complemented.
 *
 * Every state can reach an outcome other than 0: there are no dead ends. A text's length in code
 * points may be bounded besides; see gram_dfa_fits.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tokenizer/grammar/decoder.h"
#include "tokenizer/grammar/nfa.h"

struct gram_build;

#define GRAM_DFA_DEAD 0xFFFFu

struct gram_dfa {
    uint32_t n_states; /* 0: the language is empty */
    uint32_t start;
    uint32_t n_classes;
    const uint16_t *next;    /* [n_states][n_classes], GRAM_DFA_DEAD: no way on */
    const uint32_t *outcome; /* [n_states], 0: the text is not complete here */
    const uint64_t *live;    /* [n_states][decoder.n_words]: classes with a way on */
    const uint8_t *immortal; /* [n_states]: every text is the beginning of one with an outcome */
    const uint32_t *safe;    /* [n_states]: groups of characters: any text of theirs goes on */
    const uint32_t *rest;    /* [n_states]: bytes to the nearest end, lengths not looked at */
    struct gram_decoder decoder;
    struct gram_classes classes; /* kept */

    /* lengths: gram_dfa_fits */
    uint32_t min, max;       /* code points of the whole text; GRAM_INFINITE: no limit */
    bool bounded;            /* min or max matter */
    uint32_t n_rows, period; /* row k: states with a text of k more; larger k: k - period, ... */
    uint32_t row_words;
    const uint64_t *rows;    /* [n_rows][row_words] */
    const uint32_t *nearest; /* [n_states]: code points to the nearest end */
    const uint32_t *tail;    /* [n_states]: the largest `nearest` of the states after it */
    const uint32_t *ready;   /* [n_states]: from all states after it, a text of this and of every
                                larger length is complete; GRAM_INFINITE: there is no such length */

    _Atomic uint32_t *slots; /* [n_states]: mask cache entries, see compiled.h; NULL: none */
};

struct gram_dfa_params {
    const struct gram_ex_part *parts;
    uint32_t n_parts;
    bool json; /* inside a JSON string, up to the quote; else plain UTF-8 */
    /* Which outcome a text has that matches the parts whose bits are set; 0: none. NULL: 1 if it
     * matches any. */
    uint32_t (*outcome)(const void *ctx, uint64_t matched);
    const void *ctx;
    uint64_t needed;           /* parts without which the outcome is 0; fewer is only slower */
    uint32_t min, max;         /* length of the whole text in code points */
    const uint64_t *spellable; /* a bit per byte */
    uint64_t max_steps;        /* it is too large if its states take more; 0: most of the rest */
};

/* NULL if it would be too large. Kept memory. */
struct gram_dfa *gram_dfa_build(struct gram_build *b, const struct gram_dfa_params *params);

/* Returns true if the text has an outcome and its length fits. */
bool gram_dfa_accepts(const struct gram_dfa *d, const char *text, size_t len);

/* Some text of between lo and hi further code points leads from state q to an outcome. */
bool gram_dfa_fits_slow(const struct gram_dfa *d, uint32_t q, uint64_t lo, uint64_t hi);

static inline bool gram_dfa_fits(const struct gram_dfa *d, uint32_t q, uint64_t n)
{
    if (!d->bounded) return true;
    if (n > d->max) return false;
    uint64_t lo = n < d->min ? d->min - n : 0;
    if (lo <= d->nearest[q]) return d->max == UINT32_MAX || d->nearest[q] <= d->max - n;
    return gram_dfa_fits_slow(d, q, lo, d->max == UINT32_MAX ? UINT64_MAX : d->max - n);
}

/* Some character can follow after n characters that led to state q; decoder: one that begins so. */
bool gram_dfa_extends(const struct gram_dfa *d, uint32_t q, uint32_t decoder, uint64_t n);

/* Bytes of a short text that leads from a place after n code points to an outcome. */
uint32_t gram_dfa_rest(const struct gram_dfa *d, uint32_t q, uint32_t decoder, uint64_t n);

/* A place inside a text: state, decoder state, code points so far (as far as they matter). */
struct gram_dfa_place {
    uint32_t q, decoder, n;
};

enum gram_dfa_step {
    GRAM_DFA_STEP_DEAD,
    GRAM_DFA_STEP_ON,    /* the place was moved; from it the text can be completed */
    GRAM_DFA_STEP_QUOTE, /* JSON: the string is complete */
};

/* Takes a byte; the place is undefined after a dead step. */
enum gram_dfa_step gram_dfa_take(const struct gram_dfa *d, struct gram_dfa_place *p, uint8_t byte);

static inline uint32_t gram_dfa_next(const struct gram_dfa *d, uint32_t q, uint32_t class)
{
    return d->next[q * d->n_classes + class];
}
