/* SPDX-License-Identifier: MIT */
/* The answers and events of Responses; see dialects.h. */
#include "server/api/write/dialects.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "server/api/write/openai_json.h"

/* ---- the object ---------------------------------------------------------------------------- */

/* The type of an item, the names of the events of its text, and the member that has it. */
static const struct {
    const char *type, *delta, *done, *member;
} kinds[] = {
    [CHOICE_CONTENT] = {"message", "response.output_text.delta", "response.output_text.done",
                        "text"},
    [CHOICE_REASONING] = {"reasoning", "response.reasoning_text.delta",
                          "response.reasoning_text.done", "text"},
    [CHOICE_CALL] = {"function_call", "response.function_call_arguments.delta",
                     "response.function_call_arguments.done", "arguments"},
};

static bool is_cut(const struct gen_choice *c)
{
    return c->finish_reason && !strcmp(c->finish_reason, "length");
}

/* The items of an answer are the parts of its text; without any it is one message. */
static const struct gen_choice *answer(const struct srv_gen *g)
{
    return &g->prompts[0].choices[0];
}

static enum choice_kind kind_of(const struct gen_choice *c, int i)
{
    return i < c->n_parts ? c->parts[i].kind : CHOICE_CONTENT;
}

/* The text of an item up to `len` bytes of it. */
static void write_item_text(struct jw *w, const char *name, const struct gen_choice *c, int i,
                            bool whole)
{
    if (i < c->n_parts && whole)
        srv_gen_write_part(w, name, c, i);
    else
        jw_text(w, name, "");
}

/* The member "logprobs" of tokens [from, to) in the text of item i. */
static void write_logprobs(const struct srv_gen *g, struct jw *w, int i, int64_t from, int64_t to)
{
    jw_open(w, "logprobs", '[');
    if (g->params.want_logprobs) srv_gen_write_logprobs(g, w, answer(g), i, from, to);
    jw_close(w);
}

/* A content part of a message or of reasoning. */
static void write_part(const struct srv_gen *g, struct jw *w, const char *name, int i, bool whole)
{
    const struct gen_choice *c = answer(g);
    bool reasoning = kind_of(c, i) == CHOICE_REASONING;
    jw_open(w, name, '{');
    jw_text(w, "type", reasoning ? "reasoning_text" : "output_text");
    write_item_text(w, "text", c, i, whole);
    if (!reasoning) {
        jw_json(w, "annotations", "[]", 2);
        write_logprobs(g, w, i, 0, whole ? c->n_showable : 0);
    }
    jw_close(w);
}

/* Ids of items: of a call the letters of its call_id, else those of the answer and a number. */
static void write_item_id(const struct srv_gen *g, struct jw *w, const char *name,
                          const struct gen_choice *c, int i)
{
    char id[80], number[16] = "";
    if (kind_of(c, i) == CHOICE_CALL) {
        char letters[SRV_CALL_ID_MAX];
        srv_gen_call_id(g, c, &c->parts[i], "", letters);
        snprintf(id, sizeof(id), "fc_%s", letters);
    } else {
        if (i > 0) snprintf(number, sizeof(number), "_%d", i);
        snprintf(id, sizeof(id), "%s_%s%s", kind_of(c, i) == CHOICE_REASONING ? "rs" : "msg",
                 srv_facts(g->req)->unique, number);
    }
    jw_text(w, name, id);
}

/* The name as the client knows it: with its namespace, if it has one. */
static void write_call_name(const struct srv_gen *g, struct jw *w, const struct choice_part *call)
{
    const struct tools_place *place = tools_ask_place(&g->tools.ask, call->name);
    jw_text(w, "name", place ? place->name : call->name);
    if (place && place->space) jw_text(w, "namespace", place->space);
}

static void write_call(const struct srv_gen *g, struct jw *w, const struct gen_choice *c, int i,
                       bool whole)
{
    srv_gen_write_call_id(g, w, "call_id", c, &c->parts[i], "call_");
    write_call_name(g, w, &c->parts[i]);
    write_item_text(w, "arguments", c, i, whole);
}

/* status: in_progress, without its text, completed or incomplete. */
static void write_item(const struct srv_gen *g, struct jw *w, const char *name, int i,
                       const char *status)
{
    const struct gen_choice *c = answer(g);
    enum choice_kind kind = kind_of(c, i);
    bool whole = strcmp(status, "in_progress") != 0;
    jw_open(w, name, '{');
    jw_text(w, "type", kinds[kind].type);
    write_item_id(g, w, "id", c, i);
    if (kind == CHOICE_CONTENT) jw_text(w, "role", "assistant");
    if (kind == CHOICE_REASONING) jw_json(w, "summary", "[]", 2);
    if (kind == CHOICE_CALL) {
        write_call(g, w, c, i, whole);
    } else {
        jw_open(w, "content", '[');
        if (whole) write_part(g, w, NULL, i, true);
        jw_close(w);
    }
    jw_fields(w, "status %s }", status);
}

