/* SPDX-License-Identifier: MIT */
/*
 * KV pages that outlive the process: chains of pages are written to extents (extent.h) after
 * their request, and a prompt that is not in memory is read from there instead of computed.
 *
 * A chain is the ids of a sequence from its first on; its extents are EXTENT_PAGES pages each, the
 * last one the rest. A reader thread looks a prompt's extents up one after the other, reads
 * each into memory of its own and copies it into the sequence's pages; what it read is published
 * like pages that were computed. A prompt can be given up at any moment, also while a disk that
 * does not answer holds the reader; until it answers no other prompt is asked for. A writer thread
 * finds the first extent of a chain that is not there and asks for its pages; the scheduler copies
 * them, a few at a time between steps, so that no page is held and nothing waits for a disk. Chains
 * that wait for the writer are few: one more, and the oldest is forgotten, of the owner (API key)
 * that has most. Owners take turns; of one's chains those that the request wants to be kept are
 * written first and forgotten last.
 *
 * Writing pauses for a minute after an error, such as a full disk. The directory's limits are kept
 * by the writer, once a minute, and when it has itself written an eighth too much.
 *
 * Threads: kv_disk_pays to kv_disk_pump on the scheduler thread; kv_disk_stats on any. Nothing is
 * allocated after create, but for lists of files.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/job_types.h"
#include "engine/kv/extent.h"
#include "engine/params.h"
#include "engine/kv/prefix.h"

enum {
    KV_DISK_LEAST_PAGES = 8,  /* missing in memory, for which the directory is asked */
    KV_DISK_LEAST_CHAIN = 16, /* pages of a chain that is written */
};

struct kv_disk;

struct kv_disk_params {
    struct eng_kv_disk_params user;     /* a tenth of the file system, or 5 GiB, stay free */
    uint8_t fingerprint[EXTENT_DIGEST]; /* of all that the bits of a page depend on besides ids */
    size_t page_bytes;
    size_t state_bytes; /* of a snapshot of recurrent layers; 0: the model has none */
    int64_t ctx;        /* longest chain, in ids */
    /* Called on the reader's and the writer's thread, with the lock held, when kv_disk_pump has
     * something to do or a prompt has been read; must not call back. */
    void (*wake)(void *ctx);
    void *wake_ctx;
};

/* Opens the directory, starts both threads. Returns owned, or the errors of extent_store_open. */
int kv_disk_create(struct kv_disk **ret, const struct kv_disk_params *params, char *err,
                   size_t errlen);
/*
 * Ends both threads; no prompt is being read. One that a disk holds is left to itself: it frees
 * what it still uses when it goes on. NULL is fine.
 */
void kv_disk_destroy(struct kv_disk *d);

/* Bytes that kv_disk_create takes, for the memory plan. */
int64_t kv_disk_bytes(size_t page_bytes, size_t state_bytes, int64_t ctx);

/*
 * A prompt whose pages first .. n_pages - 1 are to be read. Everything is borrowed until
 * kv_disk_done, which kv_disk_cancel makes true; page data is arbitrary from the result's `n_read`
 * on. With states it reads up to the last page after which there is one, and that.
 */
struct kv_restore {
    const uint8_t *scope; /* [EXTENT_DIGEST] */
    const int32_t *ids;   /* [n_pages * KV_PAGE_TOKENS], from the sequence's start */
    uint8_t *const *pages;
    void *state; /* [state_bytes] */
    int first, n_pages;
    double tokens_per_s; /* as of kv_disk_pays */
    int n_read;          /* result: pages from the start that are in memory now; at least first */
    uint64_t us;
    /* private */
    struct kv_restore *next;
    uint64_t asked_us;
    atomic_bool done;
};

/*
 * Whether reading so many pages promises to be faster than computing them at the measured rate
 * (tokens per second, 0: unknown). Not while a disk holds the reader, nor if the owner is banned.
 */
bool kv_disk_pays(struct kv_disk *d, const uint8_t *scope, int n_pages, double prompt_tokens_per_s);

void kv_disk_ask(struct kv_disk *d, struct kv_restore *r);
/* Gives it up; what has come by now is kept. */
void kv_disk_cancel(struct kv_disk *d, struct kv_restore *r);
/* Gives up those that wait for longer than computing their pages takes. */
void kv_disk_expire(struct kv_disk *d, uint64_t now_us);
bool kv_disk_done(const struct kv_restore *r);

/* A chain of whole pages; borrowed for the call. */
struct kv_chain {
    const uint8_t *scope; /* [EXTENT_DIGEST] */
    const int32_t *ids;
    int n_pages;
    bool first, for_a_day; /* before those that are not first; as in struct extent */
};

/* Remembers a chain to be written. Shorter ones than KV_DISK_LEAST_CHAIN are not. */
void kv_disk_note(struct kv_disk *d, const struct kv_chain *chain);

/* Copies up to n_pages that the writer waits for, as far as the cache has them. */
void kv_disk_pump(struct kv_disk *d, struct prefix *cache, const struct kv_pages *pages,
                  int n_pages);

/* Whether chains wait or are being written: at the end there is time. */
bool kv_disk_busy(struct kv_disk *d);

void kv_disk_stats(struct kv_disk *d, struct eng_kv_disk_stats *ret);
