/* SPDX-License-Identifier: MIT */
/* The answers and events of Messages; see dialects.h. */
#include "server/api/write/dialects.h"

#include <string.h>

#include "base/auto.h"
#include "base/json_reader.h"
#include "server/api/write/openai_json.h"

/* ---- answers ------------------------------------------------------------------------------- */

static const char *stop_reason(const struct gen_choice *c)
{
    if (c->stop_string) return "stop_sequence";
    if (!strcmp(c->finish_reason, "length")) return "max_tokens";
    return strcmp(c->finish_reason, "tool_calls") ? "end_turn" : "tool_use";
}

static void write_stop(struct jw *w, const struct gen_choice *c)
{
    size_t len;
    const char *text = srv_gen_stop_string(c, &len);
    jw_text(w, "stop_reason", stop_reason(c));
    jw_string_or_null(w, "stop_sequence", text, len);
}

/* whole: with the object that message_delta does not have. */
static void write_usage(const struct srv_gen *g, struct jw *w, int64_t n_output, bool whole)
{
    struct gen_totals t = srv_gen_totals(g);
    int64_t n_hour, n_created = srv_cache_created(g, t.n_cached, &n_hour);
    jw_fields(w,
              "usage { input_tokens %jd output_tokens %jd cache_read_input_tokens %jd "
              "cache_creation_input_tokens %jd",
              t.n_prompt - t.n_cached - n_created, n_output, t.n_cached, n_created);
    if (whole) {
        jw_fields(w,
                  "cache_creation { ephemeral_5m_input_tokens %jd ephemeral_1h_input_tokens %jd }",
                  n_created - n_hour, n_hour);
    }
    srv_cache_write_report(g, w);
    srv_gen_write_closing(w, &t);
    jw_close(w);
}

/* The message up to its content, which is left open. */
static void open_message(struct srv_gen *g, struct jw *w, const char *name)
{
    jw_open(w, name, '{');
    jw_fields(w, "id %s type %s role %s model %s content [", g->id, "message", "assistant",
              g->model);
}

/* The members of an object that were complete when its text was cut. A number is if something
 * follows it. */
static void write_whole_members(struct jw *w, const char *name, const char *text, size_t len)
{
    AUTO(jr_finish) struct jr r;
    const char *key, *value;
    size_t key_len, value_len;
    jr_init(&r, text, len, JR_NUL, NULL, 0);
    jw_open(w, name, '{');
    jr_open(&r, '{');
    while (jr_member(&r, &key, &key_len) > 0) {
        struct buf copy = {.max = CHOICE_TEXT_MAX_BYTES};
        buf_add(&copy, key, key_len);
        bool whole = !jr_skip(&r, &value, &value_len) && !copy.failed &&
                     (value[0] == '"' || value[0] == '{' || value[0] == '[' || jr_peek(&r));
        if (whole) jw_key(w, copy.data ? copy.data : "", key_len);
        if (whole) jw_json(w, NULL, value, value_len);
        buf_finish(&copy);
        if (!whole) break;
    }
    jw_close(w);
}

static void write_input(struct jw *w, const struct gen_choice *c, int i)
{
    const struct choice_part *part = &c->parts[i];
    const char *text = c->text.text.data ? c->text.text.data + part->from : "";
    size_t len = choice_part_end(c, i) - part->from;
    if (part->complete)
        jw_json(w, "input", text, len);
    else
        write_whole_members(w, "input", text, len);
}

/* A block as it begins, or with all that it has. */
static void write_block(const struct srv_gen *g, struct jw *w, const char *name,
                        const struct gen_choice *c, int i, bool whole)
{
    const struct choice_part *part = &c->parts[i];
    size_t end = whole ? choice_part_end(c, i) : part->from;
    jw_open(w, name, '{');
    switch (part->kind) {
    case CHOICE_CONTENT:
        jw_text(w, "type", "text");
        srv_gen_write_text(w, "text", c, part->from, end);
        break;
    case CHOICE_REASONING:
        jw_text(w, "type", "thinking");
        srv_gen_write_text(w, "thinking", c, part->from, end);
        jw_text(w, "signature", "");
        break;
    case CHOICE_CALL:
        jw_text(w, "type", "tool_use");
        srv_gen_write_call_id(g, w, "id", c, part, "toolu_");
        jw_text(w, "name", part->name);
        if (whole)
            write_input(w, c, i);
        else
            jw_json(w, "input", "{}", 2);
        break;
    }
    jw_close(w);
}

