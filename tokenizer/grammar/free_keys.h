/* SPDX-License-Identifier: MIT */
/* The automaton of an object's free keys, while the object is built. */
#ifndef HEARTH_GRAMMAR_FREE_KEYS_H
#define HEARTH_GRAMMAR_FREE_KEYS_H

#include "tokenizer/grammar/rules.h"

/* The automaton, in which values of the draft that became impossible have no outcome. */
struct gram_dfa *gram_free_automaton(struct gram_build *b, const struct gram_key_draft *draft);

/* Works out what the automaton of an object's free keys decides; builds it if free_keys is NULL. */
void gram_object_build_free(struct gram_build *b, struct gram_object *o);

#endif
