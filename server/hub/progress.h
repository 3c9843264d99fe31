/* SPDX-License-Identifier: MIT */
/*
 * How far a pull has come: bytes of each file that are there, counted once per content. What is
 * shown never falls and never exceeds the total, although a file may begin anew.
 *
 * Threads: safe once the plan is set.
 */
#ifndef HEARTH_SERVER_HUB_PROGRESS_H
#define HEARTH_SERVER_HUB_PROGRESS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/hub/listing.h"

enum { HUB_ACTIVE_MAX = 2 };

/* A snapshot of the counts. */
struct hub_progress {
    int64_t n_bytes, n_total; /* there, and of all files; n_total 0: not known yet */
    int64_t n_fetched;        /* bytes that came from the hub in this run */
    int n_active;
    struct {
        const char *path; /* borrowed from the listing */
        int64_t n_bytes, n_total;
    } active[HUB_ACTIVE_MAX];
};

struct hub_counts {
    pthread_mutex_t lock;
    struct hub_progress p;
};

void hub_counts_init(struct hub_counts *c);
void hub_counts_finish(struct hub_counts *c);

/* Sets the totals: the bytes of all files, and those in the cache before the pull. */
void hub_counts_plan(struct hub_counts *c, int64_t n_bytes, int64_t n_total);

/* A file begins with n bytes that the plan has counted; gets more bytes; ends. */
void hub_counts_begin(struct hub_counts *c, const struct hub_file *f, int64_t n_planned);
void hub_counts_add(struct hub_counts *c, const struct hub_file *f, int64_t n_there, int64_t n_new);
void hub_counts_end(struct hub_counts *c, const struct hub_file *f, bool complete);

void hub_counts_read(struct hub_counts *c, struct hub_progress *ret);

/* The percentage fetched, rounded down; 100 only if everything is. */
int hub_progress_percent(const struct hub_progress *p);

#endif
