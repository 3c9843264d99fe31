/* SPDX-License-Identifier: MIT */
/*
 * Vectors of texts, in the dialects of OpenAI, text-embeddings-inference, Cohere, Ollama,
 * llama-server and vLLM: the same inputs, prompts and cuts under other names.
 *
 * Each input is a prefill-only job; a few run at once (pooled.h). Vectors are what the model's
 * files make of its hidden states; without such files the mean, scaled to length 1.
 */
#include <string.h>

#include "base/clock.h"
#include "base/json_writer.h"
#include "server/api/read/body.h"
#include "server/api/read/generation_fields.h"
#include "server/api/pooled/texts.h"
#include "server/api/routes.h"
#include "server/api/run/pooled.h"
#include "server/bounds.h"
#include "server/http/pieces.h"
#include "server/models/served_model.h"

enum {
    NUMBER_BYTES = 16,     /* of a vector's text */
    PIECE_BYTES = 16 << 10 /* of a long answer; one vector may be longer */
};

struct embedding;

/* The differences between the dialects. */
struct dialect {
    const char *input; /* the field that holds the texts */
    enum texts_cut cut;
    bool scales; /* vectors get length 1 even if the files do not say so */
    bool one;    /* text only */
    void (*begin)(struct embedding *e, struct jw *w);
    void (*vector)(struct embedding *e, struct jw *w, int i);
    void (*end)(struct embedding *e, struct jw *w);
};

struct embedding {
    const struct dialect *dialect;
    const struct srv_model *served;
    struct srv_body body;
    const char *model, *encoding_format, *model_shown;
    json_t *input, *other_input, *normalize, *embedding_types;
    int64_t dimensions, embd_normalize;
    struct texts_fields asked;
    struct texts_rules rules;
    bool base64, scale;
    bool many;     /* the input is a list of inputs */
    struct jw w;   /* of the answer */
    int n_written; /* vectors of it */
    struct srv_pieces pieces;
    struct srv_pooled pooled; /* a row per input */
};

#define FIELD(name_, type_, member, otherwise_, meaning_)                                          \
    .name = name_, .type = type_, .offset = offsetof(struct embedding, member),                    \
    .otherwise = otherwise_, .meaning = meaning_

const struct param_field srv_fields_embeddings[] = {
    {FIELD("input", PARAM_JSON, input, NULL,
           "a text, token ids, or an array of at most 2,048 such inputs")},
    {FIELD("model", PARAM_STRING, model, "served model", "as in chat")},
    {FIELD("encoding_format", PARAM_STRING, encoding_format, "`float`",
           "base64: little-endian 32-bit floats")},
    {FIELD("dimensions", PARAM_INT, dimensions, "all", "keep so many, scaled to length 1 again"),
     .min = 1, .max = 1 << 20},
    {FIELD("prompt_name", PARAM_STRING, asked.prompt_name, "the model's own",
           "name of a prompt of the model's files, which goes in front of each text")},
    {FIELD("input_type", PARAM_STRING, asked.input_type, NULL,
           "`query`, `document` and their spellings: the prompt of that side, if there are any")},
    {FIELD("task", PARAM_STRING, asked.task, NULL, "the same, as Jina spells it")},
    {FIELD("instruction", PARAM_STRING, asked.instruction, NULL,
           "puts `Instruct: ... Query:` in front, the form of Qwen's models")},
    {FIELD("prompt", PARAM_STRING, asked.prompt, NULL, "a text that goes in front of each text")},
    {FIELD("prefix", PARAM_STRING, asked.prefix, NULL, "the same")},
    {FIELD("truncate_prompt_tokens", PARAM_INT, asked.truncate_prompt_tokens, "none",
           "longer texts are cut to so many tokens; -1: to the model's longest"),
     .min = -1, .max = 1 << 20},
    {FIELD("truncation_side", PARAM_STRING, asked.truncation_side, "`right`",
           "`left`: the end is kept")},
    {FIELD("truncate", PARAM_JSON, asked.truncate, "the dialect's own",
           "whether longer texts are cut; `NONE`, `START` or `END` as Cohere has it"),
     .also = "truncation"},
    {.name = "user", .type = PARAM_IGNORED, .meaning = "accepted, no effect"},
    /* other dialects */
    {.name = "inputs", .type = PARAM_JSON, .offset = offsetof(struct embedding, other_input)},
    {.name = "texts", .type = PARAM_JSON, .offset = offsetof(struct embedding, other_input)},
    {.name = "content", .type = PARAM_JSON, .offset = offsetof(struct embedding, other_input)},
    {.name = "normalize", .type = PARAM_JSON, .offset = offsetof(struct embedding, normalize)},
    {.name = "embd_normalize",
     .type = PARAM_INT,
     .preset = 2,
     .min = -1,
     .max = 2,
     .offset = offsetof(struct embedding, embd_normalize)},
    {.name = "output_dimension",
     .type = PARAM_INT,
     .min = 1,
     .max = 1 << 20,
     .offset = offsetof(struct embedding, dimensions)},
    {.name = "truncation_direction",
     .type = PARAM_STRING,
     .offset = offsetof(struct embedding, asked.truncation_side)},
    {.name = "embedding_types",
     .type = PARAM_JSON,
     .offset = offsetof(struct embedding, embedding_types)},
    {.name = "keep_alive", .type = PARAM_IGNORED},
    {.name = "options", .type = PARAM_IGNORED},
    {0},
};

