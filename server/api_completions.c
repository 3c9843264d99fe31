/* SPDX-License-Identifier: MIT */
/*
 * POST /v1/completions: the legacy dialect, complete: prompts as text or ids, one or many, echo,
 * the four log-probability arrays with offsets, scoring by max_tokens 0, best_of.
 */
#include <stdlib.h>
#include <string.h>

#include "server/api.h"
#include "server/config.h"
#include "server/gen_out.h"
#include "tokenizer/tokenizer.h"

enum { DEFAULT_MAX_TOKENS = 16 };

/* What a prompt looks like when it is echoed. */
struct echo {
    const char *text;
    size_t len;
    bool is_text; /* came as text: special tokens that were added are no part of it */
};

struct completion {
    struct echo *echoes; /* [n_prompts] */
};

static const struct param_field fields[] = {
    GEN_FIELD("prompt", PARAM_JSON, prompt),
    GEN_FIELD("echo", PARAM_BOOL, echo),
    GEN_RANGE("logprobs", PARAM_INT, logprobs_count, 0, GEN_MAX_LOGPROBS),
    GEN_RANGE("best_of", PARAM_INT, best_of, 1, GEN_MAX_CHOICES),
    GEN_FIELD("add_special_tokens", PARAM_BOOL, add_special),
    {0},
};

/* ---- log-probabilities --------------------------------------------------------------------- */

/* The four arrays grow side by side. */
struct arrays {
    struct srv_buf tokens, logprobs, tops, offsets;
    int64_t n;
    int64_t offset; /* code points before the next token */
};

static void arrays_init(struct arrays *a, int64_t offset)
{
    struct srv_buf *all[] = {&a->tokens, &a->logprobs, &a->tops, &a->offsets};
    for (int i = 0; i < 4; i++)
        srv_buf_init(all[i], 64 << 20);
    a->n = 0;
    a->offset = offset;
}

static void add_top(struct srv_gen *g, struct srv_buf *b, const struct gen_record *r,
                    const struct eng_logprob *top)
{
    bool has_own = false;
    srv_buf_puts(b, "{");
    for (int i = 0; i < r->n_top; i++) {
        if (i) srv_buf_puts(b, ",");
        srv_gen_write_token(g, b, top[i].id);
        srv_buf_puts(b, ":");
        srv_buf_json_number(b, top[i].logprob);
        has_own |= top[i].id == r->id;
    }
    if (!has_own) {
        if (r->n_top) srv_buf_puts(b, ",");
        srv_gen_write_token(g, b, r->id);
        srv_buf_puts(b, ":");
        srv_buf_json_number(b, r->logprob);
    }
    srv_buf_puts(b, "}");
}

/* r NULL: the first prompt token, which nothing precedes. */
static void arrays_add(struct srv_gen *g, struct arrays *a, int32_t id, const struct gen_record *r,
                       const struct eng_logprob *top, int64_t n_characters)
{
    const char *comma = a->n++ ? "," : "";
    srv_buf_puts(&a->tokens, comma);
    srv_gen_write_token(g, &a->tokens, id);
    srv_buf_puts(&a->logprobs, comma);
    srv_buf_puts(&a->tops, comma);
    if (r) {
        srv_buf_json_number(&a->logprobs, r->logprob);
        add_top(g, &a->tops, r, top);
    } else {
        srv_buf_puts(&a->logprobs, "null");
        srv_buf_puts(&a->tops, "null");
    }
    srv_buf_printf(&a->offsets, "%s%lld", comma, (long long)a->offset);
    a->offset += n_characters;
}

static void arrays_write(struct arrays *a, struct srv_buf *b)
{
    static const char *const names[] = {"tokens", "token_logprobs", "top_logprobs", "text_offset"};
    struct srv_buf *all[] = {&a->tokens, &a->logprobs, &a->tops, &a->offsets};
    for (int i = 0; i < 4; i++) {
        srv_buf_printf(b, "%s\"%s\":[", i ? "," : "{", names[i]);
        srv_buf_add(b, all[i]->data ? all[i]->data : "", all[i]->len);
        srv_buf_puts(b, "]");
        b->failed |= all[i]->failed;
        srv_buf_finish(all[i]);
    }
    srv_buf_puts(b, "}");
}

