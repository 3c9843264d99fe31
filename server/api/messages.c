/* SPDX-License-Identifier: MIT */
/*
 * POST /v1/messages and /v1/messages/count_tokens: the Anthropic dialect, stateless, text only.
 */
#include <string.h>

#include "server/api/chat_input.h"
#include "server/api/json_memory.h"
#include "server/api/openai_json.h"
#include "server/api/routes.h"

static const struct param_field fields[] = {
    GEN_FIELD("messages", PARAM_JSON, messages),
    GEN_FIELD("system", PARAM_JSON, extra),
    GEN_FIELD("stop_sequences", PARAM_JSON, stop),
    GEN_OTHER("thinking", PARAM_UNSUPPORTED),
    GEN_OTHER("prompt_logprobs", PARAM_UNSUPPORTED),
    GEN_OTHER("return_token_ids", PARAM_NAMED),
    GEN_OTHER("timings", PARAM_NAMED),
    GEN_OTHER("return_progress", PARAM_NAMED),
    GEN_OTHER("mcp_servers", PARAM_UNSUPPORTED),
    GEN_OTHER("container", PARAM_UNSUPPORTED),
    GEN_OTHER("output_format", PARAM_UNSUPPORTED),
    GEN_OTHER("output_config", PARAM_NAMED), /* but for its format: see check_output */
    {0},
};

/* ---- input --------------------------------------------------------------------------------- */

static int make_messages(const struct srv_gen_params *p, json_t **ret, struct param_error *err)
{
    if (p->messages && !json_is_array(p->messages))
        return param_fail(err, SRV_ERR_INVALID_TYPE, "messages", "'messages' must be an array.");
    if (p->extra && !json_is_string(p->extra) && !json_is_array(p->extra))
        return param_fail(err, SRV_ERR_INVALID_TYPE, "system",
                          "'system' must be a string or an array of text blocks.");
    for (size_t i = 0; i < json_array_size(p->messages); i++) {
        const json_t *role = json_object_get(json_array_get(p->messages, i), "role");
        const char *name = json_string_value(role);
        if (name && strcmp(name, "user") && strcmp(name, "assistant"))
            return param_fail(err, SRV_ERR_INVALID_VALUE, "messages",
                              "Roles must be 'user' or 'assistant'.");
    }
    json_t *list = json_array();
    if (p->extra)
        json_array_append_new(list, json_pack("{s:s, s:O}", "role", "system", "content", p->extra));
    if (p->messages) json_array_extend(list, p->messages);
    *ret = list;
    return 0;
}

/* A format of the output must not be ignored; the other members (effort) may. */
static int check_output(const json_t *config, struct param_error *err)
{
    const json_t *format = json_object_get(config, "format");
    if (config && !json_is_null(config) && !json_is_object(config))
        return param_fail(err, SRV_ERR_INVALID_TYPE, "output_config",
                          "'output_config' must be an object.");
    if (!format || json_is_null(format)) return 0;
    return param_fail(err, SRV_ERR_UNSUPPORTED, "output_config.format",
                      "'output_config.format' is not supported by this server.");
}

/* An assistant message at the end is the beginning of the answer. */
static bool ends_with_assistant(const json_t *messages)
{
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));
    return role && !strcmp(role, "assistant");
}

static int make_prompt(struct srv_gen *g, struct param_error *err)
{
    json_t *messages = NULL;
    if (!g->params.messages)
        return param_fail(err, SRV_ERR_MISSING, "messages",
                          "The parameter 'messages' is required.");
    if (check_output(json_object_get(g->body, "output_config"), err)) return -1;
    if (make_messages(&g->params, &messages, err)) return -1;
    struct chat_input in = {.messages = messages,
                            .add_generation_prompt = true,
                            .continue_final_message = ends_with_assistant(messages)};
    int rc = srv_json_ran_out()
                 ? param_fail(err, SRV_ERR_OVERLOADED, NULL, "There is no memory for the request.")
                 : chat_input_check(messages, err) || srv_gen_chat_prompt(g, &in, err);
    json_decref(messages);
    return rc ? -1 : 0;
}

/* ---- answers ------------------------------------------------------------------------------- */

static const char *stop_reason(const struct gen_choice *c)
{
    if (c->stop_string) return "stop_sequence";
    return strcmp(c->finish_reason, "length") ? "end_turn" : "max_tokens";
}

static void add_stop(struct buf *b, const struct gen_choice *c)
{
    buf_printf(b, "\"stop_reason\":\"%s\",\"stop_sequence\":", stop_reason(c));
    if (c->stop_string)
        buf_json_string(b, c->stop_string, strlen(c->stop_string));
    else
        buf_puts(b, "null");
}

static void add_usage(const struct srv_gen *g, struct buf *b, int64_t n_output)
{
    struct gen_totals t = srv_gen_totals(g);
    buf_printf(b,
               "\"usage\":{\"input_tokens\":%lld,\"output_tokens\":%lld,"
               "\"cache_read_input_tokens\":%lld,\"cache_creation_input_tokens\":0}",
               (long long)(t.n_prompt - t.n_cached), (long long)n_output, (long long)t.n_cached);
}

