/* SPDX-License-Identifier: MIT */
/*
 * Retry times and reservations of refused requests; see retry_slots.h. Retry times beyond the
 * longest wait that clients honour are spread over its second half.
 */
#include "server/http/retry_slots.h"

#include <assert.h>
#include <string.h>

#include "base/auto.h"
#include "base/sha256.h"

enum {
    MIN_MS = 1000,
    MAX_MS = 60000,
    FIRST_INTERVAL_US = 1000000,
    SMOOTHING = 16,     /* completions averaged; they come in bursts of one per slot */
    SPACING_PARTS = 16, /* retry times are spaced wider than completions by one part in this many */
    EARLY_US = 100000,  /* tolerance for inexact clocks and sleeps */
    GRACE_US = 2000000, /* plus a quarter of the wait, for clients that wait longer */
    TENANT_BYTES = 32,
    NEAR_BURSTS = 2, /* of completions: a reservation due within them holds its slot */
};

void srv_retry_init(struct srv_retry *r, const uint64_t key[2])
{
    memset(r, 0, sizeof(*r));
    memcpy(r->key, key, sizeof(r->key));
    pthread_mutex_init(&r->lock, NULL);
}

void srv_retry_finish(struct srv_retry *r)
{
    pthread_mutex_destroy(&r->lock);
}

struct srv_returner srv_retry_name(const struct srv_retry *r, const uint8_t *tenant,
                                   const char *path, const char *body, size_t len)
{
    struct srv_returner who = {.owner = sha256_64(r->key, tenant, TENANT_BYTES)};
    uint64_t key[2] = {r->key[0], r->key[1] ^ who.owner};
    key[1] ^= sha256_64(key, path, strlen(path));
    who.hash = sha256_64(key, body, len);
    return who;
}

void srv_retry_note_end(struct srv_retry *r, uint64_t now_us, bool busy)
{
    HOLD(&r->lock);
    uint64_t last = r->last_end_us;
    r->last_end_us = now_us;
    /* The time between completions is the server's speed only if work was waiting. */
    bool was_busy = r->was_busy;
    r->was_busy = busy;
    if (busy && was_busy && now_us >= last) {
        double gap = (double)(now_us - last), old = (double)r->interval_us;
        if (r->n_gaps < SMOOTHING) r->n_gaps++;
        double smoothed = old + (gap - old) / r->n_gaps;
        r->interval_us = smoothed > 1 ? (uint64_t)smoothed : 1;
    }
}

/* Time between completions as measured; longer if none has come for longer than that. */
static uint64_t interval(const struct srv_retry *r, uint64_t now_us)
{
    uint64_t measured = r->interval_us ? r->interval_us : FIRST_INTERVAL_US;
    uint64_t open_us = r->was_busy && now_us > r->last_end_us ? now_us - r->last_end_us : 0;
    uint64_t at_least = r->n_slots > 0 ? open_us / (uint64_t)r->n_slots : 0;
    return at_least > measured ? at_least : measured;
}

static void drop(struct srv_retry *r, int i)
{
    assert(i >= 0 && i < r->n_reservations);
    r->reservations[i] = r->reservations[--r->n_reservations];
}

int srv_retry_ask(struct srv_retry *r, struct srv_returner *who, uint64_t now_us, int n_slots,
                  bool busy)
{
    pthread_mutex_lock(&r->lock);
    r->n_slots = n_slots;
    r->was_busy &= busy;
    uint64_t near_us = now_us + EARLY_US + interval(r, now_us) * (uint64_t)n_slots * NEAR_BURSTS;
    int n_near = 0, own = -1;
    for (int i = r->n_reservations; i-- > 0;) {
        const struct srv_reservation *p = &r->reservations[i];
        if (p->expires_us < now_us) {
            drop(r, i); /* its place is taken by one that was already visited */
            if (own == r->n_reservations) own = i;
            continue;
        }
        if (p->due_us <= near_us) n_near++;
        bool has_reservation = p->hash == who->hash && p->due_us <= now_us + EARLY_US;
        if (has_reservation && (own < 0 || p->expires_us < r->reservations[own].expires_us))
            own = i;
    }
    assert(n_near <= r->n_reservations && own < r->n_reservations);
    who->has_reservation = own >= 0;
    if (who->has_reservation) drop(r, own);
    pthread_mutex_unlock(&r->lock);
    return who->has_reservation ? 0 : n_near;
}

static void reserve(struct srv_retry *r, const struct srv_returner *who, uint64_t now_us,
                    uint64_t wait_us)
{
    int n_own = 0;
    for (int i = 0; i < r->n_reservations; i++)
        n_own += r->reservations[i].owner == who->owner;
    if (r->n_reservations >= SRV_RESERVATIONS_MAX || n_own >= SRV_RESERVATIONS_OF_KEY_MAX) return;
    r->reservations[r->n_reservations++] = (struct srv_reservation){
        .hash = who->hash,
        .owner = who->owner,
        .due_us = now_us + wait_us,
        .expires_us = now_us + wait_us + GRACE_US + wait_us / 4,
    };
}

/* The retry time after `last`, or the first possible one. */
static uint64_t next_time(uint64_t last_us, uint64_t now_us, uint64_t spacing_us)
{
    uint64_t time = (last_us > now_us ? last_us : now_us) + spacing_us;
    uint64_t first = now_us + MIN_MS * 1000ull;
    if (time > now_us + MAX_MS * 1000ull) return now_us + MAX_MS * 500ull;
    return time < first ? first : time;
}

int64_t srv_retry_next_ms(struct srv_retry *r, const struct srv_returner *who, uint64_t now_us)
{
    HOLD(&r->lock);
    uint64_t spacing_us = interval(r, now_us) + interval(r, now_us) / SPACING_PARTS;
    bool again = who && who->has_reservation;
    uint64_t *last = again ? &r->last_again_us : &r->last_us;
    /* Requests refused in spite of a reservation have a virtual queue of their own, before the
     * others. */
    uint64_t behind = !again && r->last_again_us > *last ? r->last_again_us : *last;
    *last = next_time(behind, now_us, spacing_us);
    assert(*last > now_us);
    int64_t ms = (int64_t)((*last - now_us + 999) / 1000);
    if (ms > MAX_MS) ms = MAX_MS;
    if (who) reserve(r, who, now_us, (uint64_t)ms * 1000);
    return ms;
}
