/* SPDX-License-Identifier: MIT */
/*
 * Where and how to reach the hub: names of models and revisions as the Hugging Face hub has
 * them, with the folders of its cache that they lead to, and settings from the environment.
 *
 * A name is org/name or name: parts of 1 to 96 letters, digits and . _ -, which begin and end with
 * a letter, a digit or _, without .. and --, not ending in .git; then perhaps :TAG for one of its
 * GGUF files (base/gguf_names.h). A revision is a branch, a tag, refs/pr/N or a commit, under
 * git's rules for references, in ASCII.
 *
 * Variables have the names that huggingface_hub reads: HF_ENDPOINT, HF_TOKEN and where else a token
 * may be, HF_HUB_OFFLINE, time limits, certificates, the cache. They are read once, on the main
 * thread before any other exists. Functions about names are pure; threads: safe.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/fail.h"
#include "base/gguf_names.h"
#include "server/hub/transfer.h"

/*
 * How fetching a model can fail. Functions of this folder return 0 or one of these, with a sentence
 * for people in `err`, a buffer of HUB_ERR_SIZE bytes. Its absolute value is the exit status.
 */
enum hub_error {
    HUB_EINTERNAL = -1,  /* out of memory, or a bug */
    HUB_EUSAGE = -2,     /* an invalid name, revision, endpoint or token */
    HUB_ENOTFOUND = -3,  /* no such model or revision */
    HUB_EDENIED = -4,    /* gated or private, or the token is not accepted */
    HUB_ENETWORK = -5,   /* not reached, too slow, rate limits, certificates, or offline */
    HUB_EWRONG = -6,     /* an invalid answer or content */
    HUB_EDISK = -7,      /* no space, or no permission to write */
    HUB_ENOTSERVED = -8, /* no model that this program can serve */
    HUB_ESTOPPED = -9,   /* asked to stop; no exit status of its own */
};

enum { HUB_ERR_SIZE = 600 };

/* As fail_with; err: a buffer of HUB_ERR_SIZE bytes. */
#define hub_fail(err, rc, ...) fail_with(rc, err, HUB_ERR_SIZE, __VA_ARGS__)

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
    char tag[GGUF_TAG_SIZE];          /* which of its GGUF files; "" if none was given */
    bool text_only;                   /* the tokenizer and its like, no weights */
};

/* spec: NAME[:TAG][@REVISION]. 0, or HUB_EUSAGE with a sentence. */
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

/* ---- settings ------------------------------------------------------------------------------- */

enum { HUB_ENDPOINT_SIZE = 512, HUB_TOKEN_SIZE = 512 };

struct hub_settings {
    char endpoint[HUB_ENDPOINT_SIZE]; /* without a slash at the end */
    struct transfer_origin origin;    /* of the endpoint */
    bool allow_http;                  /* the endpoint is http, so redirects may be */
    char token[HUB_TOKEN_SIZE];       /* "" without one. Never shown */
    char token_from[PATH_MAX];        /* the variable or file that holds it */
    const char *offline;              /* the variable that forbids all requests, or NULL */
    int head_timeout_ms, body_timeout_ms;
    bool no_bars; /* HF_HUB_DISABLE_PROGRESS_BARS */
    struct transfer_settings transfer;
    char cache_root[PATH_MAX];
    mode_t umask;
    int first_wait_ms; /* before the second try; each further one waits twice as long */
};

/*
 * The cache's root as the environment has it; HUB_EUSAGE with a sentence if it names none, or one
 * that is too long. env as getenv here and below; NULL: getenv.
 */
int hub_cache_root(const char *(*env)(const char *name), char *buf, size_t size, char *err);

/* The variable that forbids all requests, or NULL. */
const char *hub_settings_offline(const char *(*env)(const char *name));

/*
 * The strings that env gives are borrowed for the life of *ret. Needs transfer_load unless the
 * environment says offline. 0, or HUB_EUSAGE with a sentence in err.
 */
int hub_settings_read(struct hub_settings *ret, const char *(*env)(const char *name), char *err);

/*
 * Returns true if the token may go to this origin: the endpoint's own, over https or on this
 * machine.
 */
bool hub_settings_may_send_token(const struct hub_settings *s, const struct transfer_origin *to);
