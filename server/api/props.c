/* SPDX-License-Identifier: MIT */
/*
 * GET /props: the model, the numeric path and the defaults. GET /slots: how busy the server is.
 * Neither shows prompts.
 */

#include "base/json_writer.h"
#include "engine/engine.h"
#include "server/api/routes.h"
#include "server/config/config.h"
#include "server/grammars/cache.h"
#include "server/models/app.h"
#include "server/models/set.h"
#include "server/models/swap.h"
#include "tokenizer/chat/chat.h"
#include "tokenizer/tokenizer.h"

static void write_memory(struct jw *w, const struct eng_memory *m)
{
    jw_fields(w,
              "memory { weights_bytes %jd kv_bytes %jd state_bytes %jd scratch_bytes %jd "
              "logits_bytes %jd answer_bytes %jd request_bytes %jd other_bytes %jd draft_bytes %jd "
              "twin_bytes %jd limit_bytes %jd }",
              m->weights_bytes, m->kv_bytes, m->state_bytes, m->scratch_bytes, m->logits_bytes,
              m->answer_bytes, m->request_bytes, m->other_bytes, m->draft_bytes, m->twin_bytes,
              m->limit_bytes);
}

static void write_rate(struct jw *w, const char *name, double rate)
{
    if (rate > 0)
        jw_number(w, name, rate);
    else
        jw_null(w, name);
}

/* How weights are kept and read; rates are null if they were not measured. */
static void write_reading(struct jw *w, const struct srv_model *m, const struct eng_info *info)
{
    jw_fields(w, "weights { format %s coded %i read_ahead_bytes %jd measured_per_second {",
              m->is_gguf ? "gguf" : "safetensors", info->weights_coded, info->read_ahead_bytes);
    write_rate(w, "coded", info->coded_rate);
    write_rate(w, "plain", info->plain_rate);
    jw_fields(w, "} }");
}

/* Null if there is none. Costs are those of a step of one row. */
static void write_draft_model(struct jw *w, const struct srv_model *model,
                              const struct eng_info *info)
{
    static const char *const states[] = {"none", "loading", "on", "failed"};
    if (!model->draft_name) {
        jw_null(w, "draft_model");
        return;
    }
    jw_fields(w, "draft_model { model %s state %s step_bytes %jd target_step_bytes %jd }",
              model->draft_name, states[eng_draft_state(model->engine, NULL)],
              info->draft_step_bytes, info->step_bytes);
}

/* The defaults of requests. */
static void write_defaults(struct jw *w, const struct srv_defaults *d)
{
    jw_open(w, "default_sampling", '{');
#define WRITE_float jw_number
#define WRITE_int jw_int
#define WRITE(name, type, ...) WRITE_##type(w, #name, d->sampling.name);
    ENG_SAMPLING_DEFAULTS(WRITE)
    jw_count(w, "seed", d->seed);
    jw_count(w, "max_tokens", d->max_tokens);
    jw_close(w);
}

static void write_chat(struct jw *w, const struct tok_chat *chat)
{
    jw_text(w, "chat_template", chat ? tok_chat_source(chat) : NULL);
    if (!chat) return;
    const struct tok_chat_caps *caps = tok_chat_caps(chat);
    jw_fields(w,
              "chat_template_caps { system_role %i null_content %i content_parts %i tools %i "
              "object_arguments %i }",
              caps->system_role, caps->null_content, caps->content_parts, caps->tools,
              caps->object_arguments);
}

/* How the model writes calls of tools and reasoning; reasoning is null if it has no markers. */
static void write_style(struct jw *w, const struct tools_style *s)
{
    jw_fields(w, "tool_format { id %s source %s open %s close %s }", tools_format_name(s->format),
              tools_source_names[s->source], s->open, s->close);
    if (!s->think_open[0]) {
        jw_null(w, "reasoning");
        return;
    }
    jw_fields(w, "reasoning { open %s close %s forced %i }", s->think_open, s->think_close,
              s->think_forced);
}

/* Written as null if no token of the model stands for a single byte. */
static void write_structured_output(struct jw *w, struct grammar_cache *grammars)
{
    static const char *const kinds[] = {"json_schema", "json_object", "regex", "choice", "grammar"};
    if (!grammars) {
        jw_null(w, "structured_output");
        return;
    }
    struct grammar_cache_stats stats = grammar_cache_stats(grammars);
    jw_fields(w, "structured_output { kinds [");
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        jw_text(w, NULL, kinds[i]);
    jw_fields(w, "} cached_grammars %d cached_bytes %jd vocabulary_bytes %jd }", stats.n_entries,
              stats.bytes, stats.vocab_bytes);
}

