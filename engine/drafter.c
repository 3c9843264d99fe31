/* SPDX-License-Identifier: MIT */
/* The life of drafters, and the learning of their acceptance and times; see drafter.h. */
#include "engine/drafter.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/thread.h"
#include "engine/attention.h"
#include "engine/calibrate.h"
#include "engine/eng_error.h"
#include "engine/forward.h"
#include "engine/model/load.h"
#include "engine/model/model.h"
#include "engine/model/numerics.h"
#include "engine/pool.h"

enum {
    LEAST_RATIO = 2, /* a step reads at most one part in so many of what the target's reads */
    LOADING_NICE = 10,
};

static const double TWIN_SHARE = 0.45;
static const float FIRST_MEAN = 0.8f;

static bool is_twin(const struct drafters *ds, const struct drafter *d)
{
    return d == &ds->twin;
}

static void init(struct drafter *d)
{
    *d = (struct drafter){.state = ENG_DRAFTS_NONE, .mean = FIRST_MEAN, .share = TWIN_SHARE};
    for (int i = 0; i < DRAFTER_MARGINS; i++)
        d->right[i] = 0.5f + 0.5f * (float)i / DRAFTER_MARGINS;
}

void drafters_init(struct drafters *ds)
{
    *ds = (struct drafters){.common = NULL};
    init(&ds->twin);
    init(&ds->model);
    pthread_mutex_init(&ds->lock, NULL);
}

void drafters_finish(struct drafters *ds)
{
    drafters_drop_twin(ds);
    drafter_close(&ds->model);
    free(ds->twin.dir);
    free(ds->model.dir);
    pthread_mutex_destroy(&ds->lock);
}

/* ---- opening ------------------------------------------------------------------------------- */

static int refuse(const struct eng_model *m, const struct eng_model *target, char *err,
                  size_t errlen)
{
    int64_t bytes = eng_model_step_bytes(m), of = eng_model_step_bytes(target);
    if (!m->has_head || m->hp.encoder)
        return fail_with(ENG_EUNSUPPORTED, err, errlen, "it makes no tokens");
    if (m->hp.n_kv_layers + m->hp.n_shared < m->hp.n_layers)
        return fail_with(ENG_EUNSUPPORTED, err, errlen,
                         "it has recurrent layers; choose one whose layers all are attention");
    if (bytes <= of / LEAST_RATIO) return 0;
    snprintf(err, errlen,
             "each step of it reads %lld KiB of weights, more than half of the served model's "
             "%lld KiB: it would be slower than no drafts; choose a smaller one",
             (long long)(bytes >> 10), (long long)(of >> 10));
    return ENG_EUNSUPPORTED;
}

static int open_weights(struct drafters *ds, struct drafter *d, char *err, size_t errlen)
{
    const struct eng_model_params params = {.dir = d->dir,
                                            .numerics =
                                                is_twin(ds, d) ? eng_numerics_find("int4") : NULL,
                                            .drafts = true,
                                            .kern = ds->target->kern,
                                            .gemm = "native",
                                            .calibrate = ds->text ? calibrate_run : NULL,
                                            .calibrate_ctx = ds->text,
                                            .stop = &ds->stop};
    int rc = eng_model_open(&d->weights, &params, err, errlen);
    if (!rc && !is_twin(ds, d)) rc = refuse(d->weights, ds->target, err, errlen);
    if (rc) {
        drafter_close(d);
        return rc;
    }
    const struct eng_hparams *hp = &d->weights->hp;
    d->weights->reading.ahead = ds->target->reading.ahead;
    d->layout = *ds->layout;
    if (!is_twin(ds, d)) attn_layout(&d->layout, hp, KERN_KV_BF16);
    return 0;
}

int drafter_open(struct drafters *ds, struct drafter *d, const char *dir, char *err, size_t errlen)
{
    d->dir = strdup(dir);
    if (!d->dir) return fail_with(ENG_ENOMEM, err, errlen, "out of memory");
    int rc = open_weights(ds, d, err, errlen);
    if (!rc) d->state = ENG_DRAFTS_LOADING;
    return rc;
}

void drafter_fail(struct drafter *d, const char *why)
{
    snprintf(d->error, sizeof(d->error), "draft model %.100s: %s", d->dir ? d->dir : "", why);
    atomic_store(&d->state, ENG_DRAFTS_FAILED);
}

void drafter_close(struct drafter *d)
{
    free(d->data);
    free(d->rows);
    free(d->common);
    fwd_destroy(d->fwd);
    kv_pages_destroy(d->pages);
    eng_model_close(d->weights);
    d->data = NULL;
    d->rows = NULL;
    d->common = NULL;
    d->fwd = NULL;
    d->pages = NULL;
    d->weights = NULL;
}

/* ---- planning and filling ------------------------------------------------------------------ */

static int64_t own_ctx(const struct drafter *d, int64_t ctx)
{
    return ctx < d->weights->hp.ctx_max ? ctx : d->weights->hp.ctx_max;
}

