/* SPDX-License-Identifier: MIT */
/* Reads memory as fast as it can; see read_speed.h. Called on the thread that owns the pool. */
#include "engine/read_speed.h"

#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "engine/pool.h"

enum { LINE = 64, ITEM_BYTES = 8 << 20, MAX_BYTES = 1 << 30, PASSES = 3 };

/* Distances of the prefetch. */
static const size_t distances[] = {0, 1024, 2048, 4096};

struct pass {
    const uint8_t *data;
    size_t bytes, ahead;
    _Atomic uint64_t sum; /* of what was read */
};

/* Reads whole lines upwards. Returns something of every byte, so that no load is left out. */
static uint64_t read_lines(const uint8_t *at, const uint8_t *end, size_t ahead)
{
    enum { WORDS = LINE / sizeof(uint64_t) };
    uint64_t sum[WORDS] = {0}, all = 0;
    for (; at < end; at += LINE) {
        uint64_t w[WORDS];
        if (ahead) __builtin_prefetch(at + ahead, 0, 2);
        memcpy(w, at, LINE);
        for (int i = 0; i < WORDS; i++)
            sum[i] ^= w[i];
    }
    for (int i = 0; i < WORDS; i++)
        all ^= sum[i];
    return all;
}

static void read_item(void *arg, int item, int thread)
{
    struct pass *p = arg;
    size_t start = (size_t)item * ITEM_BYTES, n = p->bytes - start;
    (void)thread;
    p->sum ^=
        read_lines(p->data + start, p->data + start + (n < ITEM_BYTES ? n : ITEM_BYTES), p->ahead);
}

double read_speed(const uint8_t *data, size_t bytes, struct pool *pool)
{
    struct pass pass = {.data = data, .bytes = bytes < MAX_BYTES ? bytes : MAX_BYTES};
    struct pool_phase phase = {read_item, &pass, (int)((pass.bytes + ITEM_BYTES - 1) / ITEM_BYTES)};
    double best = 0;
    pass.bytes = pass.bytes / LINE * LINE;
    for (int i = 0; i < PASSES; i++)
        for (size_t d = 0; d < sizeof(distances) / sizeof(distances[0]); d++) {
            pass.ahead = distances[d];
            uint64_t start = clock_now_ns();
            pool_run(pool, &phase, 1, NULL);
            double speed = 1e9 * (double)pass.bytes / (double)(clock_now_ns() - start);
            if (speed > best) best = speed;
        }
    return best;
}
