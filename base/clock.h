/* SPDX-License-Identifier: MIT */
/* The clocks: one for durations and deadlines, one for dates. Any thread. */
#pragma once

#include <stdint.h>
#include <time.h>

/* Nanoseconds of CLOCK_MONOTONIC, for measuring. */
static inline uint64_t clock_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* The same in microseconds, for durations and deadlines. */
static inline uint64_t clock_now_us(void)
{
    return clock_now_ns() / 1000;
}

/* The point in time `ms` milliseconds from now, for a condition variable of CLOCK_MONOTONIC. */
static inline struct timespec clock_after_ms(int64_t ms)
{
    uint64_t us = clock_now_us() + (uint64_t)ms * 1000;
    return (struct timespec){.tv_sec = (time_t)(us / 1000000),
                             .tv_nsec = (long)(us % 1000000 * 1000)};
}

/* Milliseconds since 1970, for dates. */
static inline int64_t clock_date_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}
