/* SPDX-License-Identifier: MIT */
/* The answers and events of completions; see dialects.h. */
#include "server/api/write/dialects.h"

#include "server/api/write/openai_json.h"

/* ---- log-probabilities --------------------------------------------------------------------- */

/* The tokens of the four arrays: those of the prompt if it is echoed, then those of a choice. */
struct tokens {
    struct srv_gen *g;
    struct gen_choice *c;
    int64_t n_echoed; /* of the prompt */
};

enum column { TOKENS, LOGPROBS, TOPS, OFFSETS, N_COLUMNS };

static const char *const column_names[N_COLUMNS] = {"tokens", "token_logprobs", "top_logprobs",
                                                    "text_offset"};

static struct completion_echo *echo_of(const struct srv_gen *g, const struct gen_prompt *p)
{
    const struct completion *cp = g->dialect;
    return &cp->echoes[p - g->prompts];
}

static struct tokens tokens_of(struct srv_gen *g, struct gen_choice *c, bool with_echo)
{
    return (struct tokens){g, c, with_echo && g->params.echo ? c->prompt->n_ids : 0};
}

static void write_top_one(struct srv_gen *g, struct jw *w, int32_t id, float logprob)
{
    srv_gen_write_token_key(g, w, id);
    jw_number(w, NULL, logprob);
}

static void write_top(struct srv_gen *g, struct jw *w, const struct gen_record *r,
                      const struct eng_logprob *top)
{
    bool has_own = false;
    jw_open(w, NULL, '{');
    /* of a prompt's tokens there may be more, for "prompt_logprobs" */
    for (int i = 0; i < r->n_top && i < g->params.logprobs_count; i++) {
        write_top_one(g, w, top[i].id, top[i].logprob);
        has_own |= top[i].id == r->id;
    }
    if (!has_own) write_top_one(g, w, r->id, r->logprob);
    jw_close(w);
}

/* Code points of the shown text before token i. */
static int64_t offset_of(const struct tokens *t, int64_t i)
{
    const struct completion_echo *e = echo_of(t->g, t->c->prompt);
    if (i < t->n_echoed) return e->starts[i];
    const struct gen_choice *c = t->c;
    size_t start = c->offsets[i - t->n_echoed], end = c->text.text.len;
    return e->n_characters + srv_gen_characters_before(t->c, start < end ? start : end);
}

static void write_cell(const struct tokens *t, struct jw *w, enum column column, int64_t i)
{
    bool echoed = i < t->n_echoed;
    int64_t at = echoed ? i - 1 : i - t->n_echoed; /* the prompt's first token has no record */
    const struct gen_log *log = echoed ? &t->c->prompt->log : &t->c->log;
    const struct gen_record *r = at >= 0 ? &log->records[at] : NULL;
    if (column == OFFSETS)
        jw_int(w, NULL, offset_of(t, i));
    else if (column == TOKENS)
        srv_gen_write_token(t->g, w, NULL, echoed ? t->c->prompt->ids[i] : r->id);
    else if (!r)
        jw_null(w, NULL);
    else if (column == LOGPROBS)
        jw_number(w, NULL, r->logprob);
    else
        write_top(t->g, w, r, gen_log_top(log, at));
}

static void write_cells(const struct tokens *t, struct jw *w, enum column column, int64_t from,
                        int64_t to)
{
    for (int64_t i = from; i < to; i++)
        write_cell(t, w, column, i);
}

/* The whole object for tokens [from, to), of a stream's event. */
static void write_arrays(const struct tokens *t, struct jw *w, int64_t from, int64_t to)
{
    jw_open(w, "logprobs", '{');
    for (int column = 0; column < N_COLUMNS; column++) {
        jw_open(w, column_names[column], '[');
        write_cells(t, w, (enum column)column, from, to);
        jw_close(w);
    }
    jw_close(w);
}

/* ---- choices ------------------------------------------------------------------------------- */

/* The next cells of an array of a whole choice; returns true after the last. */
static bool write_column_part(const struct tokens *t, struct jw *w, enum column column, int64_t *at)
{
    int64_t from = *at, to;
    bool last = srv_gen_next_tokens(t->n_echoed + t->c->n_showable, at, &to);
    if (from == 0) jw_open(w, column_names[column], '[');
    write_cells(t, w, column, from, to);
    if (last) jw_close(w);
    return last;
}

static void write_end(struct srv_gen *g, struct jw *w, const struct gen_choice *c)
{
    jw_text(w, "finish_reason", c->finish_reason);
    srv_gen_write_stop_reason(g, w, c);
    if (!g->params.return_token_ids) return;
    jw_ints(w, "prompt_token_ids", c->prompt->ids, (size_t)c->prompt->n_ids);
    srv_gen_write_ids(w, "token_ids", c, 0, c->n_tokens);
}

/* Written once per prompt, in its first choice, because they are long; null in the other
 * choices. */
