/* SPDX-License-Identifier: MIT */
/*
 * The catalogue while the server runs: its entries, and the models that are alive. An entry has at
 * most one model that requests get, and any number that drain, which end what they began.
 *
 * A request takes a reference to one model once, before its handler runs, and gives it back when it
 * is freed. Everything that it reads of a model comes from that reference, so that no answer mixes
 * two models. A model is closed by its owner, after the last reference is back.
 *
 * Threads: functions may be called from any thread; the lock is held for a few instructions, or for
 * a look at the models.
 */
#ifndef HEARTH_SERVER_MODEL_SET_H
#define HEARTH_SERVER_MODEL_SET_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/model_policy.h"
#include "server/served_model.h"

/* Why a model left. */
enum srv_eviction { SRV_EVICT_IDLE, SRV_EVICT_MEMORY, SRV_EVICT_REQUEST, SRV_EVICT_REPLACED };
enum { SRV_EVICTIONS = SRV_EVICT_REPLACED + 1 };

/* What is known of a model that is not loaded too. Texts are cut. */
struct srv_model_facts {
    char architecture[64], dtype[16];
    int64_t n_params, ctx_tokens, ctx_train_tokens, weights_bytes;
    int32_t n_vocab;
    int d_model;
};

/* What an entry loads. Strings are owned. */
struct srv_source {
    char *dir, *draft_dir, *draft_name; /* the last two: NULL without a draft model */
    const char *const *names;           /* NULL-terminated, in one block with the texts */
    bool is_demo;
};

struct srv_entry {
    /* Fixed once it is in the set. */
    int number;
    const struct srv_config *config;
    int64_t created; /* unix seconds */

    /* Guarded by the lock, but the thread that alone changes them reads without. */
    struct srv_source source;
    struct srv_share share;
    struct srv_model_facts facts;
    int64_t plan_bytes; /* without the memory of requests */

    /* Guarded by the lock. */
    struct srv_model *model; /* that requests get, or NULL */
    uint64_t loaded_us, used_us;
    uint64_t n_loads, n_evictions[SRV_EVICTIONS];
    struct eng_stats closed_stats; /* counts of models that were closed */
};

struct srv_models {
    pthread_mutex_t lock;   /* guards the fields below and those of the models that say so */
    pthread_cond_t changed; /* a model has no reference left, or srv_models_wake */
    bool has_lock;
    struct srv_entry *entries[POLICY_ENTRIES];
    int n_entries;
    int default_entry;
    struct srv_model *alive; /* those that requests get, by entry, then those that drain */
    uint64_t n_closed_grammar_hits, n_closed_grammar_misses;
};

/* An empty set. Returns 0, or -1 if it has no lock. */
int srv_models_init(struct srv_models *set);
/* Closes the models; all references must be released. A zeroed set is fine. */
void srv_models_finish(struct srv_models *set);

/* ---- entries ------------------------------------------------------------------------------- */

/* Adds an entry of a model with this directory; copies the strings. Returns it, or NULL when out of
 * memory or if there are too many. */
struct srv_entry *srv_models_add(struct srv_models *set, const struct srv_config *config,
                                 const struct srv_model_params *params);

/* What srv_model_open gets for an entry. On the loader's thread, which borrows from the entry. */
struct srv_model_params srv_entry_params(const struct srv_entry *e);

/* Calls fn for each entry, in their order, with the lock held. */
void srv_models_each_entry(struct srv_models *set,
                           void (*fn)(void *ctx, const struct srv_entry *entry), void *ctx);

/* The entry that has the name, or -1. */
int srv_models_find(struct srv_models *set, const char *name);

int srv_models_count(struct srv_models *set);
/* Writes the first name of an entry into buf. Returns buf. */
const char *srv_models_name(struct srv_models *set, int entry, char *buf, size_t size);

/* Writes the names that are served into buf, "'a', 'b'", cut where it is full. Returns buf. */
const char *srv_models_names(struct srv_models *set, char *buf, size_t size);
/* The same for the set of a model; those of the model if it is in no set. */
const char *srv_models_list_names(const struct srv_model *model, char *buf, size_t size);

/* ---- requests ------------------------------------------------------------------------------ */

/*
 * Returns a reference to the model of the entry that has the name, or of the default entry for NULL
 * and other names; NULL if it is not loaded.
 */
struct srv_model *srv_models_take(struct srv_models *set, const char *name);

/* Gives a reference back. used: it counts as use of the model. NULL is fine. */
void srv_model_release(struct srv_model *model, bool used);

/* ---- loading and leaving ------------------------------------------------------------------- */

/*
 * From now on requests for the entry get this model. Takes it: srv_models_finish closes it. Returns
 * the one before it, which drains, and the number of its requests; or NULL and 0.
 */
struct srv_model *srv_models_publish(struct srv_models *set, struct srv_model *model,
                                     int *ret_n_requests);
/* The same with another source, that of params; facts: of its directory. Returns 0, or -1 when out
 * of memory: then nothing has changed. */
int srv_models_replace(struct srv_models *set, struct srv_model *model,
                       const struct srv_model_params *params, const struct srv_model_facts *facts,
                       struct srv_model **ret_before, int *ret_n_requests);
/*
 * Waits until no request uses a model that drains, srv_models_wake is called, or until_us has
 * passed (CLOCK_MONOTONIC; 0: no limit). Returns the number of requests that use it.
 */
int srv_models_wait(struct srv_models *set, const struct srv_model *model, uint64_t until_us);
void srv_models_wake(struct srv_models *set);

/* Closes a model that has drained; its counts are kept. */
void srv_models_close(struct srv_models *set, struct srv_model *model);

/* ---- looking ------------------------------------------------------------------------------- */

/* Calls fn for each model, in the order of srv_models.alive, with the lock held. */
void srv_models_each(struct srv_models *set, void (*fn)(void *ctx, struct srv_model *model),
                     void *ctx);

/* Numbers over all models that there were. */
struct srv_models_view {
    struct eng_stats stats; /* counters and queues: sums; pages: of those that do not drain;
                             * speeds: of the first entry's */
    uint64_t n_grammar_hits, n_grammar_misses;
    int n_loaded, n_draining; /* models; requests */
};
void srv_models_look(struct srv_models *set, struct srv_models_view *ret);

/* The stats of an entry, over all models that it had. With the lock held. */
void srv_entry_stats(const struct srv_models *set, const struct srv_entry *e,
                     struct eng_stats *ret);

/* A reference to the model that requests for the entry get, or NULL. */
struct srv_model *srv_models_of(struct srv_models *set, int entry);

#endif
