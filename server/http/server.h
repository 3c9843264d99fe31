/* SPDX-License-Identifier: MIT */
/*
 * The state of a running server, for server/http, serve.c and health.c. Other handlers use struct
 * srv_app only.
 *
 * The main thread writes it before the HTTP threads start; the atomics excepted.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "server/http/bodies.h"
#include "server/http/endpoint.h"
#include "server/http/guard.h"
#include "server/http/retry_slots.h"

struct srv_keys;
struct srv_metrics;
struct srv_pull;
struct srv_watch;
struct srv_work;

/* Calls into the rooms that know models, as this one does not. */
struct srv_gate {
    /* Runs the handler once the request has its model, or answers. */
    void (*enter)(struct srv_request *req);
    /* The API side and its callbacks have ended: on_free, and the model is given back. A second
     * call does nothing. */
    void (*leave)(struct srv_request *req);
    /* Bytes of an answer that was charged to the model when that was given back. */
    void (*drop_answer)(struct srv_model *model, int64_t bytes);
    /* See serve_pull.h. */
    int (*pull_percent)(struct srv_pull *pull);
    int (*pull_left_ms)(struct srv_pull *pull);
};

struct srv_server {
    const struct srv_config *config;
    struct srv_app *app;
    const atomic_int *state; /* enum srv_state, of the app */
    const struct srv_gate *gate;
    struct srv_pull *pull; /* NULL without --pull */
    int max_connections;   /* max-connections, or fewer where descriptors are short */
    const struct srv_route *const *routes;     /* NULL-terminated list of tables */
    struct srv_guard_rules rules, admin_rules; /* of the main and of the metrics listener */
    struct srv_keys *keys, *operator_keys;
    bool operator_open; /* routes for the operator are served */
    struct srv_metrics *metrics;
    struct srv_work *work;
    struct srv_watch *watch;
    struct srv_retry retry;
    atomic_bool refusing;     /* draining, and past the delay: new requests get 503 */
    atomic_bool stalled;      /* work waits and the engine does not step */
    atomic_ullong monitor_us; /* when the main thread last checked the engine */
    atomic_int n_requests;    /* alive, answered or not */
    atomic_ullong n_requests_ever;
    struct srv_bodies bodies;
    double start_time_s; /* unix seconds */
};