static bool write_prompt_logprobs(struct srv_gen *g, struct jw *w, const struct gen_prompt *p,
                                  struct gen_cursor *at)
{
    bool wanted = g->params.prompt_tops >= 0;
    if (wanted && at->choice == 0) return srv_gen_write_prompt_logprobs_part(g, w, p, &at->at);
    if (wanted) jw_null(w, "prompt_logprobs");
    return true;
}

static bool whole_choice(struct srv_gen *g, struct jw *w, struct gen_choice *c,
                         struct gen_cursor *at)
{
    enum { OPEN, ECHO, TEXT, ARRAYS, END = ARRAYS + N_COLUMNS, PROMPT };
    const struct completion_echo *e = echo_of(g, c->prompt);
    struct tokens t = tokens_of(g, c, true);
    switch (at->part) {
    case OPEN:
        jw_fields(w, "{ index %d", at->prompt * g->n_choices + at->choice);
        jw_string_begin(w, "text");
        at->part = g->params.echo ? ECHO : TEXT;
        return false;
    case ECHO:
        if (jw_string_next(w, e->text, e->len, GEN_PART_BYTES, &at->at)) at->part = TEXT;
        return false;
    case TEXT:
        if (!jw_string_next(w, c->text.text.data, c->text.text.len, GEN_PART_BYTES, &at->at))
            return false;
        jw_string_end(w);
        if (g->params.want_logprobs)
            jw_open(w, "logprobs", '{');
        else
            jw_null(w, "logprobs");
        at->part = g->params.want_logprobs ? ARRAYS : END;
        return false;
    case END:
        write_end(g, w, c);
        at->part = PROMPT;
        return false;
    case PROMPT:
        if (!write_prompt_logprobs(g, w, c->prompt, at)) return false;
        jw_close(w);
        return true;
    default: /* one of the arrays */
        if (!write_column_part(&t, w, (enum column)(at->part - ARRAYS), &at->at)) return false;
        if (++at->part == END) jw_close(w);
        return false;
    }
}

static bool whole_tail(struct srv_gen *g, struct jw *w, struct gen_cursor *at)
{
    jw_close(w);
    srv_gen_write_usage(g, w);
    jw_close(w);
    return true;
}

/* ---- stream -------------------------------------------------------------------------------- */

/* The first chunk of a choice has the ids of its prompt. */
static void introduce(struct srv_gen *g, struct jw *w, struct gen_choice *c)
{
    if (g->params.return_token_ids && !c->introduced)
        jw_ints(w, "prompt_token_ids", c->prompt->ids, (size_t)c->prompt->n_ids);
    c->introduced = true;
}

/* An echoed prompt is the first chunk of each of its choices. */
static void echo_chunk(struct srv_gen *g, struct gen_choice *c)
{
    if (!g->params.echo || c->introduced) return;
    const struct completion_echo *echo = echo_of(g, c->prompt);
    struct tokens t = tokens_of(g, c, true);
    struct gen_event e;
    srv_gen_begin_chunk(g, &e, c->index);
    jw_string(&e.w, "text", echo->text, echo->len);
    if (g->params.want_logprobs)
        write_arrays(&t, &e.w, 0, t.n_echoed);
    else
        jw_null(&e.w, "logprobs");
    jw_null(&e.w, "finish_reason");
    introduce(g, &e.w, c);
    srv_gen_end_chunk(g, &e, c, 0);
}

static void stream_delta(struct srv_gen *g, struct gen_choice *c, const struct choice_part *part,
                         size_t to, int64_t token_to)
{
    struct tokens t = tokens_of(g, c, false);
    struct gen_event e;
    echo_chunk(g, c);
    srv_gen_begin_chunk(g, &e, c->index);
    srv_gen_write_text(&e.w, "text", c, c->n_sent, to);
    int64_t logged_to = token_to < c->n_showable ? token_to : c->n_showable;
    if (g->params.want_logprobs && logged_to > c->n_shown)
        write_arrays(&t, &e.w, c->n_shown, logged_to);
    else
        jw_null(&e.w, "logprobs");
    jw_null(&e.w, "finish_reason");
    introduce(g, &e.w, c);
    if (g->params.return_token_ids) srv_gen_write_ids(&e.w, "token_ids", c, c->n_shown, token_to);
    srv_gen_end_chunk(g, &e, c, token_to);
}

static void stream_finish(struct srv_gen *g, struct gen_choice *c)
{
    struct gen_event e;
    echo_chunk(g, c);
    srv_gen_begin_chunk(g, &e, c->index);
    jw_fields(&e.w, "text %s logprobs null finish_reason %s", "", c->finish_reason);
    srv_gen_write_stop_reason(g, &e.w, c);
    introduce(g, &e.w, c);
    srv_gen_end_chunk(g, &e, c, c->n_tokens);
}

const struct srv_gen_dialect srv_write_completions = {
    .object = "text_completion",
    .chunk_object = "text_completion",
    .stream_delta = stream_delta,
    .stream_finish = stream_finish,
    .stream_progress = srv_gen_progress_chunk,
    .stream_end = srv_gen_last_chunk,
    .stream_error = srv_gen_error_chunk,
    .head = srv_gen_open_answer,
    .choice = whole_choice,
    .tail = whole_tail,
};
