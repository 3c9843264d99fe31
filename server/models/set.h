/* SPDX-License-Identifier: MIT */
/*
 * The catalogue while the server runs: its entries, and the models that are alive. An entry has at
 * most one model that requests get, and any number that drain, which end what they began.
 *
 * A request takes a reference to one model once, before its handler runs, and gives it back when
 * its jobs have ended and its answer is written, whether or not that has been sent. Everything that
 * it reads of a model comes from that reference, so that no answer mixes two models. If its entry
 * is not loaded it waits for that, without a thread; at the end of the load all that wait get their
 * references in the same moment. One thread, the loader's, does what srv_models_await says: it
 * loads an entry, or its next source, and closes models that have drained.
 *
 * Threads: functions may be called from any thread; the lock is held for a few instructions, or for
 * a look at the models.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/models/policy.h"
#include "server/models/served_model.h"

struct srv_lora;
struct srv_outcome;
struct srv_wait;

/* Why a model left. */
enum srv_eviction { SRV_EVICT_IDLE, SRV_EVICT_MEMORY, SRV_EVICT_REQUEST, SRV_EVICT_REPLACED };
enum { SRV_EVICTIONS = SRV_EVICT_REPLACED + 1 };

/* Numbers from a model's files, known before it is loaded. Texts are cut. */
struct srv_model_facts {
    char architecture[64], family[32], dtype[16];
    bool is_gguf;
    int64_t file_bytes, modified_s; /* of the weights */
    bool is_known;      /* srv_catalogue_know has set the rest, which a loaded model has too */
    unsigned abilities; /* srv_abilities */
    uint8_t digest[32]; /* srv_model_source */
    int64_t n_params, ctx_train_tokens, weights_bytes;
    int64_t ctx_tokens; /* of the longest text that will be answered */
    bool generates;
    int32_t n_vocab;
    int d_model;
};

/* A reason as any client may read it: the log has one that names paths or sizes of memory. */
const char *srv_public_reason(const char *why);

/* The files and names of a model, and what is known before it is loaded. Strings are owned. */
struct srv_source {
    char *dir, *draft_dir, *draft_name; /* the last two: NULL without a draft model */
    const char *const *names;           /* NULL-terminated, in one block with the texts */
    bool is_demo;
    struct srv_share share;
    struct srv_model_facts facts;
    int64_t plan_bytes; /* without srv_process_bytes */
};

/* From params, with copies of the strings. Returns 0, or -1 when out of memory. */
int srv_source_copy(struct srv_source *ret, const struct srv_model_params *params);
/* The names of a source; borrows them. */
struct srv_list srv_names_list(const char *const *names);
/* Zeros are fine. */
void srv_source_finish(struct srv_source *s);

enum srv_entry_state { SRV_UNLOADED, SRV_LOADING_MODEL, SRV_LOADED, SRV_LOAD_FAILED };

struct srv_entry {
    /* Fixed once it is in the set. */
    int number;
    const struct srv_config *config;
    int64_t created; /* unix seconds */
    /* config, if --models found it; its `model` is the directory where that was. It is in one block
     * with its own strings; the others are those of others. */
    struct srv_config *own;
    uint8_t digest[32]; /* of its directory, if --models found it */

    /* Guarded by the lock, but the loader's thread, which alone changes them, reads without. */
    struct srv_source source;
    bool gone;           /* its directory has vanished: it has no names */
    char reason[320];    /* why it is unavailable, or why the load failed; "": neither */
    bool is_unavailable; /* it never fits */
    enum srv_entry_state state;

    /* Guarded by the lock. */
    struct srv_model *model; /* that requests get, or NULL */
    struct srv_wait *first, **end;
    int n_waiters;
    bool has_evicted; /* others, for the load that is wanted, */
    uint64_t evictor; /* on behalf of this key */
    uint64_t began_us, load_us, loaded_us, admitted_us, used_us, failed_us;
    uint64_t n_loads, n_failed_loads, n_evictions[SRV_EVICTIONS];
    struct eng_stats closed_stats; /* counts of models that were closed */
};

struct srv_models {
    pthread_mutex_t lock;   /* guards the fields below and those of the models that say so */
    pthread_cond_t changed; /* for the loader's thread */
    struct srv_entry *entries[POLICY_ENTRIES];
    int n_entries;
    atomic_int default_entry; /* that requests without a name get; -1: it has vanished */
    struct policy_keys keys;  /* that may not evict */
    struct srv_model *alive;  /* those that requests get, by entry, then those that drain */
    struct srv_model *unsent; /* closed ones to which answers are charged that are being sent */
    uint64_t n_closed_grammar_hits, n_closed_grammar_misses;
    struct srv_lora *loras; /* [n_loras], see loras.h */
    int n_loras;
    uint64_t last_lora;      /* the number of the newest */
    pthread_mutex_t loading; /* held while one is opened; taken before `lock` */

