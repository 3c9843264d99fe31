/* SPDX-License-Identifier: MIT */
/*
 * POST /v1/completions, OpenAI's older API, with all of its fields: one or many prompts as text or
 * ids, echo, the four log-probability arrays with offsets, scoring by max_tokens 0, and best_of.
 *
 * With a suffix the answer goes between the two; so do those of Mistral's /v1/fim/completions and
 * llama-server's /infill. Its /completion is the same as /v1/completions in another shape.
 */
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/utf8.h"
#include "server/api/read/json_fields.h"
#include "server/api/infill_prompt.h"
#include "server/api/write/dialects.h"
#include "server/api/write/openai_json.h"
#include "server/api/generate.h"
#include "server/api/routes.h"
#include "server/config/config.h"
#include "tokenizer/tokenizer.h"

enum { DEFAULT_MAX_TOKENS = 16 };

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
    GEN_FIELD("suffix", PARAM_STRING, suffix, NULL,
              "the text after the answer ([a text with a hole](infill.md)); not with `echo`"),
    GEN_INT("random_seed", seed, INT64_MIN, 9223372036854775807.0, -1, NULL, NULL), /* Mistral's */
    {0},
};

/* llama-server's names. */
const struct param_field srv_fields_native[] = {
    GEN_FIELD("prompt", PARAM_JSON, prompt, NULL,
              "as in completions; in /infill a string that the prefix goes on with"),
    GEN_FIELD("input_prefix", PARAM_STRING, input_prefix, NULL, "the text before the hole"),
    GEN_FIELD("input_suffix", PARAM_STRING, suffix, NULL, "the text after it"),
    GEN_FIELD("input_extra", PARAM_JSON, input_extra, NULL,
              "files to look at, the most important last: objects with `text` and `filename`"),
    GEN_FIELD("repo_name", PARAM_STRING, repo_name, "`myproject`",
              "name in front of the files, if the model has a mark for it"),
    GEN_FIELD("filename", PARAM_STRING, filename, "`filename`", "the same of the prefix"),
    GEN_INT("n_cmpl", n, 1, GEN_MAX_CHOICES, 1, NULL, "choices; more than one answer an array"),
    GEN_INT("n_indent", n_indent, 0, 1 << 20, 0, NULL,
            "end before a line, other than the first, that begins with fewer blanks or tabs"),
    GEN_INT("t_max_predict_ms", t_max_predict_ms, 0, 86400000, 0, "none",
            "time from the first token on; it ends an answer that has reached a second line"),
    GEN_FLAG("add_special_tokens", add_special, true, NULL),
    /* clang-format off */
    GEN_IGNORED("id_slot"), GEN_IGNORED("samplers"), GEN_IGNORED("t_max_prompt_ms"),
    GEN_REFUSED("n_probs"), GEN_REFUSED("prompt_logprobs"),
    /* clang-format on */
    {0},
};

/* ---- infill -------------------------------------------------------------------------------- */

/* Marks between files, and of an end, end an answer. */
static int add_ends(struct srv_gen *g)
{
    struct srv_gen_params *p = &g->params;
    int32_t *ids =
        srv_request_alloc(g->req, ((size_t)p->n_stop_ids + TOK_FIM_MARKS) * sizeof(*ids));
    if (!ids) return param_no_memory();
    if (p->n_stop_ids > 0) memcpy(ids, p->stop_ids, (size_t)p->n_stop_ids * sizeof(*ids));
    for (int mark = TOK_FIM_REPO; mark < TOK_FIM_MARKS && !p->ignore_eos; mark++)
        if (g->served->fim.id[mark] >= 0) ids[p->n_stop_ids++] = g->served->fim.id[mark];
    p->stop_ids = ids;
    return 0;
}

static int infill_prompt(struct srv_gen *g, int i, const struct infill_input *in)
{
    struct infill_prompt made;
    if (infill_prompt_make(g->req, in, &made)) return -1;
    g->prompts[i].ids = made.ids;
    g->prompts[i].n_ids = made.n_ids;
    ((struct completion *)g->dialect)->cut = made.cut;
    return i == 0 ? add_ends(g) : 0;
}

