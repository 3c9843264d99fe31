/* SPDX-License-Identifier: MIT */
/*
 * The progress of a pull: on a terminal one line that is redrawn, elsewhere a line per file and
 * one every ten seconds, with --json one JSON object per line on stdout. Everything else goes to
 * stderr.
 *
 * Threads: the events may come on any; the rest is called by one owner.
 */
#ifndef HEARTH_SERVER_HUB_PULL_PROGRESS_H
#define HEARTH_SERVER_HUB_PULL_PROGRESS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/hub/pull.h"

enum { PULL_SAMPLES = 32, PULL_TICK_MS = 100 };

enum pull_style { PULL_SILENT, PULL_LINES, PULL_BAR, PULL_JSON };

struct pull_view {
    enum pull_style style;
    bool utf8;
    const struct hub_name *name;
    pthread_mutex_t lock; /* guards the fields below, and the output */
    bool planned;
    int bar_columns; /* of the bar on the screen */
    uint64_t begin_us, shown_us;
    struct {
        uint64_t us;
        int64_t n_fetched;
    } samples[PULL_SAMPLES]; /* a ring: the last three seconds */
    int n_samples;
    struct hub_progress last;
};

/* name is borrowed. no_bars: neither bar nor lines. */
void pull_view_init(struct pull_view *v, const struct hub_name *name, bool json, bool no_bars);
void pull_view_finish(struct pull_view *v);

/* For hub_pull_params.events; ctx is the view. */
extern const struct hub_pull_events pull_view_events;

/* Every PULL_TICK_MS or so while the pull runs. */
void pull_view_tick(struct pull_view *v, struct hub_pull *p);

/* After the end: removes the bar and writes a summary (JSON: the last object). */
void pull_view_done(struct pull_view *v, struct hub_pull *p);
void pull_view_failed(struct pull_view *v, int exit_status, int rc, const char *message);

/* "269 MB": three digits or so, of powers of 1000. */
const char *pull_format_bytes(int64_t n, char *buf, size_t size);

#endif
