/* SPDX-License-Identifier: MIT */
/*
 * Drafts by a twin: the same weights in four bits write a few tokens ahead, the model itself then
 * computes all of them in one step and keeps those that it draws itself. So no bit of an answer
 * depends on the twin, only how many tokens a step gives.
 *
 * The twin has no KV cache. It reads the model's keys and values and writes its own at the
 * positions behind them, into the sequence's own pages; the step that follows computes each of
 * these positions and overwrites them, layer by layer, before it reads them. Positions that it does
 * not compute stay masked until they are computed.
 *
 * The twin draws with the sequence's own chain, mask, history and random numbers (race.h), which is
 * why it is right so often. The margin of a draw says how likely it is right; how often draws of
 * such a margin were, and the times of steps, decide how many tokens are tried.
 *
 * Threads: the scheduler thread, but for self_draft_set.
 */
#ifndef HEARTH_ENGINE_SELF_DRAFT_H
#define HEARTH_ENGINE_SELF_DRAFT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/batch_model.h"
#include "engine/draft.h"

enum {
    SELF_DRAFT_SEQS = 4, /* decoding sequences of a step with such drafts */
    SELF_DRAFT_MARGINS = 8,
};

struct self_draft {
    pthread_mutex_t lock; /* guards twin: held while it computes */
    bool has_lock;
    struct batch_model twin;
    atomic_bool ready; /* there is one */
    /* Shares of ids that were right, newer ones weigh more: of those tried, by margin; of all. */
    float right[SELF_DRAFT_MARGINS], mean;
    double us[SELF_DRAFT_SEQS + 1]; /* of a step of the twin with so many rows; 0: unknown */
    int n_without;                  /* steps since the last draft */
    uint64_t *mask;                 /* of the id being drawn */
};

/* 0, or -1 if out of memory; call self_draft_finish in either case. */
int self_draft_init(struct self_draft *d, int32_t vocab);
void self_draft_finish(struct self_draft *d);

/* Bytes that self_draft_init takes, for the memory plan. */
int64_t self_draft_bytes(int32_t vocab);

/* Any thread: from now on this twin is used (copied; its ctx is borrowed), or with NULL none: the
 * one before is not used once this returns. */
void self_draft_set(struct self_draft *d, const struct batch_model *twin);

/* Returns true if a draft of this value (draft_value) is better than the twin's. cost: of steps. */
bool self_draft_yields(const struct self_draft *d, double value, const struct draft_cost *cost);

/* The time of a step of the twin of n_rows rows, as far as it is known; and that one took us. */
double self_draft_us(const struct self_draft *d, int n_rows, const struct draft_cost *cost);
void self_draft_took(struct self_draft *d, int n_rows, double us, const struct draft_cost *cost);

/* The class of a margin, below SELF_DRAFT_MARGINS. */
int self_draft_class(float margin);

/* Takes notice of a step of the twin whose id was not worth trying. */
void self_draft_missed(struct self_draft *d);

/* Takes notice of whether an id whose draw had this margin was right. */
void self_draft_note(struct self_draft *d, int margin, bool right);

#endif
