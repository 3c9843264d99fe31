/* SPDX-License-Identifier: MIT */
/*
 * Expressions to nodes of the machine. Whatever is regular and not too large becomes one automaton;
 * the rest is taken apart, its counters kept as counters.
 */
#ifndef HEARTH_GRAMMAR_NODES_H
#define HEARTH_GRAMMAR_NODES_H

#include <stdint.h>

#include "tokenizer/grammar/rules.h"

struct gram_build;
struct gram_ex;

/*
 * The node of an expression. rules maps the rules that it names to their nodes; may be NULL if it
 * names none. Leaves by gram_fail if an assertion is where no automaton can hold it.
 */
uint32_t gram_node_of(struct gram_build *b, const struct gram_ex *x, const uint32_t *rules);

/* Nodes by hand. Kids are copied. */
uint32_t gram_node_with(struct gram_build *b, enum gram_node_kind kind, uint32_t n,
                        const uint32_t *kids);
uint32_t gram_node_rep(struct gram_build *b, uint32_t kid, uint32_t min, uint32_t max);

/* One text, or none if no tokens spell it. */
uint32_t gram_node_text(struct gram_build *b, const char *text, size_t len);

/* One of several texts; with kids, each goes on as the kid of its number. */
uint32_t gram_node_texts(struct gram_build *b, const struct gram_trie_builder *texts, uint32_t n,
                         const uint32_t *kids);

#endif