static struct fwd_params forward_of(const struct drafters *ds, const struct drafter *d, int64_t ctx)
{
    return (struct fwd_params){
        .model = d->weights,
        .layout = &d->layout,
        .pool = ds->pool,
        .max_rows = is_twin(ds, d) ? DRAFTER_SEQS : DRAFTER_ROWS,
        .max_segs = DRAFTER_SEQS,
        .max_logit_rows = DRAFTER_SEQS,
        .ctx = own_ctx(d, ctx),
        .lora_rank = is_twin(ds, d) ? ds->lora_rank : 0,
    };
}

/* Pointers to the pages of a step, and rows of logits. */
static int64_t list_bytes(const struct drafters *ds, int64_t ctx)
{
    size_t one =
        (size_t)kv_pages_of(ctx) * sizeof(uint8_t *) + (size_t)ds->target->hp.vocab * sizeof(float);
    return (int64_t)(DRAFTER_SEQS * one);
}

int64_t drafter_bytes(const struct drafters *ds, const struct drafter *d, int64_t ctx,
                      int64_t n_pages)
{
    const struct fwd_params fwd = forward_of(ds, d, ctx);
    int64_t scratch, logits, pages, sum = d->weights->weights_bytes;
    fwd_plan(&fwd, ds->n_threads, &scratch, &logits);
    const int64_t parts[] = {eng_model_rope_bytes(d->weights, own_ctx(d, ctx)), scratch, logits,
                             is_twin(ds, d) ? 0 : list_bytes(ds, ctx)};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        if (__builtin_add_overflow(sum, parts[i], &sum)) return INT64_MAX;
    if (is_twin(ds, d)) return sum;
    if (__builtin_mul_overflow((int64_t)d->layout.page_bytes, n_pages, &pages) ||
        __builtin_add_overflow(sum, pages, &sum))
        return INT64_MAX;
    return sum;
}

/* The ids that may be proposed; no list if they are all there are. */
static int list_common(const struct drafters *ds, struct drafter *d)
{
    int32_t vocab = ds->target->hp.vocab, own = d->weights->hp.vocab;
    int32_t both = own < vocab ? own : vocab, n = 0;
    d->common = calloc(((size_t)vocab + 63) / 64, sizeof(*d->common));
    if (!d->common) return -1;
    for (int32_t i = 0; i < both; i++) {
        if (ds->common && !(ds->common[i / 64] >> i % 64 & 1)) continue;
        d->common[i / 64] |= UINT64_C(1) << i % 64;
        n++;
    }
    if (n < vocab) return 0;
    free(d->common);
    d->common = NULL;
    return 0;
}

/* A page for each of the target's, and lists. */
static int make_pages(const struct drafters *ds, struct drafter *d, char *err, size_t errlen)
{
    int rc = kv_pages_create(&d->pages, &d->layout, ds->n_pages, err, errlen);
    if (rc) return rc;
    for (int i = 0; i < ds->n_pages; i++)
        kv_page_get(d->pages); /* page i is the i-th */
    d->ctx = own_ctx(d, ds->ctx);
    d->max_pages = (int)kv_pages_of(ds->ctx);
    d->share = (double)eng_model_step_bytes(d->weights) / (double)eng_model_step_bytes(ds->target);
    d->data = calloc((size_t)DRAFTER_SEQS * (size_t)d->max_pages, sizeof(*d->data));
    d->rows = calloc((size_t)DRAFTER_SEQS * (size_t)ds->target->hp.vocab, sizeof(*d->rows));
    if (d->data && d->rows && list_common(ds, d) == 0) return 0;
    return fail_with(ENG_ENOMEM, err, errlen, "no memory for its lists");
}

static int fill(struct drafters *ds, struct drafter *d, struct pool *pool, char *err, size_t errlen)
{
    const struct eng_model *target = ds->target;
    int rc = d->weights ? 0 : open_weights(ds, d, err, errlen);
    if (!rc) rc = eng_model_fill(d->weights, pool, own_ctx(d, ds->ctx), err, errlen);
    if (rc) return rc;
    if (!is_twin(ds, d))
        rc = make_pages(ds, d, err, errlen);
    else if (memcmp(d->weights->fingerprint, target->fingerprint, sizeof(target->fingerprint)))
        rc = ENG_EINVAL; /* the files have changed */
    if (rc) return rc;
    const struct fwd_params fwd = forward_of(ds, d, ds->ctx);
    rc = fwd_create(&d->fwd, &fwd, err, errlen);
    if (!rc) d->model = batch_model_of(d->weights, d->fwd);
    return rc;
}

/* ---- loading ------------------------------------------------------------------------------- */

/*
 * With fewer threads than steps have, for the caller's priority. A loading that was stopped may be
 * started again. So may that of a twin, whose files must have been changed: answers are the same
 * without it, and nobody asked for it by name.
 */