    /* Fixed before the loader's thread starts. */
    int64_t limit_bytes; /* for the plans of entries; 0: none */
    int max_models;
    bool autoload;
    uint64_t wait_us, notice_us; /* longest wait, 0: none; until waiters hear that they wait */

    bool has_swap, has_scan; /* srv_models_post */
    atomic_bool stop;        /* the server ends */
    atomic_bool give_up;     /* so does the load that runs, or nobody waits for it any longer */
};

/* An empty set. */
void srv_models_init(struct srv_models *set);
/* Closes the models; all references must be released. A zeroed set is fine. */
void srv_models_finish(struct srv_models *set);

/* ---- entries ------------------------------------------------------------------------------- */

/* Adds an entry of a model with this directory; copies the strings. Returns it, or NULL when out of
 * memory or if there are too many. */
struct srv_entry *srv_models_add(struct srv_models *set, const struct srv_config *config,
                                 const struct srv_model_params *params);

/* Sets what is known of an entry that --models has found, or found changed: then its model drains.
 * why: it is unavailable; or NULL. */
void srv_models_settle(struct srv_models *set, struct srv_entry *e, struct srv_config *own,
                       const struct srv_share *share, const struct srv_model_facts *facts,
                       int64_t plan_bytes, const char *why, const uint8_t digest[32]);
/* The entry loses its names, and its model drains; if it was the default one there is none. */
void srv_models_remove(struct srv_models *set, int entry);

/* The parameters of srv_model_open for a source of the entry, from which they borrow. On the
 * loader's thread. */
struct srv_model_params srv_source_params(const struct srv_entry *e, const struct srv_source *s);

/* Calls fn for each entry that is there, in their order, with the lock held. */
void srv_models_each_entry(struct srv_models *set,
                           void (*fn)(void *ctx, const struct srv_entry *entry), void *ctx);

/* The most tokens that the model answers, or will once it is loaded. With the lock held. */
int64_t srv_entry_ctx(const struct srv_entry *e);

/* "unloaded", "queued", "loading", "loaded" or "failed". With the lock held. */
const char *srv_entry_state_name(const struct srv_entry *e);

/* The entry that has the name, or -1. */
int srv_models_find(struct srv_models *set, const char *name);
/* Whether a name is `name` with Ollama's tag ":latest". */
bool srv_is_tagged(const char *asked, const char *name);
/* Of the entries that have a name in `only` (NULL: of all): the one that has the name, else, if
 * tagged, the name without that tag; or -1. only: names, each with its NUL, then "". */
int srv_models_find_of(struct srv_models *set, const char *only, const char *name, bool tagged);
/* Whether the entry has a name in `only`. With the lock held. */
bool srv_entry_is_of(const struct srv_entry *e, const char *only);
/* Sets what is known of an entry whose model is in this directory. */
void srv_models_note(struct srv_models *set, int entry, const char *dir, unsigned abilities,
                     const uint8_t digest[32]);

/* Entries that are there. */
int srv_models_count(struct srv_models *set);
/* Also of -1. */
bool srv_models_is_loaded(struct srv_models *set, int entry);
/* Writes the first name of an entry into buf. Returns buf. */
const char *srv_models_name(struct srv_models *set, int entry, char *buf, size_t size);

/* Clients of servers with one model send such names. */
bool srv_is_placeholder(const char *name);

/* Writes the names that are served into buf, "'a', 'b'", cut where it is full. Returns buf. only:
 * as of srv_models_find_of. */
const char *srv_models_names(struct srv_models *set, const char *only, char *buf, size_t size);

/* ---- requests ------------------------------------------------------------------------------ */

enum srv_wait_end {
    SRV_WAITS,
    SRV_WAIT_GIVEN,  /* model is a reference */
    SRV_WAIT_FAILED, /* the load; the reason is in message */
    SRV_WAIT_LATE,
    SRV_WAIT_LEFT,   /* srv_models_leave */
    SRV_WAIT_CLOSED, /* the server ends */
    SRV_WAIT_DONE,   /* a swap has ended, or a model is gone */
};

/* One who waits for the load of an entry; or an operator for a swap (swap.h), or until a model is
 * gone (srv_models_unload). */
struct srv_wait {
    uint64_t key;      /* of the tenant, */
    bool several_keys; /* and whether there are others: then half of the places are its own */
    bool by_operator;  /* wants the load at once, and waits as long as it takes */
    bool no_load;      /* only a model that is loaded is wanted */
    /* Called without the lock when the wait has ended, and then it is the last access. Before that
     * once, with the lock held, if it has lasted for notice_us. */
    void (*wake)(struct srv_wait *w, bool ended);
    atomic_int end; /* enum srv_wait_end */
    struct srv_model *model;
    char message[320];
    struct srv_outcome *outcome; /* of a swap, complete at its end */

