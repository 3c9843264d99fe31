/* SPDX-License-Identifier: MIT */
/* Opening, planning and loading the draft model; see draft_model.h. */
#include "engine/draft_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/eng_error.h"
#include "engine/forward.h"
#include "engine/model/load.h"
#include "engine/model/model.h"
#include "engine/model/numerics.h"

/* A step of it may read one part in so many of what a step of the target reads. */
enum { LEAST_RATIO = 2 };

static int refuse(const struct eng_model *m, const struct eng_model *target, char *err,
                  size_t errlen)
{
    int64_t bytes = eng_model_step_bytes(m), of = eng_model_step_bytes(target);
    if (!m->has_head || m->hp.encoder) {
        snprintf(err, errlen, "it makes no tokens");
        return ENG_EUNSUPPORTED;
    }
    if (m->hp.n_kv_layers < m->hp.n_layers) {
        snprintf(err, errlen, "it has recurrent layers; choose one whose layers all are attention");
        return ENG_EUNSUPPORTED;
    }
    if (bytes <= of / LEAST_RATIO) return 0;
    snprintf(err, errlen,
             "each step of it reads %lld KiB of weights, more than half of the served model's "
             "%lld KiB: it would be slower than no drafts; choose a smaller one",
             (long long)(bytes >> 10), (long long)(of >> 10));
    return ENG_EUNSUPPORTED;
}

int draft_model_open(struct draft_model *m, const char *dir, const struct kern *kern,
                     const struct eng_model *target, const atomic_bool *stop, char *err,
                     size_t errlen)
{
    const struct eng_numerics *numerics = eng_numerics_find("int4");
    const struct eng_model_params params = {
        .dir = dir, .numerics = numerics, .kern = kern, .gemm = "native", .stop = stop};
    *m = (struct draft_model){.model = NULL};
    int rc = eng_model_open(&m->model, &params, err, errlen);
    if (!rc) rc = refuse(m->model, target, err, errlen);
    if (rc) {
        draft_model_close(m);
        return rc;
    }
    const struct eng_hparams *hp = &m->model->hp;
    m->model->reading.ahead = target->reading.ahead;
    kv_layout_init(&m->layout, hp->n_layers, hp->n_kv_heads, hp->d_head, numerics->kv);
    return 0;
}

static int64_t own_ctx(const struct draft_model *m, int64_t ctx)
{
    return ctx < m->model->hp.ctx_max ? ctx : m->model->hp.ctx_max;
}

static struct fwd_params forward_of(const struct draft_model *m, struct pool *pool, int64_t ctx)
{
    return (struct fwd_params){
        .model = m->model,
        .layout = &m->layout,
        .pool = pool,
        .max_rows = SELF_DRAFT_ROWS,
        .max_segs = SELF_DRAFT_SEQS,
        .max_logit_rows = SELF_DRAFT_SEQS,
        .ctx = own_ctx(m, ctx),
    };
}

/* Pointers to the pages of a step, and rows of logits. */
static size_t list_bytes(int64_t ctx, int32_t vocab)
{
    size_t one = (size_t)kv_pages_of(ctx) * sizeof(uint8_t *) + (size_t)vocab * sizeof(float);
    return SELF_DRAFT_SEQS * one;
}

int64_t draft_model_bytes(const struct draft_model *m, int64_t ctx, int64_t n_pages, int32_t vocab,
                          int n_threads)
{
    const struct fwd_params fwd = forward_of(m, NULL, ctx);
    int64_t scratch, logits, pages, sum = m->model->weights_bytes;
    fwd_plan(&fwd, n_threads, &scratch, &logits);
    const int64_t parts[] = {eng_model_rope_bytes(m->model, own_ctx(m, ctx)), scratch, logits,
                             (int64_t)list_bytes(ctx, vocab)};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        if (__builtin_add_overflow(sum, parts[i], &sum)) return INT64_MAX;
    if (__builtin_mul_overflow((int64_t)m->layout.page_bytes, n_pages, &pages) ||
        __builtin_add_overflow(sum, pages, &sum))
        return INT64_MAX;
    return sum;
}

static bool has_all(const uint64_t *bits, int32_t n)
{
    int32_t i = 0;
    while (i < n && bits[i / 64] >> i % 64 & 1)
        i++;
    return i == n;
}

/* The ids that may be proposed; source.common stays NULL if they are all there are. */
static int set_common(struct draft_model *m, const struct draft_model_fill *p)
{
    size_t n_words = ((size_t)p->vocab + 63) / 64;
    int32_t both = m->model->hp.vocab < p->vocab ? m->model->hp.vocab : p->vocab;
    m->common = calloc(n_words, sizeof(*m->common));
    if (!m->common) return -1;
    for (int32_t i = 0; i < both; i++)
        if (!p->common || p->common[i / 64] >> i % 64 & 1)
            m->common[i / 64] |= UINT64_C(1) << i % 64;
    if (!has_all(m->common, p->vocab)) m->source.common = m->common;
    return 0;
}

static int make_lists(struct draft_model *m, const struct draft_model_fill *p)
{
    int most = (int)kv_pages_of(p->ctx);
    m->source = (struct draft_source){
        .share = p->share,
        .pages = m->pages,
        .ctx = own_ctx(m, p->ctx),
        .data = calloc((size_t)SELF_DRAFT_SEQS * (size_t)most, sizeof(uint8_t *)),
        .max_pages = most,
        .rows = calloc((size_t)SELF_DRAFT_SEQS * (size_t)p->vocab, sizeof(float)),
    };
    return m->source.data && m->source.rows ? set_common(m, p) : -1;
}

int draft_model_fill(struct draft_model *m, const struct draft_model_fill *p, char *err,
                     size_t errlen)
{
    int rc = eng_model_fill(m->model, p->loads, own_ctx(m, p->ctx), err, errlen);
    if (!rc) rc = kv_pages_create(&m->pages, &m->layout, p->n_pages, err, errlen);
    if (rc) return rc;
    for (int i = 0; i < p->n_pages; i++)
        kv_page_get(m->pages); /* page i is the i-th */
    const struct fwd_params fwd = forward_of(m, p->computes, p->ctx);
    rc = fwd_create(&m->fwd, &fwd, err, errlen);
    if (rc || make_lists(m, p) == 0) return rc;
    snprintf(err, errlen, "no memory for its lists");
    return ENG_ENOMEM;
}

void draft_model_close(struct draft_model *m)
{
    free(m->source.data);
    free(m->source.rows);
    free(m->common);
    fwd_destroy(m->fwd);
    kv_pages_destroy(m->pages);
    eng_model_close(m->model);
    *m = (struct draft_model){.model = NULL};
}