static void add_head(struct srv_gen *g, struct buf *b)
{
    buf_printf(b, "{\"id\":\"%s\",\"type\":\"message\",\"role\":\"assistant\",\"model\":", g->id);
    buf_json_string(b, g->model, strlen(g->model));
}

static bool whole(struct srv_gen *g, struct gen_cursor *at, struct buf *b)
{
    const struct gen_choice *c = &g->prompts[0].choices[0];
    add_head(g, b);
    buf_puts(b, ",\"content\":[{\"type\":\"text\",\"text\":");
    buf_json_string(b, c->text.text.data ? c->text.text.data : "", c->text.text.len);
    buf_puts(b, "}],");
    add_stop(b, c);
    buf_puts(b, ",");
    add_usage(g, b, c->n_tokens);
    buf_puts(b, "}");
    return true;
}

static void stream_begin(struct srv_gen *g)
{
    struct buf b;
    buf_init(&b, 65536);
    buf_puts(&b, "{\"type\":\"message_start\",\"message\":");
    add_head(g, &b);
    buf_puts(&b, ",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,");
    add_usage(g, &b, 0);
    buf_puts(&b, "}}");
    srv_gen_event(g, "message_start", &b);
    buf_puts(&b, "{\"type\":\"content_block_start\",\"index\":0,"
                 "\"content_block\":{\"type\":\"text\",\"text\":\"\"}}");
    srv_gen_event(g, "content_block_start", &b);
    buf_finish(&b);
}

static void stream_delta(struct srv_gen *g, struct gen_prompt *p, struct gen_choice *c, size_t from,
                         size_t to, int64_t token_from, int64_t token_to)
{
    struct buf b;
    if (to == from && !g->params.chunk_tokens) return;
    buf_init(&b, 64 << 20);
    buf_puts(&b, "{\"type\":\"content_block_delta\",\"index\":0,"
                 "\"delta\":{\"type\":\"text_delta\",\"text\":");
    buf_json_string(&b, c->text.text.data ? c->text.text.data + from : "", to - from);
    buf_puts(&b, "}}");
    srv_gen_event(g, "content_block_delta", &b);
    buf_finish(&b);
}

static void stream_finish(struct srv_gen *g, struct gen_prompt *p, struct gen_choice *c)
{
    struct buf b;
    buf_init(&b, 65536);
    buf_puts(&b, "{\"type\":\"content_block_stop\",\"index\":0}");
    srv_gen_event(g, "content_block_stop", &b);
    buf_puts(&b, "{\"type\":\"message_delta\",\"delta\":{");
    add_stop(&b, c);
    buf_printf(&b, "},\"usage\":{\"output_tokens\":%lld}}", (long long)c->n_tokens);
    srv_gen_event(g, "message_delta", &b);
    buf_finish(&b);
}

static void stream_end(struct srv_gen *g)
{
    struct buf b;
    buf_init(&b, 4096);
    buf_puts(&b, "{\"type\":\"message_stop\"}");
    srv_gen_event(g, "message_stop", &b);
    buf_finish(&b);
}

static void stream_error(struct srv_gen *g, enum srv_error kind, const char *message)
{
    struct buf b;
    buf_init(&b, 8192);
    srv_error_write_anthropic(&b, kind, message, srv_request_id(g->req));
    srv_gen_event(g, "error", &b);
    buf_finish(&b);
}

static const struct srv_gen_format format = {
    .endpoint = "messages",
    .input = "messages",
    .stream_begin = stream_begin,
    .stream_delta = stream_delta,
    .stream_finish = stream_finish,
    .stream_end = stream_end,
    .stream_error = stream_error,
    .whole = whole,
};

static void handle(struct srv_request *req)
{
    struct param_error err = {0};
    struct srv_gen *g = srv_gen_open(req, &format, fields);
    if (!g) return;
    if (g->max_tokens < 1)
        param_fail(&err, SRV_ERR_MISSING, "max_tokens", "'max_tokens' of at least 1 is required.");
    else if (g->n_choices != 1)
        param_fail(&err, SRV_ERR_UNSUPPORTED, "n", "'n' must be 1 here.");
    else if (!make_prompt(g, &err)) {
        snprintf(g->id, sizeof(g->id), "msg_%s", srv_request_unique(req));
        srv_gen_start(g);
        return;
    }
    srv_gen_refuse(g, &err);
}

/* Counting runs no model. */
static void count(struct srv_request *req)
{
    struct param_error err = {0};
    struct srv_gen *g = srv_gen_open(req, &format, fields);
    if (!g) return;
    if (make_prompt(g, &err))
        srv_gen_refuse(g, &err);
    else
        srv_gen_reply_count(g, "");
}

const struct srv_route srv_routes_messages[] = {
    {"POST", "/v1/messages", SRV_ROUTE_ANTHROPIC, handle},
    {"POST", "/v1/messages/count_tokens", SRV_ROUTE_ANTHROPIC, count},
    {0},
};
