/* SPDX-License-Identifier: MIT */
/*
 * Who loads and who makes room: single decisions in a table, and random schedules of a simulated
 * server, each of which must keep every law.
 */
#include "test.h"

#include "server/models/policy.h"

enum { SECOND = 1000000, N_SCHEDULES = 10000, MAX_ENTRIES = 6, MAX_REQUESTS = 40, N_KEYS = 3 };

/* ---- single decisions ---------------------------------------------------------------------- */

#define IDLE(bytes_, used)                                                                         \
    {                                                                                              \
        .loaded = true, .bytes = bytes_, .used_us = (used)*SECOND, .load_us = SECOND               \
    }
#define BUSY(bytes_, admitted, loaded_)                                                            \
    {                                                                                              \
        .loaded = true, .bytes = bytes_, .n_refs = 1, .admitted_us = (admitted)*SECOND,            \
        .loaded_us = (loaded_)*SECOND, .load_us = SECOND                                           \
    }
#define WANTED(bytes_, since) WANTED_BY(bytes_, since, since)
/* may_since: when the oldest waiter came that may evict; 0: none. */
#define WANTED_BY(bytes_, since, may_since)                                                        \
    {                                                                                              \
        .bytes = bytes_, .waits_since_us = (since)*SECOND, .evicts_since_us = (may_since)*SECOND   \
    }

