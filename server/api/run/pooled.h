/* SPDX-License-Identifier: MIT */
/*
 * n prompts in, n rows of numbers out: one engine job per prompt, each of which fills its row. For
 * routes whose answers are made of the model's last states and not of tokens.
 *
 * An endpoint opens it for its number of prompts and starts it. It is asked for each prompt, with
 * the turns of other requests in between, and once all rows are there for its answer, on a text
 * worker.
 *
 * Threads: the text worker that holds the request; rows are written by the engine's, before the
 * answer. Lives in the request's memory, zeroed at first.
 */
#ifndef HEARTH_SERVER_API_RUN_POOLED_H
#define HEARTH_SERVER_API_RUN_POOLED_H

#include "server/api/run/jobs.h"
#include "server/http/param_error.h"

struct pooled_row {
    const int32_t *ids; /* [n_ids], in the request's memory */
    int64_t n_ids;
    int64_t n_first; /* eng_job_params.n_first; 0 unless the endpoint sets it */
    float *values;   /* [width]; complete when the endpoint's answer is called */
    atomic_int finish;
};

struct srv_pooled_ops {
    /* Adds the prompt of row i with srv_pooled_add. Returns 0, or -1 with err. */
    int (*add)(void *ctx, int i, struct param_error *err);
    /* Says in p, which has the prompt, what the job is to give. */
    void (*describe)(void *ctx, struct eng_job_params *p);
    /* Writes the answer, or as much as the client takes; returns true once all is written. */
    bool (*answer)(void *ctx);
    void (*release)(void *ctx); /* after everything has ended */
};

struct srv_pooled {
    struct srv_request *req;
    const struct srv_pooled_ops *ops;
    void *ctx;
    const char *field; /* of the request that holds the prompts, for errors */
    struct pooled_row *rows;
    int n, n_max, width; /* added; opened for; of a row */
    int64_t n_tokens;    /* of all that were added */
    struct srv_jobs jobs;
};

/* Makes room for n_max rows, charged to the budget of answers. 0, or -1 with err. */
int srv_pooled_open(struct srv_pooled *p, struct srv_request *req, const char *field, size_t n_max,
                    int width, struct param_error *err);

/* Adds a prompt of at least one id, which is copied. 0, or -1 with err; of a prompt beyond the
 * context rows[n].n_ids is its length. */
int srv_pooled_add(struct srv_pooled *p, const int32_t *ids, size_t n_ids, struct param_error *err);

/* Takes the request over. */
void srv_pooled_start(struct srv_pooled *p, const struct srv_pooled_ops *ops, void *ctx);

#endif
