/* SPDX-License-Identifier: MIT */
/*
 * The routes that generate: an endpoint's table says how its dialect reads a request and writes the
 * answer; here its body is read, its prompts run and its answer written, in this order.
 *
 * Threads: the text worker that holds the request.
 */
#pragma once

#include "server/api/read/chat_input.h"
#include "server/api/run/generation.h"

/* Handlers of routes whose arg is a struct srv_gen_format: */

/* Runs the request. */
void srv_gen_handle(struct srv_request *req);

/* Counts the tokens of the prompt and runs no model. */
void srv_gen_count(struct srv_request *req);

/*
 * For `prepare` of a chat: makes the one prompt of it. Checks the messages, renders and tokenizes
 * them, without the oldest if the request has them cut; names metadata lines and what was cut, and
 * finds the cache's places. Of `in` tools and metadata are set. place: of the first message, as the
 * client named it; NULL: as `field` does. The default of max_tokens becomes the rest of the
 * context. Returns 0, or -1 after param_fail.
 */
int srv_gen_chat_prompt(struct srv_gen *g, struct chat_input *in, const char *place);

/* For `prepare`: the prompt of completions, from their fields, with its default of max_tokens. */
int srv_completion_prompt(struct srv_gen *g);
