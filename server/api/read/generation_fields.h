/* SPDX-License-Identifier: MIT */
/*
 * The fields of a generation request: JSON to struct srv_gen_params.
 *
 * Threads: the text worker that holds the request.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "engine/engine.h"
#include "server/api/read/json_fields.h"
#include "server/http/endpoint.h"
#include "server/models/app.h"

enum {
    GEN_MAX_CHOICES = 16, /* n and best_of */
    GEN_MAX_LOGPROBS = ENG_MAX_LOGPROBS,
};

/* The request of a body in any dialect. Filled by srv_gen_params_read. */
struct srv_gen_params {
    /* fields read as they stand */
    struct srv_sampling given;
    int64_t seed, n, best_of, min_tokens, priority, deadline_ms;
    int64_t max_tokens, max_completion_tokens; /* -1: absent */
    int64_t n_predict;                         /* -1: to the end of the context, -2: absent */
    int64_t logprobs_count, prompt_logprobs;   /* -1: none */
    bool stream, ignore_eos, include_stop, skip_special, echo, cache_prompt;
    bool return_token_ids, tokens_as_ids, timings, timings_per_token, return_progress, speculate;
    bool return_cache_report;
    const char *model; /* once read: the name to show */
    const char *cache_salt, *prompt_cache_key, *request_id, *service_tier;
    json_t *stop, *stop_token_ids, *logit_bias, *allowed_token_ids, *stream_options;
    /* of some dialects only */
    const char *suffix, *input_prefix, *repo_name, *filename;
    int64_t n_indent, t_max_predict_ms; /* 0: none */
    json_t *lora, *input_extra, *prompt, *messages, *options, *chat_template_kwargs, *extra,
        *prediction;
    int64_t top_logprobs, max_tool_calls; /* -1: absent */
    int64_t draft_max, draft_min;         /* the first: -1: absent */
    double draft_p_min;
    const char *user, *safety_identifier;
    bool raw, truncate, choice_probabilities, logprobs_flag, add_generation_prompt,
        continue_final_message, add_special;
    /* derived */
    int64_t asked_tokens; /* by the request or the server's option; -1: the endpoint's default */
    int64_t prompt_tops;  /* alternatives shown in "prompt_logprobs"; -1: the client wants none */
    bool include_usage, continuous_usage;
    int64_t chunk_tokens; /* most tokens in an event; 0: as they come */
    bool want_logprobs;
    const char *stops[SRV_MAX_STOPS];
    size_t stop_lens[SRV_MAX_STOPS];
    int n_stops;
    int32_t *stop_ids;
    int n_stop_ids, n_asked_stop_ids; /* with those that end an infill; without */
    struct eng_sampling sampling;
};

/* Rows of a field table for srv_gen_params; struct param_field says what the columns are. */
#define GEN_ROW(...) PARAM_FIELD(struct srv_gen_params, __VA_ARGS__)
#define GEN_FIELD(...)                                                                             \
    {                                                                                              \
        GEN_ROW(__VA_ARGS__)                                                                       \
    }
#define GEN_FLAG(name, member, preset_, meaning)                                                   \
    {                                                                                              \
        GEN_ROW(name, PARAM_BOOL, member, NULL, meaning), .preset = preset_                        \
    }
#define GEN_INT(name, member, min_, max_, preset_, otherwise, meaning)                             \
    {                                                                                              \
        GEN_ROW(name, PARAM_INT, member, otherwise, meaning), .min = min_, .max = max_,            \
                                                              .preset = preset_                    \
    }
/* A field without a member: another file reads it, or it has no effect. */
#define GEN_NAME(name_, type_, otherwise_, meaning_)                                               \
    {                                                                                              \
        .name = name_, .type = type_, .otherwise = otherwise_, .meaning = meaning_                 \
    }
/* Names that docs/ leave out. */
#define GEN_IGNORED(name) GEN_NAME(name, PARAM_IGNORED, NULL, NULL)
#define GEN_NAMED(name) GEN_NAME(name, PARAM_NAMED, NULL, NULL)
#define GEN_REFUSED(name) GEN_NAME(name, PARAM_UNSUPPORTED, NULL, NULL)

/* truncate.c reads it. */
#define GEN_TRUNCATION                                                                             \
    GEN_NAME("truncation", PARAM_IGNORED, "`disabled`",                                            \
             "`auto`: [the oldest turns go](tools.md#long-conversations) if the context is full")

/* Of every dialect, besides its own (routes.h). */
extern const struct param_field srv_fields_common[];
extern const struct param_field srv_fields_stream_options[];
extern const struct param_field srv_fields_ollama_options[];

/*
 * Reads the endpoint's own fields of a body, then the common ones, over their presets and the
 * model's defaults, checks them against model and limits, derives the sampling chain, and notes
 * what was ignored. p borrows from *body. Returns 0, or -1 after param_fail.
 */
int srv_gen_params_read(struct srv_gen_params *p, struct srv_request *req,
                        const struct param_field *own, const struct srv_body *body,
                        struct param_unknown *unknown);

/* Answers with the context error: its numbers are members too, because clients read them. */
void srv_gen_refuse_context(struct srv_request *req, int64_t n_prompt_tokens, int64_t max_tokens);

/*
 * Returns the name to show for the model asked for: the served one for NULL and, unless
 * strict-model is on, for "default", "tgi" and "dummy". Names with ":latest" are known in Ollama's
 * dialect. NULL after param_fail: no such model.
 */
const char *srv_gen_model_name(const struct srv_facts *facts, const char *asked);

/*
 * The field "prediction": the answer that a client expects, as OpenAI's predicted outputs. Its ids
 * become drafts of the engine; they change the speed of an answer, never the answer.
 *
 * Reads {"type": "content", "content": a string or text parts} and encodes the text. *ret_ids
 * [*ret_n] is in the request's memory. NULL: the request has no prediction; then neither is set.
 * Returns 0, or -1 after param_fail.
 */
int srv_prediction_read(struct srv_request *req, const json_t *field, const int32_t **ret_ids,
                        int64_t *ret_n);
