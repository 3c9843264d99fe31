/* SPDX-License-Identifier: MIT */
/*
 * Which model is loaded next, and which one makes room for it.
 *
 * The next load is that of the entry whose oldest waiter came first. If its plan does not fit, the
 * doors of others are closed: their new requests wait for their next load, those that run go on.
 * Among the unpinned:
 *
 *   1. idle ones, the least recently used first, as few as suffice
 *   2. if that is not enough, the busy one whose last request came first
 *
 * None is chosen before its tenure is over: twice the time that its load took, at least two
 * seconds. An idle one may go earlier, once it has been idle for as long as its load took. So of
 * two models that never fit together, both wanted all the time, a third of the time is loading.
 * All that waited for a load are admitted at its end, hence no load is without service, and nobody
 * waits longer than, for each entry with older waiters and its own, a load, a tenure and the
 * longest request.
 *
 * An asker that leaves must not evict others: a door is closed for one who has waited for a moment,
 * and not for a key whose load was given up after that, until a tenure of that load is over. While
 * only such keys wait for an entry, those that came later have their turn.
 *
 * Pure: time and state are the caller's.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "server/models/fit.h"

enum {
    POLICY_TENURE_US = 2000000,
    POLICY_LOOK_US = 50000, /* until it is seen that an asker has left */
    POLICY_ENTRIES = 64,
    POLICY_KEYS = 64
};

/* Times are CLOCK_MONOTONIC. */
struct policy_entry {
    bool loaded, pinned;
    int64_t bytes;            /* of its plan */
    uint64_t waits_since_us;  /* when its oldest waiter came; 0: nobody waits, or it is loaded */
    uint64_t evicts_since_us; /* the same of keys that may evict */
    /* If it is loaded. */
    int n_refs;           /* requests that use it */
    uint64_t load_us;     /* the time that its load took */
    uint64_t loaded_us;   /* when that ended */
    uint64_t admitted_us; /* when a request last got it */
    uint64_t used_us;     /* when it was last given back */
};

struct policy_room {
    struct fit_room all;
    struct fit_sum draining; /* models behind closed doors */
};

enum policy_act {
    POLICY_WAIT,  /* nobody waits, or room has to become free first */
    POLICY_LOAD,  /* there is room */
    POLICY_CLOSE, /* the door of the entry; then ask again */
};

struct policy_step {
    enum policy_act act;
    int entry;     /* to load or to close */
    int on_behalf; /* the entry that is wanted, -1: none */
};

/* n: at most POLICY_ENTRIES. */
struct policy_step policy_next(const struct policy_entry *entries, int n,
                               const struct policy_room *room, uint64_t now_us);

/* Keys that may not evict now; zeros: none. Of more than POLICY_KEYS some are forgotten. */
struct policy_keys {
    struct {
        uint64_t key, until_us;
    } barred[POLICY_KEYS];
};

/* A load was given up after others had been evicted on behalf of the key; load_us: the time that it
 * takes. */
void policy_bar(struct policy_keys *keys, uint64_t key, uint64_t load_us, uint64_t now_us);
bool policy_may_evict(const struct policy_keys *keys, uint64_t key, uint64_t now_us);
