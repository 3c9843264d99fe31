/* SPDX-License-Identifier: MIT */
/*
 * One generation request between JSON and the engine, shared by every dialect: prompts x choices.
 *
 * An endpoint has a srv_gen_format: its fields, how its prompts are prepared, and how its dialect
 * writes text, finish reasons and usage. srv_gen_handle (generate.h) reads the body, prepares the
 * prompts and starts one job per prompt; then jobs.h runs the request:
 *
 *   engine thread   appends to the logs of prompt and choices (choice_text.h)
 *   text worker     records to text (choice_text.h), text to the format's events or answer
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/json_writer.h"
#include "server/api/read/cache_fields.h"
#include "server/api/run/choice_text.h"
#include "server/api/read/generation_fields.h"
#include "server/api/run/guide.h"
#include "server/api/run/jobs.h"
#include "server/api/read/tools_request.h"
#include "server/http/pieces.h"

enum {
    GEN_MAX_PROMPTS = 256,
    GEN_PART_BYTES = 16 << 10, /* of a text that is written in parts */
};

/* The progress of a prompt's prefill after a step. */
struct gen_step {
    int32_t n_done, n_cached;
    uint64_t us; /* since it left the queue */
};

enum { SRV_GEN_ANSWERED = 1 };

enum gen_stage { GEN_WAITING, GEN_STARTED, GEN_DONE };

struct gen_prompt {
    const int32_t *ids; /* [n_ids], in the request's arena */
    int64_t n_ids;
    struct gen_log log;           /* prompt log-probabilities: records of positions 1.. */
    struct gen_choice *choices;   /* [n_candidates]; NULL until its job is described */
    char *memory;                 /* one allocation for all its logs, owned */
    atomic_int stage;             /* enum gen_stage, published by the engine thread */
    struct eng_usage first_usage; /* of the start: valid from GEN_STARTED on */
    atomic_ullong first_token_us; /* 0 until there is one; the engine thread's */
    struct eng_usage usage;       /* of the end: valid at GEN_DONE */
    /* With return_progress: the steps of the prefill, one writer and one reader as in a log. */
    struct gen_step *steps;   /* [n_ids], or NULL */
    atomic_llong n_steps;     /* published by the engine thread */
    int64_t n_steps_reported; /* the text worker's */
    bool start_reported;
    struct gen_step reported; /* the last step reported */
};

struct srv_gen;

/* Summed over the prompts of a request; us is of the prompt reported last. */
struct gen_progress {
    int64_t n_total, n_done, n_cached;
    uint64_t us;
};

/* The position in a whole answer that is written in pieces, so that an answer of any size takes
 * little memory. */
struct gen_cursor {
    struct jw w; /* its buffer is the piece being written */
    bool begun;
    int prompt, choice;          /* being written; choice is the index in the answer */
    int part;                    /* part of the choice or of the tail; numbered by the format */
    int64_t at;                  /* within the part: a token, or a byte of the text */
    int picked[GEN_MAX_CHOICES]; /* of the prompt: which candidates are shown */
};

/* How a dialect writes its answer. `text` ranges are valid UTF-8 and may be empty. */
struct srv_gen_dialect {
    /* Of the two OpenAI dialects that write chunks, else NULL: the member "object" of a whole
     * answer and of a chunk. shows_tier: with the member "service_tier". */
    const char *object, *chunk_object;
    bool shows_tier;
    void (*stream_begin)(struct srv_gen *g); /* or NULL */
    /* A call begins, or any part begins or has ended; NULL: the dialect does not say so. */
    void (*stream_call)(struct srv_gen *g, struct gen_choice *c, const struct choice_part *call);
    void (*stream_part)(struct srv_gen *g, struct gen_choice *c, const struct choice_part *part,
                        bool ended);
    /* The text after c->n_sent up to `to`, and the tokens after c->n_shown. part: the one that
     * holds the text; NULL: only tokens, no text. Of the tokens, those below n_showable have text
     * of their own or log-probabilities to show. */
    void (*stream_delta)(struct srv_gen *g, struct gen_choice *c, const struct choice_part *part,
                         size_t to, int64_t token_to);
    void (*stream_finish)(struct srv_gen *g, struct gen_choice *c);
    void (*stream_progress)(struct srv_gen *g, const struct gen_progress *progress); /* or NULL */
    void (*stream_end)(struct srv_gen *g);                                           /* or NULL */
    void (*stream_error)(struct srv_gen *g, enum srv_error kind, const char *message);
    /*
     * A whole answer: head, all shown choices, tail; head and choice may be NULL. choice and tail
     * write their next part, of some ten kilobytes at most if they may be long, and return true if
     * that was the last. at->part and at->at begin at 0 and are theirs.
     */
    void (*head)(struct srv_gen *g, struct jw *w);
    bool (*choice)(struct srv_gen *g, struct jw *w, struct gen_choice *c, struct gen_cursor *at);
    bool (*tail)(struct srv_gen *g, struct jw *w, struct gen_cursor *at);
};