static const struct decision {
    const char *what;
    struct policy_entry entries[4];
    struct policy_room room;
    struct policy_step want; /* at 100 s */
} decisions[] = {
    {"nobody waits", {IDLE(5, 1)}, {{10, 0}, {0, 0}}, {POLICY_WAIT, -1, -1}},
    {"there is room", {IDLE(5, 1), WANTED(5, 90)}, {{10, 0}, {0, 0}}, {POLICY_LOAD, 1, 1}},
    {"the oldest waiter first",
     {WANTED(1, 95), WANTED(1, 94), WANTED(1, 96)},
     {{9, 0}, {0, 0}},
     {POLICY_LOAD, 1, 1}},
    {"the oldest waiter is not overtaken by one that fits",
     {WANTED(9, 90), WANTED(1, 91), BUSY(5, 99, 99)},
     {{10, 0}, {0, 0}},
     {POLICY_WAIT, -1, 0}},
    {"the least recently used goes",
     {IDLE(5, 2), IDLE(5, 1), WANTED(5, 90)},
     {{10, 0}, {0, 0}},
     {POLICY_CLOSE, 1, 2}},
    {"the one that is enough goes, not the older one too",
     {IDLE(1, 1), IDLE(5, 2), WANTED(5, 90)},
     {{6, 0}, {0, 0}},
     {POLICY_CLOSE, 1, 2}},
    {"two are needed",
     {IDLE(3, 2), IDLE(3, 1), WANTED(6, 90)},
     {{6, 0}, {0, 0}},
     {POLICY_CLOSE, 1, 2}},
    {"what drains is enough", {IDLE(5, 1), WANTED(5, 90)}, {{10, 0}, {5, 1}}, {POLICY_WAIT, -1, 1}},
    {"an idle one before a busy one",
     {BUSY(5, 1, 1), IDLE(5, 50), WANTED(5, 90)},
     {{10, 0}, {0, 0}},
     {POLICY_CLOSE, 1, 2}},
    {"the busy one whose last request is the oldest",
     {BUSY(5, 60, 1), BUSY(5, 50, 2), WANTED(5, 90)},
     {{10, 0}, {0, 0}},
     {POLICY_CLOSE, 1, 2}},
    {"the idle one stays if it is not enough and no busy one may go",
     {IDLE(2, 1), BUSY(8, 99, 99), WANTED(8, 90)},
     {{10, 0}, {0, 0}},
     {POLICY_WAIT, -1, 2}},
    {"within its tenure", {BUSY(5, 1, 98), WANTED(6, 90)}, {{10, 0}, {0, 0}}, {POLICY_CLOSE, 0, 1}},
    {"a moment earlier", {BUSY(5, 1, 98.5), WANTED(6, 90)}, {{10, 0}, {0, 0}}, {POLICY_WAIT, -1, 1}},
    {"idle for a moment only",
     {{.loaded = true,
       .bytes = 5,
       .load_us = SECOND,
       .loaded_us = 99 * SECOND,
       .used_us = 99.5 * SECOND},
      WANTED(6, 90)},
     {{10, 0}, {0, 0}},
     {POLICY_WAIT, -1, 1}},
    {"idle for long enough",
     {{.loaded = true,
       .bytes = 5,
       .load_us = SECOND,
       .loaded_us = 98.5 * SECOND,
       .used_us = 99 * SECOND},
      WANTED(6, 90)},
     {{10, 0}, {0, 0}},
     {POLICY_CLOSE, 0, 1}},
    {"pinned",
     {{.loaded = true, .pinned = true, .bytes = 5}, WANTED(6, 90)},
     {{10, 0}, {0, 0}},
     {POLICY_WAIT, -1, 1}},
    {"one who has just come may leave again",
     {IDLE(5, 1), WANTED(6, 99.96)},
     {{10, 0}, {0, 0}},
     {POLICY_WAIT, -1, 1}},
    {"one who is still there",
     {IDLE(5, 1), WANTED(6, 99.95)},
     {{10, 0}, {0, 0}},
     {POLICY_CLOSE, 0, 1}},
    {"room needs no look", {IDLE(5, 1), WANTED(5, 99.99)}, {{10, 0}, {0, 0}}, {POLICY_LOAD, 1, 1}},
    {"a key that may not evict",
     {IDLE(5, 1), WANTED_BY(6, 90, 0)},
     {{10, 0}, {0, 0}},
     {POLICY_WAIT, -1, -1}},
    {"it may load where there is room",
     {IDLE(5, 1), WANTED_BY(5, 90, 0)},
     {{10, 0}, {0, 0}},
     {POLICY_LOAD, 1, 1}},
    {"it may wait for those that drain",
     {IDLE(5, 1), WANTED_BY(5, 90, 0)},
     {{10, 0}, {5, 1}},
     {POLICY_WAIT, -1, 1}},
    {"another key waits for the same entry",
     {IDLE(5, 1), WANTED_BY(6, 90, 99)},
     {{10, 0}, {0, 0}},
     {POLICY_CLOSE, 0, 1}},
    {"others do not wait for it",
     {IDLE(5, 1), WANTED_BY(6, 90, 0), WANTED(7, 91)},
     {{10, 0}, {0, 0}},
     {POLICY_CLOSE, 0, 2}},
    {"nor one with room",
     {IDLE(5, 1), WANTED_BY(6, 90, 0), WANTED(5, 91)},
     {{10, 0}, {0, 0}},
     {POLICY_LOAD, 2, 2}},
    {"no more models",
     {IDLE(1, 2), IDLE(1, 1), WANTED(1, 90)},
     {{10, 2}, {0, 0}},
     {POLICY_CLOSE, 1, 2}},
    {"one that drains counts", {IDLE(1, 1), WANTED(1, 90)}, {{10, 2}, {1, 1}}, {POLICY_WAIT, -1, 1}},
    {"enough models", {IDLE(1, 1), WANTED(1, 90)}, {{10, 2}, {0, 0}}, {POLICY_LOAD, 1, 1}},
};

static void single_decisions(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(decisions) / sizeof(decisions[0]); i++) {
        const struct decision *d = &decisions[i];
        struct policy_step got = policy_next(d->entries, 4, &d->room, 100 * SECOND);
        REQUIRE_MSG(got.act == d->want.act && got.entry == d->want.entry &&
                        got.on_behalf == d->want.on_behalf,
                    "%s: act %d, entry %d, on behalf of %d", d->what, got.act, got.entry,
                    got.on_behalf);
    }
}

