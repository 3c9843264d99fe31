/* SPDX-License-Identifier: MIT */
/* The reader, the writer, and what they share with the scheduler; see disk.h. */
#include "engine/kv/disk.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/os_error.h"
#include "base/thread.h"
#include "engine/eng_error.h"

enum {
    N_CHAINS = 8, /* that wait */
    PRUNE_SECONDS = 60,
    PAUSE_SECONDS = 60,
    WRITER_NICE = 19,
    END_MS = 1000,               /* for the threads to end */
    FILE_EXTRA_BYTES = 64 << 10, /* headers and ids of the files of an extent, and partial blocks */
};

/*
 * How long a prompt waits at least, though computing it would take less, and at most for one
 * extent: a disk that has not answered for so long may never do.
 */
static const uint64_t least_wait_us = 1000000, most_wait_us = 5000000;

/* Of the measured rate: what the last reads count. */
static const double RATE_KEEP = 0.8;

/* A chain is not read that would take so much of the time that computing it takes. */
static const double READ_MARGIN = 1.5;

struct chain {
    uint8_t scope[EXTENT_DIGEST];
    int n_pages; /* 0: the place is free */
    int32_t *ids;
    bool first, for_a_day;
    uint64_t serial; /* order of coming */
    uint64_t turn;   /* one more than that of its owner's chain before it: the lowest is next */
};

/* The stage of the copy of an extent's pages. */
enum stage { STAGE_FREE, STAGE_WANTED, STAGE_FILLED, STAGE_LOST };

/* Memory for an extent that a thread reads or writes. */
struct copies {
    uint8_t *pages[EXTENT_PAGES];
    uint8_t *state; /* [state_bytes] */
};

struct kv_disk {
    struct kv_disk_params p;
    struct extent_store *store;
    pthread_t reader, writer;
    bool has_reader, has_writer;
    struct kv_restore own; /* the reader's copy of what it reads, with memory of its own */
    uint8_t own_scope[EXTENT_DIGEST];
    int32_t *own_ids;
    struct copies read;

    pthread_mutex_t lock; /* guards what follows, but for the pages while they are copied */
    pthread_cond_t asked, noted, ended;
    bool closing, left;        /* left: kv_disk_destroy has given up waiting for the threads */
    int n_threads;             /* that run */
    struct kv_restore *first;  /* prompts to be read */
    struct kv_restore *wanted; /* that which is being read; NULL: none, or it was given up */
    uint64_t began_us;         /* when that began, */
    uint64_t moved_us;         /* and its present extent; 0: the reader is idle */
    struct chain chains[N_CHAINS];
    uint64_t n_noted;
    bool writing;
    uint64_t paused_until_us;
    double read_rate; /* bytes per second, 0: unknown */
    struct eng_kv_disk_stats stats;

    atomic_int stage;
    struct chain current; /* of the writer; of the scheduler too while WANTED */
    int from, n_wanted;   /* pages of it that are wanted, */
    int n_copied;         /* and those that are there */
    struct copies copies;
    bool has_state; /* copies.state is that after the wanted pages */
};

static int64_t chain_ids(int64_t ctx)
{
    return ctx / KV_PAGE_TOKENS * KV_PAGE_TOKENS + 1;
}

int64_t kv_disk_bytes(size_t page_bytes, size_t state_bytes, int64_t ctx)
{
    return (N_CHAINS + 2) * chain_ids(ctx) * (int64_t)sizeof(int32_t) +
           2 * (EXTENT_PAGES * (int64_t)page_bytes + (int64_t)state_bytes);
}

/* ---- the end of the threads ------------------------------------------------------------------ */

static void free_copies(struct copies *c)
{
    for (int i = 0; i < EXTENT_PAGES; i++)
        free(c->pages[i]);
    free(c->state);
}

static void free_disk(struct kv_disk *d)
{
    extent_store_close(d->store);
    free(d->current.ids);
    for (int i = 0; i < N_CHAINS; i++)
        free(d->chains[i].ids);
    free(d->own_ids);
    free_copies(&d->copies);
    free_copies(&d->read);
    pthread_cond_destroy(&d->ended);
    pthread_cond_destroy(&d->asked);
    pthread_cond_destroy(&d->noted);
    pthread_mutex_destroy(&d->lock);
    free(d);
}

