/* SPDX-License-Identifier: MIT */
/*
 * Vectors of texts, in the dialects of OpenAI, text-embeddings-inference, Cohere, Ollama and
 * llama-server: the same inputs, prompts and cuts under other names.
 *
 * Each input is a prefill-only job; a few run at once (pooled.h). Vectors are what the model's
 * files make of its hidden states; without such files the mean, scaled to length 1.
 */
#include <nettle/base64.h>
#include <string.h>

#include "base/clock.h"
#include "server/api/pooled/pooled.h"
#include "server/api/routes.h"
#include "server/models/served_model.h"

enum { NUMBER_BYTES = 16 }; /* of a vector's text */

enum {
    SCALES = 1, /* vectors get length 1 even if the files do not say so */
    ONE_TEXT = 2
};

struct embedding {
    struct srv_pooled p; /* a row per input */
    const char *encoding_format;
    json_t *normalize, *embedding_types;
    int64_t dimensions, embd_normalize;
    bool base64, scale;
};

#define FIELD(...) PARAM_FIELD(struct embedding, __VA_ARGS__)

const struct param_field srv_fields_embeddings[] = {
    {FIELD("input", PARAM_JSON, p.input, NULL,
           "a text, token ids, or an array of at most 2,048 such inputs")},
    {FIELD("model", PARAM_STRING, p.model, "served model", "as in chat")},
    {FIELD("encoding_format", PARAM_STRING, encoding_format, "`float`",
           "base64: little-endian 32-bit floats")},
    {FIELD("dimensions", PARAM_INT, dimensions, "all", "keep so many, scaled to length 1 again"),
     .min = 1, .max = 1 << 20},
    {FIELD("prompt_name", PARAM_STRING, p.asked.prompt_name, "the model's own",
           "name of a prompt of the model's files, which goes in front of each text")},
    {FIELD("input_type", PARAM_STRING, p.asked.input_type, NULL,
           "`query`, `document` and their spellings: the prompt of that side, if there are any")},
    {FIELD("task", PARAM_STRING, p.asked.task, NULL, "the same, as Jina spells it")},
    {FIELD("instruction", PARAM_STRING, p.asked.instruction, NULL,
           "puts `Instruct: ... Query:` in front, the form of Qwen's models")},
    {FIELD("prompt", PARAM_STRING, p.asked.prompt, NULL, "a text that goes in front of each text")},
    {FIELD("prefix", PARAM_STRING, p.asked.prefix, NULL, "the same")},
    {FIELD("truncate_prompt_tokens", PARAM_INT, p.asked.truncate_prompt_tokens, "none",
           "longer texts are cut to so many tokens; -1: to the model's longest"),
     .min = -1, .max = 1 << 20},
    {FIELD("truncation_side", PARAM_STRING, p.asked.truncation_side, "`right`",
           "`left`: the end is kept")},
    {FIELD("truncate", PARAM_JSON, p.asked.truncate, "the dialect's own",
           "whether longer texts are cut; `NONE`, `START` or `END` as Cohere has it"),
     .also = "truncation"},
    {.name = "user", .type = PARAM_IGNORED, .meaning = "accepted, no effect"},
    /* other dialects */
    {FIELD("inputs", PARAM_JSON, p.input, NULL, NULL)},
    {FIELD("texts", PARAM_JSON, p.input, NULL, NULL)},
    {FIELD("content", PARAM_JSON, p.input, NULL, NULL)},
    {FIELD("normalize", PARAM_JSON, normalize, NULL, NULL)},
    {FIELD("embd_normalize", PARAM_INT, embd_normalize, NULL, NULL), .preset = 2, .min = -1,
     .max = 2},
    {FIELD("output_dimension", PARAM_INT, dimensions, NULL, NULL), .min = 1, .max = 1 << 20},
    {FIELD("truncation_direction", PARAM_STRING, p.asked.truncation_side, NULL, NULL)},
    {FIELD("embedding_types", PARAM_JSON, embedding_types, NULL, NULL)},
    {.name = "keep_alive", .type = PARAM_IGNORED},
    {.name = "options", .type = PARAM_IGNORED},
    {0},
};

