/* SPDX-License-Identifier: MIT */
/*
 * The messages of the Anthropic dialect as chat messages: tool_use blocks become calls, tool_result
 * blocks messages of the role tool, thinking reasoning_content. Calls of tools that the provider
 * ran are calls and results as others if their results have text; other blocks of the assistant
 * are left out and named.
 *
 * Threads: pure; each call works on its caller's data.
 */
#ifndef HEARTH_SERVER_API_READ_MESSAGES_INPUT_H
#define HEARTH_SERVER_API_READ_MESSAGES_INPUT_H

#include <jansson.h>

#include "server/api/read/json_fields.h"

/*
 * The input of calls is taken from the body's text, so that its numbers keep their digits.
 * ends: gets, for each message of the body, how many there are in the result after it; a list.
 * Returns a new reference, or NULL with err. Out of memory, jansson leaves out what it cannot
 * append: srv_json_ran_out tells.
 */
json_t *messages_to_chat(const struct srv_body *body, json_t *ends, struct param_unknown *ignored,
                         struct param_error *err);

#endif