/* With the lock held, which is released. The last one that was left frees everything. */
static void end_thread(struct kv_disk *d)
{
    bool last = --d->n_threads == 0 && d->left;
    pthread_cond_signal(&d->ended);
    pthread_mutex_unlock(&d->lock);
    if (last) free_disk(d);
}

/* ---- extents of a chain -------------------------------------------------------------------- */

/* The extent that begins at a page of a chain of so many. */
static struct extent extent_at(const uint8_t *scope, const uint8_t *parent, const int32_t *ids,
                               int page, int end)
{
    return (struct extent){.scope = scope,
                           .parent = parent,
                           .ids = ids + (size_t)page * KV_PAGE_TOKENS,
                           .n_pages = end - page < EXTENT_PAGES ? end - page : EXTENT_PAGES};
}

/* ---- reading ------------------------------------------------------------------------------- */

static void count_fault(struct kv_disk *d, enum extent_result result)
{
    HOLD(&d->lock);
    d->stats.n_faults[result < EXTENT_N_RESULTS ? result - EXTENT_UNREADABLE : 0]++;
}

/* Reads the longest extent of at most x->n_pages that begins where x does; sets them. */
static void read_longest(struct kv_disk *d, const struct kv_restore *r, struct extent *x)
{
    uint8_t *pages[EXTENT_PAGES];
    int page = (int)((x->ids - r->ids) / KV_PAGE_TOKENS);
    for (; x->n_pages > 0 && page + x->n_pages > r->first; x->n_pages--) {
        for (int i = 0; i < x->n_pages; i++)
            pages[i] = page + i < r->first ? NULL : d->read.pages[i];
        enum extent_result result = extent_read(d->store, x, 0, pages);
        if (result >= EXTENT_UNREADABLE) count_fault(d, result);
        if (result == EXTENT_READ) return;
    }
    x->n_pages = 0;
}

/* Pages up to the last one after which there is a state, if all before it are there; 0: none. */
static int find_state(struct kv_disk *d, const struct kv_restore *r)
{
    uint8_t parent[EXTENT_DIGEST] = {0};
    int n_usable = 0;
    for (int page = 0; page < r->n_pages;) {
        struct extent x = extent_at(r->scope, parent, r->ids, page, r->n_pages);
        int longest = 0; /* may have no state where a shorter one has */
        for (bool found = false; x.n_pages > 0 && !found; x.n_pages -= !found) {
            if (!extent_exists(d->store, &x, false)) continue;
            if (longest == 0) longest = x.n_pages;
            found = extent_exists(d->store, &x, true);
            if (found) n_usable = page + x.n_pages;
        }
        page += longest;
        if (longest < EXTENT_PAGES) break;
        x.n_pages = longest;
        extent_name(d->store, &x, parent);
    }
    return n_usable;
}

static bool read_state(struct kv_disk *d, const struct extent *x)
{
    enum extent_result result =
        extent_read(d->store, x, d->p.state_bytes, (uint8_t *const[]){d->read.state});
    if (result >= EXTENT_UNREADABLE) count_fault(d, result);
    return result == EXTENT_READ;
}

/*
 * Copies pages from `page` on into those of the prompt, the lock held for one at a time. usable:
 * they and those before them can be used, with the state. Returns false if the prompt was given up.
 */
static bool hand_over(struct kv_disk *d, int page, int n_pages, bool usable)
{
    for (int i = 0; i < n_pages; i++) {
        HOLD(&d->lock);
        if (d->wanted && page + i >= d->own.first)
            memcpy(d->wanted->pages[page + i], d->read.pages[i], d->p.page_bytes);
    }
    HOLD(&d->lock);
    bool wanted = d->wanted != NULL;
    if (wanted && usable) {
        if (d->p.state_bytes) memcpy(d->wanted->state, d->read.state, d->p.state_bytes);
        d->wanted->n_read = page + n_pages;
    }
    d->moved_us = clock_now_us();
    return wanted;
}

static void restore(struct kv_disk *d)
{
    const struct kv_restore *r = &d->own;
    uint8_t parent[EXTENT_DIGEST] = {0};
    int64_t used_us = extent_now();
    int end = d->p.state_bytes > 0 ? find_state(d, r) : r->n_pages;
    for (int page = 0; page < end;) {
        struct extent x = extent_at(r->scope, parent, r->ids, page, end);
        if (page + EXTENT_PAGES > r->first) read_longest(d, r, &x);
        if (x.n_pages > 0) extent_touch(d->store, &x, &used_us);
        int next = page + x.n_pages;
        bool usable = d->p.state_bytes == 0 || (next == end && x.n_pages && read_state(d, &x));
        if (!hand_over(d, page, x.n_pages, usable && next > r->first)) break;
        if (x.n_pages < EXTENT_PAGES) break;
        page = next;
        extent_name(d->store, &x, parent);
    }
}

