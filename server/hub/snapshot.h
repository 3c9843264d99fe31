/* SPDX-License-Identifier: MIT */
/*
 * Snapshots of which no listing tells the files: caches copied by hand, or made by others. Whole is
 * one that has config.json and its weights: model.safetensors, or every shard that the index names.
 * Any thread.
 */
#ifndef HEARTH_SERVER_HUB_SNAPSHOT_H
#define HEARTH_SERVER_HUB_SNAPSHOT_H

#include <stdbool.h>

#include "server/hub/settings.h"

bool hub_snapshot_is_whole(const char *dir);

/* The commit of the only snapshot below an open repository folder, if it is whole; else -1. */
int hub_snapshot_only(int repo_fd, char ret[HUB_COMMIT_LEN + 1]);

#endif
