/* SPDX-License-Identifier: MIT */
/*
 * The input items of Responses as chat messages. Neighbouring reasoning, message and function_call
 * items of the assistant are one turn; a message that follows a message begins another.
 *
 * Threads: pure; each call works on its caller's data.
 */
#ifndef HEARTH_SERVER_API_READ_RESPONSES_INPUT_H
#define HEARTH_SERVER_API_READ_RESPONSES_INPUT_H

#include <jansson.h>

#include "server/api/read/json_fields.h"

/*
 * instructions: a string or NULL; input: a string or an array of items. Returns a new reference, or
 * NULL with err. Out of memory, jansson leaves out what it cannot append: srv_json_ran_out tells.
 */
json_t *responses_to_chat(const json_t *instructions, const json_t *input, struct param_error *err);

#endif
