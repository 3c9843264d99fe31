/* SPDX-License-Identifier: MIT */
/*
 * POST /models/load: loads a model of the catalogue, or replaces one while requests go on
 * (server/models/swap.h). POST /models/unload. The guard has checked who asks. The request holds
 * no model, and waits without a thread of its own.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json_writer.h"
#include "server/api/read/generation_fields.h"
#include "server/api/read/json_fields.h"
#include "server/api/routes.h"
#include "server/http/request.h"
#include "server/models/swap.h"

enum { MAX_NAMES = 16, MAX_NAME_BYTES = 128, MAX_MODEL_BYTES = 1024 };

struct load_params {
    const json_t *model, *draft_model, *replace, *alias, *wait;
};

#define FIELD(member, otherwise_, meaning_)                                                        \
    {                                                                                              \
        .name = #member, .type = PARAM_JSON, .offset = offsetof(struct load_params, member),       \
        .otherwise = otherwise_, .meaning = meaning_                                               \
    }

const struct param_field srv_fields_swap[] = {
    FIELD(model, "the model of the start, looked up again",
          "`org/name[@revision]` in the cache, or an absolute directory; nothing is downloaded"),
    FIELD(draft_model, "that of the start with the model of the start, else none",
          "as `model`: a smaller one that [drafts](drafts.md) for it"),
    FIELD(replace, "the only model", "a name of the model that is replaced, if several are served"),
    FIELD(alias, "`--alias`, else the model's own name",
          "the name that the model answers to, or up to 16"),
    FIELD(wait, "`switched`",
          "when the answer comes: with the switch, when the old model is gone, or at once (202)"),
    {0},
};

/* ---- reading ------------------------------------------------------------------------------- */

/* Returns the text of a string of 1 to max printable bytes, or NULL with err. */
static const char *read_text(const json_t *value, const char *name, size_t max,
                             struct param_error *err)
{
    const char *text = json_string_value(value);
    if (!text) {
        param_fail(err, SRV_ERR_INVALID_TYPE, name, "'%s' must be a string.", name);
        return NULL;
    }
    size_t len = json_string_length(value);
    bool good = len > 0 && len <= max;
    for (size_t i = 0; good && i < len; i++)
        good = (unsigned char)text[i] >= ' ' && text[i] != 0x7f;
    if (good) return text;
    param_fail(err, SRV_ERR_INVALID_VALUE, name, "'%s' must have 1 to %zu printable bytes.", name,
               max);
    return NULL;
}

/* The names: a string or a list of them. */
static int read_names(const json_t *alias, const char *names[MAX_NAMES], struct srv_list *ret,
                      struct param_error *err)
{
    size_t n = json_is_array(alias) ? json_array_size(alias) : 1;
    *ret = (struct srv_list){names, 0};
    if (!alias) return 0;
    if (n < 1 || n > MAX_NAMES)
        return param_fail(err, SRV_ERR_INVALID_VALUE, "alias", "'alias' must have 1 to %d names.",
                          MAX_NAMES);
    for (size_t i = 0; i < n; i++) {
        const json_t *name = json_is_array(alias) ? json_array_get(alias, i) : alias;
        if (!(names[i] = read_text(name, "alias", MAX_NAME_BYTES, err))) return -1;
    }
    ret->n = (int)n;
    return 0;
}

/* The entry whose model is replaced. */
static int read_entry(struct srv_request *req, const json_t *replace, int *ret,
                      struct param_error *err)
{
    const struct srv_app *app = srv_facts(req)->app;
    const char *name = NULL;
    *ret = 0;
    if (replace && !(name = read_text(replace, "replace", MAX_NAME_BYTES, err))) return -1;
    int n = srv_models_count(srv_app_models(app));
    if (!name && n > 1)
        return param_fail(err, SRV_ERR_INVALID_VALUE, "replace",
                          "This server has %d models: 'replace' must name the one to be replaced.",
                          n);
    if (!name || (*ret = srv_models_find(srv_app_models(app), name)) >= 0) return 0;
    return param_fail(err, SRV_ERR_MODEL_NOT_FOUND, "replace", "No model has the name '%.128s'.",
                      name);
}

