/* SPDX-License-Identifier: MIT */
/*
 * One running sequence: a choice of a job, in a slot, with its pages of KV.
 *
 * Position p of a sequence is prompt token p, or generated token p - n_prompt. n_done positions are
 * in the KV cache; while n_done < n_given the sequence is in prefill, then it decodes. Pages are
 * taken as positions need them, out of the reservation made at admission. Full pages are published
 * to the prefix cache in order, directly after the step that completed them.
 *
 * A step may try a draft: ids after the last token, computed as further rows. Positions that hold
 * ids which turned out wrong are not done: they are computed again, and until then masked.
 *
 * Threads: the scheduler thread only. All buffers are sized by seq_init; later nothing is
 * allocated.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "engine/draft.h"
#include "engine/job_types.h"
#include "engine/kv/kv.h"
#include "engine/kv/disk.h"
#include "engine/kv/prefix.h"
#include "engine/sample.h"
#include "engine/state.h"

struct eng_end_ids;
struct eng_job;
struct scratch;

enum { SEQ_SNAPSHOT_TOKENS = 1024 };

struct seq {
    struct eng_job *job; /* NULL: the slot is free */
    int choice;          /* within the job */
    int64_t n_given;     /* ids that it begins with: the prompt, and what it gave until parked */
    int64_t n_reached;   /* of these, those that count as computed or cached already */
    int64_t n_done;      /* positions computed */
    int64_t n_generated;
    int n_pages, n_published; /* pages held; of these, the first n_published have a node */
    struct prefix *cache;     /* of the batch, */
    struct kv_pages *kv;      /* and its pages */
    int32_t *pages;           /* [max_pages] */
    int32_t *nodes;           /* [max_pages] PREFIX_NONE for pages that are not published */
    uint8_t **data;           /* [max_pages] */
    int32_t *ids;             /* [32 max_pages + 1]: prompt, answer, and a draft after them */
    struct draft draft;
    bool drafts; /* tries drafts */
    bool notes;  /* draft is kept up to date */
    struct sample_history history;
    bool keeps_history;            /* some penalty is on */
    const struct eng_guide *guide; /* NULL: none */
    enum eng_guide_next next;      /* the guide's answer for the next id */
    bool next_known;               /* next is set */
    bool awaits;                   /* a lane makes the mask, or will: it is left out of the steps */
    bool slow;                     /* so does the next one; else it is tried at once */
    int32_t untaken;               /* the id that the guide takes before that mask; -1: none */
    uint64_t *mask;                /* [(vocab + 63) / 64] allowed ids, for ENG_GUIDE_MASK */
    float *pool;                   /* [d_model]: of fwd_segment */
    struct state_layout states;
    float *state;      /* NULL if the model has none: see state.h */
    int64_t n_cached;  /* tokens of the prompt that the pages of the cache have, snapshots aside */
    int32_t known_end; /* the node of the last of these pages, or PREFIX_NONE */
    int32_t latest;    /* the node with the answer's latest snapshot, or PREFIX_NONE */
    struct kv_restore restore;
    int64_t n_before;      /* n_done when it began */
    bool asked, restoring; /* the disk is not to be asked again; pages are being read */
    bool followed;         /* another sequence waits for a snapshot of this one */
    /* Of the step being built or evaluated. */
    bool computing;               /* has prompt rows in it */
    bool broken;                  /* a page could not be allocated: ends before the next step */
    int n_draft;                  /* ids that it tries, */
    enum eng_draft_source source; /* where they come from, */
    uint8_t margins[DRAFT_MAX];   /* and how sure a second model's are, see drafter_note */
    int64_t n_written; /* positions that the draft model has computed, if ids are right */
    int segment;       /* its number in the step */
};

/* 64-bit words of a mask, a bit for each id. */
static inline size_t seq_mask_words(int32_t vocab)
{
    return ((size_t)vocab + 63) / 64;
}

