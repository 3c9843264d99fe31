/* SPDX-License-Identifier: MIT */
/*
 * Conversations of all dialects as messages of the chat dialect, and the parts of them that another
 * provider wrote: calls of tools that it ran, refusals, and items that a chat template cannot show.
 * Those are left out of the prompt and named in x-ignored-params, as "PATH=TYPE"; under
 * strict-params the request is refused for it.
 *
 * Threads: pure.
 */
#pragma once

#include <jansson.h>

#include "server/api/read/json_fields.h"

/* Notes that the item, part or block of this type at this path is left out. */
void history_leave_out(struct param_unknown *ignored, const char *path, const char *type);

/*
 * The same for a part of a tool's result. If it is an image, a file, audio or video, the model is
 * told in its place: a text part "[image left out]", "[file left out: NAME]" is added to `parts`.
 */
void history_leave_out_of_result(struct param_unknown *ignored, const char *path,
                                 const json_t *part, json_t *parts);

/* Where a part of content is. */
enum history_place {
    HISTORY_MESSAGE = 1, /* of the user or of who instructs */
    HISTORY_ANSWER = 2,
    HISTORY_RESULT = 4,
    HISTORY_REASONING = 8,
    HISTORY_SUMMARY = 16,
};

enum { HISTORY_NO_TEXT = -1, HISTORY_NOT_TAKEN = -2 };

/*
 * Adds the text of a part to a list of text parts, or leaves the part out. Returns 0;
 * HISTORY_NO_TEXT: it has no type, or not the text that its type has; HISTORY_NOT_TAKEN: a message
 * may not have parts of its type.
 */
int history_add_part(struct param_unknown *ignored, const char *path, const json_t *part,
                     enum history_place place, json_t *parts);

/* Adds a text part to a list; text: a string. */
void history_add_text(json_t *parts, const json_t *text);

/* The arguments of a call whose input is not an object: the JSON text {"name": input}. A new
 * reference. */
json_t *history_arguments(const char *name, const json_t *input);

/*
 * The messages of the chat dialect in the one form that the rest reads. They are unchecked, or
 * NULL; what is wrong with them stays so, for chat_input_check. *ret is a new reference: to the
 * list itself if nothing in it changes, else to one that shares the messages that do not; NULL for
 * NULL. Returns 0, or -1 after param_fail when out of memory.
 */
int history_of_chat(json_t *messages, const char *field, struct param_unknown *ignored,
                    json_t **ret);

/*
 * The messages of the Anthropic dialect: tool_use blocks become calls, tool_result blocks messages
 * of the role tool, thinking reasoning_content. Calls of tools that the provider ran are calls and
 * results as others if their results have text; other blocks of the assistant are left out and
 * named. The input of calls is taken from the body's text, so that its numbers keep their digits.
 * ends: gets, for each message of the body, how many there are in the result after it; a list.
 * Returns a new reference, or NULL after param_fail. Out of memory, jansson leaves out what it
 * cannot append: srv_json_ran_out tells.
 */
json_t *messages_to_chat(const struct srv_body *body, json_t *ends, struct param_unknown *ignored);

/*
 * The input items of Responses. Neighbouring reasoning, messages and calls of the assistant are one
 * turn; a message that follows a message begins another. Calls of tools that another provider ran
 * are as above, others are left out and named, a call with its result.
 *
 * Of the body `instructions` must be a string or absent, `input` a string or an array of items.
 * Objects that are a call's arguments are taken from the body's text. ends: gets, for each item,
 * how many messages there are after it; a list. Returns a new reference, or NULL after param_fail.
 * Out of memory, jansson leaves out what it cannot append: srv_json_ran_out tells.
 */
json_t *responses_to_chat(const struct srv_body *body, json_t *ends, struct param_unknown *ignored);
