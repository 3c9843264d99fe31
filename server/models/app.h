/* SPDX-License-Identifier: MIT */
/*
 * The parts of a running server that answer requests, whatever carries them: the models, the
 * options, the metrics, and whether it is ready.
 *
 * Threads: config and metrics are fixed before any other thread exists. The loader publishes the
 * first model and then sets `state` to SRV_READY.
 */
#pragma once

#include <stdatomic.h>

#include "server/models/set.h"
#include "server/state.h"

struct batches;
struct compile_queue;
struct srv_metrics;
struct srv_pull;
struct srv_swap;

struct srv_app {
    const struct srv_config *config;
    struct srv_metrics *metrics;
    struct srv_pull *pull; /* NULL without --pull */
    struct srv_models models;
    struct compile_queue *compiles; /* of grammars, for all models */
    struct srv_swap *swap;
    struct srv_kv_bans *kv_bans; /* NULL without kv-disk and a key file */
    struct batches *batches;     /* NULL without --batch-dir */
    atomic_int state;            /* enum srv_state */
};