/* Only the last item can have been cut. */
static const char *item_status(const struct gen_choice *c, int i)
{
    bool cut = is_cut(c) && i + 1 >= c->n_parts;
    if (cut && i < c->n_parts && c->parts[i].kind == CHOICE_CALL) cut = !c->parts[i].complete;
    return cut ? "incomplete" : "completed";
}

static void write_output(const struct srv_gen *g, struct jw *w)
{
    const struct gen_choice *c = answer(g);
    bool empty = true;
    for (int i = 0; i < c->n_parts; i++) {
        if (!srv_gen_is_shown(c, i)) continue;
        write_item(g, w, NULL, i, item_status(c, i));
        empty = false;
    }
    if (empty) write_item(g, w, NULL, 0, item_status(c, 0));
}

static void write_usage(struct srv_gen *g, struct jw *w)
{
    struct gen_totals t = srv_gen_totals(g);
    jw_fields(w,
              "usage { input_tokens %jd input_tokens_details { cached_tokens %jd "
              "cache_write_tokens %jd }",
              t.n_prompt, t.n_cached, t.n_written);
    srv_cache_write_report(g, w);
    jw_fields(w, "output_tokens %jd output_tokens_details { reasoning_tokens %jd", t.n_completion,
              t.n_reasoning);
    srv_gen_write_closing(w, &t);
    jw_fields(w, "} total_tokens %jd }", t.n_prompt + t.n_completion);
}

/* The members that repeat the request or show what is not supported. */
static void write_request(struct srv_gen *g, struct jw *w)
{
    static const char free_text[] = "{\"type\":\"text\"}";
    const struct srv_span *format = &g->guide.ask.format;
    const struct tools_ask *ask = &g->tools.ask;
    const struct response_echo *sent = g->dialect;
    jw_fields(w,
              "parallel_tool_calls %i previous_response_id null reasoning { effort %s summary null "
              "} store %i background %i service_tier %s",
              ask->parallel, g->tools.effort, false, false, "default");
    jw_count(w, "max_tool_calls", g->params.max_tool_calls);
    jw_number(w, "temperature", g->params.given.temperature);
    jw_number(w, "presence_penalty", g->params.given.presence_penalty);
    jw_number(w, "frequency_penalty", g->params.given.frequency_penalty);
    jw_int(w, "top_logprobs", g->params.top_logprobs > 0 ? g->params.top_logprobs : 0);
    jw_text(w, "user", g->params.user);
    jw_text(w, "safety_identifier", g->params.safety_identifier);
    jw_text(w, "prompt_cache_key", g->params.prompt_cache_key);
    if (sent->prompt_cache_retention)
        jw_text(w, "prompt_cache_retention", sent->prompt_cache_retention);
    jw_open(w, "text", '{');
    if (format->text)
        jw_json(w, "format", format->text, format->len);
    else
        jw_json(w, "format", free_text, strlen(free_text));
    jw_close(w);
    if (ask->choice_text.text && ask->choice_text.text[0] != 'n') /* not null */
        jw_json(w, "tool_choice", ask->choice_text.text, ask->choice_text.len);
    else
        jw_text(w, "tool_choice", "auto");
    jw_json(w, "tools", sent->tools.text, sent->tools.len);
    jw_fields(w, "top_p %g truncation %s", g->params.given.top_p, sent->truncation);
    jw_json(w, "metadata", sent->metadata.text, sent->metadata.len);
}

static void write_incomplete(struct jw *w, const char *status)
{
    if (strcmp(status, "incomplete") != 0) {
        jw_null(w, "incomplete_details");
        return;
    }
    jw_fields(w, "incomplete_details { reason %s }", "max_output_tokens");
}

/* status: in_progress, completed or incomplete. */
static void write_response(struct srv_gen *g, struct jw *w, const char *name, const char *status)
{
    bool over = strcmp(status, "in_progress") != 0;
    const struct response_echo *sent = g->dialect;
    jw_open(w, name, '{');
    jw_fields(w, "id %s object %s created_at %jd", g->id, "response", g->created);
    int64_t now = srv_facts(g->req)->is_fixed ? g->created : (int64_t)time(NULL);
    jw_count(w, "completed_at", strcmp(status, "completed") ? -1 : now);
    jw_fields(w, "status %s error null", status);
    write_incomplete(w, status);
    jw_string_or_null(w, "instructions", sent->instructions.text, sent->instructions.len);
    jw_count(w, "max_output_tokens", g->params.max_completion_tokens);
    jw_fields(w, "model %s output [", g->model);
    if (over) write_output(g, w);
    jw_close(w);
    write_request(g, w);
    if (over) {
        write_usage(g, w);
        srv_gen_write_timings(g, w);
    } else {
        jw_null(w, "usage");
    }
    jw_close(w);
}

static const char *final_status(const struct srv_gen *g)
{
    return is_cut(answer(g)) ? "incomplete" : "completed";
}

static bool whole(struct srv_gen *g, struct jw *w, struct gen_cursor *at)
{
    write_response(g, w, NULL, final_status(g));
    return true;
}

/* ---- stream -------------------------------------------------------------------------------- */

