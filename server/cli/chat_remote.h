/* SPDX-License-Identifier: MIT */
/*
 * A model behind an OpenAI-style HTTP API: http://..., https://... or unix:PATH. Streams
 * chat completions through server/hub/transfer.h; one that comes whole is taken too.
 *
 * Threads: one owner; callbacks run on its thread. Errors: -1 with one sentence in err.
 */
#ifndef HEARTH_SERVER_CLI_CHAT_REMOTE_H
#define HEARTH_SERVER_CLI_CHAT_REMOTE_H

#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct remote;

/* Reaches the server and lists its models. model NULL: its first. key NULL: none. Returns owned. */
struct remote *remote_open(const char *url, const char *key, const char *model,
                           const atomic_bool *stop, char *err, size_t errlen);
void remote_close(struct remote *r);

const char *remote_model(const struct remote *r);

/* Names another model of the server, which judges the name when it is asked. */
int remote_choose(struct remote *r, const char *model, char *err, size_t errlen);

struct remote_result {
    char finish[32]; /* finish_reason; "" if the answer did not end by itself */
    int64_t n_prompt, n_cached, n_generated; /* -1: the server does not say */
};

struct remote_calls {
    bool (*on_text)(void *ctx, const char *text, size_t len);
    void (*on_progress)(void *ctx, int64_t n_done, int64_t n_prompt);
    void *ctx;
};

/* Adds model and stream to the body, an object that is borrowed. A stop is not an error. */
int remote_answer(struct remote *r, json_t *body, const struct remote_calls *calls,
                  struct remote_result *ret, char *err, size_t errlen);

#endif