/* For twice the time of the load, and at least two seconds. */
static void barred_keys(void **state)
{
    (void)state;
    struct policy_keys keys = {0};
    const uint64_t now = 100 * SECOND;
    REQUIRE(policy_may_evict(&keys, 0, now) && policy_may_evict(&keys, 7, now));
    policy_bar(&keys, 7, SECOND / 2, now);
    policy_bar(&keys, 0, 3 * SECOND, now);
    REQUIRE(!policy_may_evict(&keys, 7, now + 2 * SECOND - 1));
    REQUIRE(policy_may_evict(&keys, 7, now + 2 * SECOND) && policy_may_evict(&keys, 8, now));
    REQUIRE(!policy_may_evict(&keys, 0, now + 6 * SECOND - 1));
    REQUIRE(policy_may_evict(&keys, 0, now + 6 * SECOND));
    policy_bar(&keys, 7, SECOND, now + SECOND); /* again: from then on */
    REQUIRE(!policy_may_evict(&keys, 7, now + 3 * SECOND - 1));
    REQUIRE(policy_may_evict(&keys, 7, now + 3 * SECOND));
    /* Of too many those whose time is over first are forgotten. */
    for (uint64_t key = 100; key < 100 + POLICY_KEYS - 1; key++)
        policy_bar(&keys, key, 4 * SECOND, now);
    REQUIRE(!policy_may_evict(&keys, 0, now) && policy_may_evict(&keys, 7, now));
}

/* ---- random schedules ---------------------------------------------------------------------- */

static uint64_t seed;

static uint64_t draw(uint64_t below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (seed >> 33) % below;
}

enum request_state { COMING, WAITING, RUNNING, DONE, LEFT, REFUSED };

struct request {
    enum request_state state;
    int entry, key;
    uint64_t comes_us, leaves_us /* 0: never */, runs_us, ends_us;
    int n_ahead;  /* entries with older waiters when it came */
    int load;     /* the number of the load whose instance it runs on */
    bool drained; /* it runs on an instance whose door is closed */
};

/* A server without threads. */
struct world {
    struct policy_entry entries[MAX_ENTRIES];
    struct request requests[MAX_REQUESTS];
    struct policy_room room;    /* `draining` is counted anew */
    int n, n_requests, loading; /* -1: none */
    uint64_t now_us, load_ends_us, longest_us, longest_load_us;
    bool load_fails;
    int n_admitted[MAX_ENTRIES]; /* by the load of the live instance */
    int n_served[MAX_ENTRIES];   /* of these: ended */
    int load_of[MAX_ENTRIES];    /* the number of the load of the live instance */
    int n_loads, n_evictions, n_given_up;
    struct policy_keys keys;
    bool has_evicted[MAX_ENTRIES]; /* for the load that is wanted, on behalf of a key */
    int evictor[MAX_ENTRIES];
    uint64_t bars_until_us[N_KEYS]; /* what `keys` has to say */
};

static void make_world(struct world *w)
{
    *w = (struct world){.n = 2 + (int)draw(MAX_ENTRIES - 1), .loading = -1, .now_us = SECOND};
    int64_t pinned = 0, largest = 0;
    for (int i = 0; i < w->n; i++) {
        struct policy_entry *e = &w->entries[i];
        e->bytes = 1 + (int64_t)draw(100);
        e->load_us = 10000 + draw(3 * SECOND);
        e->pinned = draw(6) == 0;
        if (e->pinned) pinned += e->bytes;
        if (!e->pinned && e->bytes > largest) largest = e->bytes;
        if (e->load_us > w->longest_load_us) w->longest_load_us = e->load_us;
    }
    w->room.all.limit_bytes = pinned + largest + (int64_t)draw(80);
    if (draw(4) == 0) w->room.all.max_models = w->n;
    w->n_requests = 2 + (int)draw(MAX_REQUESTS - 2);
    uint64_t span = 1 + draw(20 * SECOND);
    for (int i = 0; i < w->n_requests; i++) {
        struct request *r = &w->requests[i];
        r->entry = (int)draw((uint64_t)w->n);
        r->comes_us = SECOND + draw(span);
        r->runs_us = 1000 + draw(draw(4) ? SECOND / 2 : 5 * SECOND);
        r->key = (int)draw(N_KEYS);
        /* The first key's often leave before their load has ended. */
        if (draw(r->key ? 6 : 2) == 0)
            r->leaves_us = r->comes_us + draw(r->key ? 6 * SECOND : w->entries[r->entry].load_us);
        if (r->runs_us > w->longest_us) w->longest_us = r->runs_us;
    }
}