/* Where an answer is empty there is one text block. */
static void write_empty_block(struct jw *w, const char *name)
{
    jw_open(w, name, '{');
    jw_fields(w, "type %s text %s }", "text", "");
}

static bool whole(struct srv_gen *g, struct jw *w, struct gen_cursor *at)
{
    const struct gen_choice *c = &g->prompts[0].choices[0];
    bool empty = true;
    open_message(g, w, NULL);
    for (int i = 0; i < c->n_parts; i++) {
        if (!srv_gen_is_shown(c, i)) continue;
        write_block(g, w, NULL, c, i, true);
        empty = false;
    }
    if (empty) write_empty_block(w, NULL);
    jw_close(w);
    write_stop(w, c);
    write_usage(g, w, c->n_tokens, true);
    jw_close(w);
    return true;
}

static void stream_begin(struct srv_gen *g)
{
    struct gen_event e;
    srv_gen_begin_typed_event(&e, "message_start");
    open_message(g, &e.w, "message");
    jw_fields(&e.w, "} stop_reason null stop_sequence null");
    write_usage(g, &e.w, 0, true);
    jw_close(&e.w);
    srv_gen_close_event(g, &e);
}

static void begin_block(struct gen_event *e, const char *type, int index)
{
    srv_gen_begin_typed_event(e, type);
    jw_int(&e->w, "index", index);
}

/* Thinking ends with its signature, which is empty here. */
static void end_block(struct srv_gen *g, int index, bool thinking)
{
    struct gen_event e;
    if (thinking) {
        begin_block(&e, "content_block_delta", index);
        jw_fields(&e.w, "delta { type %s signature %s }", "signature_delta", "");
        srv_gen_close_event(g, &e);
    }
    begin_block(&e, "content_block_stop", index);
    srv_gen_close_event(g, &e);
}

static void stream_part(struct srv_gen *g, struct gen_choice *c, const struct choice_part *part,
                        bool ended)
{
    int index = (int)(part - c->parts);
    struct gen_event e;
    if (ended) {
        end_block(g, index, part->kind == CHOICE_REASONING);
        return;
    }
    begin_block(&e, "content_block_start", index);
    write_block(g, &e.w, "content_block", c, index, false);
    srv_gen_close_event(g, &e);
}

static void stream_delta(struct srv_gen *g, struct gen_choice *c, const struct choice_part *part,
                         size_t to, int64_t token_to)
{
    static const struct {
        const char *type, *member;
    } deltas[] = {
        [CHOICE_CONTENT] = {"text_delta", "text"},
        [CHOICE_REASONING] = {"thinking_delta", "thinking"},
        [CHOICE_CALL] = {"input_json_delta", "partial_json"},
    };
    struct gen_event e;
    if (!part) return;
    begin_block(&e, "content_block_delta", (int)(part - c->parts));
    jw_fields(&e.w, "delta { type %s", deltas[part->kind].type);
    srv_gen_write_text(&e.w, deltas[part->kind].member, c, c->n_sent, to);
    jw_close(&e.w);
    srv_gen_close_event(g, &e);
}

static void stream_finish(struct srv_gen *g, struct gen_choice *c)
{
    struct gen_event e;
    if (c->n_parts_begun == 0) {
        begin_block(&e, "content_block_start", 0);
        write_empty_block(&e.w, "content_block");
        srv_gen_close_event(g, &e);
        end_block(g, 0, false);
    }
    srv_gen_begin_typed_event(&e, "message_delta");
    jw_open(&e.w, "delta", '{');
    write_stop(&e.w, c);
    jw_close(&e.w);
    write_usage(g, &e.w, c->n_tokens, false);
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
    srv_error_write_for(g->req, &e.text, kind, NULL, message, NULL);
    srv_gen_send_event(g, &e);
}

const struct srv_gen_dialect srv_write_messages = {
    .stream_begin = stream_begin,
    .stream_part = stream_part,
    .stream_delta = stream_delta,
    .stream_finish = stream_finish,
    .stream_end = stream_end,
    .stream_error = stream_error,
    .tail = whole,
};
