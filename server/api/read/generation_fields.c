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

#include "base/utf8.h"
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
#define SAMPLING_ROW(name_, type_, least, most, neutral, also_, meaning_)                          \
    {                                                                                              \
        .name = #name_, .type = FIELD_##type_, .min = least, .max = most, .preset = neutral,       \
        .offset = offsetof(struct srv_gen_params, given.name_), .also = also_, .meaning = meaning_ \
    }
#define SAMPLING_FIELD(...) SAMPLING_ROW(__VA_ARGS__),

const struct param_field srv_fields_common[] = {
    GEN_FIELD("model", PARAM_STRING, model, "served model",
              "a name that the server answers to, `default`, `tgi` or `dummy`; another is 404"),
    GEN_FLAG("stream", stream, false, "answer as [events](api.md#streams)"),
    GEN_FIELD("stream_options", PARAM_JSON, stream_options, NULL,
              "what a [stream](api.md#streams) carries"),
    ENG_SAMPLING_PARAMS(SAMPLING_FIELD)
        GEN_INT("seed", seed, -9223372036854775808.0, 9223372036854775807.0, -1, "random",
                "the same seed gives the same tokens; -1: random"),
    GEN_INT("n", n, 1, GEN_MAX_CHOICES, 1, NULL, "choices; at most `--max-choices`"),
    GEN_INT("max_tokens", max_tokens, 0, INT_LIMIT, -1,
            "completions 16, chat the rest of the context", "tokens to generate"),
    GEN_INT("max_completion_tokens", max_completion_tokens, 0, INT_LIMIT, -1, "`max_tokens`",
            "the same; wins over `max_tokens`"),
    GEN_INT("n_predict", n_predict, -1, INT_LIMIT, -2, "`max_tokens`",
            "llama-server's name for `max_tokens`; -1: the rest of the context"),
    GEN_INT("min_tokens", min_tokens, 0, INT_LIMIT, 0, NULL,
            "no end token and no stop string before so many tokens"),
    GEN_FIELD("stop", PARAM_JSON, stop, NULL,
              "end before this text, or one of at most 64; each at most 1024 bytes"),
    GEN_FIELD("stop_token_ids", PARAM_JSON, stop_token_ids, NULL, "end at one of these tokens"),
    GEN_FLAG("include_stop_str_in_output", include_stop, false, "keep the stop string"),
    GEN_FLAG("skip_special_tokens", skip_special, true, "leave special tokens out of the text"),
    GEN_FLAG("ignore_eos", ignore_eos, false, "generate past the end token"),
    GEN_FIELD("logit_bias", PARAM_JSON, logit_bias, NULL,
              "token id to a number from -100 to 100, added to its logit; at most 1024"),
    GEN_FIELD("allowed_token_ids", PARAM_JSON, allowed_token_ids, "all", "sample only from these"),
    GEN_INT("prompt_logprobs", prompt_logprobs, 0, GEN_MAX_LOGPROBS, -1, "none",
            "log-probabilities of the prompt, as vLLM's, in its first choice; not with a stream"),
    {GEN_ROW("return_token_ids", PARAM_BOOL, return_token_ids, NULL,
             "ids of prompt (in a stream in its first chunk) and answer"),
     .also = "return_tokens"},
    GEN_FLAG("return_tokens_as_token_ids", tokens_as_ids, false,
             "write tokens of log-probabilities as `token_id:N`"),
    GEN_FLAG("cache_prompt", cache_prompt, true, "use the prefix cache"),
    GEN_FIELD("cache_salt", PARAM_STRING, cache_salt, NULL,
              "share cached prefixes only with equal salts"),
    /* cache_fields.c reads these two */
    GEN_NAME("prompt_cache_retention", PARAM_IGNORED, NULL,
             "`in_memory`: not written to [kv-disk](kv-disk.md); `24h`: for a day at most"),
    GEN_NAME("prompt_cache_options", PARAM_IGNORED, NULL,
             "`mode`: with `explicit` and no breakpoint nothing is cached; `ttl`: `30m`, for which "
             "[the prompt is kept](api.md#cached-prompts)"),
    GEN_FLAG("return_cache_report", return_cache_report, false,
             "`usage.cache_report`: [where the cache ended](api.md#cached-prompts)"),
    GEN_FIELD("prompt_cache_key", PARAM_STRING, prompt_cache_key, NULL,
              "at most 64 characters; no effect: equal prompts share whatever the key"),
    GEN_INT("priority", priority, -1000000, 1000000, 0, NULL,
            "smaller runs earlier ([admission](internals/admission.md))"),
    GEN_INT("deadline_ms", deadline_ms, 1, 86400000, 0, "none",
            "time for the request; also the header `x-request-deadline-ms`"),
    GEN_FLAG("timings", timings, false,
             "llama-server's `timings`; `timings_per_token`: so far in every chunk too"),
    GEN_FLAG("timings_per_token", timings_per_token, false, NULL),
    GEN_FLAG("return_progress", return_progress, false,
             "in a stream: events with `prompt_progress` {total, cache, processed, time_ms}"),
    GEN_FIELD(
        "prediction", PARAM_JSON, prediction, NULL,
        "the expected answer: type `content`, `content` a string or text parts; it changes the "
        "speed, not the answer ([predicted outputs](api.md#predicted-outputs))"),
    GEN_FLAG("speculate", speculate, true,
             "false: compute no tokens in advance; the answer is the same"),
    GEN_INT("speculative.n_max", draft_max, 0, 65536, -1, "as many as pay",
            "tokens of a [draft](drafts.md) at most; 0: none; the answer is the same"),
    GEN_INT("speculative.n_min", draft_min, 0, 65536, 0, NULL, "checked, no effect"),
    {GEN_ROW("speculative.p_min", PARAM_NUMBER, draft_p_min, NULL, "checked, no effect"), .max = 1},
    GEN_FIELD("lora", PARAM_JSON, lora, "those of `/lora-adapters`",
              "llama-server's: [adapters](adapters.md) by `id`, each with its `scale`"),
    GEN_NAME("user", PARAM_IGNORED, NULL, "accepted, no effect"),
    GEN_FIELD("request_id", PARAM_STRING, request_id, "generated",
              "answered as `x-request-id` if there is no header of that name"),
    GEN_FIELD("service_tier", PARAM_STRING, service_tier, NULL, "chat answers `default`"),
    /* guide_fields.c reads these */
    GEN_NAME("response_format", PARAM_IGNORED, "`{\"type\": \"text\"}`",
             "[structured output](structured-output.md); objects whose schema lists properties get "
             "no others, unless the server has `--schema-objects open`"),
    GEN_NAME("structured_outputs", PARAM_IGNORED, NULL, "vLLM's spelling of it"),
    GEN_NAME("guided_json", PARAM_IGNORED, NULL, "vLLM's older spelling: a JSON schema"),
    GEN_NAME("guided_regex", PARAM_IGNORED, NULL, "the same: a regular expression"),
    GEN_NAME("guided_grammar", PARAM_IGNORED, NULL, "the same: a GBNF grammar"),
    GEN_NAME("guided_whitespace_pattern", PARAM_IGNORED, NULL, "the same: JSON's white space"),
    GEN_NAME("guided_choice", PARAM_IGNORED, NULL, "the same: one of these texts"),
    GEN_NAME("guided_json_object", PARAM_IGNORED, NULL, "the same: any JSON object"),
    GEN_NAME("regex", PARAM_IGNORED, NULL, "SGLang's: a regular expression"),
    GEN_NAME("ebnf", PARAM_IGNORED, NULL, "SGLang's: a GBNF grammar"),
    GEN_NAME("grammar", PARAM_IGNORED, NULL, "llama-server's: a GBNF grammar"),
    GEN_NAME("json_schema", PARAM_IGNORED, NULL, "llama-server's: a JSON schema"),
    /* clang-format off */
    /* accepted; they do not change the answer */
    GEN_IGNORED("metadata"), GEN_IGNORED("safety_identifier"),
    GEN_IGNORED("spaces_between_special_tokens"), GEN_IGNORED("parallel_tool_calls"),
    /* accepted without effect and named in x-ignored-params */
    GEN_NAMED("store"), GEN_NAMED("reasoning_effort"), GEN_NAMED("reasoning"),
    GEN_NAMED("verbosity"), GEN_NAMED("guided_decoding_backend"),
    /* refused unless neutral: they would change the answer */
    GEN_REFUSED("tools"), GEN_REFUSED("tool_choice"), GEN_REFUSED("functions"),
    GEN_REFUSED("function_call"), GEN_REFUSED("modalities"), GEN_REFUSED("audio"),
    GEN_REFUSED("web_search_options"), GEN_REFUSED("chat_template"), GEN_REFUSED("documents"),
    GEN_REFUSED("best_of"), GEN_REFUSED("suffix"), GEN_REFUSED("echo"), GEN_REFUSED("samplers"),
    GEN_REFUSED("logprob_token_ids"), GEN_REFUSED("repetition_detection"),
    GEN_REFUSED("t_max_predict_ms"), GEN_REFUSED("grammar_lazy"), GEN_REFUSED("grammar_triggers"),
    GEN_REFUSED("bad_words"), GEN_REFUSED("logits_processors"), GEN_REFUSED("use_beam_search"),
    GEN_REFUSED("truncate_prompt_tokens"), GEN_REFUSED("top_n_sigma"), GEN_REFUSED("mirostat"),
    GEN_REFUSED("dry_multiplier"), GEN_REFUSED("xtc_probability"), GEN_REFUSED("dynatemp_range"),
    /* clang-format on */
    {0},
};

