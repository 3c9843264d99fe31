/* SPDX-License-Identifier: MIT */
/*
 * The models that the configuration names: entry 0 is the first one, the others follow as they were
 * given. Their plans are made together, before any is loaded. If all fit into memory at once, all
 * are loaded at the start, unless `load` says otherwise; if memory is short, KV caches without a
 * size of their own become smaller, all by the same part. Else they are loaded on demand, and each
 * fits next to the pinned ones: a KV cache without a size of its own is at most a quarter of what
 * the weights of those and of the largest other one leave.
 *
 * Threads: safe; nothing is kept.
 */
#pragma once

#include "server/config/config.h"
#include "server/models/set.h"

/*
 * The names of a model of this configuration: its entry's and the aliases, or without both `own`;
 * as srv_names_copy gives them. Returns 0, or -1 when out of memory.
 */
int srv_catalogue_names(const struct srv_config *c, const char *own, struct srv_list *ret);

struct srv_plan {
    struct srv_list names; /* as srv_names_copy gives them */
    struct srv_share share;
    struct eng_memory memory;
    int64_t bytes; /* without srv_process_bytes */
    bool starts;   /* it is loaded at the start */
};

/*
 * Checks that no two models have a name in common and makes the plans, one per entry. dir: of the
 * first model. Returns 0, or an enum eng_error with a sentence in err; the names are the
 * caller's in both cases.
 */
int srv_catalogue_plan(const struct srv_config *c, const char *dir, struct srv_plan *plans,
                       char *err, size_t errlen);

/* Bytes that the plans of models may have together, without srv_process_bytes. */
int64_t srv_catalogue_limit(const struct srv_config *c);

/*
 * Makes the entries of the set fit what is in the folder of --models: each folder in it that has a
 * config.json is a model, named after it, also `org/name` two levels deep. Folders that are links
 * are passed over; files may be links. New models are added, those that have vanished lose their
 * names and drain, changed ones drain and are planned again. Others are not touched. What cannot be
 * served is listed as unavailable, with the reason. On the loader's thread.
 */
void srv_catalogue_scan(struct srv_models *set, const struct srv_config *c);

/* Reads what the headers of a directory say, as far as they do. ctx_tokens: of its plan; 0: it has
 * none. */
void srv_catalogue_facts(struct srv_model_facts *ret, const char *dir, int64_t ctx_tokens);

/*
 * Fills what is known of entries that are not loaded, from their templates and tokenizers: once for
 * each, some 50 ms for a tokenizer of 100,000 ids. Any thread.
 */
void srv_catalogue_know(struct srv_models *set);

/* The arguments of srv_model_open; names and dir are borrowed. */
struct srv_model_params srv_catalogue_params(const struct srv_config *c, int entry, const char *dir,
                                             const struct srv_share *share);