/* Tokens [from, to) of a choice. base: code points of echoed text in front of the choice's own. */
static void add_choice_tokens(struct srv_gen *g, struct arrays *a, const struct gen_choice *c,
                              int64_t base, int64_t from, int64_t to)
{
    const char *text = c->text.text.data ? c->text.text.data : "";
    size_t end = c->text.text.len;
    for (int64_t i = from; i < to; i++) {
        size_t start = c->offsets[i] < end ? c->offsets[i] : end;
        size_t next = i + 1 < c->n_tokens && c->offsets[i + 1] < end ? c->offsets[i + 1] : end;
        a->offset = base + (int64_t)srv_gen_characters(text, start);
        arrays_add(g, a, c->log.records[i].id, &c->log.records[i],
                   gen_log_top(&c->log, i),
                   (int64_t)srv_gen_characters(text + start, next - start));
    }
}

static const struct echo *echo_of(const struct srv_gen *g, const struct gen_prompt *p)
{
    const struct completion *cp = g->dialect;
    return &cp->echoes[p - g->prompts];
}

/* The prompt's own tokens, the first without a log-probability. */
static void add_prompt_tokens(struct srv_gen *g, struct arrays *a, const struct gen_prompt *p)
{
    struct tok_decoder *decoder = NULL;
    bool is_text = echo_of(g, p)->is_text;
    if (tok_decoder_create(&decoder, g->app->tok, false)) return;
    for (int64_t i = 0; i < p->n_ids; i++) {
        const char *text = "";
        size_t len = 0;
        tok_decoder_push(decoder, p->ids[i], &text, &len);
        /* A begin mark that the tokenizer put in front is no part of the text asked for. */
        if (is_text && i == 0 && tok_is_special(g->app->tok, p->ids[i])) len = 0;
        const struct gen_record *r = i ? &p->log.records[i - 1] : NULL;
        arrays_add(g, a, p->ids[i], r, r ? gen_log_top(&p->log, i - 1) : NULL,
                   (int64_t)srv_gen_characters(text, len));
    }
    tok_decoder_destroy(decoder);
}

static int64_t echoed_characters(const struct srv_gen *g, const struct gen_prompt *p)
{
    const struct echo *e = echo_of(g, p);
    return g->params.echo ? (int64_t)srv_gen_characters(e->text, e->len) : 0;
}

/* ---- choices ------------------------------------------------------------------------------- */

static void write_head(struct srv_gen *g, struct srv_buf *b)
{
    srv_buf_printf(b, "{\"id\":\"%s\",\"object\":\"text_completion\",\"created\":%lld,\"model\":",
                   g->id, (long long)g->created);
    srv_buf_json_string(b, g->model, strlen(g->model));
    srv_buf_puts(b, ",\"system_fingerprint\":");
    srv_buf_json_string(b, g->app->fingerprint, strlen(g->app->fingerprint));
    srv_buf_puts(b, ",\"choices\":[");
}

static void write_whole_choice(struct srv_gen *g, struct srv_buf *b, const struct gen_prompt *p,
                               const struct gen_choice *c, int index)
{
    const struct echo *e = echo_of(g, p);
    struct srv_buf text;
    srv_buf_init(&text, 128 << 20);
    if (g->params.echo) srv_buf_add(&text, e->text, e->len);
    srv_buf_add(&text, c->text.text.data ? c->text.text.data : "", c->text.text.len);
    srv_buf_printf(b, "{\"index\":%d,\"text\":", index);
    srv_buf_json_string(b, text.data ? text.data : "", text.len);
    b->failed |= text.failed;
    srv_buf_finish(&text);
    srv_buf_puts(b, ",\"logprobs\":");
    if (g->params.want_logprobs) {
        struct arrays a;
        int64_t base = echoed_characters(g, p);
        int64_t shown = c->n_tokens;
        while (c->stop_string && shown > 0 && c->offsets[shown - 1] >= c->text.text.len)
            shown--;
        arrays_init(&a, 0);
        if (g->params.echo) add_prompt_tokens(g, &a, p);
        add_choice_tokens(g, &a, c, base, 0, shown);
        arrays_write(&a, b);
    } else {
        srv_buf_puts(b, "null");
    }
    srv_buf_printf(b, ",\"finish_reason\":\"%s\"", c->finish_reason);
    if (c->stop_string) {
        srv_buf_puts(b, ",\"stop_reason\":");
        srv_buf_json_string(b, c->stop_string, strlen(c->stop_string));
    } else if (c->stop_id >= 0 && g->params.n_stop_ids) {
        srv_buf_printf(b, ",\"stop_reason\":%d", (int)c->stop_id);
    }
    if (g->params.return_token_ids) {
        srv_buf_puts(b, ",\"prompt_token_ids\":");
        srv_gen_write_prompt_ids(b, p);
        srv_buf_puts(b, ",\"token_ids\":");
        srv_gen_write_ids(b, c, 0, c->n_tokens);
    }
    if (p->log.records && !g->params.echo) {
        /* They are long: once for each prompt, in its first choice, and null in the others. */
        srv_buf_puts(b, ",\"prompt_logprobs\":");
        if (index % g->n_choices == 0)
            srv_gen_write_prompt_logprobs(g, b, p);
        else
            srv_buf_puts(b, "null");
    }
    srv_buf_puts(b, "}");
}

