/* SPDX-License-Identifier: MIT */
/* The front ends: each turns its source, mostly a text, into rules and sets the root. */
#ifndef HEARTH_GRAMMAR_FRONT_H
#define HEARTH_GRAMMAR_FRONT_H

#include <stddef.h>

struct gram;
struct gram_build;
struct gram_error;
struct gram_options;
struct gram_vocab;

typedef void (*gram_front_fn)(struct gram_build *b, const void *source, size_t len);

void gram_front_schema(struct gram_build *b, const void *text, size_t len);
void gram_front_regex(struct gram_build *b, const void *text, size_t len);
void gram_front_choice(struct gram_build *b, const void *text, size_t len);
void gram_front_gbnf(struct gram_build *b, const void *text, size_t len);

/* gram_compile for any front end, so that grammars can also be made of other things than a text. */
int gram_compile_front(struct gram **ret, const struct gram_vocab *vocab, gram_front_fn front,
                       const void *source, size_t len, const struct gram_options *options,
                       struct gram_error *err);

/* Relaxed keywords, in text order, in kept memory; 0 unless a schema was compiled. */
size_t gram_schema_relaxed(struct gram_build *b, const char ***ret);

/* Leaves with the reason why the root of a schema has no member. */
_Noreturn void gram_schema_empty(struct gram_build *b);

#endif
