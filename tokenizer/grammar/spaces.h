/* SPDX-License-Identifier: MIT */
/* White space between the tokens of JSON, bounded by construction. */
#ifndef HEARTH_GRAMMAR_SPACES_H
#define HEARTH_GRAMMAR_SPACES_H

struct gram_build;
struct gram_spaces;

/* The rule, or what the options put in its place. */
void gram_spaces_build(struct gram_build *b, struct gram_spaces *ret);

#endif
