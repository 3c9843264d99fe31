/* SPDX-License-Identifier: MIT */
/*
 * One generation request between JSON and the engine, shared by every dialect.
 *
 * An endpoint parses its body into srv_gen_params and prompts, chooses a srv_gen_format (how text,
 * ends and usage are written in its dialect), and calls srv_gen_start. From then on this module
 * owns the request:
 *
 *   engine thread   on_event: appends records to the choice's log, wakes the request. The logs are
 *                   sized when a prompt is submitted for all that can come, so the engine never
 *                   waits; a record is written once, then published by an atomic count (one
 *                   writer, one reader, no lock).
 *   text worker     on_wake: reads new records, ids -> text -> stop strings -> the format's events.
 *   any thread      on_gone: cancels the jobs.
 *
 * Prompts of an array are jobs of their own, a few at a time; the request ends when the last
 * JOB_DONE is in.
 */
#ifndef HEARTH_SERVER_API_GENERATION_H
#define HEARTH_SERVER_API_GENERATION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "engine/engine.h"
#include "server/api/json_fields.h"
#include "server/api/stop_strings.h"
#include "server/http/api_error.h"
#include "server/http/endpoint.h"

struct tok_decoder;

enum {
    GEN_MAX_PROMPTS = 256,
    GEN_MAX_CHOICES = 16, /* n and best_of */
    GEN_MAX_LOGPROBS = ENG_MAX_LOGPROBS,
};

/* What a body asks for, whatever its dialect. Filled by srv_gen_params_read. */
struct srv_gen_params {
    /* fields read as they stand */
    double temperature, top_p, min_p, typical_p;
    double repetition_penalty, frequency_penalty, presence_penalty;
    int64_t top_k, seed, n, best_of, min_tokens, priority, deadline_ms;
    int64_t max_tokens, max_completion_tokens; /* -1: absent */
    int64_t n_predict;                         /* -1: to the end of the context, -2: absent */
    int64_t logprobs_count, prompt_logprobs;   /* -1: none */
    bool stream, ignore_eos, include_stop, skip_special, echo, cache_prompt;
    bool return_token_ids, tokens_as_ids, timings, return_progress;
    const char *model, *cache_salt, *request_id, *service_tier;
    json_t *stop, *stop_token_ids, *logit_bias, *allowed_token_ids, *stream_options;
    json_t *response_format;
    /* of some dialects only */
    json_t *prompt, *messages, *chat_template_kwargs, *extra;
    int64_t top_logprobs; /* -1: absent */
    bool logprobs_flag, add_generation_prompt, continue_final_message, add_special;
    /* derived */
    bool include_usage, continuous_usage;
    int64_t chunk_tokens; /* most tokens in an event; 0: as they come */
    bool want_logprobs;
    const char *stops[TEXTOUT_MAX_STOPS];
    size_t stop_lens[TEXTOUT_MAX_STOPS];
    int n_stops;
    int32_t *stop_ids;
    int n_stop_ids;
    struct eng_sampling sampling;
};

/* One token of a choice or of a prompt, as the engine gave it. */
struct gen_record {
    int32_t id;
    float logprob;
    int32_t n_top;
};

struct gen_log {
    struct gen_record *records; /* [capacity] */
    struct eng_logprob *tops;   /* [capacity][top_width] */
    int64_t capacity;
    int top_width;          /* of a row of tops; 0: none */
    atomic_llong n_written; /* published by the engine thread */
    int64_t n_read;         /* the text worker's */
};

/* The likeliest tokens beside record i; NULL where none were asked for. */
static inline const struct eng_logprob *gen_log_top(const struct gen_log *log, int64_t i)
{
    return log->tops ? log->tops + i * log->top_width : NULL;
}

