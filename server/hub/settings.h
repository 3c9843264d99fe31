/* SPDX-License-Identifier: MIT */
/*
 * Settings of the Hugging Face hub from the environment, under the names that huggingface_hub
 * reads: HF_ENDPOINT, HF_TOKEN and where else a token may be, HF_HUB_OFFLINE, time limits,
 * certificates, the cache. Read once, on the main thread before any other exists; const
 * afterwards.
 */
#ifndef HEARTH_SERVER_HUB_SETTINGS_H
#define HEARTH_SERVER_HUB_SETTINGS_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "server/transfer.h"

enum { HUB_ENDPOINT_SIZE = 512, HUB_TOKEN_SIZE = 512 };

struct hub_settings {
    char endpoint[HUB_ENDPOINT_SIZE]; /* without a slash at the end */
    struct transfer_origin origin;    /* of the endpoint */
    bool allow_http;                  /* the endpoint is http, so redirects may be */
    char token[HUB_TOKEN_SIZE];       /* "" without one. Never shown */
    char token_from[PATH_MAX];        /* the variable or file that holds it */
    const char *offline;              /* the variable that forbids all requests, or NULL */
    int head_timeout_ms, body_timeout_ms;
    bool no_bars; /* HF_HUB_DISABLE_PROGRESS_BARS */
    struct transfer_settings transfer;
    char cache_root[PATH_MAX];
    mode_t umask;
    int first_wait_ms; /* before the second try; each further one waits twice as long */
};

/* The variable that forbids all requests, or NULL. */
const char *hub_settings_offline(const char *(*env)(const char *name));

/*
 * env as getenv; the strings it gives are borrowed for the life of *ret. Needs transfer_load unless
 * the environment says offline. 0, or HUB_EUSAGE with a sentence in err.
 */
int hub_settings_read(struct hub_settings *ret, const char *(*env)(const char *name), char *err);

/*
 * Returns true if the token may go to this origin: the endpoint's own, over https or on this
 * machine.
 */
bool hub_settings_may_send_token(const struct hub_settings *s, const struct transfer_origin *to);

#endif
