/* SPDX-License-Identifier: MIT */
/* A generation from its body to the last byte of its answer; see generation.h for the threads. */
#include "server/api/run/generation.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/sha256.h"

enum { HOUR_SECONDS = 3600 };
enum { CHOICE_BYTES = 1024 }; /* a choice's struct and decoder, without its logs */

_Static_assert(sizeof(struct gen_choice) <= CHOICE_BYTES - 256,
               "CHOICE_BYTES covers the decoder too");

/* ---- engine thread ------------------------------------------------------------------------- */

/* There is room for all steps, because each computes at least one token. */
static void note_step(struct gen_prompt *p, const struct eng_event *ev)
{
    long long at = atomic_load_explicit(&p->n_steps, memory_order_relaxed);
    if (!p->steps || at >= p->n_ids) return;
    p->steps[at] = (struct gen_step){.n_done = (int32_t)ev->index,
                                     .n_cached = (int32_t)ev->usage->n_cached_tokens,
                                     .us = ev->now_us - ev->usage->started_us};
    atomic_store_explicit(&p->n_steps, at + 1, memory_order_release);
}

static void event(void *ctx, int i, const struct eng_event *ev)
{
    struct srv_gen *g = ctx;
    struct gen_prompt *p = &g->prompts[i];
    switch (ev->type) {
    case ENG_EVENT_STARTED:
        p->first_usage = *ev->usage;
        atomic_store_explicit(&p->stage, GEN_STARTED, memory_order_release);
        break;
    case ENG_EVENT_PROMPT_TOKEN: choice_log_append(&p->log, ev); break;
    case ENG_EVENT_TOKEN:
        if (!atomic_load_explicit(&p->first_token_us, memory_order_relaxed))
            atomic_store_explicit(&p->first_token_us, ev->now_us, memory_order_relaxed);
        choice_log_append(&p->choices[ev->choice].log, ev);
        break;
    case ENG_EVENT_CHOICE_DONE:
        atomic_store_explicit(&p->choices[ev->choice].finish, (int)ev->finish,
                              memory_order_release);
        break;
    case ENG_EVENT_JOB_DONE:
        p->usage = *ev->usage;
        atomic_store_explicit(&p->stage, GEN_DONE, memory_order_release);
        break;
    case ENG_EVENT_PROGRESS: note_step(p, ev); break;
    case ENG_EVENT_LOGITS:
    case ENG_EVENT_POOLED: break;
    }
}

/* ---- usage --------------------------------------------------------------------------------- */

struct eng_usage srv_gen_usage(const struct gen_prompt *p)
{
    int stage = atomic_load(&p->stage);
    if (stage == GEN_DONE) return p->usage;
    struct eng_usage u = {0};
    if (stage == GEN_STARTED) u = p->first_usage;
    u.first_token_us = atomic_load_explicit(&p->first_token_us, memory_order_relaxed);
    return u;
}

void srv_gen_default_tokens(struct srv_gen *g, int64_t n)
{
    const struct srv_config *c = srv_facts(g->req)->app->config;
    bool bounded = g->guide.ask.param && srv_guide_closes(&g->guide, c) && c->schema_max_tokens;
    if (g->max_tokens >= 0) return;
    g->max_tokens = bounded && c->schema_max_tokens < n ? c->schema_max_tokens : n;
}

int64_t srv_gen_token_capacity(const struct srv_gen *g, const struct gen_prompt *p)
{
    int64_t room = eng_info(g->served->engine)->ctx_tokens - p->n_ids + 1;
    return g->max_tokens < room ? g->max_tokens : room;
}

struct gen_totals srv_gen_totals(const struct srv_gen *g)
{
    struct gen_totals t = {0};
    bool tells = !srv_facts(g->req)->account.spare;
    for (int i = 0; i < g->n_prompts; i++) {
        const struct gen_prompt *p = &g->prompts[i];
        t.n_prompt += p->n_ids;
        const struct eng_usage u = srv_gen_usage(p);
        t.n_cached += tells ? u.n_cached_tokens : 0;
        t.n_written += tells ? u.n_written_tokens : 0;
        t.n_reused += u.n_cached_tokens;
        for (int k = 0; p->choices && k < g->n_candidates; k++) {
            const struct gen_choice *c = &p->choices[k];
            t.n_completion += c->n_tokens;
            t.n_reasoning += c->n_reasoning;
            t.n_accepted += c->n_accepted;
            t.n_rejected += c->n_rejected;
        }
    }
    t.n_closing = atomic_load(&((struct srv_gen *)g)->guide.closed.n_tokens);
    t.n_closing_values = atomic_load(&((struct srv_gen *)g)->guide.closed.n_values);
    return t;
}

