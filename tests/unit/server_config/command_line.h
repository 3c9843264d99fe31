/* SPDX-License-Identifier: MIT */
/* A configuration from a command line in one string and an environment of pairs. */
#pragma once

#include "server/config/config.h"
#include "test.h"

/* The environment of a test: pairs, ended by NULL. */
static const char *const *environment;

static inline const char *fake_env(const char *name)
{
    for (int i = 0; environment && environment[i]; i += 2) {
        if (strcmp(environment[i], name) == 0) return environment[i + 1];
    }
    return NULL;
}

enum { MAX_ARGS = 24 };

/* Loads from a command line with blanks between the words. */
static inline int load(struct srv_config *c, const char *line, char *err, size_t errlen)
{
    char text[2048] = "hearth ";
    char *argv[MAX_ARGS];
    int argc = 0;
    snprintf(text + 7, sizeof(text) - 7, "%s", line);
    for (char *p = text; *p && argc < MAX_ARGS;) {
        argv[argc++] = p;
        p += strcspn(p, " ");
        if (*p) *p++ = '\0';
    }
    return srv_config_load(c, argc, argv, fake_env, err, errlen);
}
