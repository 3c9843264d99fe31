/* SPDX-License-Identifier: MIT */
/*
 * One repository in the Hugging Face cache on disk, laid out as huggingface_hub does it:
 *
 *   ROOT/CACHEDIR.TAG
 *   ROOT/.locks/models--ORG--NAME/ETAG.lock          advisory, per blob
 *   ROOT/models--ORG--NAME/refs/REVISION             the 40 digits of a commit
 *                         /trees/COMMIT.json         the listing (listing.h)
 *                         /blobs/ETAG                contents
 *                         /blobs/ETAG.XXXXXXXX.incomplete
 *                         /snapshots/COMMIT/PATH ->  ../../blobs/ETAG
 *
 * Folders below the repository's own are opened one by one and never through a link. Files appear
 * whole: they are written under another name and renamed. Errors: HUB_EDISK with a sentence.
 *
 * Threads: safe after hub_cache_make; different files only.
 */
#pragma once

#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/hub/listing.h"
#include "server/hub/settings.h"

struct hub_cache {
    char root[PATH_MAX]; /* absolute where it exists */
    char folder[HUB_FOLDER_SIZE];
    int root_fd, repo_fd, blobs_fd; /* -1: not there (yet) */
};

/*
 * Opens the repository's folders in the cache at root, as far as they exist. Returns 0 even if
 * there are none.
 */
int hub_cache_open(struct hub_cache *ret, const char *root, const char *repo, char *err);
void hub_cache_close(struct hub_cache *c);

/* Creates the root, its tag and the folders if they are missing. */
int hub_cache_make(struct hub_cache *c, char *err);

/* Reads the commit that a reference names. Returns 0, or -1 if there is none. */
int hub_cache_read_ref(const struct hub_cache *c, const char *revision,
                       char ret[HUB_COMMIT_LEN + 1]);

int hub_cache_write_ref(const struct hub_cache *c, const char *revision, const char *commit,
                        char *err);

/*
 * Fills an empty listing with that of a commit, sorted. -1, and it is empty, if there is none.
 * `walk`: then it is of the files that the snapshot has, in its root and the folders there.
 */
int hub_cache_read_tree(const struct hub_cache *c, const char *commit, bool walk,
                        struct hub_listing *ret);

int hub_cache_write_tree(const struct hub_cache *c, const char *commit, const char *text,
                         size_t len, char *err);

/* Returns true if the snapshot has this file with its size. */
bool hub_cache_has(const struct hub_cache *c, const char *commit, const struct hub_file *f);

/* Returns true if the blob exists with its size. */
bool hub_cache_has_blob(const struct hub_cache *c, const struct hub_file *f);

/* Calls fn for each part of the blob: ETAG.incomplete or ETAG.anything.incomplete. */
void hub_cache_visit_parts(const struct hub_cache *c, const struct hub_file *f,
                           void (*fn)(void *ctx, const char *name, int64_t n_bytes), void *ctx);

/* Bytes of the file's content that the disk holds: all, or those of the largest part. */
int64_t hub_cache_bytes(const struct hub_cache *c, const char *commit, const struct hub_file *f);

/*
 * Marks the shards of a listing that hub_choose has marked the index of, as far as the snapshot has
 * that. 0, also if there are no shards; 1: the index is not there; or a negative enum hub_error.
 */
int hub_cache_choose_shards(const struct hub_cache *c, const char *commit, struct hub_listing *l,
                            char *err);

/* A small file of the snapshot, NUL-terminated, or NULL. Returns owned. */
char *hub_cache_read(const struct hub_cache *c, const char *commit, const char *path,
                     size_t max_bytes, size_t *ret_len);

/*
 * Makes snapshots/COMMIT/PATH lead to the file's blob. Where the file system has no links the blob
 * itself moves there; keep_blob: a copy of it instead, because another path needs it too.
 */
int hub_cache_link(const struct hub_cache *c, const char *commit, const struct hub_file *f,
                   bool keep_blob, char *err);

/* Syncs the folders of the snapshot and of the blobs. */
int hub_cache_sync(const struct hub_cache *c, const char *commit, char *err);

/*
 * Of a snapshot whose files no listing tells, copied by hand or made by others: whether dir (below
 * dir_fd or absolute) has config.json and its weights: model.safetensors, or every shard that the
 * index names.
 */
bool hub_snapshot_is_whole(int dir_fd, const char *dir);

/*
 * The commit that the cache has for the name's revision: by its reference or, if the name has none,
 * of the only snapshot there is, if that is whole. Else -1.
 */
int hub_cache_find_commit(const struct hub_cache *c, const struct hub_name *name,
                          char ret[HUB_COMMIT_LEN + 1]);

/* Bytes that may still be written below the root; -1: unknown. */
int64_t hub_cache_free_bytes(const struct hub_cache *c);

/* ROOT/models--ORG--NAME/snapshots/COMMIT, of a model in GGUF with its first file. 0, or -1 if that
 * does not fit. */
int hub_cache_snapshot_path(const struct hub_cache *c, const char *commit,
                            const struct hub_file *gguf, char *buf, size_t size);

/* "cannot write ROOT: read-only file system", of errno. Returns HUB_EDISK. */
int hub_cache_cannot(const struct hub_cache *c, const char *action, char *err);

/* Opens the folder of a name below dir_fd, without following a link; make: if it is missing. */
int hub_folder_open(int dir_fd, const char *name, bool make);

/* The entries of a folder below dir_fd; NULL if it cannot be opened, or is a link. For closedir. */
DIR *hub_folder_read(int dir_fd, const char *name);

/*
 * Calls fn for each file below a folder of dir_fd, links to files included: its path from there,
 * after prefix, and its size. depth: of folders, 1: the folder alone.
 */
void hub_folder_walk(int dir_fd, const char *name, const char *prefix, int depth,
                     void (*fn)(void *ctx, const char *path, int64_t n_bytes), void *ctx);

/* Makes the folders of a path, up to its last slash. 0, or -1 with errno. */
int hub_make_folders(char *path, mode_t mode);

/* Eight random hexadecimal digits and a NUL. */
void hub_random_digits(char buf[9]);
