/* SPDX-License-Identifier: MIT */
/*
 * Requests of a command to a server elsewhere, each by a thread and a connection.
 *
 * Threads: one owner; `wake` is called on others.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/buf.h"
#include "server/cli/client.h"

enum { REMOTE_MAX = 64 }; /* requests at once */

/* Zero-initialise but for the last two; client_address. */
struct remote {
    struct client_address address;
    struct transfer *idle[REMOTE_MAX]; /* with their connections; owned */
    int n_idle;
    atomic_bool stop;
    void (*wake)(void *ctx);
    void *ctx;
};
void remote_close(struct remote *r); /* after its requests */

struct remote_call {
    struct remote *remote; /* NULL: it does not run */
    struct transfer *transfer;
    pthread_t thread;
    const char *target, *body;
    size_t len;
    struct buf *answer;
    enum transfer_end end;
    atomic_bool ended;
};

/* Posts body[0..len) to a target such as "/v1/embeddings"; both and *answer, which takes the
 * answer's body, are borrowed until remote_end. 0, or -1: no memory or no thread. */
int remote_begin(struct remote *r, struct remote_call *c, const char *target, const char *body,
                 size_t len, struct buf *answer);

/* Waits for the end, after r->stop at once. c->transfer has the status, c->end: whether the answer
 * is whole; both until the next request. */
void remote_end(struct remote_call *c);
