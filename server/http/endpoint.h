/* SPDX-License-Identifier: MIT */
/*
 * The view of an endpoint: the route table's row, the request, and how to answer.
 *
 * A request's life. daemon.c collects the head and the body; when the body is complete the route's
 * `handle` runs: on the HTTP thread for SRV_ROUTE_INLINE (it must be quick), else on a text worker
 * (dispatch.c). A handler answers in one of three ways:
 *
 *   1. srv_reply(...) or srv_reply_error(...): a whole answer; the request is over.
 *   2. srv_stream_open(...), then srv_stream_write(...) and at the end srv_stream_close(...).
 *   3. It starts engine jobs and returns without an answer, having set `on_wake`. From then on
 *      srv_request_wake(req), callable from any thread and cheap, makes a text worker call
 *      on_wake(api_data); wakes coalesce and on_wake never runs twice at once, nor while `handle`
 *      still runs. It goes on to 1 or 2.
 *
 * When the client has disconnected (or a server-side limit cuts the request) `on_gone` is called
 * once, on any thread, before or during other callbacks: it must only set flags and cancel engine
 * jobs. on_wake is still called afterwards, so that jobs are reaped.
 * `on_stop` (or NULL) is called when the server is shutting down and the drain time is over: cancel
 * the jobs, as in on_gone, but the client is still there, and an error answer that follows soon
 * still reaches it.
 *
 * Once the API side has called srv_request_done(req), and its runs and callbacks have returned,
 * `on_free` releases api_data, and the model is given back. The request is freed after that and
 * after the HTTP side is done with the connection, on whichever comes last. Answers
 * of kinds 1 and 2 do not imply srv_request_done where jobs may still call back; a handler of kind
 * 1 that started nothing need not call it: returning from `handle` with a finished answer and no
 * on_wake is enough.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "server/bounds.h"
#include "server/http/api_error.h"
#include "server/metrics.h"

struct srv_app;
struct srv_body;
struct srv_model;
struct srv_request;

enum srv_route_flags {
    SRV_ROUTE_OPEN = 1,        /* served without a key */
    SRV_ROUTE_INLINE = 2,      /* handled on the HTTP thread */
    SRV_ROUTE_EARLY = 4,       /* served while the model loads and while draining */
    SRV_ROUTE_PREFIX = 8,      /* the path matches with anything after it */
    SRV_ROUTE_BARE = 16,       /* the path begins with /v1, and is served without that too */
    SRV_ROUTE_ANY_HOST = 32,   /* served whatever the Host header says: for health checks */
    SRV_ROUTE_OPERATOR = 64,   /* for the operator alone; holds no model */
    SRV_ROUTE_RELOADS = 128,   /* with ?reload=1 for the operator alone */
    SRV_ROUTE_NO_MODEL = 256,  /* holds none */
    SRV_ROUTE_ANY_MODEL = 512, /* inline: served without a model too, if it is not loaded */
    SRV_ROUTE_STREAMS = 1024,  /* the field "stream" asks for events */
    SRV_ROUTE_ALL = 4096,      /* with ?all for the operator alone */
    SRV_ROUTE_UPLOAD = 2048,   /* multipart/form-data, taken as it comes: arg is a srv_sink */
};

struct srv_route {
    const char *method; /* "GET" (HEAD is served from it), "POST" or "DELETE" */
    const char *path;   /* without a trailing slash; also served with one */
    unsigned flags;
    enum srv_dialect dialect;
    void (*handle)(struct srv_request *req);
    const void *arg; /* for it, in srv_facts: const; NULL: none */
};

/* Takes a body in pieces, one at a time; the last one is the body that the handler finds. */
struct srv_sink {
    /* On a text worker. What it keeps is in srv_facts: upload. Returns how many bytes it has taken:
     * the others, fewer than a whole piece, come again with those that follow. */
    size_t (*take)(struct srv_request *req, const char *data, size_t n);
    void (*drop)(void *upload); /* any thread, once, after all else; not for NULL */
};

/* Arrays of rows end with a NULL method; the server has a NULL-terminated list of arrays. */

/* ---- the request --------------------------------------------------------------------------- */

/* The facts of a request that its handler may read; every request begins with them. Set before the
 * handler runs; the handler writes the account. */
struct srv_facts {
    struct srv_app *app;
    struct srv_model *model; /* of this request from its start to its end; NULL on early routes, and
                              * on those of SRV_ROUTE_ANY_MODEL if it is not loaded */
    int entry;               /* of the set of models: the one that is asked for */
    const void *arg;         /* of the route */
    const char *tail;        /* the path after a SRV_ROUTE_PREFIX, percent-decoded, or "" */
    const char *body;        /* NUL-terminated */
    size_t body_len;
    struct srv_body *read; /* the body, if it has been read already; see read/body.h */
    void *upload;          /* of a route with a sink */
    /* The id shown to the client: its own x-request-id if that is well-formed, else generated. */
    char id[SRV_REQUEST_ID_MAX + 1];
    char unique[25];   /* 24 random hex digits, for ids of answers (cmpl-..., chatcmpl-...) */
    uint64_t start_us; /* CLOCK_MONOTONIC when the head arrived */
    /* The four fields of the header traceparent, "" without a valid one. The server makes no spans;
     * it repeats them in its log and in errors, so that both can be found from a trace. */
    char trace_parent[56];
    uint8_t tenant[32]; /* digest of the API key, zeros without one */
    const char *only;   /* the models that the key may use, see srv_models_find_of; NULL: all */
    int key_slots;      /* of eng_job_params */
    /* The adapter that is asked for by a name, and its number; NULL: none is. */
    const char *lora;
    uint64_t lora_number;
    struct eng_lora_use loras[ENG_MAX_LORAS]; /* [n_loras]: of its jobs; references */
    int n_loras;
    bool has_read_lora; /* the field "lora" */
    bool may_operate;   /* see struct srv_guard_verdict */
    /* Of a request whose answer must be the same whenever it is made (local.h): the seed if the
     * body has none, and the time of creation. */
    bool is_fixed;
    uint64_t seed;
    int64_t created_s;
    enum srv_dialect dialect;   /* of the route, or of the request if the route has none */
    struct srv_account account; /* for the access log and the metrics; before the answer ends */
};

