/* SPDX-License-Identifier: MIT */
/* GET /props and GET /slots: what is served, on which path, and how busy it is; no prompt text. */
#include <string.h>

#include "engine/engine.h"
#include "server/api/routes.h"
#include "server/config/config.h"
#include "tokenizer/chat/chat.h"
#include "tokenizer/tokenizer.h"

static void add_string(struct buf *b, const char *key, const char *value)
{
    buf_printf(b, ",\"%s\":", key);
    if (value)
        buf_json_string(b, value, strlen(value));
    else
        buf_puts(b, "null");
}

static void add_int(struct buf *b, const char *key, int64_t value)
{
    buf_printf(b, ",\"%s\":%lld", key, (long long)value);
}

static void add_memory(struct buf *b, const struct eng_memory *m)
{
    buf_printf(b,
               ",\"memory\":{\"weights_bytes\":%lld,\"kv_bytes\":%lld,\"scratch_bytes\":%lld,"
               "\"logits_bytes\":%lld,\"answer_bytes\":%lld,\"limit_bytes\":%lld}",
               (long long)m->weights_bytes, (long long)m->kv_bytes, (long long)m->scratch_bytes,
               (long long)m->logits_bytes, (long long)m->answer_bytes, (long long)m->limit_bytes);
}

/* null for -1: there is none. */
static void add_limit(struct buf *b, const char *key, int64_t value)
{
    if (value < 0)
        buf_printf(b, ",\"%s\":null", key);
    else
        add_int(b, key, value);
}

/* What a request gets that does not say. */
static void add_defaults(struct buf *b, const struct srv_defaults *d)
{
    const struct {
        const char *key;
        double value;
    } rows[] = {
        {"temperature", d->temperature},
        {"top_p", d->top_p},
        {"min_p", d->min_p},
        {"typical_p", d->typical_p},
        {"repetition_penalty", d->repetition_penalty},
    };
    buf_printf(b, ",\"default_sampling\":{\"top_k\":%lld", (long long)d->top_k);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        buf_printf(b, ",\"%s\":", rows[i].key);
        buf_json_number(b, rows[i].value);
    }
    add_limit(b, "seed", d->seed);
    add_limit(b, "max_tokens", d->max_tokens);
    buf_puts(b, "}");
}

static void add_chat(struct buf *b, const struct tok_chat *chat)
{
    add_string(b, "chat_template", chat ? tok_chat_source(chat) : NULL);
    if (!chat) return;
    const struct tok_chat_caps *caps = tok_chat_caps(chat);
    buf_printf(b,
               ",\"chat_template_caps\":{\"system_role\":%s,\"null_content\":%s,"
               "\"content_parts\":%s,\"tools\":%s,\"object_arguments\":%s}",
               caps->system_role ? "true" : "false", caps->null_content ? "true" : "false",
               caps->content_parts ? "true" : "false", caps->tools ? "true" : "false",
               caps->object_arguments ? "true" : "false");
}

static void props(struct srv_request *req)
{
    const struct srv_app *app = srv_request_app(req);
    const struct eng_info *info = eng_info(app->engine);
    struct buf b;
    srv_request_account(req)->endpoint = "props";
    buf_init(&b, 8 << 20);
    buf_puts(&b, "{\"server\":\"hearth\"");
    add_string(&b, "version", HEARTH_VERSION);
    add_string(&b, "model", app->model_names[0]);
    buf_printf(&b, ",\"demo\":%s", app->is_demo ? "true" : "false");
    add_string(&b, "architecture", info->architecture);
    add_string(&b, "system_fingerprint", app->fingerprint);
    add_string(&b, "numerics", info->numerics);
    add_string(&b, "kernels", info->kernels);
    add_string(&b, "gemm", info->gemm);
    add_string(&b, "kv_dtype", info->kv_dtype);
    add_string(&b, "weights_dtype", info->weights_dtype);
    buf_printf(&b, ",\"repeatable\":%s", info->repeatable ? "true" : "false");
    add_int(&b, "threads", info->n_threads);
    add_int(&b, "total_slots", info->n_parallel);
    add_int(&b, "chunk_tokens", info->chunk_tokens);
    add_int(&b, "page_tokens", info->page_tokens);
    add_int(&b, "n_pages", info->n_pages);
    add_int(&b, "n_ctx", info->ctx_tokens);
    add_int(&b, "n_ctx_train", info->ctx_train_tokens);
    add_int(&b, "n_params", info->n_params);
    add_int(&b, "n_vocab", info->vocab_size);
    add_memory(&b, &info->memory);
    buf_puts(&b, ",\"load_seconds\":");
    buf_json_number(&b, info->load_seconds);
    add_defaults(&b, &app->defaults);
    add_chat(&b, app->chat);
    buf_puts(&b, "}");
    srv_reply(req, 200, NULL, &b);
}

static void slots(struct srv_request *req)
{
    const struct srv_app *app = srv_request_app(req);
    const struct eng_info *info = eng_info(app->engine);
    struct eng_stats s;
    struct buf b;
    srv_request_account(req)->endpoint = "slots";
    eng_stats(app->engine, &s);
    buf_init(&b, 65536);
    buf_printf(&b,
               "{\"total\":%d,\"running\":%d,\"waiting\":%d,\"waiting_tokens\":%lld,"
               "\"pages\":{\"total\":%d,\"used\":%d,\"cached\":%d,\"tokens\":%d}}",
               info->n_parallel, s.n_running, s.n_waiting, (long long)s.n_waiting_tokens,
               s.n_pages_total, s.n_pages_used, s.n_pages_cached, info->page_tokens);
    srv_reply(req, 200, NULL, &b);
}

const struct srv_route srv_routes_props[] = {
    {"GET", "/props", SRV_ROUTE_INLINE, props},
    {"GET", "/v1/props", SRV_ROUTE_INLINE, props},
    {"GET", "/slots", SRV_ROUTE_INLINE, slots},
    {"GET", "/v1/slots", SRV_ROUTE_INLINE, slots},
    {0},
};
