/* SPDX-License-Identifier: MIT */
/* The rule of the watchdog; see watchdog.h. */
#include "server/watchdog.h"

bool srv_watchdog_look(struct srv_watchdog *d, uint64_t now_us, bool has_work, uint64_t n_steps,
                       uint64_t limit_us)
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