/* The oldest waiter of an entry that may evict, or NULL. */
static const struct request *find_evictor(const struct world *w, int entry)
{
    const struct request *found = NULL;
    for (const struct request *r = w->requests; r < w->requests + w->n_requests; r++)
        if (r->state == WAITING && r->entry == entry && (!found || r->comes_us < found->comes_us) &&
            policy_may_evict(&w->keys, (uint64_t)r->key, w->now_us))
            found = r;
    return found;
}

static uint64_t tenure(const struct policy_entry *e)
{
    return 2 * e->load_us > POLICY_TENURE_US ? 2 * e->load_us : POLICY_TENURE_US;
}

/* Whether no request before it runs on its instance. */
static bool is_first_of_load(const struct world *w, const struct request *r)
{
    for (const struct request *o = w->requests; o < r; o++)
        if (o->state == RUNNING && o->load == r->load) return false;
    return true;
}

/* The entries as waiters and running requests leave them. */
static void look(struct world *w)
{
    int64_t in_memory = 0;
    int drains[MAX_ENTRIES] = {0};
    w->room.draining = (struct fit_sum){0};
    for (int i = 0; i < w->n; i++) {
        const struct request *evictor = find_evictor(w, i);
        w->entries[i].waits_since_us = 0;
        w->entries[i].evicts_since_us = evictor ? evictor->comes_us : 0;
        w->entries[i].n_refs = 0;
    }
    for (int i = 0; i < w->n_requests; i++) {
        struct request *r = &w->requests[i];
        struct policy_entry *e = &w->entries[r->entry];
        if (r->state == RUNNING && !r->drained) e->n_refs++;
        if (r->state == RUNNING && r->drained && is_first_of_load(w, r)) drains[r->entry]++;
        if (r->state == WAITING && (!e->waits_since_us || r->comes_us < e->waits_since_us))
            e->waits_since_us = r->comes_us;
    }
    int n_live = w->loading >= 0;
    for (int i = 0; i < w->n; i++) {
        w->room.draining.bytes += drains[i] * w->entries[i].bytes;
        w->room.draining.n += drains[i];
        n_live += drains[i] + w->entries[i].loaded;
        in_memory += (drains[i] + (w->entries[i].loaded || w->loading == i)) * w->entries[i].bytes;
    }
    REQUIRE(in_memory <= w->room.all.limit_bytes);
    REQUIRE(!w->room.all.max_models || n_live <= w->room.all.max_models);
}

static void admit(struct world *w, struct request *r)
{
    struct policy_entry *e = &w->entries[r->entry];
    r->state = RUNNING;
    r->load = w->load_of[r->entry];
    r->ends_us = w->now_us + r->runs_us;
    e->admitted_us = w->now_us;
}

/* The last one who waited for an entry has left. */
static void give_up(struct world *w, int entry)
{
    if (w->loading == entry) w->loading = -1;
    if (!w->has_evicted[entry]) return;
    int key = w->evictor[entry];
    policy_bar(&w->keys, (uint64_t)key, w->entries[entry].load_us, w->now_us);
    w->bars_until_us[key] = w->now_us + tenure(&w->entries[entry]);
    w->has_evicted[entry] = false;
    w->n_given_up++;
}

