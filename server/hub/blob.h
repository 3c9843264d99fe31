/* SPDX-License-Identifier: MIT */
/*
 * One blob of the cache on its way to disk: its lock, its part file, its hash. A part that an
 * earlier run or another program left is taken over and continued; nothing appears under the
 * blob's name before its size and hash are right.
 *
 * Locks are advisory. Where locking does not work nothing waits, and nothing breaks: whoever writes
 * a blob writes the same bytes to the same offsets, into a file of its own name.
 *
 * Threads: one owner.
 */
#ifndef HEARTH_SERVER_HUB_BLOB_H
#define HEARTH_SERVER_HUB_BLOB_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "server/hub/cache.h"
#include "server/hub/hash.h"

enum { HUB_PART_NAME_SIZE = HUB_ETAG_SIZE + 24 };

struct hub_blob {
    const struct hub_cache *cache; /* borrowed, as is file */
    const struct hub_file *file;
    mode_t mode; /* of the finished blob */
    const atomic_bool *stop;
    int lock_fd, fd;
    char part[HUB_PART_NAME_SIZE];
    int64_t n_bytes; /* bytes of the part, from its first byte on */
    struct hub_hasher *hasher;
    char digest[HUB_ETAG_SIZE]; /* after HUB_EWRONG: the digest of the received bytes */
};

/*
 * Takes the lock, waiting for other programs that fetch the same blob; on_wait is called once
 * before a wait. Then opens a part, unless the blob has come meanwhile and force is not set.
 * Returns 1: the blob is there, nothing to do; 0: n_bytes are there, the rest is to be written; or
 * HUB_EDISK, HUB_EINTERNAL, HUB_ESTOPPED with a sentence. hub_blob_end in any case.
 */
int hub_blob_begin(struct hub_blob *ret, const struct hub_cache *c, const struct hub_file *f,
                   mode_t mode, bool force, const atomic_bool *stop,
                   void (*on_wait)(void *ctx, const char *path), void *ctx, char *err);

/* Writes the next bytes, never beyond the file's size. Returns 0 or HUB_EDISK. */
int hub_blob_write(struct hub_blob *b, const char *data, size_t len, char *err);

/* Drops all bytes. Returns 0, HUB_EDISK or HUB_EINTERNAL. */
int hub_blob_restart(struct hub_blob *b, char *err);

/*
 * All bytes are there: checks them and gives the blob its name. 0, HUB_EWRONG (the hash differs:
 * restart or drop), or another error.
 */
int hub_blob_finish(struct hub_blob *b, char *err);

/* Removes the part, because its bytes are useless. */
void hub_blob_drop(struct hub_blob *b);

/*
 * Releases the lock and closes the part, which stays for the next run. Safe after any result of
 * begin.
 */
void hub_blob_end(struct hub_blob *b);

#endif
