/* SPDX-License-Identifier: MIT */
/*
 * POST /v1/choose: the exact probabilities of a closed list of continuations; and chats that ask
 * for those of their structured choices.
 *
 * A choice's tokens are forced by a guide, and their log-probabilities summed: the numbers that
 * scoring by echo gives, bit for bit. Choices of one token that are scored without their end are
 * read off the prompt's last row, all at once.
 */
#include "server/api/choose.h"

#include <assert.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_writer.h"
#include "engine/engine.h"
#include "server/api/choose_fields.h"
#include "server/api/read/generation_fields.h"
#include "server/api/routes.h"
#include "server/api/run/jobs.h"
#include "server/api/write/openai_json.h"
#include "server/models/served_model.h"

enum { ANSWER_MAX = 1 << 20, FACTOR = 6 /* bytes that a byte of text may take as JSON */ };

struct choosing;

/* One choice; its numbers are written by the engine's thread before the job's `finish`. */
struct scored {
    const struct choosing *owner;
    const struct choose_option *option;
    int at; /* ids taken */
    double logprob;
    double score, probability;
};

struct choosing_job {
    int first, n; /* of `order` */
    bool listed;  /* choices of one token, read off one row */
    atomic_int finish;
};

struct choosing {
    struct srv_request *req;
    struct srv_gen *chat; /* that asks, owned; NULL: the route of its own */
    const struct eng_info *info;
    struct srv_body tree;
    struct choose_body body;
    struct scored *scored; /* [n_options] in the request's order */
    struct scored **order; /* [n_options] those of a listed job first */
    int32_t *listed_ids;   /* of these */
    int n_listed;
    struct choosing_job *parts; /* [jobs.n] */
    struct eng_guide *guides;   /* [max_choices] of the job that is described */
    struct eng_usage usage;     /* of the first job */
    struct srv_jobs jobs;
};

/* ---- the guide that forces a choice -------------------------------------------------------- */

static void allow(uint64_t *bits, int32_t id)
{
    bits[id / 64] |= UINT64_C(1) << (id % 64);
}

static enum eng_guide_next force_mask(void *ctx, uint64_t *bits, struct eng_pace *pace)
{
    const struct scored *s = ctx;
    const struct eng_info *info = s->owner->info;
    int n = s->option->n_ids;
    (void)pace;
    if (s->at >= n + s->owner->body.ends) return ENG_GUIDE_END;
    memset(bits, 0, ((size_t)info->vocab_size + 63) / 64 * sizeof(*bits));
    if (s->at < n)
        allow(bits, s->option->ids[s->at]);
    else
        for (int i = 0; i < info->n_eos_ids; i++)
            allow(bits, info->eos_ids[i]);
    return ENG_GUIDE_MASK;
}

static bool force_take(void *ctx, int32_t id)
{
    struct scored *s = ctx;
    assert(s->at >= s->option->n_ids || id == s->option->ids[s->at]);
    s->at++;
    return true;
}

static bool force_complete(void *ctx)
{
    const struct scored *s = ctx;
    return s->at >= s->option->n_ids;
}

static int force_foresee(void *ctx, const int32_t *ids, int n)
{
    const struct scored *s = ctx;
    int i = 0;
    while (i < n && s->at + i < s->option->n_ids && ids[i] == s->option->ids[s->at + i])
        i++;
    return i;
}

static int force_propose(void *ctx, int32_t *ids, int n)
{
    const struct scored *s = ctx;
    int left = s->option->n_ids - s->at;
    if (n > left) n = left > 0 ? left : 0;
    memcpy(ids, s->option->ids + s->at, (size_t)n * sizeof(*ids));
    return n;
}

/* ---- jobs ---------------------------------------------------------------------------------- */

static int describe(void *ctx, int i, struct eng_job_params *p)
{
    struct choosing *c = ctx;
    const struct choosing_job *job = &c->parts[i];
    p->prompt = c->body.context;
    p->n_prompt = c->body.n_context;
    p->sampling.temperature = 0;
    p->ignore_eos = true; /* a choice may hold such an id; the guide ends it */
    p->n_logprobs = 0;
    p->max_tokens = 1;
    if (c->chat) srv_gen_describe(c->chat, p);
    if (job->listed) {
        p->listed_ids = c->listed_ids;
        p->n_listed_ids = c->n_listed;
        return 0;
    }
    p->max_tokens = CHOOSE_MAX_CHOICE_TOKENS + 1;
    p->n_choices = job->n;
    p->guides = c->guides;
    for (int k = 0; k < job->n; k++)
        c->guides[k] = (struct eng_guide){.ctx = c->order[job->first + k],
                                          .mask = force_mask,
                                          .take = force_take,
                                          .complete = force_complete,
                                          .foresee = force_foresee,
                                          .propose = force_propose};
    if (c->body.ends) p->listed_ids = c->info->eos_ids;
    if (c->body.ends) p->n_listed_ids = c->info->n_eos_ids;
    return 0;
}

