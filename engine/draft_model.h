/* SPDX-License-Identifier: MIT */
/*
 * The draft model: a smaller model with the served model's tokenizer, on path int4, that writes
 * drafts (self_draft.h). Its page i holds its keys and values for the tokens of page i of the
 * served model.
 *
 * draft_model_open reads headers, so that its memory is planned with everything else;
 * draft_model_fill loads it later, on any thread. Errors are enum eng_error with a sentence.
 */
#ifndef HEARTH_ENGINE_DRAFT_MODEL_H
#define HEARTH_ENGINE_DRAFT_MODEL_H

#include <stdatomic.h>
#include <stdint.h>

#include "engine/kv/kv.h"
#include "engine/self_draft.h"

struct eng_model;
struct fwd;
struct kern;
struct pool;

struct draft_model {
    struct eng_model *model; /* NULL: there is none */
    struct kv_layout layout;
    struct fwd *fwd;
    struct kv_pages *pages;
    uint64_t *common; /* [(vocab of the served model + 63) / 64] */
    struct draft_source source;
};

/*
 * ENG_EUNSUPPORTED if a model of this kind cannot draft for the target: it makes no tokens, or a
 * step of it reads more than half of the bytes.
 */
int draft_model_open(struct draft_model *m, const char *dir, const struct kern *kern,
                     const struct eng_model *target, const atomic_bool *stop, char *err,
                     size_t errlen);

/* Bytes of everything next to a served model with this context, pages and vocabulary. */
int64_t draft_model_bytes(const struct draft_model *m, int64_t ctx, int64_t n_pages, int32_t vocab,
                          int n_threads);

/* Sizes as for draft_model_bytes. */
struct draft_model_fill {
    struct pool *loads, *computes; /* the second is borrowed until draft_model_close */
    int64_t ctx;
    int n_pages;
    int32_t vocab;
    const uint64_t *common; /* ids that both tokenizers have, copied; NULL: all that both number */
    double share;           /* of draft_source */
};

/* Afterwards m->source is complete but for the functions of its model. */
int draft_model_fill(struct draft_model *m, const struct draft_model_fill *p, char *err,
                     size_t errlen);

/* Nothing, and halves, are fine. */
void draft_model_close(struct draft_model *m);

#endif
