/* SPDX-License-Identifier: MIT */
/* The answers of Ollama's chat and generate, whole or in lines of JSON; see dialects.h. */
#include "server/api/write/dialects.h"

#include <string.h>
#include <time.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/json_tree.h"
#include "server/api/write/openai_json.h"

enum { LINE_MAX_BYTES = 32 << 20 };

static bool is_chat(const struct srv_gen *g)
{
    return !strcmp(g->format->input, "messages");
}

/* ---- members ------------------------------------------------------------------------------- */

/* The members that clients look for in every line. */
static void open_object(const struct srv_gen *g, struct jw *w)
{
    const json_t *asked = json_object_get(g->body.root, "model");
    char text[64];
    struct timespec now = {.tv_sec = g->created};
    struct tm t;
    if (!srv_facts(g->req)->is_fixed) clock_gettime(CLOCK_REALTIME, &now);
    size_t n = strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", gmtime_r(&now.tv_sec, &t));
    snprintf(text + n, sizeof(text) - n, ".%06ldZ", now.tv_nsec / 1000);
    jw_fields(w, "{ model %s created_at %s",
              json_is_string(asked) ? json_string_value(asked) : g->model, text);
}

/* The arguments are read and written anew: lines hold no line ends, not even those of Unicode. */
static void write_call(const struct srv_gen *g, struct jw *w, const struct gen_choice *c,
                       const struct choice_part *call)
{
    const struct jt_params params = {.flags = JT_REPEATS, .max_values = PARAM_MAX_VALUES};
    size_t len = choice_part_end(c, (int)(call - c->parts)) - call->from;
    struct jt_fault fault;
    json_auto_t *arguments = NULL;
    AUTO_FREE char *text = NULL;
    if (!jt_read(&arguments, c->text.text.data + call->from, len, &params, &fault))
        text = json_dumps(arguments, JSON_COMPACT | JSON_ENSURE_ASCII);
    jw_open(w, NULL, '{');
    srv_gen_write_call_id(g, w, "id", c, call, "call_");
    jw_fields(w, "function { index %d name %s", call->call, call->name);
    jw_json(w, "arguments", text ? text : "{}", text ? strlen(text) : 2);
    jw_fields(w, "} }");
}

/* Part `part` alone, from byte `from` to `to` of the text; NULL: nothing of it. */
static void write_message(const struct srv_gen *g, struct jw *w, const struct gen_choice *c,
                          const struct choice_part *part, size_t from, size_t to)
{
    bool thinks = part && part->kind == CHOICE_REASONING, chat = is_chat(g);
    bool speaks = part && part->kind == CHOICE_CONTENT;
    if (chat) jw_open(w, "message", '{');
    if (chat) jw_text(w, "role", "assistant");
    srv_gen_write_text(w, chat ? "content" : "response", c, speaks ? from : to, to);
    if (thinks) srv_gen_write_text(w, "thinking", c, from, to);
    if (part && part->kind == CHOICE_CALL) {
        jw_open(w, "tool_calls", '[');
        write_call(g, w, c, part);
        jw_close(w);
    }
    if (chat) jw_close(w);
}

static void write_logprobs(const struct srv_gen *g, struct jw *w, const struct gen_choice *c,
                           int64_t from, int64_t to)
{
    if (!g->params.want_logprobs || from < 0) return;
    jw_open(w, "logprobs", '[');
    srv_gen_write_logprobs(g, w, c, -1, from, to);
    jw_close(w);
}

/* Nanoseconds, at least 1, as some clients divide by them. */
static void write_duration(struct jw *w, const char *name, uint64_t from_us, uint64_t to_us)
{
    jw_int(w, name, from_us && to_us > from_us ? (int64_t)(to_us - from_us) * 1000 : 1);
}

static void write_end(const struct srv_gen *g, struct jw *w, const struct gen_choice *c)
{
    struct eng_usage u = srv_gen_usage(&g->prompts[0]);
    struct gen_totals t = srv_gen_totals(g);
    uint64_t start = srv_facts(g->req)->start_us;
    jw_bool(w, "done", true);
    jw_text(w, "done_reason", strcmp(c->finish_reason, "length") ? "stop" : "length");
    write_duration(w, "total_duration", start, clock_now_us());
    write_duration(w, "load_duration", start, u.submitted_us);
    jw_int(w, "prompt_eval_count", t.n_prompt);
    write_duration(w, "prompt_eval_duration", u.started_us, u.first_token_us);
    jw_int(w, "eval_count", t.n_completion);
    write_duration(w, "eval_duration", u.first_token_us, u.done_us);
    srv_gen_write_closing(w, &t);
    if (g->n_dropped_items > 0) jw_int(w, "dropped_input_items", g->n_dropped_items);
}

