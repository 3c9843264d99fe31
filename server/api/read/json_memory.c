/* SPDX-License-Identifier: MIT */
/* The reserve of jansson's parses; see json_memory.h. */
#include "server/api/read/json_memory.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

/*
 * jansson 2.14 takes at most, on 64 bits, each rounded up to 16 bytes. A value: an object with its
 * first buckets (80 + 128), its string (32), a pair (64) and its shares of growing tables (96). A
 * byte of text: 4 in the token's doubling buffer, 2 in a key and its copy. Both with some room.
 */
enum { RESERVE_VALUE_BYTES = 512, RESERVE_FACTOR = 8, RESERVE_BYTES = 4096, ALIGNMENT = 16 };
/* Kept by a thread from one body to the next, so that most need no system call. */
enum { RESERVE_KEPT_BYTES = 16 << 20 };

struct reserve {
    char *base;
    size_t mapped;
    size_t size, used; /* of the parse under way; both 0 between */
};

static _Thread_local struct reserve reserve;
static _Thread_local bool out_of_memory;

static int reserve_map(size_t size)
{
    void *base = mmap(NULL, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return -1;
    reserve = (struct reserve){.base = base, .mapped = size};
    return 0;
}

static void reserve_unmap(void)
{
    if (reserve.base) munmap(reserve.base, reserve.mapped);
    reserve = (struct reserve){0};
}

static int open_reserve(size_t len, size_t n_values)
{
    size_t text, values, size;
    assert(reserve.size == 0); /* one parse at a time */
    if (__builtin_mul_overflow(len, (size_t)RESERVE_FACTOR, &text) ||
        __builtin_mul_overflow(n_values, (size_t)RESERVE_VALUE_BYTES, &values) ||
        __builtin_add_overflow(text, values, &size) ||
        __builtin_add_overflow(size, (size_t)RESERVE_BYTES, &size))
        return -1;
    if (size > reserve.mapped) {
        reserve_unmap();
        bool kept = size <= RESERVE_KEPT_BYTES && reserve_map(RESERVE_KEPT_BYTES) == 0;
        if (!kept && reserve_map(size)) return -1;
    }
    reserve.size = size;
    return 0;
}

static void close_reserve(void)
{
    if (reserve.used) madvise(reserve.base, reserve.mapped, MADV_DONTNEED);
    reserve.size = reserve.used = 0;
    if (reserve.mapped > RESERVE_KEPT_BYTES) reserve_unmap();
}

static void *reserve_take(size_t size)
{
    assert(reserve.used <= reserve.size);
    size_t room = reserve.size - reserve.used;
    if (size > room || room - size < ALIGNMENT) return NULL;
    void *p = reserve.base + reserve.used;
    reserve.used += (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return p;
}

static void *json_alloc(size_t size)
{
    void *p = malloc(size);
    if (p) return p;
    out_of_memory = true;
    return reserve_take(size);
}

static void json_free(void *p)
{
    uintptr_t base = (uintptr_t)reserve.base, at = (uintptr_t)p;
    if (at < base || at >= base + reserve.mapped) free(p);
}

void srv_json_watch_memory(void)
{
    json_set_alloc_funcs(json_alloc, json_free);
}

bool srv_json_ran_out(void)
{
    bool was = out_of_memory;
    out_of_memory = false;
    return was;
}

json_t *srv_json_load(const char *text, size_t len, size_t n_values, json_error_t *where,
                      bool *ret_no_memory)
{
    srv_json_ran_out();
    *ret_no_memory = true;
    if (open_reserve(len, n_values)) return NULL;
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, where);
    *ret_no_memory = srv_json_ran_out();
    if (*ret_no_memory) json_decref(root); /* before the reserve, which holds parts of it */
    close_reserve();
    return *ret_no_memory ? NULL : root;
}
