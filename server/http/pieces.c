/* SPDX-License-Identifier: MIT */
#include "server/http/pieces.h"

#include "base/auto.h"

void srv_pieces_reply_whole(struct srv_request *req, const struct srv_pieces *p)
{
    struct buf b = {.max = p->max_bytes};
    while (!p->write(p->ctx, &b) && !b.failed)
        ;
    srv_reply(req, 200, NULL, &b);
}

bool srv_pieces_reply(struct srv_request *req, struct srv_pieces *p)
{
    bool last = false, failed = false;
    if (!p->begun) srv_reply_in_pieces(req);
    p->begun = true;
    while (!last && !failed) {
        if (!srv_stream_has_room(req)) return false;
        AUTO(buf_finish) struct buf b = {.max = p->max_bytes};
        last = p->write(p->ctx, &b);
        failed = b.failed;
        if (!failed && !srv_stream_write(req, b.data, b.len)) last = true;
    }
    if (failed) srv_stream_abort(req);
    return true;
}
