/* SPDX-License-Identifier: MIT */
/*
 * A pull as a command does it: with its progress shown, stopped by SIGINT or SIGTERM, its failure
 * as an exit status with one last line. Main thread, before any other thread exists.
 *
 * A file that is complete is a line on stderr; while bytes come, so are the figures of the whole
 * once a second, unless stderr is a terminal.
 */
#pragma once

#include "server/hub/pull.h"

struct srv_config;

/*
 * Pulls config->model ("org/name@revision"). to_serve: for a command that goes on with the model;
 * an unreachable hub is then no obstacle if the cache has it complete. Returns the exit status; 0:
 * the snapshot's absolute path is in ret_path (unless config->dry_run, which lists on stdout).
 */
int pull_run(const struct srv_config *config, bool to_serve, char *ret_path, size_t size);

/* "269 MB": three digits or so, of powers of 1000. Returns buf. */
const char *pull_format_bytes(int64_t n, char *buf, size_t size);

/* "41 %, 111 MB of 269 MB". Returns buf. */
const char *pull_format_progress(const struct hub_progress *p, char *buf, size_t size);

/* The progress of a pull as it is shown. */
struct pull_view {
    const struct hub_name *name;
    bool quiet, terminal, planned;
    uint64_t begin_us, shown_us;
};

/* For hub_pull_params.event; ctx is the view. */
void pull_view_event(void *ctx, const struct hub_event *e);

/* Shows how far the pull is, if it is time for that. */
void pull_view_show(struct pull_view *v, const struct hub_progress *now, uint64_t now_us);
