/* SPDX-License-Identifier: MIT */
/*
 * POST /v1/completions, OpenAI's older API, with all of its fields: one or many prompts as text or
 * ids, echo, the four log-probability arrays with offsets, scoring by max_tokens 0, and best_of.
 */
#include <stdlib.h>
#include <string.h>

#include "server/api/write/openai_json.h"
#include "server/api/generate.h"
#include "server/api/routes.h"
#include "server/config/config.h"
#include "tokenizer/tokenizer.h"

enum { DEFAULT_MAX_TOKENS = 16 };

/* A prompt as it is echoed. */
struct echo {
    const char *text;
    size_t len;
    bool is_text;         /* not ids: special tokens that were added are left out */
    int64_t n_characters; /* code points of the text; 0 unless it is echoed */
    uint32_t *starts;     /* [n_ids] code points before each token; NULL unless they are shown */
};

struct completion {
    struct echo *echoes; /* [n_prompts] */
};

const struct param_field srv_fields_completions[] = {
    GEN_FIELD(
        "prompt", PARAM_JSON, prompt, NULL,
        "a text, ids, or an array of at most 256 such prompts; choices are numbered prompt by "
        "prompt"),
    GEN_FLAG("echo", echo, false, "begin the text with the prompt"),
    GEN_INT("logprobs", logprobs_count, 0, GEN_MAX_LOGPROBS, -1, "none",
            "the four legacy arrays, with so many alternatives"),
    GEN_INT("best_of", best_of, 1, GEN_MAX_CHOICES, 0, "`n`",
            "generate so many, answer the `n` likeliest; not with a stream"),
    GEN_FLAG("add_special_tokens", add_special, true,
             "begin a text prompt with the tokens that the tokenizer puts in front"),
    {0},
};

/* ---- log-probabilities --------------------------------------------------------------------- */

/* The tokens of the four arrays: those of the prompt if it is echoed, then those of a choice. */
struct tokens {
    struct srv_gen *g;
    struct gen_prompt *p;
    struct gen_choice *c; /* NULL: the prompt alone */
    int64_t n_echoed;     /* of the prompt */
};

enum column { TOKENS, LOGPROBS, TOPS, OFFSETS, N_COLUMNS };

static const char *const column_names[N_COLUMNS] = {"tokens", "token_logprobs", "top_logprobs",
                                                    "text_offset"};

static struct echo *echo_of(const struct srv_gen *g, const struct gen_prompt *p)
{
    const struct completion *cp = g->dialect;
    return &cp->echoes[p - g->prompts];
}

static struct tokens tokens_of(struct srv_gen *g, struct gen_prompt *p, struct gen_choice *c,
                               bool with_echo)
{
    return (struct tokens){g, p, c, with_echo && g->params.echo ? p->n_ids : 0};
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
    const struct echo *e = echo_of(t->g, t->p);
    if (i < t->n_echoed) return e->starts[i];
    const struct gen_choice *c = t->c;
    size_t start = c->offsets[i - t->n_echoed], end = c->text.text.len;
    return e->n_characters + srv_gen_characters_before(t->c, start < end ? start : end);
}

static void write_cell(const struct tokens *t, struct jw *w, enum column column, int64_t i)
{
    bool echoed = i < t->n_echoed;
    int64_t at = echoed ? i - 1 : i - t->n_echoed; /* the prompt's first token has no record */
    const struct gen_log *log = echoed ? &t->p->log : &t->c->log;
    const struct gen_record *r = at >= 0 ? &log->records[at] : NULL;
    if (column == OFFSETS)
        jw_int(w, NULL, offset_of(t, i));
    else if (column == TOKENS)
        srv_gen_write_token(t->g, w, NULL, echoed ? t->p->ids[i] : r->id);
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
    bool last = srv_gen_next_tokens(t->n_echoed + srv_gen_shown_tokens(t->c), at, &to);
    if (from == 0) jw_open(w, column_names[column], '[');
    write_cells(t, w, column, from, to);
    if (last) jw_close(w);
    return last;
}

static void write_end(struct srv_gen *g, struct jw *w, const struct gen_prompt *p,
                      const struct gen_choice *c)
{
    jw_text(w, "finish_reason", c->finish_reason);
    srv_gen_write_stop_reason(g, w, c);
    if (!g->params.return_token_ids) return;
    jw_ints(w, "prompt_token_ids", p->ids, (size_t)p->n_ids);
    srv_gen_write_ids(w, "token_ids", c, 0, c->n_tokens);
}