/* With the lock held. */
static void count_restore(struct kv_disk *d, const struct kv_restore *r)
{
    double bytes = (double)(r->n_read - r->first) * (double)d->p.page_bytes;
    if (r->n_read == r->first) return;
    double rate = 1e6 * bytes / (double)(r->us > 0 ? r->us : 1);
    d->read_rate = d->read_rate > 0 ? RATE_KEEP * d->read_rate + (1 - RATE_KEEP) * rate : rate;
    d->stats.n_restores++;
    d->stats.restore_us += r->us;
    d->stats.n_read_bytes += (uint64_t)bytes;
    d->stats.n_read_tokens += (uint64_t)(r->n_read - r->first) * KV_PAGE_TOKENS;
}

/* Ends the prompt that is being read, with the lock held: it is not touched from now on. */
static void end_wanted(struct kv_disk *d)
{
    struct kv_restore *r = d->wanted;
    if (!r) return;
    r->us = clock_now_us() - d->began_us;
    count_restore(d, r);
    d->wanted = NULL;
    atomic_store(&r->done, true);
}

/* Copies what a prompt borrows. With the lock held. */
static void take_prompt(struct kv_disk *d)
{
    struct kv_restore *r = d->first;
    d->first = r->next;
    d->wanted = r;
    d->began_us = d->moved_us = clock_now_us();
    memcpy(d->own_scope, r->scope, sizeof(d->own_scope));
    memcpy(d->own_ids, r->ids, (size_t)r->n_pages * KV_PAGE_TOKENS * sizeof(*r->ids));
    d->own.scope = d->own_scope;
    d->own.ids = d->own_ids;
    d->own.first = r->first;
    d->own.n_pages = r->n_pages;
}

static void wake_scheduler(const struct kv_disk *d)
{
    if (!d->left) d->p.wake(d->p.wake_ctx);
}

static void *read_prompts(void *arg)
{
    struct kv_disk *d = arg;
    pthread_mutex_lock(&d->lock);
    for (;;) {
        while (!d->first && !d->closing)
            pthread_cond_wait(&d->asked, &d->lock);
        if (!d->first) break;
        take_prompt(d);
        pthread_mutex_unlock(&d->lock);
        restore(d);
        pthread_mutex_lock(&d->lock);
        d->moved_us = 0;
        end_wanted(d);
        wake_scheduler(d);
    }
    end_thread(d);
    return NULL;
}

/* Owners are the first bytes of scopes. */
static bool is_banned(const struct kv_disk *d, const uint8_t *scope)
{
    return d->p.user.is_banned && d->p.user.is_banned(d->p.user.bans, scope);
}

bool kv_disk_pays(struct kv_disk *d, const uint8_t *scope, int n_pages, double prompt_tokens_per_s)
{
    pthread_mutex_lock(&d->lock);
    bool held = d->moved_us && clock_now_us() - d->moved_us > least_wait_us;
    double read_s = d->read_rate > 0 ? n_pages * (double)d->p.page_bytes / d->read_rate : 0;
    double compute_s =
        prompt_tokens_per_s > 0 ? n_pages * (double)KV_PAGE_TOKENS / prompt_tokens_per_s : read_s;
    bool pays = READ_MARGIN * read_s <= compute_s || prompt_tokens_per_s == 0;
    if (!pays) d->read_rate *= 1.05; /* so that a slow moment is not for ever */
    pthread_mutex_unlock(&d->lock);
    return pays && !held && !is_banned(d, scope);
}

void kv_disk_ask(struct kv_disk *d, struct kv_restore *r)
{
    assert(r->first >= 0 && r->first < r->n_pages);
    struct kv_restore **end = &d->first;
    r->next = NULL;
    r->n_read = r->first;
    r->asked_us = clock_now_us();
    atomic_store(&r->done, false);
    HOLD(&d->lock);
    while (*end)
        end = &(*end)->next;
    *end = r;
    pthread_cond_signal(&d->asked);
}

