/* SPDX-License-Identifier: MIT */
/*
 * Drafts by a second model: it writes a few tokens ahead, the served model then computes all of
 * them in one step and keeps those that it draws itself. So no bit of an answer depends on the
 * second model, only the number of tokens per step. There are two kinds, and both may be there:
 *
 * The twin is the same weights in four bits. It has no KV cache. It reads the model's keys and
 * values and writes its own at the positions behind them, into the sequence's own pages; the step
 * that follows computes each of these positions and overwrites them, layer by layer, before it
 * reads them. Positions that it does not compute stay masked until they are computed.
 *
 * The draft model (draft_model.h) is a smaller one with the same tokenizer. It has pages of its
 * own, one for each of the model's, so that they are shared and given back with them. It computes a
 * prompt after the model's first token, a piece behind each step, until it has caught up; a
 * sequence that it is far behind of gets no draft.
 *
 * Either draws with the sequence's own chain, mask, history and random numbers (race.h), which is
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
    SELF_DRAFT_BEHIND = DRAFT_MAX + 1, /* positions computed along with the first row of a draft */
    SELF_DRAFT_PIECE = 32,             /* most rows of a step that only catches up */
    SELF_DRAFT_ROWS = SELF_DRAFT_SEQS * (1 + SELF_DRAFT_BEHIND), /* of any step */
};

struct kv_pages;

/* Everything is borrowed while it is used. */
struct draft_source {
    struct batch_model model;
    double share;           /* of the served model's step, until steps are measured */
    struct kv_pages *pages; /* a draft model's, all handed out; NULL: a twin, which needs none, */
    int64_t ctx;            /* and nothing of what follows: its longest sequence, */
    uint8_t **data;         /* [SELF_DRAFT_SEQS][max_pages] for the pages of a step, */
    int max_pages;
    const uint64_t *common; /* the ids that both tokenizers have; NULL: all are proposed, */
    float *rows;            /* then with [SELF_DRAFT_SEQS][vocab of the served model] */
};

struct self_draft {
    pthread_mutex_t lock; /* guards source: held while it computes */
    bool has_lock;
    struct draft_source source;
    _Atomic double share; /* the source's, also for a reader without the lock */
    atomic_bool ready;    /* there is one */
    atomic_bool failed;   /* there was a draft model, whose numbers were not finite */
    /* Shares of ids that were right, newer ones weigh more: of those tried, by margin; of all. */
    float right[SELF_DRAFT_MARGINS], mean;
    double us[SELF_DRAFT_SEQS + 1]; /* of a step of it with so many sequences; 0: unknown */
    int n_without;                  /* steps since the last draft */
    struct draft_cost catch_up;     /* of steps that only catch up, */
    double credit_us;               /* and the time that the next one may take */
    uint64_t *mask;                 /* of the id being drawn */
};

/* 0, or -1 if out of memory; call self_draft_finish in either case. */
int self_draft_init(struct self_draft *d, int32_t vocab);
void self_draft_finish(struct self_draft *d);

/* Bytes that self_draft_init takes, for the memory plan. */
int64_t self_draft_bytes(int32_t vocab);

/* Any thread: from now on this source is used, or with NULL none: the one before is not used once
 * this returns. */
void self_draft_set(struct self_draft *d, const struct draft_source *source);

/* With the lock held: the source is not used any more. */
void self_draft_fail(struct self_draft *d);

/*
 * The tokens that a step with its drafts is expected to give, per time of a step without, as
 * draft_value; 0 if there is no source, or nothing is known of steps. cost: of steps.
 */
double self_draft_promise(const struct self_draft *d, const struct draft_cost *cost);

/* The time of a step for n_rows drafts, as far as it is known; and that one took us. */
double self_draft_us(const struct self_draft *d, int n_rows, const struct draft_cost *cost);
void self_draft_took(struct self_draft *d, int n_rows, double us, const struct draft_cost *cost);

/* The class of a margin, below SELF_DRAFT_MARGINS. */
int self_draft_class(float margin);

/* The logits of row i of the last step, of ids that may be proposed: [vocab] of the served model.
 * n_vocab: its size. */
const float *self_draft_logits(const struct self_draft *d, int i, int32_t n_vocab);

/* Takes notice of a step whose id was not worth trying. */
void self_draft_missed(struct self_draft *d);

/* Takes notice of whether an id whose draw had this margin was right. */
void self_draft_note(struct self_draft *d, int margin, bool right);

#endif
