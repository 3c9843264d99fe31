/* SPDX-License-Identifier: MIT */
/*
 * Fetching a model into the Hugging Face cache, in an order that lets no half model be seen:
 *
 *   1. the revision's commit, then (unless the cache has it) the listing of its files
 *   2. config.json, which decides whether the model can be served at all; then the index of shards
 *   3. the rest, smallest first; each file is linked into the snapshot once its content is whole
 *      and right
 *   4. last the reference that makes the revision's name lead to the commit
 *
 * A snapshot that is complete costs one request. Without the network, and to serve also where the
 * hub only cannot be reached, one that is complete is enough.
 *
 * Threads: create and destroy by one owner; hub_pull_run on any one thread;
 * hub_pull_stop and hub_pull_progress from any, the former from signal handlers too.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "server/hub/listing.h"
#include "server/hub/settings.h"

/* Opens what pulling needs; before any other thread exists. 0 or HUB_EUSAGE with a sentence. */
int hub_pull_prepare(struct hub_settings *ret, const char *(*env)(const char *name), char *err);

/*
 * How far a pull has come, each content counted once. n_bytes never falls and never exceeds the
 * total, although a file may begin anew.
 */
struct hub_progress {
    int64_t n_bytes, n_total; /* there, and of all files; n_total 0: not known yet */
    int64_t n_fetched;        /* bytes that came from the hub in this run */
    const char *path;         /* of the file that was fetched last, borrowed; NULL: none */
    int64_t n_file;           /* bytes of it that are there */
};

/* The percentage that is there, rounded down; 100 only if everything is. */
int hub_progress_percent(const struct hub_progress *p);

/* The events of a pull; strings are borrowed for the call. */
struct hub_event {
    enum hub_event_kind {
        HUB_PLAN,    /* commit, n_files; n_bytes of n_total are in the cache */
        HUB_BYTES,   /* progress: more bytes are there */
        HUB_FILE,    /* what: a file with n_total bytes is complete */
        HUB_RETRY,   /* text */
        HUB_WAIT,    /* text: another program fetches the file */
        HUB_WARNING, /* text */
    } kind;
    const char *text; /* a sentence for people */
    const char *what; /* a path */
    const char *commit;
    int n_files;
    int64_t n_bytes, n_total;
    const struct hub_progress *progress;
};

struct hub_pull_params {
    const struct hub_settings *settings; /* borrowed, as name */
    const struct hub_name *name;
    bool force;    /* fetch again what the cache has */
    bool dry_run;  /* stop before anything is written */
    bool to_serve; /* a complete copy in the cache is as good: then one short try */
    /* Called on the thread that pulls. */
    void (*event)(void *ctx, const struct hub_event *e);
    void *ctx;
};

struct hub_pull;

/* Returns owned, or NULL when out of memory. */
struct hub_pull *hub_pull_create(const struct hub_pull_params *params);
void hub_pull_destroy(struct hub_pull *p);

/* Once. 0, or an enum hub_error with a sentence in err (HUB_ERR_SIZE). The progress is zeros after
 * the hub was not reached and the cache has a complete copy. */
int hub_pull_run(struct hub_pull *p, char *err);

/* Makes run return HUB_ESTOPPED soon. Received bytes stay for the next run. */
void hub_pull_stop(struct hub_pull *p);

void hub_pull_progress(struct hub_pull *p, struct hub_progress *ret);

/* Percent of the model that the disk holds, parts included; 0 if no plan was made. */
int hub_pull_kept_percent(struct hub_pull *p);

/* After success: the snapshot's absolute path, borrowed. */
const char *hub_pull_snapshot(const struct hub_pull *p);

/* After a dry run: each file that would be there, in order; cached: it is there already. */
void hub_pull_visit(const struct hub_pull *p,
                    void (*fn)(void *ctx, const struct hub_file *f, bool cached), void *ctx);
