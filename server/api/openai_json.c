/* SPDX-License-Identifier: MIT */
/*
 * What the dialects share in writing: events, usage, timings, which candidates are shown, and token
 * texts for log-probabilities. Called on text workers.
 */
#include "server/api/openai_json.h"

#include <string.h>

#include "server/api/generation.h"
#include "tokenizer/tokenizer.h"

enum {
    EVENT_MAX = 32 << 20,
    TOKEN_TEXT_MAX = 4096,
    PIECE_BYTES = 32 << 10, /* of a whole answer, beyond which a piece ends */
    PART_BYTES = 16 << 10,  /* of a text */
    PART_TOKENS = 16,       /* with their log-probabilities */
};

void srv_gen_event(struct srv_gen *g, const char *name, struct buf *json)
{
    struct buf event;
    buf_init(&event, EVENT_MAX);
    if (name) buf_printf(&event, "event: %s\n", name);
    buf_puts(&event, "data: ");
    buf_add(&event, json->data ? json->data : "", json->len);
    buf_puts(&event, "\n\n");
    if (!event.failed && !json->failed) srv_stream_write(g->req, event.data, event.len);
    buf_finish(&event);
    buf_clear(json);
}

void srv_gen_done_event(struct srv_gen *g)
{
    static const char done[] = "data: [DONE]\n\n";
    srv_stream_write(g->req, done, sizeof(done) - 1);
}

void srv_gen_error_event(struct srv_gen *g, enum srv_error kind, const char *message)
{
    struct buf b;
    buf_init(&b, 8192);
    srv_error_write(&b, kind, NULL, message, NULL);
    srv_gen_event(g, NULL, &b);
    buf_finish(&b);
    srv_gen_done_event(g);
}

static void write_usage(struct buf *b, struct gen_totals t)
{
    buf_printf(b,
               "{\"prompt_tokens\":%lld,\"completion_tokens\":%lld,\"total_tokens\":%lld,"
               "\"prompt_tokens_details\":{\"cached_tokens\":%lld}}",
               (long long)t.n_prompt, (long long)t.n_completion,
               (long long)(t.n_prompt + t.n_completion), (long long)t.n_cached);
}

void srv_gen_write_usage(const struct srv_gen *g, struct buf *b)
{
    write_usage(b, srv_gen_totals(g));
}

static double ms_between(uint64_t from, uint64_t to)
{
    return from && to > from ? (double)(to - from) / 1000 : 0;
}

void srv_gen_add_timings(const struct srv_gen *g, struct buf *b)
{
    if (!g->params.timings) return;
    struct eng_usage u = srv_gen_usage(&g->prompts[0]);
    struct gen_totals t = srv_gen_totals(g);
    double prompt_ms = ms_between(u.started_us, u.first_token_us);
    double predicted_ms = ms_between(u.first_token_us, u.done_us);
    long long computed = (long long)u.n_computed_prompt_tokens;
    buf_printf(b, ",\"timings\":{\"cache_n\":%lld,\"prompt_n\":%lld,\"queue_ms\":",
               (long long)t.n_cached, computed);
    buf_json_number(b, ms_between(u.submitted_us, u.started_us));
    buf_puts(b, ",\"prompt_ms\":");
    buf_json_number(b, prompt_ms);
    buf_puts(b, ",\"prompt_per_second\":");
    buf_json_number(b, prompt_ms > 0 ? (double)computed * 1000 / prompt_ms : 0);
    buf_printf(b, ",\"predicted_n\":%lld,\"predicted_ms\":", (long long)t.n_completion);
    buf_json_number(b, predicted_ms);
    buf_puts(b, ",\"predicted_per_second\":");
    buf_json_number(b, predicted_ms > 0 ? (double)t.n_completion * 1000 / predicted_ms : 0);
    buf_puts(b, "}");
}

void srv_gen_add_progress(struct buf *b, const struct gen_progress *progress)
{
    buf_printf(b,
               ",\"prompt_progress\":{\"total\":%lld,\"cache\":%lld,\"processed\":%lld,"
               "\"time_ms\":%llu}",
               (long long)progress->n_total, (long long)progress->n_cached,
               (long long)progress->n_done, (unsigned long long)progress->us / 1000);
}

static void send_chunk(struct srv_gen *g, struct buf *b)
{
    buf_puts(b, "}");
    srv_gen_event(g, NULL, b);
    buf_finish(b);
}

void srv_gen_end_chunk(struct srv_gen *g, struct buf *b, const struct gen_prompt *p,
                       int64_t n_tokens)
{
    bool has_usage = g->params.include_usage && g->params.continuous_usage;
    buf_puts(b, "]");
    if (has_usage) {
        buf_puts(b, ",\"usage\":");
        write_usage(b, (struct gen_totals){p->n_ids, srv_gen_usage(p).n_cached_tokens, n_tokens});
    } else if (g->params.include_usage) {
        buf_puts(b, ",\"usage\":null");
    }
    send_chunk(g, b);
}

