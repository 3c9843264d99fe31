/* SPDX-License-Identifier: MIT */
/*
 * The files of a commit: as the hub lists them in pages, and as trees/COMMIT.json of the cache
 * keeps them. Everything in a listing is input from outside, and every entry of it is checked,
 * whether or not its file is taken:
 *
 *   a path is relative UTF-8 of at most 1,024 bytes, its segments at most 255 and none of them
 *   empty, "." or ".."; no control character, no backslash; no path comes twice
 *   hashes are 40 or 64 lower-case hexadecimal digits, sizes integers from 0 to 2^62
 *
 * Taken are the configuration, the tokenizer, chat templates, and safetensors weights, all from the
 * root, or instead of configuration and weights one model in GGUF. Nothing that could be run and
 * nothing that is not read: no pickle, no other formats, no variants, no code.
 *
 * A file's blob is named after its SHA-256 if it is in git-lfs, else after git's SHA-1.
 *
 * Threads: unsafe; one owner.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/hub/settings.h"

#define HUB_CONFIG_NAME "config.json"
#define HUB_WEIGHTS_NAME "model.safetensors"
#define HUB_INDEX_NAME "model.safetensors.index.json"

/* Of a file, 64 TiB: the sum of all fits into 63 bits. */
#define HUB_SIZE_MAX (INT64_C(1) << 46)

enum {
    HUB_PATH_MAX = 1024,
    HUB_SEGMENT_MAX = 255,
    HUB_ENTRIES_MAX = 100000,
    HUB_PAGE_MAX_BYTES = 16 << 20,
    HUB_LISTING_MAX_BYTES = 64 << 20, /* all pages of a listing */
    HUB_INDEX_MAX_BYTES = 64 << 20,
    HUB_ETAG_SIZE = 65,
};

struct hub_file {
    char *path;               /* owned by the listing */
    int64_t size;             /* of the content */
    char etag[HUB_ETAG_SIZE]; /* the blob's name */
    bool is_lfs;              /* etag is SHA-256 */
    char oid[HUB_ETAG_SIZE];  /* git's hash: of the content, or of the git-lfs pointer */
    int64_t listed_size;      /* the entry's own "size", which should be the same */
    char xet[HUB_ETAG_SIZE];  /* "" without one */
    bool wanted;              /* see hub_choose */
    bool fetched;             /* by this pull, with every file of the same content */
};

struct hub_listing {
    struct hub_file *files;
    size_t n, cap;
    bool odd_xet;                /* a Xet hash that is not one: such a listing is not kept */
    bool in_gguf;                /* hub_choose looked for a model in GGUF */
    const struct hub_file *gguf; /* and took this one, its first file; NULL: none */
};

void hub_listing_finish(struct hub_listing *l);

/* Adds a page of /api/models/ID/tree/COMMIT. 0, HUB_EWRONG or HUB_EINTERNAL. */
int hub_listing_add_page(struct hub_listing *l, const char *text, size_t len, char *err);

/* Adds what trees/COMMIT.json holds. */
int hub_listing_add_tree(struct hub_listing *l, const char *text, size_t len, char *err);

/* After the last addition: sorts by path and refuses a path that comes twice. */
int hub_listing_sort(struct hub_listing *l, char *err);

/* By path, or NULL. Of a sorted listing. */
struct hub_file *hub_listing_find(const struct hub_listing *l, const char *path);

/*
 * The text of trees/COMMIT.json, byte for byte as huggingface_hub writes it. Returns owned (free),
 * or NULL when out of memory or beyond HUB_LISTING_MAX_BYTES.
 */
char *hub_listing_write(const struct hub_listing *l, size_t *ret_len);

bool hub_path_is_safe(const char *path, size_t len);

/* "sha" of the hub's answer about a revision. 0, or -1 if it is not a commit. */
int hub_commit_read(const char *text, size_t len, char ret[HUB_COMMIT_LEN + 1]);

/* Adds a file of which only path and size are known. 0, or HUB_EINTERNAL. */
int hub_listing_add(struct hub_listing *l, const char *path, int64_t size);

/*
 * Marks the files that are fetched with any weights, and model.safetensors, or the index if only
 * that exists. With a tag, or if there are no such weights, marks those of the model in GGUF that
 * the tag names, all files of its set. No other stays marked. Returns 0, or HUB_ENOTSERVED with a
 * sentence if a required file is missing.
 */
int hub_choose(struct hub_listing *l, const struct hub_name *name, char *err);

/* Calls fn for each model in GGUF of the listing: the first file of a set. */
void hub_ggufs_visit(const struct hub_listing *l, void (*fn)(void *ctx, const struct hub_file *f),
                     void *ctx);

/* The index of shards, if it is what hub_choose took; else NULL. */
struct hub_file *hub_wanted_index(const struct hub_listing *l);

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
