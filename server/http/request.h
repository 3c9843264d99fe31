/* SPDX-License-Identifier: MIT */
/*
 * One request's life: private to the core; endpoint.h is what handlers see.
 *
 *   request.c   memory, references, facts of the head, wakes, the end
 *   reply.c     answers and streams, on top of it
 *   dispatch.c  the handler's runs, on top of both
 *
 * References. The HTTP side holds one from creation to srv_request_completed, the API side one from
 * dispatch to srv_request_done (or to the end of a handler that answered at once), a work queue one
 * while the request is queued or runs, and the watcher one while it looks. The last to go frees it,
 * writes the access log's line and counts it. The model is given back before that, when the API
 * side and its runs are done: a client that reads its answer slowly does not hold it.
 *
 * The lock guards the meeting of HTTP thread, text worker and watcher: answer, stream, `suspended`,
 * `gone`. A suspended connection cannot go away, so with `suspended` set its pointer is good; it is
 * resumed under the lock. Lock order: watch.c's registry before a request's.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "server/bounds.h"
#include "server/http/bodies.h"
#include "server/http/endpoint.h"
#include "server/http/retry_slots.h"
#include "server/http/text_workers.h"

struct srv_server;

struct srv_pair {
    const char *name, *value;
};

/* The HTTP side's part of a request. The first two are called with the request's lock held. */
struct srv_transport {
    void (*suspend)(struct srv_request *req); /* the connection, until it is resumed */
    void (*resume)(struct srv_request *req);  /* the connection, if it is suspended */
    void (*cut)(struct srv_request *req);     /* shuts the socket down; called without the lock */
};

enum srv_stage { SRV_STAGE_HEAD, SRV_STAGE_BODY, SRV_STAGE_DISPATCHED, SRV_STAGE_ANSWERED };
enum srv_answer {
    SRV_ANSWER_NONE,
    SRV_ANSWER_WHOLE,  /* from `reply` */
    SRV_ANSWER_FILE,   /* from `file` */
    SRV_ANSWER_PIECES, /* of a whole answer, as those of a stream */
    SRV_ANSWER_STREAM, /* of events */
};
enum srv_run { SRV_RUN_IDLE, SRV_RUN_QUEUED, SRV_RUN_ACTIVE, SRV_RUN_AGAIN };

struct arena_block;

struct srv_request {
    struct srv_facts facts; /* first: endpoint.h gets to them by a cast */
    struct srv_work_item work;
    struct srv_server *server;
    atomic_int n_refs;
    atomic_int n_api_refs; /* of these: of the API side, its runs, and calls of its callbacks */

    /* The head: the HTTP thread's until dispatch, const afterwards. */
    const struct srv_route *route; /* NULL: none matched */
    const char *target;            /* the raw request target */
    const char *path;              /* decoded, without query and trailing slash */
    const char *query;             /* raw, after '?', or "" */
    char method[16];
    char peer[64];
    struct srv_pair headers[SRV_HEADERS_MAX];
    int n_headers;
    uint64_t connection_id; /* the watcher's */
    bool admin;             /* received on the metrics listener */
    bool close_after;       /* the connection ends with this answer */
    enum srv_stage stage;
    struct buf body;             /* with a sink: the piece that comes, */
    size_t n_kept;               /* and how much of it is of the last one */
    size_t body_bytes;           /* that have come */
    struct srv_body_charge held; /* the body's bytes among all bodies' */
    /* Of the model while there is one; else NULL. */
    atomic_llong *answers;        /* bytes that all answers have, */
    const int64_t *answers_limit; /* and may have */
    int64_t answer_bytes;         /* of these: its own, */
    struct srv_model *charged;    /* once the model has been given back: of this one; or NULL */
    bool over_budget, over_limit;
    size_t discarded_bytes;

