/* SPDX-License-Identifier: MIT */
/*
 * The arena, the budgets and the error exit of the template machinery; see run.h.
 *
 * Small requests are cut from blocks of 32 KiB; a large one gets a block of its own, which is what
 * lets jinja_grow hand a growing buffer to realloc instead of leaving dead copies.
 */
#include "tokenizer/template/run.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/fail.h"

enum {
    BLOCK_BYTES = 32 * 1024,
    LARGE_BYTES = 8 * 1024, /* from here on a request has a block of its own */
    ALIGN_BYTES = 16,
    COPIED_PER_STEP = 64, /* bytes */
    SEARCHED_PER_STEP = 16,
    READ_PER_STEP = 4,
    STEPS_PER_LOOK = 8192, /* at the clock: a system call of some hundred ns */
    STEPS_PER_FLOAT = 8,
};

/* Blocks with room for many objects and blocks that are one large object share the list. */
struct jinja_block {
    struct jinja_block *next;
    struct jinja_block *prev;
    size_t bytes; /* of data */
    size_t pad;
    char data[];
};

_Static_assert(sizeof(struct jinja_block) % ALIGN_BYTES == 0, "data must be aligned");

void jinja_run_init(struct jinja_run *r, size_t max_memory_bytes, uint64_t max_steps)
{
    memset(r, 0, sizeof(*r));
    r->max_memory_bytes = max_memory_bytes;
    r->max_steps = max_steps;
    r->steps_left = max_steps;
}

static uint64_t cpu_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void plan_look(struct jinja_run *r)
{
    r->clock_at = r->steps_left > STEPS_PER_LOOK ? r->steps_left - STEPS_PER_LOOK : 0;
}

void jinja_run_bound_cpu(struct jinja_run *r, unsigned max_cpu_ms)
{
    r->max_cpu_ms = max_cpu_ms;
    r->cpu_end_ns = cpu_now_ns() + (uint64_t)max_cpu_ms * 1000000u;
    plan_look(r);
}

void jinja_run_finish(struct jinja_run *r)
{
    struct jinja_block *b = r->blocks;
    while (b) {
        struct jinja_block *next = b->next;
        free(b);
        b = next;
    }
    r->blocks = NULL;
    r->free_at = NULL;
    r->free_bytes = 0;
    r->memory_bytes = 0;
}

int jinja_guard(struct jinja_run *r, void (*body)(struct jinja_run *r, void *arg), void *arg)
{
    jmp_buf here, *outer = r->unwind;
    int n_eval = r->n_eval, n_calls = r->n_calls;
    r->unwind = &here;
    if (setjmp(here) == 0) {
        body(r, arg);
        r->rc = 0; /* whatever guards within it caught */
    }
    r->unwind = outer;
    r->n_eval = n_eval;
    r->n_calls = n_calls;
    return r->rc;
}

void jinja_copy_sentence(char *to, size_t size, const char *from)
{
    size_t len = strlen(from);
    if (size == 0) return;
    if (len >= size) {
        len = size - 1;
        while (len > 0 && ((unsigned char)from[len] & 0xC0) == 0x80)
            len--;
    }
    memmove(to, from, len);
    to[len] = '\0';
}

void jinja_fail(struct jinja_run *r, int rc, const char *fmt, ...)
{
    char sentence[JINJA_ERR_BYTES + 64];
    size_t at = 0;
    assert(rc != 0 && r->unwind);
    if (r->line > 0 && rc != JINJA_ERAISE && rc != JINJA_ENOMEM) {
        int n = snprintf(sentence, sizeof(sentence), "line %d: ", r->line);
        at = n > 0 ? (size_t)n : 0;
    }
    FORMAT_REST(sentence + at, sizeof(sentence) - at, fmt);
    jinja_copy_sentence(r->err, sizeof(r->err), sentence);
    r->rc = rc;
    longjmp(*r->unwind, 1);
}

void jinja_fail_again(struct jinja_run *r)
{
    assert(r->rc != 0);
    longjmp(*r->unwind, 1);
}

static size_t round_up(size_t bytes)
{
    return (bytes + ALIGN_BYTES - 1) & ~(size_t)(ALIGN_BYTES - 1);
}

static void charge_memory(struct jinja_run *r, size_t bytes)
{
    if (bytes > r->max_memory_bytes || r->memory_bytes > r->max_memory_bytes - bytes)
        jinja_fail(r, JINJA_ELIMIT, "the template needs more than %zu bytes of memory",
                   r->max_memory_bytes);
    r->memory_bytes += bytes;
}

static struct jinja_block *new_block(struct jinja_run *r, size_t bytes)
{
    charge_memory(r, bytes);
    struct jinja_block *b = malloc(sizeof(*b) + bytes);
    if (!b) {
        r->memory_bytes -= bytes;
        jinja_fail(r, JINJA_ENOMEM, "out of memory");
    }
    *b = (struct jinja_block){.next = r->blocks, .bytes = bytes};
    if (b->next) b->next->prev = b;
    return r->blocks = b;
}

