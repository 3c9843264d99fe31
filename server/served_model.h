/* SPDX-License-Identifier: MIT */
/*
 * A model that requests use: the engine with its texts, and the set of those that are alive.
 *
 * A request takes a reference to the current model once, before its handler runs, and gives it back
 * when it is freed. Everything that it reads of a model comes from that reference, so that no
 * answer mixes two models. A model is closed by its owner, after the last reference is back.
 *
 * Threads: a model is const once it has been put into a set; the atomics and the engine have rules
 * of their own. Functions of the set may be called from any thread; its lock is held for a few
 * instructions, or for a look at the counters of its engines.
 */
#ifndef HEARTH_SERVER_SERVED_MODEL_H
#define HEARTH_SERVER_SERVED_MODEL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/config/config.h"
#include "server/generation_config.h"
#include "tokenizer/tools/tools.h"

struct eng;
struct grammar_cache;
struct srv_models;
struct tok;
struct tok_chat;

struct srv_model {
    const struct srv_config *config;
    struct eng *engine;
    struct tok *tok;
    struct tok_chat *chat;          /* NULL: the model has no template */
    struct tools_style style;       /* how the model writes calls of tools and reasoning */
    struct tools_markers markers;   /* its markers as tokens */
    struct grammar_cache *grammars; /* NULL: no token of the model stands for a single byte */
    const char *const *names;       /* accepted names, NULL-terminated; the first is shown */
    char fingerprint[160];          /* build, weights, numeric path, kernels, gemm */
    struct srv_defaults defaults;
    int64_t created; /* unix seconds: since when it has been the current one */
    bool is_demo;
    atomic_llong answer_bytes; /* charged for answers; at most the engine's plan says */

    struct srv_models *set; /* guards n_refs; NULL: not in a set yet */
    int n_refs;             /* requests */
};

struct srv_model_params {
    const struct srv_config *config; /* borrowed while the model lives */
    const char *dir;
    struct srv_list names; /* at least one; copied */
    bool is_demo;
};

/*
 * Loads a model: the engine on its threads, tokenizer and chat template on one more. Returns 0 and
 * *ret, owned (srv_model_close), or -1 with a sentence in err.
 */
int srv_model_open(struct srv_model **ret, const struct srv_model_params *params, char *err,
                   size_t errlen);

/* Closes everything; there must be no reference. NULL is fine. */
void srv_model_close(struct srv_model *model);

/* ---- the models that are alive -------------------------------------------------------------- */

struct srv_models {
    pthread_mutex_t lock; /* guards the fields below and the references of the models */
    bool has_lock;
    struct srv_model *current; /* NULL until the first model has been loaded */
};

/* An empty set. Returns 0, or -1 if it has no lock. */
int srv_models_init(struct srv_models *set);
/* Closes the models; there must be no reference. A zeroed set is fine. */
void srv_models_finish(struct srv_models *set);

/* From now on requests get this model. Takes it: srv_models_finish closes it. */
void srv_models_publish(struct srv_models *set, struct srv_model *model);

/* Returns a reference to the current model (srv_model_release), or NULL if there is none yet. */
struct srv_model *srv_models_take(struct srv_models *set);

/* Gives a reference back. NULL is fine. */
void srv_model_release(struct srv_model *model);

#endif
