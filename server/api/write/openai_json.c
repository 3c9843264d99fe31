/* SPDX-License-Identifier: MIT */
/*
 * Writing that the dialects share: events, chunks, usage, timings, and token texts for
 * log-probabilities. Called on text workers.
 */
#include "server/api/write/openai_json.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/utf8.h"
#include "tokenizer/tokenizer.h"

enum {
    EVENT_MAX = 32 << 20,
    TOKEN_TEXT_MAX = 4096,
    PART_TOKENS = 16, /* with their log-probabilities */
};

/* ---- events -------------------------------------------------------------------------------- */

void srv_gen_begin_event(struct gen_event *e, const char *name)
{
    buf_init(&e->text, EVENT_MAX);
    if (name) buf_printf(&e->text, "event: %s\n", name);
    buf_puts(&e->text, "data: ");
    jw_init(&e->w, &e->text);
}

void srv_gen_send_text(struct srv_gen *g, struct buf *text, const char *end)
{
    buf_puts(text, end);
    if (text->failed)
        srv_stream_abort(g->req);
    else
        srv_stream_write(g->req, text->data, text->len);
    buf_finish(text);
}

void srv_gen_send_event(struct srv_gen *g, struct gen_event *e)
{
    srv_gen_send_text(g, jw_end(&e->w), "\n\n");
}

void srv_gen_begin_typed_event(struct gen_event *e, const char *type)
{
    srv_gen_begin_event(e, type);
    jw_fields(&e->w, "{ type %s", type);
}

void srv_gen_close_event(struct srv_gen *g, struct gen_event *e)
{
    jw_close(&e->w);
    srv_gen_send_event(g, e);
}

/* ---- usage and progress -------------------------------------------------------------------- */

void srv_gen_write_closing(struct jw *w, const struct gen_totals *t)
{
    if (t->n_closing == 0) return;
    jw_fields(w, "closing_tokens %jd closing_values %jd", t->n_closing, t->n_closing_values);
}

static void write_usage(const struct srv_gen *g, struct jw *w, struct gen_totals t)
{
    jw_fields(w,
              "usage { prompt_tokens %jd completion_tokens %jd total_tokens %jd "
              "prompt_tokens_details { cached_tokens %jd cache_write_tokens %jd }",
              t.n_prompt, t.n_completion, t.n_prompt + t.n_completion, t.n_cached, t.n_written);
    srv_cache_write_report(g, w);
    bool reasons = g->tools.can_reason, predicted = g->n_prediction > 0;
    bool detailed = reasons || predicted || t.n_closing > 0;
    if (detailed) jw_open(w, "completion_tokens_details", '{');
    if (reasons) jw_int(w, "reasoning_tokens", t.n_reasoning);
    if (predicted) jw_int(w, "accepted_prediction_tokens", t.n_accepted);
    if (predicted) jw_int(w, "rejected_prediction_tokens", t.n_rejected);
    srv_gen_write_closing(w, &t);
    if (detailed) jw_close(w);
    jw_close(w);
}

static double ms_between(uint64_t from, uint64_t to)
{
    return from && to > from ? (double)(to - from) / 1000 : 0;
}

void srv_gen_write_timings(const struct srv_gen *g, struct jw *w)
{
    if (!g->params.timings) return;
    struct eng_usage u = srv_gen_usage(&g->prompts[0]);
    struct gen_totals t = srv_gen_totals(g);
    double prompt_ms = ms_between(u.started_us, u.first_token_us);
    double predicted_ms = ms_between(u.first_token_us, u.done_us ? u.done_us : clock_now_us());
    int64_t computed = u.done_us ? u.n_computed_prompt_tokens : t.n_prompt - t.n_cached;
    jw_fields(w, "timings { cache_n %jd", t.n_cached);
    if (u.restore_us > 0) {
        jw_int(w, "cache_disk_n", u.n_disk_tokens);
        jw_number(w, "restore_ms", (double)u.restore_us / 1000);
    }
    jw_fields(w,
              "prompt_n %jd queue_ms %g prompt_ms %g prompt_per_second %g predicted_n %jd "
              "predicted_ms %g predicted_per_second %g draft_n %jd draft_n_accepted %jd }",
              computed, ms_between(u.submitted_us, u.started_us), prompt_ms,
              prompt_ms > 0 ? (double)computed * 1000 / prompt_ms : 0, t.n_completion, predicted_ms,
              predicted_ms > 0 ? (double)t.n_completion * 1000 / predicted_ms : 0, u.n_draft_tokens,
              u.n_accepted_draft_tokens);
}

