/* SPDX-License-Identifier: MIT */
/*
 * Text of a generation to the events or the answer of its format; see dialects.h. Called
 * on text workers, never twice at once for a request.
 *
 * A client that is behind holds nothing up but its own answer: text gathers, and goes out in larger
 * events later.
 */
#include "server/api/write/dialects.h"

#include <assert.h>

enum {
    WHOLE_BYTES = 1 << 20,      /* answers up to about this size are written at once */
    PIECE_BYTES = 32 << 10,     /* beyond which a piece ends */
    PIECE_BYTES_MAX = 32 << 20, /* a whole Responses answer is one piece */
};

/* ---- streams ------------------------------------------------------------------------------- */

/* The first token from `from` on that begins at or behind a place in the text. */
static int64_t token_at(const struct gen_choice *c, int64_t from, int64_t end, size_t place)
{
    while (from < end && from < c->n_placed && c->offsets[from] < place)
        from++;
    return from;
}

/* One round of events sends the text up to `to` and the tokens up to token_to. */
struct sending {
    struct gen_choice *choice;
    size_t to;
    int64_t token_to;
    bool is_last; /* nothing follows it */
};

/* Sends the text up to `to`. Tokens without text of their own have events if they are asked for or
 * counted. */
static void send(struct srv_gen *g, const struct sending *s, const struct choice_part *part,
                 size_t to, int64_t token_to)
{
    const struct srv_gen_params *p = &g->params;
    struct gen_choice *c = s->choice;
    bool logged = p->want_logprobs && c->n_shown < c->n_showable;
    bool wanted = logged || p->return_token_ids || p->chunk_tokens > 0;
    if (to > c->n_sent || (token_to > c->n_shown && wanted))
        g->format->answer->stream_delta(g, c, part, to, token_to);
    c->n_sent = to;
    c->n_shown = token_to;
}

/* Returns true if a part that ends there may be closed: no token that begins in it is still to be
 * shown with its log-probabilities. */
static bool tokens_are_out(const struct srv_gen *g, const struct gen_choice *c, size_t part_end)
{
    return !g->params.want_logprobs || token_at(c, c->n_shown, c->n_placed, part_end) == c->n_shown;
}

/* Sends what is new of part i; returns true if it is closed. */
static bool send_part(struct srv_gen *g, const struct sending *s, int i)
{
    const struct srv_gen_dialect *d = g->format->answer;
    struct gen_choice *c = s->choice;
    const struct choice_part *part = &c->parts[i];
    size_t part_end = choice_part_end(c, i), end = part_end < s->to ? part_end : s->to;
    bool is_call = part->kind == CHOICE_CALL, begun = c->n_parts_begun > i;
    bool is_last = i + 1 == c->n_parts || c->parts[i + 1].from > s->to;
    if (!begun && !is_call && end <= part->from) return false;
    if (!begun && d->stream_part) d->stream_part(g, c, part, false);
    if (!begun && d->stream_call && is_call) d->stream_call(g, c, part);
    c->n_parts_begun = i + 1;
    int64_t token_to = is_last ? s->token_to : token_at(c, c->n_shown, s->token_to, end);
    if (end > c->n_sent || is_last || g->params.want_logprobs)
        send(g, s, part, end > c->n_sent ? end : c->n_sent, token_to);
    bool complete = i + 1 < c->n_parts || part->ended;
    bool ended = end == part_end && (s->is_last || (complete && tokens_are_out(g, c, part_end)));
    if (ended && d->stream_part) d->stream_part(g, c, part, true);
    if (ended) c->n_parts_ended = i + 1;
    return ended;
}

/* Each part has events of its own; tokens go with the text that they begin in. */
static void stream_text(struct srv_gen *g, const struct sending *s)
{
    struct gen_choice *c = s->choice;
    int i = c->n_parts_ended;
    while (i < c->n_parts && c->parts[i].from <= s->to && send_part(g, s, i))
        i++;
    send(g, s, NULL, c->n_sent, s->token_to);
}

