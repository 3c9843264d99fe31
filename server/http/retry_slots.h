/* SPDX-License-Identifier: MIT */
/*
 * The retry time of a refused request, and the queue slot reserved for it then.
 *
 * A refused request gets a retry time: its place in a virtual queue behind the real one, spaced by
 * the measured time between completions. With it goes a reservation, kept under a keyed hash of the
 * request (tenant, path, body); equal requests have one each. A request that comes back at its
 * retry time, or somewhat later, uses its reservation and may take any free slot of the queue. All
 * others must leave one queue slot free per reservation that is due or nearly due: newcomers cannot
 * overtake. Reservations never hold an engine slot, the engine counts them for at most three
 * quarters of the queue, and they expire, so clients that give up leave nothing idle.
 *
 * Threads: safe; one lock, held while the table is walked.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/bounds.h"

struct srv_reservation {
    uint64_t hash, owner;
    uint64_t due_us, expires_us;
};

struct srv_retry {
    pthread_mutex_t lock;
    uint64_t key[2];      /* of the hashes */
    uint64_t interval_us; /* time between completions, smoothed; 0: not known yet */
    uint64_t last_end_us;
    bool was_busy;    /* at last_end_us */
    uint64_t last_us; /* the latest retry time given, */
    uint64_t
        last_again_us; /* and the latest given to a request refused in spite of its reservation */
    int n_slots;       /* completions come in bursts of this many */
    int n_gaps;        /* completions averaged in interval_us, up to a limit */
    int n_reservations;
    struct srv_reservation reservations[SRV_RESERVATIONS_MAX];
};

/* A request's identity in this module. */
struct srv_returner {
    uint64_t hash, owner;
    bool has_reservation; /* it came back at its retry time */
};

/* The key makes hashes unpredictable. */
void srv_retry_init(struct srv_retry *r, const uint64_t key[2]);
void srv_retry_finish(struct srv_retry *r);

/* Identifies a request for the calls below. tenant: 32 bytes. */
struct srv_returner srv_retry_name(const struct srv_retry *r, const uint8_t *tenant,
                                   const char *path, const char *body, size_t len);

/* A request that took compute has ended. busy: others were waiting for a slot. */
void srv_retry_note_end(struct srv_retry *r, uint64_t now_us, bool busy);

/* Returns how many queue slots the request must leave free: 0 if it has a reservation, which is
 * then used up and noted in `who`. busy: others wait for one of the n_slots engine slots. */
int srv_retry_ask(struct srv_retry *r, struct srv_returner *who, uint64_t now_us, int n_slots,
                  bool busy);

/*
 * Returns the retry time of a refused request, in milliseconds from now, 1000..60000, and reserves
 * a queue slot for `who` then (NULL: none). A request refused in spite of its reservation gets an
 * early one.
 */
int64_t srv_retry_next_ms(struct srv_retry *r, const struct srv_returner *who, uint64_t now_us);
