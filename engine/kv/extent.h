/* SPDX-License-Identifier: MIT */
/*
 * Extents: pages of KV in files that outlive the process. An extent is 1 to 16 pages of one chain,
 * one after the other from its parent extent on; the root's parent is all zeros.
 *
 *     DIR/secret             32 random bytes, made by the first process that opens DIR
 *     DIR/v1/c4/ab39...f0    header, then the pages as in memory
 *     DIR/v1/c4/ab39...f0.s  header, then the states of recurrent layers after its last id
 *
 * The folder is a keyed byte of the scope's owner: a key that fills the directory loses its own.
 * The name is the SHA-256 of the secret, the fingerprint, the scope, the parent's name and the ids,
 * so the file itself is the only index: a name either exists with these contents or it does not.
 * Files appear by rename and never change; equal names mean equal bytes, so any number of processes
 * may share DIR without a lock. Nothing is synced: a file that a power failure damages is found
 * out when it is read.
 *
 * A reader compares fingerprint, scope, parent and ids in full with those it asks for, and each
 * page with a keyed hash. That finds faults, not an attacker: a user who can write DIR can change
 * answers. Directory and files are open to their owner only.
 *
 * Threads: a store is const after extent_store_open; every function may be called from any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/eng_error.h"
#include "engine/kv/kv.h"
#include "engine/params.h"

enum {
    EXTENT_PAGES = 16, /* at most */
    EXTENT_IDS = EXTENT_PAGES * KV_PAGE_TOKENS,
    EXTENT_DIGEST = 32, /* bytes of names, scopes and fingerprints */
};

/* The contents of an extent. Pointers are borrowed for the call. */
struct extent {
    const uint8_t *scope;  /* [EXTENT_DIGEST] */
    const uint8_t *parent; /* [EXTENT_DIGEST] the name of the extent before it */
    const int32_t *ids;    /* [n_pages * KV_PAGE_TOKENS] */
    int n_pages;           /* 1 .. EXTENT_PAGES */
    bool for_a_day;        /* to be written so that it leaves a day later, used or not */
};

/* How a read ends. All but the first two are faults of a file, which is then removed. */
enum extent_result {
    EXTENT_READ,
    EXTENT_ABSENT,
    EXTENT_UNREADABLE, /* not a file of ours, or an I/O error; it is left alone */
    EXTENT_LENGTH,
    EXTENT_HEADER,
    EXTENT_FOREIGN, /* a sound header, but of other contents than the name says */
    EXTENT_PAYLOAD,
    EXTENT_N_RESULTS
};

struct extent_store;

/*
 * Opens DIR, which is made if its parent exists, for pages of page_bytes whose bits are a function
 * of ids and fingerprint. model: a name for those who list the files, cut to fit; or NULL.
 * Returns owned, or ENG_EINVAL (not a directory of this user alone, a damaged secret), ENG_EIO,
 * ENG_ENOMEM.
 */
int extent_store_open(struct extent_store **ret, const char *dir,
                      const uint8_t fingerprint[EXTENT_DIGEST], size_t page_bytes,
                      const char *model, char *err, size_t errlen);
/* NULL is fine. */
void extent_store_close(struct extent_store *s);

/* ret may be the memory of x->parent. */
void extent_name(const struct extent_store *s, const struct extent *x, uint8_t ret[EXTENT_DIGEST]);

/*
 * Writes data under the name of x: pages [n_pages], or with state > 0 the states after it, one part
 * of so many bytes. 0, also if the file is there already, or ENG_EIO.
 */
int extent_write(const struct extent_store *s, const struct extent *x, size_t state,
                 const uint8_t *const *data);

/* Removes what there is of that name. */
void extent_remove(const struct extent_store *s, const struct extent *x);

/* Whether a file of that name is there, or one of the states after it. */
bool extent_exists(const struct extent_store *s, const struct extent *x, bool state);

/*
 * Reads the extent of x into data, as it was written, but for pages that are NULL; unless
 * EXTENT_READ is returned, the contents are arbitrary.
 */
enum extent_result extent_read(const struct extent_store *s, const struct extent *x, size_t state,
                               uint8_t *const *data);

/*
 * Notes that an extent is used, in its mtime: that gets at most an hour old, and stays before
 * *at_us, that of its parent, so that the end of a chain leaves first. Begin with extent_now;
 * *at_us is set for the extent that follows. Nothing happens to one that is not there.
 */
int64_t extent_now(void); /* microseconds since the epoch */
void extent_touch(const struct extent_store *s, const struct extent *x, int64_t *at_us);

/* Limits of a directory. */
struct extent_limits {
    int64_t bytes;      /* of all extents */
    int64_t free_bytes; /* that stay free in the file system */
    int64_t seconds;    /* since the last use */
};

/* For free_bytes: a tenth of the file system, but at most 5 GiB; and the bytes lacking for that. */
int64_t extent_floor(const struct extent_store *s);
int64_t extent_lacking(const struct extent_store *s, int64_t free_bytes);

/*
 * Removes extents until the limits hold, the least recently used of the folder that takes most
 * first; also what writers that were killed have left. now_us: as extent_now. Other files are not
 * touched. *ret_bytes: what the extents take then; *ret_pages: those of this store's size in them.
 * Returns 0, ENG_EIO or ENG_ENOMEM.
 */
int extent_prune(const struct extent_store *s, const struct extent_limits *limits, int64_t now_us,
                 int64_t *ret_bytes, int64_t *ret_pages);

/*
 * Calls visit for each file, of an owner's [ENG_KV_OWNER] folder or with NULL of all, and removes
 * those for which it returns true. Returns the same; ENG_EIO also if some could not be removed.
 */
int extent_visit(const struct extent_store *s, const uint8_t *owner,
                 bool (*visit)(void *ctx, const struct eng_kv_file *file), void *ctx);
