/* SPDX-License-Identifier: MIT */
/*
 * The text workers: a few threads with large stacks that run what requests ask for. Wakes of
 * requests under way come before new requests, and new requests never take the last worker, so a
 * long prompt being tokenized does not hold up running streams.
 *
 * New requests wait in two lines, by the size of their body: large ones never take all workers that
 * new requests may have, so a small request waits for other small ones only. Within a line keys
 * take turns, so one that sends many does not hold up the others; a request of many texts waits for
 * its next turn there (srv_request_yield).
 *
 * Threads: safe. A request is in at most one queue at a time (request.c and dispatch.c see to it).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct srv_work;

enum srv_work_class { SRV_WORK_WAKE, SRV_WORK_SMALL, SRV_WORK_LARGE, SRV_WORK_CLASSES };

/* An entry of the queues; embedded in the request. */
struct srv_work_item {
    struct srv_work_item *next;
    enum srv_work_class class; /* set before each push; wakes are not the first run of a request */
    uint64_t key;              /* of the tenant */
    uint64_t turn;             /* order in the queue */
    void (*run)(struct srv_work_item *item);
};

/* Starts the workers; with none, srv_work_run_next is all that runs items. Returns owned:
 * srv_work_destroy. */
int srv_work_create(struct srv_work **ret, int n_workers, char *err, size_t errlen);

/* Runs all queued items, then ends the threads. NULL is fine. */
void srv_work_destroy(struct srv_work *w);

/* Queues the item; some worker calls item->run(item) once. */
void srv_work_push(struct srv_work *w, struct srv_work_item *item);

/* Runs the next item that may begin on the calling thread; false if there is none. */
bool srv_work_run_next(struct srv_work *w);
