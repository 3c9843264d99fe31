/* SPDX-License-Identifier: MIT */
/*
 * Fetches one file of a commit into its blob: resumed where a part is there, tried again where a
 * try fails, checked, at most twice from the beginning if its content is wrong.
 *
 * Threads: any number at once, each with a client of its own, for different blobs.
 */
#ifndef HEARTH_SERVER_HUB_FETCH_H
#define HEARTH_SERVER_HUB_FETCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "server/hub/cache.h"
#include "server/hub/client.h"

struct hub_fetch {
    struct hub_client *client; /* borrowed, as all pointers here */
    const struct hub_cache *cache;
    const char *commit;
    bool force;                                   /* also if the blob is there */
    void (*on_wait)(void *ctx, const char *path); /* another program fetches the same blob */
    /* Bytes of the file that are there, and of them how many have come just now. */
    void (*on_bytes)(void *ctx, const struct hub_file *f, int64_t n_there, int64_t n_new);
    void *ctx;
};

/* 0 once the blob is there, or an enum hub_error with a sentence. */
int hub_fetch_blob(const struct hub_fetch *fetch, const struct hub_file *f, char *err);

/* The same into memory, for a small file that nothing is written of. */
int hub_fetch_text(const struct hub_fetch *fetch, const struct hub_file *f, struct buf *ret,
                   char *err);

#endif