/* The logarithm of the summed probabilities; of one, its own. */
static double log_sum(const struct eng_logprob *of, int n)
{
    double sum = 0;
    if (n == 1) return of[0].logprob;
    for (int i = 0; i < n; i++)
        sum += exp(of[i].logprob);
    return log(sum);
}

static void take_token(struct choosing *c, const struct choosing_job *job,
                       const struct eng_event *ev)
{
    struct scored *s = c->order[job->first + ev->choice];
    if (job->listed)
        for (int i = 0; i < ev->n_top; i++)
            c->order[job->first + i]->logprob = ev->top[i].logprob;
    else if (ev->index < s->option->n_ids)
        s->logprob += ev->logprob;
    else
        s->logprob += log_sum(ev->top, ev->n_top);
}

static void event(void *ctx, int i, const struct eng_event *ev)
{
    struct choosing *c = ctx;
    struct choosing_job *job = &c->parts[i];
    if (ev->type == ENG_EVENT_TOKEN) take_token(c, job, ev);
    if (ev->type == ENG_EVENT_JOB_DONE && i == 0) c->usage = *ev->usage;
    bool good = ev->finish == ENG_FINISH_STOP || ev->finish == ENG_FINISH_LENGTH;
    int finish = atomic_load_explicit(&job->finish, memory_order_relaxed);
    if (ev->type == ENG_EVENT_CHOICE_DONE && (!good || !finish))
        atomic_store_explicit(&job->finish, (int)ev->finish, memory_order_release);
}

static void fail(void *ctx, enum srv_error kind, const char *message)
{
    struct choosing *c = ctx;
    if (c->jobs.n_submitted) srv_facts(c->req)->account.finish_reason = "error";
    srv_reply_error(c->req, kind, NULL, "%s", message);
}

/* ---- answer -------------------------------------------------------------------------------- */

static double score_of(const struct choosing *c, const struct scored *s)
{
    return c->body.by_mean ? s->logprob / (s->option->n_ids + c->body.ends) : s->logprob;
}

/* Best first, ties in the request's order. */
static int by_score(const void *a, const void *b)
{
    const struct scored *x = *(struct scored *const *)a, *y = *(struct scored *const *)b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x < y ? -1 : x > y;
}

/* Sets scores and probabilities and sorts `order`. Returns the entropy in nats. */
static double weigh(struct choosing *c)
{
    int n = c->body.n_options;
    double sum = 0, entropy = 0;
    for (int i = 0; i < n; i++) {
        c->scored[i].score = score_of(c, &c->scored[i]);
        c->order[i] = &c->scored[i];
    }
    qsort(c->order, (size_t)n, sizeof(*c->order), by_score);
    double best = c->order[0]->score;
    for (int i = 0; i < n; i++)
        sum += exp(c->scored[i].score - best);
    for (int i = 0; i < n; i++) {
        double p = exp(c->scored[i].score - best) / sum;
        c->scored[i].probability = p;
        if (p > 0) entropy -= p * log(p);
    }
    return entropy;
}

static void write_choice(const struct choosing *c, struct jw *w, const struct scored *s)
{
    const struct choose_option *o = s->option;
    jw_open(w, NULL, '{');
    jw_int(w, "index", s - c->scored);
    if (o->text)
        jw_string(w, "text", o->text, o->len);
    else
        jw_null(w, "text");
    jw_number(w, "logprob", s->logprob);
    jw_int(w, "tokens", o->n_ids);
    jw_number(w, "probability", s->probability);
    jw_close(w);
}

static void write_usage(const struct choosing *c, struct jw *w)
{
    int64_t n_scored = 0;
    for (int i = 0; i < c->body.n_options; i++)
        n_scored += c->body.options[i].n_ids + c->body.ends;
    jw_open(w, "usage", '{');
    jw_int(w, "prompt_tokens", c->body.n_context);
    jw_int(w, "completion_tokens", 0);
    jw_int(w, "total_tokens", c->body.n_context);
    jw_int(w, "scored_tokens", n_scored);
    jw_open(w, "prompt_tokens_details", '{');
    jw_int(w, "cached_tokens", c->usage.n_cached_tokens);
    jw_close(w);
    jw_close(w);
}