/* The caller adds members to the event and sends it. */
static void begin(struct srv_gen *g, struct gen_event *e, const char *name)
{
    srv_gen_begin_typed_event(e, name);
    jw_int(&e->w, "sequence_number", g->sequence++);
}

static void send_response(struct srv_gen *g, const char *name, const char *status)
{
    struct gen_event e;
    begin(g, &e, name);
    write_response(g, &e.w, "response", status);
    srv_gen_close_event(g, &e);
}

static void send_item(struct srv_gen *g, const char *name, int i, const char *status)
{
    struct gen_event e;
    begin(g, &e, name);
    jw_int(&e.w, "output_index", i);
    write_item(g, &e.w, "item", i, status);
    srv_gen_close_event(g, &e);
}

/* Begins an event about the text or the arguments of an item. */
static void begin_in_item(struct srv_gen *g, struct gen_event *e, const char *name, int i)
{
    begin(g, e, name);
    write_item_id(g, &e->w, "item_id", answer(g), i);
    jw_int(&e->w, "output_index", i);
    if (kind_of(answer(g), i) != CHOICE_CALL) jw_int(&e->w, "content_index", 0);
}

static void send_part(struct srv_gen *g, const char *name, int i, bool whole)
{
    struct gen_event e;
    begin_in_item(g, &e, name, i);
    write_part(g, &e.w, "part", i, whole);
    srv_gen_close_event(g, &e);
}

/* Ends an event about text of item i, that of tokens [from, to). */
static void end_text_event(struct srv_gen *g, struct gen_event *e, int i, int64_t from, int64_t to)
{
    if (kind_of(answer(g), i) == CHOICE_CONTENT) write_logprobs(g, &e->w, i, from, to);
    srv_gen_close_event(g, e);
}

static void begin_item(struct srv_gen *g, int i)
{
    send_item(g, "response.output_item.added", i, "in_progress");
    if (kind_of(answer(g), i) != CHOICE_CALL) send_part(g, "response.content_part.added", i, false);
}

static void end_item(struct srv_gen *g, int i)
{
    const struct gen_choice *c = answer(g);
    enum choice_kind kind = kind_of(c, i);
    struct gen_event e;
    begin_in_item(g, &e, kinds[kind].done, i);
    if (kind == CHOICE_CALL) write_call_name(g, &e.w, &c->parts[i]);
    write_item_text(&e.w, kinds[kind].member, c, i, true);
    end_text_event(g, &e, i, 0, c->n_showable);
    if (kind != CHOICE_CALL) send_part(g, "response.content_part.done", i, true);
    send_item(g, "response.output_item.done", i, item_status(c, i));
}

static void stream_begin(struct srv_gen *g)
{
    send_response(g, "response.created", "in_progress");
    send_response(g, "response.in_progress", "in_progress");
}

static void stream_part(struct srv_gen *g, struct gen_choice *c, const struct choice_part *part,
                        bool ended)
{
    (ended ? end_item : begin_item)(g, (int)(part - c->parts));
}

static void stream_delta(struct srv_gen *g, struct gen_choice *c, const struct choice_part *part,
                         size_t to, int64_t token_to)
{
    struct gen_event e;
    if (!part) return;
    int i = (int)(part - c->parts);
    begin_in_item(g, &e, kinds[part->kind].delta, i);
    srv_gen_write_text(&e.w, "delta", c, c->n_sent, to);
    if (g->params.timings_per_token) srv_gen_write_timings(g, &e.w);
    end_text_event(g, &e, i, c->n_shown, token_to < c->n_showable ? token_to : c->n_showable);
}

static void stream_finish(struct srv_gen *g, struct gen_choice *c)
{
    if (c->n_parts_begun > 0) return;
    begin_item(g, 0);
    end_item(g, 0);
}

/* Reports the progress in an event that every client knows, with one more member. */
static void stream_progress(struct srv_gen *g, const struct gen_progress *progress)
{
    struct gen_event e;
    begin(g, &e, "response.in_progress");
    write_response(g, &e.w, "response", "in_progress");
    srv_gen_write_progress(&e.w, progress);
    srv_gen_close_event(g, &e);
}

static void stream_end(struct srv_gen *g)
{
    const char *status = final_status(g);
    send_response(g, strcmp(status, "completed") ? "response.incomplete" : "response.completed",
                  status);
}

static void stream_error(struct srv_gen *g, enum srv_error kind, const char *message)
{
    struct gen_event e;
    srv_gen_begin_event(&e, "error");
    struct srv_error_object error = {SRV_DIALECT_TYPED, kind, .message = message,
                                     .sequence_number = g->sequence++,
                                     .trace_parent = srv_facts(g->req)->trace_parent};
    srv_error_write(&e.text, &error);
    srv_gen_send_event(g, &e);
}

const struct srv_gen_dialect srv_write_responses = {
    .stream_begin = stream_begin,
    .stream_part = stream_part,
    .stream_delta = stream_delta,
    .stream_finish = stream_finish,
    .stream_progress = stream_progress,
    .stream_end = stream_end,
    .stream_error = stream_error,
    .tail = whole,
};
