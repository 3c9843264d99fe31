/* SPDX-License-Identifier: MIT */
/*
 * One block of memory cut into pieces. The same code runs twice: with base NULL it only counts, so
 * that the memory plan knows the size before anything is allocated.
 *
 * Used by forward.c and attention.c while they are set up, on one thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct scratch {
    uint8_t *base; /* NULL: count only */
    size_t used;   /* SIZE_MAX: exceeds the address space */
};

/* n elements of `size` bytes, 64-byte aligned; NULL while counting. */
static inline void *scratch_take(struct scratch *s, size_t n, size_t size)
{
    size_t bytes, end;
    if (__builtin_mul_overflow(n, size, &bytes) || __builtin_add_overflow(bytes, 63, &bytes) ||
        __builtin_add_overflow(s->used, bytes & ~(size_t)63, &end)) {
        s->used = SIZE_MAX;
        return NULL;
    }
    void *piece = s->base ? s->base + s->used : NULL;
    s->used = end;
    return piece;
}
