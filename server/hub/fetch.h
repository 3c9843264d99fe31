/* SPDX-License-Identifier: MIT */
/*
 * The requests of a pull: the commit of a revision, the listing of its files, the files.
 *
 * A file comes into its blob: resumed where a part is there, tried again where a
 * try fails, at most twice from the beginning if its content is wrong. Nothing appears under the
 * blob's name before its size and hash are right.
 *
 * Locks are advisory. Where locking does not work nothing waits, and nothing breaks: whoever writes
 * a blob writes the same bytes to the same offsets, into a file of its own name.
 *
 * Threads: any number at once, each with a client of its own, for different blobs.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "server/hub/cache.h"
#include "server/hub/client.h"

/* The commit of the client's revision. 0 or an enum hub_error with a sentence, as all here. */
int hub_fetch_commit(struct hub_client *c, char ret[HUB_COMMIT_LEN + 1], char *err);

/* Adds all pages of a commit's listing to an empty one, and sorts it. */
int hub_fetch_listing(struct hub_client *c, const char *commit, struct hub_listing *ret, char *err);

struct hub_fetch {
    struct hub_client *client; /* borrowed, as all pointers here */
    const struct hub_cache *cache;
    const char *commit;
    bool force;                                   /* also if the blob is there */
    void (*on_wait)(void *ctx, const char *path); /* another program fetches the same blob */
    /* Bytes of the file that are there, and of them how many have come just now. */
    void (*on_bytes)(void *ctx, const struct hub_file *f, int64_t n_there, int64_t n_new);
    /*
     * NULL, or looks at the beginning of a file in GGUF: `part`, below the folder of blobs, has
     * n_there bytes. 0: it wants to see more; 1: it has seen enough; an enum hub_error with a
     * sentence ends the fetch.
     */
    int (*look)(void *ctx, const struct hub_file *f, const char *part, int64_t n_there, char *err);
    void *ctx;
};

/* 0 once the blob is there. */
int hub_fetch_blob(const struct hub_fetch *fetch, const struct hub_file *f, char *err);

/* The same into memory, for a small file that nothing is written of. */
int hub_fetch_text(const struct hub_fetch *fetch, const struct hub_file *f, struct buf *ret,
                   char *err);