enum wait_for { WAIT_NOT, WAIT_SWITCHED, WAIT_DRAINED };

static int read_wait(const json_t *wait, enum wait_for *ret, struct param_error *err)
{
    const char *text = json_string_value(wait);
    *ret = WAIT_SWITCHED;
    if (!wait || (text && !strcmp(text, "switched"))) return 0;
    *ret = text ? WAIT_DRAINED : WAIT_NOT;
    if (json_is_false(wait) || (text && !strcmp(text, "drained"))) return 0;
    return param_fail(err, text ? SRV_ERR_INVALID_VALUE : SRV_ERR_INVALID_TYPE, "wait",
                      "'wait' must be \"switched\", \"drained\" or false.");
}

/* ---- answering ----------------------------------------------------------------------------- */

static void reply_outcome(struct srv_request *req, const struct srv_swap_outcome *o)
{
    struct buf b;
    struct jw w;
    buf_init(&b, 8192);
    jw_init(&w, &b);
    jw_open(&w, NULL, '{');
    jw_bool(&w, "success", true);
    jw_text(&w, "model", o->model);
    jw_text(&w, "previous", o->previous);
    jw_text(&w, "system_fingerprint", o->fingerprint);
    if (o->result == SWAP_UNCHANGED) jw_bool(&w, "unchanged", true);
    jw_int(&w, "load_ms", o->load_ms);
    jw_int(&w, "self_test_ms", o->self_test_ms);
    jw_int(&w, "draining", o->n_draining);
    jw_close(&w);
    srv_reply(req, 200, NULL, jw_end(&w));
}

static void reply_no_room(struct srv_request *req, const struct srv_swap_outcome *o)
{
    const struct srv_error_number numbers[] = {{"needed_bytes", o->memory.needed},
                                               {"available_bytes", o->memory.available},
                                               {"limit_bytes", o->memory.limit},
                                               {0}};
    struct buf b;
    buf_init(&b, 8192);
    srv_error_write_for(req, &b, SRV_ERR_NO_ROOM, "model", o->message, numbers);
    srv_reply(req, srv_error_status(SRV_ERR_NO_ROOM), NULL, &b);
}

static enum srv_error error_of(const struct srv_swap_outcome *o)
{
    switch (o->result) {
    case SWAP_INVALID:
    case SWAP_SELF_TEST: return SRV_ERR_MODEL_INVALID;
    case SWAP_NOT_FOUND: return SRV_ERR_MODEL_NOT_FOUND;
    case SWAP_BUSY: return SRV_ERR_SWAP_IN_PROGRESS;
    case SWAP_GIVEN_UP: return SRV_ERR_SHUTTING_DOWN;
    default: return SRV_ERR_OVERLOADED;
    }
}

static void reply(struct srv_request *req, const struct srv_swap_outcome *o)
{
    if (o->result <= SWAP_UNCHANGED)
        reply_outcome(req, o);
    else if (o->result == SWAP_NO_MEMORY && o->memory.limit)
        reply_no_room(req, o);
    else
        srv_reply_error(req, error_of(o), o->result == SWAP_GIVEN_UP ? NULL : "model", "%s",
                        o->message);
}

/* ---- waiting ------------------------------------------------------------------------------- */

/* In the request's memory. The outcome is the swap's until `done`, then the text workers'. */
struct waiting {
    struct srv_request *req; /* referenced until on_end has returned */
    struct srv_swap_outcome outcome;
    atomic_bool done;
};

static void on_end(void *ctx, const struct srv_swap_outcome *outcome)
{
    struct waiting *w = ctx;
    struct srv_request *req = w->req;
    w->outcome = *outcome;
    atomic_store(&w->done, true);
    srv_request_wake(req);
    srv_request_unref(req);
}

static void on_wake(void *ctx)
{
    struct waiting *w = ctx;
    struct srv_request *req = w->req;
    if (!atomic_load(&w->done)) return;
    reply(req, &w->outcome);
    srv_request_done(req);
}

/* A client that leaves changes nothing: the swap goes on. */
static void on_gone(void *ctx)
{
    (void)ctx;
}

