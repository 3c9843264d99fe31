/* SPDX-License-Identifier: MIT */
/* The front ends: each turns its source into rules and returns the node that stands for it. */
#ifndef HEARTH_GRAMMAR_FRONT_H
#define HEARTH_GRAMMAR_FRONT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gram_build;
struct gram_part;
struct gram_schema;

uint32_t gram_schema_node(struct gram_build *b, const char *text, size_t len, bool strict,
                          bool object);
/* The texts of strings that fit; see `bare` in struct gram_part. */
uint32_t gram_schema_text_node(struct gram_build *b, const struct gram_part *part, bool strict);
uint32_t gram_gbnf_node(struct gram_build *b, const char *text, size_t len);
uint32_t gram_part_node(struct gram_build *b, const struct gram_part *root);

/* When heights are known: leaves with the reason why some leaf of the parts has no member. */
void gram_parts_check(struct gram_build *b);

/* Adds the relaxed keywords of a schema, in text order, to the grammar's. */
void gram_schema_relaxed(struct gram_build *b, struct gram_schema *s);

/* Adds one more at the root of the schema, or leaves if nothing may be relaxed. */
void gram_name_relaxed(struct gram_build *b, const char *keyword, size_t len, bool strict);

/* Leaves with the reason why a schema has no member. */
_Noreturn void gram_schema_empty(struct gram_build *b, const struct gram_schema *s);

#endif
