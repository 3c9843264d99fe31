/* SPDX-License-Identifier: MIT */
/*
 * The members cache_control of a Messages body: on system blocks, tools, blocks of content, blocks
 * inside results of tools, and on the body itself.
 *
 * Threads: pure.
 */
#ifndef HEARTH_SERVER_API_READ_CACHE_CONTROL_H
#define HEARTH_SERVER_API_READ_CACHE_CONTROL_H

#include <jansson.h>

#include "server/api/read/json_fields.h"

enum { CACHE_CONTROL_MAX = 4 }; /* breakpoints on blocks and tools, as in Anthropic's API */

/* Checks type and ttl of each, and their number, in Anthropic's words. 0, or -1 with err. */
int cache_control_check(const json_t *body, struct param_error *err);

#endif
