/* SPDX-License-Identifier: MIT */
/*
 * Chat messages of a request, checked and made into a prompt; shared by every route that takes
 * messages.
 *
 * Text of the request never becomes control tokens: the template marks which bytes of its output
 * came from the request, and only the rest is searched for special tokens.
 */
#pragma once

#include <stdbool.h>

#include <jansson.h>

#include "server/api/read/cache_fields.h"
#include "tokenizer/chat/chat.h"
#include "tokenizer/tokenizer.h"

struct srv_model;
struct srv_tools;
struct metadata_lines;

struct chat_input {
    const json_t *messages;
    const char *field;    /* of the request they come from, for errors */
    const json_t *kwargs; /* chat_template_kwargs, or NULL */
    /* Of which kwargs are a part, and messages or most of them: the template gets them from its
     * text, so that it sees integers of any size. NULL if the endpoint built all messages. */
    const struct srv_body *body;
    bool add_generation_prompt;
    bool continue_final_message;
    struct metadata_lines *metadata; /* gets the lines that were taken off; NULL: unseen */
    /* The request's tools and reasoning fields; gets how the prompt ends. NULL: none. */
    struct srv_tools *tools;
    /* For each item of the client's, of which messages were made, their number up to its end:
     * integers. NULL: the messages are the client's own. */
    const json_t *ends;
};

/*
 * Checks that roles, contents and parts are what the API allows; field: what holds the messages.
 * Returns 0, or -1 with the path of the wrong field.
 */
int chat_input_check(const json_t *messages, const char *field);

/* The same for one message; at: its path. */
int chat_input_check_message(const json_t *message, const char *at);

/*
 * Checks that the body does not ask both to continue a message and to begin a new one. Returns 0,
 * or -1 after param_fail.
 */
int chat_input_check_flags(const json_t *body);

/* In some dialects an answer continues a last message that is the assistant's. */
bool chat_input_ends_open(const json_t *messages);

/* Renders the messages by the model's template, without metadata lines unless the server keeps
 * them, and tokenizes the text. *prompt (tok_prompt_finish) and *ids are owned, after an error
 * too. */
int chat_input_make(const struct srv_model *model, const struct chat_input *in,
                    struct tok_prompt *prompt, struct tok_ids *ids);

/*
 * Where messages end in a prompt: what comes before may be shared with a prompt that has the same
 * instructions and tools, or the same conversation with its last turn changed. A message ends at
 * the first control token after text of the request, so there are no ends where a template
 * separates messages by plain text. No answer depends on them.
 *
 * Writes the number of prompt tokens before the first end, and before those from the last message
 * of the user on, a few earlier ones perhaps with them. Returns how many there are; of too many the
 * last. prompt is what the template made of the messages, ids [n_ids] what the tokenizer made of
 * that.
 */
int chat_input_ends(const struct tok *tok, const struct tok_prompt *prompt, const int32_t *ids,
                    int64_t n_ids, const json_t *messages, int64_t ret[CHAT_MOST_ENDS]);