/* ---- memory -------------------------------------------------------------------------------- */

static int64_t prompt_log_capacity(const struct srv_gen *g, const struct gen_prompt *p)
{
    return g->params.prompt_logprobs >= 0 ? p->n_ids : 0;
}

/* No overflow: prompts and contexts are far below 2^40 tokens. */
static int64_t prompt_bytes(const struct srv_gen *g, const struct gen_prompt *p)
{
    int64_t prompt_tokens = prompt_log_capacity(g, p), tokens = srv_gen_token_capacity(g, p);
    int64_t steps = g->reports_progress ? p->n_ids * (int64_t)sizeof(struct gen_step) : 0;
    int64_t choice = choice_text_bytes(&g->rules, tokens, g->params.logprobs_count) + CHOICE_BYTES;
    return choice_log_bytes(prompt_tokens, g->params.prompt_logprobs) + steps +
           g->n_candidates * choice;
}

static long long mib(int64_t bytes)
{
    return (long long)((bytes + (1 << 20) - 1) >> 20);
}

/* Of all logs. */
static int64_t answer_bytes(const struct srv_gen *g)
{
    int64_t bytes = 0;
    for (int i = 0; i < g->n_prompts; i++)
        bytes += prompt_bytes(g, &g->prompts[i]);
    return bytes;
}

/* The budget has no room for them: used is how much of it is in use. */
static int refuse_memory(const struct srv_gen *g, int64_t bytes, int64_t used, int64_t limit)
{
    if (bytes <= limit)
        return param_fail(SRV_ERR_QUEUE_FULL, NULL,
                          "The answer may take %lld MiB of memory, but answers under way hold %lld "
                          "of the %lld MiB there are.",
                          mib(bytes), mib(used), mib(limit));
    return param_fail(SRV_ERR_TOO_LARGE, NULL,
                      "The answer may take %lld MiB of memory (%d prompts, %d choices each, up "
                      "to %lld tokens per choice, %d log-probabilities per token), but this server "
                      "has %lld MiB for all answers.",
                      mib(bytes), g->n_prompts, g->n_candidates,
                      (long long)srv_gen_token_capacity(g, &g->prompts[0]),
                      (int)g->params.logprobs_count + 1, mib(limit));
}

/* Allocates a prompt's choices and logs. calloc returns untouched pages of the system, so only the
 * used part of the logs becomes resident. */
static int prepare_prompt(struct srv_gen *g, struct gen_prompt *p)
{
    int64_t bytes = prompt_bytes(g, p);
    p->choices = srv_request_alloc(g->req, (size_t)g->n_candidates * sizeof(*p->choices));
    p->memory = calloc(1, (size_t)bytes);
    if (!p->choices || !p->memory) return -1;
    char *at = p->memory;
    choice_log_init(&p->log, prompt_log_capacity(g, p), g->params.prompt_logprobs, &at);
    for (int k = 0; k < g->n_candidates; k++) {
        struct gen_choice *c = &p->choices[k];
        c->prompt = p;
        c->index = (int)(p - g->prompts) * g->n_choices + k;
        if (choice_text_init(c, &g->rules, p->ids, p->n_ids, srv_gen_token_capacity(g, p),
                             g->params.logprobs_count, &at))
            return -1;
    }
    if (g->reports_progress) p->steps = (struct gen_step *)(void *)at;
    if (g->reports_progress) at += p->n_ids * (int64_t)sizeof(*p->steps);
    assert(at - p->memory <= bytes);
    return 0;
}

/* ---- jobs: srv_jobs_ops -------------------------------------------------------------------- */

/* A cache salt splits the tenant of a key into separate tenants of one owner. */
static void salt_tenant(const char *salt, struct eng_job_params *jp)
{
    uint8_t salted[SHA256_BYTES];
    struct sha256 digest;
    sha256_init(&digest);
    sha256_update(&digest, jp->tenant, sizeof(jp->tenant));
    sha256_update(&digest, salt, strlen(salt));
    sha256_final(&digest, salted);
    memcpy(jp->tenant + ENG_KV_OWNER, salted, sizeof(jp->tenant) - ENG_KV_OWNER);
}

