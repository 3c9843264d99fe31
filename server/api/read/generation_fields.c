/* SPDX-License-Identifier: MIT */
/*
 * The common fields of generation requests: their table, their limits, and the sampling chain they
 * make. Called on text workers, once for each request.
 */
#include "server/api/read/generation_fields.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "server/config/config.h"

enum { MAX_BIAS = 1024, MAX_STOP_IDS = 64, MAX_FIELDS = 128, MAX_CACHE_KEY = 64, CLIP = 64 };

/* The reading of one body. */
struct reading {
    struct srv_request *req;
    const struct srv_model *served;
    json_t *body;
    struct srv_gen_params *p;
};

#define INT_LIMIT 9007199254740992.0 /* 2^53: a double holds all integers up to here exactly */

#define FIELD_float PARAM_NUMBER
#define FIELD_int PARAM_INT
#define SAMPLING_FIELD(name, type, least, most, neutral, also, ...)                                \
    {#name, FIELD_##type, offsetof(struct srv_gen_params, given.name), least, most, also},

static const struct param_field common_fields[] = {
    GEN_FIELD("model", PARAM_STRING, model),
    GEN_FIELD("stream", PARAM_BOOL, stream),
    GEN_FIELD("stream_options", PARAM_JSON, stream_options),
    ENG_SAMPLING_PARAMS(SAMPLING_FIELD)
        GEN_RANGE("seed", PARAM_INT, seed, -9223372036854775808.0, 9223372036854775807.0),
    GEN_RANGE("n", PARAM_INT, n, 1, GEN_MAX_CHOICES),
    GEN_RANGE("max_tokens", PARAM_INT, max_tokens, 0, INT_LIMIT),
    GEN_RANGE("max_completion_tokens", PARAM_INT, max_completion_tokens, 0, INT_LIMIT),
    GEN_RANGE("n_predict", PARAM_INT, n_predict, -1, INT_LIMIT),
    GEN_RANGE("min_tokens", PARAM_INT, min_tokens, 0, INT_LIMIT),
    GEN_FIELD("stop", PARAM_JSON, stop),
    GEN_FIELD("stop_token_ids", PARAM_JSON, stop_token_ids),
    GEN_FIELD("include_stop_str_in_output", PARAM_BOOL, include_stop),
    GEN_FIELD("skip_special_tokens", PARAM_BOOL, skip_special),
    GEN_FIELD("ignore_eos", PARAM_BOOL, ignore_eos),
    GEN_FIELD("logit_bias", PARAM_JSON, logit_bias),
    GEN_FIELD("allowed_token_ids", PARAM_JSON, allowed_token_ids),
    GEN_RANGE("prompt_logprobs", PARAM_INT, prompt_logprobs, 0, GEN_MAX_LOGPROBS),
    {"return_token_ids", PARAM_BOOL, offsetof(struct srv_gen_params, return_token_ids), 0, 0,
     "return_tokens"},
    GEN_FIELD("return_tokens_as_token_ids", PARAM_BOOL, tokens_as_ids),
    GEN_FIELD("cache_prompt", PARAM_BOOL, cache_prompt),
    GEN_FIELD("cache_salt", PARAM_STRING, cache_salt),
    GEN_FIELD("prompt_cache_key", PARAM_STRING, prompt_cache_key),
    GEN_FIELD("return_cache_report", PARAM_BOOL, return_cache_report),
    /* cache_fields.c reads these */
    GEN_OTHER("prompt_cache_retention", PARAM_IGNORED),
    GEN_OTHER("prompt_cache_options", PARAM_IGNORED),
    GEN_RANGE("priority", PARAM_INT, priority, -1000000, 1000000),
    GEN_RANGE("deadline_ms", PARAM_INT, deadline_ms, 1, 86400000),
    GEN_FIELD("timings", PARAM_BOOL, timings),
    GEN_FIELD("timings_per_token", PARAM_BOOL, timings_per_token),
    GEN_FIELD("return_progress", PARAM_BOOL, return_progress),
    GEN_FIELD("speculate", PARAM_BOOL, speculate),
    GEN_FIELD("service_tier", PARAM_STRING, service_tier),
    GEN_FIELD("request_id", PARAM_STRING, request_id),
    /* accepted; they do not change the answer */
    GEN_OTHER("user", PARAM_IGNORED),
    GEN_OTHER("metadata", PARAM_IGNORED),
    GEN_OTHER("safety_identifier", PARAM_IGNORED),
    GEN_OTHER("spaces_between_special_tokens", PARAM_IGNORED),
    GEN_OTHER("parallel_tool_calls", PARAM_IGNORED),
    /* accepted without effect and named in x-ignored-params */
    GEN_OTHER("store", PARAM_NAMED),
    GEN_OTHER("reasoning_effort", PARAM_NAMED),
    GEN_OTHER("reasoning", PARAM_NAMED),
    GEN_OTHER("verbosity", PARAM_NAMED),
    /* refused unless neutral: they would change the answer */
    GEN_OTHER("tools", PARAM_UNSUPPORTED),
    GEN_OTHER("tool_choice", PARAM_UNSUPPORTED),
    GEN_OTHER("functions", PARAM_UNSUPPORTED),
    GEN_OTHER("function_call", PARAM_UNSUPPORTED),
    GEN_OTHER("modalities", PARAM_UNSUPPORTED),
    GEN_OTHER("audio", PARAM_UNSUPPORTED),
    GEN_OTHER("prediction", PARAM_UNSUPPORTED),
    GEN_OTHER("web_search_options", PARAM_UNSUPPORTED),
    GEN_OTHER("chat_template", PARAM_UNSUPPORTED),
    GEN_OTHER("documents", PARAM_UNSUPPORTED),
    GEN_OTHER("best_of", PARAM_UNSUPPORTED),
    GEN_OTHER("suffix", PARAM_UNSUPPORTED),
    GEN_OTHER("echo", PARAM_UNSUPPORTED),
    GEN_OTHER("samplers", PARAM_UNSUPPORTED),
    GEN_OTHER("logprob_token_ids", PARAM_UNSUPPORTED),
    GEN_OTHER("repetition_detection", PARAM_UNSUPPORTED),
    GEN_OTHER("t_max_predict_ms", PARAM_UNSUPPORTED),
    /* guide_fields.c reads these */
    GEN_OTHER("response_format", PARAM_IGNORED),
    GEN_OTHER("structured_outputs", PARAM_IGNORED),
    GEN_OTHER("guided_json", PARAM_IGNORED),
    GEN_OTHER("guided_regex", PARAM_IGNORED),
    GEN_OTHER("guided_choice", PARAM_IGNORED),
    GEN_OTHER("guided_grammar", PARAM_IGNORED),
    GEN_OTHER("guided_json_object", PARAM_IGNORED),
    GEN_OTHER("guided_whitespace_pattern", PARAM_IGNORED),
    GEN_OTHER("regex", PARAM_IGNORED),
    GEN_OTHER("ebnf", PARAM_IGNORED),
    GEN_OTHER("grammar", PARAM_IGNORED),
    GEN_OTHER("json_schema", PARAM_IGNORED),
    GEN_OTHER("guided_decoding_backend", PARAM_NAMED),
    GEN_OTHER("grammar_lazy", PARAM_UNSUPPORTED),
    GEN_OTHER("grammar_triggers", PARAM_UNSUPPORTED),
    GEN_OTHER("bad_words", PARAM_UNSUPPORTED),
    GEN_OTHER("logits_processors", PARAM_UNSUPPORTED),
    GEN_OTHER("use_beam_search", PARAM_UNSUPPORTED),
    GEN_OTHER("truncate_prompt_tokens", PARAM_UNSUPPORTED),
    GEN_OTHER("top_n_sigma", PARAM_UNSUPPORTED),
    GEN_OTHER("mirostat", PARAM_UNSUPPORTED),
    GEN_OTHER("dry_multiplier", PARAM_UNSUPPORTED),
    GEN_OTHER("xtc_probability", PARAM_UNSUPPORTED),
    GEN_OTHER("dynatemp_range", PARAM_UNSUPPORTED),
    GEN_OTHER("lora", PARAM_UNSUPPORTED),
    GEN_OTHER(NULL, PARAM_IGNORED),
};

/* ---- lists of ids -------------------------------------------------------------------------- */

static int read_ids(const struct reading *r, json_t *list, const char *name, size_t max,
                    int32_t **ret_ids, int *ret_n, struct param_error *err)
{
    if (!list) return 0;
    if (!json_is_array(list))
        return param_fail(err, SRV_ERR_INVALID_TYPE, name, "'%s' must be an array.", name);
    size_t n = json_array_size(list);
    if (n > max)
        return param_fail(err, SRV_ERR_INVALID_VALUE, name, "'%s' holds %zu ids; at most %zu.",
                          name, n, max);
    int32_t *ids = srv_request_alloc(r->req, (n + 1) * sizeof(*ids));
    if (!ids)
        return param_fail(err, SRV_ERR_OVERLOADED, NULL, "The server is out of memory for '%s'.",
                          name);
    int32_t vocab = eng_info(r->served->engine)->vocab_size;
    for (size_t i = 0; i < n; i++)
        if (param_read_id(json_array_get(list, i), vocab, name, &ids[i], err)) return -1;
    *ret_ids = ids;
    *ret_n = (int)n;
    return 0;
}

/* Entries of logit_bias with one fault, as a message lists them: "5, 7 and 3 more". */
struct faults {
    char text[160];
    int n, n_left;
};

static void add_fault(struct faults *f, const char *word)
{
    size_t used = strlen(f->text);
    bool fits = used + strlen(word) + 3 <= sizeof(f->text);
    if (fits) snprintf(f->text + used, sizeof(f->text) - used, "%s%s", f->n ? ", " : "", word);
    f->n++;
    f->n_left += !fits;
}

/* what: "the key" or "the token". */
static int refuse_faults(struct faults *f, enum srv_error kind, const char *verb, const char *what,
                         const char *wanted, struct param_error *err)
{
    char more[32] = "";
    if (f->n_left) snprintf(more, sizeof(more), " and %d more", f->n_left);
    return param_fail(err, kind, "logit_bias", "'logit_bias' %s %s%s %s%s%s", verb, what,
                      f->n > 1 ? "s" : "", f->text, more, wanted);
}

/* {"id": bias}; ids are decimal text. All entries with a fault are named. */
static int read_bias(const struct reading *r, struct param_error *err)
{
    struct srv_gen_params *p = r->p;
    if (!p->logit_bias) return 0;
    if (!json_is_object(p->logit_bias))
        return param_fail(err, SRV_ERR_INVALID_TYPE, "logit_bias",
                          "'logit_bias' must be an object.");
    size_t n = json_object_size(p->logit_bias), at = 0;
    if (n > MAX_BIAS)
        return param_fail(err, SRV_ERR_INVALID_VALUE, "logit_bias",
                          "'logit_bias' holds %zu entries; at most %d.", n, MAX_BIAS);
    struct eng_bias *bias = srv_request_alloc(r->req, (n + 1) * sizeof(*bias));
    if (!bias)
        return param_fail(err, SRV_ERR_OVERLOADED, NULL,
                          "The server is out of memory for 'logit_bias'.");
    int32_t vocab = eng_info(r->served->engine)->vocab_size;
    struct faults keys = {"", 0, 0}, types = keys, values = keys;
    const char *key;
    json_t *value;
    json_object_foreach(p->logit_bias, key, value)
    {
        char *end, word[PARAM_WORD_MAX], shown[PARAM_WORD_MAX + 32];
        errno = 0;
        long long id = strtoll(key, &end, 10);
        double v = json_number_value(value);
        snprintf(shown, sizeof(shown), "'%s'", param_word(key, word));
        if (*key < '0' || *key > '9' || *end || errno || id >= vocab) {
            add_fault(&keys, shown);
        } else if (!json_is_number(value)) {
            add_fault(&types, word);
        } else if (!(v >= -100 && v <= 100)) {
            snprintf(shown, sizeof(shown), "%lld is %.9g", id, v);
            add_fault(&values, shown);
        } else {
            bias[at++] = (struct eng_bias){(int32_t)id, (float)v};
        }
    }
    char ids[64];
    snprintf(ids, sizeof(ids), "; keys are token ids from 0 to %d.", (int)vocab - 1);
    if (keys.n) return refuse_faults(&keys, SRV_ERR_INVALID_VALUE, "has", "the key", ids, err);
    if (types.n)
        return refuse_faults(&types, SRV_ERR_INVALID_TYPE, "of", "the token", " must be a number.",
                             err);
    if (values.n)
        return refuse_faults(&values, SRV_ERR_INVALID_VALUE, "of", "the token",
                             ", but must be between -100 and 100.", err);
    p->sampling.bias = bias;
    p->sampling.n_bias = (int)at;
    return 0;
}

/* ---- stop strings -------------------------------------------------------------------------- */

static int add_stop(struct srv_gen_params *p, const char *name, const json_t *value,
                    struct param_error *err)
{
    if (!json_is_string(value))
        return param_fail(err, SRV_ERR_INVALID_TYPE, name,
                          "'%s' must be a string or an array of strings.", name);
    size_t len = json_string_length(value);
    if (len == 0) return 0;
    if (len > TEXTOUT_MAX_STOP_BYTES)
        return param_fail(err, SRV_ERR_INVALID_VALUE, name,
                          "'%s' holds a string of %zu bytes; at most %d.", name, len,
                          TEXTOUT_MAX_STOP_BYTES);
    p->stops[p->n_stops] = json_string_value(value);
    p->stop_lens[p->n_stops++] = len;
    return 0;
}

static int read_stops(const struct reading *r, struct param_error *err)
{
    struct srv_gen_params *p = r->p;
    if (!p->stop) return 0;
    /* Anthropic's dialect has a name of its own for it. */
    const char *name = "stop_sequences";
    if (json_object_get(r->body, name) != p->stop) name = "stop";
    if (!json_is_array(p->stop)) return add_stop(p, name, p->stop, err);
    if (json_array_size(p->stop) > TEXTOUT_MAX_STOPS)
        return param_fail(err, SRV_ERR_INVALID_VALUE, name, "'%s' holds %zu strings; at most %d.",
                          name, json_array_size(p->stop), TEXTOUT_MAX_STOPS);
    for (size_t i = 0; i < json_array_size(p->stop); i++)
        if (add_stop(p, name, json_array_get(p->stop, i), err)) return -1;
    return 0;
}

/* ---- the rest ------------------------------------------------------------------------------ */

static int read_stream_options(struct srv_gen_params *p, struct param_unknown *unknown,
                               struct param_error *err)
{
    if (!p->stream_options) return 0;
    if (!json_is_object(p->stream_options))
        return param_fail(err, SRV_ERR_INVALID_TYPE, "stream_options",
                          "'stream_options' must be an object.");
    if (!p->stream)
        return param_fail(err, SRV_ERR_INVALID_VALUE, "stream_options",
                          "'stream_options' is only allowed when 'stream' is true.");
    static const struct param_field fields[] = {
        GEN_FIELD("include_usage", PARAM_BOOL, include_usage),
        GEN_FIELD("continuous_usage_stats", PARAM_BOOL, continuous_usage),
        GEN_RANGE("chunk_tokens", PARAM_INT, chunk_tokens, 1, 2147483647),
        GEN_OTHER("include_obfuscation", PARAM_IGNORED),
        GEN_OTHER(NULL, PARAM_IGNORED),
    };
    if (params_read(p->stream_options, fields, p, unknown, err)) return -1;
    if (p->continuous_usage && !p->include_usage) param_note(unknown, "continuous_usage_stats");
    return 0;
}

void srv_gen_refuse_context(struct srv_request *req, const struct param_error *err,
                            int64_t n_prompt_tokens, int64_t max_tokens)
{
    const struct srv_error_number numbers[] = {
        {"n_prompt_tokens", n_prompt_tokens},
        {"n_ctx", eng_info(srv_facts(req)->model->engine)->ctx_tokens},
        {"max_tokens", max_tokens},
        {0}};
    struct buf b;
    buf_init(&b, 4096);
    srv_error_write_for(req, &b, err->kind, err->path, err->message, numbers);
    srv_reply(req, srv_error_status(err->kind), NULL, &b);
}

/* Placeholders that clients send to servers with one model. */
static bool is_placeholder(const char *name)
{
    return !strcmp(name, "default") || !strcmp(name, "tgi") || !strcmp(name, "dummy");
}

const char *srv_gen_model_name(const struct srv_model *model, const char *asked,
                               struct param_error *err)
{
    if (!asked || !*asked) return model->names[0];
    for (const char *const *name = model->names; *name; name++)
        if (!strcmp(*name, asked)) return *name;
    if (!model->config->strict_model && is_placeholder(asked)) return model->names[0];
    if (model->config->accept_any_model && strlen(asked) <= 256) return asked;
    char names[160];
    param_fail(err, SRV_ERR_MODEL_NOT_FOUND, "model",
               "The model '%.*s%s' does not exist; this server serves %s.", CLIP, asked,
               strlen(asked) > CLIP ? "..." : "",
               srv_model_list_names(model, names, sizeof(names)));
    return NULL;
}

static uint64_t seed_of(const struct srv_gen_params *p)
{
    if (p->seed != -1) return (uint64_t)p->seed;
    uint64_t seed = 0;
    if (getrandom(&seed, sizeof(seed), 0) != (ssize_t)sizeof(seed)) seed ^= (uintptr_t)p;
    return seed;
}

static int make_sampling(const struct reading *r, struct param_error *err)
{
    struct srv_gen_params *p = r->p;
    int32_t *allowed = NULL;
    p->sampling = srv_sampling_chain(&p->given);
    p->sampling.seed = seed_of(p);
    size_t vocab = (size_t)eng_info(r->served->engine)->vocab_size;
    if (read_bias(r, err) || read_ids(r, p->allowed_token_ids, "allowed_token_ids", vocab, &allowed,
                                      &p->sampling.n_allowed_ids, err))
        return -1;
    if (p->allowed_token_ids && p->sampling.n_allowed_ids == 0)
        return param_fail(err, SRV_ERR_INVALID_VALUE, "allowed_token_ids",
                          "'allowed_token_ids' must not be empty.");
    p->sampling.allowed_ids = allowed;
    return 0;
}

/* The header is for clients that cannot add fields to the body. */
static int read_deadline_header(const struct reading *r, struct param_error *err)
{
    const char *text = srv_request_header(r->req, "x-request-deadline-ms");
    if (!text) return 0;
    char *end;
    long long ms = strtoll(text, &end, 10);
    if (end == text || *end || ms < 1 || ms > 86400000)
        return param_fail(err, SRV_ERR_INVALID_VALUE, "x-request-deadline-ms",
                          "The header x-request-deadline-ms must be between 1 and 86400000.");
    r->p->deadline_ms = ms;
    return 0;
}

int srv_gen_note_ignored(struct srv_request *req, const struct param_unknown *unknown,
                         struct param_error *err)
{
    if (unknown->n > 0 && srv_facts(req)->app->config->strict_params)
        return param_fail(err, SRV_ERR_UNSUPPORTED, NULL, "Unknown parameters: %s.",
                          unknown->list[0] ? unknown->list : "(not printable)");
    char names[sizeof(unknown->list) + 16];
    size_t used = (size_t)snprintf(names, sizeof(names), "%s", unknown->list);
    if (unknown->n_left > 0)
        snprintf(names + used, sizeof(names) - used, "%s...+%d", used ? "," : "", unknown->n_left);
    if (names[0]) srv_reply_header(req, "x-ignored-params", names);
    return 0;
}

/* Returns the number of tokens requested, else the server's option, else -1. */
static int64_t asked_tokens(const struct reading *r)
{
    const struct srv_gen_params *p = r->p;
    if (p->max_completion_tokens >= 0) return p->max_completion_tokens;
    if (p->max_tokens >= 0) return p->max_tokens;
    if (p->n_predict == -1) return eng_info(r->served->engine)->ctx_tokens;
    return p->n_predict >= 0 ? p->n_predict : r->served->defaults.max_tokens;
}

/* A hint of where equal prompts go, as OpenAI has it: one server has nowhere else to send them. */
static int check_cache_key(const struct srv_gen_params *p, struct param_error *err)
{
    int n = 0;
    for (const char *c = p->prompt_cache_key; c && *c; c++)
        n += (*c & 0xC0) != 0x80; /* characters begin with one */
    if (n <= MAX_CACHE_KEY) return 0;
    return param_fail(err, SRV_ERR_INVALID_VALUE, "prompt_cache_key",
                      "'prompt_cache_key' has %d characters; at most %d.", n, MAX_CACHE_KEY);
}

/* Fields that exclude each other. */
static int check_together(const struct reading *r, struct param_error *err)
{
    const struct srv_gen_params *p = r->p;
    int64_t max = asked_tokens(r);
    if (max >= 0 && p->min_tokens > max)
        return param_fail(err, SRV_ERR_INVALID_VALUE, "min_tokens",
                          "'min_tokens' is %lld, but max_tokens is %lld.", (long long)p->min_tokens,
                          (long long)max);
    if (p->stream && p->prompt_logprobs >= 0)
        return param_fail(err, SRV_ERR_INVALID_VALUE, "prompt_logprobs",
                          "'prompt_logprobs' cannot be streamed.");
    return 0;
}

/* llama-server takes -1 as "no limit": the message names the field that takes it here. */
static void hint_at_n_predict(const struct reading *r, struct param_error *err)
{
    static const char *const fields[] = {"max_tokens", "max_completion_tokens",
                                         "max_output_tokens"};
    size_t len = strlen(err->message);
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        if (strcmp(err->path, fields[i]) != 0) continue;
        const json_t *value = json_object_get(r->body, fields[i]);
        if (json_is_number(value) && json_number_value(value) == -1)
            snprintf(err->message + len, sizeof(err->message) - len,
                     " For as many as the context holds send 'n_predict': -1.");
    }
}

