/* SPDX-License-Identifier: MIT */
/*
 * The vocabulary that grammars are compiled for, and the grammars compiled last.
 *
 * Compiled grammars are kept up to a number of bytes and of entries; the least recently used one
 * that no request holds goes first. A grammar that does not fit belongs to its request alone.
 * Equal kind, options and text give the same grammar (compared by SHA-256), so requests that
 * repeat a schema do not compile it again. Two threads that miss together both compile; the second
 * drops its result. Compiling has a lower priority than computing, so that streams keep their pace.
 *
 * Threads: any; compiling holds no lock.
 */
#ifndef HEARTH_SERVER_GRAMMAR_CACHE_H
#define HEARTH_SERVER_GRAMMAR_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tokenizer/grammar/grammar.h"

struct grammar_cache;
struct tok;
struct tools_markers;
struct tools_request;
struct tools_style;

struct grammar_cache_params {
    const struct tok *tok; /* borrowed */
    int32_t n_ids;         /* ids of the model; those unknown to the tokenizer have no text */
    const int32_t *end_ids;
    size_t n_end_ids;
    int64_t max_bytes;                   /* of cached grammars; 0: none are cached */
    const struct tools_style *style;     /* borrowed; NULL: grammars know no markers of calls */
    const struct tools_markers *markers; /* borrowed: its markers that are tokens */
};

/* 0, GRAM_ENOMEM, or GRAM_EINVAL for a tokenizer whose tokens spell no bytes. *ret is owned. */
int grammar_cache_create(struct grammar_cache **ret, const struct grammar_cache_params *params);
/* After the last grammar has been given back. NULL is fine. */
void grammar_cache_destroy(struct grammar_cache *c);

/*
 * The compiled grammar of a text; see gram_compile. *ret is owned: grammar_cache_put. *ret_kept:
 * the cache holds it too, so its memory is accounted for. Returns 0 or the code in *err.
 */
int grammar_cache_get(struct grammar_cache *c, enum gram_kind kind, const char *text, size_t len,
                      const struct gram_options *options, struct gram **ret, bool *ret_kept,
                      struct gram_error *err);

/* The arguments of tools_compile but vocabulary and options; borrowed. */
struct grammar_tools {
    const struct tools_request *request;
    bool think_open;
    const struct gram_part *content; /* without kids, or NULL */
};

/* The same for calls of tools, with the style and the markers that the cache was created with. */
int grammar_cache_get_tools(struct grammar_cache *c, const struct grammar_tools *tools,
                            const struct gram_options *options, struct gram **ret, bool *ret_kept,
                            struct gram_error *err);

/* Gives a grammar back. NULL is fine. */
void grammar_cache_put(struct grammar_cache *c, struct gram *g);

/* gram_vocab_params.bytes for a struct tok: special tokens stand for no text. */
size_t grammar_token_bytes(void *tok, int32_t id, char *buf, size_t size);

/* Counted since the start. */
struct grammar_cache_stats {
    uint64_t n_hits, n_misses;
    int n_entries;
    int64_t bytes;       /* of the grammars kept */
    int64_t vocab_bytes; /* of the vocabulary, always */
};
struct grammar_cache_stats grammar_cache_stats(struct grammar_cache *c);

#endif
