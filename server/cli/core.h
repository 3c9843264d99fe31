/* SPDX-License-Identifier: MIT */
/*
 * The parts of a server that answer requests, without what carries those: models with their loader,
 * text workers, grammars, metrics. `serve` puts sockets in front of it, the commands that work
 * offline local requests (http/local.h).
 *
 * Threads: the main thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "server/http/server.h"
#include "server/models/app.h"

struct srv_core {
    struct srv_server server;
    struct srv_app app;
    struct eng_cores *cores;
    struct srv_loader *loader;
    int loaded_fd; /* an eventfd, readable once the models of the start are loaded or not */
};

/* config is borrowed. Nothing is open yet, and srv_core_close is fine. */
void srv_core_init(struct srv_core *c, const struct srv_config *config);

/* Before any socket. Starts the text workers and the thread of grammars. 0, or -1 with err. Then
 * srv_loader_start may begin, with loaded_fd. */
int srv_core_create(struct srv_core *c, char *err, size_t errlen);

/* After the last request has ended. Returns false, and the process is to end, if a disk that does
 * not answer holds a thread. */
bool srv_core_close(struct srv_core *c);