/* ---- vectors ------------------------------------------------------------------------------- */

static void write_base64(struct jw *w, const char *name, const uint8_t *data, size_t len)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    jw_string_begin(w, name);
    for (size_t i = 0; i < len; i += 3) {
        size_t left = len - i;
        uint32_t v = (uint32_t)data[i] << 16 | (left > 1 ? (uint32_t)data[i + 1] << 8 : 0) |
                     (left > 2 ? data[i + 2] : 0);
        char out[4] = {digits[v >> 18], digits[v >> 12 & 63], left > 1 ? digits[v >> 6 & 63] : '=',
                       left > 2 ? digits[v & 63] : '='};
        jw_string_part(w, out, sizeof(out));
    }
    jw_string_end(w);
}

static int width_of(const struct embedding *e)
{
    int n = eng_info(e->served->engine)->pooled_width;
    int64_t asked = e->dimensions ? e->dimensions : e->served->retrieval.width;
    return asked && asked < n ? (int)asked : n;
}

static void write_vector(struct embedding *e, struct jw *w, const char *name, int i)
{
    int n = width_of(e);
    float *v = e->pooled.rows[i].values;
    if (e->scale) srv_retrieval_scale(v, n);
    if (e->base64) {
        /* Little-endian float32, which is the byte order of all supported machines. */
        write_base64(w, name, (const uint8_t *)v, (size_t)n * sizeof(float));
        return;
    }
    jw_open(w, name, '[');
    for (int k = 0; k < n; k++)
        jw_number(w, NULL, v[k]);
    jw_close(w);
}

/* ---- dialects ------------------------------------------------------------------------------ */

static void write_usage(struct embedding *e, struct jw *w)
{
    jw_text(w, "model", e->model_shown);
    jw_open(w, "usage", '{');
    jw_int(w, "prompt_tokens", e->pooled.n_tokens);
    jw_int(w, "total_tokens", e->pooled.n_tokens);
    jw_close(w);
    jw_close(w);
}

static void openai_begin(struct embedding *e, struct jw *w)
{
    jw_open(w, NULL, '{');
    jw_text(w, "object", "list");
    jw_open(w, "data", '[');
}

static void openai_vector(struct embedding *e, struct jw *w, int i)
{
    jw_open(w, NULL, '{');
    jw_text(w, "object", "embedding");
    jw_int(w, "index", i);
    write_vector(e, w, "embedding", i);
    jw_close(w);
}

static void openai_end(struct embedding *e, struct jw *w)
{
    jw_close(w);
    write_usage(e, w);
}

