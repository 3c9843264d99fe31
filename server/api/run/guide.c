/* SPDX-License-Identifier: MIT */
/* Between the grammar library and the engine; see guide.h. */
#include "server/api/run/guide.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/buf.h"
#include "base/clock.h"
#include "server/api/read/generation_fields.h"
#include "server/api/run/jobs.h"
#include "server/api/read/tools_request.h"
#include "server/grammars/cache.h"
#include "server/http/endpoint.h"
#include "server/metrics.h"
#include "server/models/served_model.h"

/* A header line that proxies pass. */
enum { MAX_RELAXED_BYTES = 1000 };

/* ---- the grammar --------------------------------------------------------------------------- */

/* The field to blame if no pointer leads into a tool. */
static const char *param_of(const struct srv_guide *guide)
{
    return guide->ask.param ? guide->ask.param : "tools";
}

static int refuse(struct srv_guide *guide, const struct gram_error *e)
{
    enum srv_error kind = e->code == GRAM_ENOMEM         ? SRV_ERR_OVERLOADED
                          : e->code == GRAM_EGRAMMAR     ? SRV_ERR_INVALID_GRAMMAR
                          : e->code == GRAM_EUNSUPPORTED ? SRV_ERR_UNSUPPORTED
                                                         : SRV_ERR_INVALID_SCHEMA;
    if (kind != SRV_ERR_OVERLOADED)
        srv_metrics_count(guide->metrics, kind == SRV_ERR_INVALID_SCHEMA ? SRV_COUNT_SCHEMAS_REFUSED
                                          : kind == SRV_ERR_INVALID_GRAMMAR
                                              ? SRV_COUNT_GRAMMARS_REFUSED
                                              : SRV_COUNT_GRAMMARS_UNSUPPORTED);
    bool in_tool = e->has_pointer && !strncmp(e->pointer, "/tools/", 7);
    if (kind == SRV_ERR_INVALID_SCHEMA && (in_tool || !guide->ask.param))
        return tools_ask_refuse_schema(&guide->tools->ask, e->pointer, e->message);
    return param_fail(kind, param_of(guide), "%s", e->message);
}

static void append_encoded(struct buf *b, const char *text)
{
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/_~.-";
    for (const char *p = text; *p; p++) {
        if (strchr(plain, *p))
            buf_add(b, p, 1);
        else
            buf_printf(b, "%%%02X", (unsigned char)*p);
    }
}

/* Pointers in text order, and how many more there are once the header is full. */
static void name_relaxed(struct srv_guide *guide, struct srv_request *req)
{
    size_t n = gram_n_relaxed(guide->gram), i = 0;
    srv_metrics_count(guide->metrics, SRV_COUNT_GRAMMAR_RELAXED);
    AUTO(buf_finish) struct buf b = {.max = 4096};
    for (; i < n; i++) {
        AUTO(buf_finish) struct buf one = {.max = 4096};
        append_encoded(&one, gram_relaxed(guide->gram, i));
        bool fits = !one.failed && b.len + one.len + 2 <= MAX_RELAXED_BYTES - 16;
        if (fits) buf_printf(&b, "%s%.*s", i ? ", " : "", (int)one.len, one.data ? one.data : "");
        if (!fits) break;
    }
    if (i < n) buf_printf(&b, "%s...+%zu", i ? ", " : "", n - i);
    if (!b.failed && b.data) srv_reply_header(req, "x-schema-relaxed", b.data);
}

static void ask_for_parts(struct srv_guide *guide)
{
    const struct guide_ask *ask = &guide->ask;
    guide->content = (struct gram_part){.kind = ask->kind,
                                        .text = ask->text.text,
                                        .len = ask->text.len,
                                        .strict = ask->options.strict};
    guide->request = guide->tools->request;
    struct tools_request *request = &guide->request;
    if (request->choice == TOOLS_CHOICE_NONE) request->choice = TOOLS_CHOICE_AUTO;
    bool free_content = !ask->param || request->choice == TOOLS_CHOICE_REQUIRED;
    guide->asked = (struct grammar_tools){.request = request,
                                          .think_open = guide->tools->think_open,
                                          .content = free_content ? NULL : &guide->content};
    struct gram_options options = ask->options;
    options.strict = false; /* it is that of the part, and of each tool */
    guide->parts = (struct grammar_guide_tools){.markers = &guide->served->markers,
                                                .auto_free = free_content &&
                                                             request->choice == TOOLS_CHOICE_AUTO,
                                                .think_open = guide->tools->think_open};
    grammar_source_tools(&guide->wait.source, &guide->asked, &options);
}

