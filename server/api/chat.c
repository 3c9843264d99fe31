/* SPDX-License-Identifier: MIT */
/*
 * POST /v1/chat/completions: messages in; role chunk, text chunks, finish chunk, usage chunk,
 * [DONE] out.
 */
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

/* The end-of-turn token is not part of the content, so that joined bytes rebuild the text. */
static bool is_end_token(const struct gen_choice *c, int64_t i)
{
    return c->ended && c->stop_id >= 0 && i + 1 == c->n_tokens &&
           c->log.records[i].id == c->stop_id;
}

static void write_token(struct srv_gen *g, struct jw *w, const struct gen_choice *c, int64_t i)
{
    const struct gen_record *r = &c->log.records[i];
    const struct eng_logprob *top = gen_log_top(&c->log, i);
    jw_open(w, NULL, '{');
    srv_gen_write_token_bytes(g, w, r->id);
    jw_number(w, "logprob", r->logprob);
    jw_open(w, "top_logprobs", '[');
    for (int k = 0; k < r->n_top; k++) {
        jw_open(w, NULL, '{');
        srv_gen_write_token_bytes(g, w, top[k].id);
        jw_number(w, "logprob", top[k].logprob);
        jw_close(w);
    }
    jw_close(w);
    jw_close(w);
}

static void open_tokens(struct jw *w)
{
    jw_open(w, "logprobs", '{');
    jw_open(w, "content", '[');
}

static void write_tokens(struct srv_gen *g, struct jw *w, const struct gen_choice *c, int64_t from,
                         int64_t to)
{
    for (int64_t i = from; i < to; i++)
        if (!is_end_token(c, i)) write_token(g, w, c, i);
}

static void close_tokens(struct jw *w)
{
    jw_close(w);
    jw_null(w, "refusal");
    jw_close(w);
}

/* ---- whole answers ------------------------------------------------------------------------- */

/* The next log-probabilities of a choice; returns true after the last. */
static bool write_tokens_part(struct srv_gen *g, struct jw *w, const struct gen_choice *c,
                              int64_t *at)
{
    int64_t from = *at, to;
    bool last = srv_gen_next_tokens(srv_gen_shown_tokens(c), at, &to);
    if (from == 0) open_tokens(w);
    write_tokens(g, w, c, from, to);
    if (last) close_tokens(w);
    return last;
}

static bool whole_choice(struct srv_gen *g, struct jw *w, struct gen_prompt *p,
                         struct gen_choice *c, struct gen_cursor *at)
{
    enum { OPEN, TEXT, TOKENS, END };
    switch (at->part) {
    case OPEN:
        jw_open(w, NULL, '{');
        jw_int(w, "index", at->choice);
        jw_open(w, "message", '{');
        jw_text(w, "role", "assistant");
        jw_string_begin(w, "content");
        at->part = TEXT;
        return false;
    case TEXT:
        if (!jw_string_next(w, c->text.text.data, c->text.text.len, GEN_PART_BYTES, &at->at))
            return false;
        jw_string_end(w);
        jw_null(w, "refusal");
        jw_close(w);
        at->part = TOKENS;
        return false;
    case TOKENS:
        if (!g->params.want_logprobs)
            jw_null(w, "logprobs");
        else if (!write_tokens_part(g, w, c, &at->at))
            return false;
        at->part = END;
        return false;
    default:
        jw_text(w, "finish_reason", c->finish_reason);
        if (g->params.return_token_ids) srv_gen_write_ids(w, "token_ids", c, 0, c->n_tokens);
        jw_close(w);
        return true;
    }
}

static bool whole_tail(struct srv_gen *g, struct jw *w, struct gen_cursor *at)
{
    enum { OPEN, PROMPT };
    const struct gen_prompt *p = &g->prompts[0];
    if (at->part == OPEN) {
        jw_close(w);
        srv_gen_write_usage(g, w);
        if (g->params.return_token_ids) jw_ints(w, "prompt_token_ids", p->ids, (size_t)p->n_ids);
        at->part = PROMPT;
        return false;
    }
    if (p->log.records && !srv_gen_write_prompt_logprobs_part(g, w, p, &at->at)) return false;
    jw_close(w);
    return true;
}

/* ---- stream -------------------------------------------------------------------------------- */

