/* SPDX-License-Identifier: MIT */
/*
 * The models of a command that works without a server, local requests to them (http/local.h), and
 * the wait for their answers.
 *
 * Threads: the main thread; offline_wake: any.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "server/cli/core.h"
#include "server/config/config.h"
#include "server/http/local.h"

struct offline {
    struct srv_config config; /* strings are borrowed */
    struct srv_core core;
    pthread_mutex_t lock; /* guards woken */
    pthread_cond_t changed;
    bool is_open, woken;
};

/* Loads the models of the start. config: after srv_budget_settle. The log is set up, once for all.
 * Returns 0, or -1 with err. */
int offline_open(struct offline *o, const struct srv_config *config, char *err, size_t errlen);

/* After srv_local_end of every request. Ends the process where a disk does not answer. Zeroed is
 * fine. */
void offline_close(struct offline *o);

/* As srv_local.wake, with an offline. */
void offline_wake(void *o);

/* Waits until a request was woken since the last wait, or for so long. */
void offline_wait(struct offline *o, int ms);

struct offline_post {
    const char *url, *body;
    const atomic_bool *stop; /* looked at several times a second */
    /* A piece of the answer as it comes, from a request that has a status; false ends it. */
    bool (*take)(void *ctx, const struct srv_local *from, const char *data, size_t len);
    void *ctx;
};

/* Posts a body and hands over the answer, with ids and a seed of chance. Returns the status, 0 if
 * none came before the end, or -1 when out of memory. */
int offline_post(struct offline *o, const struct offline_post *p);
