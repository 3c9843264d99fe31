/* SPDX-License-Identifier: MIT */
/*
 * GET /health and /readyz: 200 if requests can be served. GET /healthz, /livez and /ping: 200
 * unless the process hangs. GET /version; GET /metrics. All run on the HTTP thread, also while the
 * model loads and while draining.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json_writer.h"
#include "engine/engine.h"
#include "server/api/routes.h"
#include "server/batch/runner.h"
#include "server/bounds.h"
#include "server/config/config.h"
#include "server/http/api_error.h"
#include "server/grammars/compile_queue.h"
#include "server/http/request.h"
#include "server/http/server.h"
#include "server/http/watch.h"
#include "server/metrics.h"
#include "server/models/app.h"
#include "server/models/loras.h"
#include "server/models/serve_pull.h"

/*
 * The main thread checks the engine many times per second. If it has not for this long, it hangs.
 */
enum { MONITOR_LATE_US = 30 * 1000000 };

/* percent: of a model that is being fetched (--pull), -1 for none. */
static void reply_status(struct srv_request *req, const char *status, int percent)
{
    struct srv_object a;
    struct jw *w = srv_object_open(&a, 256);
    jw_text(w, "status", status);
    if (percent >= 0) jw_int(w, "percent", percent);
    srv_reply_header(req, "Cache-Control", "no-store");
    if (percent >= 0) srv_reply_header(req, "Retry-After", "1");
    srv_object_reply(req, percent >= 0 ? 503 : 200, &a);
}

static void live(struct srv_request *req)
{
    struct srv_server *s = req->server;
    uint64_t looked_us = atomic_load(&s->monitor_us);
    bool monitored = looked_us == 0 || clock_now_us() < looked_us + MONITOR_LATE_US;
    srv_facts(req)->account.endpoint = "health";
    if (monitored && !atomic_load(&s->stalled))
        reply_status(req, "ok", -1);
    else
        srv_reply_error(req, SRV_ERR_OVERLOADED, NULL,
                        "The engine has stalled: requests wait, but no step finishes.");
}

static void ready(struct srv_request *req)
{
    int percent = srv_pull_percent(srv_facts(req)->app->pull);
    srv_facts(req)->account.endpoint = "health";
    switch ((enum srv_state)atomic_load(&srv_facts(req)->app->state)) {
    case SRV_READY: reply_status(req, "ok", -1); break;
    case SRV_LOADING:
        if (percent >= 0)
            reply_status(req, "pulling", percent);
        else
            srv_reply_error(req, SRV_ERR_LOADING, NULL, "The model is still loading.");
        break;
    case SRV_DRAINING:
        srv_reply_error(req, SRV_ERR_SHUTTING_DOWN, NULL, "The server is shutting down.");
        break;
    case SRV_FAILED:
        srv_reply_error(req, SRV_ERR_OVERLOADED, NULL, "The model could not be loaded.");
        break;
    }
}

static void version(struct srv_request *req)
{
    struct srv_object a;
    srv_facts(req)->account.endpoint = "version";
    struct jw *w = srv_object_open(&a, 256);
    jw_fields(w, "version %s server %s", HEARTH_VERSION, "hearth");
    srv_object_reply(req, 200, &a);
}

static void add_model(void *ctx, struct srv_model *model)
{
    struct srv_metrics_view *view = ctx;
    view->plan_bytes += srv_plan_bytes(&eng_info(model->engine)->memory);
    if (view->n_models == SRV_METRICS_MODELS) return;
    struct srv_metrics_model *to = &view->models[view->n_models], *other = view->models;
    snprintf(to->name, sizeof(to->name), "%s", model->names[0]);
    snprintf(to->fingerprint, sizeof(to->fingerprint), "%s", model->fingerprint);
    while (strcmp(other->name, to->name) || strcmp(other->fingerprint, to->fingerprint))
        other++;
    view->n_models += other == to;
}

/* The numbers of /metrics; the arrays are large. */
struct shown {
    const struct srv_models *models;
    struct srv_metrics_view view;
    struct srv_models_view sums;
    struct srv_metrics_entry entries[POLICY_ENTRIES];
};

