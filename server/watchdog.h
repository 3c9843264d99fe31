/* SPDX-License-Identifier: MIT */
/*
 * Tells whether the engine is alive. It is stalled if work has waited for the whole limit without a
 * step ending. Idle time does not count, and load alone never stalls it. Pure; one thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct srv_watchdog {
    uint64_t n_steps;  /* at the last check */
    uint64_t since_us; /* start of the time with work and without a step; 0: no work */
};

/* Checks; returns true while stalled. limit_us 0: never. */
static inline bool srv_watchdog_look(struct srv_watchdog *d, uint64_t now_us, bool has_work,
                                     uint64_t n_steps, uint64_t limit_us)
{
    if (!has_work) {
        d->since_us = 0;
        return false;
    }
    if (d->since_us == 0 || n_steps != d->n_steps) {
        d->since_us = now_us;
        d->n_steps = n_steps;
    }
    return limit_us && now_us - d->since_us >= limit_us;
}