/* ---- whole answers ------------------------------------------------------------------------- */

static void write_kind(struct jw *w, const char *name, const struct gen_choice *c,
                       enum choice_kind kind)
{
    int64_t at = 0;
    jw_string_begin(w, name);
    while (!srv_gen_write_kind_part(w, c, kind, &at))
        continue;
    jw_string_end(w);
}

static bool whole(struct srv_gen *g, struct jw *w, struct gen_cursor *at)
{
    const struct gen_choice *c = &g->prompts[0].choices[0];
    int call = choice_next_part(c, CHOICE_CALL, 0);
    bool chat = is_chat(g);
    open_object(g, w);
    if (chat) jw_open(w, "message", '{');
    if (chat) jw_text(w, "role", "assistant");
    write_kind(w, chat ? "content" : "response", c, CHOICE_CONTENT);
    if (choice_next_part(c, CHOICE_REASONING, 0) >= 0)
        write_kind(w, "thinking", c, CHOICE_REASONING);
    if (call >= 0) jw_open(w, "tool_calls", '[');
    for (int i = call; i >= 0; i = choice_next_part(c, CHOICE_CALL, i + 1))
        if (c->parts[i].complete) write_call(g, w, c, &c->parts[i]);
    if (call >= 0) jw_close(w);
    if (chat) jw_close(w);
    write_logprobs(g, w, c, 0, c->n_showable);
    write_end(g, w, c);
    jw_close(w);
    return true;
}

/* ---- lines --------------------------------------------------------------------------------- */

static void begin_line(const struct srv_gen *g, struct gen_event *e)
{
    buf_init(&e->text, LINE_MAX_BYTES);
    jw_init(&e->w, &e->text);
    open_object(g, &e->w);
}

static void send_line(struct srv_gen *g, struct gen_event *e)
{
    jw_close(&e->w);
    srv_gen_send_text(g, jw_end(&e->w), "\n");
}

static void send_message(struct srv_gen *g, const struct gen_choice *c,
                         const struct choice_part *part, size_t from, size_t to, int64_t token_from,
                         int64_t token_to)
{
    struct gen_event e;
    begin_line(g, &e);
    write_message(g, &e.w, c, part, from, to);
    write_logprobs(g, &e.w, c, token_from, token_to);
    jw_bool(&e.w, "done", false);
    send_line(g, &e);
}

static void stream_delta(struct srv_gen *g, struct gen_choice *c, const struct choice_part *part,
                         size_t to, int64_t token_to)
{
    if (part && part->kind == CHOICE_CALL) return;
    if (c->n_sent == to && !g->params.want_logprobs) return;
    if (token_to > c->n_showable) token_to = c->n_showable;
    send_message(g, c, part, c->n_sent, to, c->n_shown, token_to);
}

/* A call is sent whole, and not at all if the limit has cut it. */
static void stream_part(struct srv_gen *g, struct gen_choice *c, const struct choice_part *part,
                        bool ended)
{
    if (ended && part->kind == CHOICE_CALL && part->complete)
        send_message(g, c, part, 0, 0, -1, -1);
}

static void stream_finish(struct srv_gen *g, struct gen_choice *c)
{
    struct gen_event e;
    begin_line(g, &e);
    write_message(g, &e.w, c, NULL, 0, 0);
    write_end(g, &e.w, c);
    send_line(g, &e);
}

static void stream_error(struct srv_gen *g, enum srv_error kind, const char *message)
{
    struct buf line = {.max = 8192};
    srv_error_write_for(g->req, &line, kind, NULL, message, NULL);
    srv_gen_send_text(g, &line, "\n");
}

const struct srv_gen_dialect srv_write_ollama = {
    .stream_part = stream_part,
    .stream_delta = stream_delta,
    .stream_finish = stream_finish,
    .stream_error = stream_error,
    .tail = whole,
};

void srv_write_ollama_reason(struct srv_gen *g, const char *reason)
{
    struct buf line = {.max = 8192};
    struct jw w = {.out = &line};
    open_object(g, &w);
    write_message(g, &w, NULL, NULL, 0, 0);
    jw_fields(&w, "done %i done_reason %s }", true, reason);
    if (g->params.stream) buf_add(jw_end(&w), "\n", 1);
    srv_reply(g->req, 200, g->params.stream ? "application/x-ndjson" : NULL, &line);
}