/* With the lock held. */
static void give_up(struct kv_disk *d, struct kv_restore *r)
{
    struct kv_restore **link = &d->first;
    if (r == d->wanted) {
        end_wanted(d);
        return;
    }
    while (*link && *link != r)
        link = &(*link)->next;
    if (*link) *link = r->next;
    atomic_store(&r->done, true);
}

void kv_disk_cancel(struct kv_disk *d, struct kv_restore *r)
{
    HOLD(&d->lock);
    give_up(d, r);
}

/* With the lock held. */
static bool is_late(const struct kv_disk *d, const struct kv_restore *r, uint64_t now_us)
{
    double tokens = (double)(r->n_pages - r->first) * KV_PAGE_TOKENS;
    uint64_t patience_us = UINT64_MAX;
    if (r->tokens_per_s > 0) patience_us = (uint64_t)(1e6 * tokens / r->tokens_per_s);
    if (patience_us < least_wait_us) patience_us = least_wait_us;
    if (now_us > r->asked_us && now_us - r->asked_us > patience_us) return true;
    if (patience_us > most_wait_us) patience_us = most_wait_us;
    return d->moved_us && now_us > d->moved_us && now_us - d->moved_us > patience_us;
}

void kv_disk_expire(struct kv_disk *d, uint64_t now_us)
{
    HOLD(&d->lock);
    for (struct kv_restore *r = d->first, *next; r; r = next) {
        next = r->next;
        if (is_late(d, r, now_us)) give_up(d, r);
    }
    if (d->wanted && is_late(d, d->wanted, now_us)) {
        int n_read = d->wanted->n_read - d->own.first;
        end_wanted(d);
        d->read_rate = 1e6 * (n_read + 1.0) * (double)d->p.page_bytes /
                       (double)(now_us > d->began_us ? now_us - d->began_us : 1);
    }
}

bool kv_disk_done(const struct kv_restore *r)
{
    return atomic_load(&r->done);
}

/* ---- writing ------------------------------------------------------------------------------- */

static bool is_same_owner(const uint8_t *scope, const uint8_t *other)
{
    return memcmp(scope, other, ENG_KV_OWNER) == 0;
}

/*
 * An owner's oldest waiting chain of those that are first, or are not if there are such; NULL:
 * none. With the lock held, as all that look at chains.
 */
static struct chain *oldest_chain(struct kv_disk *d, const uint8_t *scope, bool first)
{
    struct chain *best = NULL;
    for (struct chain *c = d->chains; c < d->chains + N_CHAINS; c++) {
        if (c->n_pages == 0 || !is_same_owner(c->scope, scope)) continue;
        bool older =
            !best || (c->first == best->first ? c->serial < best->serial : c->first == first);
        if (older) best = c;
    }
    return best;
}

/* The chain that is written next, of the owner whose turn it is; NULL: none waits. */
static struct chain *next_chain(struct kv_disk *d)
{
    struct chain *next = NULL;
    for (struct chain *c = d->chains; c < d->chains + N_CHAINS; c++) {
        bool sooner =
            !next || (c->turn == next->turn ? c->serial < next->serial : c->turn < next->turn);
        if (c->n_pages > 0 && sooner) next = c;
    }
    if (!next) return NULL;
    struct chain *best = oldest_chain(d, next->scope, true);
    uint64_t turn = next->turn;
    next->turn = best->turn;
    best->turn = turn;
    return best;
}

static int count_chains(const struct kv_disk *d, const uint8_t *scope)
{
    int n = 0;
    for (const struct chain *c = d->chains; c < d->chains + N_CHAINS; c++)
        n += c->n_pages > 0 && is_same_owner(c->scope, scope);
    return n;
}

/* With all places taken: that which a new chain may take, of the owner that then has most. */
static struct chain *last_chain(struct kv_disk *d, const uint8_t *scope)
{
    const uint8_t *most = scope;
    int n_most = count_chains(d, scope) + 1;
    for (const struct chain *c = d->chains; c < d->chains + N_CHAINS; c++) {
        int n = count_chains(d, c->scope);
        if (n < n_most) continue;
        n_most = n;
        most = c->scope;
    }
    return oldest_chain(d, most, false);
}

/* The turn of an owner's new chain: not before that which was taken last. */
static uint64_t new_turn(const struct kv_disk *d, const uint8_t *scope)
{
    uint64_t turn = d->current.turn + is_same_owner(d->current.scope, scope);
    for (const struct chain *c = d->chains; c < d->chains + N_CHAINS; c++)
        if (c->n_pages > 0 && is_same_owner(c->scope, scope) && c->turn >= turn) turn = c->turn + 1;
    return turn;
}