static void pooling_vector(struct embedding *e, struct jw *w, int i)
{
    jw_open(w, NULL, '{');
    jw_int(w, "index", i);
    jw_text(w, "object", "pooling");
    write_vector(e, w, "data", i);
    jw_close(w);
}

static void bare_begin(struct embedding *e, struct jw *w)
{
    jw_open(w, NULL, '[');
}

static void bare_vector(struct embedding *e, struct jw *w, int i)
{
    write_vector(e, w, NULL, i);
}

static void bare_end(struct embedding *e, struct jw *w)
{
    jw_close(w);
}

static void llama_vector(struct embedding *e, struct jw *w, int i)
{
    jw_open(w, NULL, '{');
    jw_int(w, "index", i);
    jw_open(w, "embedding", '[');
    write_vector(e, w, NULL, i);
    jw_close(w);
    jw_close(w);
}

static void cohere_begin(struct embedding *e, struct jw *w)
{
    jw_open(w, NULL, '{');
    jw_text(w, "id", srv_facts(e->pooled.req)->id);
    jw_open(w, "embeddings", '{');
    jw_open(w, e->base64 ? "base64" : "float", '[');
}

static void cohere_end(struct embedding *e, struct jw *w)
{
    jw_close(w);
    jw_close(w);
    jw_open(w, "meta", '{');
    jw_open(w, "api_version", '{');
    jw_text(w, "version", "2");
    jw_close(w);
    jw_open(w, "billed_units", '{');
    jw_int(w, "input_tokens", e->pooled.n_tokens);
    jw_close(w);
    jw_close(w);
    jw_text(w, "response_type", "embeddings_by_type");
    jw_close(w);
}

static void ollama_begin(struct embedding *e, struct jw *w)
{
    jw_open(w, NULL, '{');
    jw_text(w, "model", e->model_shown);
    jw_open(w, "embeddings", '[');
}

static void ollama_end(struct embedding *e, struct jw *w)
{
    uint64_t ns = (clock_now_us() - srv_facts(e->pooled.req)->start_us) * 1000;
    jw_close(w);
    jw_int(w, "total_duration", (int64_t)ns);
    jw_int(w, "load_duration", 0);
    jw_int(w, "prompt_eval_count", e->pooled.n_tokens);
    jw_close(w);
}

static void ollama_one_begin(struct embedding *e, struct jw *w)
{
    jw_open(w, NULL, '{');
}

static void ollama_one_vector(struct embedding *e, struct jw *w, int i)
{
    write_vector(e, w, "embedding", i);
}

static const struct dialect openai = {"input",      TEXTS_REFUSE,  false,     false,
                                      openai_begin, openai_vector, openai_end};
static const struct dialect pooling = {"input",      TEXTS_REFUSE,   false,     false,
                                       openai_begin, pooling_vector, openai_end};
static const struct dialect tei = {"inputs",   TEXTS_REFUSE, true,    false,
                                   bare_begin, bare_vector,  bare_end};
static const struct dialect llama = {"content",  TEXTS_REFUSE, true,    false,
                                     bare_begin, llama_vector, bare_end};
static const struct dialect cohere = {"texts",      TEXTS_KEEP_FIRST, false,     false,
                                      cohere_begin, bare_vector,      cohere_end};
static const struct dialect ollama = {"input",      TEXTS_KEEP_FIRST, true,      false,
                                      ollama_begin, bare_vector,      ollama_end};
static const struct dialect ollama_one = {"prompt",         TEXTS_KEEP_FIRST,  false,   true,
                                          ollama_one_begin, ollama_one_vector, bare_end};

/* ---- answer -------------------------------------------------------------------------------- */

/* Appends the next piece of the answer; returns true if that was the last. */
static bool write_piece(void *ctx, struct buf *b)
{
    struct embedding *e = ctx;
    struct jw *w = &e->w;
    size_t end = b->len + PIECE_BYTES;
    if (e->n_written == 0) {
        jw_init(w, b);
        e->dialect->begin(e, w);
    }
    w->out = b;
    for (; e->n_written < e->pooled.n; e->n_written++) {
        if (b->len >= end || b->failed) return false;
        e->dialect->vector(e, w, e->n_written);
    }
    e->dialect->end(e, w);
    jw_end(w);
    return true;
}

