/* SPDX-License-Identifier: MIT */
/*
 * The models that are alive, by the entries of the catalogue: each entry has one model that
 * requests get, and any number that drain, which end what they began.
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

#include "server/served_model.h"

struct srv_models {
    pthread_mutex_t lock;    /* guards the fields below and those of the models that say so */
    pthread_cond_t released; /* a model that drains has no reference left, or srv_models_wake */
    bool has_lock;
    struct srv_model *alive; /* those that requests get, by entry, then those that drain */
    /* Counts of models that were closed. */
    struct eng_stats closed_stats;
    uint64_t n_closed_grammar_hits, n_closed_grammar_misses;
};

/* An empty set. Returns 0, or -1 if it has no lock. */
int srv_models_init(struct srv_models *set);
/* Closes the models; all references must be released. A zeroed set is fine. */
void srv_models_finish(struct srv_models *set);

/*
 * From now on requests for the entry get this model. Takes it: srv_models_finish closes it. Returns
 * the one before it, which drains, and the number of its requests; or NULL and 0.
 */
struct srv_model *srv_models_publish(struct srv_models *set, struct srv_model *model,
                                     int *ret_n_requests);

/*
 * Waits until no request uses a model that drains, srv_models_wake is called, or until_us has
 * passed (CLOCK_MONOTONIC; 0: no limit). Returns the number of requests that use it.
 */
int srv_models_wait(struct srv_models *set, const struct srv_model *model, uint64_t until_us);
void srv_models_wake(struct srv_models *set);

/* Closes a model that has drained; its counts are kept. */
void srv_models_close(struct srv_models *set, struct srv_model *model);

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

/*
 * Returns a reference (srv_model_release) to the model of the entry that has the name, or of the
 * first entry for NULL and other names; NULL if nothing has been loaded.
 */
struct srv_model *srv_models_take(struct srv_models *set, const char *name);

/* The entry whose model has the name, or -1. */
int srv_models_find(struct srv_models *set, const char *name);

/* Gives a reference back. NULL is fine. */
void srv_model_release(struct srv_model *model);

/* The model that requests for the entry get, or NULL. It stays as long as only the caller's thread
 * replaces models. */
struct srv_model *srv_models_of(struct srv_models *set, int entry);

/* Writes the names that are served into buf, "'a', 'b'", cut where it is full; those of the model
 * if it is in no set. Returns buf. */
const char *srv_models_list_names(const struct srv_model *model, char *buf, size_t size);

#endif