/* ---- prompts ------------------------------------------------------------------------------- */

#define PROMPT_FORMS                                                                               \
    "'prompt' must be a string, an array of strings, an array of token ids, or an array of such "  \
    "arrays."

static int text_prompt(struct srv_gen *g, int i, const json_t *value, struct tok_ids *suffix)
{
    const char *text = json_string_value(value);
    size_t len = json_string_length(value);
    struct completion *cp = g->dialect;
    struct tok_ids ids = {0};
    unsigned flags = g->params.add_special ? TOK_ADD_SPECIAL : 0;
    const struct infill_input hole = {.prefix = text,
                                      .n_prefix = len,
                                      .suffix = g->params.suffix,
                                      .suffix_ids = suffix,
                                      .no_begin = !flags};
    if (hole.suffix) return infill_prompt(g, i, &hole);
    /*
     * Special tokens in the text of the prompt are parsed: the client does the work of the chat
     * template.
     */
    int rc = param_encode(g->served->tok, text, len, flags | TOK_PARSE_SPECIAL, "prompt", &ids);
    cp->echoes[i] = (struct completion_echo){.text = text, .len = len, .is_text = true};
    return param_keep_ids(g->req, rc, &ids, &g->prompts[i].ids, &g->prompts[i].n_ids);
}

static int ids_prompt(struct srv_gen *g, int i, const json_t *list, struct tok_ids *suffix)
{
    struct completion *cp = g->dialect;
    size_t n = json_array_size(list);
    int32_t vocab = eng_info(g->served->engine)->vocab_size;
    int32_t *ids = srv_request_alloc(g->req, (n ? n : 1) * sizeof(*ids));
    if (!ids) return param_no_memory();
    for (size_t k = 0; k < n; k++) {
        const json_t *value = json_array_get(list, k);
        if (!json_is_number(value)) return param_fail(SRV_ERR_INVALID_TYPE, "prompt", PROMPT_FORMS);
        if (param_read_id(value, vocab, "prompt", &ids[k])) return -1;
    }
    const struct infill_input hole = {.prefix_ids = ids,
                                      .n_prefix_ids = n,
                                      .suffix = g->params.suffix,
                                      .suffix_ids = suffix,
                                      .no_begin = true};
    if (hole.suffix) return infill_prompt(g, i, &hole);
    g->prompts[i].ids = ids;
    g->prompts[i].n_ids = (int64_t)n;
    if (!g->params.echo) return 0;
    char *text = NULL;
    size_t len = 0;
    if (tok_decode(g->served->tok, ids, n, false, &text, &len))
        return param_fail(SRV_ERR_INTERNAL, NULL, "The prompt's ids cannot be decoded.");
    char *copy = srv_request_alloc(g->req, len + 1);
    if (copy) memcpy(copy, text, len);
    free(text);
    if (!copy) return param_no_memory();
    cp->echoes[i] = (struct completion_echo){.text = copy, .len = len};
    return 0;
}

static int read_prompts(struct srv_gen *g)
{
    struct completion *cp = g->dialect;
    json_t *prompt = g->params.prompt;
    if (!prompt) return param_missing(g->body.root, "prompt");
    bool is_list = json_is_array(prompt) && !json_is_number(json_array_get(prompt, 0));
    size_t n = is_list ? json_array_size(prompt) : 1;
    if (n == 0) return param_fail(SRV_ERR_INVALID_VALUE, "prompt", "'prompt' must not be empty.");
    if (n > GEN_MAX_PROMPTS)
        return param_fail(SRV_ERR_INVALID_VALUE, "prompt",
                          "'prompt' holds %zu prompts; at most %d.", n, GEN_MAX_PROMPTS);
    g->prompts = srv_request_alloc(g->req, n * sizeof(*g->prompts));
    cp->echoes = srv_request_alloc(g->req, n * sizeof(*cp->echoes));
    if (!g->prompts || !cp->echoes) return param_no_memory();
    g->n_prompts = (int)n;
    AUTO(tok_ids_finish) struct tok_ids suffix = {0};
    int rc = 0;
    for (int i = 0; i < g->n_prompts && !rc; i++) {
        const json_t *one = is_list ? json_array_get(prompt, (size_t)i) : prompt;
        bool mixed = is_list && json_typeof(one) != json_typeof(json_array_get(prompt, 0));
        if (mixed || (!json_is_string(one) && !json_is_array(one)))
            rc = param_fail(SRV_ERR_INVALID_TYPE, "prompt", PROMPT_FORMS);
        else
            rc = json_is_string(one) ? text_prompt(g, i, one, &suffix)
                                     : ids_prompt(g, i, one, &suffix);
    }
    return rc;
}