void srv_gen_describe(const struct srv_gen *g, struct eng_job_params *jp)
{
    const struct srv_gen_params *gp = &g->params;
    const struct srv_cache_fields *c = &g->cache;
    jp->no_cache = !gp->cache_prompt;
    jp->disk = c->disk;
    jp->keeps[0] = (struct eng_keep){c->n_marked, c->marked_seconds};
    jp->keeps[1] = (struct eng_keep){c->n_marked_hour, HOUR_SECONDS};
    jp->priority = (int)gp->priority;
    if (gp->deadline_ms > 0)
        jp->deadline_us = srv_jobs_deadline(srv_facts(g->req), gp->deadline_ms);
    if (gp->cache_salt) salt_tenant(gp->cache_salt, jp);
}

static bool prompt_is_done(const void *ctx, int i)
{
    const struct srv_gen *g = ctx;
    return atomic_load(&g->prompts[i].stage) == GEN_DONE;
}

static int describe(void *ctx, int i, struct eng_job_params *jp)
{
    struct srv_gen *g = ctx;
    struct gen_prompt *p = &g->prompts[i];
    const struct srv_gen_params *gp = &g->params;
    srv_gen_describe(g, jp);
    if (!p->choices && prepare_prompt(g, p)) return -1;
    jp->prompt = p->ids;
    jp->n_prompt = p->n_ids;
    if (g->cache.keeps_all) jp->keeps[0].n_tokens = p->n_ids;
    jp->n_choices = g->n_candidates;
    jp->max_tokens = g->max_tokens;
    jp->min_tokens = gp->min_tokens;
    jp->sampling = gp->sampling;
    jp->stop_ids = gp->stop_ids;
    jp->n_stop_ids = gp->n_stop_ids;
    jp->ignore_eos = gp->ignore_eos;
    jp->n_logprobs = (int)gp->logprobs_count;
    jp->n_prompt_logprobs = (int)gp->prompt_logprobs;
    jp->want_progress = g->reports_progress;
    jp->prediction = g->prediction;
    jp->n_prediction = g->n_prediction;
    memcpy(jp->marks, g->cache.ends, sizeof(g->cache.ends));
    jp->n_marks = g->cache.n_ends;
    jp->marks[jp->n_marks++] = g->cache.n_marked;
    jp->no_drafts = !gp->speculate || gp->draft_max == 0;
    jp->max_draft = gp->draft_max > 0 ? (int)gp->draft_max : 0;
    int64_t room = eng_info(g->served->engine)->ctx_tokens - p->n_ids;
    if (room < 1) room = 1;
    int64_t tokens = g->max_tokens < room ? g->max_tokens : room;
    if (g->guide.gram) jp->guides = srv_guide_begin(&g->guide, i, tokens, prompt_is_done, g);
    return 0;
}

void srv_gen_release(void *ctx)
{
    struct srv_gen *g = ctx;
    for (int i = 0; g->prompts && i < g->n_prompts; i++) {
        struct gen_prompt *p = &g->prompts[i];
        for (int k = 0; p->choices && k < g->n_candidates; k++)
            choice_text_finish(&p->choices[k]);
        free(p->memory);
    }
    textout_stops_finish(&g->rules.stops);
    srv_guide_release(&g->guide);
    srv_tools_release(&g->tools);
    srv_body_finish(&g->body);
}

/* ---- the wake loop -------------------------------------------------------------------------- */

/* Returns true if the stream may begin. With a deadline of its own the status must stay open until
 * the first token. */
static bool can_open(const struct srv_gen *g)
{
    bool ready = false;
    for (int i = 0; i < g->jobs.n_submitted && !ready; i++) {
        const struct gen_prompt *p = &g->prompts[i];
        int stage = atomic_load(&p->stage);
        ready = stage == GEN_DONE || (g->params.deadline_ms <= 0 && stage == GEN_STARTED);
        for (int k = 0; k < g->n_candidates && !ready; k++)
            ready = atomic_load(&p->choices[k].log.n_written) > 0;
    }
    return ready;
}

