/* SPDX-License-Identifier: MIT */
/* See model_policy.h. */
#include "server/model_policy.h"

#include <assert.h>

enum { NONE = -1 };

/* The bytes and places that a load lacks. */
struct need {
    int64_t bytes;
    int models;
};

static bool is_met(const struct need *need)
{
    return need->bytes <= 0 && need->models <= 0;
}

static void take(struct need *need, const struct policy_entry *e, int sign)
{
    need->bytes -= sign * e->bytes;
    need->models -= sign;
}

static struct need need_of(const struct policy_entry *entries, int n,
                           const struct policy_room *room, int entry)
{
    struct need need = {entries[entry].bytes + room->draining_bytes - room->limit_bytes,
                        room->max_models ? 1 + room->n_draining - room->max_models : 0};
    for (int i = 0; i < n; i++)
        if (entries[i].loaded) take(&need, &entries[i], -1);
    if (!room->max_models) need.models = 0; /* less with each that goes */
    return need;
}

static int oldest_waiter(const struct policy_entry *entries, int n)
{
    int found = NONE;
    for (int i = 0; i < n; i++) {
        if (entries[i].loaded || !entries[i].waits_since_us) continue;
        if (found == NONE || entries[i].waits_since_us < entries[found].waits_since_us) found = i;
    }
    return found;
}

static uint64_t tenure_us(const struct policy_entry *e)
{
    return 2 * e->load_us > POLICY_TENURE_US ? 2 * e->load_us : POLICY_TENURE_US;
}

static bool may_go(const struct policy_entry *e, uint64_t now_us)
{
    bool rested = !e->n_refs && now_us >= e->used_us + e->load_us;
    return e->loaded && !e->pinned && (rested || now_us >= e->loaded_us + tenure_us(e));
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
static int idle_victim(const struct policy_entry *entries, int n, struct need need, uint64_t now_us)
{
    int order[POLICY_ENTRIES], first = NONE, n_taken = 0;
    int n_idle = sort_idle(entries, n, now_us, order);
    while (n_taken < n_idle && !is_met(&need))
        take(&need, &entries[order[n_taken++]], 1);
    if (!is_met(&need)) return NONE;
    /* Those that are not needed after all stay, the most recently used first. */
    for (int i = n_taken - 1; i >= 0; i--) {
        take(&need, &entries[order[i]], -1);
        if (is_met(&need)) continue;
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
    int wanted = oldest_waiter(entries, n);
    struct policy_step step = {POLICY_WAIT, NONE, wanted};
    if (wanted == NONE) return step;
    struct need need = need_of(entries, n, room, wanted), after = need;
    after.bytes -= room->draining_bytes;
    after.models -= room->n_draining;
    if (is_met(&need)) {
        step.act = POLICY_LOAD;
        step.entry = wanted;
    } else if (!is_met(&after)) {
        step.entry = idle_victim(entries, n, after, now_us);
        if (step.entry == NONE) step.entry = busy_victim(entries, n, now_us);
        if (step.entry != NONE) step.act = POLICY_CLOSE;
    }
    return step;
}

bool policy_can_fit(const struct policy_entry *entries, int n, const struct policy_room *room,
                    int entry)
{
    int64_t bytes = entries[entry].bytes;
    int models = 1;
    for (int i = 0; i < n; i++) {
        if (i == entry || !entries[i].pinned) continue;
        bytes += entries[i].bytes;
        models++;
    }
    return bytes <= room->limit_bytes && (!room->max_models || models <= room->max_models);
}
