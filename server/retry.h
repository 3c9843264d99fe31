/* SPDX-License-Identifier: MIT */
/*
 * When refused clients should come back. Requests leave at a measured rate; each refused client is
 * given the next moment at which a place will probably be free, so that they return one by one.
 *
 * Threads: safe (atomics only).
 */
#ifndef HEARTH_SERVER_RETRY_H
#define HEARTH_SERVER_RETRY_H

#include <stdatomic.h>
#include <stdint.h>

struct srv_retry {
    atomic_ullong interval_us;  /* between two requests that end, smoothed; 0: not known yet */
    atomic_ullong last_end_us;
    atomic_ullong next_slot_us; /* the last moment given away */
};

/* A request that took compute has ended. busy: others were still running or waiting. */
void srv_retry_note_end(struct srv_retry *r, uint64_t now_us, int busy);

/* Milliseconds from now to the moment given to this client; 1000..60000. */
int64_t srv_retry_next_ms(struct srv_retry *r, uint64_t now_us);

#endif