static void start_and_wait(struct srv_request *req, struct srv_swap_params *params)
{
    static const struct srv_callbacks callbacks = {.on_wake = on_wake, .on_gone = on_gone};
    struct waiting *w = srv_request_alloc(req, sizeof(*w));
    struct srv_swap_outcome failed = {.result = SWAP_NO_MEMORY,
                                      .message = "The server is out of memory for this request."};
    if (!w) {
        reply(req, &failed);
        return;
    }
    w->req = req;
    params->on_end = on_end;
    params->ctx = w;
    srv_request_ref(req);
    srv_request_set_callbacks(req, &callbacks, w);
    failed.result =
        srv_swap_start(srv_facts(req)->app->swap, params, failed.message, sizeof(failed.message));
    if (failed.result == SWAP_OK) return;
    reply(req, &failed);
    srv_request_unref(req);
    srv_request_done(req);
}

static void reply_state(struct srv_request *req, const char *state)
{
    struct buf b;
    struct jw w;
    buf_init(&b, 256);
    jw_init(&w, &b);
    jw_open(&w, NULL, '{');
    jw_bool(&w, "success", true);
    jw_text(&w, "state", state);
    jw_close(&w);
    srv_reply(req, 202, NULL, jw_end(&w));
}

static void start(struct srv_request *req, const struct srv_swap_params *params)
{
    struct srv_swap_outcome failed = {0};
    failed.result =
        srv_swap_start(srv_facts(req)->app->swap, params, failed.message, sizeof(failed.message));
    if (failed.result)
        reply(req, &failed);
    else
        reply_state(req, srv_swap_state_name(SWAP_PLANNING));
}

/* ---- a model of the catalogue -------------------------------------------------------------- */

/* An operator who waits for a load. */
struct asker {
    struct srv_wait wait;
    struct srv_request *req; /* referenced until the wait has ended; NULL: nobody reads it */
    uint64_t since_us;
    bool unchanged;
};

static void reply_loaded(struct srv_request *req, const struct asker *o)
{
    const struct srv_model *m = o->wait.model;
    struct buf b;
    struct jw w;
    buf_init(&b, 8192);
    jw_init(&w, &b);
    jw_open(&w, NULL, '{');
    jw_bool(&w, "success", true);
    jw_text(&w, "model", m->names[0]);
    jw_text(&w, "system_fingerprint", m->fingerprint);
    if (o->unchanged) jw_bool(&w, "unchanged", true);
    jw_int(&w, "load_ms", (int64_t)(clock_now_us() - o->since_us) / 1000);
    jw_close(&w);
    srv_reply(req, 200, NULL, jw_end(&w));
}

/* The load has ended, well or not. */
static void reply_entry(struct srv_request *req, struct asker *o)
{
    switch ((enum srv_wait_end)atomic_load(&o->wait.end)) {
    case SRV_WAIT_GIVEN:
        reply_loaded(req, o);
        srv_model_release(o->wait.model, true);
        break;
    case SRV_WAIT_FAILED:
        srv_reply_error(req, SRV_ERR_MODEL_INVALID, "model", "%s", o->wait.message);
        break;
    default: srv_reply_error(req, SRV_ERR_SHUTTING_DOWN, NULL, "The server is shutting down.");
    }
}

static void on_loaded(void *ctx)
{
    struct asker *o = ctx;
    struct srv_request *req = o->req;
    if (atomic_load(&o->wait.end) == SRV_WAITS) return;
    reply_entry(req, o);
    srv_request_done(req);
}

/* In memory of the request, or if it does not wait, of its own. */
static void wake_operator(struct srv_wait *w, bool ended)
{
    struct asker *o = (struct asker *)(void *)w;
    if (!ended) return;
    if (o->req) {
        srv_request_wake(o->req);
        srv_request_unref(o->req);
        return;
    }
    if (atomic_load(&w->end) == SRV_WAIT_GIVEN) srv_model_release(w->model, true);
    free(o);
}