void srv_gen_end_progress_chunk(struct srv_gen *g, struct buf *b,
                                const struct gen_progress *progress)
{
    buf_puts(b, "]");
    if (g->params.include_usage) buf_puts(b, ",\"usage\":null");
    srv_gen_add_progress(b, progress);
    send_chunk(g, b);
}

void srv_gen_end_last_chunk(struct srv_gen *g, struct buf *b)
{
    buf_puts(b, "]");
    if (g->params.include_usage) {
        buf_puts(b, ",\"usage\":");
        srv_gen_write_usage(g, b);
    }
    srv_gen_add_timings(g, b);
    send_chunk(g, b);
}

void srv_gen_pick(const struct srv_gen *g, const struct gen_prompt *p, int *ret_candidates)
{
    bool taken[GEN_MAX_CHOICES] = {false};
    for (int shown = 0; shown < g->n_choices; shown++) {
        int best = -1;
        for (int k = 0; k < g->n_candidates; k++) {
            if (taken[k]) continue;
            bool better = best < 0 || (g->n_candidates > g->n_choices &&
                                       p->choices[k].sum_logprob > p->choices[best].sum_logprob);
            if (better) best = k;
        }
        taken[best] = true;
        ret_candidates[shown] = best;
    }
}

void srv_gen_reply_count(struct srv_gen *g, const char *members)
{
    struct buf b;
    buf_init(&b, 256);
    buf_printf(&b, "{%s\"input_tokens\":%lld}", members, (long long)g->prompts[0].n_ids);
    json_decref(g->body);
    g->body = NULL;
    srv_request_account(g->req)->endpoint = "count_tokens";
    srv_reply(g->req, 200, NULL, &b);
}

/* ---- ids ----------------------------------------------------------------------------------- */

void srv_gen_write_ids(struct buf *b, const struct gen_choice *c, int64_t from, int64_t to)
{
    buf_puts(b, "[");
    for (int64_t i = from; i < to; i++)
        buf_printf(b, "%s%d", i > from ? "," : "", (int)c->log.records[i].id);
    buf_puts(b, "]");
}

void srv_gen_write_prompt_ids(struct buf *b, const struct gen_prompt *p)
{
    buf_puts(b, "[");
    for (int64_t i = 0; i < p->n_ids; i++)
        buf_printf(b, "%s%d", i ? "," : "", (int)p->ids[i]);
    buf_puts(b, "]");
}

/* ---- token texts --------------------------------------------------------------------------- */

/* Length of the valid UTF-8 character at p, or 0. Overlong forms and surrogates are invalid. */
static size_t character_length(const unsigned char *p, size_t len)
{
    if (p[0] < 0x80) return 1;
    size_t n = p[0] >= 0xF0 && p[0] <= 0xF4  ? 4
               : p[0] >= 0xE0 && p[0] < 0xF0 ? 3
               : p[0] >= 0xC2 && p[0] < 0xE0 ? 2
                                             : 0;
    if (n == 0 || n > len) return 0;
    for (size_t i = 1; i < n; i++)
        if ((p[i] & 0xC0) != 0x80) return 0;
    if (n == 3 && ((p[0] == 0xE0 && p[1] < 0xA0) || (p[0] == 0xED && p[1] > 0x9F))) return 0;
    if (n == 4 && ((p[0] == 0xF0 && p[1] < 0x90) || (p[0] == 0xF4 && p[1] > 0x8F))) return 0;
    return n;
}

static bool is_utf8(const char *text, size_t len)
{
    const unsigned char *p = (const unsigned char *)text;
    for (size_t i = 0; i < len;) {
        size_t n = character_length(p + i, len - i);
        if (n == 0) return false;
        i += n;
    }
    return true;
}

size_t srv_gen_characters(const char *text, size_t len)
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++)
        n += ((unsigned char)text[i] & 0xC0) != 0x80;
    return n;
}

int64_t srv_gen_characters_before(struct gen_choice *c, size_t bytes)
{
    const char *text = c->text.text.data ? c->text.text.data : "";
    if (bytes < c->counted_bytes) c->counted_bytes = 0, c->counted_characters = 0;
    c->counted_characters +=
        (int64_t)srv_gen_characters(text + c->counted_bytes, bytes - c->counted_bytes);
    c->counted_bytes = bytes;
    return c->counted_characters;
}

static size_t token_bytes(const struct srv_gen *g, int32_t id, char *buf, size_t size)
{
    size_t len = tok_token_bytes(g->app->tok, id, buf, size);
    return len < size ? len : size;
}