/* The marks around a hole in a text, null if the model has none. */
static void write_fim(struct jw *w, const struct srv_model *m)
{
    static const char *const names[] = {"prefix", "suffix", "middle", "repo", "file"};
    if (m->fim.id[TOK_FIM_PREFIX] < 0) {
        jw_null(w, "fim");
        return;
    }
    jw_open(w, "fim", '{');
    for (int mark = TOK_FIM_PREFIX; mark <= TOK_FIM_FILE; mark++) {
        size_t len = 0;
        const char *text = tok_token_string(m->tok, m->fim.id[mark], &len);
        jw_string(w, names[mark], text, len);
    }
    jw_fields(w, "suffix_first %i }", m->fim.suffix_first);
}

static void write_name(struct jw *w, const char *key, const char *text)
{
    jw_text(w, key, *text ? text : NULL);
}

/* The last swap, and the requests that the model before still has. */
static void write_swap(struct jw *w, const struct srv_facts *facts)
{
    struct srv_app *app = facts->app;
    struct srv_models_view view;
    struct srv_swap_view swap;
    if (facts->only) return; /* it has names of models */
    srv_models_look(&app->models, &view);
    srv_swap_look(app->swap, &swap);
    jw_fields(w, "swap { state %s", srv_swap_state_names[swap.state]);
    write_name(w, "model", swap.model);
    write_name(w, "previous", swap.previous);
    jw_count(w, "since", swap.since ? swap.since : -1);
    jw_int(w, "n_draining", view.n_draining);
    write_name(w, "last_error", swap.last_error);
    jw_close(w);
}

static void write_kv_disk(struct jw *w, struct eng *engine)
{
    struct eng_stats s;
    eng_stats(engine, &s);
    if (!s.kv_disk.on) return;
    jw_fields(w, "kv_disk { pages %jd bytes %jd hit_tokens %jd }", s.kv_disk.n_pages,
              s.kv_disk.bytes, (int64_t)s.kv_disk.n_read_tokens);
}

/* Of the whole catalogue, for clients that know llama-server's router. */
static void write_router(struct jw *w, struct srv_app *app)
{
    if (srv_models_count(&app->models) == 1) return;
    jw_fields(w, "role %s max_instances %d models_autoload %i", "router", app->config->models_max,
              app->config->models_autoload);
}

/* A model that is not loaded. */
static void props_of_unloaded(struct srv_request *req)
{
    const struct srv_facts *facts = srv_facts(req);
    char name[140];
    struct srv_object a;
    struct jw *w = srv_object_open(&a, 65536);
    jw_fields(w, "server %s version %s model %s is_sleeping %i", "hearth", HEARTH_VERSION,
              srv_models_name(&facts->app->models, facts->entry, name, sizeof(name)), true);
    write_router(w, facts->app);
    write_swap(w, facts);
    srv_object_reply(req, 200, &a);
}

static void props(struct srv_request *req)
{
    const struct srv_model *model = srv_facts(req)->model;
    srv_facts(req)->account.endpoint = "props";
    if (!model) {
        props_of_unloaded(req);
        return;
    }
    const struct eng_info *info = eng_info(model->engine);
    struct srv_object a;
    struct jw *w = srv_object_open(&a, 8 << 20);
    jw_fields(w, "server %s version %s model %s demo %i is_sleeping %i", "hearth", HEARTH_VERSION,
              model->names[0], model->is_demo, false);
    write_router(w, srv_facts(req)->app);
    jw_fields(w,
              "architecture %s rope %s system_fingerprint %s numerics %s kernels %s gemm %s "
              "kv_dtype %s weights_dtype %s",
              info->architecture, info->rope, model->fingerprint, info->numerics, info->kernels,
              info->gemm, info->kv_dtype, info->weights_dtype);
    write_reading(w, model, info);
    jw_text(w, "drafts", eng_drafts(model->engine));
    write_draft_model(w, model, info);
    jw_fields(w,
              "repeatable %i threads %d total_slots %d chunk_tokens %d page_tokens %d n_pages "
              "%d n_ctx %jd",
              info->repeatable, info->n_threads, info->n_parallel, info->chunk_tokens,
              info->page_tokens, info->n_pages, srv_model_longest(model));
    jw_open(w, "default_generation_settings", '{'); /* llama-server's place */
    jw_fields(w, "n_ctx %jd } n_ctx_train %jd n_params %jd n_vocab %d", srv_model_longest(model),
              info->ctx_train_tokens, info->n_params, info->vocab_size);
    write_memory(w, &info->memory);
    jw_number(w, "load_seconds", info->load_seconds);
    write_defaults(w, &model->defaults);
    write_chat(w, model->chat);
    write_style(w, &model->style);
    write_structured_output(w, model->grammars);
    write_fim(w, model);
    write_swap(w, srv_facts(req));
    write_kv_disk(w, model->engine);
    srv_object_reply(req, 200, &a);
}

