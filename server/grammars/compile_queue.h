/* SPDX-License-Identifier: MIT */
/*
 * The compiling of grammars for requests, on a thread of its own: no text worker waits for it, and
 * what decodes keeps its pace.
 *
 * While an engine computes, the thread takes a quarter of a core: it measures its own processor
 * time and rests three times as long, in slices of a millisecond. It has the priority of any other
 * thread, so on a busy machine it does get its quarter. Otherwise it does not rest.
 *
 * One grammar is compiled at a time. Tenants (API keys) take turns, so one that sends many does not
 * hold up the others. A compilation is stopped, within a millisecond of its processor time, once
 * nobody waits for its grammar any longer; one that several wait for is found in the cache by the
 * others.
 *
 * Threads: any. No lock is held while compiling.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/grammars/cache.h"

struct compile_queue;

enum compile_end {
    COMPILE_DONE, /* result is set */
    COMPILE_LEFT, /* compile_leave, or the queue was closed */
    COMPILE_LATE, /* the deadline has passed */
};

/* One who waits for a grammar. The caller keeps it, and what the source borrows, unchanged from
 * compile_ask until `done` is called. */
struct compile_wait {
    struct grammar_cache *cache;
    struct grammar_source source;
    uint64_t tenant;
    uint64_t deadline_us;                 /* CLOCK_MONOTONIC; 0: none */
    void (*done)(struct compile_wait *w); /* once, on any thread, without a lock */

    enum compile_end end;
    struct grammar_result result; /* owned by the caller from `done` on */

    struct compile_wait *next; /* the queue's own */
    uint64_t turn;
    bool left;
};

/* busy: whether an engine computes; called on the compile thread, without a lock. *ret is owned:
 * compile_queue_destroy. Returns 0, or -1 with err. */
int compile_queue_create(struct compile_queue **ret, bool (*busy)(void *ctx), void *ctx, char *err,
                         size_t errlen);
/* After the last `done`. NULL is fine. */
void compile_queue_destroy(struct compile_queue *q);

/* Asks for a grammar that the cache does not have. `done` may be called before this returns. */
void compile_ask(struct compile_queue *q, struct compile_wait *w);

/* Ends a wait, or all for grammars of a cache (either may be NULL): `done` is called, here or soon.
 * Before compile_ask and after `done` nothing happens. */
void compile_leave(struct compile_queue *q, const struct compile_wait *w,
                   const struct grammar_cache *cache);

/* Ends all waits, those to come too. */
void compile_queue_close(struct compile_queue *q);

/* Returns the number of those who wait. */
int compile_queue_length(struct compile_queue *q);