/* How an endpoint reads its requests, and how it writes the answer. */
struct srv_gen_format {
    const char *endpoint;             /* for the access log and metrics */
    const char *input;                /* the parameter that holds the prompt */
    const char *id_prefix;            /* of the answer */
    const char *counted;              /* "object" of an answer that counts; NULL: left out */
    enum tools_dialect dialect;       /* how tools and reasoning are spelled */
    const struct param_field *fields; /* besides the common ones */
    bool one_choice;                  /* n must be 1 */
    void (*note)(struct srv_gen *g);  /* notes members without effect; or NULL */
    /* Checks the fields that were read and sets the prompts. Returns 0, SRV_GEN_ANSWERED if nothing
     * is to be generated, or -1 after param_fail. */
    int (*prepare)(struct srv_gen *g);
    const struct srv_gen_dialect *answer;
};

struct srv_gen {
    struct srv_request *req;
    const struct srv_model *served;
    const struct srv_gen_format *format;
    struct srv_body body; /* params borrow from it */
    struct srv_gen_params params;
    struct choice_rules rules;
    struct srv_tools tools;
    struct srv_guide guide;
    struct param_unknown unknown; /* fields without effect */
    struct srv_cache_fields cache;
    struct srv_jobs jobs; /* one per prompt */
    struct srv_jobs_ops ops;
    const struct srv_gen_writer *writer;
    const int32_t *prediction; /* [n_prediction], in the request's arena */
    int64_t n_prediction;
    struct gen_prompt *prompts;
    int n_prompts;
    int n_choices;            /* shown for each prompt: n */
    int n_candidates;         /* generated for each prompt: max(n, best_of) */
    int64_t max_tokens;       /* requested per choice; -1 until the endpoint has set its default */
    int64_t n_dropped_items;  /* of the client's messages or items: see truncate.h */
    int64_t n_progress_sent;  /* prompt tokens last reported; -1: nothing yet */
    bool reports_progress;    /* the stream reports the steps of the prefill */
    bool streaming;           /* srv_stream_open has been called */
    struct srv_pieces pieces; /* of a whole answer that is long */
    struct gen_cursor cursor; /* of a whole answer */
    bool answered;            /* nothing more will be written */
    bool counts;              /* srv_gen_count: nothing is generated */
    char id[64];
    int64_t created;
    const char *model; /* as the client named it */
    void *dialect;     /* private to the endpoint */
    int sequence;      /* number of the next event, for dialects that number them */
};

/* The writer of a generation's answer. */
struct srv_gen_writer {
    /* Begins the stream if `opens`, and writes what is new of the first n_prompts; finished: all
     * jobs have ended. Returns true if nothing more will be written. */
    bool (*write)(struct srv_gen *g, bool opens, int n_prompts, bool finished);
    void (*fail)(void *ctx, enum srv_error kind, const char *message); /* ctx: the generation */
};

/* Submits the prompts and takes the request over; everything has been read. Returns 0, or -1 after
 * param_fail: srv_gen_release is due. */
int srv_gen_start(struct srv_gen *g, const struct srv_gen_writer *writer);
void srv_gen_release(void *g);

/* Of srv_jobs_ops: reads the new records, and has the writer write what can be written. */
bool srv_gen_advance(void *g);

/* Puts the request's cache, place in the queue and deadline into a job that is described. */
void srv_gen_describe(const struct srv_gen *g, struct eng_job_params *jp);

/* Returns the engine's usage of a prompt so far. Text workers. */
struct eng_usage srv_gen_usage(const struct gen_prompt *p);

/* Sums over prompts and shown choices. A batch hides what the cache had: its bytes never differ. */
struct gen_totals {
    int64_t n_prompt, n_cached, n_written, n_completion, n_reasoning;
    int64_t n_reused; /* as n_cached, and of a batch too: for accounts, not for answers */
    int64_t n_closing, n_closing_values; /* what closed answers that ran out of tokens */
    int64_t n_accepted, n_rejected;      /* ids that the prediction proposed; counted at the end */
};
struct gen_totals srv_gen_totals(const struct srv_gen *g);

/* max_tokens where nobody says it: as many as the route has, fewer of an answer of JSON. */
void srv_gen_default_tokens(struct srv_gen *g, int64_t n);

/* Returns the largest number of tokens that a choice of the prompt can have. */
int64_t srv_gen_token_capacity(const struct srv_gen *g, const struct gen_prompt *p);
