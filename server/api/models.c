/* SPDX-License-Identifier: MIT */
/*
 * GET /v1/models and GET /v1/models/{id}; ids may contain slashes. With the header
 * anthropic-version both answer in that dialect's shape, the list in pages.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/json_writer.h"
#include "engine/engine.h"
#include "server/api/routes.h"
#include "server/http/api_error.h"

enum { ROUTE = SRV_ROUTE_INLINE | SRV_ROUTE_EITHER, PAGE_MODELS = 20, MAX_PAGE_MODELS = 1000 };

static void write_model(const struct srv_model *model, struct jw *w, const char *name)
{
    const struct eng_info *info = eng_info(model->engine);
    jw_open(w, NULL, '{');
    jw_text(w, "id", name);
    jw_text(w, "object", "model");
    jw_int(w, "created", model->created);
    jw_text(w, "owned_by", "hearth");
    jw_open(w, "status", '{');
    jw_text(w, "value", "loaded");
    jw_close(w);
    jw_int(w, "max_model_len", info->ctx_tokens);
    jw_text(w, "root", model->names[0]);
    jw_null(w, "parent");
    jw_open(w, "meta", '{');
    jw_text(w, "architecture", info->architecture);
    jw_int(w, "n_params", info->n_params);
    jw_int(w, "n_vocab", info->vocab_size);
    jw_int(w, "n_ctx_train", info->ctx_train_tokens);
    jw_int(w, "n_embd", info->d_model);
    jw_text(w, "dtype", info->weights_dtype);
    jw_text(w, "numerics", info->numerics);
    jw_int(w, "size", info->memory.weights_bytes);
    jw_text(w, "fingerprint", model->fingerprint);
    jw_close(w);
    jw_close(w);
}

/* ---- the Anthropic dialect ----------------------------------------------------------------- */

static void write_anthropic_model(const struct srv_model *model, struct jw *w, const char *name)
{
    char created[32] = "";
    struct tm t;
    time_t seconds = (time_t)model->created;
    int64_t ctx = eng_info(model->engine)->ctx_tokens;
    if (gmtime_r(&seconds, &t)) strftime(created, sizeof(created), "%Y-%m-%dT%H:%M:%SZ", &t);
    jw_open(w, NULL, '{');
    jw_text(w, "type", "model");
    jw_text(w, "id", name);
    jw_text(w, "display_name", name);
    jw_text(w, "created_at", created);
    jw_text(w, "lifecycle", "active");
    jw_int(w, "max_input_tokens", ctx);
    jw_int(w, "max_tokens", ctx);
    jw_close(w);
}

/* The numbers of the names on the page that the query asks for: [from, to) of n. */
struct page {
    int from, to, n;
    bool has_more;
};

/* Returns the number of the name a cursor holds, `preset` without a cursor, -1 for an unknown
 * name. */
static int cursor(struct srv_request *req, const char *key, int preset)
{
    const struct srv_model *model = srv_facts(req)->model;
    const char *id = srv_request_query(req, key);
    if (!id) return preset;
    for (int i = 0; model->names[i]; i++)
        if (!strcmp(model->names[i], id)) return i;
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

static void list_anthropic(struct srv_request *req)
{
    const struct srv_model *model = srv_facts(req)->model;
    struct page p = {0};
    struct buf b;
    struct jw w;
    while (model->names[p.n])
        p.n++;
    if (!read_page(req, &p)) return;
    buf_init(&b, 1 << 20);
    jw_init(&w, &b);
    jw_open(&w, NULL, '{');
    jw_open(&w, "data", '[');
    for (int i = p.from; i < p.to; i++)
        write_anthropic_model(model, &w, model->names[i]);
    jw_close(&w);
    jw_bool(&w, "has_more", p.has_more);
    jw_text(&w, "first_id", p.from < p.to ? model->names[p.from] : NULL);
    jw_text(&w, "last_id", p.from < p.to ? model->names[p.to - 1] : NULL);
    jw_close(&w);
    srv_reply(req, 200, NULL, jw_end(&w));
}

/* ---- routes -------------------------------------------------------------------------------- */

static void list(struct srv_request *req)
{
    const struct srv_model *model = srv_facts(req)->model;
    struct buf b;
    struct jw w;
    srv_facts(req)->account.endpoint = "models";
    if (srv_facts(req)->dialect == SRV_DIALECT_ANTHROPIC) {
        list_anthropic(req);
        return;
    }
    buf_init(&b, 1 << 20);
    jw_init(&w, &b);
    jw_open(&w, NULL, '{');
    jw_text(&w, "object", "list");
    jw_open(&w, "data", '[');
    for (int i = 0; model->names[i]; i++)
        write_model(model, &w, model->names[i]);
    jw_close(&w);
    jw_close(&w);
    srv_reply(req, 200, NULL, jw_end(&w));
}

static void item(struct srv_request *req)
{
    const struct srv_model *model = srv_facts(req)->model;
    const char *id = srv_facts(req)->tail;
    srv_facts(req)->account.endpoint = "models";
    for (int i = 0; model->names[i]; i++) {
        if (strcmp(model->names[i], id) != 0) continue;
        struct buf b;
        struct jw w;
        buf_init(&b, 65536);
        jw_init(&w, &b);
        if (srv_facts(req)->dialect == SRV_DIALECT_ANTHROPIC)
            write_anthropic_model(model, &w, id);
        else
            write_model(model, &w, id);
        srv_reply(req, 200, NULL, jw_end(&w));
        return;
    }
    char names[160];
    srv_reply_error(req, SRV_ERR_MODEL_NOT_FOUND, "model",
                    "The model '%.64s' does not exist; this server serves %s.", id,
                    srv_models_list_names(model, names, sizeof(names)));
}

const struct srv_route srv_routes_models[] = {
    {"GET", "/v1/models", ROUTE, list},
    {"GET", "/models", ROUTE, list},
    {"GET", "/v1/models/", ROUTE | SRV_ROUTE_PREFIX, item},
    {"GET", "/models/", ROUTE | SRV_ROUTE_PREFIX, item},
    {0},
};
