/* SPDX-License-Identifier: MIT */
/*
 * The loader's thread: the only one that loads and closes models, one at a time. First it plans all
 * models and loads those of the start; with --pull the first one's files are fetched from the hub
 * before. Then it sets the app's state. From then on it does what the set of models asks for
 * (srv_models_await): it loads an entry on demand, or its next source (swap.h), and closes models
 * that have drained.
 */
#pragma once

#include <stddef.h>

struct eng_cores;
struct srv_loader;
struct srv_app;

/*
 * Starts loading. event_fd (an eventfd, borrowed) becomes readable when the models of the start are
 * loaded, also after an error.
 * cores: of the engines, borrowed. Returns owned.
 */
int srv_loader_start(struct srv_loader **ret, struct srv_app *app, struct eng_cores *cores,
                     int event_fd, char *err, size_t errlen);

/* Once event_fd is readable: returns 0, or the exit status with the reason. May be called again. */
int srv_loader_result(struct srv_loader *l, char *err, size_t errlen);

/* Leaves the threads running; the process is about to end. */
void srv_loader_abandon(struct srv_loader *l);

/* Waits for the thread, which ends after srv_models_stop or an error. NULL is fine. */
void srv_loader_finish(struct srv_loader *l);
