/* SPDX-License-Identifier: MIT */
/*
 * POST /v1/embeddings: the mean of the final hidden states over the tokens of each input, scaled to
 * length 1. Language models are not trained for this; the documentation says so.
 *
 * Each input is a prefill-only job; a few run at once. The engine thread writes each vector once
 * and then publishes it; a text worker answers when the last job is done (jobs.h).
 */
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "base/json_writer.h"
#include "server/bounds.h"
#include "server/api/read/generation_fields.h"
#include "server/api/run/jobs.h"
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

struct input {
    int32_t *ids; /* [n_ids] */
    int64_t n_ids;
    float *vector; /* [d_model], written by the engine thread before `finish` */
    atomic_int finish;
};

struct embedding {
    struct srv_request *req;
    const struct srv_model *served;
    json_t *body;
    const char *model, *encoding_format, *model_shown;
    json_t *input;
    int64_t dimensions;
    struct input *inputs;
    int n_inputs;
    bool input_is_list; /* of inputs */
    int64_t n_tokens;
    struct jw w;          /* of the answer */
    int n_written;        /* vectors of it */
    bool in_pieces;       /* srv_reply_in_pieces has been called */
    struct srv_jobs jobs; /* one per input */
};

#define FIELD(name_, type_, member, min_, max_)                                                    \
    {                                                                                              \
        .name = name_, .type = type_, .offset = offsetof(struct embedding, member), .min = min_,   \
        .max = max_                                                                                \
    }

