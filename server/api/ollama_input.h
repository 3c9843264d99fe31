/* SPDX-License-Identifier: MIT */
/*
 * Messages of Ollama's dialect as those of chat, and its duration.
 *
 * Threads: pure.
 */
#pragma once

#include <stdbool.h>

#include <jansson.h>

#include "server/api/read/body.h"

/*
 * A new list: absent content is "", arguments are text, and each call and result has an id. A
 * result belongs to the open call of its id, else of its tool_name, else to the first open one.
 * Other faults stay, for chat_input_check. NULL after param_fail; memory: srv_json_ran_out.
 */
json_t *ollama_messages(const struct srv_body *body, const json_t *messages);

/*
 * Checks keep_alive: a number of seconds or a duration as Go writes it ("5m", "1h30m", "-1s").
 * *ret_now: it is 0. Returns 0, or -1 after param_fail.
 */
int ollama_read_keep_alive(const json_t *root, bool *ret_now);
