/* SPDX-License-Identifier: MIT */
/*
 * Sampling defaults: neutral ones, those of a model's generation_config.json, and the options. The
 * loader reads them once; requests copy them.
 *
 * Threads: safe; no state.
 */
#ifndef HEARTH_SERVER_DEFAULTS_H
#define HEARTH_SERVER_DEFAULTS_H

#include <stddef.h>

#include "server/api.h"

struct srv_config;

/* Temperature 1 and nothing else switched on. */
struct srv_defaults srv_defaults_neutral(void);

/*
 * Replaces what DIR/generation_config.json says; a directory without the file changes nothing.
 * Returns 0, or -1 with a sentence in err for a file that cannot be read or a value out of range.
 */
int srv_defaults_read(struct srv_defaults *d, const char *dir, char *err, size_t errlen);

/* Replaces the values that options set; options that were not given change nothing. */
void srv_defaults_override(struct srv_defaults *d, const struct srv_config *c);

#endif
