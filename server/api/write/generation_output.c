/* SPDX-License-Identifier: MIT */
/*
 * The wake loop of a generation: new records to text, text to the events or the answer of its
 * format; see generation_output.h. Called on text workers, never twice at once for a request.
 *
 * A client that is behind holds nothing up but its own answer: text gathers, and goes out in larger
 * events later.
 */
#include "server/api/write/generation_output.h"

#include <assert.h>

#include "base/clock.h"

enum {
    WHOLE_BYTES = 1 << 20,      /* answers up to about this size are written at once */
    PIECE_BYTES = 32 << 10,     /* beyond which a piece ends */
    PIECE_BYTES_MAX = 32 << 20, /* a whole Responses answer is one piece */
};

static void account(struct srv_gen *g)
{
    struct srv_account *a = &srv_facts(g->req)->account;
    struct gen_totals t = srv_gen_totals(g);
    struct eng_usage u = srv_gen_usage(&g->prompts[0]);
    a->model = g->model;
    a->n_prompt_tokens = t.n_prompt;
    a->n_cached_tokens = t.n_cached;
    a->n_generated_tokens = t.n_completion;
    a->n_choices = g->n_choices;
    a->max_tokens = srv_gen_token_capacity(g, &g->prompts[0]);
    a->queue_us = u.started_us ? (int64_t)(u.started_us - u.submitted_us) : -1;
    uint64_t start = srv_facts(g->req)->start_us;
    a->ttft_us = u.first_token_us > start ? (int64_t)(u.first_token_us - start) : -1;
    const struct gen_choice *c = g->prompts[0].choices;
    if (c && c->finish_reason) a->finish_reason = c->finish_reason;
}

/* ---- streams ------------------------------------------------------------------------------- */

static void announce_part(struct srv_gen *g, struct gen_choice *c, int i, bool ended)
{
    if (g->format->answer->stream_part) g->format->answer->stream_part(g, c, &c->parts[i], ended);
    *(ended ? &c->n_parts_ended : &c->n_parts_begun) = i + 1;
}

/* The first token from `from` on that begins at or behind a place in the text. */
static int64_t token_at(const struct gen_choice *c, int64_t from, int64_t end, size_t place)
{
    while (from < end && from < c->n_placed && c->offsets[from] < place)
        from++;
    return from;
}

/* One round of events sends the text up to `to` and the tokens up to token_to. */
struct sending {
    struct gen_prompt *prompt;
    struct gen_choice *choice;
    size_t to;
    int64_t token_to;
    bool is_last; /* nothing follows it */
};

static void send_delta(struct srv_gen *g, const struct sending *s, const struct choice_part *part,
                       size_t to, int64_t token_to)
{
    struct gen_choice *c = s->choice;
    g->format->answer->stream_delta(g, s->prompt, c, part, c->n_sent, to, c->n_shown, token_to);
    c->n_sent = to;
    c->n_shown = token_to;
}

/* Tokens without text of their own have events if they are asked for or counted. */
static void send_tokens(struct srv_gen *g, const struct sending *s, const struct choice_part *part,
                        int64_t token_to)
{
    const struct srv_gen_params *p = &g->params;
    struct gen_choice *c = s->choice;
    bool logged = p->want_logprobs && c->n_shown < c->n_showable;
    bool wanted = logged || p->return_token_ids || p->chunk_tokens > 0;
    if (token_to > c->n_shown && wanted) send_delta(g, s, part, c->n_sent, token_to);
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
    struct gen_choice *c = s->choice;
    const struct choice_part *part = &c->parts[i];
    size_t part_end = choice_part_end(c, i), end = part_end < s->to ? part_end : s->to;
    bool begins = part->kind == CHOICE_CALL || end > part->from;
    bool is_last = i + 1 == c->n_parts || c->parts[i + 1].from > s->to;
    if (c->n_parts_begun <= i && !begins) return false;
    if (c->n_parts_begun <= i) announce_part(g, c, i, false);
    int64_t token_to = is_last ? s->token_to : token_at(c, c->n_shown, s->token_to, end);
    if (end > c->n_sent) send_delta(g, s, part, end, token_to);
    if (is_last || g->params.want_logprobs) send_tokens(g, s, part, token_to);
    bool complete = i + 1 < c->n_parts || part->ended;
    bool ended = end == part_end && (s->is_last || (complete && tokens_are_out(g, c, part_end)));
    if (ended) announce_part(g, c, i, true);
    return ended;
}

/* Each part has events of its own; tokens go with the text that they begin in. */
static void stream_text(struct srv_gen *g, const struct sending *s)
{
    struct gen_choice *c = s->choice;
    int i = c->n_parts_ended;
    while (i < c->n_parts && c->parts[i].from <= s->to && send_part(g, s, i))
        i++;
    send_tokens(g, s, NULL, s->token_to);
}

/* Everything new; at the end also the tokens that a stop string has swallowed. */
static void stream_new(struct srv_gen *g, struct gen_prompt *p, struct gen_choice *c)
{
    int64_t token_to = c->ended ? c->n_tokens : c->n_showable;
    assert(c->n_sent <= c->text.n_released && c->text.n_released <= c->text.text.len);
    stream_text(g, &(struct sending){p, c, c->text.n_released, token_to, c->ended});
}

/*
 * Everything new in events of at most chunk_tokens tokens, each with the text of its tokens. Tokens
 * that a stop string has swallowed have events without text. Returns false if the client lags.
 */
