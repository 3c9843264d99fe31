/* SPDX-License-Identifier: MIT */
/*
 * Names of models and revisions as the Hugging Face hub has them, and the folders of its cache that
 * they lead to. Pure; threads: safe.
 *
 * A name is org/name or name: parts of 1 to 96 letters, digits and . _ -, which begin and end with
 * a letter, a digit or _, without .. and --, not ending in .git. A revision is a branch, a tag,
 * refs/pr/N or a commit, under git's rules for references, in ASCII.
 */
#ifndef HEARTH_SERVER_HUB_NAMES_H
#define HEARTH_SERVER_HUB_NAMES_H

#include <stdbool.h>
#include <stddef.h>

enum {
    HUB_COMMIT_LEN = 40, /* hexadecimal digits */
    HUB_REPO_SIZE = 196, /* with the NUL */
    HUB_REVISION_SIZE = 256,
    HUB_FOLDER_SIZE = HUB_REPO_SIZE + 10,
};

struct hub_name {
    char repo[HUB_REPO_SIZE];
    char revision[HUB_REVISION_SIZE]; /* "main" if none was given */
    bool has_revision;                /* one was given */
    bool is_commit;                   /* the revision is a whole commit */
};

/* spec: NAME or NAME@REVISION. 0, or HUB_EUSAGE with a sentence (hub_error.h). */
int hub_name_parse(struct hub_name *ret, const char *spec, char *err);

/*
 * The name in an address as a browser shows it, https://HUB/ORG/NAME or its page of a revision
 * (/tree/REVISION), also without the scheme: 1. HUB is huggingface.co, hf.co or the endpoint (may
 * be NULL). 0: spec is not an address; -1: it is another hub's.
 */
int hub_name_from_address(const char *spec, const char *endpoint, char *ret, size_t size);

/* 40 lower-case hexadecimal digits. */
bool hub_is_commit(const char *text);

/* 40 or 64 of them: the name of a blob, SHA-1 as git computes it or SHA-256. */
bool hub_is_etag(const char *text);

/* "models--org--name", of a name that was parsed. */
void hub_folder_name(const char *repo, char buf[HUB_FOLDER_SIZE]);

/* The name that such a folder holds, or -1. */
int hub_folder_parse(const char *folder, char ret[HUB_REPO_SIZE]);

/*
 * A path as huggingface_hub finds it: the value of the first of the variables (NULL-terminated)
 * that is set and not empty, else `leaf` in its home directory. Returns 0, or -1 if there is none
 * or it is longer than the buffer.
 */
int hub_home_path(const char *(*env)(const char *name), const char *const *variables,
                  const char *leaf, char *buf, size_t size);

/* The cache's root as the environment has it; -1 if it names none, or one that is too long. */
int hub_cache_root(const char *(*env)(const char *name), char *buf, size_t size);

#endif