static void write_choices(const struct choosing *c, struct jw *w, const char *name)
{
    int n = c->body.top && c->body.top < c->body.n_options ? (int)c->body.top : c->body.n_options;
    jw_open(w, name, '[');
    for (int i = 0; i < n; i++)
        write_choice(c, w, c->body.top ? c->order[i] : &c->scored[i]);
    jw_close(w);
}

static void write_answer(const struct choosing *c, struct jw *w, double entropy)
{
    const struct srv_facts *facts = srv_facts(c->req);
    const struct choose_option *best = c->order[0]->option;
    char id[48];
    snprintf(id, sizeof(id), "choose-%s", facts->unique);
    jw_open(w, NULL, '{');
    jw_text(w, "id", id);
    jw_text(w, "object", "choices");
    jw_text(w, "model", c->body.model);
    write_choices(c, w, "choices");
    if (best->text)
        jw_string(w, "best", best->text, best->len);
    else
        jw_null(w, "best");
    jw_number(w, "entropy", entropy);
    write_usage(c, w);
    jw_text(w, "system_fingerprint", facts->model->fingerprint);
    jw_close(w);
}

/* A chat completion: the best choice is its message. */
static void write_chat(const struct choosing *c, struct jw *w)
{
    const struct choose_option *best = c->order[0]->option;
    srv_gen_open_answer(c->chat, w);
    jw_open(w, NULL, '{');
    jw_int(w, "index", 0);
    jw_open(w, "message", '{');
    jw_text(w, "role", "assistant");
    jw_string(w, "content", best->text, best->len);
    jw_null(w, "refusal");
    jw_close(w);
    jw_null(w, "logprobs");
    jw_text(w, "finish_reason", "stop");
    write_choices(c, w, "choice_probabilities");
    jw_close(w);
    jw_close(w);
    c->chat->prompts[0].usage = c->usage;
    atomic_store(&c->chat->prompts[0].stage, GEN_DONE);
    srv_gen_write_usage(c->chat, w);
    jw_close(w);
}

static void answer(struct choosing *c)
{
    struct buf b;
    struct jw w;
    size_t bytes = ANSWER_MAX;
    for (int i = 0; i < c->body.n_options; i++)
        bytes += FACTOR * c->body.options[i].len;
    double entropy = weigh(c);
    buf_init(&b, bytes);
    jw_init(&w, &b);
    if (c->chat)
        write_chat(c, &w);
    else
        write_answer(c, &w, entropy);
    srv_reply(c->req, 200, NULL, jw_end(&w));
}

static bool advance(void *ctx)
{
    struct choosing *c = ctx;
    struct srv_account *a = &srv_facts(c->req)->account;
    if (atomic_load(&c->jobs.gone)) return true;
    for (int i = 0; i < c->jobs.n_submitted; i++) {
        int finish = atomic_load_explicit(&c->parts[i].finish, memory_order_acquire);
        const struct srv_job_failure *failure = srv_jobs_failure(&c->jobs, finish, 0);
        if (!failure) continue;
        fail(c, failure->kind, failure->message);
        return true;
    }
    if (!c->jobs.finished) return false;
    a->n_prompt_tokens = c->body.n_context;
    a->n_cached_tokens = c->usage.n_cached_tokens;
    a->finish_reason = "stop";
    if (c->chat) a->model = c->chat->model;
    answer(c);
    return true;
}

static void release(void *ctx)
{
    struct choosing *c = ctx;
    if (c->chat) srv_gen_release(c->chat);
    srv_body_finish(&c->tree);
}

/* ---- request ------------------------------------------------------------------------------- */

static bool is_listed(const struct choosing *c, const struct choose_option *o)
{
    return o->n_ids == 1 && !c->body.ends;
}

/* Those of one token first. */
static void order_options(struct choosing *c)
{
    int n = c->body.n_options, n_forced = 0;
    for (int i = 0; i < n; i++) {
        const struct choose_option *o = &c->body.options[i];
        c->scored[i] = (struct scored){.owner = c, .option = o};
        if (!is_listed(c, o)) continue;
        c->listed_ids[c->n_listed] = o->ids[0];
        c->order[c->n_listed++] = &c->scored[i];
    }
    for (int i = 0; i < n; i++)
        if (!is_listed(c, c->scored[i].option)) c->order[c->n_listed + n_forced++] = &c->scored[i];
}

