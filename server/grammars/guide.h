/* SPDX-License-Identifier: MIT */
/*
 * The engine's guide (engine.h) of one choice whose answer is bound to a grammar, or whose calls of
 * tools are.
 *
 * Ids that end an answer and stand for no text of their own (the model's end ids, special stop ids
 * of the request) are allowed exactly where the answer is complete.
 *
 * Threads: the engine's, one at a time per choice.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/engine.h"
#include "tokenizer/grammar/grammar.h"

struct srv_metrics;
struct tok;
struct tools_guide;
struct tools_markers;

/* Counts of the text that closed the answers of a request when their tokens ran out. */
struct grammar_closed {
    atomic_llong n_tokens, n_values; /* values of which no byte is the model's */
};

/* Shared by the choices of a request; all borrowed. */
struct grammar_rules {
    const struct eng_info *info;
    const struct tok *tok;
    const int32_t *stop_ids;
    int n_stop_ids;
    bool ignore_eos;                     /* end ids are never allowed */
    struct srv_metrics *metrics;         /* NULL: nothing is counted */
    const struct eng_sampling *sampling; /* closing: what it bans is not written; NULL: nothing */
    struct grammar_closed *closed;       /* closing: counts that are added to */
};

struct grammar_choice {
    const struct grammar_rules *rules;
    struct tools_guide *guide;
    struct gram_state *state; /* the guide's */
    uint64_t n_overflows;     /* of the state, as counted so far */
    size_t n_words;           /* of a mask */
    int64_t left;             /* tokens that may still come; -1: the answer is not closed */
    bool closing;
};

/* Bytes for one choice, a multiple of 64. */
size_t grammar_guide_bytes(void);

/* How the grammar's parts are told apart. */
struct grammar_guide_tools {
    const struct tools_markers *markers; /* borrowed */
    bool auto_free, think_open;          /* see tools_guide_init, */
    int64_t think_budget;                /* that too */
};

/*
 * Puts the choice, whose rules are set, at the beginning of an answer, and returns it as the engine
 * takes it. memory: grammar_guide_bytes() at an address that is a multiple of 64, the caller's.
 * tools NULL: the whole answer is of the grammar. tokens: the most that may come. The answer is
 * closed before they run out, if its shortest form has room: no id is taken after which the
 * shortest way to complete it would not have. -1: it is not. Borrows everything, the choice too.
 */
struct eng_guide grammar_guide_begin(struct grammar_choice *c, void *memory,
                                     const struct gram *gram,
                                     const struct grammar_guide_tools *tools, int64_t tokens);