static void account(struct srv_gen *g)
{
    struct srv_account *a = &srv_facts(g->req)->account;
    struct gen_totals t = srv_gen_totals(g);
    struct eng_usage u = srv_gen_usage(&g->prompts[0]);
    a->model = g->model;
    a->n_prompt_tokens = t.n_prompt;
    a->n_cached_tokens = t.n_reused;
    a->n_generated_tokens = t.n_completion;
    a->n_dropped_items = g->n_dropped_items;
    a->n_choices = g->n_choices;
    a->max_tokens = srv_gen_token_capacity(g, &g->prompts[0]);
    a->queue_us = u.started_us ? (int64_t)(u.started_us - u.submitted_us) : -1;
    uint64_t start = srv_facts(g->req)->start_us;
    a->ttft_us = u.first_token_us > start ? (int64_t)(u.first_token_us - start) : -1;
    const struct gen_choice *c = g->prompts[0].choices;
    if (c && c->finish_reason) a->finish_reason = c->finish_reason;
}

/*
 * Reads what is new of a choice. late: the time for an answer is over. The text grows with what is
 * generated, so it is charged as it does. Returns why the request fails, or NULL: memory is short,
 * or the engine ended the choice without an answer.
 */
static const struct srv_job_failure *advance_choice(struct srv_gen *g, int prompt, int k, bool late)
{
    static const struct srv_job_failure
        no_memory = {SRV_ERR_OVERLOADED, "The server is out of memory for this answer."},
        no_budget = {SRV_ERR_OVERLOADED, "The memory budget of all answers is used up."};
    struct gen_choice *c = &g->prompts[prompt].choices[k];
    bool stopped = choice_text_advance(c, &g->rules);
    /* Time ends an answer once it has a line of its own, as in llama-server. */
    bool cut = late && c->text.has_lines && !c->ended;
    if (cut) choice_text_cut(c);
    if (stopped || cut) srv_jobs_stop_choice(&g->jobs, prompt, k);
    int64_t grown = (int64_t)c->text.text.cap - c->text_charged, used = 0;
    int finish = atomic_load_explicit(&c->finish, memory_order_acquire);
    if (c->text.text.failed) return &no_memory;
    if (grown > 0 && !srv_request_charge(g->req, grown, &used)) return &no_budget;
    c->text_charged += grown;
    if (finish <= ENG_FINISH_LENGTH) return NULL;
    if (finish == ENG_FINISH_CANCELLED && c->ended) return NULL; /* by its stop string */
    return srv_jobs_failure(&g->jobs, finish, c->log.n_written);
}

static const struct srv_job_failure *advance_prompt(struct srv_gen *g, int i)
{
    const struct srv_job_failure *failure = NULL;
    uint64_t first = atomic_load_explicit(&g->prompts[i].first_token_us, memory_order_relaxed);
    int64_t most_us = g->params.t_max_predict_ms * 1000;
    bool late = most_us > 0 && first && clock_now_us() - first > (uint64_t)most_us;
    for (int k = 0; k < g->n_candidates && !failure; k++)
        failure = advance_choice(g, i, k, late);
    return failure;
}

bool srv_gen_advance(void *ctx)
{
    struct srv_gen *g = ctx;
    const struct srv_job_failure *failure = NULL;
    bool opens = g->params.stream && !g->streaming && can_open(g),
         gone = atomic_load(&g->jobs.gone);
    int n = 0;
    while (!gone && n < g->jobs.n_submitted && !(failure = advance_prompt(g, n)))
        n++;
    if ((gone || g->jobs.finished) && !failure && !g->pieces.begun) account(g);
    /* A client that is behind gets nothing for now. */
    if (g->streaming && !srv_stream_has_room(g->req)) n = 0;
    if (!gone) g->answered = g->writer->write(g, opens, n, g->jobs.finished && !failure);
    if (failure) g->writer->fail(g, failure->kind, failure->message);
    return g->answered |= gone;
}

/* ---- starting ------------------------------------------------------------------------------ */

/* tool_choice: "none" bans the token that begins calls, if they begin with one. */
static int ban_calls(struct srv_gen *g)
{
    struct eng_sampling *s = &g->params.sampling;
    int32_t id = g->served->markers.id[TOOLS_MARK_OPEN];
    if (g->tools.ask.n == 0 || g->tools.ask.choice != TOOLS_CHOICE_NONE || id < 0) return 0;
    struct eng_bias *bias = srv_request_alloc(g->req, (size_t)(s->n_bias + 1) * sizeof(*bias));
    if (!bias) return -1;
    if (s->n_bias > 0) memcpy(bias, s->bias, (size_t)s->n_bias * sizeof(*bias));
    bias[s->n_bias++] = (struct eng_bias){id, -INFINITY};
    s->bias = bias;
    return 0;
}

