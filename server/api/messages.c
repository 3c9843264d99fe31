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
    GEN_OTHER("output_format", PARAM_IGNORED),
    GEN_OTHER("output_config", PARAM_NAMED), /* all but its format */
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

/* If the last message is the assistant's, the answer continues it. */
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
    if (guide_ask_read_format(&g->guide.ask, g->text, g->body, "output_config.format", err) ||
        guide_ask_read_format(&g->guide.ask, g->text, g->body, "output_format", err))
        return -1;
    if (make_messages(&g->params, &messages, err)) return -1;
    struct chat_input in = {.messages = messages,
                            .add_generation_prompt = true,
                            .continue_final_message = ends_with_assistant(messages)};
    int rc = srv_json_ran_out() ? param_fail(err, SRV_ERR_OVERLOADED, NULL,
                                             "The server is out of memory for this request.")
                                : srv_gen_chat_prompt(g, &in, err);
    json_decref(messages);
    return rc ? -1 : 0;
}

/* ---- answers ------------------------------------------------------------------------------- */

static const char *stop_reason(const struct gen_choice *c)
{
    if (c->stop_string) return "stop_sequence";
    return strcmp(c->finish_reason, "length") ? "end_turn" : "max_tokens";
}

static void write_stop(struct jw *w, const struct gen_choice *c)
{
    jw_text(w, "stop_reason", stop_reason(c));
    jw_text(w, "stop_sequence", c->stop_string);
}

static void write_usage(const struct srv_gen *g, struct jw *w, int64_t n_output)
{
    struct gen_totals t = srv_gen_totals(g);
    jw_open(w, "usage", '{');
    jw_int(w, "input_tokens", t.n_prompt - t.n_cached);
    jw_int(w, "output_tokens", n_output);
    jw_int(w, "cache_read_input_tokens", t.n_cached);
    jw_int(w, "cache_creation_input_tokens", 0);
    jw_close(w);
}

/* The message up to its content, which is left open. */
static void open_message(struct srv_gen *g, struct jw *w, const char *name)
{
    jw_open(w, name, '{');
    jw_text(w, "id", g->id);
    jw_text(w, "type", "message");
    jw_text(w, "role", "assistant");
    jw_text(w, "model", g->model);
    jw_open(w, "content", '[');
}

/* A text block, or the delta of one. */
static void write_block(struct jw *w, const char *name, const char *type,
                        const struct gen_choice *c, size_t from, size_t to)
{
    jw_open(w, name, '{');
    jw_text(w, "type", type);
    srv_gen_write_text(w, "text", c, from, to);
    jw_close(w);
}

static bool whole(struct srv_gen *g, struct jw *w, struct gen_cursor *at)
{
    const struct gen_choice *c = &g->prompts[0].choices[0];
    open_message(g, w, NULL);
    write_block(w, NULL, "text", c, 0, c->text.text.len);
    jw_close(w);
    write_stop(w, c);
    write_usage(g, w, c->n_tokens);
    jw_close(w);
    return true;
}

static void stream_begin(struct srv_gen *g)
{
    struct gen_event e;
    srv_gen_begin_typed_event(&e, "message_start");
    open_message(g, &e.w, "message");
    jw_close(&e.w);
    jw_null(&e.w, "stop_reason");
    jw_null(&e.w, "stop_sequence");
    write_usage(g, &e.w, 0);
    jw_close(&e.w);
    srv_gen_close_event(g, &e);
    srv_gen_begin_typed_event(&e, "content_block_start");
    jw_int(&e.w, "index", 0);
    write_block(&e.w, "content_block", "text", &g->prompts[0].choices[0], 0, 0);
    srv_gen_close_event(g, &e);
}

static void stream_delta(struct srv_gen *g, struct gen_prompt *p, struct gen_choice *c, size_t from,
                         size_t to, int64_t token_from, int64_t token_to)
{
    struct gen_event e;
    if (to == from && !g->params.chunk_tokens) return;
    srv_gen_begin_typed_event(&e, "content_block_delta");
    jw_int(&e.w, "index", 0);
    write_block(&e.w, "delta", "text_delta", c, from, to);
    srv_gen_close_event(g, &e);
}

static void stream_finish(struct srv_gen *g, struct gen_prompt *p, struct gen_choice *c)
{
    struct gen_event e;
    srv_gen_begin_typed_event(&e, "content_block_stop");
    jw_int(&e.w, "index", 0);
    srv_gen_close_event(g, &e);
    srv_gen_begin_typed_event(&e, "message_delta");
    jw_open(&e.w, "delta", '{');
    write_stop(&e.w, c);
    jw_close(&e.w);
    jw_open(&e.w, "usage", '{');
    jw_int(&e.w, "output_tokens", c->n_tokens);
    jw_close(&e.w);
    srv_gen_close_event(g, &e);
}

static void stream_end(struct srv_gen *g)
{
    struct gen_event e;
    srv_gen_begin_typed_event(&e, "message_stop");
    srv_gen_close_event(g, &e);
}

static void stream_error(struct srv_gen *g, enum srv_error kind, const char *message)
{
    struct gen_event e;
    srv_gen_begin_event(&e, "error");
    srv_error_write_anthropic(&e.text, kind, message, srv_facts(g->req)->id);
    srv_gen_send_event(g, &e);
}

static int prepare(struct srv_gen *g, struct param_error *err)
{
    if (!g->counts && g->max_tokens < 1)
        return param_fail(err, SRV_ERR_MISSING, "max_tokens",
                          "'max_tokens' of at least 1 is required.");
    if (!g->counts && g->n_choices != 1)
        return param_fail(err, SRV_ERR_UNSUPPORTED, "n", "'n' must be 1 here.");
    return make_prompt(g, err);
}

static const struct srv_gen_format format = {
    .endpoint = "messages",
    .input = "messages",
    .id_prefix = "msg_",
    .fields = fields,
    .prepare = prepare,
    .stream_begin = stream_begin,
    .stream_delta = stream_delta,
    .stream_finish = stream_finish,
    .stream_end = stream_end,
    .stream_error = stream_error,
    .tail = whole,
};

static void handle(struct srv_request *req)
{
    srv_gen_handle(req, &format);
}

static void count(struct srv_request *req)
{
    srv_gen_count(req, &format, NULL);
}

const struct srv_route srv_routes_messages[] = {
    {"POST", "/v1/messages", SRV_ROUTE_ANTHROPIC, handle},
    {"POST", "/v1/messages/count_tokens", SRV_ROUTE_ANTHROPIC, count},
    {0},
};
