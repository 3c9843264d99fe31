/* SPDX-License-Identifier: MIT */
/*
 * How a model judges a query and a document: the prompt that holds both, and the logit that comes
 * of it. Two kinds of models: those with a head of one label, and those that answer yes or no.
 *
 * The prompt is a template with {query}, {document} and {instruction}, or, for a model with a head
 * and without a template, the pair as its tokenizer joins it, the longer text cut first. Text of
 * the request never becomes control tokens.
 *
 * Threads: const once opened.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/engine.h"
#include "server/models/retrieval.h"
#include "tokenizer/tokenizer.h"

struct srv_config;

struct srv_pairs {
    const struct tok *tok; /* borrowed, as is info */
    const struct eng_info *info;
    char *template; /* owned; NULL: none. An instruction is used if it has {instruction} */
    bool judges;    /* by yes and no */
    int32_t ids[2]; /* of yes and no; no -1: the logit of yes after the prompt is the row */
};

/*
 * Sets them by the model's files and the options rerank_template and rerank_tokens. Returns 0 or -1
 * with a sentence in err; the template is to be freed in both cases.
 */
int srv_pairs_open(struct srv_pairs *p, const struct tok *tok, const struct eng_info *info,
                   const struct srv_retrieval *files, const struct srv_config *config, char *err,
                   size_t errlen);

/* Numbers of a row of a pooled job, the job's parameters, and the logit of its row. */
int srv_pairs_width(const struct srv_pairs *p);
void srv_pairs_describe(const struct srv_pairs *p, struct eng_job_params *params);
float srv_pairs_logit(const struct srv_pairs *p, const float *row);

/* The common part of pairs of one query and instruction, which are known by their addresses. Zeroed
 * at first. */
struct srv_pair_front {
    const char *query, *instruction; /* borrowed */
    struct tok_ids ids; /* owned: of the query, or of a template's text before the document */
    bool made;
};

struct srv_pair_text {
    const char *query, *document;
    size_t n_query, n_document;
    const char *instruction;      /* NULL: the usual one */
    int64_t document_tokens;      /* the document is cut to so many; 0: whole */
    int64_t most_tokens;          /* joined pairs are cut to so many; 0: whole */
    struct srv_pair_front *front; /* the caller's, of the pairs before */
};

struct srv_pair_ids {
    struct tok_ids ids; /* owned */
    size_t n_tail;      /* ids after the document */
    size_t n_first;     /* of a joined pair, those of token type 0; else 0 */
    bool cut;           /* to most_tokens */
};

/* Returns 0, or an enum tok_error with a sentence. */
int srv_pairs_encode(const struct srv_pairs *p, const struct srv_pair_text *pair,
                     struct srv_pair_ids *ret, char *err, size_t errlen);
