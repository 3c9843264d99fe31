/* SPDX-License-Identifier: MIT */
/*
 * POST /v1/embeddings: the mean of the final hidden states over the tokens of each input, scaled to
 * length 1. Language models are not trained for this; the documentation says so.
 *
 * Each input is a prefill-only job; a few run at once. The engine thread writes each vector once
 * and then publishes it; a text worker answers when the last job is done (jobs.h).
 */
#include <math.h>
#include <string.h>

#include "base/json_writer.h"
#include "server/bounds.h"
#include "server/api/read/generation_fields.h"
#include "server/api/run/pooled.h"
#include "server/http/pieces.h"
#include "server/api/routes.h"
#include "tokenizer/tokenizer.h"

/* As many inputs and tokens as OpenAI takes; values: those of token ids, and room for the rest. */
enum {
    MAX_INPUTS = 2048,
    MAX_TOKENS = 300000,
    MAX_VALUES = 320000,
    NUMBER_BYTES = 16,     /* of a vector's text */
    PIECE_BYTES = 16 << 10 /* of a long answer; one vector may be longer */
};

struct embedding {
    const struct srv_model *served;
    struct srv_body body;
    const char *model, *encoding_format, *model_shown;
    json_t *input;
    int64_t dimensions;
    bool input_is_list; /* of inputs */
    struct jw w;        /* of the answer */
    int n_written;      /* vectors of it */
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
    {.name = "user", .type = PARAM_IGNORED, .meaning = "accepted, no effect"},
    {0},
};

/* ---- answer -------------------------------------------------------------------------------- */

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

static void normalise(float *v, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += (double)v[i] * v[i];
    double scale = sum > 0 ? 1 / sqrt(sum) : 0;
    for (int i = 0; i < n; i++)
        v[i] = (float)(v[i] * scale);
}

static int width_of(const struct embedding *e)
{
    int n = eng_info(e->served->engine)->pooled_width;
    return e->dimensions && e->dimensions < n ? (int)e->dimensions : n;
}

static void write_vector(const struct embedding *e, struct jw *w, float *v)
{
    int n = width_of(e);
    normalise(v, n);
    if (e->encoding_format && !strcmp(e->encoding_format, "base64")) {
        /* Little-endian float32, which is the byte order of all supported machines. */
        write_base64(w, "embedding", (const uint8_t *)v, (size_t)n * sizeof(float));
        return;
    }
    jw_open(w, "embedding", '[');
    for (int i = 0; i < n; i++)
        jw_number(w, NULL, v[i]);
    jw_close(w);
}

/* Appends the next piece of the answer; returns true if that was the last. */
static bool write_piece(void *ctx, struct buf *b)
{
    struct embedding *e = ctx;
    struct jw *w = &e->w;
    size_t end = b->len + PIECE_BYTES;
    if (e->n_written == 0) {
        jw_init(w, b);
        jw_open(w, NULL, '{');
        jw_text(w, "object", "list");
        jw_open(w, "data", '[');
    }
    w->out = b;
    for (; e->n_written < e->pooled.n; e->n_written++) {
        if (b->len >= end || b->failed) return false;
        jw_open(w, NULL, '{');
        jw_text(w, "object", "embedding");
        jw_int(w, "index", e->n_written);
        write_vector(e, w, e->pooled.rows[e->n_written].values);
        jw_close(w);
    }
    jw_close(w);
    jw_text(w, "model", e->model_shown);
    jw_open(w, "usage", '{');
    jw_int(w, "prompt_tokens", e->pooled.n_tokens);
    jw_int(w, "total_tokens", e->pooled.n_tokens);
    jw_close(w);
    jw_close(w);
    jw_end(w);
    return true;
}

/* ---- jobs ---------------------------------------------------------------------------------- */