void srv_gen_write_usage(const struct srv_gen *g, struct jw *w)
{
    write_usage(g, w, srv_gen_totals(g));
    srv_gen_write_timings(g, w);
}

void srv_gen_write_progress(struct jw *w, const struct gen_progress *progress)
{
    jw_fields(w, "prompt_progress { total %jd cache %jd processed %jd time_ms %jd }",
              progress->n_total, progress->n_cached, progress->n_done,
              (int64_t)(progress->us / 1000));
}

/* ---- chunks -------------------------------------------------------------------------------- */

static void open_head(struct srv_gen *g, struct jw *w, const char *object)
{
    jw_fields(w, "{ id %s object %s created %jd model %s system_fingerprint %s", g->id, object,
              g->created, g->model, g->served->fingerprint);
    if (g->params.service_tier && g->format->answer->shows_tier)
        jw_text(w, "service_tier", "default");
    jw_open(w, "choices", '[');
}

void srv_gen_open_answer(struct srv_gen *g, struct jw *w)
{
    open_head(g, w, g->format->answer->object);
}

static void begin_chunk(struct srv_gen *g, struct gen_event *e)
{
    srv_gen_begin_event(e, NULL);
    open_head(g, &e->w, g->format->answer->chunk_object);
}

void srv_gen_begin_chunk(struct srv_gen *g, struct gen_event *e, int choice_index)
{
    begin_chunk(g, e);
    jw_fields(&e->w, "{ index %d", choice_index);
}

void srv_gen_close_chunk(struct srv_gen *g, struct gen_event *e, const struct gen_prompt *p,
                         int64_t n_tokens)
{
    if (g->params.include_usage && g->params.continuous_usage) {
        struct gen_totals t = {.n_prompt = p->n_ids,
                               .n_cached = srv_gen_usage(p).n_cached_tokens,
                               .n_completion = n_tokens};
        for (int k = 0; p->choices && k < g->n_candidates; k++)
            t.n_reasoning += p->choices[k].n_reasoning;
        if (t.n_reasoning > n_tokens) t.n_reasoning = n_tokens;
        write_usage(g, &e->w, t);
    } else if (g->params.include_usage) {
        jw_null(&e->w, "usage");
    }
    if (g->params.timings_per_token && n_tokens > 0) srv_gen_write_timings(g, &e->w);
    srv_gen_close_event(g, e);
}

void srv_gen_end_chunk(struct srv_gen *g, struct gen_event *e, const struct gen_choice *c,
                       int64_t n_tokens)
{
    jw_fields(&e->w, "} }");
    srv_gen_close_chunk(g, e, c->prompt, n_tokens);
}

void srv_gen_progress_chunk(struct srv_gen *g, const struct gen_progress *progress)
{
    struct gen_event e;
    begin_chunk(g, &e);
    jw_close(&e.w);
    if (g->params.include_usage) jw_null(&e.w, "usage");
    srv_gen_write_progress(&e.w, progress);
    srv_gen_close_event(g, &e);
}

static void send_done(struct srv_gen *g)
{
    static const char done[] = "data: [DONE]\n\n";
    srv_stream_write(g->req, done, sizeof(done) - 1);
}

void srv_gen_last_chunk(struct srv_gen *g)
{
    if (g->params.include_usage || g->params.timings) {
        struct gen_event e;
        begin_chunk(g, &e);
        jw_close(&e.w);
        if (g->params.include_usage) write_usage(g, &e.w, srv_gen_totals(g));
        srv_gen_write_timings(g, &e.w);
        srv_gen_close_event(g, &e);
    }
    send_done(g);
}

void srv_gen_error_chunk(struct srv_gen *g, enum srv_error kind, const char *message)
{
    struct gen_event e;
    srv_gen_begin_event(&e, NULL);
    srv_error_write_for(g->req, &e.text, kind, NULL, message, NULL);
    srv_gen_send_event(g, &e);
    send_done(g);
}

/* ---- ids and texts ------------------------------------------------------------------------- */

void srv_gen_write_ids(struct jw *w, const char *name, const struct gen_choice *c, int64_t from,
                       int64_t to)
{
    jw_open(w, name, '[');
    for (int64_t i = from; i < to; i++)
        jw_int(w, NULL, c->log.records[i].id);
    jw_close(w);
}