static int check_best_of(struct srv_gen *g)
{
    struct srv_gen_params *p = &g->params;
    if (p->best_of == 0) return 0;
    if (p->best_of < p->n)
        return param_fail(SRV_ERR_INVALID_VALUE, "best_of",
                          "'best_of' is %lld, but must be at least n = %lld.",
                          (long long)p->best_of, (long long)p->n);
    if (p->stream && p->best_of > p->n)
        return param_fail(SRV_ERR_INVALID_VALUE, "best_of",
                          "'best_of' greater than n cannot be streamed.");
    if (p->best_of > eng_info(g->served->engine)->max_choices)
        return param_fail(SRV_ERR_INVALID_VALUE, "best_of",
                          "'best_of' is %lld, but must be at most %d.", (long long)p->best_of,
                          eng_info(g->served->engine)->max_choices);
    g->n_candidates = (int)p->best_of;
    return 0;
}

/* Sets where the tokens of an echoed prompt begin in its text. */
static int note_starts(struct srv_gen *g, const struct gen_prompt *p, struct completion_echo *e)
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
        n_characters += utf8_count(text, len);
    }
    tok_decoder_destroy(decoder);
    return 0;
}

static int measure_echoes(struct srv_gen *g)
{
    for (int i = 0; g->params.echo && i < g->n_prompts; i++) {
        struct completion_echo *e = &((struct completion *)g->dialect)->echoes[i];
        e->n_characters = (int64_t)utf8_count(e->text, e->len);
        if (g->params.want_logprobs && note_starts(g, &g->prompts[i], e)) return param_no_memory();
    }
    return 0;
}

static void derive(struct srv_gen *g)
{
    struct srv_gen_params *p = &g->params;
    srv_gen_default_tokens(g, DEFAULT_MAX_TOKENS);
    p->want_logprobs = p->logprobs_count >= 0;
    if (p->echo && p->want_logprobs && p->prompt_logprobs < p->logprobs_count)
        p->prompt_logprobs = p->logprobs_count;
    /* Candidates are ranked by their log-probabilities. */
    if (g->n_candidates > g->n_choices && p->logprobs_count < 0) p->logprobs_count = 0;
}

int srv_completion_prompt(struct srv_gen *g)
{
    g->dialect = srv_request_alloc(g->req, sizeof(struct completion));
    if (!g->dialect) return param_no_memory();
    if (g->params.suffix && g->params.echo)
        return param_fail(SRV_ERR_INVALID_VALUE, "echo",
                          "'echo' and 'suffix' exclude each "
                          "other.");
    if (check_best_of(g) || read_prompts(g)) return -1;
    derive(g);
    return measure_echoes(g);
}

/* An empty suffix, which some clients always send, asks nothing of a model without marks. */
static int prepare_openai(struct srv_gen *g)
{
    bool no_marks = g->served->fim.id[TOK_FIM_PREFIX] < 0;
    if (no_marks && g->params.suffix && !*g->params.suffix) g->params.suffix = NULL;
    return srv_completion_prompt(g);
}