static void end_load(struct world *w)
{
    struct policy_entry *e = &w->entries[w->loading];
    w->has_evicted[w->loading] = false;
    w->n_admitted[w->loading] = w->n_served[w->loading] = 0;
    for (int i = 0; i < w->n_requests; i++) {
        struct request *r = &w->requests[i];
        if (r->state != WAITING || r->entry != w->loading) continue;
        if (w->load_fails) {
            r->state = REFUSED;
            continue;
        }
        uint64_t bound = (uint64_t)(r->n_ahead + 1) *
                         (w->longest_load_us + w->longest_us + 2 * w->longest_load_us +
                          POLICY_TENURE_US + POLICY_LOOK_US + SECOND / 10);
        bool was_barred = w->bars_until_us[r->key] > r->comes_us;
        REQUIRE_MSG(was_barred || w->now_us - r->comes_us <= bound, "waited %llu us, bound %llu",
                    (unsigned long long)(w->now_us - r->comes_us), (unsigned long long)bound);
        admit(w, r);
        w->n_admitted[w->loading]++;
    }
    e->loaded = !w->load_fails;
    e->loaded_us = e->used_us = w->now_us;
    w->loading = -1;
}

static void close_door(struct world *w, int entry, int on_behalf)
{
    struct policy_entry *e = &w->entries[entry];
    const struct request *evictor = find_evictor(w, on_behalf);
    REQUIRE(e->loaded && !e->pinned);
    /* For somebody who is still there, and not soon again for one who left. */
    REQUIRE(evictor && w->now_us >= evictor->comes_us + POLICY_LOOK_US);
    REQUIRE(w->now_us >= w->bars_until_us[evictor->key]);
    w->has_evicted[on_behalf] = true;
    w->evictor[on_behalf] = evictor->key;
    /* No load without service: all that waited have been admitted, and the instance has had its
     * tenure, or rested since they ended. */
    bool tenured = w->now_us - e->loaded_us >= tenure(e);
    bool rested = !e->n_refs && w->now_us - e->used_us >= e->load_us;
    REQUIRE(tenured || rested);
    REQUIRE(!rested || e->n_refs || w->n_served[entry] >= w->n_admitted[entry]);
    REQUIRE(!e->waits_since_us);
    for (int i = 0; i < w->n_requests; i++)
        if (w->requests[i].entry == entry && w->requests[i].state == RUNNING)
            w->requests[i].drained = true;
    e->loaded = false;
    w->n_evictions++;
}

static void decide(struct world *w)
{
    struct policy_step step = {POLICY_WAIT, -1, -1};
    do {
        look(w);
        if (w->loading >= 0) return;
        step = policy_next(w->entries, w->n, &w->room, w->now_us);
        if (step.act == POLICY_CLOSE) close_door(w, step.entry, step.on_behalf);
    } while (step.act == POLICY_CLOSE);
    if (step.act != POLICY_LOAD) return;
    struct policy_entry *e = &w->entries[step.entry];
    REQUIRE(!e->loaded && e->waits_since_us && step.entry == step.on_behalf);
    for (int i = 0; i < w->n; i++) /* the first of those that may */
        REQUIRE(!w->entries[i].evicts_since_us ||
                w->entries[i].evicts_since_us >= e->waits_since_us);
    w->loading = step.entry;
    w->load_ends_us = w->now_us + e->load_us;
    w->load_fails = draw(12) == 0;
    w->load_of[step.entry] = ++w->n_loads;
    look(w);
}

static void come(struct world *w, struct request *r)
{
    struct policy_entry *e = &w->entries[r->entry];
    if (e->loaded) {
        admit(w, r);
        return;
    }
    r->state = WAITING;
    for (int i = 0; i < w->n; i++)
        r->n_ahead += i != r->entry && w->entries[i].waits_since_us;
    r->n_ahead += w->loading >= 0 && w->loading != r->entry;
}

/* Advances to the next event. Returns false when nothing is left. */
static bool advance(struct world *w)
{
    uint64_t next = UINT64_MAX;
    bool anyone = false;
    for (int i = 0; i < w->n_requests; i++) {
        const struct request *r = &w->requests[i];
        uint64_t at = r->state == COMING    ? r->comes_us
                      : r->state == RUNNING ? r->ends_us
                                            : UINT64_MAX;
        if (r->state <= WAITING && r->leaves_us && r->leaves_us < at) at = r->leaves_us;
        if (r->state == COMING && r->comes_us > at) at = r->comes_us;
        anyone |= r->state < DONE;
        if (at < next) next = at;
    }
    if (w->loading >= 0 && w->load_ends_us < next) next = w->load_ends_us;
    /* The server looks ten times a second. */
    if (w->now_us + SECOND / 10 < next) next = w->now_us + SECOND / 10;
    w->now_us = next > w->now_us ? next : w->now_us;
    return anyone || w->loading >= 0;
}