/* Numbers of a model, or sums of those that drain. */
struct slots {
    const char *model; /* NULL: there is none */
    int total, page_tokens;
    struct eng_stats stats;
};

static void add_slots(struct slots *to, const struct srv_model *model)
{
    const struct eng_info *info = eng_info(model->engine);
    struct eng_stats s;
    eng_stats(model->engine, &s);
    eng_stats_add(&to->stats, &s, true);
    to->model = model->names[0];
    to->total += info->n_parallel;
    to->page_tokens = info->page_tokens;
}

static void write_slots(struct jw *w, const struct slots *to)
{
    const struct eng_stats *s = &to->stats;
    if (!to->model) return;
    jw_fields(w,
              "model %s total %d running %d waiting %d waiting_tokens %jd pages { total %d used %d "
              "cached %d tokens %d } slots [",
              to->model, to->total, s->n_running, s->n_waiting, (intmax_t)s->n_waiting_tokens,
              s->n_pages_total, s->n_pages_used, s->n_pages_cached, to->page_tokens);
    for (int i = s->n_running; i > 0; i--)
        jw_fields(w, "{ class %s }", i > s->n_spare ? "request" : "batch");
    jw_close(w);
}

struct slots_list {
    struct jw *w;
    const struct srv_models *models;
    int only; /* the entry; -1: all that have a model */
    const char *of_key;
};

/* The model's that requests get, and in it those of models that drain. With the lock held. */
static void write_slots_of(void *ctx, const struct srv_entry *e)
{
    const struct slots_list *l = ctx;
    struct slots slots = {0}, draining = {0};
    if ((l->only >= 0 && l->only != e->number) || !srv_entry_is_of(e, l->of_key)) return;
    for (const struct srv_model *m = l->models->alive; m; m = m->next)
        if (m->entry == e->number) add_slots(m->drains ? &draining : &slots, m);
    if (l->only < 0 && !slots.model && !draining.model) return;
    jw_open(l->w, NULL, '{');
    if (l->only < 0 && !slots.model) jw_text(l->w, "model", draining.model);
    write_slots(l->w, &slots);
    if (draining.model) {
        jw_open(l->w, "draining", '{');
        write_slots(l->w, &draining);
        jw_close(l->w);
    }
    jw_close(l->w);
}

/* Of the model that the address names or the only one; else a list of all. */
static void slots(struct srv_request *req)
{
    struct srv_models *models = &srv_facts(req)->app->models;
    bool all = srv_models_count(models) > 1 && !srv_request_query(req, "model");
    struct buf b = {.max = 1 << 20};
    struct jw w = {.out = &b};
    struct slots_list list = {&w, models, all ? -1 : srv_facts(req)->entry, srv_facts(req)->only};
    srv_facts(req)->account.endpoint = "slots";
    if (all) jw_open(&w, NULL, '[');
    srv_models_each_entry(models, write_slots_of, &list);
    if (all) jw_close(&w);
    if (!b.len) jw_fields(&w, "{ }"); /* it has vanished a moment ago */
    srv_reply(req, 200, NULL, jw_end(&w));
}

#define ANY (SRV_ROUTE_INLINE | SRV_ROUTE_ANY_MODEL)

const struct srv_route srv_routes_props[] = {
    {"GET", "/v1/props", ANY | SRV_ROUTE_BARE, SRV_DIALECT_OPENAI, props, NULL},
    {"GET", "/v1/slots", ANY | SRV_ROUTE_BARE, SRV_DIALECT_OPENAI, slots, NULL},
    {0},
};