/* Mistral answers as chat does. */
static int prepare_fim(struct srv_gen *g)
{
    if (!g->params.suffix) g->params.suffix = "";
    if (g->params.prompt && !json_is_string(g->params.prompt))
        return param_wrong_type("prompt", "a string here");
    srv_gen_default_tokens(g, eng_info(g->served->engine)->ctx_tokens);
    return srv_completion_prompt(g);
}

static int prepare_native(struct srv_gen *g)
{
    g->params.timings = true;
    srv_gen_default_tokens(g, eng_info(g->served->engine)->ctx_tokens);
    return srv_completion_prompt(g);
}

static int prepare_infill(struct srv_gen *g)
{
    const struct srv_gen_params *p = &g->params;
    int64_t ctx = eng_info(g->served->engine)->ctx_tokens;
    AUTO(tok_ids_finish) struct tok_ids suffix = {0};
    const struct infill_input hole = {
        .prefix = p->input_prefix,
        .n_prefix = p->input_prefix ? strlen(p->input_prefix) : 0,
        .prompt = json_string_value(p->prompt),
        .suffix = p->suffix,
        .suffix_ids = &suffix,
        .extra = p->input_extra,
        .repo = p->repo_name ? p->repo_name : "myproject",
        .file = p->filename ? p->filename : "filename",
        .no_begin = !p->add_special,
        /* an answer to the end of the context may still expect a quarter of it */
        .max_tokens =
            ctx - (g->max_tokens >= 0 && g->max_tokens < ctx / 4 ? g->max_tokens : ctx / 4),
    };
    const char *absent = !hole.prefix ? "input_prefix" : !hole.suffix ? "input_suffix" : NULL;
    if (absent)
        return param_fail(SRV_ERR_MISSING, absent, "The parameter '%s' is required.", absent);
    if (p->prompt && !hole.prompt) return param_wrong_type("prompt", "a string here");
    g->params.timings = true;
    srv_gen_default_tokens(g, ctx);
    g->dialect = srv_request_alloc(g->req, sizeof(struct completion));
    g->prompts = srv_request_alloc(g->req, sizeof(*g->prompts));
    if (!g->dialect || !g->prompts) return param_no_memory();
    g->n_prompts = 1;
    return infill_prompt(g, 0, &hole);
}

static const struct srv_gen_format format = {
    .endpoint = "completions",
    .input = "prompt",
    .id_prefix = "cmpl-",
    .fields = srv_fields_completions,
    .prepare = prepare_openai,
    .answer = &srv_write_completions,
};

static const struct srv_gen_format fim = {
    .endpoint = "infill",
    .input = "prompt",
    .id_prefix = "cmpl-",
    .fields = srv_fields_completions,
    .prepare = prepare_fim,
    .answer = &srv_write_chat,
};

static const struct srv_gen_format native = {
    .endpoint = "completions",
    .input = "prompt",
    .id_prefix = "cmpl-",
    .fields = srv_fields_native,
    .prepare = prepare_native,
    .answer = &srv_write_native,
};

static const struct srv_gen_format infill = {
    .endpoint = "infill",
    .input = "input_prefix",
    .id_prefix = "cmpl-",
    .fields = srv_fields_native,
    .prepare = prepare_infill,
    .answer = &srv_write_native,
};

const struct srv_route srv_routes_completions[] = {
    {"POST", "/v1/completions", SRV_ROUTE_STREAMS | SRV_ROUTE_BARE, SRV_DIALECT_OPENAI,
     srv_gen_handle, &format},
    /* DeepSeek's, with a suffix. */
    {"POST", "/beta/completions", SRV_ROUTE_STREAMS, SRV_DIALECT_OPENAI, srv_gen_handle, &format},
    {"POST", "/v1/fim/completions", SRV_ROUTE_STREAMS | SRV_ROUTE_BARE, SRV_DIALECT_OPENAI,
     srv_gen_handle, &fim},
    {"POST", "/completion", SRV_ROUTE_STREAMS, SRV_DIALECT_OPENAI, srv_gen_handle, &native},
    {"POST", "/infill", SRV_ROUTE_STREAMS, SRV_DIALECT_OPENAI, srv_gen_handle, &infill},
    {0},
};
