/* SPDX-License-Identifier: MIT */
/*
 * The control groups that limit this process, versions 1 and 2, as /proc/self/cgroup names them.
 * `root` is put before the paths of /proc and /sys: "" except in tests. Any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Calls fn for the directory of each group that `controller` ("cpu", "memory") belongs to, and for
 * every level above it up to the mount point: the limits of all of them apply. In a container the
 * group's own directory is often missing and its limits are at the mount point.
 */
void cgroup_visit(const char *root, const char *controller,
                  void (*fn)(void *ctx, const char *dir, int version), void *ctx);

/* The tightest memory limit of the groups, each level up to the root; INT64_MAX without one. */
int64_t cgroup_memory_limit(const char *root);

/* Reads the first line of DIR/NAME, at most size - 1 bytes. Returns false if there is none. */
bool cgroup_read_line(const char *dir, const char *name, char *line, size_t size);
