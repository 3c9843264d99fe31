/* SPDX-License-Identifier: MIT */
/* A directory that holds fake trees of /proc and /sys for one test. */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "test.h"

static char fake_root[200];

/* Writes the file fake_root + path and makes the directories above it. */
static inline void fake_root_put(const char *path, const char *text)
{
    char full[600];
    snprintf(full, sizeof(full), "%s%s", fake_root, path);
    for (char *p = full + strlen(fake_root) + 1; *p; p++)
        if (*p == '/') {
            *p = '\0';
            mkdir(full, 0700);
            *p = '/';
        }
    FILE *f = fopen(full, "w");
    REQUIRE(f);
    fputs(text, f);
    fclose(f);
}

static inline int fake_root_make(void **state)
{
    (void)state;
    snprintf(fake_root, sizeof(fake_root), "/tmp/hearth-root-XXXXXX");
    return mkdtemp(fake_root) ? 0 : -1;
}

static inline int fake_root_remove(void **state)
{
    (void)state;
    char command[300];
    snprintf(command, sizeof(command), "rm -r %s", fake_root);
    return system(command) == 0 ? 0 : -1;
}
