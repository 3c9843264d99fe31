/* SPDX-License-Identifier: MIT */
/*
 * The field "prediction": the answer that a client expects, as OpenAI's predicted outputs. Its ids
 * become drafts of the engine; they change the speed of an answer, never the answer.
 *
 * Threads: the text worker that holds the request.
 */
#ifndef HEARTH_SERVER_API_READ_PREDICTION_H
#define HEARTH_SERVER_API_READ_PREDICTION_H

#include <stdint.h>

#include "server/api/read/json_fields.h"

struct srv_gen;

/*
 * Reads {"type": "content", "content": a string or text parts} and encodes the text. The ids are in
 * the request's arena. NULL: the request has no prediction. Returns 0, or -1 with err.
 */
int srv_prediction_read(struct srv_gen *g, const json_t *field, struct param_error *err);

#endif