void srv_gen_write_text(struct jw *w, const char *name, const struct gen_choice *c, size_t from,
                        size_t to)
{
    jw_string(w, name, to > from ? c->text.text.data + from : NULL, to - from);
}

bool srv_gen_is_shown(const struct gen_choice *c, int i)
{
    return c->parts[i].kind == CHOICE_CALL || choice_part_end(c, i) > c->parts[i].from;
}

void srv_gen_write_part(struct jw *w, const char *name, const struct gen_choice *c, int i)
{
    srv_gen_write_text(w, name, c, c->parts[i].from, choice_part_end(c, i));
}

void srv_gen_write_call_id(const struct srv_gen *g, struct jw *w, const char *name,
                           const struct gen_choice *c, const struct choice_part *call,
                           const char *prefix)
{
    char id[SRV_CALL_ID_MAX];
    srv_gen_call_id(g, c, call, prefix, id);
    jw_text(w, name, id);
}

int64_t srv_gen_characters_before(struct gen_choice *c, size_t bytes)
{
    const char *text = c->text.text.data ? c->text.text.data : "";
    if (bytes < c->counted_bytes) c->counted_bytes = 0, c->counted_characters = 0;
    c->counted_characters += (int64_t)utf8_count(text + c->counted_bytes, bytes - c->counted_bytes);
    c->counted_bytes = bytes;
    return c->counted_characters;
}

const char *srv_gen_stop_string(const struct gen_choice *c, size_t *ret_len)
{
    *ret_len = c->stop_string ? c->text.stops->stop[c->text.stop_index].len : 0;
    return c->stop_string;
}

/* Returns true if the client named the id as a stop: the model's own end ids do not count. */
static bool is_clients_stop(const struct srv_gen *g, int32_t id)
{
    for (int i = 0; i < g->params.n_asked_stop_ids; i++)
        if (g->params.stop_ids[i] == id) return true;
    return false;
}

void srv_gen_write_stop_reason(const struct srv_gen *g, struct jw *w, const struct gen_choice *c)
{
    size_t len;
    const char *text = srv_gen_stop_string(c, &len);
    if (g->params.n_stops == 0 && g->params.n_asked_stop_ids == 0) return;
    if (!text && is_clients_stop(g, c->stop_id))
        jw_int(w, "stop_reason", c->stop_id);
    else
        jw_string_or_null(w, "stop_reason", text, len);
}

/* ---- tokens -------------------------------------------------------------------------------- */

static size_t token_bytes(const struct srv_gen *g, int32_t id, char bytes[TOKEN_TEXT_MAX])
{
    size_t len = tok_token_bytes(g->served->tok, id, bytes, TOKEN_TEXT_MAX);
    return len < TOKEN_TEXT_MAX ? len : TOKEN_TEXT_MAX;
}

/* A token as the legacy arrays show it. */
struct token_text {
    char text[4 * TOKEN_TEXT_MAX + 8]; /* \xNN per byte */
    size_t len;
};

static void show_token(const struct srv_gen *g, int32_t id, struct token_text *t)
{
    char bytes[TOKEN_TEXT_MAX];
    if (g->params.tokens_as_ids) {
        t->len = (size_t)snprintf(t->text, sizeof(t->text), "token_id:%d", (int)id);
        return;
    }
    t->len = token_bytes(g, id, t->text);
    if (utf8_valid(t->text, t->len)) return;
    size_t n = t->len;
    memcpy(bytes, t->text, n);
    t->len = (size_t)snprintf(t->text, sizeof(t->text), "bytes:");
    for (size_t i = 0; i < n; i++)
        t->len += (size_t)snprintf(t->text + t->len, 5, "\\x%02x", (unsigned char)bytes[i]);
}

void srv_gen_write_token(const struct srv_gen *g, struct jw *w, const char *name, int32_t id)
{
    struct token_text t;
    show_token(g, id, &t);
    jw_string(w, name, t.text, t.len);
}

void srv_gen_write_token_key(const struct srv_gen *g, struct jw *w, int32_t id)
{
    struct token_text t;
    show_token(g, id, &t);
    jw_key(w, t.text, t.len);
}

