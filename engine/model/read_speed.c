/* SPDX-License-Identifier: MIT */
/* Reads memory as fast as it can; see reading.h. Called on the thread that owns the pool. */
#include "engine/model/reading.h"

#include "base/clock.h"
#include "engine/kernels/kernels.h"
#include "engine/pool.h"

enum {
    ITEM_BYTES = 8 << 20,
    PLACES_LINES = 64 * KERN_READ_PLACES,
    MAX_BYTES = 1 << 30,
    PASSES = 3
};

/* How a thread reads: from so many places of an item at once, prefetching so far ahead. */
static const struct way {
    int n_places;
    size_t ahead;
} ways[] = {{1, 0}, {2, 0}, {2, 1024}, {KERN_READ_PLACES, 1024}};

struct pass {
    const struct kern *kern;
    const uint8_t *data;
    size_t item_bytes;
    const struct way *way;
    _Atomic uint64_t sum; /* of what was read */
};

static void read_item(void *arg, int item, int thread)
{
    struct pass *p = arg;
    const uint8_t *from[KERN_READ_PLACES];
    size_t bytes = p->item_bytes / (size_t)p->way->n_places;
    (void)thread;
    for (int i = 0; i < p->way->n_places; i++)
        from[i] = p->data + (size_t)item * p->item_bytes + (size_t)i * bytes;
    p->sum |= p->kern->read_memory(from, p->way->n_places, bytes, p->way->ahead);
}

double read_speed(const struct kern *kern, const uint8_t *data, size_t bytes, struct pool *pool)
{
    struct pass pass = {.kern = kern, .data = data, .item_bytes = ITEM_BYTES};
    if (bytes > MAX_BYTES) bytes = MAX_BYTES;
    if (bytes < ITEM_BYTES) pass.item_bytes = bytes / PLACES_LINES * PLACES_LINES;
    struct pool_phase phase = {read_item, &pass, (int)(bytes / pass.item_bytes)};
    double best = 0;
    for (int i = 0; i < PASSES; i++)
        for (size_t w = 0; w < sizeof(ways) / sizeof(ways[0]); w++) {
            pass.way = &ways[w];
            uint64_t start = clock_now_ns();
            pool_run(pool, &phase, 1, NULL);
            double read = (double)pass.item_bytes * phase.n_items;
            double speed = 1e9 * read / (double)(clock_now_ns() - start);
            if (speed > best) best = speed;
        }
    return best;
}