/* Everything new in events of at most chunk_tokens tokens, each with the text of its tokens. Tokens
 * that a stop string has swallowed have events without text. Returns false if the client lags. */
static bool stream_by_tokens(struct srv_gen *g, struct gen_choice *c)
{
    int64_t end = c->n_eventable;
    while (c->n_shown < end) {
        if (!srv_stream_has_room(g->req)) return false;
        int64_t from = c->n_shown;
        int64_t next = end - from > g->params.chunk_tokens ? from + g->params.chunk_tokens : end;
        size_t to = c->text.n_released;
        if (next < c->n_placed && c->offsets[next] < to) to = c->offsets[next];
        stream_text(g, &(struct sending){c, to, next, false});
        assert(next > from && to <= c->text.text.len);
    }
    if (c->ended) stream_text(g, &(struct sending){c, c->text.n_released, c->n_shown, true});
    return true;
}

/* Everything new; at the end also the tokens that a stop string has swallowed. */
static void stream_choice(struct srv_gen *g, struct gen_choice *c)
{
    const struct sending all = {c, c->text.n_released, c->ended ? c->n_tokens : c->n_showable,
                                c->ended};
    assert(c->n_sent <= c->text.n_released && c->text.n_released <= c->text.text.len);
    if (g->params.chunk_tokens <= 0)
        stream_text(g, &all);
    else if (!stream_by_tokens(g, c))
        return;
    if (!c->ended || c->closed) return;
    g->format->answer->stream_finish(g, c);
    c->closed = true;
}

static void send_progress(struct srv_gen *g, struct gen_prompt *p, struct gen_step step)
{
    struct gen_progress t = {.us = step.us};
    p->reported = step;
    for (int i = 0; i < g->n_prompts; i++) {
        t.n_total += g->prompts[i].n_ids;
        t.n_done += g->prompts[i].reported.n_done;
        t.n_cached += g->prompts[i].reported.n_cached;
    }
    if (t.n_done <= g->n_progress_sent) return; /* a later prompt's start, nothing of it cached */
    g->n_progress_sent = t.n_done;
    g->format->answer->stream_progress(g, &t);
}

/* Reports the cached tokens, then every step of the prefill. Returns false if the client is
 * behind. */
static bool stream_progress(struct srv_gen *g, struct gen_prompt *p)
{
    if (atomic_load(&p->stage) == GEN_WAITING || !p->first_usage.started_us) return true;
    int64_t n = atomic_load_explicit(&p->n_steps, memory_order_acquire);
    if (!p->start_reported) {
        if (!srv_stream_has_room(g->req)) return false;
        int32_t n_cached = (int32_t)p->first_usage.n_cached_tokens;
        p->start_reported = true;
        send_progress(g, p, (struct gen_step){n_cached, n_cached, 0});
    }
    assert(p->n_steps_reported <= n && n <= p->n_ids);
    for (; p->n_steps_reported < n; p->n_steps_reported++) {
        if (!srv_stream_has_room(g->req)) return false;
        send_progress(g, p, p->steps[p->n_steps_reported]);
    }
    return true;
}

/* ---- whole answers ------------------------------------------------------------------------- */

/* About how long the answer will be: log-probabilities are by far the largest part. */
static int64_t estimate_answer(const struct srv_gen *g)
{
    enum { ENTRY_BYTES = 64 };
    int64_t bytes = 0;
    for (int i = 0; i < g->n_prompts; i++) {
        const struct gen_prompt *p = &g->prompts[i];
        int64_t n_shown = g->params.echo ? g->n_candidates : 1;
        bytes += p->log.capacity * (1 + p->log.top_width) * ENTRY_BYTES * n_shown;
        for (int k = 0; k < g->n_candidates; k++) {
            const struct gen_choice *c = &p->choices[k];
            bytes += (int64_t)c->text.text.len + c->n_tokens * (1 + c->log.top_width) * ENTRY_BYTES;
        }
    }
    return bytes;
}

/* Shown choices of a prompt in order of rank: candidate numbers (best_of picks the likeliest). */
static void pick(const struct srv_gen *g, const struct gen_prompt *p, int *ret_candidates)
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

