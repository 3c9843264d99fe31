/* SPDX-License-Identifier: MIT */
/*
 * Replaces the model of an entry while its requests go on.
 *
 *   planning   the headers of the new model are read; it must fit next to the running ones
 *   loading    its weights and texts are read by threads of low priority
 *   testing    the engine's self-test, the template, the tokenizer
 *   draining   new requests get the new model; those of the old one run to their end
 *
 * A failure before the draining changes nothing. One swap at a time, a job of the loader's thread
 * (server/models/loader.h), which closes the old model as any that drains.
 *
 * Threads: all functions may be called from any thread, except where they say otherwise.
 */
#ifndef HEARTH_SERVER_MODELS_SWAP_H
#define HEARTH_SERVER_MODELS_SWAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/config/config.h"
#include "server/metrics.h"
#include "server/models/fit.h"

struct eng_cores;
struct srv_app;
struct srv_swap;

enum srv_swap_state { SWAP_IDLE, SWAP_PLANNING, SWAP_LOADING, SWAP_TESTING, SWAP_DRAINING };
const char *srv_swap_state_name(enum srv_swap_state state);

/* The outcome of a swap. The numbers of memory come with SWAP_NO_MEMORY, else they are 0. */
struct srv_swap_outcome {
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
    bool until_drained;      /* on_end comes after the draining, or when the server ends */
    /* Called once, on the loader's thread, unless starting failed. NULL: nobody waits. */
    void (*on_end)(void *ctx, const struct srv_swap_outcome *outcome);
    void *ctx;
};

/* app and cores are borrowed. Returns owned, or NULL. */
struct srv_swap *srv_swap_create(struct srv_app *app, struct eng_cores *cores);
/* After the end of the loader's thread. NULL is fine. */
void srv_swap_destroy(struct srv_swap *s);

/* The loader's thread, for its job: the swap up to the draining. */
void srv_swap_run(struct srv_swap *s);

/*
 * Starts a swap; copies the parameters. Returns SWAP_OK, SWAP_BUSY, SWAP_GIVEN_UP or SWAP_NO_MEMORY
 * with a sentence in err. Not concurrently with srv_swap_destroy.
 */
enum srv_swap_result srv_swap_start(struct srv_swap *s, const struct srv_swap_params *params,
                                    char *err, size_t errlen);

/* The server is ending, srv_models_stop has been called: a swap that has not switched is given up,
 * nobody waits for one that drains. */
void srv_swap_give_up(struct srv_swap *s);

struct srv_swap_view {
    enum srv_swap_state state;
    char model[256];      /* that is being loaded, or has been loaded last; "": none */
    char previous[256];   /* "": none */
    char last_error[640]; /* of the last swap; "": it succeeded, or there was none */
    int64_t since;        /* unix seconds: when the state began; 0: there was no swap */
};
void srv_swap_look(struct srv_swap *s, struct srv_swap_view *ret);

#endif
