/* SPDX-License-Identifier: MIT */
/* See pooled.h. */
#include "server/api/run/pooled.h"

#include <assert.h>
#include <string.h>

#include "server/api/read/generation_fields.h"
#include "server/models/served_model.h"

/* A request of more prompts than these is bulk work. */
enum { FEW_PROMPTS = 16 };

/* ---- rows ---------------------------------------------------------------------------------- */

/* They are kept until all are there, so that a late error is still answered as one. */
int srv_pooled_open(struct srv_pooled *p, struct srv_request *req, const char *field, size_t n_max,
                    int width, struct param_error *err)
{
    int64_t limit = eng_info(srv_facts(req)->model->engine)->memory.answer_bytes;
    int64_t bytes = (int64_t)n_max * width * (int64_t)sizeof(float), used;
    assert(n_max > 0 && width > 0);
    *p = (struct srv_pooled){.req = req, .field = field, .n_max = (int)n_max, .width = width};
    if (bytes > limit)
        return param_fail(err, SRV_ERR_TOO_LARGE, field,
                          "The vectors of %zu inputs take %lld MiB of memory, but this server has "
                          "%lld MiB for all answers; send fewer at once.",
                          n_max, (long long)(bytes >> 20), (long long)(limit >> 20));
    if (!srv_request_charge(req, bytes, &used))
        return param_fail(err, SRV_ERR_QUEUE_FULL, NULL,
                          "The memory budget of all answers is used up (--answer-memory).");
    p->rows = srv_request_alloc(req, n_max * sizeof(*p->rows));
    return p->rows ? 0 : param_no_memory(err);
}

int srv_pooled_add(struct srv_pooled *p, const int32_t *ids, size_t n_ids, struct param_error *err)
{
    int64_t ctx = eng_info(srv_facts(p->req)->model->engine)->ctx_tokens;
    struct pooled_row *row = &p->rows[p->n];
    assert(p->n < p->n_max && n_ids > 0);
    row->n_ids = (int64_t)n_ids;
    if (row->n_ids > ctx)
        return param_fail(err, SRV_ERR_CONTEXT, p->field,
                          "This model's maximum context length is %lld tokens. However, an input "
                          "has %zu tokens, so the request exceeds the available context size "
                          "(%lld tokens).",
                          (long long)ctx, n_ids, (long long)ctx);
    int32_t *copy = srv_request_alloc(p->req, n_ids * sizeof(*copy));
    row->values = srv_request_alloc(p->req, (size_t)p->width * sizeof(float));
    if (!copy || !row->values) return param_no_memory(err);
    row->ids = memcpy(copy, ids, n_ids * sizeof(*copy));
    p->n_tokens += row->n_ids;
    p->n++;
    return 0;
}

/* ---- jobs ---------------------------------------------------------------------------------- */

static void refuse(void *ctx, enum srv_error kind, const char *message)
{
    struct srv_pooled *p = ctx;
    if (p->jobs.n_submitted) srv_facts(p->req)->account.finish_reason = "error";
    srv_reply_error(p->req, kind, NULL, "%s", message);
}

static enum srv_jobs_state prepare(void *ctx)
{
    struct srv_pooled *p = ctx;
    struct param_error err = {0};
    while (p->n < p->n_max) {
        enum srv_jobs_state state = srv_jobs_pause(&p->jobs);
        if (state != JOBS_READY) return state;
        if (!p->ops->add(p->ctx, p->n, &err)) continue;
        if (err.kind == SRV_ERR_CONTEXT)
            srv_gen_refuse_context(p->req, &err, p->rows[p->n].n_ids, 0);
        else
            param_reply(p->req, &err);
        return JOBS_REFUSED;
    }
    return JOBS_READY;
}

static int describe(void *ctx, int i, struct eng_job_params *params)
{
    struct srv_pooled *p = ctx;
    params->prompt = p->rows[i].ids;
    params->n_prompt = p->rows[i].n_ids;
    params->n_first = p->rows[i].n_first;
    params->priority = p->n > FEW_PROMPTS; /* a query passes a bulk request of the same key */
    p->ops->describe(p->ctx, params);
    return 0;
}

static void event(void *ctx, int i, const struct eng_event *ev)
{
    struct srv_pooled *p = ctx;
    struct pooled_row *row = &p->rows[i];
    if (ev->type == ENG_EVENT_POOLED) {
        assert(ev->n_logits == p->width);
        memcpy(row->values, ev->logits, (size_t)p->width * sizeof(float));
    }
    if (ev->type == ENG_EVENT_TOKEN) /* a job that asks for log-probabilities of listed ids */
        for (int k = 0; k < ev->n_top; k++)
            row->values[k] = ev->top[k].logprob;
    if (ev->type == ENG_EVENT_LOGITS) /* the last one counts, see pairs.h */
        row->values[0] = ev->logits[srv_facts(p->req)->model->pairs.ids[0]];
    if (ev->type == ENG_EVENT_CHOICE_DONE)
        atomic_store_explicit(&row->finish, (int)ev->finish, memory_order_release);
}

static bool advance(void *ctx)
{
    struct srv_pooled *p = ctx;
    struct srv_account *a = &srv_facts(p->req)->account;
    if (atomic_load(&p->jobs.gone)) return true;
    for (int i = 0; i < p->jobs.n_submitted; i++) {
        int finish = atomic_load_explicit(&p->rows[i].finish, memory_order_acquire);
        const struct srv_job_failure *failure = srv_jobs_failure(&p->jobs, finish, 0);
        if (!failure) continue;
        refuse(p, failure->kind, failure->message);
        return true;
    }
    if (!p->jobs.finished) return false;
    a->n_prompt_tokens = p->n_tokens;
    a->finish_reason = "stop";
    return p->ops->answer(p->ctx);
}

static void release(void *ctx)
{
    struct srv_pooled *p = ctx;
    p->ops->release(p->ctx);
}

void srv_pooled_start(struct srv_pooled *p, const struct srv_pooled_ops *ops, void *ctx)
{
    static const struct srv_jobs_ops jobs_ops = {.prepare = prepare,
                                                 .describe = describe,
                                                 .event = event,
                                                 .advance = advance,
                                                 .refuse = refuse,
                                                 .release = release};
    p->ops = ops;
    p->ctx = ctx;
    srv_jobs_start(&p->jobs, p->req, p->n_max, &jobs_ops, p);
}
