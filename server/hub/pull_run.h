/* SPDX-License-Identifier: MIT */
/*
 * A pull as a command does it: with its progress shown, stopped by SIGINT or SIGTERM, its failure
 * as an exit status with one last line. Main thread, before any other thread exists.
 */
#ifndef HEARTH_SERVER_HUB_PULL_RUN_H
#define HEARTH_SERVER_HUB_PULL_RUN_H

#include <stdbool.h>
#include <stddef.h>

struct srv_config;

/*
 * Pulls config->model ("org/name@revision"). to_serve: for a command that goes on with the model;
 * an unreachable hub is then no obstacle if the cache has it complete. Returns the exit status; 0:
 * the snapshot's absolute path is in ret_path (unless config->dry_run, which lists on stdout).
 */
int pull_run(const struct srv_config *config, bool to_serve, char *ret_path, size_t size);

#endif