static void *alloc_raw(struct jinja_run *r, size_t bytes)
{
    assert(bytes % ALIGN_BYTES == 0);
    if (bytes >= LARGE_BYTES) return new_block(r, bytes)->data;
    if (bytes > r->free_bytes) {
        struct jinja_block *b = new_block(r, BLOCK_BYTES);
        r->free_at = b->data;
        r->free_bytes = b->bytes;
    }
    void *p = r->free_at;
    r->free_at += bytes;
    r->free_bytes -= bytes;
    return p;
}

void *jinja_alloc(struct jinja_run *r, size_t n, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes) || bytes > SIZE_MAX / 2)
        jinja_fail(r, JINJA_ELIMIT, "%zu objects of %zu bytes are too many", n, size);
    bytes = round_up(bytes ? bytes : 1);
    return memset(alloc_raw(r, bytes), 0, bytes);
}

/* A large object alone in its block: let realloc move it. */
static void *grow_large(struct jinja_run *r, void *old, size_t new_bytes)
{
    struct jinja_block *b =
        (struct jinja_block *)(void *)((char *)old - offsetof(struct jinja_block, data));
    size_t more = new_bytes - b->bytes;
    charge_memory(r, more);
    struct jinja_block *moved = realloc(b, sizeof(*b) + new_bytes);
    if (!moved) {
        r->memory_bytes -= more;
        jinja_fail(r, JINJA_ENOMEM, "out of memory");
    }
    moved->bytes = new_bytes;
    if (moved->prev)
        moved->prev->next = moved;
    else
        r->blocks = moved;
    if (moved->next) moved->next->prev = moved;
    return moved->data;
}

void *jinja_grow(struct jinja_run *r, void *old, size_t old_bytes, size_t new_bytes)
{
    if (new_bytes > SIZE_MAX / 2) jinja_fail(r, JINJA_ELIMIT, "a value of %zu bytes", new_bytes);
    if (!old) return jinja_alloc(r, new_bytes, 1);
    old_bytes = round_up(old_bytes ? old_bytes : 1);
    new_bytes = round_up(new_bytes ? new_bytes : 1);
    if (new_bytes <= old_bytes) return old;
    if (old_bytes >= LARGE_BYTES) return grow_large(r, old, new_bytes);
    return memcpy(alloc_raw(r, new_bytes), old, old_bytes);
}

void *jinja_room(struct jinja_run *r, void *array, size_t n, size_t *cap, size_t size)
{
    assert(n <= *cap);
    if (n < *cap) return array;
    size_t more = *cap ? *cap * 2 : 4;
    array = jinja_grow(r, array, *cap * size, more * size);
    *cap = more;
    return array;
}

char *jinja_copy(struct jinja_run *r, const char *bytes, size_t len)
{
    char *p = jinja_alloc(r, len + 1, 1);
    if (len) memcpy(p, bytes, len);
    return p;
}

void jinja_spend(struct jinja_run *r, uint64_t n)
{
    if (n > r->steps_left) {
        r->steps_left = 0;
        jinja_fail(r, JINJA_ELIMIT, "the template takes more than %llu steps",
                   (unsigned long long)r->max_steps);
    }
    r->steps_left -= n;
    if (r->steps_left >= r->clock_at) return;
    if (cpu_now_ns() >= r->cpu_end_ns)
        jinja_fail(r, JINJA_ELIMIT, "the template takes more than %u ms of processor time",
                   r->max_cpu_ms);
    plan_look(r);
}

void jinja_spend_bytes(struct jinja_run *r, size_t bytes)
{
    jinja_spend(r, bytes / COPIED_PER_STEP);
}

void jinja_spend_search(struct jinja_run *r, size_t bytes)
{
    jinja_spend(r, bytes / SEARCHED_PER_STEP);
}

void jinja_spend_chars(struct jinja_run *r, size_t bytes)
{
    jinja_spend(r, bytes / READ_PER_STEP);
}

void jinja_spend_digits(struct jinja_run *r, size_t n)
{
    jinja_spend(r, STEPS_PER_FLOAT + n);
}

void jinja_enter(struct jinja_run *r)
{
    jinja_spend(r, 1);
    if (++r->n_eval > JINJA_MAX_EVAL)
        jinja_fail(r, JINJA_ELIMIT, "the template recurses deeper than %d evaluations",
                   JINJA_MAX_EVAL);
}

void jinja_leave(struct jinja_run *r)
{
    assert(r->n_eval > 0);
    r->n_eval--;
}

void jinja_check_depth(struct jinja_run *r, int depth)
{
    jinja_spend(r, 1);
    if (depth > JINJA_MAX_VALUE_DEPTH)
        jinja_fail(r, JINJA_ELIMIT, "a value nested deeper than %d", JINJA_MAX_VALUE_DEPTH);
}
