/* SPDX-License-Identifier: MIT */
/* The rules of a GBNF grammar: names, references, recursion, and their way to nodes. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tokenizer/grammar/build.h"

struct gram_ex;

struct gram_gbnf_rule {
    const char *name; /* in the grammar's text */
    uint32_t name_len;
    uint32_t line;             /* where it was first named */
    struct gram_ex *x;         /* NULL: not defined */
    uint8_t visit, left_visit; /* marks of walks */
    bool recursive;            /* it refers to itself, or to a rule that does */
    uint32_t node;             /* GRAM_NONE: none yet */
};

struct gram_gbnf {
    struct gram_gbnf_rule *rules;
    bool *nullable; /* [n], once all rules are defined */
    uint32_t n, cap;
    struct gram_table names;
};

/* The number of a rule by its name, made at its first mention. */
uint32_t gram_gbnf_rule(struct gram_build *b, struct gram_gbnf *g, const char *name, size_t len,
                        uint32_t line);

void gram_gbnf_define(struct gram_build *b, struct gram_gbnf *g, const char *name, size_t len,
                      uint32_t line, struct gram_ex *x);

/* Checks that all is defined and nothing left-recursive; returns the node of the root rule. */
uint32_t gram_gbnf_finish(struct gram_build *b, struct gram_gbnf *g);