void kv_disk_note(struct kv_disk *d, const struct kv_chain *chain)
{
    if (chain->n_pages < KV_DISK_LEAST_CHAIN) return;
    assert((int64_t)chain->n_pages * KV_PAGE_TOKENS <= chain_ids(d->p.ctx));
    HOLD(&d->lock);
    struct chain *c = d->chains;
    while (c < d->chains + N_CHAINS && c->n_pages > 0)
        c++;
    bool full = c == d->chains + N_CHAINS, paused = clock_now_us() < d->paused_until_us;
    if (full) c = last_chain(d, chain->scope);
    bool yields = full && c->first && !chain->first && is_same_owner(c->scope, chain->scope);
    d->stats.n_dropped += full || paused;
    if (!paused && !yields && !is_banned(d, chain->scope)) {
        *c = (struct chain){.n_pages = chain->n_pages,
                            .ids = c->ids,
                            .first = chain->first,
                            .for_a_day = chain->for_a_day,
                            .serial = d->n_noted++,
                            .turn = new_turn(d, chain->scope)};
        memcpy(c->scope, chain->scope, sizeof(c->scope));
        memcpy(c->ids, chain->ids, (size_t)c->n_pages * KV_PAGE_TOKENS * sizeof(*c->ids));
        pthread_cond_signal(&d->noted);
    }
}

void kv_disk_pump(struct kv_disk *d, struct prefix *cache, const struct kv_pages *pages,
                  int n_pages)
{
    if (atomic_load(&d->stage) != STAGE_WANTED) return;
    const struct chain *c = &d->current;
    struct prefix_scope scope = {.private_id = 0};
    int32_t node = PREFIX_NONE;
    memcpy(scope.tenant, c->scope, sizeof(scope.tenant));
    for (int i = 0; i < d->from + d->n_wanted; i++) {
        if (n_pages == 0 && i == d->from + d->n_copied) return;
        node = prefix_find(cache, node, &scope, c->ids + (size_t)i * KV_PAGE_TOKENS);
        if (node == PREFIX_NONE) break; /* it was evicted */
        if (i < d->from + d->n_copied) continue;
        memcpy(d->copies.pages[d->n_copied++], kv_page_data(pages, prefix_page(cache, node)),
               d->p.page_bytes);
        prefix_note_disk(cache, node);
        n_pages--;
    }
    const float *state =
        node != PREFIX_NONE && d->p.state_bytes ? prefix_see_snapshot(cache, node) : NULL;
    d->has_state = state != NULL;
    if (state) memcpy(d->copies.state, state, d->p.state_bytes);
    HOLD(&d->lock);
    atomic_store(&d->stage, node == PREFIX_NONE ? STAGE_LOST : STAGE_FILLED);
    pthread_cond_signal(&d->noted);
}

bool kv_disk_busy(struct kv_disk *d)
{
    HOLD(&d->lock);
    return next_chain(d) || d->writing;
}

/*
 * Waits until the scheduler has copied the pages, or but the state after them. Returns false if it
 * has not got them.
 */
static bool await_copies(struct kv_disk *d, int from, int n, bool with_pages)
{
    d->from = from;
    d->n_wanted = n;
    d->n_copied = with_pages ? 0 : n;
    HOLD(&d->lock);
    atomic_store(&d->stage, STAGE_WANTED);
    wake_scheduler(d);
    while (atomic_load(&d->stage) == STAGE_WANTED && !d->closing)
        pthread_cond_wait(&d->noted, &d->lock);
    bool filled = atomic_load(&d->stage) == STAGE_FILLED;
    atomic_store(&d->stage, STAGE_FREE);
    return filled;
}

static void pause_writing(struct kv_disk *d)
{
    HOLD(&d->lock);
    d->paused_until_us = clock_now_us() + (uint64_t)PAUSE_SECONDS * 1000000;
    d->stats.n_write_errors++;
}

static void count_written(struct kv_disk *d, size_t bytes, int n_pages)
{
    HOLD(&d->lock);
    d->stats.n_written_bytes += bytes;
    d->stats.bytes += (int64_t)bytes;
    d->stats.n_pages += n_pages;
}

