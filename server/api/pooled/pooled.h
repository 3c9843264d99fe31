/* SPDX-License-Identifier: MIT */
/*
 * Requests that are answered with numbers: n prompts in, n rows of numbers out, one engine job per
 * prompt. For routes whose answers are made of the model's last states and not of tokens.
 *
 * A route's arg is a dialect: an endpoint, which reads the fields and adds the prompts, and how the
 * answer is written. The endpoint is asked for each prompt, with the turns of other requests in
 * between; once all rows are there the dialect writes one item after the other.
 *
 * Threads: the text worker that holds the request; rows are written by the engine's, before the
 * answer. Lives in the request's memory, zeroed at first.
 */
#pragma once

#include "base/json_writer.h"
#include "server/api/pooled/texts.h"
#include "server/api/read/json_fields.h"
#include "server/api/run/generation.h"
#include "server/api/run/jobs.h"
#include "server/http/param_error.h"
#include "server/http/pieces.h"

struct srv_pooled;

/* Functions that can fail return 0, or -1 after param_fail. */
struct pooled_endpoint {
    const char *name; /* for the access log and metrics */
    size_t bytes;     /* of its requests, which begin with a struct srv_pooled */
    const struct param_field *fields;
    bool in_pieces; /* long answers are written as the client takes them: items are short */
    /* Checks fields and model; may change the dialect to one that the fields ask for. */
    int (*check)(struct srv_pooled *p);
    /* Finds the prompts in the fields, and makes room for them: srv_pooled_open. */
    int (*open)(struct srv_pooled *p);
    /* Adds the prompt of row i: srv_pooled_add. */
    int (*add)(struct srv_pooled *p, int i);
    /* Says in job i, which has the prompt of its row, what it is to give. */
    void (*describe)(struct srv_pooled *p, int i, struct eng_job_params *job);
    /* On the engine's thread: takes the numbers of job i. NULL: they are those of its row. */
    void (*event)(struct srv_pooled *p, int i, const struct eng_event *ev);
    /* All rows are there: puts the items in order, perhaps fewer. NULL: an item for each row. */
    void (*sort)(struct srv_pooled *p);
    void (*release)(struct srv_pooled *p); /* of what is the endpoint's own; or NULL */
};

/* Beside an endpoint's own flags of a dialect: members that are not in front of its list. */
enum { POOLED_NO_ID = 1 << 8, POOLED_NO_OBJECT = 1 << 9, POOLED_NO_MODEL = 1 << 10 };

struct pooled_dialect {
    const struct pooled_endpoint *endpoint;
    const char *input;  /* the field that holds the texts */
    enum texts_cut cut; /* of texts that are too long, unless the request says */
    unsigned flags;     /* the endpoint's own, and the above */
    const char *list;   /* the member that holds the items; NULL: the answer is their array */
    void (*item)(struct srv_pooled *p, struct jw *w, int i);
    /* Write what is around the items; NULL: an object with id, model and the list, or the bare
     * array; and its end, with the usage. */
    void (*begin)(struct srv_pooled *p, struct jw *w);
    void (*end)(struct srv_pooled *p, struct jw *w);
};

struct pooled_row {
    const int32_t *ids; /* [n_ids], in the request's memory */
    int64_t n_ids;
    int64_t n_first; /* eng_job_params.n_first; 0 unless the endpoint sets it */
    float *values;   /* [width]; complete when the answer is written */
    atomic_int finish;
};

struct srv_pooled {
    struct srv_request *req;
    const struct pooled_dialect *dialect;
    const struct srv_model *served;
    const struct eng_info *info; /* of its engine */
    struct srv_body body;
    struct param_unknown unknown; /* fields without effect */
    const char *model;            /* asked for; once checked: the name to show */
    json_t *input;                /* texts_open */
    bool many;                    /* it is a list of inputs */
    struct texts_fields asked;
    struct texts_rules rules;
    const char *field; /* of the request that holds the prompts, for errors */
    struct pooled_row *rows;
    int n, n_max, width;        /* added; opened for; of a row */
    int64_t n_tokens;           /* of all that were added */
    int64_t n_long, max_tokens; /* of one that is longer than the context, for the error */
    size_t answer_bytes;        /* at most, of the items; the endpoint's */
    int n_items;                /* of the answer; 0: not known yet */
    int n_written;              /* of these */
    struct jw w;
    struct srv_pieces pieces;
    struct srv_jobs jobs;
};

/* The handler of routes whose arg is a struct pooled_dialect. */
void srv_pooled_handle(struct srv_request *req);

/* For requests that another handler has read: the first member of a zeroed struct of the dialect's
 * endpoint; once it is open, start takes the request over. */
void srv_pooled_init(struct srv_pooled *p, struct srv_request *req,
                     const struct pooled_dialect *dialect);
void srv_pooled_start(struct srv_pooled *p);

/* Makes room for n_max rows of so many numbers, charged to the budget of answers. 0, or -1 after
 * param_fail. */
int srv_pooled_open(struct srv_pooled *p, const char *field, size_t n_max, int width);

/* Adds a prompt of at least one id, which is copied. 0, or -1 after param_fail. */
int srv_pooled_add(struct srv_pooled *p, const int32_t *ids, size_t n_ids);

/* The usage, for dialects with another order. */
void srv_pooled_write_usage(const struct srv_pooled *p, struct jw *w);
/* Cohere's: units of one name were used. */
void srv_pooled_write_meta(struct jw *w, const char *unit, int64_t n);

/*
 * A chat whose answer is the likeliest of a list of choices, with the probabilities of all: takes
 * the request over in place of srv_gen_start; the prompt is ready. Returns 0, or -1 after
 * param_fail: srv_gen_release is due.
 */
int srv_choose_chat(struct srv_gen *g);
