/* SPDX-License-Identifier: MIT */
/* A compiled grammar as the files of the library see it. */
#ifndef HEARTH_GRAMMAR_COMPILED_H
#define HEARTH_GRAMMAR_COMPILED_H

#include "tokenizer/grammar/build.h"
#include "tokenizer/grammar/cache.h"
#include "tokenizer/grammar/rules.h"

/* White space between the tokens of JSON: states by the four characters of JSON's white space. */
struct gram_spaces {
    const uint16_t (*next)[4]; /* blank, newline, tab, carriage return */
    const uint8_t *ends;       /* [n]: a token may follow */
    uint32_t n;
    bool styled; /* by style.h instead */
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

/* The rule, or what the options put in its place. */
void gram_spaces_build(struct gram_build *b, struct gram_spaces *ret);

#endif
