/* SPDX-License-Identifier: MIT */
/*
 * truncation: "auto": a chat that the context does not hold loses its oldest turns. A turn begins
 * with a message of the user. If the last turn alone is too long it loses its oldest rounds, which
 * begin with a message of the assistant that has calls. Messages of the roles system and developer,
 * the last one of the user and its newest round stay; no call is parted from its results.
 *
 * The tokens that go are at least a multiple of a quarter of the context, and the cut is the first
 * that reaches it. So it stays where it is while the conversation grows, and the next prompts are
 * found in the prefix cache, until it moves by another quarter.
 *
 * Threads: text workers.
 */
#pragma once

#include "server/api/read/chat_input.h"

struct truncation {
    bool automatic;     /* otherwise nothing is cut */
    int64_t max_tokens; /* of the answer, which has room for so many or a quarter; -1: a quarter */
    json_t *kept;       /* the messages of a prompt that was cut, owned; NULL: all */
    bool *dropped;      /* [n_items] of the client's, owned; with kept */
    size_t n_items, n_dropped;
};

/* Reads the field of a request's body; without it nothing changes. Returns 0, or -1 after
 * param_fail. */
int truncate_read(struct truncation *t, const json_t *root);

/*
 * Renders and tokenizes the messages, without the oldest if they have to be cut. If no cut is
 * enough, prompt and ids are those of all messages. Returns 0, or -1 after param_fail;
 * tok_prompt_finish, tok_ids_finish and truncate_finish are due in both cases.
 */
int truncate_make(struct truncation *t, const struct srv_model *model, const struct chat_input *in,
                  struct tok_prompt *prompt, struct tok_ids *ids);

/* Says in a header of the answer how many of the client's items were dropped, if any were. */
void truncate_name(const struct truncation *t, struct srv_request *req);

/* A zeroed one is fine. */
void truncate_finish(struct truncation *t);