void srv_gen_write_token(const struct srv_gen *g, struct buf *b, int32_t id)
{
    char bytes[TOKEN_TEXT_MAX];
    if (g->params.tokens_as_ids) {
        buf_printf(b, "\"token_id:%d\"", (int)id);
        return;
    }
    size_t len = token_bytes(g, id, bytes, sizeof(bytes));
    if (is_utf8(bytes, len)) {
        buf_json_string(b, bytes, len);
        return;
    }
    buf_puts(b, "\"bytes:");
    for (size_t i = 0; i < len; i++)
        buf_printf(b, "\\\\x%02x", (unsigned char)bytes[i]);
    buf_puts(b, "\"");
}

void srv_gen_write_token_bytes(const struct srv_gen *g, struct buf *b, int32_t id)
{
    char bytes[TOKEN_TEXT_MAX];
    size_t len = token_bytes(g, id, bytes, sizeof(bytes));
    if (g->params.tokens_as_ids)
        buf_printf(b, "\"token\":\"token_id:%d\",\"bytes\":[", (int)id);
    else {
        buf_puts(b, "\"token\":");
        buf_json_string(b, bytes, len);
        buf_puts(b, ",\"bytes\":[");
    }
    for (size_t i = 0; i < len; i++)
        buf_printf(b, "%s%d", i ? "," : "", (int)(unsigned char)bytes[i]);
    buf_puts(b, "]");
}

static void write_prompt_token(const struct srv_gen *g, struct buf *b, const struct gen_prompt *p,
                               int64_t i)
{
    const struct gen_record *r = &p->log.records[i];
    const struct eng_logprob *top = gen_log_top(&p->log, i);
    bool has_own = false;
    buf_puts(b, "{");
    for (int k = 0; k <= r->n_top; k++) {
        bool own = k == r->n_top;
        if (own && has_own) break;
        int32_t id = own ? r->id : top[k].id;
        has_own |= id == r->id;
        buf_printf(b, "%s\"%d\":{\"logprob\":", k ? "," : "", (int)id);
        buf_json_number(b, own ? r->logprob : top[k].logprob);
        if (!own) buf_printf(b, ",\"rank\":%d", k + 1);
        buf_puts(b, ",\"decoded_token\":");
        srv_gen_write_token(g, b, id);
        buf_puts(b, "}");
    }
    buf_puts(b, "}");
}

/* ---- whole answers, in pieces -------------------------------------------------------------- */

bool srv_gen_write_piece(struct srv_gen *g, const struct gen_writer *w, struct gen_cursor *at,
                         struct buf *b)
{
    size_t end = b->len + PIECE_BYTES;
    if (!at->begun) w->head(g, b);
    at->begun = true;
    while (b->len < end && !b->failed) {
        if (at->prompt == g->n_prompts) {
            if (w->tail(g, b, at)) return true;
            continue;
        }
        struct gen_prompt *p = &g->prompts[at->prompt];
        bool begins = at->part == 0 && at->at == 0;
        if (begins && at->choice == 0) srv_gen_pick(g, p, at->picked);
        if (begins && (at->prompt || at->choice)) buf_puts(b, ",");
        if (!w->choice(g, b, p, &p->choices[at->picked[at->choice]], at)) continue;
        at->part = 0;
        at->at = 0;
        if (++at->choice < g->n_choices) continue;
        at->choice = 0;
        at->prompt++;
    }
    return false;
}

bool srv_gen_write_text_part(struct buf *b, const char *text, size_t len, int64_t *at)
{
    size_t from = (size_t)*at;
    size_t to = len - from > PART_BYTES ? from + PART_BYTES : len;
    while (to < len && to > from && ((unsigned char)text[to] & 0xC0) == 0x80)
        to--;
    buf_json_text(b, text + from, to - from);
    *at = to == len ? 0 : (int64_t)to;
    return to == len;
}

bool srv_gen_write_prompt_logprobs_part(const struct srv_gen *g, struct buf *b,
                                        const struct gen_prompt *p, int64_t *at)
{
    int64_t n = p->n_ids - 1;
    int64_t to = n - *at > PART_TOKENS ? *at + PART_TOKENS : n;
    if (*at == 0) buf_puts(b, "[null");
    for (int64_t i = *at; i < to; i++) {
        buf_puts(b, ",");
        write_prompt_token(g, b, p, i);
    }
    if (to == n) buf_puts(b, "]");
    *at = to == n ? 0 : to;
    return to == n;
}

int64_t srv_gen_shown_tokens(const struct gen_choice *c)
{
    int64_t n = c->n_tokens;
    while (c->stop_string && n > 0 && c->offsets[n - 1] >= c->text.text.len)
        n--;
    return n;
}
