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

#include "engine/engine.h"
#include "server/config/config.h"
#include "server/generation_config.h"
#include "server/pairs.h"
#include "server/retrieval.h"
#include "server/watchdog.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tools/tools.h"

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
    struct srv_retrieval retrieval;
    struct srv_pairs pairs;
    struct tok_fim fim;
    int64_t created; /* unix seconds: since when it has been the current one */
    bool is_demo;
    uint8_t source[32];     /* srv_model_source of its directory, and of the draft model's */
    const char *draft_name; /* the draft model as it was named, owned; NULL: none */
    uint64_t *draft_ids;    /* of eng_load_drafts; NULL: there is no draft model */
    enum eng_draft_state draft_noted; /* the main thread's: the state that is in the log */
    atomic_llong answer_bytes;        /* charged for answers; at most the engine's plan says */
    atomic_bool unloaded;             /* its time to drain is over: jobs end as cancelled */

    struct srv_models *set;       /* guards n_refs; NULL: not in a set yet */
    int n_refs;                   /* requests */
    struct srv_watchdog watchdog; /* the main thread's */
};

struct srv_model_params {
    const struct srv_config *config; /* borrowed while the model lives */
    const char *dir;
    const char *draft_dir, *draft_name; /* of the draft model and as it was named; NULL: none */
    struct srv_list names;              /* at least one; copied */
    bool is_demo;
    struct eng_turns *turns; /* borrowed while the model lives */

    /* Next to a model that works; see eng_params. */
    bool in_background;
    const atomic_bool *stop;
    void (*on_self_test)(void *ctx);
    void *on_self_test_ctx;
};

/*
 * Loads a model: the engine on its threads, tokenizer and chat template on one more. Returns 0 and
 * *ret, owned (srv_model_close), or an enum eng_error with a sentence in err.
 */
int srv_model_open(struct srv_model **ret, const struct srv_model_params *params, char *err,
                   size_t errlen);

/* Closes everything; all references must be released. NULL is fine. */
void srv_model_close(struct srv_model *model);

/* Writes the names into buf, "'a', 'b'", cut where it is full. Returns buf. */
const char *srv_model_list_names(const struct srv_model *model, char *buf, size_t size);

/* Makes the memory plan of srv_model_open from headers; memory_bytes: another limit than the
 * configured one, or 0. Returns 0 or an enum eng_error. */
int srv_model_plan(struct eng_memory *ret, const struct srv_model_params *params,
                   int64_t memory_bytes, char *err, size_t errlen);

/* Bytes that a plan takes, without those that it leaves free. */
int64_t srv_plan_bytes(const struct eng_memory *m);

/*
 * Tries the texts of a model: the template renders a turn, the tokenizer makes ids of it that the
 * model knows. Returns 0, or -1 with a sentence in err.
 */
int srv_model_try_text(const struct srv_model *model, char *err, size_t errlen);

/*
 * A digest of the names, sizes, inodes and times of the files of a model's directory, and of its
 * draft model's (or NULL): if it is the same, they are the same. Returns 0 or -1.
 */
int srv_model_source(const char *dir, const char *draft_dir, uint8_t ret[32]);

/* ---- the models that are alive -------------------------------------------------------------- */

struct srv_models {
    pthread_mutex_t lock;    /* guards the fields below and the references of the models */
    pthread_cond_t released; /* the draining model has no reference left, or srv_models_wake */
    bool has_lock;
    struct srv_model *current;  /* NULL until the first model has been loaded */
    struct srv_model *draining; /* the one before, while requests use it */
    /* Counts of models that were closed. */
    struct eng_stats closed_stats;
    uint64_t n_closed_grammar_hits, n_closed_grammar_misses;
};

/* An empty set. Returns 0, or -1 if it has no lock. */
int srv_models_init(struct srv_models *set);
/* Closes the models; all references must be released. A zeroed set is fine. */
void srv_models_finish(struct srv_models *set);

/*
 * From now on requests get this model. Takes it: srv_models_finish closes it. The model before it
 * becomes the draining one; there must be no other. Returns the number of requests that use that.
 */
int srv_models_publish(struct srv_models *set, struct srv_model *model);

/*
 * Waits until no request uses the draining model, srv_models_wake is called, or until_us has passed
 * (CLOCK_MONOTONIC; 0: no limit). Returns the number of requests that use it.
 */
int srv_models_wait(struct srv_models *set, uint64_t until_us);
void srv_models_wake(struct srv_models *set);

/* Adds the counts of the draining model to those of the closed ones and closes it. */
void srv_models_close_drained(struct srv_models *set);

/* Calls fn for each live model, the current one first, with the lock held. */
void srv_models_each(struct srv_models *set, void (*fn)(void *ctx, struct srv_model *model),
                     void *ctx);

/* Numbers over all models that there were. */
struct srv_models_view {
    struct eng_stats stats; /* counters and queues: sums; pages and speeds: of the current model */
    uint64_t n_grammar_hits, n_grammar_misses;
    int n_loaded, n_draining; /* models; requests */
};
void srv_models_look(struct srv_models *set, struct srv_models_view *ret);

/* Returns a reference to the current model (srv_model_release), or NULL if there is none yet. */
struct srv_model *srv_models_take(struct srv_models *set);

/* Gives a reference back. NULL is fine. */
void srv_model_release(struct srv_model *model);

#endif
