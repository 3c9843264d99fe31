/* SPDX-License-Identifier: MIT */
/*
 * The input items of Responses as chat messages. Neighbouring reasoning, messages and calls of the
 * assistant are one turn; a message that follows a message begins another. Calls of tools that
 * another provider ran are calls and results as others if they have text; other items are left out
 * and named, a call with its result.
 *
 * Threads: pure; each call works on its caller's data.
 */
#ifndef HEARTH_SERVER_API_READ_RESPONSES_INPUT_H
#define HEARTH_SERVER_API_READ_RESPONSES_INPUT_H

#include <jansson.h>

#include "server/api/read/json_fields.h"

/*
 * Of the body `instructions` must be a string or absent, `input` a string or an array of items.
 * Objects that are a call's arguments are taken from the body's text. ends: gets, for each item,
 * how many messages there are after it; a list. Returns a new reference, or NULL with err. Out of
 * memory, jansson leaves out what it cannot append: srv_json_ran_out tells.
 */
json_t *responses_to_chat(const struct srv_body *body, json_t *ends, struct param_unknown *ignored,
                          struct param_error *err);

#endif