    pthread_mutex_t lock; /* guards everything down to the next blank line */
    const struct srv_transport *transport;
    void *connection; /* NULL once the HTTP side is done */
    bool suspended, gone, cut, api_held, http_held;
    enum srv_run run;
    bool yields; /* this run is to be followed by another one, in turn with new requests */
    enum srv_answer answer;
    int status;
    const char *content_type;
    struct buf reply;
    struct {
        int fd; /* owned until it is the library's: -1 */
        int64_t at, bytes;
    } file;
    struct buf stream; /* of bytes on their way to the HTTP thread, */
    size_t n_taken;    /* which has so many of them */
    bool stream_closed, stop_called, gone_called;
    bool wants_room;        /* the API side is to be woken when the stream has drained */
    uint64_t last_write_us; /* when the stream last got bytes */
    size_t sent_bytes;      /* taken by the HTTP library */
    struct srv_callbacks callbacks;
    void *api_data; /* their argument */

    /* The API side's, before the answer. */
    struct srv_pair reply_headers[SRV_REPLY_HEADERS_MAX];
    int n_reply_headers;
    struct srv_returner returner;
    bool has_asked;    /* for a queue slot: returner is set */
    uint64_t end_us;   /* when the HTTP side was done */
    int64_t load_ms;   /* how long its load may take: a retry time; 0: not refused for that */
    bool opened_early; /* the stream began while the request waited for its model */

    struct arena_block *arena;
    size_t arena_bytes;
};

/* A request with its target copied; NULL if out of memory. The HTTP side's reference is the
 * caller's. */
struct srv_request *srv_request_create(struct srv_server *server,
                                       const struct srv_transport *transport, void *connection,
                                       const char *target);

/* Keeps a copy of a header; a well-formed x-request-id becomes the id shown, and a valid
 * traceparent is noted. Returns false beyond SRV_HEADERS_MAX or when out of memory. */
bool srv_request_add_header(struct srv_request *req, const char *name, size_t name_len,
                            const char *value, size_t value_len);

/* Copies text into the request's memory, with a NUL; NULL if out of memory. */
char *srv_request_copy_text(struct srv_request *req, const char *text, size_t len);

enum { SRV_UNIQUE_BYTES = 12 };
/* Makes the ids of so many bytes; the id shown until a header or the body names another. */
void srv_request_set_ids(struct srv_request *req, const uint8_t *unique);

void srv_request_ref(struct srv_request *req);

/* Gives a reference of the API side back: its holder reads neither data of the request nor the
 * model any more. The last one frees the data, and gives the model back. The caller holds the
 * request. */
void srv_request_unref_api(struct srv_request *req);

/* The last one accounts for the request, and frees it. */
void srv_request_unref(struct srv_request *req);

/* Queues the request for a text worker; with the lock held, and `run` set to SRV_RUN_QUEUED. */
void srv_request_push(struct srv_request *req, enum srv_work_class class);

/* WAIT: the connection has been suspended, and will be resumed once there is an answer. */
enum srv_poll { SRV_POLL_WAIT, SRV_POLL_READY, SRV_POLL_GONE };

/* Gives the complete request to its handler: here and now for inline routes, else to a text worker.
 */
enum srv_poll srv_request_dispatch(struct srv_request *req);

/* HTTP thread, of a body with a sink: READY if the next bytes may be added; full: a text worker
 * takes the piece first. As above. */
enum srv_poll srv_request_piece(struct srv_request *req, bool full);

/* HTTP thread: returns the state of the answer. */
enum srv_poll srv_request_poll(struct srv_request *req);

enum { SRV_READ_END = -1, SRV_READ_CUT = -2 };

/* HTTP thread: bytes of the stream into buf. 0: the connection has been suspended. */
ssize_t srv_request_read(struct srv_request *req, char *buf, size_t max);

/* HTTP thread: the connection is done with it; finished: the answer was sent to its end. */
void srv_request_completed(struct srv_request *req, bool finished);

/* Watcher and main thread; the caller holds a reference. The client has disconnected or is cut. */
void srv_request_gone(struct srv_request *req);
/* The drain time is over: asks the API side to end, with an error answer if it still can. */
void srv_request_stop(struct srv_request *req);
/* The sign of life of a silent stream: a comment, or in lines of JSON a blank. */
const char *srv_request_beat(const struct srv_request *req);
/* Puts that on a stream that has been silent since before `silent_since_us`. */
void srv_request_heartbeat(struct srv_request *req, uint64_t now_us, uint64_t silent_since_us);