/* The wait has ended; any thread. */
static void on_compiled(struct compile_wait *w)
{
    struct srv_guide *guide =
        (struct srv_guide *)(void *)((char *)w - offsetof(struct srv_guide, wait));
    guide->gram = w->result.gram;
    srv_metrics_observe(guide->metrics, SRV_TIME_COMPILE, clock_now_us() - guide->asked_us);
    srv_jobs_go_on(guide->jobs);
}

/* The wait ends with the request's own time or that of the queue, whichever is over first. */
static void set_deadline(struct srv_guide *guide, const struct srv_facts *facts,
                         int64_t deadline_ms)
{
    const struct srv_config *c = facts->app->config;
    int64_t own_ms = deadline_ms > 0 ? deadline_ms : c->request_timeout_ms;
    bool queue_first = c->queue_timeout_ms > 0 && (own_ms <= 0 || c->queue_timeout_ms < own_ms);
    guide->late = queue_first ? ENG_FINISH_QUEUE_TIMEOUT : ENG_FINISH_DEADLINE;
    guide->wait.deadline_us = srv_jobs_deadline(facts, queue_first ? c->queue_timeout_ms : own_ms);
}

bool srv_guide_closes(const struct srv_guide *guide, const struct srv_config *config)
{
    const struct guide_ask *ask = &guide->ask;
    bool json = ask->param && (ask->kind == GRAM_SCHEMA || ask->kind == GRAM_JSON_OBJECT);
    if (!config->close_answers || ask->stays_cut) return false;
    if (guide->tools && guide->tools->active) return guide->tools->ask.once;
    return json && !ask->options.whitespace_pattern;
}

int srv_guide_ask(struct srv_guide *guide, struct srv_request *req, struct srv_jobs *jobs,
                  const struct srv_gen_params *params)
{
    const struct srv_facts *facts = srv_facts(req);
    struct guide_ask *ask = &guide->ask;
    struct compile_wait *w = &guide->wait;
    guide->served = facts->model;
    guide->metrics = facts->app->metrics;
    guide->jobs = jobs;
    w->cache = guide->served->grammars;
    if (!w->cache)
        return param_fail(SRV_ERR_UNSUPPORTED, param_of(guide),
                          "'%s' is not supported: the tokens of this model spell no single bytes.",
                          param_of(guide));
    ask->options.styled = !ask->any_whitespace;
    guide->closes = srv_guide_closes(guide, facts->app->config);
    guide->asked_us = clock_now_us();
    /* The answer may have a reasoning block before it, or calls in it. */
    guide->has_parts = guide->tools && (guide->tools->active || guide->tools->may_think);
    if (guide->has_parts)
        ask_for_parts(guide);
    else
        grammar_source_text(&w->source, ask->kind, ask->text.text, ask->text.len, &ask->options);
    memcpy(&w->tenant, facts->tenant, sizeof(w->tenant));
    bool found = grammar_cache_find(w->cache, &w->source, w->tenant, &w->result);
    guide->state_bytes = grammar_guide_bytes();
    if (found) {
        guide->gram = w->result.gram;
        srv_metrics_observe(guide->metrics, SRV_TIME_COMPILE, clock_now_us() - guide->asked_us);
        return 0;
    }
    set_deadline(guide, facts, params->deadline_ms);
    w->done = on_compiled;
    compile_ask(facts->app->compiles, w);
    return 1;
}

/* The grammar, or why there is none. */
static int check_grammar(struct srv_guide *guide, struct srv_request *req)
{
    const struct grammar_result *result = &guide->wait.result;
    int64_t used;
    if (guide->wait.end != COMPILE_DONE) {
        int finish = guide->wait.end == COMPILE_LATE ? guide->late : ENG_FINISH_CANCELLED;
        const struct srv_job_failure *failure = srv_jobs_failure(guide->jobs, finish, 0);
        return param_fail(failure->kind, NULL, "%s", failure->message);
    }
    if (!guide->gram) return refuse(guide, &result->error);
    int64_t bytes = (int64_t)(gram_bytes(guide->gram) + gram_cache_bytes(guide->gram));
    if (!result->kept && !srv_request_charge(req, bytes, &used))
        return param_fail(
            SRV_ERR_OVERLOADED, param_of(guide),
            "The grammar takes %lld bytes, but the memory budget of all answers is used up.",
            (long long)bytes);
    return 0;
}

