/* SPDX-License-Identifier: MIT */
/*
 * Lines that a coding agent puts in front of its system prompt for the servers of its vendor, other
 * ones with every request. They say nothing to a model, and behind them nothing of the prompt would
 * be found in the prefix cache again, so they are not part of it.
 *
 * Threads: pure.
 */
#pragma once

#include "server/api/read/json_fields.h"

/* The bytes of such lines, and of blank ones behind them, at the beginning of a text. */
size_t metadata_lines_of_text(const json_t *text);

/* The same of checked messages: of the first one, if it is of the role system or developer. */
size_t metadata_lines_length(const json_t *messages);

struct metadata_lines {
    const char *place;           /* of the first message's text, as the client named it */
    struct param_unknown *noted; /* gets "place:name" for each line */
    int n;                       /* lines that were taken off; 0 before */
};

/*
 * A list of the messages, which begin with such lines, without these: of the first block, which is
 * left out if nothing else is in it, as the message is, unless it is the only one. The other
 * messages are shared. lines: NULL: unseen. Returns a new reference; out of memory, something is
 * missing: srv_json_ran_out tells.
 */
json_t *metadata_lines_take(const json_t *messages, struct metadata_lines *lines);