/* Makes what reading the answer needs from the rendered prompt, and puts it into the rules. */
static int open_tools(struct srv_tools *t, struct choice_rules *rules)
{
    enum { PLAIN_HELD = 4096 };
    if (!t->active && !t->can_reason) return 0;
    if (tools_set_create(&t->set, &t->request)) return param_no_memory();
    rules->reader = (struct tools_reader_params){
        .set = t->set,
        .markers = &t->served->markers,
        .guided = t->active,
        .max_held = t->active ? TOOLS_GUIDED_HELD : PLAIN_HELD,
        .think_open = t->think_open,
        .begun = t->begun,
    };
    for (int m = 0; m < TOOLS_N_MARKERS; m++)
        rules->marker_text[m] = tools_marker_text(&t->served->style, (enum tools_marker)m);
    return 0;
}

static int make_rules(struct srv_gen *g)
{
    const struct srv_gen_params *p = &g->params;
    const struct eng_info *info = eng_info(g->served->engine);
    g->rules.tok = g->served->tok;
    g->rules.ids[0] = p->stop_ids;
    g->rules.n_ids[0] = p->n_stop_ids;
    g->rules.ids[1] = info->eos_ids;
    g->rules.n_ids[1] = p->ignore_eos ? 0 : info->n_eos_ids;
    g->rules.min_tokens = p->min_tokens;
    g->rules.include_stop = p->include_stop;
    g->rules.min_indent = p->n_indent;
    g->rules.skip_special = p->skip_special;
    if ((p->n_stops && textout_stops_init(&g->rules.stops, p->stops, p->stop_lens, p->n_stops)) ||
        ban_calls(g))
        return param_no_memory();
    return open_tools(&g->tools, &g->rules);
}

/* The guide's grammar, which may take a while, and memory for the answer, which is charged to the
 * budget of all answers before anything is computed. */
static enum srv_jobs_state prepare(void *ctx)
{
    struct srv_gen *g = ctx;
    const struct srv_tools *t = &g->tools;
    int64_t bytes = answer_bytes(g), limit = eng_info(g->served->engine)->memory.answer_bytes;
    int64_t used = 0;
    int rc = 0;
    bool budget = t->may_think && t->think_budget >= 0 && g->served->grammars;
    if (g->guide.ask.param || t->active || budget) { /* the answers are constrained */
        int64_t room = eng_info(g->served->engine)->ctx_tokens - g->prompts[0].n_ids;
        int64_t most = g->max_tokens >= 0 && g->max_tokens < room ? g->max_tokens : room;
        if (!g->guide.served) rc = srv_guide_ask(&g->guide, g->req, &g->jobs, &g->params);
        if (rc > 0) return JOBS_WAIT;
        if (!rc)
            rc = srv_guide_open(&g->guide, g->req, &g->params, most, g->n_prompts, g->n_candidates);
    }
    if (!rc && (bytes > limit || !srv_request_charge(g->req, bytes, &used)))
        rc = refuse_memory(g, bytes, used, limit);
    if (!rc) return JOBS_READY;
    param_reply(g->req);
    return JOBS_REFUSED;
}

static void hurry(void *ctx)
{
    struct srv_gen *g = ctx;
    compile_leave(srv_facts(g->req)->app->compiles, &g->guide.wait, NULL); /* jobs go on soon */
}

int srv_gen_start(struct srv_gen *g, const struct srv_gen_writer *writer)
{
    if (make_rules(g)) return -1;
    g->reports_progress =
        g->params.return_progress && g->params.stream && g->format->answer->stream_progress;
    g->jobs.is_whole = !g->params.stream && !g->params.n_stops && g->params.n_indent <= 0 &&
                       g->params.t_max_predict_ms <= 0;
    g->writer = writer;
    g->ops = (struct srv_jobs_ops){.describe = describe,
                                   .event = event,
                                   .advance = srv_gen_advance,
                                   .refuse = writer->fail,
                                   .release = srv_gen_release,
                                   .prepare = prepare,
                                   .hurry = hurry};
    srv_jobs_start(&g->jobs, g->req, g->n_prompts, &g->ops, g);
    return 0;
}