static void whole(struct srv_gen *g, struct srv_buf *b)
{
    int picked[GEN_MAX_CHOICES];
    write_head(g, b);
    for (int i = 0; i < g->n_prompts; i++) {
        const struct gen_prompt *p = &g->prompts[i];
        srv_gen_pick(g, p, picked);
        for (int k = 0; k < g->n_choices; k++) {
            if (i || k) srv_buf_puts(b, ",");
            write_whole_choice(g, b, p, &p->choices[picked[k]], i * g->n_choices + k);
        }
    }
    srv_buf_puts(b, "],\"usage\":");
    srv_gen_write_usage(g, b);
    srv_gen_add_timings(g, b);
    srv_buf_puts(b, "}");
}

/* ---- stream -------------------------------------------------------------------------------- */

static void begin_chunk(struct srv_gen *g, struct srv_buf *b, int index, const char *text,
                        size_t len)
{
    srv_buf_init(b, 64 << 20);
    write_head(g, b);
    srv_buf_printf(b, "{\"index\":%d,\"text\":", index);
    srv_buf_json_string(b, text, len);
    srv_buf_puts(b, ",\"logprobs\":");
}

/* Echoed prompts are the first chunk of each of their choices. */
static void stream_begin(struct srv_gen *g)
{
    (void)g;
}

static void echo_chunk(struct srv_gen *g, struct gen_prompt *p, struct gen_choice *c)
{
    const struct echo *e = echo_of(g, p);
    struct srv_buf b;
    begin_chunk(g, &b, c->index, e->text, e->len);
    if (g->params.want_logprobs) {
        struct arrays a;
        arrays_init(&a, 0);
        add_prompt_tokens(g, &a, p);
        arrays_write(&a, &b);
    } else {
        srv_buf_puts(&b, "null");
    }
    srv_buf_puts(&b, ",\"finish_reason\":null}");
    srv_gen_end_chunk(g, &b, p, 0);
}

static void introduce(struct srv_gen *g, struct gen_prompt *p, struct gen_choice *c)
{
    if (g->params.echo && !c->introduced) echo_chunk(g, p, c);
    c->introduced = true;
}

static void stream_delta(struct srv_gen *g, struct gen_prompt *p, struct gen_choice *c, size_t from,
                         size_t to, int64_t token_from, int64_t token_to)
{
    struct srv_buf b;
    introduce(g, p, c);
    begin_chunk(g, &b, c->index, c->text.text.data ? c->text.text.data + from : "", to - from);
    if (g->params.want_logprobs && token_to > token_from) {
        struct arrays a;
        arrays_init(&a, 0);
        add_choice_tokens(g, &a, c, echoed_characters(g, p), token_from, token_to);
        arrays_write(&a, &b);
    } else {
        srv_buf_puts(&b, "null");
    }
    srv_buf_puts(&b, ",\"finish_reason\":null");
    if (g->params.return_token_ids) {
        srv_buf_puts(&b, ",\"token_ids\":");
        srv_gen_write_ids(&b, c, token_from, token_to);
    }
    srv_buf_puts(&b, "}");
    srv_gen_end_chunk(g, &b, p, token_to);
}

static void stream_finish(struct srv_gen *g, struct gen_prompt *p, struct gen_choice *c)
{
    struct srv_buf b;
    introduce(g, p, c);
    begin_chunk(g, &b, c->index, "", 0);
    srv_buf_printf(&b, "null,\"finish_reason\":\"%s\"}", c->finish_reason);
    srv_gen_end_chunk(g, &b, p, c->n_tokens);
}

static void stream_progress(struct srv_gen *g, const struct gen_progress *progress)
{
    struct srv_buf b;
    srv_buf_init(&b, 65536);
    write_head(g, &b);
    srv_gen_end_progress_chunk(g, &b, progress);
}

static void stream_end(struct srv_gen *g)
{
    if (g->params.include_usage || g->params.timings) {
        struct srv_buf b;
        srv_buf_init(&b, 65536);
        write_head(g, &b);
        srv_gen_end_last_chunk(g, &b);
    }
    srv_gen_done_event(g);
}

