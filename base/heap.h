/* SPDX-License-Identifier: MIT */
/*
 * Freed memory that glibc's allocator keeps; other C libraries have no such settings, and these
 * calls do nothing there. Any thread.
 */
#pragma once

#include <stdlib.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

/* Gives the system back what was freed. */
static inline void heap_trim(void)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

/*
 * At most n_arenas, since more of them only keep freed memory resident; allocations from mmap_bytes
 * on go back to the system when they are freed.
 */
static inline void heap_limit(int n_arenas, int mmap_bytes)
{
#ifdef __GLIBC__
    mallopt(M_ARENA_MAX, n_arenas);
    mallopt(M_MMAP_THRESHOLD, mmap_bytes);
#else
    (void)n_arenas;
    (void)mmap_bytes;
#endif
}
