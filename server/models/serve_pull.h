/* SPDX-License-Identifier: MIT */
/*
 * serve --pull: the model is fetched on the loader's thread while the port is open already, with a
 * line in the log every few seconds, and its percentage for those who ask whether the server is
 * ready.
 *
 * Threads: create and destroy on the main thread; run on the loader's; percent and note on any.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct srv_config;
struct srv_pull;

/*
 * Before any other thread exists. config is borrowed. Returns owned; or the exit status with a
 * sentence in err, a buffer of HUB_ERR_SIZE bytes.
 */
int srv_pull_create(struct srv_pull **ret, const struct srv_config *config, char *err);
void srv_pull_destroy(struct srv_pull *p); /* NULL is fine */

/* Fetches the model; its directory goes to ret_dir. 0, or the exit status with err. */
int srv_pull_run(struct srv_pull *p, char *ret_dir, size_t size, char *err);

/* How far it has come; -1: nothing is being pulled. p may be NULL. */
int srv_pull_percent(struct srv_pull *p);

/*
 * How long it may take still, by the speed so far: 1000 to 60000, 1000 too if nothing is pulled.
 */
int srv_pull_left_ms(struct srv_pull *p);

/*
 * Tells the log and systemd how far it has come; false if nothing is being pulled. p may be NULL.
 */
bool srv_pull_note(struct srv_pull *p);