static const struct param_field fields[] = {
    FIELD("model", PARAM_STRING, model, 0, 0),
    FIELD("input", PARAM_JSON, input, 0, 0),
    FIELD("encoding_format", PARAM_STRING, encoding_format, 0, 0),
    FIELD("dimensions", PARAM_INT, dimensions, 1, 1 << 20),
    {.name = "user", .type = PARAM_IGNORED},
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
    int n = eng_info(e->served->engine)->d_model;
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
static bool write_piece(struct embedding *e, struct buf *b)
{
    struct jw *w = &e->w;
    size_t end = b->len + PIECE_BYTES;
    if (e->n_written == 0) {
        jw_init(w, b);
        jw_open(w, NULL, '{');
        jw_text(w, "object", "list");
        jw_open(w, "data", '[');
    }
    w->out = b;
    for (; e->n_written < e->n_inputs; e->n_written++) {
        if (b->len >= end || b->failed) return false;
        jw_open(w, NULL, '{');
        jw_text(w, "object", "embedding");
        jw_int(w, "index", e->n_written);
        write_vector(e, w, e->inputs[e->n_written].vector);
        jw_close(w);
    }
    jw_close(w);
    jw_text(w, "model", e->model_shown);
    jw_open(w, "usage", '{');
    jw_int(w, "prompt_tokens", e->n_tokens);
    jw_int(w, "total_tokens", e->n_tokens);
    jw_close(w);
    jw_close(w);
    jw_end(w);
    return true;
}

/* Returns false while the client is behind. */
static bool succeed(struct embedding *e)
{
    struct srv_account *a = &srv_facts(e->req)->account;
    struct buf b;
    bool last = false, failed = false;
    a->n_prompt_tokens = e->n_tokens;
    a->finish_reason = "stop";
    if ((int64_t)e->n_inputs * width_of(e) * NUMBER_BYTES < SRV_SMALL_ANSWER_BYTES) {
        buf_init(&b, 2 * SRV_SMALL_ANSWER_BYTES);
        while (!write_piece(e, &b) && !b.failed)
            ;
        srv_reply(e->req, 200, NULL, &b);
        return true;
    }
    if (!e->in_pieces) srv_reply_in_pieces(e->req);
    e->in_pieces = true;
    while (!last && !failed) {
        if (!srv_stream_has_room(e->req)) return false;
        buf_init(&b, SRV_STREAM_EVENT_MAX_BYTES);
        last = write_piece(e, &b);
        failed = b.failed;
        if (!failed && !srv_stream_write(e->req, b.data, b.len)) last = true;
        buf_finish(&b);
    }
    if (failed) srv_stream_abort(e->req);
    return true;
}

/* ---- jobs ---------------------------------------------------------------------------------- */

static int describe(void *ctx, int i, struct eng_job_params *p)
{
    struct embedding *e = ctx;
    p->prompt = e->inputs[i].ids;
    p->n_prompt = e->inputs[i].n_ids;
    p->want_embedding = true;
    return 0;
}

static void event(void *ctx, int i, const struct eng_event *ev)
{
    struct embedding *e = ctx;
    struct input *in = &e->inputs[i];
    if (ev->type == ENG_EVENT_EMBEDDING)
        memcpy(in->vector, ev->logits, (size_t)ev->n_logits * sizeof(float));
    if (ev->type == ENG_EVENT_CHOICE_DONE)
        atomic_store_explicit(&in->finish, (int)ev->finish, memory_order_release);
}

static void fail(void *ctx, enum srv_error kind, const char *message)
{
    struct embedding *e = ctx;
    if (e->jobs.n_submitted) srv_facts(e->req)->account.finish_reason = "error";
    srv_reply_error(e->req, kind, NULL, "%s", message);
}

static bool advance(void *ctx)
{
    struct embedding *e = ctx;
    if (srv_jobs_gone(&e->jobs)) return true;
    for (int i = 0; i < e->jobs.n_submitted; i++) {
        int finish = atomic_load_explicit(&e->inputs[i].finish, memory_order_acquire);
        const struct srv_job_failure *failure = srv_jobs_failure(&e->jobs, finish, 0);
        if (!failure) continue;
        fail(e, failure->kind, failure->message);
        return true;
    }
    return srv_jobs_finished(&e->jobs) && succeed(e);
}

static void release(void *ctx)
{
    struct embedding *e = ctx;
    json_decref(e->body);
}

/* ---- request ------------------------------------------------------------------------------- */

static int empty_input(struct param_error *err)
{
    return param_fail(err, SRV_ERR_INVALID_VALUE, "input", "'input' must not be empty.");
}

static int take_ids(struct embedding *e, struct input *in, const int32_t *ids, size_t n,
                    struct param_error *err)
{
    int64_t ctx = eng_info(e->served->engine)->ctx_tokens;
    if (n == 0) return empty_input(err);
    in->n_ids = (int64_t)n;
    if (in->n_ids > ctx)
        return param_fail(err, SRV_ERR_CONTEXT, "input",
                          "This model's maximum context length is %lld tokens. However, an input "
                          "has %zu tokens, so the request exceeds the available context size "
                          "(%lld tokens).",
                          (long long)ctx, n, (long long)ctx);
    e->n_tokens += in->n_ids;
    if (e->n_tokens > MAX_TOKENS)
        return param_fail(err, SRV_ERR_INVALID_VALUE, "input",
                          "'input' holds more than %d tokens; send it in several requests.",
                          MAX_TOKENS);
    in->ids = srv_request_alloc(e->req, n * sizeof(*ids));
    in->vector =
        srv_request_alloc(e->req, (size_t)eng_info(e->served->engine)->d_model * sizeof(float));
    if (!in->ids || !in->vector) return param_no_memory(err);
    memcpy(in->ids, ids, n * sizeof(*ids));
    return 0;
}

static int take_text(struct embedding *e, struct input *in, const json_t *text,
                     struct param_error *err)
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
        rc = take_ids(e, in, ids.ids, ids.n, err);
    tok_ids_finish(&ids);
    return rc ? -1 : 0;
}

/* Of a client that counts tokens itself, by the vocabulary of OpenAI's models. */
static int foreign_id(const struct embedding *e, const struct input *in, size_t place, long long id,
                      struct param_error *err)
{
    char of[24] = "";
    if (e->input_is_list) snprintf(of, sizeof(of), "[%td]", in - e->inputs);
    return param_fail(
        err, SRV_ERR_INVALID_VALUE, "input",
        "input%s[%zu] is token %lld, the model has %d: this client tokenised for "
        "another model. LangChain: OpenAIEmbeddings(check_embedding_ctx_length=False)",
        of, place, id, (int)eng_info(e->served->engine)->vocab_size);
}

static int take_list(struct embedding *e, struct input *in, const json_t *list,
                     struct param_error *err)
{
    size_t n = json_array_size(list);
    int32_t vocab = eng_info(e->served->engine)->vocab_size;
    int32_t *ids = srv_request_alloc(e->req, (n ? n : 1) * sizeof(*ids));
    if (!ids) return param_no_memory(err);
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(list, i);
        if (json_integer_value(id) >= vocab)
            return foreign_id(e, in, i, json_integer_value(id), err);
        if (param_read_id(id, vocab, "input", &ids[i], err)) return -1;
    }
    return take_ids(e, in, ids, n, err);
}

