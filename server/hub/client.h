/* SPDX-License-Identifier: MIT */
/*
 * Requests to the hub: redirects under its rules, the token to its own host alone, tries with waits
 * between them, and one sentence for whatever goes wrong; the fields of its answers' heads.
 *
 *   Redirects: at most 5; of API requests on the endpoint's own host only; https only, unless the
 *   endpoint itself is http.
 *   Tries: 5, after waits of 0.5, 1, 2 and 4 s (+- 20 %), or as Retry-After says up to 60 s. Tried
 *   again: failed connections, time limits, resets, early ends, 408, 429, 500, 502, 503, 504, and
 *   403 of a host that a signed link led to. A try that gets 64 KiB further than any before it
 *   begins the count anew.
 *
 * Threads: one client per thread.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "base/buf.h"
#include "server/hub/settings.h"
#include "server/hub/transfer.h"

struct hub_client {
    const struct hub_settings *settings; /* borrowed, as all pointers here */
    const struct hub_name *name;
    const atomic_bool *stop;
    /* Called before each wait: why the try failed, the number of the next try, the time until
     * then. */
    void (*on_retry)(void *ctx, const char *reason, int n_try, int wait_ms);
    void *ctx;
    bool brief;                /* one try of some seconds: there is something to go on with */
    struct transfer *transfer; /* the caller's */
};

struct hub_request {
    const char *url;
    const char *what; /* in messages: a path, or NULL: the hub's own answer */
    bool is_api;
    int64_t from; /* > 0: Range from this byte on */
    /* Called for an answer with status 2xx. Returning false ends the try with `refused`. */
    bool (*on_head)(void *ctx, struct transfer *t);
    bool (*on_body)(void *ctx, const char *data, size_t len);
    void *ctx;
};

/* The result of a try. */
struct hub_failure {
    int rc;                /* 0 or enum hub_error */
    bool again;            /* another try may succeed */
    bool refused;          /* ended by a callback; rc is then HUB_EINTERNAL */
    int status;            /* of the last answer, or 0 */
    int64_t retry_after_s; /* Retry-After of the hub, or -1 */
    char err[HUB_ERR_SIZE];
};

/* One try, redirects included. */
void hub_client_try(struct hub_client *c, const struct hub_request *r, struct hub_failure *ret);

struct hub_tries {
    int n;        /* tries since the count began */
    int64_t best; /* the furthest byte any try has reached */
};

/*
 * After a failed try that reached this byte: waits for the next one and returns 0, or returns what
 * the failure is, with its sentence in f->err.
 */
int hub_client_wait(struct hub_client *c, struct hub_tries *tries, int64_t reached,
                    struct hub_failure *f);

/*
 * GET into memory, with tries, of an API address below the endpoint ("/api/...") or of the file
 * `what`. body is emptied before each; one that is larger than its maximum is HUB_EWRONG. next: the
 * URL of the next page, or "" (NULL: not asked). 0 or an enum hub_error with a sentence.
 */
int hub_client_get(struct hub_client *c, const char *url, const char *what, struct buf *body,
                   char *next, size_t next_size, char *err);

/* endpoint + prefix + name + middle + revision (percent-encoded), for API addresses. */
int hub_client_url(const struct hub_client *c, char *buf, size_t size, const char *prefix,
                   const char *middle, const char *last, bool encode_slash);

/* ---- header fields --------------------------------------------------------------------------- */

/* Pure. Anything that is not exactly as expected is "not there". */

/* Content-Range: exactly "bytes FROM-{size-1}/{size}". */
bool hub_range_is(const char *text, int64_t from, int64_t size);

/* Link (RFC 8288): the target whose relation is "next". 0, or -1 if there is none. */
int hub_link_next(const char *text, char *buf, size_t size);

/* Retry-After (RFC 9110): seconds from now, of a number or a date; -1 if there is none. */
int64_t hub_retry_after(const char *text, time_t now);

/* RateLimit, as the hub writes it: "api";r=0;t=55 is 55 s. -1 if something is left, or unknown. */
int64_t hub_rate_limit(const char *text);
