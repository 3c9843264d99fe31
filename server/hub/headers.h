/* SPDX-License-Identifier: MIT */
/*
 * Header fields of the hub's answers that carry more than a text. Input from outside: anything that
 * is not exactly as expected is "not there". Pure; threads: safe.
 */
#ifndef HEARTH_SERVER_HUB_HEADERS_H
#define HEARTH_SERVER_HUB_HEADERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* Content-Range: exactly "bytes FROM-{size-1}/{size}". */
bool hub_range_is(const char *text, int64_t from, int64_t size);

/* Link (RFC 8288): the target whose relation is "next". 0, or -1 if there is none. */
int hub_link_next(const char *text, char *buf, size_t size);

/* Retry-After (RFC 9110): seconds from now, of a number or a date; -1 if there is none. */
int64_t hub_retry_after(const char *text, time_t now);

/* RateLimit, as the hub writes it: "api";r=0;t=55 is 55 s. -1 if something is left, or unknown. */
int64_t hub_rate_limit(const char *text);

#endif
