/* SPDX-License-Identifier: MIT */
/* GET /v1/models and GET /v1/models/{id}; ids may contain slashes. */
#include <string.h>

#include "engine/engine.h"
#include "server/api.h"
#include "server/api_error.h"

static void write_model(const struct srv_app *app, struct srv_buf *b, const char *name)
{
    const struct eng_info *info = eng_info(app->engine);
    srv_buf_puts(b, "{\"id\":");
    srv_buf_json_string(b, name, strlen(name));
    srv_buf_printf(b,
                   ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"hearth\","
                   "\"max_model_len\":%lld,\"root\":",
                   (long long)app->created, (long long)info->ctx_tokens);
    srv_buf_json_string(b, app->model_names[0], strlen(app->model_names[0]));
    srv_buf_printf(b,
                   ",\"parent\":null,\"meta\":{\"architecture\":\"%s\",\"n_params\":%lld,"
                   "\"n_vocab\":%d,\"n_ctx_train\":%lld,\"n_embd\":%d,\"dtype\":\"%s\","
                   "\"numerics\":\"%s\",\"size\":%lld,\"fingerprint\":",
                   info->architecture, (long long)info->n_params, (int)info->vocab_size,
                   (long long)info->ctx_train_tokens, info->d_model, info->weights_dtype,
                   info->numerics, (long long)info->memory.weights_bytes);
    srv_buf_json_string(b, app->fingerprint, strlen(app->fingerprint));
    srv_buf_puts(b, "}}");
}

static void list(struct srv_request *req)
{
    const struct srv_app *app = srv_request_app(req);
    struct srv_buf b;
    srv_request_account(req)->endpoint = "models";
    srv_buf_init(&b, 1 << 20);
    srv_buf_puts(&b, "{\"object\":\"list\",\"data\":[");
    for (int i = 0; app->model_names[i]; i++) {
        if (i) srv_buf_puts(&b, ",");
        write_model(app, &b, app->model_names[i]);
    }
    srv_buf_puts(&b, "]}");
    srv_reply(req, 200, NULL, &b);
}

static void item(struct srv_request *req)
{
    const struct srv_app *app = srv_request_app(req);
    const char *id = srv_request_tail(req);
    srv_request_account(req)->endpoint = "models";
    for (int i = 0; app->model_names[i]; i++) {
        if (strcmp(app->model_names[i], id) != 0) continue;
        struct srv_buf b;
        srv_buf_init(&b, 65536);
        write_model(app, &b, id);
        srv_reply(req, 200, NULL, &b);
        return;
    }
    srv_reply_error(req, SRV_ERR_MODEL_NOT_FOUND, "model",
                    "The model '%.64s' does not exist; this server serves '%.100s'.", id,
                    app->model_names[0]);
}

const struct srv_route srv_routes_models[] = {
    {"GET", "/v1/models", SRV_ROUTE_INLINE, list},
    {"GET", "/models", SRV_ROUTE_INLINE, list},
    {"GET", "/v1/models/", SRV_ROUTE_INLINE | SRV_ROUTE_PREFIX, item},
    {"GET", "/models/", SRV_ROUTE_INLINE | SRV_ROUTE_PREFIX, item},
    {0},
};
