/* SPDX-License-Identifier: MIT */
/*
 * GET /health and /readyz: 200 if requests can be served. GET /healthz, /livez and /ping: 200
 * unless the process hangs. GET /version; GET /metrics. All run on the HTTP thread, also while the
 * model loads and while draining.
 */
#include "base/clock.h"
#include "base/json_writer.h"
#include "engine/engine.h"
#include "server/api/routes.h"
#include "server/bounds.h"
#include "server/config/config.h"
#include "server/http/api_error.h"
#include "server/compile_queue.h"
#include "server/http/request.h"
#include "server/http/server.h"
#include "server/http/watch.h"
#include "server/metrics.h"
#include "server/serve_pull.h"

/*
 * The main thread checks the engine many times per second. If it has not for this long, it hangs.
 */
enum { MONITOR_LATE_US = 30 * 1000000 };

/* percent: of a model that is being fetched (--pull), -1 for none. */
static void reply_status(struct srv_request *req, const char *status, int percent)
{
    struct buf b;
    struct jw w;
    buf_init(&b, 256);
    jw_init(&w, &b);
    jw_open(&w, NULL, '{');
    jw_text(&w, "status", status);
    if (percent >= 0) jw_int(&w, "percent", percent);
    jw_close(&w);
    srv_reply_header(req, "Cache-Control", "no-store");
    if (percent >= 0) srv_reply_header(req, "Retry-After", "1");
    srv_reply(req, percent >= 0 ? 503 : 200, NULL, jw_end(&w));
}

static bool is_alive(struct srv_server *s)
{
    uint64_t looked_us = atomic_load(&s->monitor_us);
    bool monitored = looked_us == 0 || clock_now_us() < looked_us + MONITOR_LATE_US;
    return monitored && !atomic_load(&s->stalled);
}

static void live(struct srv_request *req)
{
    srv_facts(req)->account.endpoint = "health";
    if (is_alive(req->server))
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
    struct buf b;
    struct jw w;
    srv_facts(req)->account.endpoint = "version";
    buf_init(&b, 256);
    jw_init(&w, &b);
    jw_open(&w, NULL, '{');
    jw_text(&w, "version", HEARTH_VERSION);
    jw_text(&w, "server", "hearth");
    jw_close(&w);
    srv_reply(req, 200, NULL, jw_end(&w));
}

static void add_model(void *ctx, struct srv_model *model)
{
    struct srv_metrics_view *view = ctx;
    view->plan_bytes += srv_plan_bytes(&eng_info(model->engine)->memory);
    if (view->n_models == SRV_METRICS_MODELS) return;
    struct srv_metrics_model *to = &view->models[view->n_models++];
    snprintf(to->name, sizeof(to->name), "%s", model->names[0]);
    snprintf(to->fingerprint, sizeof(to->fingerprint), "%s", model->fingerprint);
}

static void metrics(struct srv_request *req)
{
    struct srv_server *s = req->server;
    enum srv_state state = (enum srv_state)atomic_load(&srv_facts(req)->app->state);
    struct srv_model *model = srv_models_take(&s->app.models, NULL);
    struct srv_metrics_view view = {
        .n_connections = srv_watch_n_connections(s->watch),
        .n_requests = atomic_load(&s->n_requests),
        .n_compile_waits = compile_queue_length(s->app.compiles),
        .ready = state == SRV_READY,
        .start_time_s = s->start_time_s,
    };
    struct srv_models_view models;
    srv_models_look(&s->app.models, &models);
    srv_models_each(&s->app.models, add_model, &view);
    view.stats = &models.stats;
    view.n_grammar_hits = models.n_grammar_hits;
    view.n_grammar_misses = models.n_grammar_misses;
    view.n_draining = models.n_draining;
    if (model) {
        view.info = eng_info(model->engine);
        view.model = model->names[0];
        view.draft_model_on = eng_draft_state(model->engine, NULL) == ENG_DRAFTS_ON;
    }
    srv_facts(req)->account.endpoint = "metrics";
    struct buf b;
    buf_init(&b, SRV_METRICS_MAX_BYTES);
    srv_metrics_render(s->metrics, &view, s->config->vllm_metrics, &b);
    srv_model_release(model, false);
    srv_reply(req, 200, "text/plain; version=0.0.4; charset=utf-8", &b);
}

#define OPEN_EARLY (SRV_ROUTE_OPEN | SRV_ROUTE_INLINE | SRV_ROUTE_EARLY)
#define HEALTH (OPEN_EARLY | SRV_ROUTE_ANY_HOST)

const struct srv_route srv_routes_health[] = {
    {"GET", "/health", HEALTH, ready, NULL},
    {"GET", "/v1/health", HEALTH, ready, NULL},
    {"GET", "/readyz", HEALTH, ready, NULL},
    {"GET", "/healthz", HEALTH, live, NULL},
    {"GET", "/livez", HEALTH, live, NULL},
    {"GET", "/ping", HEALTH, live, NULL},
    {"GET", "/version", OPEN_EARLY, version, NULL},
    {"GET", "/metrics", SRV_ROUTE_INLINE | SRV_ROUTE_EARLY, metrics, NULL},
    {0},
};