static void load_entry(struct srv_request *req, int entry, bool waits)
{
    static const struct srv_callbacks callbacks = {.on_wake = on_loaded, .on_gone = on_gone};
    struct srv_models *models = srv_app_models(srv_facts(req)->app);
    struct asker *o = waits ? srv_request_alloc(req, sizeof(*o)) : calloc(1, sizeof(*o));
    if (!o) {
        srv_reply_error(req, SRV_ERR_OVERLOADED, NULL,
                        "The server is out of memory for this request.");
        return;
    }
    *o = (struct asker){.wait = {.by_operator = true, .wake = wake_operator},
                        .since_us = clock_now_us()};
    if (waits) {
        o->req = req;
        srv_request_ref(req);
        srv_request_set_callbacks(req, &callbacks, o);
    }
    enum srv_ask answer = srv_models_ask(models, entry, &o->wait);
    if (answer == SRV_ASK_WAITS) {
        if (!waits) reply_state(req, "loading");
        return;
    }
    if (answer == SRV_ASK_GIVEN) {
        o->unchanged = true;
        reply_loaded(req, o);
        srv_model_release(o->wait.model, true);
    } else if (answer == SRV_ASK_UNAVAILABLE) {
        struct srv_swap_outcome no_room = {.memory = srv_models_room(models, entry)};
        snprintf(no_room.message, sizeof(no_room.message), "%s", o->wait.message);
        reply_no_room(req, &no_room);
    } else {
        srv_reply_error(req, SRV_ERR_SHUTTING_DOWN, NULL, "The server is shutting down.");
    }
    if (waits) {
        srv_request_unref(req);
        srv_request_done(req);
    } else {
        free(o);
    }
}

/* The entry of the catalogue that is to be loaded, or -1: the request is for a swap. */
static int find_entry(struct srv_request *req, const struct load_params *p, const char *model)
{
    struct srv_models *models = srv_app_models(srv_facts(req)->app);
    if (!model || p->replace || p->alias || p->draft_model || srv_models_count(models) < 2)
        return -1;
    return srv_models_find(models, model);
}

/* ---- unloading ----------------------------------------------------------------------------- */

struct unload_params {
    const json_t *model, *wait;
};

const struct param_field srv_fields_unload[] = {
    {.name = "model",
     .type = PARAM_JSON,
     .offset = offsetof(struct unload_params, model),
     .otherwise = "the only model",
     .meaning = "a name of the model; its next request loads it again"},
    {.name = "wait",
     .type = PARAM_JSON,
     .offset = offsetof(struct unload_params, wait),
     .otherwise = "`switched`",
     .meaning = "when the answer comes: at once, or with `drained` when the model is gone"},
    {0},
};

/* One who waits until a model is gone. */
struct unloading {
    struct srv_request *req; /* referenced until then */
    char name[140];
    int n_draining;
    atomic_bool done;
};

static void reply_unloaded(struct srv_request *req, const struct unloading *u)
{
    struct buf b;
    struct jw w;
    buf_init(&b, 1024);
    jw_init(&w, &b);
    jw_open(&w, NULL, '{');
    jw_bool(&w, "success", true);
    jw_text(&w, "model", u->name);
    jw_int(&w, "draining", u->n_draining);
    jw_close(&w);
    srv_reply(req, 200, NULL, jw_end(&w));
}

static void on_closed(void *ctx)
{
    struct unloading *u = ctx;
    struct srv_request *req = u->req;
    atomic_store(&u->done, true);
    srv_request_wake(req);
    srv_request_unref(req);
}

static void on_unloaded(void *ctx)
{
    struct unloading *u = ctx;
    struct srv_request *req = u->req;
    if (!atomic_load(&u->done)) return;
    reply_unloaded(req, u);
    srv_request_done(req);
}