static int add(void *ctx, int i, struct param_error *err)
{
    struct embedding *e = ctx;
    char path[PARAM_PATH_MAX];
    snprintf(path, sizeof(path), e->many ? "%s[%d]" : "%s", e->dialect->input, i);
    return texts_add(&e->pooled, &e->rules,
                     e->many ? json_array_get(e->input, (size_t)i) : e->input, path, err);
}

static void describe(void *ctx, struct eng_job_params *p)
{
    const struct embedding *e = ctx;
    p->want_pooled = true;
    p->n_unpooled = e->rules.n_unpooled < p->n_prompt ? e->rules.n_unpooled : 0;
}

static bool answer(void *ctx)
{
    struct embedding *e = ctx;
    struct srv_pieces whole = {.write = write_piece, .ctx = e};
    if ((int64_t)e->pooled.n * width_of(e) * NUMBER_BYTES >= SRV_SMALL_ANSWER_BYTES)
        return srv_pieces_reply(e->pooled.req, &e->pieces);
    whole.max_bytes = 2 * SRV_SMALL_ANSWER_BYTES;
    srv_pieces_reply_whole(e->pooled.req, &whole);
    return true;
}

static void release(void *ctx)
{
    struct embedding *e = ctx;
    srv_body_finish(&e->body);
}

/* ---- request ------------------------------------------------------------------------------- */

static int check_dimensions(const struct embedding *e, struct param_error *err)
{
    char message[200];
    if (!srv_retrieval_check_dimensions(&e->served->retrieval, e->dimensions,
                                        eng_info(e->served->engine)->pooled_width, message,
                                        sizeof(message)))
        return 0;
    return param_fail(err, SRV_ERR_INVALID_VALUE, "dimensions", "%s", message);
}

static int set_format(struct embedding *e, struct param_error *err)
{
    const char *f = e->encoding_format;
    const json_t *types = e->embedding_types, *first = json_array_get(types, 0);
    if (f && strcmp(f, "float") && strcmp(f, "base64"))
        return param_fail(err, SRV_ERR_INVALID_VALUE, "encoding_format",
                          "'encoding_format' must be 'float' or 'base64'.");
    if (types && json_array_size(types) == 1) f = json_string_value(first);
    if (types && (!f || (strcmp(f, "float") && strcmp(f, "base64"))))
        return param_fail(
            err, SRV_ERR_INVALID_VALUE, "embedding_types",
            "'embedding_types' must be [\"float\"] or [\"base64\"]; other types are not "
            "supported.");
    e->base64 = f && !strcmp(f, "base64");
    if (e->embd_normalize != -1 && e->embd_normalize != 2)
        return param_fail(err, SRV_ERR_UNSUPPORTED, "embd_normalize",
                          "'embd_normalize' is %lld; only 2 (to length 1) and -1 (none) are "
                          "supported.",
                          (long long)e->embd_normalize);
    e->scale = e->served->retrieval.normalised || e->dialect->scales;
    if (e->normalize) e->scale = json_is_true(e->normalize);
    if (e->embd_normalize == -1) e->scale = false;
    return 0;
}

static int check_options(struct embedding *e, struct srv_request *req,
                         struct param_unknown *unknown, struct param_error *err)
{
    if (eng_info(e->served->engine)->n_labels > 0)
        return param_fail(err, SRV_ERR_UNSUPPORTED_TASK, "model",
                          "This model gives scores of labels and no vectors; ask /v1/rerank, "
                          "/v1/score or /v1/classify.");
    if (check_dimensions(e, err) || set_format(e, err)) return -1;
    e->rules.cut = e->dialect->cut;
    if (texts_rules_set(&e->rules, &e->asked, req, unknown, err)) return -1;
    e->model_shown = srv_gen_model_name(e->served, e->model, err);
    return e->model_shown ? 0 : -1;
}