    struct srv_wait *next; /* the set's own */
    int entry;
    uint64_t since_us;
    bool noticed;
};

enum srv_ask {
    SRV_ASK_GIVEN,       /* w->model is a reference */
    SRV_ASK_WAITS,       /* w is borrowed until its wake */
    SRV_ASK_UNLOADED,    /* models are not loaded on demand */
    SRV_ASK_FULL,        /* too many wait: w->message */
    SRV_ASK_FAILED,      /* its load has failed a moment ago: w->message */
    SRV_ASK_UNAVAILABLE, /* it does not fit: w->message */
    SRV_ASK_CLOSED,
};

/* Asks for a reference to the model of an entry. */
enum srv_ask srv_models_ask(struct srv_models *set, int entry, struct srv_wait *w);
/* Ends a wait for a load, unless it has ended. */
void srv_models_leave(struct srv_models *set, struct srv_wait *w);
/* Tells one who waits for something else that it is done. NULL is fine. */
void srv_wait_done(struct srv_wait *w);

/* The numbers of a refusal for lack of room next to the pinned models. */
struct fit_bytes srv_models_room(struct srv_models *set, int entry);

/* The time that loading an entry may take, in ms: as long as last time, else by its size. */
int64_t srv_models_load_ms(struct srv_models *set, int entry);

/* Gives a reference back. used: it counts as use of the model. NULL is fine. */
void srv_model_release(struct srv_model *model, bool used);

/* Before a reference is given back: bytes of an answer stay charged to the model, which may be
 * closed meanwhile, until srv_model_drop_answer. */
void srv_model_keep_answer(struct srv_model *model);
void srv_model_drop_answer(struct srv_model *model, int64_t bytes);

/* ---- loading and leaving ------------------------------------------------------------------- */

enum srv_task_kind {
    SRV_TASK_STOP,
    SRV_TASK_SWAP, /* an entry's next source; what srv_models_post was for */
    SRV_TASK_SCAN,
    SRV_TASK_LOAD, /* the entry, then srv_models_publish or srv_models_fail */
    SRV_TASK_FREE, /* srv_models_close: the model has drained */
    SRV_TASK_CUT,  /* its time to drain is over: its requests are to be ended */
};

struct srv_task {
    enum srv_task_kind kind;
    int entry;
    struct srv_model *model;
};

/* Waits for something to do. The loader's thread alone. */
struct srv_task srv_models_await(struct srv_models *set);

/* A job for the loader's thread, SWAP or SCAN. Returns false if the server ends. */
bool srv_models_post(struct srv_models *set, enum srv_task_kind job);

/* Marks an entry as being loaded: for a load that nobody waits for. */
void srv_models_begin(struct srv_models *set, int entry);

/*
 * From now on requests for the entry get this model, and those that wait for it have it. Takes it:
 * srv_models_finish closes it. next: another source that the entry has now, taken; or NULL. Returns
 * the model before it, which drains, and the number of its requests; or NULL and 0.
 */
struct srv_model *srv_models_publish(struct srv_models *set, struct srv_model *model,
                                     struct srv_source *next, int *ret_n_requests);
/* The load of an entry has failed: so do the waits for it. given_up: nobody waits, no failure. */
void srv_models_fail(struct srv_models *set, int entry, const char *why, bool given_up);

enum srv_unload {
    SRV_UNLOAD_OK,
    SRV_UNLOAD_WAITS, /* w ends when the model is gone, or the server ends */
    SRV_UNLOAD_NOT_LOADED,
    SRV_UNLOAD_PINNED
};
/* Closes the door of an entry's model: its next requests load it again. w: borrowed, or NULL. */
enum srv_unload srv_models_unload(struct srv_models *set, int entry, int *ret_n_requests,
                                  struct srv_wait *w);

/* Whether w waits now until the model is gone; not for NULL, and not when the server ends. With the
 * lock held. */
bool srv_model_await_end(struct srv_model *model, struct srv_wait *w);

/* Closes a model that has drained; its counts are kept. Returns the one who waits for that. */
struct srv_wait *srv_models_close(struct srv_models *set, struct srv_model *model);

/* Some times a second: ends waits that are late, and wakes the loader's thread if it may have
 * something to do. */
void srv_models_tick(struct srv_models *set);

/* The server ends: waits end, nothing is loaded any longer. */
void srv_models_stop(struct srv_models *set);

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

/* A reference to the model that requests for the entry get, or NULL; also of -1. */
struct srv_model *srv_models_of(struct srv_models *set, int entry);
