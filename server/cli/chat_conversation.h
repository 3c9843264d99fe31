/* SPDX-License-Identifier: MIT */
/*
 * The messages of a conversation, and its file: the format that the chat page exports and imports.
 *
 * Threads: one owner. Errors: -1; functions with err write one sentence into it.
 */
#pragma once

#include <jansson.h>
#include <stddef.h>

struct buf;

struct conversation {
    json_t *system;   /* a string */
    json_t *messages; /* [{role, content, state}]; state: of answers */
};

int conversation_init(struct conversation *c);
void conversation_finish(struct conversation *c);

/* state NULL: none. text may hold any valid UTF-8. */
int conversation_add(struct conversation *c, const char *role, const char *text, size_t len,
                     const char *state);

/* Removes the last question and its answer. Returns the question, owned, or NULL if there is none.
 */
char *conversation_undo(struct conversation *c);

/* The messages to send, roles in turns, as many templates demand. Owned; NULL: out of memory. */
json_t *conversation_request(const struct conversation *c);

int conversation_save(const struct conversation *c, const char *path, char *err, size_t errlen);

/* Takes the first conversation of the file; the present one stays if it cannot be read. */
int conversation_load(struct conversation *c, const char *path, char *err, size_t errlen);

/* Adds a file's text to a message: its name, and the text in a fence that it does not hold. */
void conversation_quote_file(struct buf *message, const char *name, const char *text, size_t len);
