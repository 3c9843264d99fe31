/* SPDX-License-Identifier: MIT */
/*
 * Between the routes and their models: finds the entry that a request asks for, takes a reference
 * to its model or waits for one, runs the handler, and gives the model back; see server.h.
 */
#include <stddef.h>
#include <string.h>

#include "base/clock.h"
#include "server/api/pooled/pooled.h"
#include "server/api/pooled/texts.h"
#include "server/api/read/body.h"
#include "server/api/routes.h"
#include "server/http/keys.h"
#include "server/http/request.h"
#include "server/http/server.h"
#include "server/models/app.h"
#include "server/models/loras.h"
#include "server/models/serve_pull.h"

/* A request that waits for its model. */
struct waiting {
    struct srv_wait wait;
    struct srv_request *req;
};

/* The request's body, read; its handler takes it from here. Returns 0, or -1 after param_fail. */
static int read_body(struct srv_request *req)
{
    struct srv_facts *f = &req->facts;
    bool pooled = req->route->handle == srv_pooled_handle;
    if (f->read) return 0;
    struct srv_body *body = srv_request_alloc(req, sizeof(*body));
    if (!body) return param_no_memory();
    if (srv_body_read(body, f->body, f->body_len, pooled ? TEXTS_MAX_VALUES : PARAM_MAX_VALUES))
        return -1;
    f->read = body;
    return 0;
}

static void set_model(struct srv_request *req, struct srv_model *m)
{
    req->facts.model = m;
    req->answers = &m->answer_bytes;
    req->answers_limit = &eng_info(m->engine)->memory.answer_bytes;
}

/* ---- adapters ------------------------------------------------------------------------------ */

/* The adapters that the request asks for: by the model's name, by its field, or the usual ones.
 * Returns their number, or -1 after param_fail. */
static int ask_loras(struct srv_request *req, struct srv_lora_ask ret[ENG_MAX_LORAS])
{
    struct srv_facts *f = &req->facts;
    const json_t *field = NULL;
    if ((req->route->flags & SRV_ROUTE_STREAMS) && read_body(req)) return -1;
    if (req->route->flags & SRV_ROUTE_STREAMS) field = json_object_get(f->read->root, "lora");
    f->has_read_lora = true;
    if (f->lora && json_array_size(field))
        return param_fail(SRV_ERR_INVALID_VALUE, "lora",
                          "'lora' cannot be used together with an adapter as model.");
    if (f->lora) {
        ret[0] = (struct srv_lora_ask){f->lora_number, 1};
        return 1;
    }
    if (field && !json_is_null(field)) return srv_lora_read(req, field, f->entry, ret);
    return srv_loras_usual(&f->app->models, f->entry, ret);
}

/* Opens what the request asks for. Returns true if the handler may run; else it has its answer. */
static bool take_loras(struct srv_request *req)
{
    struct srv_facts *f = &req->facts;
    struct srv_lora_ask asks[ENG_MAX_LORAS];
    char why[600];
    if (!srv_loras_any(&f->app->models)) return true;
    int n = ask_loras(req, asks);
    if (n < 0) param_reply(req);
    while (f->n_loras < n) {
        struct eng_lora_use *use = &f->loras[f->n_loras];
        use->scale = asks[f->n_loras].scale;
        int rc = srv_loras_take(&f->app->models, f->model, asks[f->n_loras].which, &use->lora, why,
                                sizeof(why));
        if (rc) {
            enum srv_error kind = rc == ENG_EQUEUEFULL ? SRV_ERR_LOADING
                                  : rc == ENG_ENOENT   ? SRV_ERR_MODEL_NOT_FOUND
                                  : rc == ENG_ENOMEM   ? SRV_ERR_NOT_LOADED
                                                       : SRV_ERR_MODEL_FAILED;
            srv_reply_error(req, kind, "model", "The adapter cannot be used: %s",
                            srv_public_reason(why));
            return false;
        }
        f->n_loras++;
    }
    return n >= 0;
}

/* ---- waiting for the model ----------------------------------------------------------------- */

/* May be called with the lock of the set held, before the end. */
static void wake_waiting(struct srv_wait *w, bool ended)
{
    struct srv_request *req = ((struct waiting *)(void *)w)->req;
    srv_request_wake(req);
    if (ended) srv_request_unref(req);
}

static void leave_wait(void *data)
{
    struct waiting *w = data;
    srv_models_leave(&w->req->facts.app->models, &w->wait);
}

