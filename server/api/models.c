/* SPDX-License-Identifier: MIT */
/*
 * GET /v1/models and GET /v1/models/{id}; ids may contain slashes. With the header anthropic-version
 * both answer in that dialect's shape, the list in pages.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/engine.h"
#include "server/api/routes.h"
#include "server/http/api_error.h"

enum { ROUTE = SRV_ROUTE_INLINE | SRV_ROUTE_EITHER, PAGE_MODELS = 20, MAX_PAGE_MODELS = 1000 };

static void write_model(const struct srv_app *app, struct buf *b, const char *name)
{
    const struct eng_info *info = eng_info(app->engine);
    buf_puts(b, "{\"id\":");
    buf_json_string(b, name, strlen(name));
    buf_printf(b,
               ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"hearth\","
               "\"max_model_len\":%lld,\"root\":",
               (long long)app->created, (long long)info->ctx_tokens);
    buf_json_string(b, app->model_names[0], strlen(app->model_names[0]));
    buf_printf(b,
               ",\"parent\":null,\"meta\":{\"architecture\":\"%s\",\"n_params\":%lld,"
               "\"n_vocab\":%d,\"n_ctx_train\":%lld,\"n_embd\":%d,\"dtype\":\"%s\","
               "\"numerics\":\"%s\",\"size\":%lld,\"fingerprint\":",
               info->architecture, (long long)info->n_params, (int)info->vocab_size,
               (long long)info->ctx_train_tokens, info->d_model, info->weights_dtype,
               info->numerics, (long long)info->memory.weights_bytes);
    buf_json_string(b, app->fingerprint, strlen(app->fingerprint));
    buf_puts(b, "}}");
}

/* ---- the Anthropic dialect ----------------------------------------------------------------- */

static void write_anthropic_model(const struct srv_app *app, struct buf *b, const char *name)
{
    char created[32] = "";
    struct tm t;
    time_t seconds = (time_t)app->created;
    long long ctx = (long long)eng_info(app->engine)->ctx_tokens;
    if (gmtime_r(&seconds, &t)) strftime(created, sizeof(created), "%Y-%m-%dT%H:%M:%SZ", &t);
    buf_puts(b, "{\"type\":\"model\",\"id\":");
    buf_json_string(b, name, strlen(name));
    buf_puts(b, ",\"display_name\":");
    buf_json_string(b, name, strlen(name));
    buf_printf(b,
               ",\"created_at\":\"%s\",\"lifecycle\":\"active\",\"max_input_tokens\":%lld,"
               "\"max_tokens\":%lld}",
               created, ctx, ctx);
}

/* The numbers of the names on the page that the query asks for: [from, to) of n. */
struct page {
    int from, to, n;
    bool has_more;
};

/* Returns the number of the name a cursor holds, `preset` without a cursor, -1 for an unknown name. */
static int cursor(struct srv_request *req, const char *key, int preset)
{
    const struct srv_app *app = srv_request_app(req);
    const char *id = srv_request_query(req, key);
    if (!id) return preset;
    for (int i = 0; app->model_names[i]; i++)
        if (!strcmp(app->model_names[i], id)) return i;
    return -1;
}

/* Returns false if the query has been refused. */
static bool read_page(struct srv_request *req, struct page *p)
{
    const char *text = srv_request_query(req, "limit");
    char *end = NULL;
    long limit = text ? strtol(text, &end, 10) : PAGE_MODELS;
    bool good = limit >= 1 && limit <= MAX_PAGE_MODELS && (!text || !*end);
    int after = cursor(req, "after_id", -2), before = cursor(req, "before_id", p->n);
    if (!good || after == -1 || before == -1) {
        const char *param = !good ? "limit" : after == -1 ? "after_id" : "before_id";
        srv_reply_error(req, SRV_ERR_INVALID_VALUE, param,
                        good ? "'%s' must be the id of a model." : "'%s' must be from 1 to 1000.",
                        param);
        return false;
    }
    p->from = after < 0 ? 0 : after + 1;
    p->to = before;
    bool backwards = before < p->n;
    p->has_more = p->to - p->from > limit;
    if (p->has_more && backwards) p->from = p->to - (int)limit;
    if (p->has_more && !backwards) p->to = p->from + (int)limit;
    return true;
}

static void add_id(struct buf *b, const char *key, const char *name)
{
    buf_printf(b, ",\"%s\":", key);
    if (name)
        buf_json_string(b, name, strlen(name));
    else
        buf_puts(b, "null");
}

static void list_anthropic(struct srv_request *req)
{
    const struct srv_app *app = srv_request_app(req);
    struct page p = {0};
    struct buf b;
    while (app->model_names[p.n])
        p.n++;
    if (!read_page(req, &p)) return;
    buf_init(&b, 1 << 20);
    buf_puts(&b, "{\"data\":[");
    for (int i = p.from; i < p.to; i++) {
        if (i > p.from) buf_puts(&b, ",");
        write_anthropic_model(app, &b, app->model_names[i]);
    }
    buf_printf(&b, "],\"has_more\":%s", p.has_more ? "true" : "false");
    add_id(&b, "first_id", p.from < p.to ? app->model_names[p.from] : NULL);
    add_id(&b, "last_id", p.from < p.to ? app->model_names[p.to - 1] : NULL);
    buf_puts(&b, "}");
    srv_reply(req, 200, NULL, &b);
}

/* ---- routes -------------------------------------------------------------------------------- */

static void list(struct srv_request *req)
{
    const struct srv_app *app = srv_request_app(req);
    struct buf b;
    srv_request_account(req)->endpoint = "models";
    if (srv_request_dialect(req) == SRV_DIALECT_ANTHROPIC) {
        list_anthropic(req);
        return;
    }
    buf_init(&b, 1 << 20);
    buf_puts(&b, "{\"object\":\"list\",\"data\":[");
    for (int i = 0; app->model_names[i]; i++) {
        if (i) buf_puts(&b, ",");
        write_model(app, &b, app->model_names[i]);
    }
    buf_puts(&b, "]}");
    srv_reply(req, 200, NULL, &b);
}

static void item(struct srv_request *req)
{
    const struct srv_app *app = srv_request_app(req);
    const char *id = srv_request_tail(req);
    srv_request_account(req)->endpoint = "models";
    for (int i = 0; app->model_names[i]; i++) {
        if (strcmp(app->model_names[i], id) != 0) continue;
        struct buf b;
        buf_init(&b, 65536);
        if (srv_request_dialect(req) == SRV_DIALECT_ANTHROPIC)
            write_anthropic_model(app, &b, id);
        else
            write_model(app, &b, id);
        srv_reply(req, 200, NULL, &b);
        return;
    }
    srv_reply_error(req, SRV_ERR_MODEL_NOT_FOUND, "model",
                    "The model '%.64s' does not exist; this server serves '%.100s'.", id,
                    app->model_names[0]);
}

const struct srv_route srv_routes_models[] = {
    {"GET", "/v1/models", ROUTE, list},
    {"GET", "/models", ROUTE, list},
    {"GET", "/v1/models/", ROUTE | SRV_ROUTE_PREFIX, item},
    {"GET", "/models/", ROUTE | SRV_ROUTE_PREFIX, item},
    {0},
};
