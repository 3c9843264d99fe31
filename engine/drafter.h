/* SPDX-License-Identifier: MIT */
/*
 * Drafters: second models that write a few tokens ahead. The served model then computes all of them
 * in one step and keeps those that it draws itself. So no bit of an answer depends on a drafter,
 * only the number of tokens per step. There are two kinds, and both may be there; each computes on
 * path int4:
 *
 * The twin is the same weights. It has no KV cache. It reads the model's keys and values and writes
 * its own at the positions after them, into the sequence's own pages; the step that follows
 * computes each of these positions and overwrites them, layer by layer, before it reads them.
 * Positions that it does not compute stay masked until they are computed.
 *
 * The draft model is a smaller one with the same tokenizer. It has pages of its own: its page i
 * holds its keys and values for the tokens of page i of the served model, so that they are shared
 * and given back with them. It computes a prompt after the model's first token, a piece after each
 * step, until it has caught up; a sequence of which it lacks too much gets no draft.
 *
 * Either draws with the sequence's own chain, mask, history and random numbers (race.h), which is
 * why it is right so often. The margin of a draw says how likely it is right; how often draws of
 * such a margin were, and the times of steps, decide how many tokens are tried.
 *
 * The life of both is one: headers are read so that the memory is planned with everything else
 * (LOADING), one thread loads them later, they write drafts (ON). FAILED is final.
 *
 * Threads: steps, costs and rates are the scheduler's. Opening and planning come before its thread;
 * drafters_load, _await, _drop_twin and _finish are for one other thread at a time.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/batch_model.h"
#include "engine/draft.h"
#include "engine/kv/kv.h"
#include "engine/params.h"

enum {
    DRAFTER_SEQS = 4, /* decoding sequences of a step with such drafts */
    DRAFTER_MARGINS = 8,
    DRAFTER_LAG = DRAFT_MAX + 1, /* positions computed along with the first row of a draft */
    DRAFTER_PIECE = 32,          /* most rows of a step that only catches up */
    DRAFTER_ROWS = DRAFTER_SEQS * (1 + DRAFTER_LAG), /* of any step */
};

struct drafter {
    _Atomic(enum eng_draft_state) state; /* to and from ON: with the lock of drafters held */
    char error[512];                     /* written before FAILED */
    char *dir;
    double share; /* of a step of the served model, until steps are measured */

    /* The second model: valid while it is ON. */
    struct eng_model *weights; /* NULL: not open */
    struct kv_layout layout;
    struct fwd *fwd;
    struct batch_model model;
    /* Of a draft model, else NULL and 0: */
    struct kv_pages *pages; /* all handed out */
    int64_t ctx;            /* its longest sequence */
    uint8_t **data;         /* [DRAFTER_SEQS][max_pages] for the pages of a step */
    int max_pages;
    uint64_t *common; /* the ids that both tokenizers have; NULL: all are proposed, */
    float *rows;      /* else with [DRAFTER_SEQS][vocab of the served model] */

    /* Shares of ids that were right, newer ones weigh more: of those tried, by margin; of all. */
    float right[DRAFTER_MARGINS], mean;
    double us[DRAFTER_SEQS + 1]; /* of a step of it with so many sequences; 0: unknown */
    int n_without;               /* steps since the last draft */
    struct draft_cost catch_up;  /* of steps that only catch up, */
    double credit_us;            /* and the time that the next one may take */
};

/* Both kinds, and the thread that loads them. */
struct drafters {
    struct drafter twin, model;
    pthread_mutex_t lock; /* held while one of them computes */
    /* Borrowed, and set before either is opened: */
    const struct eng_model *target;
    const struct kv_layout *layout; /* of the target's pages */
    int n_threads;
    struct calibrate_text *text; /* read once they are loaded; NULL: they are not calibrated */
    /* and before they are loaded: */
    struct pool *pool; /* computes their steps */
    int64_t ctx;
    int n_pages;
    int lora_rank;          /* as of the target's steps; a draft model has no adapters */
    const uint64_t *common; /* of drafters_load */

    pthread_t thread;
    bool has_thread;
    atomic_bool stop;      /* ends the loading */
    atomic_llong since_ms; /* when it began, as of clock_date_ms; 0: none runs */
};

/* Both are ENG_DRAFTS_NONE. */
void drafters_init(struct drafters *ds);
/* Frees all, whatever state it is in; the scheduler has ended. */
void drafters_finish(struct drafters *ds);

/* ---- opening ------------------------------------------------------------------------------- */

/*
 * Reads the headers of a drafter of this directory. ENG_EUNSUPPORTED if a model of this kind cannot
 * draft for the target: it makes no tokens, or a step of it reads more than half of the bytes. Then
 * and after other errors its weights are NULL.
 */
int drafter_open(struct drafters *ds, struct drafter *d, const char *dir, char *err, size_t errlen);

/* Bytes of everything of an open one, for a served model with this context and pages. */
int64_t drafter_bytes(const struct drafters *ds, const struct drafter *d, int64_t ctx,
                      int64_t n_pages);

/* It is not used, or not any more, and why. */
void drafter_fail(struct drafter *d, const char *why);
void drafter_close(struct drafter *d);

/* ---- loading ------------------------------------------------------------------------------- */

/* See eng_load_drafts and so on. */
void drafters_load(struct drafters *ds, const uint64_t *common);
void drafters_await(struct drafters *ds);
void drafters_drop_twin(struct drafters *ds);

/* To ON: it is complete. To LOADING: it is not used any more when this returns. */
void drafter_set(struct drafters *ds, struct drafter *d, enum eng_draft_state state);

/* ---- steps, on the scheduler thread ---------------------------------------------------------- */

static inline bool drafter_is_on(const struct drafter *d)
{
    return atomic_load_explicit(&d->state, memory_order_acquire) == ENG_DRAFTS_ON;
}

/*
 * The tokens that a step with its drafts is expected to give, per time of a step without, as
 * draft_value; 0 if it is not in use, or nothing is known of steps. cost: of steps.
 */
double drafter_promise(const struct drafter *d, const struct draft_cost *cost);

/* The time of a step for n_rows drafts, as far as it is known; and that one took us. */
double drafter_us(const struct drafter *d, int n_rows, const struct draft_cost *cost);
void drafter_took(struct drafter *d, int n_rows, double us, const struct draft_cost *cost);

/* The class of a margin, below DRAFTER_MARGINS. */
int drafter_class(float margin);

/* The logits of row i of the last step, of ids that may be proposed: [vocab] of the served model.
 * n_vocab: its size. */
const float *drafter_logits(const struct drafter *d, int i, int32_t n_vocab);

/* Takes notice of a step whose id was not worth trying. */
void drafter_missed(struct drafter *d);

/* Takes notice of whether an id whose draw had this margin was right. */
void drafter_note(struct drafter *d, int margin, bool right);
