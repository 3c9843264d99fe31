/* SPDX-License-Identifier: MIT */
/*
 * A line of requests in the form of OpenAI's batches, up to its body, which the route's handler
 * reads:
 *
 *     {"custom_id", "method": "POST", "url": "/v1/...", "body": {...}}
 *
 * Threads: unsafe; one owner.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/sha256.h"

struct srv_route;

struct batch_line {
    const char *id, *body; /* parts of the line; NULL: not there, or of another type */
    size_t n_id, n_body, n_custom_id;
    uint8_t id_digest[SHA256_BYTES];
    char method[8], url[256]; /* "": the same, or longer */
};

/* Why a line cannot run. */
struct batch_refusal {
    const char *code; /* as "invalid_json_line"; NULL: it can */
    char message[400];
};

/*
 * Reads a line. routes: those of the server; ids: zero before the first line, the custom_ids of
 * those before. 0, also with a refusal, or -1 when out of memory.
 */
int batch_line_read(struct batch_line *ret, const char *text, size_t n,
                    const struct srv_route *const *routes, void **ids, struct batch_refusal *why);

/* Lets go of the ids. */
void batch_line_forget(void **ids);