static void begin_answer(struct srv_gen *g, struct buf *b)
{
    struct gen_cursor *at = &g->cursor;
    at->begun = true;
    jw_init(&at->w, b);
    pick(g, &g->prompts[0], at->picked);
    if (g->format->answer->head) g->format->answer->head(g, &at->w);
}

/* Appends the next piece of the answer; returns true if that was the last. */
static bool write_piece(void *ctx, struct buf *b)
{
    struct srv_gen *g = ctx;
    const struct srv_gen_dialect *f = g->format->answer;
    struct gen_cursor *at = &g->cursor;
    struct jw *w = &at->w;
    size_t end = b->len + PIECE_BYTES;
    if (!at->begun) begin_answer(g, b);
    w->out = b;
    while (b->len < end && !b->failed) {
        if (!f->choice || at->prompt == g->n_prompts) {
            if (!f->tail(g, w, at)) continue;
            jw_end(w);
            return true;
        }
        const struct gen_prompt *p = &g->prompts[at->prompt];
        if (!f->choice(g, w, &p->choices[at->picked[at->choice]], at)) continue;
        at->part = 0;
        at->at = 0;
        if (++at->choice < g->n_choices) continue;
        at->choice = 0;
        if (++at->prompt < g->n_prompts) pick(g, p + 1, at->picked);
    }
    return false;
}

/* ---- the end ------------------------------------------------------------------------------- */

/* Returns true if every choice has been streamed to its end. */
static bool all_sent(const struct srv_gen *g)
{
    for (int i = 0; i < g->n_prompts; i++) {
        const struct gen_choice *choices = g->prompts[i].choices;
        for (int k = 0; k < g->n_candidates; k++)
            if (!choices || !choices[k].closed) return false;
    }
    return true;
}

/* All jobs have ended: writes the rest. Returns false while the client is behind. */
static bool end_answer(struct srv_gen *g)
{
    struct srv_pieces whole = {write_piece, g, 256u << 20, false};
    if (g->streaming && !all_sent(g)) return false;
    g->pieces.write = write_piece;
    g->pieces.ctx = g;
    g->pieces.max_bytes = PIECE_BYTES_MAX;
    if (g->streaming) { /* srv_request_done closes the stream */
        if (g->format->answer->stream_end) g->format->answer->stream_end(g);
    } else if (!g->pieces.begun && estimate_answer(g) <= WHOLE_BYTES) {
        srv_pieces_reply_whole(g->req, &whole);
    } else {
        return srv_pieces_reply(g->req, &g->pieces);
    }
    return true;
}

/* ---- the generation's writer --------------------------------------------------------------- */

static void fail(void *ctx, enum srv_error kind, const char *message)
{
    struct srv_gen *g = ctx;
    if (g->answered) return;
    g->answered = true;
    if (g->jobs.n_submitted) srv_facts(g->req)->account.finish_reason = "error";
    if (g->streaming) {
        g->format->answer->stream_error(g, kind, message);
        srv_stream_close(g->req);
    } else {
        srv_reply_error(g->req, kind, NULL, "%s", message);
    }
}

static void open_stream(struct srv_gen *g)
{
    assert(!g->streaming && !g->pieces.begun);
    g->streaming = true;
    srv_stream_open(g->req);
    if (g->format->answer->stream_begin) g->format->answer->stream_begin(g);
}

static bool write_new(struct srv_gen *g, bool opens, int n_prompts, bool finished)
{
    if (opens) open_stream(g);
    for (int i = 0; g->streaming && i < n_prompts; i++) {
        struct gen_prompt *p = &g->prompts[i];
        /* The prefill is reported before the text that follows from it: its steps are there. */
        if (g->reports_progress && !stream_progress(g, p)) continue;
        for (int k = 0; k < g->n_candidates; k++)
            if (srv_stream_has_room(g->req)) stream_choice(g, &p->choices[k]);
    }
    return finished && end_answer(g);
}

const struct srv_gen_writer srv_gen_output = {write_new, fail};
