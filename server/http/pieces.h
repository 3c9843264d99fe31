/* SPDX-License-Identifier: MIT */
/*
 * Whole answers: written at once if they are short, else in pieces as the client takes them, so
 * that an answer of any size takes little memory.
 *
 * Threads: the text worker that holds the request.
 */
#pragma once

#include "server/http/endpoint.h"

struct srv_pieces {
    /* Appends the next piece, some ten kilobytes; returns true if that was the last. */
    bool (*write)(void *ctx, struct buf *b);
    void *ctx;
    size_t max_bytes; /* of a piece, or of the answer if it is written at once */
    bool begun;       /* srv_reply_in_pieces has been called */
};

void srv_pieces_reply_whole(struct srv_request *req, const struct srv_pieces *p);

/* Returns false while the client is behind: to be called again once there is room. */
bool srv_pieces_reply(struct srv_request *req, struct srv_pieces *p);