/*
 * Written once per prompt, in its first choice, because they are long; null in the other choices.
 */
static bool write_prompt_logprobs(struct srv_gen *g, struct jw *w, const struct gen_prompt *p,
                                  struct gen_cursor *at)
{
    bool wanted = g->params.prompt_tops >= 0;
    if (wanted && at->choice == 0) return srv_gen_write_prompt_logprobs_part(g, w, p, &at->at);
    if (wanted) jw_null(w, "prompt_logprobs");
    return true;
}

static bool whole_choice(struct srv_gen *g, struct jw *w, struct gen_prompt *p,
                         struct gen_choice *c, struct gen_cursor *at)
{
    enum { OPEN, ECHO, TEXT, ARRAYS, END = ARRAYS + N_COLUMNS, PROMPT };
    const struct echo *e = echo_of(g, p);
    struct tokens t = tokens_of(g, p, c, true);
    switch (at->part) {
    case OPEN:
        jw_open(w, NULL, '{');
        jw_int(w, "index", at->prompt * g->n_choices + at->choice);
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
        write_end(g, w, p, c);
        at->part = PROMPT;
        return false;
    case PROMPT:
        if (!write_prompt_logprobs(g, w, p, at)) return false;
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
    (void)at;
    jw_close(w);
    srv_gen_write_usage(g, w);
    jw_close(w);
    return true;
}

/* ---- stream -------------------------------------------------------------------------------- */

/* The first chunk of a choice has the ids of its prompt. */
static void introduce(struct srv_gen *g, struct jw *w, const struct gen_prompt *p,
                      struct gen_choice *c)
{
    if (g->params.return_token_ids && !c->introduced)
        jw_ints(w, "prompt_token_ids", p->ids, (size_t)p->n_ids);
    c->introduced = true;
}

/* An echoed prompt is the first chunk of each of its choices. */
static void echo_chunk(struct srv_gen *g, struct gen_prompt *p, struct gen_choice *c)
{
    if (!g->params.echo || c->introduced) return;
    const struct echo *echo = echo_of(g, p);
    struct tokens t = tokens_of(g, p, NULL, true);
    struct gen_event e;
    srv_gen_begin_chunk(g, &e, c->index);
    jw_string(&e.w, "text", echo->text, echo->len);
    if (g->params.want_logprobs)
        write_arrays(&t, &e.w, 0, p->n_ids);
    else
        jw_null(&e.w, "logprobs");
    jw_null(&e.w, "finish_reason");
    introduce(g, &e.w, p, c);
    srv_gen_end_chunk(g, &e, p, 0);
}

static void stream_delta(struct srv_gen *g, struct gen_prompt *p, struct gen_choice *c,
                         const struct choice_part *part, size_t from, size_t to, int64_t token_from,
                         int64_t token_to)
{
    struct tokens t = tokens_of(g, p, c, false);
    struct gen_event e;
    echo_chunk(g, p, c);
    srv_gen_begin_chunk(g, &e, c->index);
    srv_gen_write_text(&e.w, "text", c, from, to);
    int64_t logged_to = token_to < c->n_showable ? token_to : c->n_showable;
    if (g->params.want_logprobs && logged_to > token_from)
        write_arrays(&t, &e.w, token_from, logged_to);
    else
        jw_null(&e.w, "logprobs");
    jw_null(&e.w, "finish_reason");
    introduce(g, &e.w, p, c);
    if (g->params.return_token_ids) srv_gen_write_ids(&e.w, "token_ids", c, token_from, token_to);
    srv_gen_end_chunk(g, &e, p, token_to);
}

static void stream_finish(struct srv_gen *g, struct gen_prompt *p, struct gen_choice *c)
{
    struct gen_event e;
    echo_chunk(g, p, c);
    srv_gen_begin_chunk(g, &e, c->index);
    jw_text(&e.w, "text", "");
    jw_null(&e.w, "logprobs");
    jw_text(&e.w, "finish_reason", c->finish_reason);
    srv_gen_write_stop_reason(g, &e.w, c);
    introduce(g, &e.w, p, c);
    srv_gen_end_chunk(g, &e, p, c->n_tokens);
}

/* ---- prompts ------------------------------------------------------------------------------- */

#define PROMPT_FORMS                                                                               \
    "'prompt' must be a string, an array of strings, an array of token ids, or an array of such "  \
    "arrays."

static int text_prompt(struct srv_gen *g, int i, const json_t *value, struct param_error *err)
{
    const char *text = json_string_value(value);
    size_t len = json_string_length(value);
    struct completion *cp = g->dialect;
    struct tok_ids ids = {0};
    char message[200] = "";
    unsigned flags = g->params.add_special ? TOK_ADD_SPECIAL : 0;
    /*
     * Special tokens in the text of the prompt are parsed: the client does the work of the chat
     * template.
     */
    int rc = tok_encode(g->served->tok, text, len, flags | TOK_PARSE_SPECIAL, &ids, message,
                        sizeof(message));
    if (!rc) g->prompts[i].ids = srv_request_copy(g->req, ids.ids, ids.n * sizeof(*ids.ids));
    g->prompts[i].n_ids = (int64_t)ids.n;
    tok_ids_finish(&ids);
    enum srv_error kind = rc == TOK_ENOMEM ? SRV_ERR_OVERLOADED : SRV_ERR_INVALID_VALUE;
    if (rc) return param_fail(err, kind, "prompt", "%s", message);
    if (!g->prompts[i].ids)
        return param_fail(err, SRV_ERR_OVERLOADED, NULL,
                          "The server is out of memory for the prompt.");
    cp->echoes[i] = (struct echo){.text = text, .len = len, .is_text = true};
    return 0;
}

static int ids_prompt(struct srv_gen *g, int i, const json_t *list, struct param_error *err)
{
    struct completion *cp = g->dialect;
    size_t n = json_array_size(list);
    int32_t vocab = eng_info(g->served->engine)->vocab_size;
    int32_t *ids = srv_request_alloc(g->req, (n ? n : 1) * sizeof(*ids));
    if (!ids)
        return param_fail(err, SRV_ERR_OVERLOADED, NULL,
                          "The server is out of memory for the prompt.");
    for (size_t k = 0; k < n; k++) {
        const json_t *value = json_array_get(list, k);
        if (!json_is_number(value))
            return param_fail(err, SRV_ERR_INVALID_TYPE, "prompt", PROMPT_FORMS);
        if (param_read_id(value, vocab, "prompt", &ids[k], err)) return -1;
    }
    g->prompts[i].ids = ids;
    g->prompts[i].n_ids = (int64_t)n;
    if (!g->params.echo) return 0;
    char *text = NULL;
    size_t len = 0;
    if (tok_decode(g->served->tok, ids, n, false, &text, &len))
        return param_fail(err, SRV_ERR_INTERNAL, NULL, "The prompt's ids cannot be decoded.");
    char *copy = srv_request_alloc(g->req, len + 1);
    if (copy) memcpy(copy, text, len);
    free(text);
    if (!copy)
        return param_fail(err, SRV_ERR_OVERLOADED, NULL,
                          "The server is out of memory for the prompt.");
    cp->echoes[i] = (struct echo){.text = copy, .len = len};
    return 0;
}

static int read_prompts(struct srv_gen *g, struct param_error *err)
{
    struct completion *cp = g->dialect;
    json_t *prompt = g->params.prompt;
    if (!prompt)
        return param_fail(err, SRV_ERR_MISSING, "prompt", "The parameter 'prompt' is required.");
    bool is_list = json_is_array(prompt) && !json_is_number(json_array_get(prompt, 0));
    size_t n = is_list ? json_array_size(prompt) : 1;
    if (n == 0)
        return param_fail(err, SRV_ERR_INVALID_VALUE, "prompt", "'prompt' must not be empty.");
    if (n > GEN_MAX_PROMPTS)
        return param_fail(err, SRV_ERR_INVALID_VALUE, "prompt",
                          "'prompt' holds %zu prompts; at most %d.", n, GEN_MAX_PROMPTS);
    g->prompts = srv_request_alloc(g->req, n * sizeof(*g->prompts));
    cp->echoes = srv_request_alloc(g->req, n * sizeof(*cp->echoes));
    if (!g->prompts || !cp->echoes) return param_no_memory(err);
    g->n_prompts = (int)n;
    for (int i = 0; i < g->n_prompts; i++) {
        const json_t *one = is_list ? json_array_get(prompt, (size_t)i) : prompt;
        bool mixed = is_list && json_typeof(one) != json_typeof(json_array_get(prompt, 0));
        if (mixed || (!json_is_string(one) && !json_is_array(one)))
            return param_fail(err, SRV_ERR_INVALID_TYPE, "prompt", PROMPT_FORMS);
        if (json_is_string(one) ? text_prompt(g, i, one, err) : ids_prompt(g, i, one, err))
            return -1;
    }
    return 0;
}

static int check_best_of(struct srv_gen *g, struct param_error *err)
{
    struct srv_gen_params *p = &g->params;
    if (p->best_of == 0) return 0;
    if (p->best_of < p->n)
        return param_fail(err, SRV_ERR_INVALID_VALUE, "best_of",
                          "'best_of' is %lld, but must be at least n = %lld.",
                          (long long)p->best_of, (long long)p->n);
    if (p->stream && p->best_of > p->n)
        return param_fail(err, SRV_ERR_INVALID_VALUE, "best_of",
                          "'best_of' greater than n cannot be streamed.");
    if (p->best_of > eng_info(g->served->engine)->max_choices)
        return param_fail(err, SRV_ERR_INVALID_VALUE, "best_of",
                          "'best_of' is %lld, but must be at most %d.", (long long)p->best_of,
                          eng_info(g->served->engine)->max_choices);
    g->n_candidates = (int)p->best_of;
    return 0;
}

/* Sets where the tokens of an echoed prompt begin in its text. */
static int note_starts(struct srv_gen *g, const struct gen_prompt *p, struct echo *e)
{
    struct tok_decoder *decoder = NULL;
    size_t n_characters = 0;
    e->starts = srv_request_alloc(g->req, (size_t)p->n_ids * sizeof(*e->starts));
    if (!e->starts || tok_decoder_create(&decoder, g->served->tok, false)) return -1;
    /* The decoder does not see a BOS token that the tokenizer added: the text begins behind it. */
    int64_t first = p->n_ids > 0 && e->is_text && tok_is_special(g->served->tok, p->ids[0]) ? 1 : 0;
    for (int64_t i = first; i < p->n_ids; i++) {
        const char *text = "";
        size_t len = 0;
        tok_decoder_push(decoder, p->ids[i], &text, &len);
        e->starts[i] = (uint32_t)n_characters;
        n_characters += srv_gen_characters(text, len);
    }
    tok_decoder_destroy(decoder);
    return 0;
}

static int measure_echoes(struct srv_gen *g, struct param_error *err)
{
    for (int i = 0; g->params.echo && i < g->n_prompts; i++) {
        struct echo *e = echo_of(g, &g->prompts[i]);
        e->n_characters = (int64_t)srv_gen_characters(e->text, e->len);
        if (g->params.want_logprobs && note_starts(g, &g->prompts[i], e))
            return param_no_memory(err);
    }
    return 0;
}

static void derive(struct srv_gen *g)
{
    struct srv_gen_params *p = &g->params;
    if (g->max_tokens < 0) g->max_tokens = DEFAULT_MAX_TOKENS;
    p->want_logprobs = p->logprobs_count >= 0;
    if (p->echo && p->want_logprobs && p->prompt_logprobs < p->logprobs_count)
        p->prompt_logprobs = p->logprobs_count;
    /* Candidates are ranked by their log-probabilities. */
    if (g->n_candidates > g->n_choices && p->logprobs_count < 0) p->logprobs_count = 0;
}

static int prepare(struct srv_gen *g, struct param_error *err)
{
    g->dialect = srv_request_alloc(g->req, sizeof(struct completion));
    if (!g->dialect) return param_no_memory(err);
    if (check_best_of(g, err) || read_prompts(g, err)) return -1;
    derive(g);
    return measure_echoes(g, err);
}

static const struct srv_gen_format format = {
    .endpoint = "completions",
    .input = "prompt",
    .id_prefix = "cmpl-",
    .fields = srv_fields_completions,
    .prepare = prepare,
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

static void handle(struct srv_request *req)
{
    srv_gen_handle(req, &format);
}

const struct srv_route srv_routes_completions[] = {
    {"POST", "/v1/completions", 0, handle},
    {"POST", "/completions", 0, handle},
    {0},
};
