/* SPDX-License-Identifier: MIT */
/*
 * A request of this process: no socket, its body is in memory and its answer is read from there. It
 * goes through the same checks, routes and workers as any other.
 *
 * Its ids, its time of creation and the seed of answers whose body names none come from the caller:
 * the same request gives the same bytes whenever it is made.
 *
 * Threads: one owner; `wake` is called on any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf;
struct srv_request;
struct srv_server;

/* Zero-initialise; srv_local_begin; srv_local_take, as a rule until it is true; srv_local_end. */
struct srv_local {
    struct srv_request *req;
    /* There may be more of the answer. With locks held: it only notes that. */
    void (*wake)(void *ctx);
    void *ctx;
    const uint8_t *tenant; /* the digest of the key that it is made for; NULL: of none */
    bool spare;            /* its jobs are, see eng_job_params */
};

/* Posts body[0..len), which is copied, to a target such as "/v1/embeddings". digest: 32 bytes that
 * ids and seed are made of. Returns 0, or -1 when out of memory; then there is nothing to end. */
int srv_local_begin(struct srv_local *l, struct srv_server *server, const char *target,
                    const char *body, size_t len, const uint8_t *digest, int64_t created_s);

/* Appends what has come of the answer. Returns true if that is all; else `wake` will be called. */
bool srv_local_take(struct srv_local *l, struct buf *to);

/* Once something of the answer has come. */
int srv_local_status(const struct srv_local *l);
const char *srv_local_id(const struct srv_local *l);
const char *srv_local_header(const struct srv_local *l, const char *name); /* or NULL */

/* Lets go of the request; whole: its answer was taken to the end, else its work is given up. NULL
 * requests are fine. */
void srv_local_end(struct srv_local *l, bool whole);