static void unload_entry(struct srv_request *req, int entry, bool waits)
{
    static const struct srv_callbacks callbacks = {.on_wake = on_unloaded, .on_gone = on_gone};
    struct srv_models *models = srv_app_models(srv_facts(req)->app);
    struct unloading *u = srv_request_alloc(req, sizeof(*u));
    if (!u) {
        srv_reply_error(req, SRV_ERR_OVERLOADED, NULL,
                        "The server is out of memory for this request.");
        return;
    }
    u->req = req;
    srv_models_name(models, entry, u->name, sizeof(u->name));
    if (waits) srv_request_ref(req);
    if (waits) srv_request_set_callbacks(req, &callbacks, u);
    enum srv_unload rc =
        srv_models_unload(models, entry, &u->n_draining, waits ? on_closed : NULL, u);
    if (rc == SRV_UNLOAD_OK && waits) return;
    if (rc == SRV_UNLOAD_OK)
        reply_unloaded(req, u);
    else if (rc == SRV_UNLOAD_PINNED)
        srv_reply_error(req, SRV_ERR_PINNED, "model", "The model '%s' is pinned.", u->name);
    else
        srv_reply_error(req, SRV_ERR_NOT_LOADED, "model", "The model '%s' is not loaded.", u->name);
    if (!waits) return;
    srv_request_unref(req);
    srv_request_done(req);
}

static int read_model(struct srv_request *req, const json_t *model, int *ret,
                      struct param_error *err)
{
    struct srv_models *models = srv_app_models(srv_facts(req)->app);
    const char *name = NULL;
    *ret = 0;
    if (!model && srv_models_count(models) > 1)
        return param_fail(err, SRV_ERR_MISSING, "model", "'model' is required.");
    if (!model) return 0;
    if (!(name = read_text(model, "model", MAX_MODEL_BYTES, err))) return -1;
    if ((*ret = srv_models_find(models, name)) >= 0) return 0;
    return param_fail(err, SRV_ERR_MODEL_NOT_FOUND, "model", "No model has the name '%.128s'.",
                      name);
}

static void unload(struct srv_request *req)
{
    struct unload_params p = {0};
    struct param_error err = {0};
    struct param_unknown unknown = {0};
    struct srv_body body;
    enum wait_for wait;
    int entry;
    srv_facts(req)->account.endpoint = "swap";
    if (srv_body_read(&body, srv_facts(req)->body, srv_facts(req)->body_len, PARAM_MAX_VALUES,
                      &err) ||
        params_read(body.root, srv_fields_unload, &p, &unknown, &err) ||
        read_model(req, p.model, &entry, &err) || read_wait(p.wait, &wait, &err) ||
        param_name_ignored(req, &unknown, &err))
        param_reply(req, &err);
    else
        unload_entry(req, entry, wait == WAIT_DRAINED);
    srv_body_finish(&body);
}

/* ---- routes -------------------------------------------------------------------------------- */

static void load(struct srv_request *req)
{
    int entry = -1;
    struct load_params p = {0};
    struct srv_swap_params params = {0};
    struct param_error err = {0};
    struct param_unknown unknown = {0};
    const char *names[MAX_NAMES];
    enum wait_for wait;
    srv_facts(req)->account.endpoint = "swap";
    struct srv_body body;
    if (srv_body_read(&body, srv_facts(req)->body, srv_facts(req)->body_len, PARAM_MAX_VALUES,
                      &err) ||
        params_read(body.root, srv_fields_swap, &p, &unknown, &err) ||
        (p.model && !(params.model = read_text(p.model, "model", MAX_MODEL_BYTES, &err))) ||
        (p.draft_model &&
         !(params.draft_model = read_text(p.draft_model, "draft_model", MAX_MODEL_BYTES, &err))) ||
        ((entry = find_entry(req, &p, params.model)) < 0 &&
         read_entry(req, p.replace, &params.entry, &err)) ||
        read_names(p.alias, names, &params.names, &err) || read_wait(p.wait, &wait, &err) ||
        param_name_ignored(req, &unknown, &err)) {
        param_reply(req, &err);
    } else if (entry >= 0) {
        load_entry(req, entry, wait != WAIT_NOT);
    } else if (wait == WAIT_NOT) {
        start(req, &params);
    } else {
        params.until_drained = wait == WAIT_DRAINED;
        start_and_wait(req, &params);
    }
    srv_body_finish(&body);
}

const struct srv_route srv_routes_swap[] = {
    {"POST", "/v1/models/load", SRV_ROUTE_OPERATOR | SRV_ROUTE_BARE, SRV_DIALECT_OPENAI, load,
     NULL},
    {"POST", "/v1/models/unload", SRV_ROUTE_OPERATOR | SRV_ROUTE_BARE, SRV_DIALECT_OPENAI, unload,
     NULL},
    {0},
};
