/* SPDX-License-Identifier: MIT */
#include "server/api/pooled/pooled.h"

#include <assert.h>
#include <string.h>

#include "server/api/read/generation_fields.h"
#include "server/bounds.h"
#include "server/models/served_model.h"

enum {
    FEW_PROMPTS = 16,       /* a request of more prompts than these is bulk work */
    PIECE_BYTES = 16 << 10, /* of a long answer; one item may be longer */
    HEAD_BYTES = 1 << 20    /* of what is around the items, at most */
};

/* ---- rows ---------------------------------------------------------------------------------- */

/* They are kept until all are there, so that a late error is still answered as one. */
int srv_pooled_open(struct srv_pooled *p, const char *field, size_t n_max, int width)
{
    int64_t limit = p->info->memory.answer_bytes;
    int64_t bytes = (int64_t)n_max * width * (int64_t)sizeof(float), used;
    assert(n_max > 0 && width >= 0);
    p->field = field;
    p->n_max = (int)n_max;
    p->width = width;
    if (bytes > limit)
        return param_fail(SRV_ERR_TOO_LARGE, field,
                          "The vectors of %zu inputs take %lld MiB of memory, but this server has "
                          "%lld MiB for all answers; send fewer at once.",
                          n_max, (long long)(bytes >> 20), (long long)(limit >> 20));
    if (!srv_request_charge(p->req, bytes, &used))
        return param_fail(SRV_ERR_QUEUE_FULL, NULL,
                          "The memory budget of all answers is used up (--answer-memory).");
    p->rows = srv_request_alloc(p->req, n_max * sizeof(*p->rows));
    return p->rows ? 0 : param_no_memory();
}

int srv_pooled_add(struct srv_pooled *p, const int32_t *ids, size_t n_ids)
{
    int64_t ctx = p->info->ctx_tokens;
    struct pooled_row *row = &p->rows[p->n];
    assert(p->n < p->n_max && n_ids > 0);
    row->n_ids = (int64_t)n_ids;
    p->n_long = row->n_ids > ctx ? row->n_ids : 0;
    if (p->n_long)
        return param_fail(SRV_ERR_CONTEXT, p->field,
                          "This model's maximum context length is %lld tokens. However, an input "
                          "has %zu tokens, so the request exceeds the available context size "
                          "(%lld tokens).",
                          (long long)ctx, n_ids, (long long)ctx);
    row->ids = srv_request_copy(p->req, ids, n_ids * sizeof(*ids));
    row->values = srv_request_alloc(p->req, (size_t)p->width * sizeof(float));
    if (!row->ids || !row->values) return param_no_memory();
    p->n_tokens += row->n_ids;
    p->n++;
    return 0;
}

/* ---- answer -------------------------------------------------------------------------------- */

void srv_pooled_write_usage(const struct srv_pooled *p, struct jw *w)
{
    jw_fields(w, "usage { prompt_tokens %jd total_tokens %jd }", p->n_tokens, p->n_tokens);
}

void srv_pooled_write_meta(struct jw *w, const char *unit, int64_t n)
{
    jw_fields(w, "meta { api_version { version %s } billed_units {", "2");
    jw_int(w, unit, n);
    jw_fields(w, "} }");
}

static void begin(struct srv_pooled *p, struct jw *w)
{
    const char *list = p->dialect->list;
    unsigned flags = p->dialect->flags;
    if (list) jw_open(w, NULL, '{');
    if (list && !(flags & POOLED_NO_ID)) jw_text(w, "id", srv_facts(p->req)->id);
    if (list && !(flags & POOLED_NO_OBJECT)) jw_text(w, "object", "list");
    if (list && !(flags & POOLED_NO_MODEL)) jw_text(w, "model", p->model);
    jw_open(w, list, '[');
}

static void end(struct srv_pooled *p, struct jw *w)
{
    jw_close(w);
    if (!p->dialect->list) return;
    srv_pooled_write_usage(p, w);
    jw_close(w);
}

/* Appends the next piece of the answer; returns true if that was the last. */
static bool write_piece(void *ctx, struct buf *b)
{
    struct srv_pooled *p = ctx;
    const struct pooled_dialect *d = p->dialect;
    size_t most = b->len + PIECE_BYTES;
    bool first = !p->w.out;
    if (first) jw_init(&p->w, b);
    p->w.out = b;
    if (first) (d->begin ? d->begin : begin)(p, &p->w);
    for (; p->n_written < p->n_items; p->n_written++) {
        if (b->len >= most || b->failed) return false;
        d->item(p, &p->w, p->n_written);
    }
    (d->end ? d->end : end)(p, &p->w);
    jw_end(&p->w);
    return true;
}

