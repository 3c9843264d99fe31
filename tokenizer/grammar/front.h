/* SPDX-License-Identifier: MIT */
/* The front ends: each turns a text into rules and sets the root. */
#ifndef HEARTH_GRAMMAR_FRONT_H
#define HEARTH_GRAMMAR_FRONT_H

#include <stddef.h>

struct gram_build;

void gram_front_schema(struct gram_build *b, const char *text, size_t len);
void gram_front_regex(struct gram_build *b, const char *text, size_t len);
void gram_front_choice(struct gram_build *b, const char *text, size_t len);
void gram_front_gbnf(struct gram_build *b, const char *text, size_t len);

/* Relaxed keywords, in text order, in kept memory; 0 unless a schema was compiled. */
size_t gram_schema_relaxed(struct gram_build *b, const char ***ret);

/* Leaves with the reason why the root of a schema has no member. */
_Noreturn void gram_schema_empty(struct gram_build *b);

#endif