static int read_inputs(struct embedding *e, struct srv_request *req, struct param_error *err)
{
    const char *field = e->dialect->input;
    if (!e->input) e->input = e->other_input;
    if (!e->input) return param_missing(e->body.root, field, err);
    e->many = json_is_array(e->input) && !json_is_number(json_array_get(e->input, 0));
    size_t n = e->many ? json_array_size(e->input) : 1;
    if (n == 0 || n > TEXTS_MAX_INPUTS)
        return param_fail(err, SRV_ERR_INVALID_VALUE, field,
                          "'%s' holds %zu inputs; 1 to %d are allowed.", field, n,
                          TEXTS_MAX_INPUTS);
    int width = eng_info(e->served->engine)->pooled_width;
    if (srv_pooled_open(&e->pooled, req, field, n, width, err)) return -1;
    return texts_check_joined(&e->pooled, n * e->rules.prompt_len, err);
}

static int read_body(struct embedding *e, struct srv_request *req, struct param_error *err)
{
    const struct srv_facts *facts = srv_facts(req);
    struct param_unknown unknown = {0};
    e->served = facts->model;
    e->pieces = (struct srv_pieces){write_piece, e, SRV_STREAM_EVENT_MAX_BYTES, false};
    params_preset(srv_fields_embeddings, e);
    if (srv_body_read(&e->body, facts->body, facts->body_len, TEXTS_MAX_VALUES, err) ||
        params_read(e->body.root, srv_fields_embeddings, e, &unknown, err))
        return -1;
    if (e->dialect->one) /* its "prompt" is the text */
        e->other_input = json_object_get(e->body.root, "prompt"), e->asked.prompt = NULL;
    if (check_options(e, req, &unknown, err) || read_inputs(e, req, err)) return -1;
    return param_name_ignored(req, &unknown, err);
}

static void handle(struct srv_request *req, const struct dialect *dialect)
{
    static const struct srv_pooled_ops ops = {add, describe, answer, release};
    struct param_error err = {0};
    struct embedding *e = srv_request_alloc(req, sizeof(*e));
    srv_facts(req)->account.endpoint = "embeddings";
    if (e) e->dialect = dialect;
    if (e && !read_body(e, req, &err)) {
        srv_pooled_start(&e->pooled, &ops, e);
        return;
    }
    if (!e) param_no_memory(&err);
    if (e) srv_body_finish(&e->body);
    param_reply(req, &err);
}

static void handle_openai(struct srv_request *req)
{
    handle(req, &openai);
}

static void handle_pooling(struct srv_request *req)
{
    handle(req, &pooling);
}

static void handle_tei(struct srv_request *req)
{
    handle(req, &tei);
}

static void handle_llama(struct srv_request *req)
{
    handle(req, &llama);
}

static void handle_cohere(struct srv_request *req)
{
    handle(req, &cohere);
}

static void handle_ollama(struct srv_request *req)
{
    handle(req, &ollama);
}

static void handle_ollama_one(struct srv_request *req)
{
    handle(req, &ollama_one);
}

const struct srv_route srv_routes_embeddings[] = {
    {"POST", "/v1/embeddings", SRV_ROUTE_BARE, SRV_DIALECT_OPENAI, handle_openai, NULL},
    {"POST", "/pooling", 0, SRV_DIALECT_OPENAI, handle_pooling, NULL},
    {"POST", "/embed", 0, SRV_DIALECT_TEI, handle_tei, NULL},
    {"POST", "/", 0, SRV_DIALECT_TEI, handle_tei, NULL},
    {"POST", "/embedding", 0, SRV_DIALECT_OPENAI, handle_llama, NULL},
    {"POST", "/v2/embed", 0, SRV_DIALECT_COHERE, handle_cohere, NULL},
    {"POST", "/cohere/v2/embed", 0, SRV_DIALECT_COHERE, handle_cohere, NULL},
    {"POST", "/api/embed", 0, SRV_DIALECT_OLLAMA, handle_ollama, NULL},
    {"POST", "/api/embeddings", 0, SRV_DIALECT_OLLAMA, handle_ollama_one, NULL},
    {0},
};
