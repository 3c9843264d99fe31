/* SPDX-License-Identifier: MIT */
/*
 * The text workers: a few threads with large stacks that run what requests ask for. Two queues,
 * each first in first out: wakes of requests under way come before new requests, and new requests
 * never take the last worker, so a long prompt being tokenized does not hold up running streams.
 *
 * Threads: safe. A request is in at most one queue at a time (request.c sees to it).
 */
#ifndef HEARTH_SERVER_WORK_H
#define HEARTH_SERVER_WORK_H

#include <stdbool.h>
#include <stddef.h>

struct srv_work;

/* What the queues hold; embedded in the request. */
struct srv_work_item {
    struct srv_work_item *next;
    bool is_new;  /* the first run of a request: its handler */
    void (*run)(struct srv_work_item *item);
};

/* Starts the workers. Returns owned: srv_work_destroy. */
int srv_work_create(struct srv_work **ret, int n_workers, char *err, size_t errlen);

/* Runs what is queued, then ends the threads. NULL is fine. */
void srv_work_destroy(struct srv_work *w);

/* Queues the item; some worker calls item->run(item) once. */
void srv_work_push(struct srv_work *w, struct srv_work_item *item);

#endif