/* A chunk up to the members of its delta. */
static void begin_delta(struct srv_gen *g, struct gen_event *e, int index)
{
    srv_gen_begin_chunk(g, e, index);
    jw_open(&e->w, "delta", '{');
}

/* Sends the first chunk of every choice, which names its role. */
static void stream_begin(struct srv_gen *g)
{
    for (int k = 0; k < g->n_choices; k++) {
        struct gen_event e;
        begin_delta(g, &e, k);
        jw_text(&e.w, "role", "assistant");
        jw_text(&e.w, "content", "");
        jw_close(&e.w);
        jw_null(&e.w, "logprobs");
        jw_null(&e.w, "finish_reason");
        srv_gen_end_chunk(g, &e, &g->prompts[0], 0);
    }
}

static void stream_delta(struct srv_gen *g, struct gen_prompt *p, struct gen_choice *c, size_t from,
                         size_t to, int64_t token_from, int64_t token_to)
{
    struct gen_event e;
    begin_delta(g, &e, c->index);
    srv_gen_write_text(&e.w, "content", c, from, to);
    jw_close(&e.w);
    if (g->params.want_logprobs) {
        open_tokens(&e.w);
        write_tokens(g, &e.w, c, token_from, token_to);
        close_tokens(&e.w);
    } else {
        jw_null(&e.w, "logprobs");
    }
    jw_null(&e.w, "finish_reason");
    if (g->params.return_token_ids) srv_gen_write_ids(&e.w, "token_ids", c, token_from, token_to);
    srv_gen_end_chunk(g, &e, p, token_to);
}

static void stream_finish(struct srv_gen *g, struct gen_prompt *p, struct gen_choice *c)
{
    struct gen_event e;
    begin_delta(g, &e, c->index);
    jw_close(&e.w);
    jw_null(&e.w, "logprobs");
    jw_text(&e.w, "finish_reason", c->finish_reason);
    srv_gen_end_chunk(g, &e, p, c->n_tokens);
}

/* ---- request ------------------------------------------------------------------------------- */

static int derive(struct srv_gen *g, struct param_error *err)
{
    struct srv_gen_params *p = &g->params;
    if (p->top_logprobs > 0 && !p->logprobs_flag)
        return param_fail(err, SRV_ERR_INVALID_VALUE, "top_logprobs",
                          "'top_logprobs' is only allowed when 'logprobs' is true.");
    if (p->logprobs_flag) p->logprobs_count = p->top_logprobs > 0 ? p->top_logprobs : 0;
    p->want_logprobs = p->logprobs_flag;
    return 0;
}

static int make_prompt(struct srv_gen *g, struct param_error *err)
{
    struct chat_input in = {
        .body = g->text,
        .messages = g->params.messages,
        .kwargs = g->params.chat_template_kwargs,
        .add_generation_prompt = g->params.add_generation_prompt,
        .continue_final_message = g->params.continue_final_message,
    };
    return chat_input_check_flags(g->body, err) || srv_gen_chat_prompt(g, &in, err);
}

static int prepare(struct srv_gen *g, struct param_error *err)
{
    return derive(g, err) || make_prompt(g, err) ? -1 : 0;
}

static const struct srv_gen_format format = {
    .endpoint = "chat",
    .input = "messages",
    .id_prefix = "chatcmpl-",
    .fields = fields,
    .prepare = prepare,
    .object = "chat.completion",
    .chunk_object = "chat.completion.chunk",
    .shows_tier = true,
    .stream_begin = stream_begin,
    .stream_delta = stream_delta,
    .stream_finish = stream_finish,
    .stream_progress = srv_gen_progress_chunk,
    .stream_end = srv_gen_last_chunk,
    .stream_error = srv_gen_error_chunk,
    .head = srv_gen_open_answer,
    .choice = whole_choice,
    .tail = whole_tail,
};

static void handle(struct srv_request *req)
{
    srv_gen_handle(req, &format);
}

/* The same route in llama-server. */
static void count(struct srv_request *req)
{
    srv_gen_count(req, &format, "response.input_tokens");
}

const struct srv_route srv_routes_chat[] = {
    {"POST", "/v1/chat/completions/input_tokens", 0, count},
    {"POST", "/chat/completions/input_tokens", 0, count},
    {"POST", "/v1/chat/completions", 0, handle},
    {"POST", "/chat/completions", 0, handle},
    {0},
};
