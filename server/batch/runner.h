/* SPDX-License-Identifier: MIT */
/*
 * The batches of a server and the thread that runs them, below all other work: each line is a
 * request of this process whose jobs are spare (eng_job_params), a few at a time. Batches of
 * different keys take turns; of a key the oldest comes first.
 *
 * All that is known of a batch is in its document and, of its lines, in its results; so a process
 * that was killed at any point goes on where it was, and a line that ran twice gives the same
 * bytes. Statuses go one way:
 *
 *     validating -> failed, in_progress -> finalizing -> completed, expired
 *     validating, in_progress -> cancelling -> cancelled
 *
 * Members of a batch's document that its owner does not see: _hash, of the input; _keep_s, how long
 * its files are kept.
 *
 * Threads: safe.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/batch/store.h"
#include "server/metrics.h"

struct batches;
struct srv_server;

enum { BATCHES_FILE_DAYS = 30, BATCHES_DAY_S = 24 * 60 * 60 };

/* Opens the directory and starts the thread, which works once the server is ready. Returns owned:
 * batches_destroy. 0, or -1 with err. */
int batches_create(struct batches **ret, struct srv_server *server, const char *dir,
                   int64_t most_bytes, char *err, size_t errlen);
/* The server ends: lines that run are given up, to be run again. NULL is fine for both. */
void batches_stop(struct batches *b);
void batches_destroy(struct batches *b);

struct store *batches_store(struct batches *b);

/* Adds a batch of an owner; takes the document. 0, 1: there is one of its id, or a store_error with
 * why. */
int batches_add(struct batches *b, const uint8_t *owner, json_t *doc, char *err, size_t errlen);

/* Asks for the end of a batch; one that is being cancelled stays so. 0, or minus a srv_error. */
int batches_cancel(struct batches *b, const uint8_t *owner, const char *id, char *err,
                   size_t errlen);

/* Removes a file of the owner, NULL: of any. 0, or a store_error. */
int batches_remove_file(struct batches *b, const uint8_t *owner, const char *id);

/* Keys, documents or answers of the batches have changed. */
void batches_wake(void *batches);

/* As they are now. */
void batches_look(struct batches *b, struct srv_metrics_batches *ret);
