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

#include "base/auto.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/json_writer.h"
#include "server/api/read/generation_fields.h"
#include "server/api/read/json_fields.h"
#include "server/api/routes.h"
#include "server/http/request.h"
#include "server/models/swap.h"

enum { MAX_NAMES = 16, MAX_NAME_BYTES = 128, MAX_MODEL_BYTES = 1024 };

/* Of a load; of an unload two of them. */
struct order_params {
    const json_t *model, *draft_model, *replace, *alias, *wait;
};

#define FIELD(member, otherwise_, meaning_)                                                        \
    {                                                                                              \
        PARAM_FIELD(struct order_params, #member, PARAM_JSON, member, otherwise_, meaning_)        \
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

/* Returns the text of a string of 1 to max printable bytes, or NULL after param_fail. */
static const char *read_text(const json_t *value, const char *name, size_t max)
{
    const char *text = json_string_value(value);
    if (!text) {
        param_wrong_type(name, "a string");
        return NULL;
    }
    size_t len = json_string_length(value);
    bool good = len > 0 && len <= max;
    for (size_t i = 0; good && i < len; i++)
        good = (unsigned char)text[i] >= ' ' && text[i] != 0x7f;
    if (good) return text;
    param_fail(SRV_ERR_INVALID_VALUE, name, "'%s' must have 1 to %zu printable bytes.", name, max);
    return NULL;
}

/* The names: a string or a list of them. */
static int read_names(const json_t *alias, const char *names[MAX_NAMES], struct srv_list *ret)
{
    size_t n = json_is_array(alias) ? json_array_size(alias) : 1;
    *ret = (struct srv_list){names, 0};
    if (!alias) return 0;
    if (n < 1 || n > MAX_NAMES)
        return param_fail(SRV_ERR_INVALID_VALUE, "alias", "'alias' must have 1 to %d names.",
                          MAX_NAMES);
    for (size_t i = 0; i < n; i++) {
        const json_t *name = json_is_array(alias) ? json_array_get(alias, i) : alias;
        if (!(names[i] = read_text(name, "alias", MAX_NAME_BYTES))) return -1;
    }
    ret->n = (int)n;
    return 0;
}

/* The entry that a field names; without it the only one. */
static int read_entry(struct srv_request *req, const json_t *value, const char *field, size_t max,
                      int *ret)
{
    const char *name = value ? read_text(value, field, max) : NULL;
    *ret = 0;
    if (!value) return 0;
    if (!name) return -1;
    if ((*ret = srv_models_find(&srv_facts(req)->app->models, name)) >= 0) return 0;
    return param_fail(SRV_ERR_MODEL_NOT_FOUND, field, "No model has the name '%.128s'.", name);
}

/* The entry whose model is replaced. */
static int read_replaced(struct srv_request *req, const json_t *replace, int *ret)
{
    int n = srv_models_count(&srv_facts(req)->app->models);
    if (!replace && n > 1)
        return param_fail(SRV_ERR_INVALID_VALUE, "replace",
                          "This server has %d models: 'replace' must name the one to be replaced.",
                          n);
    return read_entry(req, replace, "replace", MAX_NAME_BYTES, ret);
}

enum wait_for { WAIT_NOT, WAIT_SWITCHED, WAIT_DRAINED };

static int read_wait(const json_t *wait, enum wait_for *ret)
{
    const char *text = json_string_value(wait);
    *ret = WAIT_SWITCHED;
    if (!wait || (text && !strcmp(text, "switched"))) return 0;
    *ret = text ? WAIT_DRAINED : WAIT_NOT;
    if (json_is_false(wait) || (text && !strcmp(text, "drained"))) return 0;
    return param_fail(text ? SRV_ERR_INVALID_VALUE : SRV_ERR_INVALID_TYPE, "wait",
                      "'wait' must be \"switched\", \"drained\" or false.");
}

/* ---- answering ----------------------------------------------------------------------------- */

/* The change that an operator asks for. */
enum order_kind { OF_LOAD, OF_SWAP, OF_UNLOAD };
struct order {
    enum order_kind kind;
    int entry; /* of the catalogue */
    enum wait_for wait;
    struct srv_swap_params swap;
};

/* An order that is carried out. In memory of the request, or if that does not wait, of its own. */
struct asker {
    struct srv_wait wait;
    struct srv_request *req; /* referenced until the wait has ended; NULL: nobody reads it */
    enum order_kind kind;
    uint64_t since_us;
    struct srv_outcome outcome;
};

static void reply_done(struct srv_request *req, const struct asker *a)
{
    const struct srv_outcome *o = &a->outcome;
    struct srv_object answer;
    struct jw *w = srv_object_open(&answer, 8192);
    jw_fields(w, "success %i model %s", true, o->model);
    if (a->kind == OF_SWAP) jw_text(w, "previous", o->previous);
    if (a->kind != OF_UNLOAD) jw_text(w, "system_fingerprint", o->fingerprint);
    if (o->result == SWAP_UNCHANGED) jw_bool(w, "unchanged", true);
    if (a->kind != OF_UNLOAD) jw_int(w, "load_ms", o->load_ms);
    if (a->kind == OF_SWAP) jw_int(w, "self_test_ms", o->self_test_ms);
    if (a->kind != OF_LOAD) jw_int(w, "draining", o->n_draining);
    srv_object_reply(req, 200, &answer);
}

static void reply_no_room(struct srv_request *req, const struct srv_outcome *o)
{
    const struct srv_error_number numbers[] = {{"needed_bytes", o->memory.needed},
                                               {"available_bytes", o->memory.available},
                                               {"limit_bytes", o->memory.limit},
                                               {0}};
    struct buf b = {.max = 8192};
    srv_error_write_for(req, &b, SRV_ERR_NO_ROOM, "model", o->message, numbers);
    srv_reply(req, srv_errors[SRV_ERR_NO_ROOM].status, NULL, &b);
}

static enum srv_error error_of(enum srv_swap_result result)
{
    switch (result) {
    case SWAP_INVALID:
    case SWAP_SELF_TEST: return SRV_ERR_MODEL_INVALID;
    case SWAP_NOT_FOUND: return SRV_ERR_MODEL_NOT_FOUND;
    case SWAP_BUSY: return SRV_ERR_SWAP_IN_PROGRESS;
    case SWAP_GIVEN_UP: return SRV_ERR_SHUTTING_DOWN;
    case SWAP_NOT_LOADED: return SRV_ERR_NOT_LOADED;
    case SWAP_PINNED: return SRV_ERR_PINNED;
    default: return SRV_ERR_OVERLOADED;
    }
}

static void reply(struct srv_request *req, const struct asker *a)
{
    const struct srv_outcome *o = &a->outcome;
    if (o->result <= SWAP_UNCHANGED)
        reply_done(req, a);
    else if (o->result == SWAP_NO_MEMORY && o->memory.limit)
        reply_no_room(req, o);
    else
        srv_reply_error(req, error_of(o->result), o->result == SWAP_GIVEN_UP ? NULL : "model", "%s",
                        o->message);
}

static void reply_state(struct srv_request *req, const char *state)
{
    struct srv_object a;
    struct jw *w = srv_object_open(&a, 256);
    jw_fields(w, "success %i state %s", true, state);
    srv_object_reply(req, 202, &a);
}

/* ---- orders -------------------------------------------------------------------------------- */

__attribute__((format(printf, 3, 4))) static void fail(struct asker *a, enum srv_swap_result why,
                                                       const char *format, ...)
{
    FORMAT_REST(a->outcome.message, sizeof(a->outcome.message), format);
    a->outcome.result = why;
}

/* The load of an entry has ended: its outcome. */
static void end_load(struct asker *a, enum srv_wait_end end)
{
    struct srv_outcome *o = &a->outcome;
    struct srv_model *m = a->wait.model;
    if (end == SRV_WAIT_FAILED) {
        fail(a, SWAP_INVALID, "%s", a->wait.message);
    } else if (end != SRV_WAIT_GIVEN) {
        fail(a, SWAP_GIVEN_UP, "The server is shutting down.");
    } else {
        snprintf(o->model, sizeof(o->model), "%s", m->names[0]);
        snprintf(o->fingerprint, sizeof(o->fingerprint), "%s", m->fingerprint);
        o->load_ms = (int)((clock_now_us() - a->since_us) / 1000);
        srv_model_release(m, true);
    }
}

/* Each returns true if the end is waited for; else the outcome is there. */

static bool begin_load(struct srv_app *app, struct asker *a, const struct order *order)
{
    switch (srv_models_ask(&app->models, order->entry, &a->wait)) {
    case SRV_ASK_WAITS: return true;
    case SRV_ASK_GIVEN:
        a->outcome.result = SWAP_UNCHANGED;
        end_load(a, SRV_WAIT_GIVEN);
        break;
    case SRV_ASK_UNAVAILABLE:
        a->outcome.memory = srv_models_room(&app->models, order->entry);
        fail(a, SWAP_NO_MEMORY, "%s", a->wait.message);
        break;
    default: end_load(a, SRV_WAIT_CLOSED);
    }
    return false;
}

static bool begin_swap(struct srv_app *app, struct asker *a, const struct order *order)
{
    struct srv_swap_params params = order->swap;
    struct srv_outcome *o = &a->outcome;
    char err[sizeof(o->message)];
    params.until_drained = order->wait == WAIT_DRAINED;
    params.wait = &a->wait;
    enum srv_swap_result rc = srv_swap_start(app->swap, &params, err, sizeof(err));
    if (rc == SWAP_OK) return true;
    fail(a, rc, "%s", err);
    return false;
}

static bool begin_unload(struct srv_app *app, struct asker *a, const struct order *order)
{
    struct srv_outcome *o = &a->outcome;
    srv_models_name(&app->models, order->entry, o->model, sizeof(o->model));
    switch (srv_models_unload(&app->models, order->entry, &o->n_draining,
                              order->wait == WAIT_DRAINED ? &a->wait : NULL)) {
    case SRV_UNLOAD_OK: return false;
    case SRV_UNLOAD_WAITS: return true;
    case SRV_UNLOAD_PINNED:
        fail(a, SWAP_PINNED, "The model '%.139s' is pinned.", o->model);
        return false;
    default: fail(a, SWAP_NOT_LOADED, "The model '%.139s' is not loaded.", o->model); return false;
    }
}

static void on_wake(void *ctx)
{
    struct asker *a = ctx;
    struct srv_request *req = a->req;
    enum srv_wait_end end = (enum srv_wait_end)atomic_load(&a->wait.end);
    if (end == SRV_WAITS) return;
    if (end != SRV_WAIT_DONE) end_load(a, end);
    reply(req, a);
    srv_request_done(req);
}

/* A client that leaves changes nothing: what it asked for goes on. */
static void on_gone(void *ctx)
{
}

static void wake_asker(struct srv_wait *w, bool ended)
{
    struct asker *a = (struct asker *)(void *)w;
    if (!ended) return;
    if (a->req) {
        srv_request_wake(a->req);
        srv_request_unref(a->req);
        return;
    }
    if (atomic_load(&w->end) == SRV_WAIT_GIVEN) srv_model_release(w->model, true);
    free(a);
}

static void carry_out(struct srv_request *req, const struct order *order)
{
    static const struct srv_callbacks callbacks = {.on_wake = on_wake, .on_gone = on_gone};
    static bool (*const begin[])(struct srv_app * app, struct asker * a,
                                 const struct order *order) = {begin_load, begin_swap,
                                                               begin_unload};
    /* An unloading that nobody waits for is over at once. */
    bool waits = order->wait != WAIT_NOT;
    struct asker *a = waits ? srv_request_alloc(req, sizeof(*a)) : calloc(1, sizeof(*a));
    if (!a) {
        srv_reply_error(req, SRV_ERR_OVERLOADED, NULL,
                        "The server is out of memory for this request.");
        return;
    }
    *a = (struct asker){.wait = {.by_operator = true, .wake = wake_asker, .outcome = &a->outcome},
                        .kind = order->kind,
                        .since_us = clock_now_us()};
    if (waits) {
        a->req = req;
        srv_request_ref(req);
        srv_request_set_callbacks(req, &callbacks, a);
    }
    if (begin[order->kind](srv_facts(req)->app, a, order)) {
        if (!waits) reply_state(req, order->kind == OF_SWAP ? "planning" : "loading");
        return;
    }
    reply(req, a);
    if (waits) {
        srv_request_unref(req);
        srv_request_done(req);
    } else {
        free(a);
    }
}

/* ---- routes -------------------------------------------------------------------------------- */

/* The entry of the catalogue that is to be loaded, or -1: the request is for a swap. */
static int find_entry(struct srv_request *req, const struct order_params *p, const char *model)
{
    struct srv_models *models = &srv_facts(req)->app->models;
    if (!model || p->replace || p->alias || p->draft_model || srv_models_count(models) < 2)
        return -1;
    return srv_models_find(models, model);
}

static int read_load(struct srv_request *req, const struct order_params *p, struct order *order,
                     const char *names[MAX_NAMES])
{
    struct srv_swap_params *swap = &order->swap;
    if ((p->model && !(swap->model = read_text(p->model, "model", MAX_MODEL_BYTES))) ||
        (p->draft_model &&
         !(swap->draft_model = read_text(p->draft_model, "draft_model", MAX_MODEL_BYTES))))
        return -1;
    order->entry = find_entry(req, p, swap->model);
    order->kind = order->entry < 0 ? OF_SWAP : OF_LOAD;
    if (order->entry < 0 && read_replaced(req, p->replace, &swap->entry)) return -1;
    return read_names(p->alias, names, &swap->names);
}

const struct param_field srv_fields_unload[] = {
    FIELD(model, "the only model", "a name of the model; its next request loads it again"),
    FIELD(wait, "`switched`",
          "when the answer comes: at once, or with `drained` when the model is gone"),
    {0},
};

static int read_unloaded(struct srv_request *req, const json_t *model, int *ret)
{
    if (!model && srv_models_count(&srv_facts(req)->app->models) > 1)
        return param_fail(SRV_ERR_MISSING, "model", "'model' is required.");
    return read_entry(req, model, "model", MAX_MODEL_BYTES, ret);
}

/* arg: the fields. */
static void handle(struct srv_request *req)
{
    const struct srv_facts *facts = srv_facts(req);
    bool loads = facts->arg == srv_fields_swap;
    struct order order = {.kind = OF_UNLOAD};
    struct order_params p = {0};
    struct param_unknown unknown = {0};
    const char *names[MAX_NAMES];
    AUTO(srv_body_finish) struct srv_body body;
    srv_facts(req)->account.endpoint = "swap";
    if (srv_body_read(&body, facts->body, facts->body_len, PARAM_MAX_VALUES) ||
        params_read(body.root, facts->arg, &p, &unknown) ||
        (loads ? read_load(req, &p, &order, names) : read_unloaded(req, p.model, &order.entry)) ||
        read_wait(p.wait, &order.wait) || param_name_ignored(req, &unknown))
        param_reply(req);
    else
        carry_out(req, &order);
}

const struct srv_route srv_routes_swap[] = {
    {"POST", "/v1/models/load", SRV_ROUTE_OPERATOR | SRV_ROUTE_BARE, SRV_DIALECT_OPENAI, handle,
     srv_fields_swap},
    {"POST", "/v1/models/unload", SRV_ROUTE_OPERATOR | SRV_ROUTE_BARE, SRV_DIALECT_OPENAI, handle,
     srv_fields_unload},
    {0},
};