/* No model, so no handler: the answer says why. */
static void refuse(struct srv_request *req, enum srv_ask why, const char *message)
{
    char name[140];
    struct srv_models *models = &req->facts.app->models;
    if (req->facts.only && why == SRV_ASK_UNAVAILABLE) message = "there is no room for it";
    req->load_ms = srv_models_load_ms(models, req->facts.entry);
    srv_models_name(models, req->facts.entry, name, sizeof(name));
    switch (why) {
    case SRV_ASK_UNLOADED:
        srv_reply_error(req, SRV_ERR_NOT_LOADED, "model",
                        "The model '%s' is not loaded, and is not loaded for this request.", name);
        break;
    case SRV_ASK_UNAVAILABLE:
        srv_reply_error(req, SRV_ERR_NOT_LOADED, "model", "The model '%s' cannot be loaded: %s",
                        name, message);
        break;
    case SRV_ASK_FAILED:
        srv_reply_error(req, SRV_ERR_MODEL_FAILED, "model",
                        "The model '%s' could not be loaded: %s", name, message);
        break;
    case SRV_ASK_CLOSED:
        srv_reply_error(req, SRV_ERR_SHUTTING_DOWN, NULL, "The server is shutting down.");
        break;
    default:
        srv_reply_error(req, SRV_ERR_LOADING, "model", "The model '%s' is still loading.", name);
    }
}

/* Ollama's dialect streams unless it is told not to. */
static bool asks_for_stream(const struct srv_request *req)
{
    const json_t *stream = json_object_get(req->facts.read->root, "stream");
    return json_is_true(stream) ||
           (req->facts.dialect == SRV_DIALECT_OLLAMA && !json_is_false(stream));
}

/* A stream that has waited for long begins with a sign of life. */
static void open_early(struct waiting *w)
{
    struct srv_request *req = w->req;
    const char *beat = srv_request_beat(req);
    if (req->opened_early || !w->wait.noticed || !(req->route->flags & SRV_ROUTE_STREAMS) ||
        read_body(req) || !asks_for_stream(req))
        return;
    req->opened_early = true;
    srv_stream_open(req);
    srv_stream_write(req, beat, strlen(beat));
}

static void go_on(void *data)
{
    static const struct srv_callbacks none;
    struct waiting *w = data;
    struct srv_request *req = w->req;
    enum srv_wait_end end = (enum srv_wait_end)atomic_load(&w->wait.end);
    if (end == SRV_WAITS) {
        open_early(w);
        return;
    }
    srv_request_set_callbacks(req, &none, NULL);
    srv_metrics_observe(req->server->metrics, SRV_TIME_MODEL_WAIT,
                        clock_now_us() - w->wait.since_us);
    switch (end) {
    case SRV_WAIT_GIVEN:
        set_model(req, w->wait.model);
        if (take_loras(req)) req->route->handle(req);
        break;
    case SRV_WAIT_FAILED: refuse(req, SRV_ASK_FAILED, w->wait.message); break;
    case SRV_WAIT_LEFT: /* nobody reads it, unless the server ends */
    case SRV_WAIT_CLOSED: refuse(req, SRV_ASK_CLOSED, ""); break;
    default: refuse(req, SRV_ASK_FULL, "");
    }
}

/* Returns true if the model has come meanwhile; else the request waits, or has its answer. */
static bool await(struct srv_request *req)
{
    static const struct srv_callbacks none,
        waiting = {.on_wake = go_on, .on_gone = leave_wait, .on_stop = leave_wait};
    const char *autoload = srv_request_query(req, "autoload");
    struct waiting *w = srv_request_alloc(req, sizeof(*w));
    if (!w) {
        srv_reply_error(req, SRV_ERR_OVERLOADED, NULL,
                        "The server is out of memory for this request.");
        return false;
    }
    w->req = req;
    w->wait.wake = wake_waiting;
    w->wait.key = req->held.key;
    w->wait.several_keys = srv_keys_several(req->server->keys);
    w->wait.no_load = autoload && !strcmp(autoload, "false");
    srv_request_ref(req);
    srv_request_set_callbacks(req, &waiting, w);
    enum srv_ask answer = srv_models_ask(&req->facts.app->models, req->facts.entry, &w->wait);
    if (answer == SRV_ASK_WAITS) {
        if (srv_request_set_callbacks(req, &waiting, w))
            leave_wait(w); /* the client left before it could be told so */
        return false;
    }
    srv_request_set_callbacks(req, &none, NULL);
    srv_request_unref(req);
    if (answer != SRV_ASK_GIVEN) {
        refuse(req, answer, w->wait.message);
        return false;
    }
    set_model(req, w->wait.model);
    return true;
}

/* ---- the model of a request ---------------------------------------------------------------- */

/* The name of the model that a request asks for, borrowed from it; NULL: none. Returns 0, or -1
 * after param_fail. */