static int64_t largest_extent(const struct kv_disk *d)
{
    return (int64_t)(EXTENT_PAGES * d->p.page_bytes + d->p.state_bytes) + FILE_EXTRA_BYTES;
}

/* Where space is short, more than a write needs is made free: looking at all files takes time. */
static void prune(struct kv_disk *d)
{
    int64_t bytes, n_pages, floor = extent_floor(d->store), most = floor + largest_extent(d);
    struct extent_limits limits = {d->p.user.bytes, most + floor / 8, d->p.user.seconds};
    if (extent_prune(d->store, &limits, extent_now(), &bytes, &n_pages)) return;
    bool full = extent_lacking(d->store, most) > 0; /* of others' files */
    HOLD(&d->lock);
    if (full) d->paused_until_us = clock_now_us() + (uint64_t)PAUSE_SECONDS * 1000000;
    d->stats.bytes = bytes;
    d->stats.n_pages = n_pages;
}

/* Returns true if the largest extent leaves the file system as much space as it must have. */
static bool has_space(struct kv_disk *d)
{
    int64_t needed = extent_floor(d->store) + largest_extent(d);
    if (extent_lacking(d->store, needed) > 0) prune(d);
    return extent_lacking(d->store, needed) == 0;
}

/* Writes the lacking parts of an extent and of the state after it. */
static int write_extent(struct kv_disk *d, const struct extent *x, int from)
{
    bool pages = !extent_exists(d->store, x, false);
    bool state = d->p.state_bytes > 0 && !extent_exists(d->store, x, true);
    if (is_banned(d, x->scope)) return ENG_ECLOSED;
    if (!pages && !state) return 0;
    if (!has_space(d)) return ENG_ENOMEM;
    if (!await_copies(d, from, x->n_pages, pages)) return ENG_ECLOSED;
    int rc = pages ? extent_write(d->store, x, 0, (const uint8_t *const *)d->copies.pages) : 0;
    if (!rc && pages) count_written(d, (size_t)x->n_pages * d->p.page_bytes, x->n_pages);
    state = state && d->has_state;
    if (!rc && state)
        rc = extent_write(d->store, x, d->p.state_bytes, (const uint8_t *const[]){d->copies.state});
    if (!rc && state) count_written(d, d->p.state_bytes, 0);
    if (rc) pause_writing(d);
    if (is_banned(d, x->scope))
        extent_remove(d->store, x); /* those who erase may not have seen it */
    return rc;
}

/* Writes the extents of a chain that are not there. */
static void write_chain(struct kv_disk *d)
{
    const struct chain *c = &d->current;
    uint8_t parent[EXTENT_DIGEST] = {0};
    int64_t used_us = extent_now();
    for (int page = 0; page < c->n_pages; page += EXTENT_PAGES) {
        struct extent x = extent_at(c->scope, parent, c->ids, page, c->n_pages);
        x.for_a_day = c->for_a_day;
        if (write_extent(d, &x, page)) return;
        extent_touch(d->store, &x, &used_us);
        extent_name(d->store, &x, parent);
    }
}

/* Waits for a chain, takes it, and returns true; false when the time has come to keep limits. */
static bool take_chain(struct kv_disk *d, uint64_t until_us)
{
    struct timespec until = {.tv_sec = (time_t)(until_us / 1000000),
                             .tv_nsec = (long)(until_us % 1000000) * 1000};
    struct chain *c;
    for (;;) {
        c = next_chain(d);
        if (c || d->closing) break;
        if (pthread_cond_timedwait(&d->noted, &d->lock, &until)) return false;
    }
    if (d->closing) return false;
    struct chain taken = *c;
    *c = (struct chain){.ids = d->current.ids};
    d->current = taken;
    d->writing = true;
    return true;
}

/* Whether so much was written that the directory's budget cannot wait for the next minute. */
static bool is_over(struct kv_disk *d)
{
    HOLD(&d->lock);
    return d->stats.bytes - d->p.user.bytes > d->p.user.bytes / 8;
}

static void *write_chains(void *arg)
{
    struct kv_disk *d = arg;
    uint64_t prune_at = clock_now_us();
    setpriority(PRIO_PROCESS, (id_t)gettid(), WRITER_NICE); /* only politer */
    pthread_mutex_lock(&d->lock);
    while (!d->closing) {
        bool taken = clock_now_us() < prune_at && take_chain(d, prune_at);
        pthread_mutex_unlock(&d->lock);
        if (taken) write_chain(d);
        if (clock_now_us() >= prune_at || (taken && is_over(d))) {
            prune(d);
            prune_at = clock_now_us() + (uint64_t)PRUNE_SECONDS * 1000000;
        }
        pthread_mutex_lock(&d->lock);
        d->writing = false;
    }
    end_thread(d);
    return NULL;
}