struct gen_choice {
    int index; /* as shown: prompt x n + choice */
    struct gen_log log;
    atomic_int finish; /* enum eng_finish, 0 while running; written after the last record */
    int32_t stop_id;   /* the id that ended it, or -1 */
    struct textout text;
    int64_t text_charged;        /* bytes of text.text that the budget of answers knows of */
    struct tok_decoder *decoder; /* NULL once the choice has ended */
    uint32_t *offsets;           /* [capacity]: bytes of text before each token's piece */
    int64_t n_tokens;            /* that count: up to the one that completed a stop */
    int64_t n_shown;             /* whose log-probabilities have been sent */
    size_t n_sent;               /* bytes of text sent */
    size_t counted_bytes;        /* of the text, and the characters in them: see openai_json.h */
    int64_t counted_characters;
    bool introduced;           /* its first event has been sent (the format's) */
    bool ended;                /* finish_reason is decided */
    bool closed;               /* and sent */
    const char *finish_reason; /* "stop" or "length" */
    const char *stop_string;   /* the one found, or NULL */
    double sum_logprob;
};

/* How far the prefill of a prompt was after a step. */
struct gen_step {
    int32_t n_done, n_cached;
    uint64_t us; /* since it left the queue */
};

struct gen_prompt {
    const int32_t *ids; /* [n_ids], in the request's arena */
    int64_t n_ids;
    _Atomic(struct eng_job *) job; /* set by the text worker, read by on_gone */
    struct gen_log log;            /* prompt log-probabilities: records of positions 1.. */
    struct gen_choice *choices;    /* [n_candidates]; NULL until it is submitted */
    char *memory;                  /* of all its logs: one allocation */
    struct eng_usage first_usage;  /* of the start: valid once `started` */
    struct eng_usage usage;        /* of the end: valid once `done` */
    /* With return_progress: the steps of the prefill, one writer and one reader as in a log. */
    struct gen_step *steps;   /* [n_ids], or NULL */
    atomic_llong n_steps;     /* published by the engine thread */
    int64_t n_steps_reported; /* the text worker's */
    bool start_reported;
    struct gen_step reported; /* the last one that was */
    atomic_bool started, done;
    bool submitted, reaped;
};

struct srv_gen;

/* Of all prompts of a request together; us: of the last report's prompt. */
struct gen_progress {
    int64_t n_total, n_done, n_cached;
    uint64_t us;
};

/*
 * Where the writing of a whole answer stands. It is written in pieces, so that an answer of any size
 * takes little memory.
 */
struct gen_cursor {
    bool begun;
    int prompt, choice;          /* being written; the choice as shown */
    int part;                    /* of the choice or of the end: the format's */
    int64_t at;                  /* within the part: a token, or a byte of the text */
    int picked[GEN_MAX_CHOICES]; /* of the prompt: which candidates are shown */
};

/* How one dialect writes an answer. `text` ranges are valid UTF-8 and may be empty. */
struct srv_gen_format {
    const char *endpoint; /* for the access log and metrics */
    const char *input;    /* the parameter that holds the prompt */
    void (*stream_begin)(struct srv_gen *g);
    void (*stream_delta)(struct srv_gen *g, struct gen_prompt *p, struct gen_choice *c, size_t from,
                         size_t to, int64_t token_from, int64_t token_to);
    void (*stream_finish)(struct srv_gen *g, struct gen_prompt *p, struct gen_choice *c);
    void (*stream_progress)(struct srv_gen *g, const struct gen_progress *progress); /* or NULL */
    void (*stream_end)(struct srv_gen *g);
    void (*stream_error)(struct srv_gen *g, enum srv_error kind, const char *message);
    /* Appends the next piece of a whole answer; returns true if that was the last. */
    bool (*whole)(struct srv_gen *g, struct gen_cursor *at, struct buf *body);
};

struct srv_gen {
    struct srv_request *req;
    const struct srv_app *app;
    const struct srv_gen_format *format;
    json_t *body; /* owned: params borrow from it */
    struct srv_gen_params params;
    struct textout_stops stops;
    struct gen_prompt *prompts;
    int n_prompts;
    int n_choices;      /* shown for each prompt: n */
    int n_candidates;   /* generated for each prompt: max(n, best_of) */
    int64_t max_tokens; /* asked for, per choice; -1 until the endpoint has set its default */
    int n_outstanding, n_submitted;
    int n_places_kept;        /* in the queue, for others */
    int64_t n_progress_sent;  /* prompt tokens last reported; -1: nothing yet */
    bool streaming;           /* srv_stream_open has been called */
    bool in_pieces;           /* srv_reply_in_pieces has been called */
    struct gen_cursor cursor; /* of a whole answer */
    bool answered;            /* nothing more will be written */
    atomic_bool gone;
    atomic_int n_inside; /* engine callbacks that have not returned */
    char id[64];
    int64_t created;
    const char *model; /* as the client named it */
    void *dialect;     /* the endpoint's own */
    int sequence;      /* numbers the events of dialects that want it */
};

