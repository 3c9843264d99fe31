/* SPDX-License-Identifier: MIT */
/*
 * Which files of a repository are taken: the configuration, the tokenizer, chat templates, and
 * safetensors weights, all from the root. Nothing that could be run and nothing that is not read:
 * no pickle, no other formats, no variants, no code. Pure; threads: safe.
 */
#ifndef HEARTH_SERVER_HUB_CHOICE_H
#define HEARTH_SERVER_HUB_CHOICE_H

#include <stdbool.h>
#include <stddef.h>

#include "server/hub/listing.h"

#define HUB_CONFIG_NAME "config.json"
#define HUB_WEIGHTS_NAME "model.safetensors"
#define HUB_INDEX_NAME "model.safetensors.index.json"

enum { HUB_INDEX_MAX_BYTES = 64 << 20 };

/*
 * Marks the files that are fetched with any weights, and model.safetensors, or the index if only
 * that exists. Returns 0, or HUB_ENOTSERVED with a sentence if a required file is missing.
 */
int hub_choose(struct hub_listing *l, const char *repo, char *err);

/*
 * Marks the shards that an index names. 0, HUB_EWRONG with a sentence (a name that is not a file of
 * the root, or is not listed), or HUB_EINTERNAL.
 */
int hub_choose_shards(struct hub_listing *l, const char *index, size_t len, char *err);

/*
 * Calls take for the shard of each tensor in an index, until it returns false. Names are UTF-8 of
 * at most HUB_SEGMENT_MAX bytes without a slash. 0, or -1 with a sentence: not an index, or take
 * returned false (then without one).
 */
int hub_shards_visit(const char *index, size_t len, bool (*take)(void *ctx, const char *name),
                     void *ctx, char *err);

#endif
