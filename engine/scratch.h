/* SPDX-License-Identifier: MIT */
/*
 * One block of memory cut into pieces. The same code runs twice: with base NULL it only counts, so
 * that the memory plan knows the size before anything is allocated.
 *
 * Used by forward.c, attention.c and batch.c while they are set up, on one thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { SCRATCH_ALIGN = 64 };

struct scratch {
    uint8_t *base; /* aligned; NULL: count only */
    size_t used;   /* SIZE_MAX: exceeds the address space */
};

/* The first aligned byte of memory that has SCRATCH_ALIGN more than are taken. */
static inline uint8_t *scratch_align(void *memory)
{
    return (uint8_t *)(((uintptr_t)memory + SCRATCH_ALIGN - 1) & ~(uintptr_t)(SCRATCH_ALIGN - 1));
}

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
