/* SPDX-License-Identifier: MIT */
/*
 * The client of a model behind an OpenAI-style API: one that a server has (http://..., https://...
 * or unix:PATH, through server/hub/transfer.h), or one in this process (offline.h). Streams
 * answers; one that comes whole is taken too.
 *
 * Threads: one owner; callbacks run on its thread. Errors: -1 or NULL with one sentence in err.
 */
#pragma once

#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/hub/transfer.h"

struct client;
struct eng_info;
struct srv_config;

/* Where a server is. Its strings are its own, but for the path of a Unix socket. */
struct client_address {
    char base[TRANSFER_URL_MAX_BYTES / 2]; /* up to /v1 */
    char authorization[4096 + 32];         /* a header, or "" */
    struct transfer_settings settings;
};

/* Before any other thread exists: it opens the library. key NULL: none. 0, or -1 with err. */
int client_address(struct client_address *ret, const char *url, const char *key, char *err,
                   size_t errlen);

/* The key of the options or of the environment, or NULL. */
const char *client_key(const struct srv_config *config);

/* Reaches the server and lists its models. model NULL: its first. key NULL: none. Returns owned. */
struct client *client_open(const char *url, const char *key, const char *model,
                           const atomic_bool *stop, char *err, size_t errlen);

/* Loads the model of the options, whose strings it borrows but for the directory. Its sampling
 * options are what holds where a body has no others. name: shown for it. stop NULL: never. */
struct client *client_open_here(const struct srv_config *config, const char *name,
                                const atomic_bool *stop, char *err, size_t errlen);
void client_close(struct client *c);

const char *client_model(const struct client *c);

/* Of a model in this process; else NULL. */
const struct eng_info *client_info(const struct client *c);

/* Names another model of the server, which judges the name when it is asked. */
int client_choose(struct client *c, const char *model, char *err, size_t errlen);

/* Adds the constraint of --json-schema, --regex or --grammar to a body, if there is one. */
int client_constrain(const struct srv_config *config, json_t *body, char *err, size_t errlen);

struct client_result {
    char finish[32]; /* finish_reason; "" if the answer did not end by itself */
    bool is_full;    /* refused: the prompt has n_prompt tokens, and the context fewer */
    int64_t n_prompt, n_cached, n_generated; /* -1: the server does not say, */
    double prompt_ms, generated_ms;          /* as of these */
};

struct client_calls {
    bool (*on_text)(void *ctx, const char *text, size_t len);
    void (*on_progress)(void *ctx, int64_t n_done, int64_t n_prompt); /* or NULL */
    void *ctx;
};

/*
 * path: /completions or /chat/completions. Adds model and stream to the body, an object that is
 * borrowed. A stop is not an error.
 */
int client_answer(struct client *c, const char *path, json_t *body,
                  const struct client_calls *calls, struct client_result *ret, char *err,
                  size_t errlen);