/* ---- vectors ------------------------------------------------------------------------------- */

static void write_base64(struct jw *w, const char *name, const uint8_t *data, size_t len)
{
    enum { PIECE = 48 };
    char out[BASE64_ENCODE_RAW_LENGTH(PIECE)];
    jw_string_begin(w, name);
    for (size_t i = 0; i < len; i += PIECE) {
        size_t n = len - i < PIECE ? len - i : PIECE;
        base64_encode_raw(out, n, data + i);
        jw_string_part(w, out, BASE64_ENCODE_RAW_LENGTH(n));
    }
    jw_string_end(w);
}

static int width_of(const struct embedding *e)
{
    int n = e->p.width;
    int64_t asked = e->dimensions ? e->dimensions : e->p.served->retrieval.width;
    return asked && asked < n ? (int)asked : n;
}

static void write_vector(struct srv_pooled *p, struct jw *w, const char *name, int i)
{
    const struct embedding *e = (const struct embedding *)p;
    int n = width_of(e);
    float *v = p->rows[i].values;
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

static void bare_vector(struct srv_pooled *p, struct jw *w, int i)
{
    write_vector(p, w, NULL, i);
}

/* ---- dialects ------------------------------------------------------------------------------ */

static void openai_vector(struct srv_pooled *p, struct jw *w, int i)
{
    jw_fields(w, "{ object %s index %d", "embedding", i);
    write_vector(p, w, "embedding", i);
    jw_close(w);
}

static void openai_end(struct srv_pooled *p, struct jw *w)
{
    jw_fields(w, "} model %s", p->model);
    srv_pooled_write_usage(p, w);
    jw_close(w);
}

static void llama_vector(struct srv_pooled *p, struct jw *w, int i)
{
    jw_fields(w, "{ index %d embedding [", i);
    write_vector(p, w, NULL, i);
    jw_fields(w, "} }");
}

static void cohere_begin(struct srv_pooled *p, struct jw *w)
{
    jw_fields(w, "{ id %s", srv_facts(p->req)->id);
    jw_open(w, p->dialect->list, '{');
    jw_open(w, ((const struct embedding *)p)->base64 ? "base64" : "float", '[');
}

static void cohere_end(struct srv_pooled *p, struct jw *w)
{
    jw_fields(w, "} }");
    srv_pooled_write_meta(w, "input_tokens", p->n_tokens);
    jw_fields(w, "response_type %s }", "embeddings_by_type");
}

static void ollama_end(struct srv_pooled *p, struct jw *w)
{
    uint64_t ns = (clock_now_us() - srv_facts(p->req)->start_us) * 1000;
    jw_fields(w, "} total_duration %jd load_duration %d prompt_eval_count %jd }", (int64_t)ns, 0,
              p->n_tokens);
}

/* Ollama's older route has one vector and no list. */
static void ollama_one_begin(struct srv_pooled *p, struct jw *w)
{
    jw_open(w, NULL, '{');
}

static void ollama_one_vector(struct srv_pooled *p, struct jw *w, int i)
{
    write_vector(p, w, "embedding", i);
}

/* ---- request ------------------------------------------------------------------------------- */

static int set_format(struct embedding *e)
{
    const char *f = e->encoding_format;
    const json_t *types = e->embedding_types, *first = json_array_get(types, 0);
    if (f && strcmp(f, "float") && strcmp(f, "base64"))
        return param_fail(SRV_ERR_INVALID_VALUE, "encoding_format",
                          "'encoding_format' must be 'float' or 'base64'.");
    if (types && json_array_size(types) == 1) f = json_string_value(first);
    if (types && (!f || (strcmp(f, "float") && strcmp(f, "base64"))))
        return param_fail(
            SRV_ERR_INVALID_VALUE, "embedding_types",
            "'embedding_types' must be [\"float\"] or [\"base64\"]; other types are not "
            "supported.");
    e->base64 = f && !strcmp(f, "base64");
    if (e->embd_normalize != -1 && e->embd_normalize != 2)
        return param_fail(SRV_ERR_UNSUPPORTED, "embd_normalize",
                          "'embd_normalize' is %lld; only 2 (to length 1) and -1 (none) are "
                          "supported.",
                          (long long)e->embd_normalize);
    e->scale = e->p.served->retrieval.normalised || (e->p.dialect->flags & SCALES);
    if (e->normalize) e->scale = json_is_true(e->normalize);
    if (e->embd_normalize == -1) e->scale = false;
    return 0;
}

static int check(struct srv_pooled *p)
{
    struct embedding *e = (struct embedding *)p;
    char message[200];
    if (p->dialect->flags & ONE_TEXT) p->asked.prompt = NULL; /* its "prompt" is the text */
    if (p->info->n_labels > 0)
        return param_fail(SRV_ERR_UNSUPPORTED_TASK, "model",
                          "This model gives scores of labels and no vectors; ask /v1/rerank, "
                          "/v1/score or /v1/classify.");
    if (srv_retrieval_check_dimensions(&p->served->retrieval, e->dimensions, p->info->pooled_width,
                                       message, sizeof(message)))
        return param_fail(SRV_ERR_INVALID_VALUE, "dimensions", "%s", message);
    return set_format(e);
}

static int open_texts(struct srv_pooled *p)
{
    if (texts_open(p, p->info->pooled_width)) return -1;
    p->answer_bytes = (size_t)p->n_max * (size_t)width_of((struct embedding *)p) * NUMBER_BYTES;
    return 0;
}

static void describe(struct srv_pooled *p, int i, struct eng_job_params *job)
{
    job->want_pooled = true;
    job->n_unpooled = p->rules.n_unpooled < job->n_prompt ? p->rules.n_unpooled : 0;
}

static const struct pooled_endpoint embeddings = {
    .name = "embeddings",
    .bytes = sizeof(struct embedding),
    .fields = srv_fields_embeddings,
    .in_pieces = true,
    .check = check,
    .open = open_texts,
    .add = texts_add,
    .describe = describe,
};

#define DIALECT(name, ...) static const struct pooled_dialect name = {&embeddings, __VA_ARGS__}

DIALECT(openai, "input", TEXTS_REFUSE, POOLED_NO_ID | POOLED_NO_MODEL, "data", openai_vector, NULL,
        openai_end);
DIALECT(tei, "inputs", TEXTS_REFUSE, SCALES, NULL, bare_vector, NULL, NULL);
DIALECT(llama, "content", TEXTS_REFUSE, SCALES, NULL, llama_vector, NULL, NULL);
DIALECT(cohere, "texts", TEXTS_KEEP_FIRST, 0, "embeddings", bare_vector, cohere_begin, cohere_end);
DIALECT(ollama, "input", TEXTS_KEEP_FIRST, SCALES | POOLED_NO_ID | POOLED_NO_OBJECT, "embeddings",
        bare_vector, NULL, ollama_end);
DIALECT(ollama_one, "prompt", TEXTS_KEEP_FIRST, ONE_TEXT, NULL, ollama_one_vector, ollama_one_begin,
        NULL);

const struct srv_route srv_routes_embeddings[] = {
    {"POST", "/v1/embeddings", SRV_ROUTE_BARE, SRV_DIALECT_OPENAI, srv_pooled_handle, &openai},
    {"POST", "/embed", 0, SRV_DIALECT_TEI, srv_pooled_handle, &tei},
    {"POST", "/", 0, SRV_DIALECT_TEI, srv_pooled_handle, &tei},
    {"POST", "/embedding", 0, SRV_DIALECT_OPENAI, srv_pooled_handle, &llama},
    {"POST", "/v2/embed", 0, SRV_DIALECT_COHERE, srv_pooled_handle, &cohere},
    {"POST", "/api/embed", 0, SRV_DIALECT_OLLAMA, srv_pooled_handle, &ollama},
    {"POST", "/api/embeddings", 0, SRV_DIALECT_OLLAMA, srv_pooled_handle, &ollama_one},
    {0},
};
