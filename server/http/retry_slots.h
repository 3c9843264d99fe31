/* SPDX-License-Identifier: MIT */
/*
 * When refused clients should come back, and that they get in when they do.
 *
 * A refused request is told a moment: a virtual queue behind the real one, spaced by the measured
 * time between two ends. With the moment goes a promise, kept under a keyed hash of what the
 * request is (tenant, path, body); equal requests hold one each. Whoever comes back at the moment
 * or some time after it redeems the promise and may take any place that is there. Everybody else
 * must leave a place in the queue for each promise that is due or nearly so: newcomers cannot
 * overtake. Promises hold places in the queue and never slots, the engine counts at most three
 * quarters of the queue for them, and they expire: clients that gave up idle nothing.
 *
 * Threads: safe; one lock, held for one walk of the table.
 */
#ifndef HEARTH_SERVER_HTTP_RETRY_SLOTS_H
#define HEARTH_SERVER_HTTP_RETRY_SLOTS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/bounds.h"

struct srv_promise {
    uint64_t hash, owner;
    uint64_t due_us, expires_us;
};

struct srv_retry {
    pthread_mutex_t lock;
    uint64_t key[2];      /* of the hashes */
    uint64_t interval_us; /* between two requests that end, smoothed; 0: not known yet */
    uint64_t last_end_us;
    bool was_busy;          /* then */
    uint64_t last_us;       /* the last moment given away, */
    uint64_t last_again_us; /* and the last to a request whose promise could not be kept */
    int n_slots;            /* ends come in bursts of as many */
    int n_gaps;             /* that interval_us has seen, up to a limit */
    int n_promises;
    struct srv_promise promises[SRV_PROMISES_MAX];
};

/* One request in the eyes of this module. */
struct srv_returner {
    uint64_t hash, owner;
    bool redeems; /* it came back as it was told to */
};

/* The key makes hashes unpredictable. 0, or -1 without a lock. */
int srv_retry_init(struct srv_retry *r, const uint64_t key[2]);
void srv_retry_finish(struct srv_retry *r);

/* What a request is, for the calls below. tenant: 32 bytes. */
struct srv_returner srv_retry_name(const struct srv_retry *r, const uint8_t *tenant,
                                   const char *path, const char *body, size_t len);

/* A request that took compute has ended. busy: others were waiting for a slot. */
void srv_retry_note_end(struct srv_retry *r, uint64_t now_us, bool busy);

/*
 * A request asks for a place: how many it must leave free. 0 where it redeems a promise, which is
 * used up and noted in `who`. busy: others wait for one of the n_slots.
 */
int srv_retry_ask(struct srv_retry *r, struct srv_returner *who, uint64_t now_us, int n_slots,
                  bool busy);

/*
 * Milliseconds from now to the moment given to a refused client, 1000..60000, with a promise for
 * `who` (NULL: none). Where a promise could not be kept the next moment is near.
 */
int64_t srv_retry_next_ms(struct srv_retry *r, const struct srv_returner *who, uint64_t now_us);

#endif
