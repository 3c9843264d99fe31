/* SPDX-License-Identifier: MIT */
/* The rules of guard.h applied to a request; see admit.h. */
#include "server/http/admit.h"

#include <stdatomic.h>
#include <string.h>

#include "server/http/guard.h"
#include "server/http/keys.h"
#include "server/http/request.h"
#include "server/http/server.h"
#include "server/log.h"

/* The page only learns that something failed; the log tells the operator why, once. */
static void log_refused_origin(const char *origin)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;
    if (atomic_flag_test_and_set(&told)) return;
    srv_log(SRV_LOG_WARNING,
            "refused a web page of %.100s, an origin that --cors-origins does not name (later "
            "refusals are not logged)",
            origin);
}

void srv_admit_reply_options(struct srv_request *req)
{
    struct srv_guard_route found;
    struct buf empty = {.max = 1};
    srv_guard_find_route(req->server->routes, "OPTIONS", req->path, &found);
    srv_reply_header(req, "Allow",
                     found.path_known ? found.allow : "GET, HEAD, POST, DELETE, OPTIONS");
    const char *origin = srv_request_header(req, "Origin");
    bool allowed = srv_guard_cors(origin, &req->server->rules) != NULL;
    if (origin && !allowed) log_refused_origin(origin);
    if (allowed) {
        const char *wanted = srv_request_header(req, "Access-Control-Request-Headers");
        srv_reply_header(req, "Access-Control-Allow-Methods", "GET, HEAD, POST, DELETE, OPTIONS");
        srv_reply_header(req, "Access-Control-Allow-Headers",
                         wanted ? wanted : "authorization, content-type");
        srv_reply_header(req, "Access-Control-Max-Age", "600");
    }
    srv_reply(req, 204, NULL, &empty);
}

static bool is_local_peer(const char *peer)
{
    return !strcmp(peer, "unix") || !strncmp(peer, "127.", 4) || !strcmp(peer, "::1") ||
           !strncmp(peer, "::ffff:127.", 11);
}

void srv_admit_request(struct srv_request *req, struct srv_guard_head *head, bool conn_refused,
                       bool too_many_headers, struct srv_guard_verdict *v)
{
    struct srv_server *s = req->server;
    enum srv_state state = (enum srv_state)atomic_load(s->state);
    char *path = srv_request_alloc(req, strlen(req->target) + 2);
    struct srv_key_words *words = s->keys ? srv_request_alloc(req, sizeof(*words)) : NULL;
    const struct srv_guard_rules local = {.max_body_bytes = s->rules.max_body_bytes};
    bool is_local = req->facts.is_fixed; /* of this process, for the key of its tenant */
    const struct srv_guard_input in = {
        .routes = s->routes,
        .rules = is_local     ? &local
                 : req->admin ? &s->admin_rules
                              : &s->rules,
        .keys = req->admin || is_local ? NULL : s->keys,
        .words = words,
        .operator_keys = s->operator_keys,
        .operator_open = s->operator_open,
        .peer_is_local = is_local_peer(req->peer),
        .state = state,
        .percent = state == SRV_LOADING ? s->gate->pull_percent(s->pull) : -1,
        .refusing = atomic_load(&s->refusing),
        .admin = req->admin,
        .too_many_connections = conn_refused,
        .too_many_headers = too_many_headers,
    };
    for (int i = 0; i < req->n_headers; i++) {
        const struct srv_pair *h = &req->headers[i];
        srv_guard_add_header(head, h->name, strlen(h->name), h->value, strlen(h->value));
    }
    srv_guard_check(head, &in, path, v);
    if (path) req->path = path;
    req->query = v->query;
    req->route = v->route;
    req->facts.arg = v->route ? v->route->arg : NULL;
    req->facts.tail = v->tail;
    req->facts.dialect = v->dialect;
    if (v->refused && v->kind == SRV_ERR_FORBIDDEN && v->route &&
        srv_guard_is_foreign(head, in.rules))
        log_refused_origin(head->origin);
    if (words && is_local) srv_keys_find(s->keys, req->facts.tenant, words);
    if (words) {
        req->facts.key_slots = words->slots;
        req->facts.only = *words->models ? words->models : NULL;
        req->facts.account.key = *words->name ? words->name : NULL;
        req->facts.account.key_counts = words->counts;
    }
    if (!is_local) memcpy(req->facts.tenant, v->tenant, sizeof(req->facts.tenant));
    req->facts.may_operate = v->may_operate;
    if (v->refused && v->kind == SRV_ERR_METHOD) srv_reply_header(req, "Allow", v->allow);
    const char *origin = srv_guard_cors(head->origin, &s->rules);
    if (!origin) return;
    srv_reply_header(req, "Access-Control-Allow-Origin", origin);
    srv_reply_header(req, "Vary", "Origin");
    srv_reply_header(req, "Access-Control-Expose-Headers",
                     "x-request-id, request-id, openai-processing-ms, server-timing, retry-after, "
                     "retry-after-ms, x-ignored-params, x-schema-relaxed, x-dropped-input-items, "
                     "x-truncated-inputs, x-infill-cut, allow, www-authenticate");
}
