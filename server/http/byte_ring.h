/* SPDX-License-Identifier: MIT */
/*
 * The byte ring between a text worker, which appends whole events, and the HTTP thread, which takes
 * as many bytes as the socket has room for. It starts at SRV_STREAM_FIRST_BYTES when first written
 * and doubles as needed. A write is refused if SRV_STREAM_MAX_BYTES are already waiting: then the
 * reader is too slow. One large event may exceed that limit, because no reader could have been
 * faster.
 *
 * Threads: unsafe; reply.c holds the request's lock around every call.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* A zeroed ring is empty. */
struct srv_ring {
    char *data;
    size_t cap;   /* a power of two, or 0 before the first write */
    size_t begin; /* of the waiting bytes; below cap */
    size_t len;   /* waiting bytes */
};

/* Frees what a ring holds; it may be used again. */
void srv_ring_finish(struct srv_ring *r);

/* Appends all of it, or nothing: false if too much is waiting, out of memory, or for an event
 * beyond SRV_STREAM_EVENT_MAX_BYTES. */
bool srv_ring_write(struct srv_ring *r, const char *data, size_t len);

/* Takes up to max bytes; returns how many. */
size_t srv_ring_read(struct srv_ring *r, char *buf, size_t max);