/* They are kept until all are there, so that a late error is still answered as one. */
static int charge_vectors(struct embedding *e, size_t n, struct param_error *err)
{
    const struct eng_info *info = eng_info(e->served->engine);
    int64_t bytes = (int64_t)n * info->d_model * (int64_t)sizeof(float), used;
    if (bytes > info->memory.answer_bytes)
        return param_fail(err, SRV_ERR_TOO_LARGE, "input",
                          "The vectors of %zu inputs take %lld MiB of memory, but this server has "
                          "%lld MiB for all answers; send fewer at once.",
                          n, (long long)(bytes >> 20),
                          (long long)(info->memory.answer_bytes >> 20));
    if (srv_request_charge(e->req, bytes, &used)) return 0;
    return param_fail(err, SRV_ERR_QUEUE_FULL, NULL,
                      "The memory budget of all answers is used up (--answer-memory).");
}

static int read_inputs(struct embedding *e, struct param_error *err)
{
    if (!e->input)
        return param_fail(err, SRV_ERR_MISSING, "input", "The parameter 'input' is required.");
    bool many = json_is_array(e->input) && !json_is_number(json_array_get(e->input, 0));
    e->input_is_list = many;
    size_t n = many ? json_array_size(e->input) : 1;
    if (n == 0 || n > MAX_INPUTS)
        return param_fail(err, SRV_ERR_INVALID_VALUE, "input",
                          "'input' holds %zu inputs; 1 to %d are allowed.", n, MAX_INPUTS);
    e->inputs = srv_request_alloc(e->req, n * sizeof(*e->inputs));
    if (!e->inputs) return param_no_memory(err);
    if (charge_vectors(e, n, err)) return -1;
    for (size_t i = 0; i < n; i++) {
        const json_t *value = many ? json_array_get(e->input, i) : e->input;
        int rc;
        if (json_is_string(value))
            rc = take_text(e, &e->inputs[i], value, err);
        else if (json_is_array(value))
            rc = take_list(e, &e->inputs[i], value, err);
        else
            rc = param_fail(err, SRV_ERR_INVALID_TYPE, "input",
                            "'input' must be a string, an array of strings, or token ids.");
        if (rc) return rc;
        e->n_inputs = (int)i + 1;
    }
    return 0;
}

static int check_options(struct embedding *e, struct param_error *err)
{
    const char *f = e->encoding_format;
    if (f && strcmp(f, "float") && strcmp(f, "base64"))
        return param_fail(err, SRV_ERR_INVALID_VALUE, "encoding_format",
                          "'encoding_format' must be 'float' or 'base64'.");
    if (e->dimensions > eng_info(e->served->engine)->d_model)
        return param_fail(err, SRV_ERR_INVALID_VALUE, "dimensions",
                          "'dimensions' is %lld, but must be at most %d.", (long long)e->dimensions,
                          eng_info(e->served->engine)->d_model);
    e->model_shown = srv_gen_model_name(e->served, e->model, err);
    return e->model_shown ? 0 : -1;
}

static void handle(struct srv_request *req)
{
    static const struct srv_jobs_ops ops = {.describe = describe,
                                            .event = event,
                                            .advance = advance,
                                            .refuse = fail,
                                            .release = release};
    struct param_error err = {0};
    struct param_unknown unknown = {0};
    struct srv_facts *facts = srv_facts(req);
    struct embedding *e = srv_request_alloc(req, sizeof(*e));
    facts->account.endpoint = "embeddings";
    json_t *body = e ? params_parse(facts->body, facts->body_len, MAX_VALUES, &err) : NULL;
    if (!e) param_no_memory(&err);
    if (body) {
        e->req = req;
        e->served = facts->model;
        e->body = body;
        if (!params_read(body, fields, e, &unknown, &err) && !check_options(e, &err) &&
            !read_inputs(e, &err) && !srv_gen_note_ignored(req, &unknown, &err)) {
            srv_jobs_start(&e->jobs, req, e->n_inputs, &ops, e);
            return;
        }
    }
    json_decref(body);
    if (err.kind == SRV_ERR_CONTEXT) /* the input behind those that were read */
        srv_gen_refuse_context(req, &err, e->inputs[e->n_inputs].n_ids, 0);
    else
        param_reply(req, &err);
}

const struct srv_route srv_routes_embeddings[] = {
    {"POST", "/v1/embeddings", 0, handle},
    {"POST", "/embeddings", 0, handle},
    {0},
};