const struct param_field srv_fields_stream_options[] = {
    GEN_FLAG("include_usage", include_usage, false,
             "one more chunk with empty `choices` and the `usage`; null in the other chunks"),
    GEN_FLAG("continuous_usage_stats", continuous_usage, false,
             "with `include_usage`: the counts so far in every chunk"),
    GEN_INT("chunk_tokens", chunk_tokens, 1, 2147483647, 0, "as they come",
            "at most so many tokens per event; 1: one event per token"),
    GEN_IGNORED("include_obfuscation"),
    {0},
};

/* Ollama's; others have no effect. */
const struct param_field srv_fields_ollama_options[] = {
    ENG_SAMPLING_PARAMS(SAMPLING_FIELD)
        GEN_INT("seed", seed, -9223372036854775808.0, 9223372036854775807.0, -1, NULL, NULL),
    GEN_FIELD("stop", PARAM_JSON, stop, NULL, NULL),
    GEN_INT("num_predict", n_predict, -INT_LIMIT, INT_LIMIT, -2, NULL, NULL),
    {0},
};

/* ---- lists of ids -------------------------------------------------------------------------- */

static int read_ids(const struct reading *r, json_t *list, const char *name, size_t max,
                    int32_t **ret_ids, int *ret_n)
{
    if (!list) return 0;
    if (!json_is_array(list)) return param_wrong_type(name, "an array");
    size_t n = json_array_size(list);
    if (n > max)
        return param_fail(SRV_ERR_INVALID_VALUE, name, "'%s' holds %zu ids; at most %zu.", name, n,
                          max);
    int32_t *ids = srv_request_alloc(r->req, (n + 1) * sizeof(*ids));
    if (!ids) return param_no_memory();
    int32_t vocab = eng_info(r->served->engine)->vocab_size;
    if (param_read_ids(list, vocab, name, ids)) return -1;
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

/* `what` is "the key" or "the token". */
static int refuse_faults(struct faults *f, enum srv_error kind, const char *verb, const char *what,
                         const char *wanted)
{
    char more[32] = "";
    if (f->n_left) snprintf(more, sizeof(more), " and %d more", f->n_left);
    return param_fail(kind, "logit_bias", "'logit_bias' %s %s%s %s%s%s", verb, what,
                      f->n > 1 ? "s" : "", f->text, more, wanted);
}

/* {"id": bias}; ids are decimal text. All entries with a fault are named. */
static int read_bias(const struct reading *r)
{
    struct srv_gen_params *p = r->p;
    if (!p->logit_bias) return 0;
    if (!json_is_object(p->logit_bias)) return param_wrong_type("logit_bias", "an object");
    size_t n = json_object_size(p->logit_bias), at = 0;
    if (n > MAX_BIAS)
        return param_fail(SRV_ERR_INVALID_VALUE, "logit_bias",
                          "'logit_bias' holds %zu entries; at most %d.", n, MAX_BIAS);
    struct eng_bias *bias = srv_request_alloc(r->req, (n + 1) * sizeof(*bias));
    if (!bias) return param_no_memory();
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
    if (keys.n) return refuse_faults(&keys, SRV_ERR_INVALID_VALUE, "has", "the key", ids);
    if (types.n)
        return refuse_faults(&types, SRV_ERR_INVALID_TYPE, "of", "the token", " must be a number.");
    if (values.n)
        return refuse_faults(&values, SRV_ERR_INVALID_VALUE, "of", "the token",
                             ", but must be between -100 and 100.");
    p->sampling.bias = bias;
    p->sampling.n_bias = (int)at;
    return 0;
}

/* ---- stop strings -------------------------------------------------------------------------- */

static int add_stop(struct srv_gen_params *p, const char *name, const json_t *value)
{
    if (!json_is_string(value)) return param_wrong_type(name, "a string or an array of strings");
    size_t len = json_string_length(value);
    if (len == 0) return 0;
    if (len > SRV_MAX_STOP_BYTES)
        return param_fail(SRV_ERR_INVALID_VALUE, name,
                          "'%s' holds a string of %zu bytes; at most %d.", name, len,
                          SRV_MAX_STOP_BYTES);
    p->stops[p->n_stops] = json_string_value(value);
    p->stop_lens[p->n_stops++] = len;
    return 0;
}

static int read_stops(const struct reading *r)
{
    struct srv_gen_params *p = r->p;
    if (!p->stop) return 0;
    /* Anthropic's dialect has a name of its own for it. */
    const char *name = "stop_sequences";
    if (json_object_get(r->body, name) != p->stop) name = "stop";
    if (!json_is_array(p->stop)) return add_stop(p, name, p->stop);
    if (json_array_size(p->stop) > SRV_MAX_STOPS)
        return param_fail(SRV_ERR_INVALID_VALUE, name, "'%s' holds %zu strings; at most %d.", name,
                          json_array_size(p->stop), SRV_MAX_STOPS);
    for (size_t i = 0; i < json_array_size(p->stop); i++)
        if (add_stop(p, name, json_array_get(p->stop, i))) return -1;
    return 0;
}

/* ---- the rest ------------------------------------------------------------------------------ */

static int read_stream_options(struct srv_gen_params *p, struct param_unknown *unknown)
{
    if (!p->stream_options) return 0;
    if (!json_is_object(p->stream_options)) return param_wrong_type("stream_options", "an object");
    if (!p->stream)
        return param_fail(SRV_ERR_INVALID_VALUE, "stream_options",
                          "'stream_options' is only allowed when 'stream' is true.");
    if (params_read(p->stream_options, srv_fields_stream_options, p, unknown)) return -1;
    if (p->continuous_usage && !p->include_usage) param_note(unknown, "continuous_usage_stats");
    return 0;
}

/* Clients send a repeat_penalty of 0 for none, and any negative num_predict for no limit. */
static int read_ollama_options(struct srv_gen_params *p, struct param_unknown *unknown)
{
    json_t *penalty = json_object_get(p->options, "repeat_penalty"),
           *limit = json_object_get(p->options, "num_predict");
    if (!p->options) return 0;
    if (!json_is_object(p->options))
        return param_fail(SRV_ERR_INVALID_TYPE, "options", "'options' must be an object.");
    if (json_is_number(penalty) && json_number_value(penalty) == 0)
        json_object_set_new(p->options, "repeat_penalty", json_real(1));
    if (params_read(p->options, srv_fields_ollama_options, p, unknown)) return -1;
    if (json_is_number(limit) && p->n_predict < 0) p->n_predict = -1;
    return 0;
}

void srv_gen_refuse_context(struct srv_request *req, int64_t n_prompt_tokens, int64_t max_tokens)
{
    const struct srv_error_number numbers[] = {{"n_prompt_tokens", n_prompt_tokens},
                                               {"n_ctx", srv_model_longest(srv_facts(req)->model)},
                                               {"max_tokens", max_tokens},
                                               {0}};
    struct buf b = {.max = 4096};
    srv_error_write_for(req, &b, param_error.kind, param_error.path, param_error.message, numbers);
    srv_reply(req, srv_errors[param_error.kind].status, NULL, &b);
    param_error = (struct param_error){0};
}

const char *srv_gen_model_name(const struct srv_facts *facts, const char *asked)
{
    const struct srv_model *model = facts->model;
    bool tagged = facts->dialect == SRV_DIALECT_OLLAMA;
    if (facts->lora) return facts->lora;
    if (!asked || !*asked) return model->names[0];
    for (const char *const *name = model->names; *name; name++)
        if (!strcmp(*name, asked) || (tagged && srv_is_tagged(asked, *name))) return *name;
    if (!model->config->strict_model && srv_is_placeholder(asked)) return model->names[0];
    if (model->config->accept_any_model && strlen(asked) <= 256) return asked;
    char names[160];
    param_fail(SRV_ERR_MODEL_NOT_FOUND, "model",
               "The model '%.*s%s' does not exist; this server serves %s.", CLIP, asked,
               strlen(asked) > CLIP ? "..." : "",
               srv_models_names(&facts->app->models, facts->only, names, sizeof(names)));
    return NULL;
}

static uint64_t seed_of(const struct srv_gen_params *p, const struct srv_facts *facts)
{
    if (p->seed != -1) return (uint64_t)p->seed;
    if (facts->is_fixed) return facts->seed;
    uint64_t seed = 0;
    if (getrandom(&seed, sizeof(seed), 0) != (ssize_t)sizeof(seed)) seed ^= (uintptr_t)p;
    return seed;
}

static int read_sampling(const struct reading *r)
{
    struct srv_gen_params *p = r->p;
    int32_t *allowed = NULL;
    p->sampling.seed = seed_of(p, srv_facts(r->req));
    size_t vocab = (size_t)eng_info(r->served->engine)->vocab_size;
    if (read_bias(r) || read_ids(r, p->allowed_token_ids, "allowed_token_ids", vocab, &allowed,
                                 &p->sampling.n_allowed_ids))
        return -1;
    if (p->allowed_token_ids && p->sampling.n_allowed_ids == 0)
        return param_fail(SRV_ERR_INVALID_VALUE, "allowed_token_ids",
                          "'allowed_token_ids' must not be empty.");
    p->sampling.allowed_ids = allowed;
    return 0;
}

/* The header is for clients that cannot add fields to the body. */
static int read_deadline_header(const struct reading *r)
{
    const char *text = srv_request_header(r->req, "x-request-deadline-ms");
    if (!text) return 0;
    char *end;
    long long ms = strtoll(text, &end, 10);
    if (end == text || *end || ms < 1 || ms > 86400000)
        return param_fail(SRV_ERR_INVALID_VALUE, "x-request-deadline-ms",
                          "The header x-request-deadline-ms must be between 1 and 86400000.");
    r->p->deadline_ms = ms;
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
static int check_cache_key(const struct srv_gen_params *p)
{
    const char *key = p->prompt_cache_key;
    int n = key ? (int)utf8_count(key, strlen(key)) : 0;
    if (n <= MAX_CACHE_KEY) return 0;
    return param_fail(SRV_ERR_INVALID_VALUE, "prompt_cache_key",
                      "'prompt_cache_key' has %d characters; at most %d.", n, MAX_CACHE_KEY);
}

/* Fields that exclude each other. */
static int check_together(const struct reading *r)
{
    const struct srv_gen_params *p = r->p;
    int64_t max = asked_tokens(r);
    if (max >= 0 && p->min_tokens > max)
        return param_fail(SRV_ERR_INVALID_VALUE, "min_tokens",
                          "'min_tokens' is %lld, but max_tokens is %lld.", (long long)p->min_tokens,
                          (long long)max);
    if (p->lora && !srv_facts(r->req)->has_read_lora &&
        (!json_is_array(p->lora) || json_array_size(p->lora)))
        return param_fail(SRV_ERR_UNSUPPORTED, "lora",
                          "'lora' names adapters, and this server has none (--lora).");
    if (p->stream && p->prompt_logprobs >= 0)
        return param_fail(SRV_ERR_INVALID_VALUE, "prompt_logprobs",
                          "'prompt_logprobs' cannot be streamed.");
    return 0;
}

/* llama-server takes -1 as "no limit": the message names the field that takes it here. */
static void hint_at_n_predict(const struct reading *r)
{
    static const char *const fields[] = {"max_tokens", "max_completion_tokens",
                                         "max_output_tokens"};
    size_t len = strlen(param_error.message);
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        if (strcmp(param_error.path, fields[i]) != 0) continue;
        const json_t *value = json_object_get(r->body, fields[i]);
        if (json_is_number(value) && json_number_value(value) == -1)
            snprintf(param_error.message + len, sizeof(param_error.message) - len,
                     " For as many as the context holds send 'n_predict': -1.");
    }
}

/* Joins both tables, because they read the same object. */
static void join_fields(const struct param_field *own, struct param_field all[MAX_FIELDS])
{
    int n = 0;
    for (const struct param_field *f = own; f->name; f++)
        all[n++] = *f;
    for (const struct param_field *f = srv_fields_common; f->name && n < MAX_FIELDS - 1; f++)
        all[n++] = *f;
    assert(n < MAX_FIELDS - 1);
    all[n] = (struct param_field){0};
}

int srv_gen_params_read(struct srv_gen_params *p, struct srv_request *req,
                        const struct param_field *own, const struct srv_body *body,
                        struct param_unknown *unknown)
{
    const struct reading reading = {req, srv_facts(req)->model, body->root, p}, *r = &reading;
    struct param_field fields[MAX_FIELDS];
    int32_t *stop_ids = NULL;
    bool ollama = srv_facts(req)->dialect == SRV_DIALECT_OLLAMA;
    join_fields(own, fields);
    /* these are fields of some dialects only */
    *p = (struct srv_gen_params){.logprobs_count = -1, .top_logprobs = -1, .max_tool_calls = -1};
    params_preset(srv_fields_common, p);
    params_preset(own, p);
    p->given = ollama ? r->served->defaults.ollama : r->served->defaults.sampling;
    p->seed = r->served->defaults.seed;
    if (params_read(body->root, fields, p, unknown) || read_ollama_options(p, unknown)) {
        hint_at_n_predict(r);
        return -1;
    }
    if (!(p->model = srv_gen_model_name(srv_facts(req), p->model)) || read_stops(r) ||
        read_stream_options(p, unknown) || check_cache_key(p) || check_together(r) ||
        read_sampling(r) ||
        read_ids(r, p->stop_token_ids, "stop_token_ids", MAX_STOP_IDS, &stop_ids, &p->n_stop_ids) ||
        read_deadline_header(r))
        return -1;
    p->stop_ids = stop_ids;
    p->n_asked_stop_ids = p->n_stop_ids;
    p->timings |= p->timings_per_token;
    p->asked_tokens = asked_tokens(r);
    p->prompt_tops = p->prompt_logprobs;
    srv_request_suggest_id(req, p->request_id);
    srv_sampling_set(&p->sampling, &p->given);
    int max_choices = eng_info(r->served->engine)->max_choices;
    if (p->n > max_choices)
        return param_fail(SRV_ERR_INVALID_VALUE, "n", "'n' is %lld, but must be at most %d.",
                          (long long)p->n, max_choices);
    return 0;
}
