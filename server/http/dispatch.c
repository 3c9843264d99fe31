/* SPDX-License-Identifier: MIT */
/*
 * A complete request and its handler: dispatched by the HTTP thread, run by a text worker or at
 * once, woken, and done. See endpoint.h for what a handler may do, and request.h for the rules.
 */
#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/heap.h"
#include "base/json_reader.h"
#include "server/bounds.h"
#include "server/http/keys.h"
#include "server/http/request.h"
#include "server/http/server.h"
#include "server/log.h"

static void reply_unanswered(struct srv_request *req)
{
    srv_log(SRV_LOG_ERROR, "request %s ended without an answer", req->facts.id);
    srv_reply_error(req, SRV_ERR_INTERNAL, NULL, "The server gave no answer (request %s).",
                    req->facts.id);
}

void srv_request_done(struct srv_request *req)
{
    pthread_mutex_lock(&req->lock);
    bool held = req->api_held;
    bool unanswered = held && req->answer == SRV_ANSWER_NONE && !req->gone;
    req->api_held = false;
    if (req->answer >= SRV_ANSWER_PIECES) req->stream_closed = true;
    if (!unanswered) req->transport->resume(req);
    pthread_mutex_unlock(&req->lock);
    if (unanswered) reply_unanswered(req);
    if (!held) return;
    srv_request_unref_api(req);
    srv_request_unref(req);
}

/*
 * The name of the model that a request asks for, owned; NULL: none, or it cannot be read. The
 * handler reads the body again, and says what is wrong with it. Returns -1 when out of memory.
 */
static int find_model_name(struct srv_request *req, char **ret)
{
    const char *asked = srv_request_query(req, "model"), *text = NULL, *key;
    size_t len = 0, skipped;
    char err[64];
    bool first = true;
    struct jr r;
    jr_init(&r, req->facts.body, req->facts.body_len, 0, err, sizeof(err));
    int rc = jr_peek(&r) == '{' ? jr_open(&r, '{') : -1;
    while (!rc && !text && jr_more(&r, '}', &first) == 1) {
        rc = jr_key(&r, &key, &len);
        bool found = !rc && len == 5 && !memcmp(key, "model", 5) && jr_peek(&r) == '"';
        if (found)
            rc = jr_string(&r, &text, &len);
        else if (!rc)
            rc = jr_skip(&r, &key, &skipped);
    }
    bool named = text && !rc && !memchr(text, '\0', len);
    *ret = named ? strndup(text, len) : asked ? strdup(asked) : NULL;
    jr_finish(&r);
    return !*ret && (named || asked || rc == JR_ENOMEM) ? -1 : 0;
}

bool srv_body_asks_for_stream(const char *body, size_t len)
{
    const char *key;
    char err[64];
    size_t n, skipped;
    bool first = true, stream = false;
    struct jr r;
    jr_init(&r, body, len, 0, err, sizeof(err));
    int rc = jr_peek(&r) == '{' ? jr_open(&r, '{') : -1;
    while (!rc && jr_more(&r, '}', &first) == 1) {
        rc = jr_key(&r, &key, &n);
        bool found = !rc && n == 6 && !memcmp(key, "stream", 6);
        if (!rc) rc = jr_skip(&r, &key, &skipped);
        if (!rc && found) stream = skipped == 4 && !memcmp(key, "true", 4);
    }
    jr_finish(&r);
    return stream;
}

/* ---- waiting for the model ----------------------------------------------------------------- */

/* May be called with the lock of the set held, before the end. */
static void wake_waiting(struct srv_wait *w, bool ended)
{
    struct srv_request *req =
        (struct srv_request *)(void *)((char *)w - offsetof(struct srv_request, wait));
    srv_request_wake(req);
    if (ended) srv_request_unref(req);
}

static void leave_wait(void *data)
{
    struct srv_request *req = data;
    srv_models_leave(&req->server->app.models, &req->wait);
}