static void add_entry(void *ctx, const struct srv_entry *e)
{
    struct shown *shown = ctx;
    struct srv_metrics_entry *to = &shown->entries[shown->view.n_entries++];
    snprintf(to->name, sizeof(to->name), "%s", e->source.names[0]);
    to->state = srv_entry_state_name(e);
    if (e->model) {
        const struct eng_memory *m = &eng_info(e->model->engine)->memory;
        to->bytes[0] = m->weights_bytes;
        to->bytes[1] = m->kv_bytes + m->state_bytes;
        to->bytes[2] = srv_plan_bytes(m) - to->bytes[0] - to->bytes[1];
    }
    to->n_loads[0] = e->n_loads;
    to->n_loads[1] = e->n_failed_loads;
    memcpy(to->n_evictions, e->n_evictions, sizeof(to->n_evictions));
    to->n_waiters = e->n_waiters;
    srv_entry_stats(shown->models, e, &to->stats);
}

static void metrics(struct srv_request *req)
{
    struct srv_server *s = req->server;
    struct srv_app *app = s->app;
    enum srv_state state = (enum srv_state)atomic_load(&app->state);
    struct shown *shown = calloc(1, sizeof(*shown));
    srv_facts(req)->account.endpoint = "metrics";
    if (!shown) {
        srv_reply_error(req, SRV_ERR_OVERLOADED, NULL,
                        "The server is out of memory for this request.");
        return;
    }
    struct srv_model *model = srv_models_of(&app->models, atomic_load(&app->models.default_entry));
    struct srv_metrics_view *view = &shown->view;
    shown->models = &app->models;
    view->n_connections = srv_watch_n_connections(s->watch);
    view->n_requests = atomic_load(&s->n_requests);
    view->n_compile_waits = compile_queue_length(app->compiles);
    view->ready = state == SRV_READY;
    view->start_time_s = s->start_time_s;
    if (app->batches) batches_look(app->batches, &view->batches);
    srv_models_look(&app->models, &shown->sums);
    srv_models_each(&app->models, add_model, view);
    srv_models_each_entry(&app->models, add_entry, shown);
    view->entries = shown->entries;
    srv_loras_used(&app->models, view->loras, sizeof(view->loras));
    view->n_grammar_hits = shown->sums.n_grammar_hits;
    view->n_grammar_misses = shown->sums.n_grammar_misses;
    view->n_loaded = shown->sums.n_loaded;
    view->n_draining = shown->sums.n_draining;
    if (model) {
        view->info = eng_info(model->engine);
        view->model = model->names[0];
        view->draft_model_on = eng_draft_state(model->engine, NULL) == ENG_DRAFTS_ON;
    }
    struct buf b = {.max = (size_t)SRV_METRICS_MAX_BYTES * (size_t)(1 + view->n_entries / 4)};
    srv_metrics_render(s->metrics, view, s->config->vllm_metrics, &b);
    srv_model_release(model, false);
    free(shown);
    srv_reply(req, 200, "text/plain; version=0.0.4; charset=utf-8", &b);
}

#define OPEN_EARLY (SRV_ROUTE_OPEN | SRV_ROUTE_INLINE | SRV_ROUTE_EARLY)
#define HEALTH (OPEN_EARLY | SRV_ROUTE_ANY_HOST)

const struct srv_route srv_routes_health[] = {
    {"GET", "/v1/health", HEALTH | SRV_ROUTE_BARE, SRV_DIALECT_OPENAI, ready, NULL},
    {"GET", "/readyz", HEALTH, SRV_DIALECT_OPENAI, ready, NULL},
    {"GET", "/healthz", HEALTH, SRV_DIALECT_OPENAI, live, NULL},
    {"GET", "/livez", HEALTH, SRV_DIALECT_OPENAI, live, NULL},
    {"GET", "/ping", HEALTH, SRV_DIALECT_OPENAI, live, NULL},
    {"GET", "/version", OPEN_EARLY, SRV_DIALECT_OPENAI, version, NULL},
    {"GET", "/metrics", SRV_ROUTE_INLINE | SRV_ROUTE_EARLY, SRV_DIALECT_OPENAI, metrics, NULL},
    {0},
};
