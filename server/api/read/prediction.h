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

/*
 * Reads {"type": "content", "content": a string or text parts} and encodes the text. *ret_ids
 * [*ret_n] is in the request's memory. NULL: the request has no prediction; then neither is set.
 * Returns 0, or -1 with err.
 */
int srv_prediction_read(struct srv_request *req, const json_t *field, const int32_t **ret_ids,
                        int64_t *ret_n, struct param_error *err);

#endif
