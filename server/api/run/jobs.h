/* SPDX-License-Identifier: MIT */
/*
 * The engine jobs of one request, and nothing of their results.
 *
 * An endpoint checks its input, sets up what its jobs are to fill, and calls srv_jobs_start. From
 * then on this module runs the request: it lets the endpoint prepare, which holds no text worker
 * while it waits, submits the jobs, a few at a time, reaps the finished, lets the endpoint write
 * its answer, and ends the request once that is written and no job runs.
 *
 *   engine thread   event: stores what came and publishes it
 *   text worker     prepare, describe, advance, refuse: never two at once for a request
 *   any thread      a client that disconnects, the end of the drain: the jobs are cancelled
 *
 * Lives in the request's memory, zeroed before srv_jobs_start.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/engine.h"
#include "server/http/endpoint.h"
#include "server/models/app.h"

enum srv_jobs_state { JOBS_READY, JOBS_WAIT, JOBS_YIELD, JOBS_REFUSED };

/* The endpoint's functions; ctx is that of srv_jobs_start. */
struct srv_jobs_ops {
    /* Fills in job i: tenant, deadlines and the queue's rules are set already. Called again after a
     * full queue refused it. Returns 0, or -1 when out of memory. */
    int (*describe)(void *ctx, int i, struct eng_job_params *p);
    /* On the engine thread: must not wait, and must not use the request. */
    void (*event)(void *ctx, int i, const struct eng_event *ev);
    /* Writes what can be written. Returns true once there is no more to write: the request is
     * answered, or its client has disconnected. Not called again afterwards. */
    bool (*advance)(void *ctx);
    /* Answers the error. Not called after advance has returned true. */
    void (*refuse)(void *ctx, enum srv_error kind, const char *message);
    /* Frees what the endpoint owns, after everything has ended. */
    void (*release)(void *ctx);
    /* Makes what the jobs need, before any is described. Returns JOBS_WAIT if it is to be called
     * again after srv_jobs_go_on, JOBS_YIELD if as soon as others have had their turn, JOBS_REFUSED
     * if the error has been answered. NULL: no need. */
    enum srv_jobs_state (*prepare)(void *ctx);
    /* Any thread, more than once: the client has disconnected; srv_jobs_go_on is to come soon, if
     * prepare waits for it. Set with prepare. */
    void (*hurry)(void *ctx);
};

struct srv_job {
    struct srv_jobs *owner;
    _Atomic(struct eng_job *) handle; /* owned; set by the text worker, read by on_gone */
    atomic_bool done;                 /* its last event has come */
    bool started;                     /* the engine thread's */
    bool reaped;
};

struct srv_jobs {
    struct srv_request *req;
    const struct srv_jobs_ops *ops;
    void *ctx;
    struct srv_job *jobs; /* [n_max] */
    int n_max;
    int n; /* to be submitted: n_max, or fewer by prepare */
    int n_submitted, n_running;
    int n_reserved; /* queue slots that the jobs leave to clients with a retry time */
    bool finished;  /* all jobs have been submitted and have ended; the text worker's */
    bool is_whole;  /* no token can end an answer or be sent before its end; set before the start */
    bool answered;
    enum srv_jobs_state state;
    uint64_t turn_us;    /* when this run of prepare began */
    atomic_bool resumed; /* prepare need not wait any longer */
    atomic_bool gone;    /* the client has disconnected */
    atomic_int n_inside; /* callbacks of other threads that have not returned */
};

/* Takes the request over and submits the first of n >= 1 jobs, of which prepare may leave fewer.
 * From the handler, once. */
void srv_jobs_start(struct srv_jobs *j, struct srv_request *req, int n,
                    const struct srv_jobs_ops *ops, void *ctx);

/* Called when the thing that prepare waits for is there: once per JOBS_WAIT, any thread, perhaps
 * before prepare returns. */
void srv_jobs_go_on(struct srv_jobs *j);

/*
 * For a prepare that does many things, before each: returns JOBS_READY to go on, or what it is to
 * return: its turn is over, or the client has left, the deadline passed or the server ends, which
 * has been answered.
 */
enum srv_jobs_state srv_jobs_pause(struct srv_jobs *j);

/* The point in time so many milliseconds after the request's start; 0: never. */
uint64_t srv_jobs_deadline(const struct srv_facts *facts, int64_t ms);

/* Ends one choice of a submitted job early; text worker. */
void srv_jobs_stop_choice(struct srv_jobs *j, int i, int choice);

struct srv_job_failure {
    enum srv_error kind;
    const char *message;
};

/* Returns the API error for a choice that the engine has ended after n_tokens tokens, or NULL if
 * the tokens are its answer. finish: an enum eng_finish, or 0 while it runs. */
const struct srv_job_failure *srv_jobs_failure(const struct srv_jobs *j, int finish,
                                               int64_t n_tokens);