static int plan_jobs(struct choosing *c, struct param_error *err)
{
    size_t n = (size_t)c->body.n_options;
    int most = c->info->max_choices;
    c->scored = srv_request_alloc(c->req, n * sizeof(*c->scored));
    c->order = srv_request_alloc(c->req, n * sizeof(struct scored *));
    c->listed_ids = srv_request_alloc(c->req, n * sizeof(*c->listed_ids));
    c->parts = srv_request_alloc(c->req, n * sizeof(*c->parts));
    c->guides = srv_request_alloc(c->req, (size_t)most * sizeof(*c->guides));
    if (!c->scored || !c->order || !c->listed_ids || !c->parts || !c->guides)
        return param_no_memory(err);
    order_options(c);
    c->jobs.n = 0;
    if (c->n_listed > 0) c->parts[c->jobs.n++] = (struct choosing_job){0, c->n_listed, true, 0};
    for (int at = c->n_listed; at < c->body.n_options; at += most) {
        int left = c->body.n_options - at;
        c->parts[c->jobs.n++] = (struct choosing_job){.first = at, .n = left < most ? left : most};
    }
    return 0;
}

static enum srv_jobs_state prepare(void *ctx)
{
    struct choosing *c = ctx;
    struct param_error err = {0};
    int rc = 0;
    while (!rc && c->body.n_options < c->body.n_all) {
        enum srv_jobs_state state = srv_jobs_pause(&c->jobs);
        if (state != JOBS_READY) return state;
        rc = choose_option_read(&c->body, &err);
    }
    if (!rc) rc = plan_jobs(c, &err);
    if (!rc) return JOBS_READY;
    if (c->chat && err.kind == SRV_ERR_CONTEXT)
        srv_gen_refuse_context(c->req, &err, c->chat->prompts[0].n_ids, c->chat->max_tokens);
    else
        param_reply(c->req, &err);
    return JOBS_REFUSED;
}

static void start(struct choosing *c)
{
    static const struct srv_jobs_ops ops = {.prepare = prepare,
                                            .describe = describe,
                                            .event = event,
                                            .advance = advance,
                                            .refuse = fail,
                                            .release = release};
    srv_jobs_start(&c->jobs, c->req, c->body.n_all, &ops, c);
}

static int check_model(const struct choosing *c, struct param_error *err)
{
    if (c->info->generates) return 0;
    return param_fail(
        err, SRV_ERR_UNSUPPORTED_TASK, "model",
        "This model makes no tokens, so choices have no probabilities; ask /v1/rerank "
        "or /v1/embeddings.");
}

/* The choices take the place of sampled tokens, so fields that report on those are refused. */
static int check_chat(const struct srv_gen *g, struct param_error *err)
{
    const struct srv_gen_params *p = &g->params;
    const char *other = p->stream                 ? "stream"
                        : p->n > 1                ? "n"
                        : p->want_logprobs        ? "logprobs"
                        : p->prompt_logprobs >= 0 ? "prompt_logprobs"
                        : p->return_token_ids     ? "return_token_ids"
                        : g->tools.active         ? "tools"
                                                  : NULL;
    if (other)
        return param_fail(err, SRV_ERR_UNSUPPORTED, other,
                          "'%s' cannot be combined with 'choice_probabilities'; leave it out.",
                          other);
    if (!g->guide.ask.param || g->guide.ask.kind != GRAM_CHOICE)
        return param_fail(err, SRV_ERR_MISSING, "structured_outputs.choice",
                          "'choice_probabilities' needs 'structured_outputs.choice', the list of "
                          "texts to choose from.");
    if (!g->tools.think_open) return 0;
    return param_fail(
        err, SRV_ERR_INVALID_VALUE, "choice_probabilities",
        "The prompt ends inside the model's reasoning, where a choice is not an answer; "
        "turn reasoning off in 'chat_template_kwargs' or 'reasoning_effort'.");
}

int srv_choose_chat(struct srv_gen *g, struct param_error *err)
{
    struct choosing *c = srv_request_alloc(g->req, sizeof(*c));
    if (!c) return param_no_memory(err);
    c->req = g->req;
    c->chat = g;
    c->info = eng_info(g->served->engine);
    if (check_chat(g, err) || choose_chat_open(&c->body, g, err)) return -1;
    start(c);
    return 0;
}

static void handle(struct srv_request *req)
{
    struct param_error err = {0};
    struct srv_facts *facts = srv_facts(req);
    struct choosing *c = srv_request_alloc(req, sizeof(*c));
    facts->account.endpoint = "choose";
    int rc = c ? 0 : param_no_memory(&err);
    if (!rc) {
        c->req = req;
        c->info = eng_info(facts->model->engine);
        rc = check_model(c, &err);
        if (!rc) rc = choose_body_open(&c->body, req, &c->tree, &err);
    }
    if (!rc) {
        start(c);
        return;
    }
    if (c) srv_body_finish(&c->tree);
    param_reply(req, &err);
}

const struct srv_route srv_routes_choose[] = {
    {"POST", "/v1/choose", 0, SRV_DIALECT_OPENAI, handle, NULL},
    {0},
};
