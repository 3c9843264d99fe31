/* SPDX-License-Identifier: MIT */
/* The answers and events of chat completions; see dialects.h. */
#include "server/api/write/dialects.h"

#include <string.h>

#include "server/api/write/openai_json.h"
#include "server/config/config.h"

/* ---- whole answers ------------------------------------------------------------------------- */

/* The next log-probabilities of a choice; returns true after the last. */
static bool write_tokens_part(struct srv_gen *g, struct jw *w, const struct gen_choice *c,
                              int64_t *at)
{
    int64_t from = *at, to;
    bool last = srv_gen_next_tokens(c->n_showable, at, &to);
    if (from == 0) jw_fields(w, "logprobs { content [");
    srv_gen_write_logprobs(g, w, c, -1, from, to);
    if (last) jw_fields(w, "} refusal null }");
    return last;
}

/* Reasoning goes by the names that the operator has chosen. */
static const char *const *reasoning_names(const struct srv_gen *g)
{
    static const char *const names[] = {"reasoning_content", "reasoning", NULL};
    const char *field = g->served->config->reasoning_field;
    static const char *const first[] = {"reasoning_content", NULL};
    return !strcmp(field, "both") ? names : !strcmp(field, "reasoning") ? names + 1 : first;
}

static void write_call(struct srv_gen *g, struct jw *w, const struct gen_choice *c, int i)
{
    jw_open(w, NULL, '{');
    srv_gen_write_call_id(g, w, "id", c, &c->parts[i], "call_");
    jw_fields(w, "type %s function { name %s", "function", c->parts[i].name);
    srv_gen_write_part(w, "arguments", c, i);
    jw_fields(w, "} }");
}

/* After the text of a message. */
static void write_rest_of_message(struct srv_gen *g, struct jw *w, const struct gen_choice *c)
{
    int reasoning = choice_next_part(c, CHOICE_REASONING, 0);
    int call = choice_next_part(c, CHOICE_CALL, 0);
    jw_null(w, "refusal");
    for (const char *const *name = reasoning_names(g); reasoning >= 0 && *name; name++)
        srv_gen_write_part(w, *name, c, reasoning);
    if (call < 0) return;
    jw_open(w, "tool_calls", '[');
    for (; call >= 0; call = choice_next_part(c, CHOICE_CALL, call + 1))
        write_call(g, w, c, call);
    jw_close(w);
}

static bool has_content(const struct gen_choice *c)
{
    int i = choice_next_part(c, CHOICE_CONTENT, 0);
    return i >= 0 && choice_part_end(c, i) > c->parts[i].from;
}

static bool whole_choice(struct srv_gen *g, struct jw *w, struct gen_choice *c,
                         struct gen_cursor *at)
{
    enum { OPEN, TEXT, REST, TOKENS, END };
    switch (at->part) {
    case OPEN:
        jw_fields(w, "{ index %d message { role %s", at->choice, "assistant");
        at->part = c->n_calls > 0 && !has_content(c) ? REST : TEXT;
        if (at->part == REST)
            jw_null(w, "content");
        else
            jw_string_begin(w, "content");
        return false;
    case TEXT:
        if (!srv_gen_write_kind_part(w, c, CHOICE_CONTENT, &at->at)) return false;
        jw_string_end(w);
        at->part = REST;
        return false;
    case REST:
        write_rest_of_message(g, w, c);
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
        srv_gen_write_stop_reason(g, w, c);
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

/* Sends the first chunk of every choice, which names its role; the first has the prompt's ids. */
static void stream_begin(struct srv_gen *g)
{
    const struct gen_prompt *p = &g->prompts[0];
    for (int k = 0; k < g->n_choices; k++) {
        struct gen_event e;
        begin_delta(g, &e, k);
        jw_fields(&e.w, "role %s content %s } logprobs null finish_reason null } }", "assistant",
                  "");
        if (g->params.return_token_ids && k == 0)
            jw_ints(&e.w, "prompt_token_ids", p->ids, (size_t)p->n_ids);
        srv_gen_close_chunk(g, &e, p, 0);
    }
}

/* A call's entry in a delta up to its function, which the caller fills. */
static void open_call(struct jw *w, const struct srv_gen *g, const struct gen_choice *c,
                      const struct choice_part *call, bool begins)
{
    jw_fields(w, "tool_calls [ { index %d", call->call);
    if (begins) srv_gen_write_call_id(g, w, "id", c, call, "call_");
    if (begins) jw_text(w, "type", "function");
    jw_open(w, "function", '{');
    if (begins) jw_text(w, "name", call->name);
}

static void stream_call(struct srv_gen *g, struct gen_choice *c, const struct choice_part *call)
{
    struct gen_event e;
    begin_delta(g, &e, c->index);
    open_call(&e.w, g, c, call, true);
    jw_text(&e.w, "arguments", "");
    jw_fields(&e.w, "} } } } logprobs null finish_reason null");
    srv_gen_end_chunk(g, &e, c, c->n_shown);
}

/* The members of a delta of reasoning or of a call. */
static void write_other(struct srv_gen *g, struct jw *w, const struct gen_choice *c,
                        const struct choice_part *part, size_t to)
{
    if (part->kind == CHOICE_REASONING)
        for (const char *const *name = reasoning_names(g); *name; name++)
            srv_gen_write_text(w, *name, c, c->n_sent, to);
    if (part->kind != CHOICE_CALL) return;
    open_call(w, g, c, part, false);
    srv_gen_write_text(w, "arguments", c, c->n_sent, to);
    jw_fields(w, "} } }");
}

static void stream_delta(struct srv_gen *g, struct gen_choice *c, const struct choice_part *part,
                         size_t to, int64_t token_to)
{
    struct gen_event e;
    begin_delta(g, &e, c->index);
    if (!part || part->kind == CHOICE_CONTENT)
        srv_gen_write_text(&e.w, "content", c, c->n_sent, to);
    else
        write_other(g, &e.w, c, part, to);
    jw_close(&e.w);
    if (g->params.want_logprobs) {
        jw_fields(&e.w, "logprobs { content [");
        srv_gen_write_logprobs(g, &e.w, c, -1, c->n_shown,
                               token_to < c->n_showable ? token_to : c->n_showable);
        jw_fields(&e.w, "} refusal null }");
    } else {
        jw_null(&e.w, "logprobs");
    }
    jw_null(&e.w, "finish_reason");
    if (g->params.return_token_ids) srv_gen_write_ids(&e.w, "token_ids", c, c->n_shown, token_to);
    srv_gen_end_chunk(g, &e, c, token_to);
}

static void stream_finish(struct srv_gen *g, struct gen_choice *c)
{
    struct gen_event e;
    begin_delta(g, &e, c->index);
    jw_fields(&e.w, "} logprobs null finish_reason %s", c->finish_reason);
    srv_gen_write_stop_reason(g, &e.w, c);
    srv_gen_end_chunk(g, &e, c, c->n_tokens);
}

const struct srv_gen_dialect srv_write_chat = {
    .object = "chat.completion",
    .chunk_object = "chat.completion.chunk",
    .shows_tier = true,
    .stream_begin = stream_begin,
    .stream_call = stream_call,
    .stream_delta = stream_delta,
    .stream_finish = stream_finish,
    .stream_progress = srv_gen_progress_chunk,
    .stream_end = srv_gen_last_chunk,
    .stream_error = srv_gen_error_chunk,
    .head = srv_gen_open_answer,
    .choice = whole_choice,
    .tail = whole_tail,
};