/* Joins both tables, because they read the same object. */
static void join_fields(const struct param_field *own, struct param_field all[MAX_FIELDS])
{
    int n = 0;
    for (const struct param_field *f = own; f->name; f++)
        all[n++] = *f;
    for (const struct param_field *f = common_fields; f->name && n < MAX_FIELDS - 1; f++)
        all[n++] = *f;
    assert(n < MAX_FIELDS - 1);
    all[n] = (struct param_field){0};
}

int srv_gen_params_read(struct srv_gen_params *p, struct srv_request *req,
                        const struct param_field *own, json_t **ret_body,
                        struct param_unknown *unknown, struct param_error *err)
{
    const struct srv_facts *facts = srv_facts(req);
    struct reading reading = {req, facts->model, NULL, p};
    const struct reading *r = &reading;
    struct param_field fields[MAX_FIELDS];
    int32_t *stop_ids = NULL;
    join_fields(own, fields);
    *ret_body = reading.body = params_parse(facts->body, facts->body_len, PARAM_MAX_VALUES, err);
    if (!*ret_body) return -1;
    if (params_read(*ret_body, fields, p, unknown, err)) {
        hint_at_n_predict(r, err);
        return -1;
    }
    if (!(p->model = srv_gen_model_name(r->served, p->model, err)) || read_stops(r, err) ||
        read_stream_options(p, unknown, err) || check_cache_key(p, err) || check_together(r, err) ||
        make_sampling(r, err) ||
        read_ids(r, p->stop_token_ids, "stop_token_ids", MAX_STOP_IDS, &stop_ids, &p->n_stop_ids,
                 err) ||
        read_deadline_header(r, err))
        return -1;
    p->stop_ids = stop_ids;
    p->timings |= p->timings_per_token;
    p->asked_tokens = asked_tokens(r);
    p->prompt_tops = p->prompt_logprobs;
    srv_request_suggest_id(req, p->request_id);
    int max_choices = eng_info(r->served->engine)->max_choices;
    if (p->n > max_choices)
        return param_fail(err, SRV_ERR_INVALID_VALUE, "n", "'n' is %lld, but must be at most %d.",
                          (long long)p->n, max_choices);
    return 0;
}
