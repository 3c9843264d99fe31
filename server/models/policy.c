/* SPDX-License-Identifier: MIT */
#include "server/models/policy.h"

#include <assert.h>

enum { NONE = -1 };

/* The bytes that a load lacks: the excess of all that would be in memory. */
static struct fit_sum need_of(const struct policy_entry *entries, int n,
                              const struct policy_room *room, int entry)
{
    struct fit_sum sum = room->draining;
    fit_add(&sum, entries[entry].bytes);
    for (int i = 0; i < n; i++)
        if (entries[i].loaded) fit_add(&sum, entries[i].bytes);
    return fit_excess(&room->all, sum);
}

static void take(struct fit_sum *need, const struct policy_entry *e, int sign)
{
    need->bytes -= sign * e->bytes;
    need->n -= sign;
}

/* The need that is left once those that drain are gone. */
static struct fit_sum need_later(struct fit_sum now, const struct policy_room *room)
{
    return (struct fit_sum){now.bytes - room->draining.bytes, now.n - room->draining.n};
}

/* The entry whose oldest waiter came first, of those that may evict if it takes that. */
static int oldest_waiter(const struct policy_entry *entries, int n, const struct policy_room *room)
{
    int found = NONE;
    uint64_t first_us = UINT64_MAX;
    for (int i = 0; i < n; i++) {
        if (entries[i].loaded || !entries[i].waits_since_us) continue;
        struct fit_sum now = need_of(entries, n, room, i), later = need_later(now, room);
        uint64_t since_us =
            fit_is_met(later) ? entries[i].waits_since_us : entries[i].evicts_since_us;
        if (!since_us || since_us >= first_us) continue;
        found = i;
        first_us = since_us;
    }
    return found;
}

static uint64_t tenure_us(uint64_t load_us)
{
    return 2 * load_us > POLICY_TENURE_US ? 2 * load_us : POLICY_TENURE_US;
}

static bool may_go(const struct policy_entry *e, uint64_t now_us)
{
    bool rested = !e->n_refs && now_us >= e->used_us + e->load_us;
    return e->loaded && !e->pinned && (rested || now_us >= e->loaded_us + tenure_us(e->load_us));
}

/* Writes the idle entries that may go into `order`, the least recently used first. */
static int sort_idle(const struct policy_entry *entries, int n, uint64_t now_us,
                     int order[POLICY_ENTRIES])
{
    int n_idle = 0;
    for (int i = 0; i < n; i++) {
        int at = n_idle;
        if (entries[i].n_refs || !may_go(&entries[i], now_us)) continue;
        for (; at > 0 && entries[order[at - 1]].used_us > entries[i].used_us; at--)
            order[at] = order[at - 1];
        order[at] = i;
        n_idle++;
    }
    return n_idle;
}

/* The first of the fewest idle entries that make enough room, or NONE. */
static int idle_victim(const struct policy_entry *entries, int n, struct fit_sum need,
                       uint64_t now_us)
{
    int order[POLICY_ENTRIES], first = NONE, n_taken = 0;
    int n_idle = sort_idle(entries, n, now_us, order);
    while (n_taken < n_idle && !fit_is_met(need))
        take(&need, &entries[order[n_taken++]], 1);
    if (!fit_is_met(need)) return NONE;
    /* Those that are not needed after all stay, the most recently used first. */
    for (int i = n_taken - 1; i >= 0; i--) {
        take(&need, &entries[order[i]], -1);
        if (fit_is_met(need)) continue;
        take(&need, &entries[order[i]], 1);
        first = order[i];
    }
    return first;
}

static int busy_victim(const struct policy_entry *entries, int n, uint64_t now_us)
{
    int found = NONE;
    for (int i = 0; i < n; i++) {
        if (!entries[i].n_refs || !may_go(&entries[i], now_us)) continue;
        if (found == NONE || entries[i].admitted_us < entries[found].admitted_us) found = i;
    }
    return found;
}

struct policy_step policy_next(const struct policy_entry *entries, int n,
                               const struct policy_room *room, uint64_t now_us)
{
    assert(n <= POLICY_ENTRIES);
    int wanted = oldest_waiter(entries, n, room);
    struct policy_step step = {POLICY_WAIT, NONE, wanted};
    if (wanted == NONE) return step;
    struct fit_sum need = need_of(entries, n, room, wanted), after = need_later(need, room);
    if (fit_is_met(need)) {
        step.act = POLICY_LOAD;
        step.entry = wanted;
    } else if (!fit_is_met(after) && now_us >= entries[wanted].evicts_since_us + POLICY_LOOK_US) {
        step.entry = idle_victim(entries, n, after, now_us);
        if (step.entry == NONE) step.entry = busy_victim(entries, n, now_us);
        if (step.entry != NONE) step.act = POLICY_CLOSE;
    }
    return step;
}

void policy_bar(struct policy_keys *keys, uint64_t key, uint64_t load_us, uint64_t now_us)
{
    int at = 0;
    for (int i = 0; i < POLICY_KEYS && keys->barred[at].key != key; i++)
        if (keys->barred[i].key == key || keys->barred[i].until_us < keys->barred[at].until_us)
            at = i;
    keys->barred[at].key = key;
    keys->barred[at].until_us = now_us + tenure_us(load_us);
}

bool policy_may_evict(const struct policy_keys *keys, uint64_t key, uint64_t now_us)
{
    for (int i = 0; i < POLICY_KEYS; i++)
        if (keys->barred[i].key == key && now_us < keys->barred[i].until_us) return false;
    return true;
}
