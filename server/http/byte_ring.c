/* SPDX-License-Identifier: MIT */
/* The byte ring; see byte_ring.h. */
#include "server/http/byte_ring.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "server/bounds.h"

void srv_ring_finish(struct srv_ring *r)
{
    free(r->data);
    *r = (struct srv_ring){0};
}

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Copies the waiting bytes out in order without taking them. */
static void peek(const struct srv_ring *r, char *buf, size_t len)
{
    assert(len <= r->len && r->len <= r->cap && r->begin < r->cap);
    size_t first = min_size(len, r->cap - r->begin);
    memcpy(buf, r->data + r->begin, first);
    memcpy(buf + first, r->data, len - first);
}

static bool grow(struct srv_ring *r, size_t wanted)
{
    size_t cap = r->cap ? r->cap : SRV_STREAM_FIRST_BYTES;
    while (cap < wanted)
        cap *= 2; /* wanted is bounded by the two limits checked before */
    if (cap == r->cap) return true;
    char *data = malloc(cap);
    if (!data) return false;
    if (r->len) peek(r, data, r->len);
    free(r->data);
    r->data = data;
    r->cap = cap;
    r->begin = 0;
    assert((cap & (cap - 1)) == 0); /* positions wrap by a mask */
    return true;
}

bool srv_ring_write(struct srv_ring *r, const char *data, size_t len)
{
    if (!len) return true;
    if (r->len > SRV_STREAM_MAX_BYTES || len > SRV_STREAM_EVENT_MAX_BYTES) return false;
    if (!grow(r, r->len + len)) return false;
    size_t at = (r->begin + r->len) & (r->cap - 1);
    size_t first = min_size(len, r->cap - at);
    memcpy(r->data + at, data, first);
    memcpy(r->data, data + first, len - first);
    r->len += len;
    assert(r->len <= r->cap);
    return true;
}

size_t srv_ring_read(struct srv_ring *r, char *buf, size_t max)
{
    size_t len = min_size(max, r->len);
    if (!len) return 0;
    peek(r, buf, len);
    r->begin = (r->begin + len) & (r->cap - 1);
    r->len -= len;
    return len;
}