static void happen(struct world *w)
{
    if (w->loading >= 0 && w->load_ends_us <= w->now_us) end_load(w);
    for (int i = 0; i < w->n_requests; i++) {
        struct request *r = &w->requests[i];
        if (r->state == COMING && r->comes_us <= w->now_us) {
            look(w);
            come(w, r);
        } else if (r->state == WAITING && r->leaves_us && r->leaves_us <= w->now_us) {
            r->state = LEFT;
            look(w);
            if (!w->entries[r->entry].waits_since_us) give_up(w, r->entry);
        } else if (r->state == RUNNING && r->ends_us <= w->now_us) {
            r->state = DONE;
            if (r->drained) continue;
            w->entries[r->entry].used_us = w->now_us;
            w->n_served[r->entry]++;
        }
    }
}

static void random_schedules(void **state)
{
    (void)state;
    static struct world w;
    long long n_loads = 0, n_evictions = 0, n_done = 0, n_given_up = 0;
    for (int k = 0; k < N_SCHEDULES; k++) {
        seed = (uint64_t)k;
        make_world(&w);
        while (advance(&w)) {
            happen(&w);
            decide(&w);
            REQUIRE_MSG(w.now_us < 3600u * SECOND, "schedule %d does not end", k);
        }
        for (int i = 0; i < w.n_requests; i++) {
            REQUIRE_MSG(w.requests[i].state >= DONE, "schedule %d, request %d", k, i);
            n_done += w.requests[i].state == DONE;
        }
        n_loads += w.n_loads;
        n_evictions += w.n_evictions;
        n_given_up += w.n_given_up;
    }
    print_message("%lld loads, %lld evictions, %lld of them for a load that was given up, %lld "
                  "requests served\n",
                  n_loads, n_evictions, n_given_up, n_done);
    REQUIRE(n_evictions > N_SCHEDULES && n_done > 10 * N_SCHEDULES && n_given_up > 300);
}

/* Two that never fit together, both wanted all the time: a third of the time is loading. */
static void two_models_room_for_one(void **state)
{
    (void)state;
    struct policy_entry e[2] = {{.bytes = 6, .load_us = 3 * SECOND},
                                {.bytes = 6, .load_us = 3 * SECOND}};
    const struct policy_room room = {.all = {.limit_bytes = 10}};
    uint64_t now = SECOND, loading = 0, end = 600u * SECOND;
    int n_loads = 0;
    while (now < end) {
        for (int i = 0; i < 2; i++) {
            e[i].n_refs = e[i].loaded ? 8 : 0;
            if (e[i].loaded) e[i].admitted_us = now; /* a request ended, the next one came */
            if (!e[i].loaded && !e[i].waits_since_us)
                e[i].waits_since_us = e[i].evicts_since_us = now;
        }
        struct policy_step step = policy_next(e, 2, &room, now);
        now += SECOND / 10;
        if (step.act == POLICY_CLOSE) e[step.entry].loaded = false;
        if (step.act != POLICY_LOAD) continue;
        now += 3 * SECOND;
        loading += 3 * SECOND;
        n_loads++;
        e[step.entry] = (struct policy_entry){
            .loaded = true, .bytes = 6, .load_us = 3 * SECOND, .loaded_us = now, .used_us = now};
    }
    REQUIRE(n_loads > 30);
    REQUIRE_MSG(loading * 100 <= 35 * end, "%llu s of 600", (unsigned long long)(loading / SECOND));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(single_decisions), cmocka_unit_test(barred_keys),
        cmocka_unit_test(random_schedules), cmocka_unit_test(two_models_room_for_one)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
