/* SPDX-License-Identifier: MIT */
/*
 * Files of requests and of answers, and batches, in a directory that survives the process:
 *
 *     DIR/lock              flock, and the number of the process that has DIR
 *     DIR/files/ID          bytes;  ID.json: its document;  ID.tmp: an upload
 *     DIR/batches/ID.json   its document;  ID.results: see results.h
 *
 * A document is a JSON object with at least "id", "owner" (64 hex digits), "created_at" and
 * "expires_at" (seconds, or null); "number", which grows with each, is the store's. It is
 * replaced whole. Bytes get their name after their document and lose it before, so a file is there
 * with both or not at all, whenever the process or the machine stops: what a call has returned 0
 * for is durable.
 *
 * Another owner's documents are as if they were not there.
 *
 * Threads: safe. One lock for changes, held while they reach the disk, and in it one for the list,
 * which visitors are called with and which waits for no disk.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"

enum { STORE_OWNER = 32, STORE_ID_CHARS = 38 };

enum store_folder { STORE_FILES, STORE_BATCHES, STORE_FOLDERS };

enum store_error {
    STORE_EIO = -1,
    STORE_ENOMEM = -2,
    STORE_ENOENT = -3,
    STORE_EQUOTA = -4, /* bytes or number of an owner's files, or bytes of all */
    STORE_ELARGE = -5, /* one file */
};

struct store;
struct store_upload;

/*
 * Opens DIR, which is made if its parent exists, for at most so many bytes of files; an owner has a
 * fifth of them. Removes what a killed process has left. Returns owned (store_close).
 */
int store_open(struct store **ret, const char *dir, int64_t most_bytes, char *err, size_t errlen);
void store_close(struct store *s); /* NULL is fine */

/* ID and DIR of a document's other file, as ID.results. */
int store_dir(const struct store *s, enum store_folder folder);

/* ---- documents ----------------------------------------------------------------------------- */

/* Adds a document, or replaces the one of its id. Takes doc. */
int store_put(struct store *s, enum store_folder folder, json_t *doc, char *err, size_t errlen);

/*
 * Changes a document: `change` fills in a copy, and returns false if all stays as it is. Not
 * durable: the next durable change makes it so. STORE_ENOENT: the owner (NULL: any) has none of
 * this id.
 */
typedef bool store_change_fn(void *ctx, json_t *doc);
int store_change(struct store *s, enum store_folder folder, const uint8_t *owner, const char *id,
                 bool durable, store_change_fn *change, void *ctx, char *err, size_t errlen);

/* A document as its owner sees it: without owner, number and what begins with "_". Text, owned
 * (free), or NULL when out of memory. */
char *store_public(const json_t *doc);
void store_owner_of(const json_t *doc, uint8_t ret[STORE_OWNER]);

/* A member that is a text; "": it is none. */
static inline const char *store_text(const json_t *doc, const char *name)
{
    const char *text = json_string_value(json_object_get(doc, name));
    return text ? text : "";
}

static inline int64_t store_now_s(void)
{
    return clock_date_ms() / 1000;
}

/* Shows a document. owner NULL: of any. Returns false if there is none. */
typedef void store_visit(void *ctx, const json_t *doc);
bool store_see(struct store *s, enum store_folder folder, const uint8_t *owner, const char *id,
               store_visit *visit, void *ctx);

struct store_page {
    const char *after; /* an id, or NULL: from the first */
    bool oldest_first;
    const char *purpose; /* of files; NULL: any */
    int most;
};
/* Shows a page of them. 1: there are more, 0, or STORE_ENOENT: `after` is none of the owner's. */
int store_list(struct store *s, enum store_folder folder, const uint8_t *owner,
               const struct store_page *page, store_visit *visit, void *ctx);

/* Removes a document with its file. */
int store_remove(struct store *s, enum store_folder folder, const uint8_t *owner, const char *id);

/* ---- files --------------------------------------------------------------------------------- */

/* A new file, whose id is made of these 16 bytes; it counts for its owner from now on, and its
 * bytes are bounded as they are added. */
int store_upload_begin(struct store *s, const uint8_t *owner, const uint8_t id[16],
                       struct store_upload **ret, char *err, size_t errlen);
int store_upload_add(struct store_upload *u, const void *data, size_t n, char *err, size_t errlen);
/* Ends it as a file with this document, which is taken, but for id, owner and "bytes". */
int store_upload_end(struct store_upload *u, json_t *doc, char *err, size_t errlen);
void store_upload_drop(struct store_upload *u); /* NULL is fine */

const char *store_upload_id(const struct store_upload *u);
/* To write to; such bytes are counted at the end, and no bound refuses them. */
int store_upload_fd(const struct store_upload *u);

/* The bytes of a file: a descriptor to close, or -1. They never change. */
int store_file_open(struct store *s, const char *id);
