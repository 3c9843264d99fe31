/* SPDX-License-Identifier: MIT */
/*
 * POST /v1/chat/completions: messages in; role chunk, text chunks, finish chunk, usage chunk,
 * [DONE] out.
 */
#include <string.h>

#include "server/api/chat_input.h"
#include "server/api/openai_json.h"
#include "server/api/routes.h"
#include "server/config/config.h"
#include "tokenizer/tokenizer.h"

static const struct param_field fields[] = {
    GEN_FIELD("messages", PARAM_JSON, messages),
    GEN_FIELD("logprobs", PARAM_BOOL, logprobs_flag),
    GEN_RANGE("top_logprobs", PARAM_INT, top_logprobs, 0, GEN_MAX_LOGPROBS),
    GEN_FIELD("chat_template_kwargs", PARAM_JSON, chat_template_kwargs),
    GEN_FIELD("add_generation_prompt", PARAM_BOOL, add_generation_prompt),
    GEN_FIELD("continue_final_message", PARAM_BOOL, continue_final_message),
    {0},
};

/* ---- log-probabilities --------------------------------------------------------------------- */

/* The end-of-turn token is no part of the content, so that joined bytes rebuild the text. */
static bool is_end_token(const struct gen_choice *c, int64_t i)
{
    return c->ended && c->stop_id >= 0 && i + 1 == c->n_tokens &&
           c->log.records[i].id == c->stop_id;
}

static void write_token(struct srv_gen *g, struct buf *b, const struct gen_choice *c, int64_t i)
{
    const struct gen_record *r = &c->log.records[i];
    const struct eng_logprob *top = gen_log_top(&c->log, i);
    buf_puts(b, "{");
    srv_gen_write_token_bytes(g, b, r->id);
    buf_puts(b, ",\"logprob\":");
    buf_json_number(b, r->logprob);
    buf_puts(b, ",\"top_logprobs\":[");
    for (int k = 0; k < r->n_top; k++) {
        buf_puts(b, k ? ",{" : "{");
        srv_gen_write_token_bytes(g, b, top[k].id);
        buf_puts(b, ",\"logprob\":");
        buf_json_number(b, top[k].logprob);
        buf_puts(b, "}");
    }
    buf_puts(b, "]}");
}

/* Tokens [from, to) of a list that begins with token `first`. */
static void write_token_list(struct srv_gen *g, struct buf *b, const struct gen_choice *c,
                             int64_t first, int64_t from, int64_t to)
{
    for (int64_t i = from; i < to; i++) {
        if (is_end_token(c, i)) continue;
        if (i > first) buf_puts(b, ",");
        write_token(g, b, c, i);
    }
}

/* ---- whole answers ------------------------------------------------------------------------- */

static void write_head(struct srv_gen *g, struct buf *b, const char *object)
{
    buf_printf(b, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", g->id, object,
               (long long)g->created);
    buf_json_string(b, g->model, strlen(g->model));
    buf_puts(b, ",\"system_fingerprint\":");
    buf_json_string(b, g->app->fingerprint, strlen(g->app->fingerprint));
    if (g->params.service_tier) buf_puts(b, ",\"service_tier\":\"default\"");
    buf_puts(b, ",\"choices\":[");
}

static void whole_head(struct srv_gen *g, struct buf *b)
{
    write_head(g, b, "chat.completion");
}

/* The next log-probabilities of a choice; returns true after the last. */
static bool write_tokens_part(struct srv_gen *g, struct buf *b, const struct gen_choice *c,
                              int64_t *at)
{
    enum { PART_TOKENS = 16 };
    int64_t n = srv_gen_shown_tokens(c);
    int64_t to = n - *at > PART_TOKENS ? *at + PART_TOKENS : n;
    write_token_list(g, b, c, 0, *at, to);
    *at = to == n ? 0 : to;
    return to == n;
}