static void describe(void *ctx, struct eng_job_params *p)
{
    p->want_pooled = true;
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

static int empty_input(struct param_error *err)
{
    return param_fail(err, SRV_ERR_INVALID_VALUE, "input", "'input' must not be empty.");
}

static int take_ids(struct embedding *e, const int32_t *ids, size_t n, struct param_error *err)
{
    if (n == 0) return empty_input(err);
    if (srv_pooled_add(&e->pooled, ids, n, err)) return -1;
    if (e->pooled.n_tokens > MAX_TOKENS)
        return param_fail(err, SRV_ERR_INVALID_VALUE, "input",
                          "'input' holds more than %d tokens; send it in several requests.",
                          MAX_TOKENS);
    return 0;
}

static int take_text(struct embedding *e, const json_t *text, struct param_error *err)
{
    struct tok_ids ids = {0};
    char message[200] = "";
    if (json_string_length(text) == 0) return empty_input(err); /* a BOS token alone says nothing */
    int rc = tok_encode(e->served->tok, json_string_value(text), json_string_length(text),
                        TOK_ADD_SPECIAL | TOK_PARSE_SPECIAL, &ids, message, sizeof(message));
    if (rc)
        param_fail(err, rc == TOK_ENOMEM ? SRV_ERR_OVERLOADED : SRV_ERR_INVALID_VALUE, "input",
                   "%s", message);
    else
        rc = take_ids(e, ids.ids, ids.n, err);
    tok_ids_finish(&ids);
    return rc ? -1 : 0;
}

/* Of a client that counts tokens itself, by the vocabulary of OpenAI's models. */
static int foreign_id(const struct embedding *e, size_t place, long long id,
                      struct param_error *err)
{
    char of[24] = "";
    if (e->input_is_list) snprintf(of, sizeof(of), "[%d]", e->pooled.n);
    return param_fail(
        err, SRV_ERR_INVALID_VALUE, "input",
        "input%s[%zu] is token %lld, the model has %d: this client tokenised for "
        "another model. LangChain: OpenAIEmbeddings(check_embedding_ctx_length=False)",
        of, place, id, (int)eng_info(e->served->engine)->vocab_size);
}

static int take_list(struct embedding *e, const json_t *list, struct param_error *err)
{
    size_t n = json_array_size(list);
    int32_t vocab = eng_info(e->served->engine)->vocab_size;
    int32_t *ids = srv_request_alloc(e->pooled.req, (n ? n : 1) * sizeof(*ids));
    if (!ids) return param_no_memory(err);
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(list, i);
        if (json_integer_value(id) >= vocab) return foreign_id(e, i, json_integer_value(id), err);
        if (param_read_id(id, vocab, "input", &ids[i], err)) return -1;
    }
    return take_ids(e, ids, n, err);
}

static int read_inputs(struct embedding *e, struct srv_request *req, struct param_error *err)
{
    if (!e->input)
        return param_fail(err, SRV_ERR_MISSING, "input", "The parameter 'input' is required.");
    bool many = json_is_array(e->input) && !json_is_number(json_array_get(e->input, 0));
    e->input_is_list = many;
    size_t n = many ? json_array_size(e->input) : 1;
    if (n == 0 || n > MAX_INPUTS)
        return param_fail(err, SRV_ERR_INVALID_VALUE, "input",
                          "'input' holds %zu inputs; 1 to %d are allowed.", n, MAX_INPUTS);
    int width = eng_info(e->served->engine)->pooled_width;
    if (srv_pooled_open(&e->pooled, req, "input", n, width, err)) return -1;
    for (size_t i = 0; i < n; i++) {
        const json_t *value = many ? json_array_get(e->input, i) : e->input;
        int rc;
        if (json_is_string(value))
            rc = take_text(e, value, err);
        else if (json_is_array(value))
            rc = take_list(e, value, err);
        else
            rc = param_fail(err, SRV_ERR_INVALID_TYPE, "input",
                            "'input' must be a string, an array of strings, or token ids.");
        if (rc) return rc;
    }
    return 0;
}

static int check_options(struct embedding *e, struct param_error *err)
{
    const char *f = e->encoding_format;
    if (f && strcmp(f, "float") && strcmp(f, "base64"))
        return param_fail(err, SRV_ERR_INVALID_VALUE, "encoding_format",
                          "'encoding_format' must be 'float' or 'base64'.");
    if (e->dimensions > eng_info(e->served->engine)->pooled_width)
        return param_fail(err, SRV_ERR_INVALID_VALUE, "dimensions",
                          "'dimensions' is %lld, but must be at most %d.", (long long)e->dimensions,
                          eng_info(e->served->engine)->pooled_width);
    e->model_shown = srv_gen_model_name(e->served, e->model, err);
    return e->model_shown ? 0 : -1;
}

static void handle(struct srv_request *req)
{
    static const struct srv_pooled_ops ops = {describe, answer, release};
    struct param_error err = {0};
    struct param_unknown unknown = {0};
    struct srv_facts *facts = srv_facts(req);
    struct embedding *e = srv_request_alloc(req, sizeof(*e));
    facts->account.endpoint = "embeddings";
    if (!e) {
        param_no_memory(&err);
        param_reply(req, &err);
        return;
    }
    e->served = facts->model;
    e->pieces = (struct srv_pieces){write_piece, e, SRV_STREAM_EVENT_MAX_BYTES, false};
    if (!srv_body_read(&e->body, facts->body, facts->body_len, MAX_VALUES, &err) &&
        !params_read(e->body.root, srv_fields_embeddings, e, &unknown, &err) &&
        !check_options(e, &err) && !read_inputs(e, req, &err) &&
        !srv_gen_note_ignored(req, &unknown, &err)) {
        srv_pooled_start(&e->pooled, &ops, e);
        return;
    }
    srv_body_finish(&e->body);
    if (err.kind == SRV_ERR_CONTEXT) /* the input behind those that were read */
        srv_gen_refuse_context(req, &err, e->pooled.rows[e->pooled.n].n_ids, 0);
    else
        param_reply(req, &err);
}

const struct srv_route srv_routes_embeddings[] = {
    {"POST", "/v1/embeddings", 0, handle},
    {"POST", "/embeddings", 0, handle},
    {0},
};
