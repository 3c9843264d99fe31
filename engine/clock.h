/* SPDX-License-Identifier: MIT */
/* The engine's clock: microseconds of CLOCK_MONOTONIC. Pure, any thread. */
#ifndef HEARTH_ENGINE_CLOCK_H
#define HEARTH_ENGINE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

#endif