static int find_name(struct srv_request *req, const char **ret)
{
    *ret = srv_request_query(req, "model");
    if (strcmp(req->route->method, "POST") != 0) return 0;
    if (read_body(req)) return -1;
    const json_t *model = json_object_get(req->facts.read->root, "model");
    const char *name = json_string_value(model);
    if (name && strlen(name) == json_string_length(model)) *ret = name;
    return 0;
}

void srv_reply_no_model(struct srv_request *req, const char *name)
{
    char names[160];
    const struct srv_facts *f = srv_facts(req);
    srv_reply_error(req, SRV_ERR_MODEL_NOT_FOUND, "model",
                    "The model '%.64s%s' does not exist; this server serves %s.", name,
                    strlen(name) > 64 ? "..." : "",
                    srv_models_names(&f->app->models, f->only, names, sizeof(names)));
}

/* The entry of a name, which may be that of an adapter; or -1. */
static int find_named(struct srv_request *req, const char *name)
{
    struct srv_facts *f = &req->facts;
    bool tagged = f->dialect == SRV_DIALECT_OLLAMA;
    int entry = srv_models_find_of(&f->app->models, f->only, name, tagged);
    if (entry >= 0) return entry;
    srv_loras_look(&f->app->models, name);
    f->lora_number = srv_loras_find(&f->app->models, f->only, name, &entry);
    if (f->lora_number) f->lora = name;
    return entry;
}

/* The entry that a request asks for; -1: there is none of that name, and the answer says so. */
static int find_entry(struct srv_request *req)
{
    const struct srv_config *c = req->server->config;
    struct srv_models *models = &req->facts.app->models;
    const char *only = req->facts.only, *name = NULL;
    int first = only ? srv_models_find(models, only) : atomic_load(&models->default_entry);
    if ((first < 0 || srv_models_count(models) > 1 || srv_loras_any(models)) &&
        find_name(req, &name)) {
        param_reply(req);
        return -1;
    }
    int entry = name ? find_named(req, name) : -1;
    /* Others are left to the handler, which knows what is wrong with them. */
    bool stays =
        !name || !*name || c->accept_any_model || (srv_is_placeholder(name) && !c->strict_model);
    if (entry < 0 && stays && only)
        entry = find_named(req, only);
    else if (entry < 0 && (stays || (!only && srv_models_is_loaded(models, first))))
        entry = first;
    if (entry < 0) srv_reply_no_model(req, !stays ? name : only ? only : c->default_model);
    return entry;
}

/* Returns true if the handler may run; else the request waits, or has its answer. */
static bool take_model(struct srv_request *req)
{
    unsigned flags = req->route->flags;
    int entry = find_entry(req);
    if (entry < 0) return false;
    req->facts.entry = entry;
    struct srv_models *models = &req->facts.app->models;
    struct srv_wait now = {.no_load = true};
    if (flags & SRV_ROUTE_INLINE)
        now.model = srv_models_of(models, entry);
    else
        srv_models_ask(models, entry, &now);
    if (now.model) set_model(req, now.model);
    if (now.model || (flags & SRV_ROUTE_ANY_MODEL)) return true;
    if (!(flags & SRV_ROUTE_INLINE)) return await(req);
    refuse(req, SRV_ASK_UNLOADED, "");
    return false;
}

static void enter(struct srv_request *req)
{
    if ((req->route->flags & (SRV_ROUTE_EARLY | SRV_ROUTE_OPERATOR | SRV_ROUTE_NO_MODEL)) ||
        (take_model(req) && ((req->route->flags & SRV_ROUTE_INLINE) || take_loras(req))))
        req->route->handle(req);
}

static void leave(struct srv_request *req)
{
    struct srv_model *m = req->facts.model;
    if (req->callbacks.on_free) req->callbacks.on_free(req->api_data);
    req->callbacks.on_free = NULL;
    if (req->facts.read) srv_body_finish(req->facts.read);
    req->facts.read = NULL;
    if (!m) return;
    if (req->facts.account.queue_us >= 0 &&
        !req->facts.account.spare) { /* the retry times learn of it */
        struct eng_stats stats;
        eng_stats(m->engine, &stats);
        srv_retry_note_end(&req->server->retry, clock_now_us(), stats.n_waiting > 0);
    }
    while (req->facts.n_loras)
        eng_lora_close(req->facts.loras[--req->facts.n_loras].lora);
    req->facts.model = NULL;
    req->answers = NULL;
    if (req->answer_bytes) {
        req->charged = m;
        srv_model_keep_answer(m);
    }
    srv_model_release(m, !(req->route->flags & SRV_ROUTE_INLINE));
}

const struct srv_gate srv_gate = {enter, leave, srv_model_drop_answer, srv_pull_percent,
                                  srv_pull_left_ms};