/* Borrowed until the request is freed. */
static inline struct srv_facts *srv_facts(struct srv_request *req)
{
    return (struct srv_facts *)req;
}

/* First value of a header (any case), or NULL. Borrowed. */
const char *srv_request_header(const struct srv_request *req, const char *name);
/* First value of a query argument, or NULL. Borrowed. */
const char *srv_request_query(const struct srv_request *req, const char *name);
/*
 * Sets the id shown to the client to its own from the body, unless a header gave one. NULL or a
 * malformed id changes nothing. Before the answer.
 */
void srv_request_suggest_id(struct srv_request *req, const char *id);
/*
 * Returns how many queue slots the request must leave to clients whose retry time is now
 * (eng_job_params.n_for_others); 0 if it is one of them. To be called before the first job.
 * n_slots: the number of sequences computed at once; busy: others wait for one of them.
 */
int srv_request_ask_place(struct srv_request *req, int n_slots, bool busy);
/*
 * Allocates zeroed, 16-byte aligned memory that lives as long as the request. NULL if its budget is
 * spent.
 */
void *srv_request_alloc(struct srv_request *req, size_t bytes);
/* A copy of bytes, perhaps none, in such memory. */
void *srv_request_copy(struct srv_request *req, const void *from, size_t bytes);

/*
 * Charges memory for the answer, which the caller allocates, to the budget that all answers share
 * (eng_memory.answer_bytes). It is given back when the request is freed. Returns false if the
 * budget has no room: then nothing is charged, and *ret_used is how much of it is in use.
 */
bool srv_request_charge(struct srv_request *req, int64_t bytes, int64_t *ret_used);

struct srv_callbacks {
    void (*on_wake)(void *api_data);
    void (*on_gone)(void *api_data);
    void (*on_free)(void *api_data);
    void (*on_stop)(void *api_data); /* NULL: on_gone is called instead, somewhat later */
};
/* Returns true if the client has disconnected before: on_gone is not called then. */
bool srv_request_set_callbacks(struct srv_request *req, const struct srv_callbacks *callbacks,
                               void *api_data);
void srv_request_wake(struct srv_request *req);
/*
 * From `handle` or on_wake, which then return: the rest of a long work of theirs waits for its turn
 * among new requests, those of other keys first, and on_wake goes on with it.
 */
void srv_request_yield(struct srv_request *req);
/* The drain time is over: such work is to end. on_stop may have come before there was one. */
bool srv_request_is_stopped(struct srv_request *req);
void srv_request_done(struct srv_request *req);

/* ---- answers ------------------------------------------------------------------------------- */

/* Sets a header of the answer, instead of an earlier one of this name; before srv_reply or
 * srv_stream_open. Control characters are refused. */
void srv_reply_header(struct srv_request *req, const char *name, const char *value);

/* Takes the buffer's contents (a failed buffer becomes a 500). content_type NULL: application/json.
 */
void srv_reply(struct srv_request *req, int status, const char *content_type, struct buf *body);

/* The answer is n bytes of a file from `at` on; fd is taken. */
void srv_reply_file(struct srv_request *req, int status, int fd, int64_t at, int64_t n);

/* Appends the error object in the request's dialect, or that of its event if the stream was opened
 * early; only OpenAI's has param and numbers. */
void srv_error_write_for(const struct srv_request *req, struct buf *b, enum srv_error kind,
                         const char *param, const char *message,
                         const struct srv_error_number *numbers);

/* Answers with that object, and with Retry-After for the statuses 429 and 503. */
void srv_reply_error(struct srv_request *req, enum srv_error kind, const char *param,
                     const char *format, ...) __attribute__((format(printf, 4, 5)));

/*
 * Starts a JSON answer, status 200, that is written in pieces as the client takes them: by
 * srv_stream_write while srv_stream_has_room, then srv_stream_close.
 */
void srv_reply_in_pieces(struct srv_request *req);

/*
 * Starts a stream with status 200: text/event-stream, with headers that keep proxies from
 * buffering.
 */
void srv_stream_open(struct srv_request *req);
/*
 * Returns true if the client keeps up, or has disconnected (its output is discarded). If false,
 * write no more for now: on_wake is called when there is room again.
 */
bool srv_stream_has_room(struct srv_request *req);
/* Appends bytes; false if the client has disconnected or was cut as a slow reader: stop writing. */
bool srv_stream_write(struct srv_request *req, const char *data, size_t len);
void srv_stream_close(struct srv_request *req);
/* Cuts the connection, to end an answer that cannot be completed. */
void srv_stream_abort(struct srv_request *req);