/* Rows of a field table for srv_gen_params. */
#define GEN_FIELD(name, type, member)                                                              \
    {                                                                                              \
        name, type, offsetof(struct srv_gen_params, member), 0, 0                                  \
    }
#define GEN_RANGE(name, type, member, min, max)                                                    \
    {                                                                                              \
        name, type, offsetof(struct srv_gen_params, member), min, max                              \
    }
#define GEN_OTHER(name, type)                                                                      \
    {                                                                                              \
        name, type, 0, 0, 0                                                                        \
    }

/* A request's generation object, in its arena, with params at their defaults; takes body. NULL
 * without memory. */
struct srv_gen *srv_gen_create(struct srv_request *req, json_t *body,
                               const struct srv_gen_format *format);

/*
 * Reads the endpoint's own fields, then the common ones (generation_fields.c), checks them against model
 * and limits, derives the sampling chain, and names what was ignored. 0 or -1 with err.
 */
int srv_gen_params_read(struct srv_gen *g, const struct param_field *own, struct param_error *err);

/* The name to show for the model asked for: the served one for NULL and, unless strict-model is on,
 * for "default", "tgi" and "dummy". NULL with err: no such model. */
const char *srv_gen_model_name(const struct srv_app *app, const char *asked,
                               struct param_error *err);

/* Creates the object from the request's body and reads its fields; NULL: the error has been
 * answered. */
struct srv_gen *srv_gen_open(struct srv_request *req, const struct srv_gen_format *format,
                             const struct param_field *own);

/* Names the parameters without effect in x-ignored-params; under strict-params unknown ones are an
 * error: 0 or -1 with err. */
int srv_gen_note_ignored(struct srv_request *req, const struct param_unknown *unknown,
                         struct param_error *err);

/* Sets prompt i; ids must live in the request's arena. */
void srv_gen_set_prompt(struct srv_gen *g, int i, const int32_t *ids, int64_t n_ids);

/* Copies ids of a tokenizer list into the arena; NULL without memory. */
int32_t *srv_gen_copy_ids(struct srv_gen *g, const int32_t *ids, size_t n);

/*
 * The one prompt of a chat dialect: rendered, tokenised, and everything the context leaves as the
 * default of max_tokens. 0 or -1 with err.
 */
struct chat_input;
int srv_gen_chat_prompt(struct srv_gen *g, const struct chat_input *in, struct param_error *err);

/* Prompts are set: checks lengths, submits, and takes the request over. On failure the error has
 * been answered. */
void srv_gen_start(struct srv_gen *g);

/* Answers an error before anything started and gives the generation back. */
void srv_gen_refuse(struct srv_gen *g, const struct param_error *err);

/* ---- for the formats (openai_json.c, and openai_json.h for more) ----------------------------------- */

/* What the engine has said of a prompt so far; all of it once its job is reaped. Text workers. */
struct eng_usage srv_gen_usage(const struct gen_prompt *p);

/* Sums over prompts and shown choices. */
struct gen_totals {
    int64_t n_prompt, n_cached, n_completion;
};
struct gen_totals srv_gen_totals(const struct srv_gen *g);

/* "usage" object of the OpenAI dialects. */
void srv_gen_write_usage(const struct srv_gen *g, struct buf *b);

/* The member "timings" in the spirit of llama-server, where the request asks for it. */
void srv_gen_add_timings(const struct srv_gen *g, struct buf *b);

/* Shown choices of a prompt in order of rank: candidate numbers (best_of picks the likeliest). */
void srv_gen_pick(const struct srv_gen *g, const struct gen_prompt *p, int *ret_candidates);

/* Writes one SSE event: data: <json>, with an event name where not NULL. Takes the buffer's
 * contents and clears it. */
void srv_gen_event(struct srv_gen *g, const char *name, struct buf *json);

#endif
