/* SPDX-License-Identifier: MIT */
/*
 * The models in the Hugging Face cache: each revision of each model, how much of it is there, and
 * whether it could be served. Reads only.
 *
 * Threads: safe; nothing is kept between calls.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "server/hub/settings.h"

struct hub_model {
    char name[HUB_REPO_SIZE + GGUF_TAG_SIZE]; /* of the repository, with a tag for one in GGUF */
    char revision[HUB_REVISION_SIZE];         /* the commit itself where no reference names it */
    char commit[HUB_COMMIT_LEN + 1];
    char path[PATH_MAX]; /* of the snapshot, or of the file in GGUF */
    int64_t n_bytes;     /* that are there */
    int percent;         /* of what belongs to it; -1: not known */
    bool complete, servable;
    char reason[300]; /* why it is not servable */
};

/*
 * Calls fn for every model of the cache at root, sorted by name and revision; the model is borrowed
 * for the call. 0, or -1 with a sentence if there is a cache that cannot be read.
 */
int hub_inventory_visit(const char *root, void (*fn)(void *ctx, const struct hub_model *m),
                        void *ctx, char *err);