/* ---- life ---------------------------------------------------------------------------------- */

static bool allocate_copies(const struct kv_disk *d, struct copies *c)
{
    bool all = (c->state = malloc(d->p.state_bytes + 1)) != NULL;
    for (int i = 0; i < EXTENT_PAGES; i++)
        all = (c->pages[i] = malloc(d->p.page_bytes)) && all;
    return all;
}

static int init(struct kv_disk *d)
{
    pthread_mutex_init(&d->lock, NULL);
    thread_cond_init(&d->asked);
    thread_cond_init(&d->noted);
    thread_cond_init(&d->ended);
    size_t n = (size_t)chain_ids(d->p.ctx);
    d->current.ids = calloc(n, sizeof(*d->current.ids));
    d->own_ids = calloc(n, sizeof(*d->own_ids));
    bool all = d->current.ids && d->own_ids;
    for (int i = 0; i < N_CHAINS; i++)
        all = (d->chains[i].ids = calloc(n, sizeof(*d->current.ids))) && all;
    all = allocate_copies(d, &d->copies) && all;
    return allocate_copies(d, &d->read) && all ? 0 : ENG_ENOMEM;
}

static int start(struct kv_disk *d)
{
    HOLD(&d->lock);
    int rc = thread_start(&d->reader, "hearth-kv-read", 0, read_prompts, d);
    d->has_reader = rc == 0;
    if (!rc) rc = thread_start(&d->writer, "hearth-kv-write", 0, write_chains, d);
    d->has_writer = d->has_reader && rc == 0;
    d->n_threads = d->has_reader + d->has_writer;
    return rc;
}

int kv_disk_create(struct kv_disk **ret, const struct kv_disk_params *params, char *err,
                   size_t errlen)
{
    struct kv_disk *d = calloc(1, sizeof(*d));
    int rc = ENG_ENOMEM;
    if (d) d->p = *params;
    if (!d || init(d)) {
        snprintf(err, errlen, "no memory for the pages that go to %.300s", params->user.dir);
        goto out;
    }
    rc = extent_store_open(&d->store, params->user.dir, params->fingerprint, params->page_bytes,
                           params->user.model, err, errlen);
    if (rc) goto out;
    int thread_errno = start(d);
    if (thread_errno) {
        rc = fail_with(ENG_ENOMEM, err, errlen, "the threads of %.300s cannot be started: %s%s",
                       params->user.dir, strerror(thread_errno), os_error_remedy(thread_errno));
        goto out;
    }
    d->p.user.dir = d->p.user.model = NULL;
    *ret = d;
    d = NULL;
out:
    kv_disk_destroy(d);
    return rc;
}

static int join(pthread_t thread)
{
    return pthread_join(thread, NULL);
}

/* Asks the threads to end. Returns false if one does not. */
static bool end_threads(struct kv_disk *d)
{
    struct timespec until = clock_after_ms(END_MS);
    HOLD(&d->lock);
    d->closing = true;
    pthread_cond_broadcast(&d->asked);
    pthread_cond_broadcast(&d->noted);
    while (d->n_threads > 0 && !d->left)
        d->left = pthread_cond_timedwait(&d->ended, &d->lock, &until) != 0;
    d->left &= d->n_threads > 0;
    return !d->left;
}

void kv_disk_destroy(struct kv_disk *d)
{
    if (!d) return;
    bool has_reader = d->has_reader, has_writer = d->has_writer;
    pthread_t reader = d->reader, writer = d->writer;
    bool ended = !has_reader || end_threads(d); /* if not, it may be freed by now */
    int (*const let_go)(pthread_t) = ended ? join : pthread_detach;
    if (has_reader) let_go(reader);
    if (has_writer) let_go(writer);
    if (ended) free_disk(d);
}

void kv_disk_stats(struct kv_disk *d, struct eng_kv_disk_stats *ret)
{
    HOLD(&d->lock);
    *ret = d->stats;
    ret->on = true;
    ret->paused = clock_now_us() < d->paused_until_us;
}
