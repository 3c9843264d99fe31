/* SPDX-License-Identifier: MIT */
/*
 * Reading memory, in plain C: each level compiles it with its own instructions. Loads are as wide
 * as the level has them, because with narrow ones some processors read a third less.
 */
#pragma once

#include "engine/kernels/kernels.h"

/* A line of the cache. */
typedef uint64_t read_line __attribute__((vector_size(64), may_alias));

static inline __attribute__((always_inline)) uint64_t
read_places(const int n, const uint8_t *const *from, size_t bytes, size_t ahead)
{
    read_line sum[KERN_READ_PLACES] = {{0}};
    uint64_t all = 0;
    for (size_t i = 0; i < bytes; i += sizeof(read_line))
        for (int p = 0; p < n; p++) {
            if (ahead) __builtin_prefetch(from[p] + i + ahead, 0, 2);
            sum[p] |= *(const read_line *)(const void *)(from[p] + i);
        }
    for (int p = 1; p < n; p++)
        sum[0] |= sum[p];
    for (size_t i = 0; i < sizeof(read_line) / sizeof(all); i++)
        all |= sum[0][i];
    return all;
}

static uint64_t read_memory(const uint8_t *const *from, int n, size_t bytes, size_t ahead)
{
    switch (n) { /* sums stay in registers */
    case 1: return read_places(1, from, bytes, ahead);
    case 2: return read_places(2, from, bytes, ahead);
    default: return read_places(KERN_READ_PLACES, from, bytes, ahead);
    }
}
