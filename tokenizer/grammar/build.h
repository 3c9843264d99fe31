/* SPDX-License-Identifier: MIT */
/*
 * The context of one compilation: its memory, its step budget, and the way out when something is
 * wrong. Everything that compiles takes a struct gram_build and either succeeds or leaves by
 * gram_fail, which jumps back to gram_compile; nothing needs to be undone, since all memory of a
 * compilation lies in two arenas: `temp` ends with it, `keep` becomes the grammar.
 *
 * Steps are counted instead of time so that the same text is always answered the same way. One step
 * is about 50 ns of work; every 64 bytes allocated are one step too, which bounds the memory.
 *
 * Threads: unsafe; one compilation, one thread.
 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tokenizer/grammar/gram_types.h"

struct gram_category_run;
struct jr;
struct gram_leaf;
struct gram_part;
struct gram_rules;
struct gram_schema;

struct gram_chunk {
    struct gram_chunk *next;
    size_t used, cap;
    _Alignas(16) char data[];
};

struct gram_arena {
    struct gram_chunk *chunks;
    size_t bytes; /* of all chunks */
};

struct gram_build {
    jmp_buf out;
    jmp_buf again; /* where a schema is begun again, see gram_leave_out; good if */
    bool may_begin;
    struct gram_arena temp, keep;
    uint64_t steps, max_steps, look_at; /* look_at: the step that asks options->stop */
    struct gram_error *err;
    struct jr *reader; /* in use: to be finished if the compilation ends by a jump */
    const struct gram_vocab *vocab;
    const struct gram_options *options;
    bool keep_nothing;          /* gram_keep gives temporary memory */
    struct gram_rules *rules;   /* the rules that are being built */
    struct gram_schema *schema; /* the one in hand, or the last one; NULL: none */
    const char *pointer;        /* put before the pointers of errors */
    struct gram_leaf *leaves;
    struct gram_category_run *category_runs; /* see charset.c */
    uint32_t n_category_runs;
    const char **relaxed; /* pointers */
    uint32_t n_relaxed, cap_relaxed;
};

/* Zeroed memory, aligned to 16 bytes, that lives as long as the compilation or the grammar. */
void *gram_temp(struct gram_build *b, size_t n);
void *gram_keep(struct gram_build *b, size_t n);

/* As gram_temp for n items of a size; the product is checked. */
void *gram_temp_array(struct gram_build *b, size_t n, size_t size);
void *gram_keep_array(struct gram_build *b, size_t n, size_t size);
void *gram_keep_copy(struct gram_build *b, const void *data, size_t n, size_t size);

void gram_arena_finish(struct gram_arena *a);

/*
 * Room for one more item at the end of a growing array of temporary memory: n items are used,
 * *cap are there. Returns the array, perhaps moved.
 */
void *gram_grow(struct gram_build *b, void *items, uint32_t n, uint32_t *cap, size_t size);

/*
 * Byte strings and their numbers, in the order of being found first. In temporary memory.
 * Zero-initialise.
 */
struct gram_table {
    struct gram_table_entry {
        const void *key; /* aligned to 16 bytes */
        size_t len;
        uint64_t hash;
        uint32_t next; /* number + 1 of an older key in the same bucket; 0: none */
    } * entries;
    uint32_t n, cap, n_buckets;
    uint32_t *buckets;
};

/* The number of a key; a new one is copied, and its number is what t->n was before. */
uint32_t gram_table_add(struct gram_build *b, struct gram_table *t, const void *key, size_t len);

/* Counts work; leaves when the budget is used up (an error that says so) or options->stop asks. */
void gram_steps(struct gram_build *b, uint64_t n);

/* Leaves the compilation with an error that has no place in a schema. */
_Noreturn void gram_fail(struct gram_build *b, enum gram_error_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Leaves since more than `limit` of something are needed. */
_Noreturn void gram_fail_limit(struct gram_build *b, uint64_t limit, const char *what);

_Noreturn void gram_fail_memory(struct gram_build *b);

/* At most 60 bytes of text in single quotes, control characters escaped, cut at a character. */
const char *gram_quote(struct gram_build *b, const char *text, size_t len);

/* A formatted string in temporary memory. */
const char *gram_text(struct gram_build *b, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- front ends: each turns its source into rules and returns the node of it --------------- */

uint32_t gram_schema_node(struct gram_build *b, const char *text, size_t len, bool strict,
                          const char *types);
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
