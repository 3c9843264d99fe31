/* SPDX-License-Identifier: MIT */
/*
 * The vocabulary that grammars are compiled for, made for the first, and what was compiled last.
 *
 * Compiled grammars are kept up to a number of bytes and of entries; the least recently used one
 * that no request holds goes first. A grammar that does not fit belongs to its request alone.
 * Equal kind, options and text give the same grammar (compared by SHA-256), so requests that
 * repeat a schema do not compile it again. Nor do they if it failed: the last errors are kept too,
 * each for the tenant (API key) that met it.
 *
 * Threads: any; compiling holds no lock.
 */
#pragma once

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
    const struct tok *tok;  /* borrowed */
    int32_t n_ids;          /* ids of the model; those unknown to the tokenizer have no text */
    const int32_t *end_ids; /* borrowed */
    size_t n_end_ids;
    int64_t max_bytes;                   /* of cached grammars; 0: none are cached */
    const struct tools_style *style;     /* borrowed; NULL: grammars know no markers of calls */
    const struct tools_markers *markers; /* borrowed: its markers that are tokens */
    bool open_objects;   /* objects may have other keys than theirs, unless a request closes them */
    bool any_whitespace; /* in no one style, whatever a request says */
};

/* 0, GRAM_ENOMEM, or GRAM_EINVAL for a tokenizer whose tokens spell no bytes. *ret is owned. */
int grammar_cache_create(struct grammar_cache **ret, const struct grammar_cache_params *params);
/* After the last grammar has been given back. NULL is fine. */
void grammar_cache_destroy(struct grammar_cache *c);

/* The arguments of tools_compile but vocabulary and options; borrowed. */
struct grammar_tools {
    const struct tools_request *request;
    bool think_open;
    const struct gram_part *content; /* without kids, or NULL */
};

/* A grammar to be compiled. Borrows what the two functions below get, but the options themselves.
 */
struct grammar_source {
    uint8_t key[32]; /* equal sources have equal keys */
    enum gram_kind kind;
    const char *text;
    size_t len;
    const struct grammar_tools *tools; /* NULL: kind and text */
    struct gram_options options;
};
void grammar_source_text(struct grammar_source *ret, enum gram_kind kind, const char *text,
                         size_t len, const struct gram_options *options);
/* Calls of tools, with the style and the markers that the cache was created with. */
void grammar_source_tools(struct grammar_source *ret, const struct grammar_tools *tools,
                          const struct gram_options *options);

struct grammar_result {
    struct gram *gram; /* owned: grammar_cache_put; NULL: see error */
    bool kept;         /* the cache holds it too, so its memory is accounted for */
    struct gram_error error;
};

/* Returns true and what is known of a source: its grammar or, for this tenant, its error. */
bool grammar_cache_find(struct grammar_cache *c, const struct grammar_source *source,
                        uint64_t tenant, struct grammar_result *ret);

/*
 * Compiles on the calling thread and keeps the result. Grammars are made to write answers by:
 * with closed objects unless the cache says otherwise. stop, ctx: see gram_options.
 */
void grammar_cache_compile(struct grammar_cache *c, const struct grammar_source *source,
                           uint64_t tenant, bool (*stop)(void *ctx), void *ctx,
                           struct grammar_result *ret);

/* Gives a grammar back. NULL is fine. */
void grammar_cache_put(struct grammar_cache *c, struct gram *g);

/* gram_vocab_params.bytes for a struct tok: special tokens stand for no text. */
size_t grammar_token_bytes(void *tok, int32_t id, char *buf, size_t size);

/* Counted since the start. */
struct grammar_cache_stats {
    uint64_t n_hits, n_misses;
    int n_entries;
    int64_t bytes;       /* of the grammars kept */
    int64_t vocab_bytes; /* of the vocabulary; 0: nothing was compiled yet */
};
struct grammar_cache_stats grammar_cache_stats(struct grammar_cache *c);