static void write_end(struct srv_gen *g, struct buf *b, const struct gen_choice *c)
{
    buf_printf(b, ",\"finish_reason\":\"%s\"", c->finish_reason);
    if (g->params.return_token_ids) {
        buf_puts(b, ",\"token_ids\":");
        srv_gen_write_ids(b, c, 0, c->n_tokens);
    }
    buf_puts(b, "}");
}

static bool whole_choice(struct srv_gen *g, struct buf *b, struct gen_prompt *p,
                         struct gen_choice *c, struct gen_cursor *at)
{
    enum { OPEN, TEXT, TOKENS, END };
    switch (at->part) {
    case OPEN:
        buf_printf(b, "{\"index\":%d,\"message\":{\"role\":\"assistant\",\"content\":\"",
                   at->choice);
        at->part = TEXT;
        return false;
    case TEXT:
        if (!srv_gen_write_text_part(b, c->text.text.data, c->text.text.len, &at->at)) return false;
        buf_puts(b, "\",\"refusal\":null},\"logprobs\":");
        buf_puts(b, g->params.want_logprobs ? "{\"content\":[" : "null");
        at->part = g->params.want_logprobs ? TOKENS : END;
        return false;
    case TOKENS:
        if (!write_tokens_part(g, b, c, &at->at)) return false;
        buf_puts(b, "],\"refusal\":null}");
        at->part = END;
        return false;
    default: write_end(g, b, c); return true;
    }
}

static bool whole_tail(struct srv_gen *g, struct buf *b, struct gen_cursor *at)
{
    enum { OPEN, PROMPT };
    const struct gen_prompt *p = &g->prompts[0];
    if (at->part == OPEN) {
        buf_puts(b, "],\"usage\":");
        srv_gen_write_usage(g, b);
        srv_gen_add_timings(g, b);
        if (g->params.return_token_ids) {
            buf_puts(b, ",\"prompt_token_ids\":");
            srv_gen_write_prompt_ids(b, p);
        }
        if (p->log.records) buf_puts(b, ",\"prompt_logprobs\":");
        at->part = PROMPT;
        return false;
    }
    if (p->log.records && !srv_gen_write_prompt_logprobs_part(g, b, p, &at->at)) return false;
    buf_puts(b, "}");
    return true;
}

static bool whole(struct srv_gen *g, struct gen_cursor *at, struct buf *b)
{
    static const struct gen_writer writer = {whole_head, whole_choice, whole_tail};
    return srv_gen_write_piece(g, &writer, at, b);
}

/* ---- stream -------------------------------------------------------------------------------- */

static void begin_chunk(struct srv_gen *g, struct buf *b, int index)
{
    buf_init(b, 64 << 20);
    write_head(g, b, "chat.completion.chunk");
    buf_printf(b, "{\"index\":%d,\"delta\":", index);
}

/* Choices are introduced in order of their index, each with its role, once. */
static void stream_begin(struct srv_gen *g)
{
    for (int k = 0; k < g->n_choices; k++) {
        struct buf b;
        begin_chunk(g, &b, k);
        buf_puts(&b, "{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,"
                     "\"finish_reason\":null}");
        srv_gen_end_chunk(g, &b, &g->prompts[0], 0);
    }
}

static void write_new_logprobs(struct srv_gen *g, struct buf *b, const struct gen_choice *c,
                               int64_t from, int64_t to)
{
    if (!g->params.want_logprobs) {
        buf_puts(b, "null");
        return;
    }
    buf_puts(b, "{\"content\":[");
    write_token_list(g, b, c, from, from, to);
    buf_puts(b, "],\"refusal\":null}");
}

static void stream_delta(struct srv_gen *g, struct gen_prompt *p, struct gen_choice *c, size_t from,
                         size_t to, int64_t token_from, int64_t token_to)
{
    struct buf b;
    begin_chunk(g, &b, c->index);
    buf_puts(&b, "{\"content\":");
    buf_json_string(&b, c->text.text.data ? c->text.text.data + from : "", to - from);
    buf_puts(&b, "},\"logprobs\":");
    write_new_logprobs(g, &b, c, token_from, token_to);
    buf_puts(&b, ",\"finish_reason\":null");
    if (g->params.return_token_ids) {
        buf_puts(&b, ",\"token_ids\":");
        srv_gen_write_ids(&b, c, token_from, token_to);
    }
    buf_puts(&b, "}");
    srv_gen_end_chunk(g, &b, p, token_to);
}

