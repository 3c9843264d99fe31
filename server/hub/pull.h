/* SPDX-License-Identifier: MIT */
/*
 * Fetching a model into the Hugging Face cache, in an order that lets no half model be seen:
 *
 *   1. the revision's commit, then (unless the cache has it) the listing of its files
 *   2. config.json, which decides whether the model can be served at all; then the index of shards
 *   3. the rest, smallest first, two at a time; each file is linked into the snapshot once its
 *      content is whole and right
 *   4. last the reference that makes the revision's name lead to the commit
 *
 * A snapshot that is complete costs one request. Without the network, and where the hub only cannot
 * be reached, a complete snapshot can still be found (hub_pull_use_cached).
 *
 * Threads: create and destroy by one owner; hub_pull_run on any one thread, which starts a second
 * one; hub_pull_stop and hub_pull_progress from any.
 */
#ifndef HEARTH_SERVER_HUB_PULL_H
#define HEARTH_SERVER_HUB_PULL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/hub/hub_error.h"
#include "server/hub/settings.h"
#include "server/hub/progress.h"

/* Opens what pulling needs; before any other thread exists. 0 or HUB_EUSAGE with a sentence. */
int hub_pull_prepare(struct hub_settings *ret, const char *(*env)(const char *name), char *err);

struct hub_plan {
    const char *commit;
    int n_files;
    int64_t n_cached, n_total; /* in the cache before anything came, and of all files */
};

/* Called on the threads that pull, one at a time. Any may be NULL. Strings are borrowed. */
struct hub_pull_events {
    void (*plan)(void *ctx, const struct hub_plan *plan);
    void (*file)(void *ctx, const char *path, int64_t size); /* is complete */
    void (*retry)(void *ctx, const char *what, const char *reason, int n_try, int wait_ms);
    void (*wait)(void *ctx, const char *path); /* another program fetches it */
    void (*warning)(void *ctx, const char *text);
};

struct hub_pull_params {
    const struct hub_settings *settings; /* borrowed, as name and events */
    const struct hub_name *name;
    bool force;    /* fetch again what the cache has */
    bool dry_run;  /* stop before anything is written */
    bool to_serve; /* hub_pull_use_cached follows: one short try if the cache has a complete copy */
    const struct hub_pull_events *events;
    void *ctx;
};

struct hub_pull;

/* Returns owned, or NULL when out of memory. */
struct hub_pull *hub_pull_create(const struct hub_pull_params *params);
void hub_pull_destroy(struct hub_pull *p);

/* Once. 0, or an enum hub_error with a sentence in err (HUB_ERR_SIZE). */
int hub_pull_run(struct hub_pull *p, char *err);

/* Makes run return HUB_ESTOPPED soon. Received bytes stay for the next run. */
void hub_pull_stop(struct hub_pull *p);

void hub_pull_progress(struct hub_pull *p, struct hub_progress *ret);

/* Percent of the model that the disk holds, parts included; -1 while no plan is made. */
int hub_pull_kept_percent(struct hub_pull *p);

/*
 * After run failed with HUB_ENETWORK: whether a complete snapshot of the revision is in the cache.
 * Then ret_date is the day it was fetched, "2026-11-02".
 */
bool hub_pull_use_cached(struct hub_pull *p, char ret_date[11]);

/* After success: the snapshot's absolute path, borrowed. */
const char *hub_pull_snapshot(const struct hub_pull *p);

/* After a dry run: each file that would be there, in order; cached: it is there already. */
void hub_pull_visit(const struct hub_pull *p,
                    void (*fn)(void *ctx, const struct hub_file *f, bool cached), void *ctx);

#endif
