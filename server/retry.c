/* SPDX-License-Identifier: MIT */
/*
 * Moments for refused clients: a virtual queue behind the real one. Beyond the longest wait that
 * clients honour the moments are spread over its second half.
 */
#include "server/retry.h"

enum { MIN_MS = 1000, MAX_MS = 60000, FIRST_INTERVAL_US = 1000000, SMOOTHING = 8 };

void srv_retry_note_end(struct srv_retry *r, uint64_t now_us, int busy)
{
    uint64_t last = atomic_exchange(&r->last_end_us, now_us);
    if (!busy || !last || now_us <= last) return; /* a pause of the clients says nothing about us */
    uint64_t gap = now_us - last;
    uint64_t old = atomic_load(&r->interval_us);
    uint64_t smoothed = old ? old - old / SMOOTHING + gap / SMOOTHING : gap;
    atomic_store(&r->interval_us, smoothed ? smoothed : 1);
}

int64_t srv_retry_next_ms(struct srv_retry *r, uint64_t now_us)
{
    uint64_t interval = atomic_load(&r->interval_us);
    if (!interval) interval = FIRST_INTERVAL_US;
    unsigned long long slot = atomic_load(&r->next_slot_us), wanted;
    do {
        uint64_t from = slot > now_us ? slot : now_us;
        wanted = from + interval;
        if (wanted > now_us + MAX_MS * 1000ull) wanted = now_us + MAX_MS * 500ull;
    } while (!atomic_compare_exchange_weak(&r->next_slot_us, &slot, wanted));
    int64_t ms = (int64_t)((wanted - now_us + 999) / 1000);
    return ms < MIN_MS ? MIN_MS : ms > MAX_MS ? MAX_MS : ms;
}
