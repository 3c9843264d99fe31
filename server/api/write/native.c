/* SPDX-License-Identifier: MIT */
/* The answers and events of llama-server's own dialect; see dialects.h. */
#include "server/api/write/dialects.h"

#include <string.h>

#include "server/api/write/openai_json.h"

/* ---- whole answers ------------------------------------------------------------------------- */

/* The members after the text; n_tokens: so far. */
static void write_counts(struct srv_gen *g, struct jw *w, const struct gen_choice *c, int64_t from,
                         int64_t n_tokens)
{
    if (g->params.return_token_ids) srv_gen_write_ids(w, "tokens", c, from, n_tokens);
    jw_fields(w, "tokens_predicted %jd tokens_evaluated %jd", n_tokens, c->prompt->n_ids);
}

static void write_end(struct srv_gen *g, struct jw *w, const struct gen_choice *c, int64_t from)
{
    const struct completion *cp = g->dialect;
    const struct gen_totals t = srv_gen_totals(g);
    size_t len;
    const char *stop = srv_gen_stop_string(c, &len);
    bool limit = strcmp(c->finish_reason, "length") == 0;
    jw_fields(w, "stop %i stop_type %s", true, stop ? "word" : limit ? "limit" : "eos");
    jw_string(w, "stopping_word", stop ? stop : "", len);
    write_counts(g, w, c, from, c->n_tokens);
    srv_gen_write_closing(w, &t);
    jw_fields(w, "tokens_cached %jd truncated %i model %s generation_settings { n_ctx %jd }",
              c->prompt->n_ids + c->n_tokens, cp->cut, g->model,
              eng_info(g->served->engine)->ctx_tokens);
    srv_gen_write_timings(g, w);
    jw_close(w);
}

/* Several choices are an array. */
static bool is_array(const struct srv_gen *g)
{
    return g->n_prompts * g->n_choices > 1;
}

static void head(struct srv_gen *g, struct jw *w)
{
    if (is_array(g)) jw_open(w, NULL, '[');
}

static bool whole_choice(struct srv_gen *g, struct jw *w, struct gen_choice *c,
                         struct gen_cursor *at)
{
    if (at->part == 0) {
        jw_fields(w, "{ index %d", c->index);
        jw_string_begin(w, "content");
        at->part = 1;
    }
    if (!jw_string_next(w, c->text.text.data, c->text.text.len, GEN_PART_BYTES, &at->at))
        return false;
    jw_string_end(w);
    write_end(g, w, c, 0);
    return true;
}

static bool tail(struct srv_gen *g, struct jw *w, struct gen_cursor *at)
{
    if (is_array(g)) jw_close(w);
    return true;
}

/* ---- stream -------------------------------------------------------------------------------- */

static void stream_delta(struct srv_gen *g, struct gen_choice *c, const struct choice_part *part,
                         size_t to, int64_t token_to)
{
    struct gen_event e;
    srv_gen_begin_event(&e, NULL);
    jw_fields(&e.w, "{ index %d", c->index);
    srv_gen_write_text(&e.w, "content", c, c->n_sent, to);
    jw_bool(&e.w, "stop", false);
    write_counts(g, &e.w, c, c->n_shown, token_to);
    if (g->params.timings_per_token) srv_gen_write_timings(g, &e.w);
    srv_gen_close_event(g, &e);
}

static void stream_finish(struct srv_gen *g, struct gen_choice *c)
{
    struct gen_event e;
    srv_gen_begin_event(&e, NULL);
    jw_fields(&e.w, "{ index %d content %s", c->index, "");
    write_end(g, &e.w, c, c->n_tokens);
    srv_gen_send_event(g, &e);
}

static void stream_progress(struct srv_gen *g, const struct gen_progress *progress)
{
    struct gen_event e;
    srv_gen_begin_event(&e, NULL);
    jw_fields(&e.w, "{ content %s stop %i", "", false);
    srv_gen_write_progress(&e.w, progress);
    srv_gen_close_event(g, &e);
}

const struct srv_gen_dialect srv_write_native = {
    .stream_delta = stream_delta,
    .stream_finish = stream_finish,
    .stream_progress = stream_progress,
    .stream_error = srv_gen_error_chunk,
    .head = head,
    .choice = whole_choice,
    .tail = tail,
};