static void load(struct drafters *ds, struct drafter *d)
{
    struct pool *pool = NULL;
    char err[384] = "";
    if (atomic_load(&d->state) != ENG_DRAFTS_LOADING) return;
    int rc = pool_create(&pool, ds->n_threads > 1 ? ds->n_threads - 1 : 1, err, sizeof(err));
    if (!rc) rc = fill(ds, d, pool, err, sizeof(err));
    pool_destroy(pool);
    if (!rc) {
        drafter_set(ds, d, ENG_DRAFTS_ON);
        return;
    }
    drafter_close(d);
    if (!is_twin(ds, d) && !atomic_load(&ds->stop)) drafter_fail(d, err);
}

/* With a tenth of a core where all are busy: at the lowest priority it could take for ever. */
static void *load_both(void *arg)
{
    struct drafters *ds = arg;
    setpriority(PRIO_PROCESS, (id_t)gettid(), LOADING_NICE); /* only politer; its pools too */
    load(ds, &ds->model);
    load(ds, &ds->twin);
    atomic_store(&ds->since_ms, 0);
    return NULL;
}

void drafters_load(struct drafters *ds, const uint64_t *common)
{
    if (atomic_load(&ds->since_ms)) return;
    drafters_await(ds);
    if (atomic_load(&ds->model.state) != ENG_DRAFTS_LOADING &&
        atomic_load(&ds->twin.state) != ENG_DRAFTS_LOADING)
        return;
    ds->common = common;
    atomic_store(&ds->since_ms, clock_date_ms());
    ds->has_thread = thread_start(&ds->thread, "hearth-drafts", 0, load_both, ds) == 0;
    if (!ds->has_thread) atomic_store(&ds->since_ms, 0);
}

void drafters_await(struct drafters *ds)
{
    if (ds->has_thread) pthread_join(ds->thread, NULL);
    ds->has_thread = false;
}

void drafter_set(struct drafters *ds, struct drafter *d, enum eng_draft_state state)
{
    HOLD(&ds->lock);
    atomic_store(&d->state, state);
}

void drafters_drop_twin(struct drafters *ds)
{
    atomic_store(&ds->stop, true);
    drafters_await(ds);
    if (drafter_is_on(&ds->twin)) drafter_set(ds, &ds->twin, ENG_DRAFTS_LOADING);
    drafter_close(&ds->twin);
    atomic_store(&ds->stop, false);
}

/* ---- acceptance and times ------------------------------------------------------------------ */

/* Upper ends of the margins' classes; the last class has none. */
static const float MARGIN_ENDS[DRAFTER_MARGINS - 1] = {0.05f, 0.1f, 0.2f, 0.4f, 0.8f, 1.6f, 3.2f};

/* A time that is shorter than was thought is believed sooner: a longer one may be a neighbour's. */
static const float LEARNING = 1.0f / 16;
static const double LEARNING_SHORTER = 1.0 / 4;

double drafter_us(const struct drafter *d, int n_rows, const struct draft_cost *cost)
{
    return d->us[n_rows] > 0 ? d->us[n_rows] : d->share * draft_cost_us(cost, 1);
}

double drafter_promise(const struct drafter *d, const struct draft_cost *cost)
{
    double chance = 1, n_tokens = 1, best = 0, step_us = draft_cost_us(cost, 1);
    if (!drafter_is_on(d) || step_us <= 0) return 0;
    double share = draft_cost_row(cost) + drafter_us(d, 1, cost) / step_us;
    for (int n = 1; n <= DRAFT_MAX; n++) {
        chance *= (double)d->mean;
        n_tokens += chance;
        double value = n_tokens / (1 + share * n);
        if (value > best) best = value;
    }
    return best;
}

const float *drafter_logits(const struct drafter *d, int i, int32_t n_vocab)
{
    const float *logits = d->model.logits(d->model.ctx, i);
    if (!d->common) return logits;
    int32_t n = d->model.vocab < n_vocab ? d->model.vocab : n_vocab;
    float *row = d->rows + (size_t)i * (size_t)n_vocab;
    memcpy(row, logits, (size_t)n * sizeof(*row));
    for (int32_t id = n; id < n_vocab; id++)
        row[id] = -INFINITY;
    for (int32_t at = 0; at < n; at += 64)
        for (uint64_t lacks = ~d->common[at / 64]; lacks; lacks &= lacks - 1) {
            int32_t id = at + __builtin_ctzll(lacks);
            if (id < n) row[id] = -INFINITY;
        }
    return row;
}

int drafter_class(float margin)
{
    int i = 0;
    while (i < DRAFTER_MARGINS - 1 && margin > MARGIN_ENDS[i])
        i++;
    return i;
}

static void learn(float *rate, bool right)
{
    *rate += LEARNING * ((right ? 1.0f : 0.0f) - *rate);
}

void drafter_note(struct drafter *d, int margin, bool right)
{
    learn(&d->right[margin], right);
    learn(&d->mean, right);
}

void drafter_missed(struct drafter *d)
{
    learn(&d->mean, false);
}

void drafter_took(struct drafter *d, int n_rows, double us, const struct draft_cost *cost)
{
    double known = drafter_us(d, n_rows, cost);
    d->us[n_rows] = known + (us < known ? LEARNING_SHORTER : (double)LEARNING) * (us - known);
}
