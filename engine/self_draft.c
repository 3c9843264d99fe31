/* SPDX-License-Identifier: MIT */
/* Acceptance and times of a second model's drafts; see self_draft.h. */
#include "engine/self_draft.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Upper ends of the margins' classes; the last class has none. */
static const float MARGIN_ENDS[SELF_DRAFT_MARGINS - 1] = {0.05f, 0.1f, 0.2f, 0.4f,
                                                          0.8f,  1.6f, 3.2f};

/* A time that is shorter than was thought is believed sooner: a longer one may be a neighbour's. */
static const float LEARNING = 1.0f / 16;
static const double LEARNING_SHORTER = 1.0 / 4;
static const float FIRST_MEAN = 0.8f;

static size_t mask_words(int32_t vocab)
{
    return ((size_t)vocab + 63) / 64;
}

int self_draft_init(struct self_draft *d, int32_t vocab)
{
    *d = (struct self_draft){.mean = FIRST_MEAN};
    for (int i = 0; i < SELF_DRAFT_MARGINS; i++)
        d->right[i] = 0.5f + 0.5f * (float)i / SELF_DRAFT_MARGINS;
    d->mask = calloc(mask_words(vocab), sizeof(*d->mask));
    d->has_lock = pthread_mutex_init(&d->lock, NULL) == 0;
    return d->mask && d->has_lock ? 0 : -1;
}

void self_draft_finish(struct self_draft *d)
{
    if (d->has_lock) pthread_mutex_destroy(&d->lock);
    free(d->mask);
    d->mask = NULL;
    d->has_lock = false;
}

int64_t self_draft_bytes(int32_t vocab)
{
    return (int64_t)(mask_words(vocab) * sizeof(uint64_t));
}

void self_draft_set(struct self_draft *d, const struct draft_source *source)
{
    pthread_mutex_lock(&d->lock);
    d->source = source ? *source : (struct draft_source){.pages = NULL};
    atomic_store_explicit(&d->share, d->source.share, memory_order_relaxed);
    atomic_store(&d->ready, source != NULL);
    pthread_mutex_unlock(&d->lock);
}

void self_draft_fail(struct self_draft *d)
{
    d->source = (struct draft_source){.pages = NULL};
    atomic_store(&d->ready, false);
    atomic_store(&d->failed, true);
}

double self_draft_us(const struct self_draft *d, int n_rows, const struct draft_cost *cost)
{
    double us = d->us[n_rows];
    if (us > 0) return us;
    return atomic_load_explicit(&d->share, memory_order_relaxed) * draft_cost_us(cost, 1);
}

double self_draft_promise(const struct self_draft *d, const struct draft_cost *cost)
{
    double chance = 1, n_tokens = 1, best = 0, step_us = draft_cost_us(cost, 1);
    if (!atomic_load_explicit(&d->ready, memory_order_relaxed) || step_us <= 0) return 0;
    double share = draft_cost_row(cost) + self_draft_us(d, 1, cost) / step_us;
    for (int n = 1; n <= DRAFT_MAX; n++) {
        chance *= (double)d->mean;
        n_tokens += chance;
        double value = n_tokens / (1 + share * n);
        if (value > best) best = value;
    }
    return best;
}

const float *self_draft_logits(const struct self_draft *d, int i, int32_t n_vocab)
{
    const struct draft_source *src = &d->source;
    const float *logits = src->model.logits(src->model.ctx, i);
    if (!src->common) return logits;
    int32_t n = src->model.vocab < n_vocab ? src->model.vocab : n_vocab;
    float *row = src->rows + (size_t)i * (size_t)n_vocab;
    memcpy(row, logits, (size_t)n * sizeof(*row));
    for (int32_t id = n; id < n_vocab; id++)
        row[id] = -INFINITY;
    for (int32_t at = 0; at < n; at += 64)
        for (uint64_t lacks = ~src->common[at / 64]; lacks; lacks &= lacks - 1) {
            int32_t id = at + __builtin_ctzll(lacks);
            if (id < n) row[id] = -INFINITY;
        }
    return row;
}

int self_draft_class(float margin)
{
    int i = 0;
    while (i < SELF_DRAFT_MARGINS - 1 && margin > MARGIN_ENDS[i])
        i++;
    return i;
}

static void learn_mean(struct self_draft *d, bool right)
{
    d->mean += LEARNING * ((right ? 1.0f : 0.0f) - d->mean);
}

void self_draft_note(struct self_draft *d, int margin, bool right)
{
    d->right[margin] += LEARNING * ((right ? 1.0f : 0.0f) - d->right[margin]);
    learn_mean(d, right);
}

void self_draft_missed(struct self_draft *d)
{
    learn_mean(d, false);
}

void self_draft_took(struct self_draft *d, int n_rows, double us, const struct draft_cost *cost)
{
    double known = self_draft_us(d, n_rows, cost);
    d->us[n_rows] = known + (us < known ? LEARNING_SHORTER : (double)LEARNING) * (us - known);
}
