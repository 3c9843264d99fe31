/* SPDX-License-Identifier: MIT */
/* Charges of bodies, in two parts; see bodies.h. */
#include "server/http/bodies.h"

#include "base/auto.h"
#include "server/bounds.h"

void srv_bodies_init(struct srv_bodies *b, int64_t max_body_bytes)
{
    *b = (struct srv_bodies){
        .most = {[SRV_BODIES_ALL] = max_body_bytes * SRV_BODIES_FACTOR,
                 [SRV_BODIES_SMALL] = max_body_bytes * SRV_SMALL_BODIES_FACTOR}};
    pthread_mutex_init(&b->lock, NULL);
}

void srv_bodies_finish(struct srv_bodies *b)
{
    pthread_mutex_destroy(&b->lock);
}

static void take_out(struct srv_bodies *b, struct srv_body_charge *body)
{
    if (body->bytes == 0) return;
    *body->link = body->next;
    if (body->next) body->next->link = body->link;
    b->held[body->part] -= (int64_t)body->bytes;
    body->bytes = 0;
}

/* Whether a body that is not in the list has room for so many bytes in a part. */
static bool fits(const struct srv_bodies *b, const struct srv_body_charge *body, size_t bytes,
                 enum srv_bodies_part part, bool several_keys)
{
    int64_t own = (int64_t)bytes;
    if (b->held[part] + own > b->most[part]) return false;
    if (!several_keys || b->held[part] + own <= b->most[part] / 2) return true;
    for (const struct srv_body_charge *i = b->first; i; i = i->next)
        if (i->key == body->key && i->part == part) own += (int64_t)i->bytes;
    return own <= b->most[part] / 2;
}

bool srv_bodies_add(struct srv_bodies *b, struct srv_body_charge *body, size_t n, bool several_keys)
{
    HOLD(&b->lock);
    size_t bytes = body->bytes + n;
    bool small = !body->large && bytes <= SRV_SMALL_BODY_BYTES;
    take_out(b, body);
    body->part = SRV_BODIES_ALL;
    bool room = fits(b, body, bytes, body->part, several_keys);
    if (!room && small) {
        body->part = SRV_BODIES_SMALL;
        room = fits(b, body, bytes, body->part, several_keys);
    }
    if (room) {
        body->bytes = bytes;
        body->next = b->first;
        body->link = &b->first;
        if (b->first) b->first->link = &body->next;
        b->first = body;
        b->held[body->part] += (int64_t)bytes;
    }
    return room;
}

void srv_bodies_drop(struct srv_bodies *b, struct srv_body_charge *body)
{
    if (body->bytes == 0) return;
    HOLD(&b->lock);
    take_out(b, body);
}