static void stream_finish(struct srv_gen *g, struct gen_prompt *p, struct gen_choice *c)
{
    struct buf b;
    begin_chunk(g, &b, c->index);
    buf_printf(&b, "{},\"logprobs\":null,\"finish_reason\":\"%s\"}", c->finish_reason);
    srv_gen_end_chunk(g, &b, p, c->n_tokens);
}

static void stream_progress(struct srv_gen *g, const struct gen_progress *progress)
{
    struct buf b;
    buf_init(&b, 65536);
    write_head(g, &b, "chat.completion.chunk");
    srv_gen_end_progress_chunk(g, &b, progress);
}

static void stream_end(struct srv_gen *g)
{
    if (g->params.include_usage || g->params.timings) {
        struct buf b;
        buf_init(&b, 65536);
        write_head(g, &b, "chat.completion.chunk");
        srv_gen_end_last_chunk(g, &b);
    }
    srv_gen_done_event(g);
}

static const struct srv_gen_format format = {
    .endpoint = "chat",
    .input = "messages",
    .stream_begin = stream_begin,
    .stream_delta = stream_delta,
    .stream_finish = stream_finish,
    .stream_progress = stream_progress,
    .stream_end = stream_end,
    .stream_error = srv_gen_error_event,
    .whole = whole,
};

/* ---- request ------------------------------------------------------------------------------- */

static int derive(struct srv_gen *g, struct param_error *err)
{
    struct srv_gen_params *p = &g->params;
    if (p->top_logprobs > 0 && !p->logprobs_flag)
        return param_fail(err, SRV_ERR_INVALID_VALUE, "top_logprobs",
                          "'top_logprobs' is only allowed when 'logprobs' is true.");
    if (p->logprobs_flag) p->logprobs_count = p->top_logprobs > 0 ? p->top_logprobs : 0;
    p->want_logprobs = p->logprobs_flag;
    return chat_input_check_flags(g->body, err) || chat_input_check(p->messages, err);
}

static int make_prompt(struct srv_gen *g, struct param_error *err)
{
    struct srv_span body;
    body.text = srv_request_body(g->req, &body.len);
    struct chat_input in = {
        .body = body,
        .messages = g->params.messages,
        .kwargs = g->params.chat_template_kwargs,
        .add_generation_prompt = g->params.add_generation_prompt,
        .continue_final_message = g->params.continue_final_message,
    };
    return srv_gen_chat_prompt(g, &in, err);
}

static void handle(struct srv_request *req)
{
    struct param_error err = {0};
    struct srv_gen *g = srv_gen_open(req, &format, fields);
    if (!g) return;
    if (derive(g, &err) || make_prompt(g, &err)) {
        srv_gen_refuse(g, &err);
        return;
    }
    snprintf(g->id, sizeof(g->id), "chatcmpl-%s", srv_request_unique(req));
    srv_gen_start(g);
}

/* llama-server's. Counting runs no model. */
static void count(struct srv_request *req)
{
    struct param_error err = {0};
    struct srv_gen *g = srv_gen_open(req, &format, fields);
    if (!g) return;
    if (derive(g, &err) || make_prompt(g, &err))
        srv_gen_refuse(g, &err);
    else
        srv_gen_reply_count(g, "\"object\":\"response.input_tokens\",");
}

const struct srv_route srv_routes_chat[] = {
    {"POST", "/v1/chat/completions/input_tokens", 0, count},
    {"POST", "/chat/completions/input_tokens", 0, count},
    {"POST", "/v1/chat/completions", 0, handle},
    {"POST", "/chat/completions", 0, handle},
    {0},
};
