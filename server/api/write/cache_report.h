/* SPDX-License-Identifier: MIT */
/* The numbers of the prefix cache in an answer. Threads: the text worker that holds the request. */
#ifndef HEARTH_SERVER_API_WRITE_CACHE_REPORT_H
#define HEARTH_SERVER_API_WRITE_CACHE_REPORT_H

#include "server/api/run/generation.h"

/* Prompt tokens that were computed up to the last breakpoint; *ret_hour: of these, up to the last
 * with a ttl of an hour. */
int64_t srv_cache_created(const struct srv_gen *g, int64_t n_cached, int64_t *ret_hour);

/* Writes the member cache_report if it was asked for. */
void srv_cache_write_report(const struct srv_gen *g, struct jw *w);

#endif