/* Buffers for max_pages pages, and a state, are cut from m, all zeros. */
void seq_init(struct seq *s, struct scratch *m, int max_pages, int32_t vocab, int d_model,
              const struct state_layout *states);

/* Starts a choice of a job in a free slot. */
void seq_begin(struct seq *s, struct eng_job *job, int choice);

/* Saves in the job, which is spare, all that seq_begin needs to go on; seq_end comes next. */
void seq_save(struct seq *s);

/* Releases all pages, last first, keeps those that the job wants kept, and frees the slot. */
void seq_end(struct seq *s);

bool seq_in_prefill(const struct seq *s);

/* Whether t goes on from the prompt that s computes. */
bool seq_is_sibling(const struct seq *s, const struct seq *t);

/* Of the tokens done after the first `from`: those that count for the first time. */
int64_t seq_gained(const struct seq *s, int64_t from);

/* Puts at most `most` ids of a draft after the last token. Returns their number. */
int seq_draft(struct seq *s, int most);

/* Wipes out the values of a draft of n ids that are not finite; no other draft follows. */
void seq_wipe_draft(struct seq *s, int n, const struct kern *kern);

/*
 * Takes as many pages of the cache as fit the prompt, leaving at least one token to compute; with a
 * state, up to the last one that has a snapshot. Returns the tokens gained.
 */
int seq_attach_cached(struct seq *s);

/*
 * Pages of the prompt that follow and may be asked of a disk; 0 if the sequence shares none, or
 * `asked` is set.
 */
int seq_missing_pages(const struct seq *s);

/*
 * Takes n_missing pages for the prompt and asks for their contents. Until seq_restored returns
 * true, the sequence can neither be computed nor end; seq_restored publishes what came and gives
 * the other pages back. tokens_per_s: of computing. ret_tokens: tokens gained; below 0 if a state
 * was given up for nothing.
 */
void seq_restore(struct seq *s, struct kv_disk *disk, int n_missing, double tokens_per_s);
bool seq_restored(struct seq *s, int *ret_tokens);

/* Why no more pages are attached; *ret_n_known: tokens before the first that missed. */
enum eng_miss seq_miss(const struct seq *s, int64_t *ret_n_known);

/*
 * Returns true if t is computing the page that comes next after those that the cache has for s, so
 * that s should wait: for the page, or with a state for a snapshot after it. Call it after
 * seq_attach_cached.
 */
bool seq_same_page_ahead(const struct seq *s, const struct seq *t);

/*
 * How many of the next n prompt tokens a step should compute: with a state, so many that it ends
 * where a snapshot is wanted, or at the end of a page. A function of cache and prompt; bits do not
 * depend on it.
 */
int seq_cut(const struct seq *s, int n);

/* Allocates pages for n_positions. The reservation guarantees them; false is an internal error. */
bool seq_reserve(struct seq *s, int64_t n_positions);

/*
 * n_tokens more positions are in the cache; full pages are published, and a snapshot is kept: at
 * the end of a prompt's last page, of the last one before each mark, every SEQ_SNAPSHOT_TOKENS,
 * where the cache had pages but none, for a follower, and, one at a time, at the end of an answer's
 * last page.
 */
void seq_advance(struct seq *s, int n_tokens);

/* Appends a generated token. Returns what it says about the prediction, see draft_note. */
int seq_push(struct seq *s, int32_t id);

/*
 * Makes s a copy of its sibling `from`, whose prompt has just been computed: full pages are shared,
 * the last partial one and the state are copied. Returns false if no page is available (an internal
 * error).
 */
bool seq_fork(struct seq *s, const struct seq *from, size_t page_bytes);

/*
 * The draw of token `index` of s, whose guide allows what mask says (NULL: any id); all but the
 * logits. Borrows everything.
 */
struct sample_row seq_sample_row(const struct seq *s, int64_t index, const uint64_t *mask,
                                 const struct eng_end_ids *eos);