static const struct srv_gen_format format = {
    .endpoint = "completions",
    .input = "prompt",
    .stream_begin = stream_begin,
    .stream_delta = stream_delta,
    .stream_finish = stream_finish,
    .stream_progress = stream_progress,
    .stream_end = stream_end,
    .stream_error = srv_gen_error_event,
    .whole = whole,
};

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
    /* Special tokens written in a completion's prompt are meant: the prompt is the template. */
    int rc = tok_encode(g->app->tok, text, len, flags | TOK_PARSE_SPECIAL, &ids, message,
                        sizeof(message));
    int32_t *copy = rc ? NULL : srv_gen_copy_ids(g, ids.ids, ids.n);
    if (copy) srv_gen_set_prompt(g, i, copy, (int64_t)ids.n);
    tok_ids_finish(&ids);
    enum srv_error kind = rc == TOK_ENOMEM ? SRV_ERR_OVERLOADED : SRV_ERR_INVALID_VALUE;
    if (rc) return param_fail(err, kind, "prompt", "%s", message);
    if (!copy) return param_fail(err, SRV_ERR_OVERLOADED, NULL, "No memory for the prompt.");
    cp->echoes[i] = (struct echo){text, len, true};
    return 0;
}

static int ids_prompt(struct srv_gen *g, int i, const json_t *list, struct param_error *err)
{
    struct completion *cp = g->dialect;
    size_t n = json_array_size(list);
    int32_t vocab = eng_info(g->app->engine)->vocab_size;
    int32_t *ids = srv_request_alloc(g->req, (n ? n : 1) * sizeof(*ids));
    if (!ids) return param_fail(err, SRV_ERR_OVERLOADED, NULL, "No memory for the prompt.");
    for (size_t k = 0; k < n; k++) {
        const json_t *value = json_array_get(list, k);
        if (!json_is_number(value))
            return param_fail(err, SRV_ERR_INVALID_TYPE, "prompt", PROMPT_FORMS);
        if (param_read_id(value, vocab, "prompt", &ids[k], err)) return -1;
    }
    srv_gen_set_prompt(g, i, ids, (int64_t)n);
    if (!g->params.echo) return 0;
    char *text = NULL;
    size_t len = 0;
    if (tok_decode(g->app->tok, ids, n, false, &text, &len))
        return param_fail(err, SRV_ERR_INTERNAL, NULL, "The prompt's ids cannot be decoded.");
    char *copy = srv_request_alloc(g->req, len + 1);
    if (copy) memcpy(copy, text, len);
    free(text);
    if (!copy) return param_fail(err, SRV_ERR_OVERLOADED, NULL, "No memory for the prompt.");
    cp->echoes[i] = (struct echo){copy, len, false};
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
    if (!g->prompts || !cp->echoes)
        return param_fail(err, SRV_ERR_OVERLOADED, NULL, "There is no memory for the request.");
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
    if (p->best_of > eng_info(g->app->engine)->max_choices)
        return param_fail(err, SRV_ERR_INVALID_VALUE, "best_of",
                          "'best_of' is %lld, but must be at most %d.", (long long)p->best_of,
                          eng_info(g->app->engine)->max_choices);
    g->n_candidates = (int)p->best_of;
    return 0;
}

static void derive(struct srv_gen *g)
{
    struct srv_gen_params *p = &g->params;
    if (g->max_tokens < 0) g->max_tokens = DEFAULT_MAX_TOKENS;
    p->want_logprobs = p->logprobs_count >= 0;
    if (p->echo && p->want_logprobs && p->prompt_logprobs < p->logprobs_count)
        p->prompt_logprobs = p->logprobs_count;
    /* Ranking candidates needs their log-probabilities. */
    if (g->n_candidates > g->n_choices && p->logprobs_count < 0) p->logprobs_count = 0;
}

static void handle(struct srv_request *req)
{
    struct param_error err = {0};
    struct srv_gen *g = srv_gen_open(req, &format, fields);
    if (!g) return;
    g->dialect = srv_request_alloc(req, sizeof(struct completion));
    if (!g->dialect)
        param_fail(&err, SRV_ERR_OVERLOADED, NULL, "There is no memory for the request.");
    else if (!check_best_of(g, &err) && !read_prompts(g, &err)) {
        snprintf(g->id, sizeof(g->id), "cmpl-%s", srv_request_unique(req));
        derive(g);
        srv_gen_start(g);
        return;
    }
    srv_gen_refuse(g, &err);
}

const struct srv_route srv_routes_completions[] = {
    {"POST", "/v1/completions", 0, handle},
    {"POST", "/completions", 0, handle},
    {0},
};