static bool stream_by_tokens(struct srv_gen *g, struct gen_prompt *p, struct gen_choice *c)
{
    int64_t end = c->n_eventable;
    while (c->n_shown < end) {
        if (!srv_stream_has_room(g->req)) return false;
        int64_t from = c->n_shown;
        int64_t next = end - from > g->params.chunk_tokens ? from + g->params.chunk_tokens : end;
        size_t to = c->text.n_released;
        if (next < c->n_placed && c->offsets[next] < to) to = c->offsets[next];
        stream_text(g, &(struct sending){p, c, to, next, false});
        assert(next > from && to <= c->text.text.len);
    }
    if (c->ended) stream_text(g, &(struct sending){p, c, c->text.n_released, c->n_shown, true});
    return true;
}

static void stream_choice(struct srv_gen *g, struct gen_prompt *p, struct gen_choice *c)
{
    if (g->params.chunk_tokens > 0) {
        if (!stream_by_tokens(g, p, c)) return;
    } else {
        stream_new(g, p, c);
    }
    if (c->ended && !c->closed) {
        g->format->answer->stream_finish(g, p, c);
        c->closed = true;
    }
}

static void open_stream(struct srv_gen *g)
{
    bool ready = false;
    for (int i = 0; i < g->jobs.n_submitted && !ready; i++) {
        struct gen_prompt *p = &g->prompts[i];
        bool has_token = false;
        for (int k = 0; k < g->n_candidates; k++)
            has_token |= atomic_load(&p->choices[k].log.n_written) > 0;
        /* With a deadline of its own the status must stay open until the first token. */
        int stage = atomic_load(&p->stage);
        ready =
            stage == GEN_DONE || has_token || (g->params.deadline_ms <= 0 && stage == GEN_STARTED);
    }
    if (!ready) return;
    assert(!g->streaming && !g->pieces.begun);
    g->streaming = true;
    srv_stream_open(g->req);
    if (g->format->answer->stream_begin) g->format->answer->stream_begin(g);
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

/*
 * Reports the cached tokens, then every step of the prefill. Returns false if the client is behind.
 */
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
        struct gen_prompt *p = &g->prompts[at->prompt];
        if (!f->choice(g, w, p, &p->choices[at->picked[at->choice]], at)) continue;
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
    if (!g->pieces.begun) account(g);
    g->pieces.write = write_piece;
    g->pieces.ctx = g;
    g->pieces.max_bytes = PIECE_BYTES_MAX;
    if (g->streaming)
        g->format->answer->stream_end(g); /* srv_request_done closes the stream */
    else if (!g->pieces.begun && estimate_answer(g) <= WHOLE_BYTES)
        srv_pieces_reply_whole(g->req, &whole);
    else
        return srv_pieces_reply(g->req, &g->pieces);
    return true;
}

/* ---- the wake loop: srv_jobs_ops ----------------------------------------------------------- */

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

/* The text grows with what is generated, so it is charged as it does. */
static void charge_text(struct srv_gen *g, struct gen_choice *c)
{
    int64_t grown = (int64_t)c->text.text.cap - c->text_charged, used = 0;
    if (c->text.text.failed)
        fail(g, SRV_ERR_OVERLOADED, "The server is out of memory for this answer.");
    else if (grown > 0 && !srv_request_charge(g->req, grown, &used))
        fail(g, SRV_ERR_OVERLOADED, "The memory budget of all answers is used up.");
    else
        c->text_charged += grown;
}

/* Fails the request if the engine ended the choice without an answer. */
static void check_failure(struct srv_gen *g, const struct gen_choice *c)
{
    int finish = atomic_load_explicit(&c->finish, memory_order_acquire);
    if (finish <= ENG_FINISH_LENGTH) return;
    if (finish == ENG_FINISH_CANCELLED && c->ended) return; /* by its stop string */
    const struct srv_job_failure *failure = srv_jobs_failure(&g->jobs, finish, c->log.n_written);
    if (failure) fail(g, failure->kind, failure->message);
}

/* The time for an answer ends it once it has a line of its own, as in llama-server. */
static bool is_late(const struct srv_gen *g, const struct gen_prompt *p, const struct gen_choice *c)
{
    uint64_t first = atomic_load_explicit(&p->first_token_us, memory_order_relaxed);
    int64_t most = g->params.t_max_predict_ms;
    return most > 0 && first && c->text.has_lines && !c->ended &&
           clock_now_us() - first > (uint64_t)most * 1000;
}

static void advance_prompt(struct srv_gen *g, struct gen_prompt *p)
{
    for (int k = 0; k < g->n_candidates && !g->answered; k++) {
        struct gen_choice *c = &p->choices[k];
        bool stopped = choice_text_advance(c, &g->rules), late = is_late(g, p, c);
        if (late) choice_text_cut(c);
        if (stopped || late) srv_jobs_stop_choice(&g->jobs, (int)(p - g->prompts), k);
        charge_text(g, c);
        check_failure(g, c);
    }
    if (g->answered || !g->streaming) return;
    /* The prefill is reported before the text that follows from it: its steps are there by now. */
    if (g->reports_progress && !stream_progress(g, p)) return;
    for (int k = 0; k < g->n_candidates; k++)
        if (srv_stream_has_room(g->req)) stream_choice(g, p, &p->choices[k]);
}

static bool advance(void *ctx)
{
    struct srv_gen *g = ctx;
    if (atomic_load(&g->jobs.gone)) {
        account(g);
        g->answered = true;
    }
    if (!g->answered && g->params.stream && !g->streaming) open_stream(g);
    for (int i = 0; i < g->jobs.n_submitted && !g->answered; i++)
        advance_prompt(g, &g->prompts[i]);
    if (!g->answered && g->jobs.finished) g->answered = end_answer(g);
    return g->answered;
}

const struct srv_gen_writer srv_gen_output = {advance, fail};
