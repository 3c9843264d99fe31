/* SPDX-License-Identifier: MIT */
/*
 * Files of requests and of answers, and batches, in a directory that survives the process:
 *
 *     DIR/lock              flock, and the number of the process that has DIR
 *     DIR/files/ID          bytes;  ID.json: its document;  ID.tmp: an upload
 *     DIR/batches/ID.json   its document;  ID.results: see results.h
 *
 * A document is a JSON object with at least "id" and "owner" (64 hex digits); "number", which grows
 * with each, is the store's. It is replaced whole. Bytes get their name after their document and
 * lose it before, so a file is there with both or not at all, whenever the process or the machine
 * stops: what a call has returned 0 for is durable.
 *
 * Another owner's documents are as if they were not there.
 *
 * Threads: safe. One lock for changes, held while they reach the disk, and in it one for the list,
 * which waits for no disk.
 */
#pragma once

#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "server/http/api_error.h"

enum {
    STORE_OWNER = 32,
    STORE_ID_CHARS = 38,
    STORE_NAME_CHARS = STORE_ID_CHARS + 9, /* with a suffix of ".results" */
};

enum store_folder { STORE_FILES, STORE_BATCHES, STORE_FOLDERS };

/* The kinds of errors of answers, negative. */
enum store_error {
    STORE_EIO = -SRV_ERR_INTERNAL,
    STORE_ENOMEM = -SRV_ERR_OVERLOADED,
    STORE_ENOENT = -SRV_ERR_NOT_FOUND,
    STORE_EQUOTA = -SRV_ERR_QUOTA,       /* bytes or number of an owner's files, or bytes of all */
    STORE_ELARGE = -SRV_ERR_TOO_LARGE,   /* one file */
    STORE_EINUSE = -SRV_ERR_FILE_IN_USE, /* by a batch */
};

struct store;

/* A document, and the bytes of a file. Only read. */
struct store_item {
    struct store *store;
    enum store_folder folder;
    char id[STORE_ID_CHARS + 1];
    uint8_t owner[STORE_OWNER];
    int64_t number, bytes;
    json_t *doc; /* NULL: an upload */
    int fd;      /* of that; bytes may be written to it too: they are counted at the end */
};

/*
 * Opens DIR, which is made if its parent exists, for at most so many bytes of files; an owner has a
 * fifth of them. Removes what a killed process has left. Returns owned (store_close).
 */
int store_open(struct store **ret, const char *dir, int64_t most_bytes, char *err, size_t errlen);
void store_close(struct store *s); /* NULL is fine */

/* The name of a document's other file, as ID.results, and the directory that it is in. */
void store_name(char name[STORE_NAME_CHARS], const char *id, const char *suffix);
int store_dir(const struct store *s, enum store_folder folder);

/* ---- documents ----------------------------------------------------------------------------- */

/* The lock of the list. With it held the next two may be called, nothing else of this file but what
 * only reads a document; and their items are there. owner NULL: of any. */
pthread_mutex_t *store_lock(struct store *s);
struct store_item *store_find(const struct store *s, enum store_folder folder, const uint8_t *owner,
                              const char *id);
/* Each call gives another one, *at: 0 before the first; or NULL. */
struct store_item *store_next(const struct store *s, enum store_folder folder, const uint8_t *owner,
                              bool newest_first, size_t *at);

/* Adds a document. Takes doc, of which no other tree has a part: threads share it from now on. */
int store_add(struct store *s, enum store_folder folder, json_t *doc, char *err, size_t errlen);

/*
 * Sets members of a document, which are taken as there, if its status is still `from`, NULL: any.
 * Not durable: the next durable change makes it so. 0, 1: the status is another one; STORE_ENOENT:
 * the owner (NULL: any) has none of this id.
 */
int store_update(struct store *s, enum store_folder folder, const uint8_t *owner, const char *id,
                 const char *from, json_t *members, bool durable, char *err, size_t errlen);

/* A document as its owner sees it: without owner, number and what begins with "_". Text, owned
 * (free), or NULL when out of memory. */
char *store_public(const json_t *doc);

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

/* Removes a document with its file. */
int store_remove(struct store *s, enum store_folder folder, const uint8_t *owner, const char *id);

/* ---- files --------------------------------------------------------------------------------- */

/* A new file; it counts for its owner from now on, and its bytes are bounded as they are added. */
int store_upload_begin(struct store *s, const uint8_t *owner, const char *id,
                       struct store_item **ret, char *err, size_t errlen);
int store_upload_add(struct store_item *u, const void *data, size_t n, char *err, size_t errlen);
/* Ends it as a file; after an error it is to be dropped. */
int store_upload_end(struct store_item *u, const char *filename, const char *purpose,
                     int64_t keep_s, char *err, size_t errlen);
void store_upload_drop(struct store_item *u); /* NULL is fine */

/* The bytes of a file: a descriptor to close, or -1. They never change. */
int store_file_open(struct store *s, const char *id);
