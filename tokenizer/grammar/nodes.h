/* SPDX-License-Identifier: MIT */
/*
 * Expressions to nodes of the machine. Whatever is regular and not too large becomes one automaton;
 * the rest is taken apart, its counters kept as counters.
 */
#ifndef HEARTH_GRAMMAR_NODES_H
#define HEARTH_GRAMMAR_NODES_H

#include <stdint.h>

struct gram_build;
struct gram_ex;

/*
 * The node of an expression. rules maps the rules that it names to their nodes; may be NULL if it
 * names none. Leaves by gram_fail if an assertion is where no automaton can hold it.
 */
uint32_t gram_node_of(struct gram_build *b, const struct gram_ex *x, const uint32_t *rules);

#endif
