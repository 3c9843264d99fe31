/* SPDX-License-Identifier: MIT */
/*
 * Counters and histograms, and their Prometheus text. All families and label values are fixed but
 * the names of keys, so every series is zero before the first request. The engine's own counts are
 * read on each render.
 *
 * Threads: safe; atomics only.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/engine.h"
#include "server/log.h"

struct buf;
struct srv_metrics;

enum srv_count {
    SRV_COUNT_GONE, /* requests whose client disconnected or was cut before the end */
    SRV_COUNT_SLOW_READERS,
    SRV_COUNT_HEADER_TIMEOUTS,
    SRV_COUNT_BODY_TIMEOUTS,
    SRV_COUNT_REFUSED_CONNECTIONS,
    SRV_COUNT_RETURNED,         /* refused requests that came back at their retry time */
    SRV_COUNT_RETURNED_REFUSED, /* such requests that were refused again */
    /* Structured output. */
    SRV_COUNT_SCHEMAS_REFUSED,
    SRV_COUNT_GRAMMARS_REFUSED,
    SRV_COUNT_GRAMMARS_UNSUPPORTED,
    SRV_COUNT_GRAMMAR_RELAXED,   /* requests with a keyword that is only approximated */
    SRV_COUNT_CLOSED_ANSWERS,    /* whose tokens ran out, with a shortest end written for them */
    SRV_COUNT_GRAMMAR_OVERFLOWS, /* alternatives dropped because there were too many */
    SRV_COUNT_METADATA_LINES,
    SRV_COUNT_TRUNCATED, /* chats that were cut */
    /* Lines of batches that have ended, and the tokens of their requests. */
    SRV_COUNT_BATCH_COMPLETED,
    SRV_COUNT_BATCH_FAILED,
    SRV_COUNT_BATCH_EXPIRED,
    SRV_COUNT_BATCH_CANCELLED,
    SRV_COUNT_BATCH_PROMPT,
    SRV_COUNT_BATCH_CACHED,
    SRV_COUNT_BATCH_GENERATED,
    SRV_COUNT_N
};

/* Times that are observed one by one. */
enum srv_time {
    SRV_TIME_COMPILE,
    SRV_TIME_MASK,
    SRV_TIME_SWAP_LOAD,
    SRV_TIME_MODEL_LOAD, /* that requests or an operator asked for */
    SRV_TIME_MODEL_WAIT, /* of a request, for that */
    SRV_TIME_N
};

/* Sums over the requests of all keys of one name. */
enum { SRV_KEY_NAMES = 64, SRV_KEY_NAME_MAX = 64 };
struct srv_key_counts {
    char name[SRV_KEY_NAME_MAX + 1];
    atomic_ullong requests, refused; /* refused: for lack of room */
    atomic_ullong tokens[3];         /* of prompts, of these cached, generated */
    atomic_ullong running, waiting;  /* jobs, now */
};

/* Returns owned: srv_metrics_destroy; NULL if out of memory. */
struct srv_metrics *srv_metrics_create(void);
void srv_metrics_destroy(struct srv_metrics *m);

/* The counts of a name: those of "other" once there are SRV_KEY_NAMES names. The main thread's. */
struct srv_key_counts *srv_metrics_key(struct srv_metrics *m, const char *name);

void srv_metrics_count(struct srv_metrics *m, enum srv_count what);
void srv_metrics_add(struct srv_metrics *m, enum srv_count what, int n);
void srv_metrics_observe(struct srv_metrics *m, enum srv_time what, uint64_t us);

/* How a swap of the model ended, see swap.h. */
enum srv_swap_result {
    SWAP_OK,
    SWAP_UNCHANGED,
    SWAP_NO_MEMORY, /* planned, or an allocation failed */
    SWAP_INVALID,   /* the directory cannot be served */
    SWAP_SELF_TEST,
    SWAP_BUSY,      /* another swap has not ended yet */
    SWAP_NOT_FOUND, /* no directory, not in the cache */
    SWAP_GIVEN_UP,  /* the server is ending */
    /* Not of swaps: nothing is unloaded. */
    SWAP_NOT_LOADED,
    SWAP_PINNED,
};

/* load_us: of a swap that succeeded. */
void srv_metrics_count_swap(struct srv_metrics *m, enum srv_swap_result result, uint64_t load_us);

/* A request has ended. status 0: no answer was sent. disconnected: its client had left. */
void srv_metrics_count_request(struct srv_metrics *m, int status, bool disconnected,
                               const struct srv_account *account, int64_t total_us);

/* Those of the catalogue, and as many that drain; more are not listed. */
enum { SRV_METRICS_MODELS = 128 };

/* Longer names are cut. */
struct srv_metrics_model {
    char name[129], fingerprint[160];
};

/* An entry of the catalogue. Longer names are cut. */
struct srv_metrics_entry {
    char name[129];
    const char *state;       /* a fixed string */
    int64_t bytes[3];        /* in memory: of weights, KV cache, and other */
    uint64_t n_loads[2];     /* that succeeded, and that failed */
    uint64_t n_evictions[4]; /* by enum srv_eviction */
    int n_waiters;
    struct eng_stats stats; /* over all models that it had */
};

/* Batches by status, as SRV_BATCH_STATUS_NAMES has them; of those that have not ended, the lines
 * without an answer and the age of the oldest; bytes of files, of inputs and of outputs. */
#define SRV_BATCH_STATUS_NAMES                                                                     \
    "validating", "in_progress", "finalizing", "cancelling", "completed", "failed", "expired",     \
        "cancelled"
enum { SRV_BATCH_STATUSES = 8 };
struct srv_metrics_batches {
    int by_status[SRV_BATCH_STATUSES];
    int64_t n_waiting, age_s, bytes[2];
    int n_running;  /* lines */
    bool is_paused; /* after a fault of the disk */
};

/* Values that are read, not counted. Pointers may be NULL while the model loads. */
struct srv_metrics_view {
    const struct eng_info *info;
    uint64_t n_grammar_hits, n_grammar_misses;           /* of the cache of compiled grammars */
    const char *model;                                   /* the first entry's */
    struct srv_metrics_model models[SRV_METRICS_MODELS]; /* in memory; no two are the same */
    int n_models;
    int n_loaded; /* all that are in memory */
    const struct srv_metrics_entry *entries;
    int n_entries;
    int64_t plan_bytes; /* of all plans */
    int n_draining;     /* requests of models that were replaced */
    int n_connections;
    int n_requests;
    char loras[2000];    /* names of adapters in use, with commas, as many as fit */
    int n_compile_waits; /* requests that wait for a grammar */
    bool ready;
    struct srv_metrics_batches batches;
    bool draft_model_on; /* one drafts for the current model */
    double start_time_s; /* of the process, unix seconds */
};

/* Appends the whole text; vllm: with vLLM's names too. */
void srv_metrics_render(const struct srv_metrics *m, const struct srv_metrics_view *view, bool vllm,
                        struct buf *b);