/* No model, so no handler: the answer says why. */
static void refuse(struct srv_request *req, enum srv_ask why)
{
    const char *message = req->wait.message;
    char name[140];
    struct srv_models *models = &req->server->app.models;
    req->load_ms = srv_models_load_ms(models, req->wait.entry);
    srv_models_name(models, req->wait.entry, name, sizeof(name));
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

/* Returns true if the handler may run: the model is the request's. */
static bool end_wait(struct srv_request *req, enum srv_wait_end end)
{
    switch (end) {
    case SRV_WAIT_GIVEN: req->facts.model = req->wait.model; return true;
    case SRV_WAIT_FAILED: refuse(req, SRV_ASK_FAILED); return false;
    case SRV_WAIT_LEFT: /* nobody reads it, unless the server ends */
    case SRV_WAIT_CLOSED: refuse(req, SRV_ASK_CLOSED); return false;
    default: refuse(req, SRV_ASK_FULL); return false;
    }
}

/* A stream that has waited for long begins with a comment. */
static void open_early(struct srv_request *req)
{
    static const char comment[] = ": keep-alive\n";
    if (req->opened_early || !req->wait.noticed || !(req->route->flags & SRV_ROUTE_STREAMS) ||
        !srv_body_asks_for_stream(req->facts.body, req->facts.body_len))
        return;
    req->opened_early = true;
    srv_stream_open(req);
    srv_stream_write(req, comment, sizeof(comment) - 1);
}

static void go_on(void *data)
{
    static const struct srv_callbacks none;
    struct srv_request *req = data;
    enum srv_wait_end end = (enum srv_wait_end)atomic_load(&req->wait.end);
    if (end == SRV_WAITS) {
        open_early(req);
        return;
    }
    srv_request_set_callbacks(req, &none, NULL);
    srv_metrics_observe(req->server->metrics, SRV_TIME_MODEL_WAIT,
                        clock_now_us() - req->wait.since_us);
    if (end_wait(req, end)) req->route->handle(req);
}

/* The entry that a request asks for; -1: there is none of that name, and the answer says so. */
static int find_entry(struct srv_request *req)
{
    const struct srv_config *c = req->server->config;
    struct srv_models *models = &req->server->app.models;
    int first = srv_models_default(models);
    bool several = srv_models_count(models) > 1 || first < 0;
    char *name = NULL, names[160];
    if (several && find_model_name(req, &name)) {
        srv_reply_error(req, SRV_ERR_OVERLOADED, NULL,
                        "The server is out of memory for this request.");
        return -1;
    }
    int entry = name ? srv_models_find(models, name) : -1;
    /* Others are left to the handler, which knows what is wrong with them. */
    bool stays = !name || !*name || c->accept_any_model ||
                 (srv_is_placeholder(name) && !c->strict_model) || !several;
    if (entry < 0 && (stays || srv_models_is_loaded(models, first))) entry = first;
    const char *missing = stays ? c->default_model : name;
    if (entry < 0)
        srv_reply_error(req, SRV_ERR_MODEL_NOT_FOUND, "model",
                        "The model '%.64s%s' does not exist; this server serves %s.", missing,
                        strlen(missing) > 64 ? "..." : "",
                        srv_models_names(models, names, sizeof(names)));
    free(name);
    return entry;
}

/*
 * Before the handler runs: the reference to the model that the request is for. Returns false if
 * there is none: the request waits for it, or has its answer.
 */
static bool take_model(struct srv_request *req)
{
    static const struct srv_callbacks waiting = {
        .on_wake = go_on, .on_gone = leave_wait, .on_stop = leave_wait};
    struct srv_models *models = &req->server->app.models;
    unsigned flags = req->route->flags;
    const char *autoload = srv_request_query(req, "autoload");
    if (flags & (SRV_ROUTE_EARLY | SRV_ROUTE_OPERATOR | SRV_ROUTE_NO_MODEL)) return true;
    int entry = find_entry(req);
    if (entry < 0) return false;
    req->wait.entry = req->facts.entry = entry;
    if (flags & SRV_ROUTE_INLINE) {
        req->facts.model = srv_models_of(models, entry);
        if (req->facts.model || (flags & SRV_ROUTE_ANY_MODEL)) return true;
        refuse(req, SRV_ASK_UNLOADED);
        return false;
    }
    req->wait.wake = wake_waiting;
    req->wait.key = req->held.key;
    req->wait.several_keys = srv_keys_several(req->server->keys);
    req->wait.no_load = autoload && !strcmp(autoload, "false");
    srv_request_ref(req);
    srv_request_set_callbacks(req, &waiting, req);
    enum srv_ask answer = srv_models_ask(models, entry, &req->wait);
    if (answer == SRV_ASK_WAITS) {
        pthread_mutex_lock(&req->lock);
        bool gone = req->gone;
        pthread_mutex_unlock(&req->lock);
        if (gone) leave_wait(req); /* before it could be told so */
        return false;
    }
    srv_request_set_callbacks(req, &(struct srv_callbacks){0}, NULL);
    srv_request_unref(req);
    req->facts.model = answer == SRV_ASK_GIVEN ? req->wait.model : NULL;
    if (answer != SRV_ASK_GIVEN) refuse(req, answer);
    return answer == SRV_ASK_GIVEN;
}

static enum srv_work_class class_of(const struct srv_request *req)
{
    return req->body.len > SRV_SMALL_BODY_BYTES ? SRV_WORK_LARGE : SRV_WORK_SMALL;
}

static void run_item(struct srv_work_item *item)
{
    struct srv_request *req =
        (struct srv_request *)(void *)((char *)item - offsetof(struct srv_request, work));
    bool is_large = item->class == SRV_WORK_LARGE;
    pthread_mutex_lock(&req->lock);
    bool is_new = item->class != SRV_WORK_WAKE && !req->yields;
    req->yields = false;
    assert(req->run == SRV_RUN_QUEUED); /* never two runs of one request */
    req->run = SRV_RUN_ACTIVE;
    void (*on_wake)(void *) = req->callbacks.on_wake;
    bool runs = req->api_held && !(is_new && req->gone); /* else dropped before it started */
    pthread_mutex_unlock(&req->lock);
    if (runs && is_new && take_model(req))
        req->route->handle(req);
    else if (runs && !is_new)
        on_wake(req->api_data);

    pthread_mutex_lock(&req->lock);
    assert(req->run == SRV_RUN_ACTIVE || req->run == SRV_RUN_AGAIN);
    bool again = req->run == SRV_RUN_AGAIN && req->api_held;
    bool waits = req->callbacks.on_wake != NULL, yields = req->yields && req->api_held;
    req->run = again || yields ? SRV_RUN_QUEUED : SRV_RUN_IDLE;
    if (again)
        srv_request_push(req, SRV_WORK_WAKE);
    else if (yields)
        srv_request_push(req, class_of(req));
    pthread_mutex_unlock(&req->lock);
    if (!waits) srv_request_done(req);
    if (!again && !yields) {
        srv_request_unref_api(req);
        srv_request_unref(req);
    }
    /* The tree of a large body was many small pieces, which stay in the heap otherwise. */
    if (is_large && !yields) heap_trim();
}

enum srv_poll srv_request_poll(struct srv_request *req)
{
    enum srv_poll poll = SRV_POLL_WAIT;
    pthread_mutex_lock(&req->lock);
    if (req->gone)
        poll = SRV_POLL_GONE;
    else if (req->answer != SRV_ANSWER_NONE)
        poll = SRV_POLL_READY;
    else
        req->transport->suspend(req);
    pthread_mutex_unlock(&req->lock);
    return poll;
}

enum srv_poll srv_request_dispatch(struct srv_request *req)
{
    bool is_inline = req->route->flags & SRV_ROUTE_INLINE;
    pthread_mutex_lock(&req->lock);
    assert(req->http_held && !req->api_held && req->run == SRV_RUN_IDLE);
    req->api_held = true;
    req->facts.body = req->body.data ? req->body.data : "";
    req->facts.body_len = req->body.len;
    atomic_fetch_add(&req->n_refs, 2); /* the API side's, and that of the run */
    atomic_fetch_add(&req->n_api_refs, 2);
    req->run = SRV_RUN_QUEUED;
    req->work.run = run_item;
    req->work.class = SRV_WORK_SMALL;
    if (!is_inline) srv_request_push(req, class_of(req));
    pthread_mutex_unlock(&req->lock);
    if (is_inline) run_item(&req->work);
    return srv_request_poll(req);
}