/* The members "token" and "bytes" as chat shows them. */
static void write_token_bytes(const struct srv_gen *g, struct jw *w, int32_t id)
{
    char bytes[TOKEN_TEXT_MAX];
    size_t len = token_bytes(g, id, bytes);
    if (g->params.tokens_as_ids)
        srv_gen_write_token(g, w, "token", id);
    else
        jw_string(w, "token", bytes, len);
    jw_open(w, "bytes", '[');
    for (size_t i = 0; i < len; i++)
        jw_int(w, NULL, (unsigned char)bytes[i]);
    jw_close(w);
}

/* The end-of-turn token is not part of the content, so that joined bytes rebuild the text. */
static bool is_end_token(const struct gen_choice *c, int64_t i)
{
    return c->ended && c->stop_id >= 0 && i + 1 == c->n_tokens &&
           c->log.records[i].id == c->stop_id;
}

static void write_logprob(const struct srv_gen *g, struct jw *w, const struct gen_choice *c,
                          int64_t i)
{
    const struct gen_record *r = &c->log.records[i];
    const struct eng_logprob *top = gen_log_top(&c->log, i);
    jw_open(w, NULL, '{');
    write_token_bytes(g, w, r->id);
    jw_number(w, "logprob", r->logprob);
    jw_open(w, "top_logprobs", '[');
    for (int k = 0; k < r->n_top; k++) {
        jw_open(w, NULL, '{');
        write_token_bytes(g, w, top[k].id);
        jw_number(w, "logprob", top[k].logprob);
        jw_close(w);
    }
    jw_close(w);
    jw_close(w);
}

void srv_gen_write_logprobs(const struct srv_gen *g, struct jw *w, const struct gen_choice *c,
                            int part, int64_t from, int64_t to)
{
    for (int64_t i = from; i < to; i++) {
        int own = is_end_token(c, i) ? -1 : choice_token_part(c, i);
        if (own >= 0 && (part < 0 || own == part)) write_logprob(g, w, c, i);
    }
}

static void write_prompt_token(const struct srv_gen *g, struct jw *w, const struct gen_prompt *p,
                               int64_t i)
{
    const struct gen_record *r = &p->log.records[i];
    const struct eng_logprob *top = gen_log_top(&p->log, i);
    int n_top = r->n_top < g->params.prompt_tops ? r->n_top : (int)g->params.prompt_tops;
    bool has_own = false;
    jw_open(w, NULL, '{');
    for (int k = 0; k <= n_top; k++) {
        char name[16];
        bool own = k == n_top;
        if (own && has_own) break;
        int32_t id = own ? r->id : top[k].id;
        has_own |= id == r->id;
        snprintf(name, sizeof(name), "%d", (int)id);
        jw_open(w, name, '{');
        jw_number(w, "logprob", own ? r->logprob : top[k].logprob);
        if (!own) jw_int(w, "rank", k + 1);
        srv_gen_write_token(g, w, "decoded_token", id);
        jw_close(w);
    }
    jw_close(w);
}

bool srv_gen_next_tokens(int64_t n, int64_t *at, int64_t *ret_to)
{
    bool last = n - *at <= PART_TOKENS;
    *ret_to = last ? n : *at + PART_TOKENS;
    *at = last ? 0 : *ret_to;
    return last;
}

/* ---- whole answers, in parts --------------------------------------------------------------- */

bool srv_gen_write_kind_part(struct jw *w, const struct gen_choice *c, enum choice_kind kind,
                             int64_t *at)
{
    int i = choice_next_part(c, kind, 0);
    while (i >= 0 && choice_part_end(c, i) <= (size_t)*at)
        i = choice_next_part(c, kind, i + 1);
    if (i < 0) {
        *at = 0;
        return true;
    }
    size_t from = c->parts[i].from, end = choice_part_end(c, i);
    int64_t inside = (size_t)*at > from ? *at - (int64_t)from : 0;
    bool last = jw_string_next(w, c->text.text.data + from, end - from, GEN_PART_BYTES, &inside);
    *at = last ? (int64_t)end : (int64_t)from + inside;
    return false;
}

bool srv_gen_write_prompt_logprobs_part(const struct srv_gen *g, struct jw *w,
                                        const struct gen_prompt *p, int64_t *at)
{
    int64_t n = p->n_ids - 1;
    int64_t i = *at, to;
    bool last = srv_gen_next_tokens(n, at, &to);
    if (i == 0) {
        jw_open(w, "prompt_logprobs", '[');
        jw_null(w, NULL);
    }
    for (; i < to; i++)
        write_prompt_token(g, w, p, i);
    if (last) jw_close(w);
    return last;
}
