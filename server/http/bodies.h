/* SPDX-License-Identifier: MIT */
/*
 * The memory of all request bodies, counted as they arrive, in two parts: one for all bodies, and
 * one for those of up to SRV_SMALL_BODY_BYTES that find no room in the first. With several API keys
 * a key holds at most half of each part, so that none can lock out the others.
 *
 * Threads: safe; one lock, held for a walk of the bodies at most.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum srv_bodies_part { SRV_BODIES_ALL, SRV_BODIES_SMALL, SRV_BODIES_PARTS };

/* A body's bytes, a member of its request; zeros before the first. */
struct srv_body_charge {
    uint64_t key; /* of the tenant */
    bool large;   /* announced as larger than SRV_SMALL_BODY_BYTES */
    /* private */
    size_t bytes;
    enum srv_bodies_part part;
    struct srv_body_charge *next, **link; /* in the list, while bytes > 0 */
};

struct srv_bodies {
    pthread_mutex_t lock;
    int64_t held[SRV_BODIES_PARTS], most[SRV_BODIES_PARTS];
    struct srv_body_charge *first;
};

/* max_body_bytes: of the largest body. */
void srv_bodies_init(struct srv_bodies *b, int64_t max_body_bytes);
void srv_bodies_finish(struct srv_bodies *b);

/* Charges n > 0 bytes more. Returns false if the part is full; then nothing of the body is charged
 * any longer. */
bool srv_bodies_add(struct srv_bodies *b, struct srv_body_charge *body, size_t n,
                    bool several_keys);
/* Gives all bytes of the body back. */
void srv_bodies_drop(struct srv_bodies *b, struct srv_body_charge *body);