/* ---- states -------------------------------------------------------------------------------- */

static int allocate(struct srv_guide *guide, struct srv_request *req)
{
    size_t n = (size_t)guide->n_slots * (size_t)guide->n_choices;
    int64_t used;
    if (!srv_request_charge(req, (int64_t)(n * guide->state_bytes), &used))
        return param_no_memory();
    guide->prompt_of = srv_request_alloc(req, (size_t)guide->n_slots * sizeof(int));
    guide->choices = srv_request_alloc(req, n * sizeof(*guide->choices));
    guide->guides = srv_request_alloc(req, n * sizeof(*guide->guides));
    guide->memory = aligned_alloc(64, n * guide->state_bytes);
    if (!guide->prompt_of || !guide->choices || !guide->guides || !guide->memory)
        return param_no_memory();
    for (int i = 0; i < guide->n_slots; i++)
        guide->prompt_of[i] = -1;
    for (size_t i = 0; i < n; i++)
        guide->choices[i].rules = &guide->rules;
    return 0;
}

int srv_guide_open(struct srv_guide *guide, struct srv_request *req,
                   const struct srv_gen_params *params, int64_t max_tokens, int n_prompts,
                   int n_choices)
{
    if (check_grammar(guide, req)) return -1;
    if (guide->has_parts) {
        /* Where an answer must follow, a reasoning block leaves half of the tokens to it. */
        int64_t asked = guide->tools->think_budget;
        bool is_said = asked != SRV_THINK_UNSAID || guide->parts.auto_free;
        guide->parts.think_budget = is_said ? asked : max_tokens / 2;
    }
    int n_parallel = eng_info(guide->served->engine)->n_parallel;
    guide->n_slots = n_prompts < n_parallel ? n_prompts : n_parallel;
    guide->n_choices = n_choices;
    guide->rules = (struct grammar_rules){
        .info = eng_info(guide->served->engine),
        .tok = guide->served->tok,
        .stop_ids = params->stop_ids,
        .n_stop_ids = params->n_stop_ids,
        .ignore_eos = params->ignore_eos,
        .metrics = guide->metrics,
        .sampling = &params->sampling,
        .closed = &guide->closed,
    };
    if (allocate(guide, req)) return -1;
    if (gram_n_relaxed(guide->gram) > 0) name_relaxed(guide, req);
    return 0;
}

/* The prompt's own slot, if its job was refused before; else one that no running job has. */
static int choose_slot(const struct srv_guide *guide, int prompt,
                       bool (*is_done)(const void *ctx, int prompt), const void *ctx)
{
    int free_slot = -1;
    for (int i = 0; i < guide->n_slots; i++) {
        int holder = guide->prompt_of[i];
        if (holder == prompt) return i;
        if (holder < 0 || is_done(ctx, holder)) free_slot = i;
    }
    return free_slot;
}

const struct eng_guide *srv_guide_begin(struct srv_guide *guide, int prompt, int64_t tokens,
                                        bool (*is_done)(const void *ctx, int prompt),
                                        const void *ctx)
{
    int slot = choose_slot(guide, prompt, is_done, ctx);
    assert(slot >= 0 && slot < guide->n_slots); /* one per job that runs */
    guide->prompt_of[slot] = prompt;
    size_t first = (size_t)slot * (size_t)guide->n_choices;
    for (size_t i = first; i < first + (size_t)guide->n_choices; i++)
        guide->guides[i] = grammar_guide_begin(
            &guide->choices[i], guide->memory + i * guide->state_bytes, guide->gram,
            guide->has_parts ? &guide->parts : NULL, guide->closes ? tokens : -1);
    return guide->guides + first;
}

void srv_guide_release(struct srv_guide *guide)
{
    if (!guide->served) return;
    if (guide->gram) grammar_cache_put(guide->served->grammars, guide->gram);
    free(guide->memory);
    guide->gram = NULL;
    guide->memory = NULL;
}
