/* SPDX-License-Identifier: MIT */
/*
 * Prefix cache: full KV pages that several sequences share, found by their tokens.
 *
 * A published page is a node of a tree: (parent node, scope, its 32 tokens). Two sequences that
 * reach the same node have the same tokens from the first on. The seeded hash only speeds up the
 * search; tokens and scope are always compared in full. A page has the same bits whichever sequence
 * computed it, so the second sequence with an equal page drops its own and takes the first's.
 *
 * A node holds one reference to its page. While that is the only one the node is idle: it is in the
 * idle list and may be evicted. A sequence that holds a page holds all pages before it too, and
 * releases them last page first; so a node comes after all its descendants in the idle list, and
 * the head of the list, the least recently used, is always a leaf. Of leaves that became idle in
 * the same second one whose page is on disk goes first.
 *
 * A node may be kept until a time, and with it all before it. Kept nodes have an idle list of their
 * own, of which nothing is evicted while the other has any; when their time is over they are as
 * recently used as that. A key may keep twice the pages that are left of three quarters of all:
 * half of all if it is alone, and never the last.
 *
 * With recurrent layers a node may carry a snapshot of the states after its last token; without one
 * a sequence cannot go on from there. There are so many slots for them. When all are taken, the
 * least of h gives way, where h is the number of tokens that the snapshot saves (those after the
 * nearest one before it) plus the h of the last one that gave way, when it was kept or last used
 * (GreedyDual: Young, "The k-server dual and loose competitiveness for paging", 1994).
 *
 * Threads: everything here belongs to the scheduler thread. Nothing is allocated after create.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "engine/job_types.h"
#include "engine/kv/kv.h"

enum { PREFIX_NONE = -1 }; /* no node; as a parent: the start of a sequence */

/* Sequences share within equal scopes: one tenant, and with private_id != 0 one job. */
struct prefix_scope {
    uint8_t tenant[32];
    uint64_t private_id;
};
bool prefix_scope_equal(const struct prefix_scope *a, const struct prefix_scope *b);

struct prefix;

/*
 * A cache over all pages, borrowed until destroy, and n_snapshots of n_floats. stats, borrowed too:
 * it counts snapshots and hits, idle and kept pages there. Returns owned; NULL if out of memory.
 */
struct prefix *prefix_create(struct kv_pages *pages, uint64_t seed, int n_snapshots,
                             size_t n_floats, struct eng_stats *stats);
void prefix_destroy(struct prefix *p);

/* Bytes that prefix_create takes for n_pages, and for a snapshot, for the memory plan. */
int64_t prefix_bytes(int64_t n_pages);
int64_t prefix_snapshot_bytes(size_t n_floats);

/* The node below parent that holds these KV_PAGE_TOKENS tokens, or PREFIX_NONE. Changes nothing. */
int32_t prefix_find(const struct prefix *p, int32_t parent, const struct prefix_scope *scope,
                    const int32_t *tokens);

/*
 * Why the page that prefix_find did not find is not there: ENG_MISS_EVICTED, ENG_MISS_CONTENT, or
 * ENG_MISS_NONE: nothing of this scope has come after the parent. *ret_n_equal: how many of the
 * tokens the best of the 64 newest pages in its place has too. Changes nothing.
 */
enum eng_miss prefix_why(struct prefix *p, int32_t parent, const struct prefix_scope *scope,
                         const int32_t *tokens, int *ret_n_equal);

/* The node's page, which may be given to others once the caller returns. */
int32_t prefix_page(const struct prefix *p, int32_t node);

/* Takes a reference to the node's page and returns the page. */
int32_t prefix_acquire(struct prefix *p, int32_t node);

/*
 * Publishes a full page that the caller holds, below a node it holds too. Returns the node. If an
 * equal node exists, the caller's page is released and *page becomes that node's, acquired.
 */
int32_t prefix_publish(struct prefix *p, int32_t parent, const struct prefix_scope *scope,
                       const int32_t *tokens, int32_t *page);

/* Releases a page; node is its node or PREFIX_NONE. Pages of a sequence go last page first. */
void prefix_release(struct prefix *p, int32_t node, int32_t page);

/*
 * The snapshot of a node: whether there is one; the numbers, of which a use is noted; room for
 * them, perhaps another node's, NULL if the node has them or there are no slots; and an end to
 * them, if there are any. The node is held by the caller, but for the first.
 */
bool prefix_has_snapshot(const struct prefix *p, int32_t node);
const float *prefix_use_snapshot(struct prefix *p, int32_t node);
const float *prefix_see_snapshot(const struct prefix *p, int32_t node); /* NULL: none; no use */
float *prefix_keep_snapshot(struct prefix *p, int32_t node);
void prefix_drop_snapshot(struct prefix *p, int32_t node);

/*
 * Keeps a node that the caller holds, and whose ancestors are kept as long, for so many seconds
 * (rounded up to 10), for a key. Returns false if the key may not keep more.
 */
bool prefix_keep(struct prefix *p, int32_t node, uint64_t key, int64_t seconds);

/* The time, of CLOCK_MONOTONIC; ends the keeping of nodes. */
void prefix_tick(struct prefix *p, uint64_t now_us);

/* Notes that the page of a node is on disk too. */
void prefix_note_disk(struct prefix *p, int32_t node);

/* A free zeroed page with one reference, by eviction if necessary; -1 if all are in use. */
int32_t prefix_page_get(struct prefix *p);

/* Drops the idle nodes of one private scope. */
void prefix_forget(struct prefix *p, uint64_t private_id);
