/* SPDX-License-Identifier: MIT */
/*
 * A swap: the next source of an entry, whose model replaces the entry's while requests go on.
 *
 *   planning   the headers of the new model are read; it must fit next to the running ones
 *   loading    its weights and texts are read by threads of low priority
 *   testing    the engine's self-test, the template, the tokenizer
 *   draining   new requests get the new model; those of the old one run to their end
 *
 * A failure before the draining changes nothing. One swap at a time. The loader (loader.h) does the
 * work as for any load; here is what it needs to know before, and what is shown and told after.
 *
 * Threads: any for the first group of functions, the loader's for the second.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/config/config.h"
#include "server/metrics.h"
#include "server/models/fit.h"

struct srv_app;
struct srv_model;
struct srv_source;
struct srv_swap;
struct srv_wait;

enum srv_swap_state { SWAP_IDLE, SWAP_PLANNING, SWAP_LOADING, SWAP_TESTING, SWAP_DRAINING };
extern const char *const srv_swap_state_names[];

/* How that ended which an operator asked for. The numbers of memory come with SWAP_NO_MEMORY, else
 * they are 0. */
struct srv_outcome {
    enum srv_swap_result result;
    char message[640]; /* a sentence if it failed */
    char model[256], previous[256], fingerprint[160];
    int load_ms, self_test_ms, n_draining;
    struct fit_bytes memory;
};

struct srv_swap_params {
    int entry;         /* of the catalogue, whose model is replaced */
    const char *model; /* org/name[@revision], an absolute directory, or NULL: the configured */
    const char *draft_model; /* likewise; NULL: none, but the configured one with NULL for model */
    struct srv_list names;   /* n 0: the configured aliases, else the model's own name */
    bool until_drained;      /* the wait ends after the draining, or when the server ends */
    struct srv_wait *wait;   /* borrowed until its end, with the outcome */
};

/* app is borrowed. Returns owned, or NULL. */
struct srv_swap *srv_swap_create(struct srv_app *app);
/* After the end of the loader's thread. NULL is fine. */
void srv_swap_destroy(struct srv_swap *s);

/*
 * Starts a swap; copies the parameters. Returns SWAP_OK, SWAP_BUSY, SWAP_GIVEN_UP or SWAP_NO_MEMORY
 * with a sentence in err, and then the wait is not begun. Not concurrently with srv_swap_destroy.
 */
enum srv_swap_result srv_swap_start(struct srv_swap *s, const struct srv_swap_params *params,
                                    char *err, size_t errlen);

struct srv_swap_view {
    enum srv_swap_state state;
    char model[256];      /* that is being loaded, or has been loaded last; "": none */
    char previous[256];   /* "": none */
    char last_error[640]; /* of the last swap; "": it succeeded, or there was none */
    int64_t since;        /* unix seconds: when the state began; 0: there was no swap */
};
void srv_swap_look(struct srv_swap *s, struct srv_swap_view *ret);

/* ---- the loader's -------------------------------------------------------------------------- */

/* Finds the next source and plans it. Returns the entry, and the source, owned; or NULL: the swap
 * ends here. */
const struct srv_entry *srv_swap_plan(struct srv_swap *s, struct srv_source *ret);

void srv_swap_enter(struct srv_swap *s, enum srv_swap_state state);

/* Its load has failed; rc: enum eng_error. */
void srv_swap_fail(struct srv_swap *s, int rc, const char *err);

/* The model is published, after such times; before: the one that drains now, or NULL. */
void srv_swap_switched(struct srv_swap *s, const struct srv_model *model, struct srv_model *before,
                       int n_draining, int load_ms, int self_test_ms);

/* It is over, or has drained: another one may be started, and who waits for a failure is told. */
void srv_swap_end(struct srv_swap *s);