/* All rows are there. Returns true once the answer is written. */
static bool answer(struct srv_pooled *p)
{
    const struct pooled_endpoint *e = p->dialect->endpoint;
    bool begins = !p->n_items;
    if (begins) p->n_items = p->n;
    if (begins && e->sort) e->sort(p);
    if (begins)
        p->pieces = (struct srv_pieces){write_piece, p, p->answer_bytes + HEAD_BYTES, false};
    if (e->in_pieces && p->answer_bytes >= SRV_SMALL_ANSWER_BYTES)
        return srv_pieces_reply(p->req, &p->pieces);
    srv_pieces_reply_whole(p->req, &p->pieces);
    return true;
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
    while (p->n < p->n_max) {
        enum srv_jobs_state state = srv_jobs_pause(&p->jobs);
        if (state != JOBS_READY) return state;
        if (!p->dialect->endpoint->add(p, p->n)) continue;
        if (param_error.kind == SRV_ERR_CONTEXT && p->n_long)
            srv_gen_refuse_context(p->req, p->n_long, p->max_tokens);
        else
            param_reply(p->req);
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
    p->dialect->endpoint->describe(p, i, params);
    return 0;
}

static void fill_row(struct srv_pooled *p, int i, const struct eng_event *ev)
{
    struct pooled_row *row = &p->rows[i];
    if (ev->type == ENG_EVENT_POOLED) {
        assert(ev->n_logits == p->width);
        memcpy(row->values, ev->logits, (size_t)p->width * sizeof(float));
    }
    if (ev->type == ENG_EVENT_TOKEN) /* a job that asks for log-probabilities of listed ids */
        for (int k = 0; k < ev->n_top; k++)
            row->values[k] = ev->top[k].logprob;
    if (ev->type == ENG_EVENT_LOGITS) /* the last one counts, see pairs.h */
        row->values[0] = ev->logits[p->served->pairs.ids[0]];
}

/* Of several choices a failure counts. */
static void event(void *ctx, int i, const struct eng_event *ev)
{
    struct srv_pooled *p = ctx;
    const struct pooled_endpoint *e = p->dialect->endpoint;
    atomic_int *finish = &p->rows[i].finish;
    bool good = ev->finish == ENG_FINISH_STOP || ev->finish == ENG_FINISH_LENGTH;
    (e->event ? e->event : fill_row)(p, i, ev);
    if (ev->type == ENG_EVENT_CHOICE_DONE && (!good || !atomic_load(finish)))
        atomic_store_explicit(finish, (int)ev->finish, memory_order_release);
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
    return answer(p);
}

static void release(void *ctx)
{
    struct srv_pooled *p = ctx;
    if (p->dialect->endpoint->release) p->dialect->endpoint->release(p);
    tok_ids_finish(&p->rules.front.ids);
    srv_body_finish(&p->body);
}

/* ---- request ------------------------------------------------------------------------------- */

static int read_request(struct srv_pooled *p)
{
    const struct pooled_endpoint *e = p->dialect->endpoint;
    params_preset(e->fields, p);
    if (srv_body_take(&p->body, srv_facts(p->req), TEXTS_MAX_VALUES) ||
        params_read(p->body.root, e->fields, p, &p->unknown) || e->check(p))
        return -1;
    p->model = srv_gen_model_name(srv_facts(p->req), p->model);
    if (!p->model || texts_rules_set(p) || e->open(p)) return -1;
    return param_name_ignored(p->req, &p->unknown);
}

void srv_pooled_init(struct srv_pooled *p, struct srv_request *req,
                     const struct pooled_dialect *dialect)
{
    p->req = req;
    p->dialect = dialect;
    p->served = srv_facts(req)->model;
    p->info = eng_info(p->served->engine);
}

void srv_pooled_start(struct srv_pooled *p)
{
    static const struct srv_jobs_ops ops = {.prepare = prepare,
                                            .describe = describe,
                                            .event = event,
                                            .advance = advance,
                                            .refuse = refuse,
                                            .release = release};
    srv_jobs_start(&p->jobs, p->req, p->n_max, &ops, p);
}

void srv_pooled_handle(struct srv_request *req)
{
    struct srv_facts *facts = srv_facts(req);
    const struct pooled_dialect *dialect = facts->arg;
    struct srv_pooled *p = srv_request_alloc(req, dialect->endpoint->bytes);
    facts->account.endpoint = dialect->endpoint->name;
    int rc = p ? 0 : param_no_memory();
    if (p) srv_pooled_init(p, req, dialect);
    if (!rc) rc = read_request(p);
    if (!rc) srv_pooled_start(p);
    if (rc && p) release(p);
    if (rc) param_reply(req);
}
