/* SPDX-License-Identifier: MIT */
/*
 * The parts of a running server that answer requests, whatever carries them: the model with its
 * texts, the options, the metrics, and whether it is ready.
 *
 * Threads: config and metrics are fixed before any other thread exists. The loader fills the rest
 * and then sets `state` to SRV_READY; from then on it is const. Nobody reads it before.
 */
#ifndef HEARTH_SERVER_APP_H
#define HEARTH_SERVER_APP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "server/generation_config.h"
#include "tokenizer/tools/tools.h"

struct eng;
struct grammar_cache;
struct srv_config;
struct srv_metrics;
struct srv_pull;
struct tok;
struct tok_chat;

enum srv_state { SRV_LOADING, SRV_READY, SRV_DRAINING, SRV_FAILED };

struct srv_app {
    const struct srv_config *config;
    struct srv_metrics *metrics;
    struct srv_pull *pull; /* NULL without --pull */
    struct eng *engine;
    struct tok *tok;
    struct tok_chat *chat;          /* NULL: the model has no template */
    struct tools_style style;       /* how the model writes calls of tools and reasoning */
    struct tools_markers markers;   /* its markers as tokens */
    struct grammar_cache *grammars; /* NULL: no token of the model stands for a single byte */
    const char *const *model_names; /* accepted names, NULL-terminated; the first is shown */
    const char *fingerprint;        /* build, weights, numeric path, kernels, gemm */
    struct srv_defaults defaults;
    int64_t created; /* unix seconds: when the model was loaded */
    bool is_demo;
    atomic_int state;   /* enum srv_state */
    atomic_bool loaded; /* everything above is set; stays true while draining */
};

#endif
