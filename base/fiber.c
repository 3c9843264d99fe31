/* SPDX-License-Identifier: MIT */
/* Fibers by swapcontext; see fiber.h. */
#include "base/fiber.h"

#include <assert.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HAS_TSAN 1
#elif __has_feature(address_sanitizer)
#define HAS_ASAN 1
#endif
#elif defined(__SANITIZE_THREAD__)
#define HAS_TSAN 1
#elif defined(__SANITIZE_ADDRESS__)
#define HAS_ASAN 1
#endif
#ifdef HAS_TSAN
#include <sanitizer/tsan_interface.h>
#elif defined(HAS_ASAN)
#include <sanitizer/asan_interface.h>
#endif

#ifdef HEARTH_HAVE_FIBERS
bool fiber_available(void)
{
    return true;
}

/* As much as a thread has; the page below it cannot be touched. */
enum { STACK_BYTES = 8 << 20, GUARD_BYTES = 1 << 16 };

struct fiber {
    ucontext_t own, caller;
    void (*fn)(void *arg);
    void *arg;
    bool returned;
    uint8_t *map;  /* [GUARD_BYTES + STACK_BYTES] */
    void *tsan[2]; /* the thread sanitizer's handles of the fiber and its caller */
};

/* Drops what the sanitizers know of a function that may have been dropped where it paused. */
static void forget_frames(struct fiber *f)
{
#ifdef HAS_TSAN
    if (f->tsan[0]) __tsan_destroy_fiber(f->tsan[0]);
#elif defined(HAS_ASAN)
    __asan_unpoison_memory_region(f->map + GUARD_BYTES, STACK_BYTES);
#endif
    f->tsan[0] = NULL;
}

struct fiber *fiber_create(void)
{
    struct fiber *f = calloc(1, sizeof(*f));
    if (!f) return NULL;
    void *map = mmap(NULL, GUARD_BYTES + STACK_BYTES, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (map == MAP_FAILED) {
        free(f);
        return NULL;
    }
    f->map = map;
    f->returned = true;
    madvise(map, GUARD_BYTES + STACK_BYTES, MADV_NOHUGEPAGE); /* else a few KB would be 2 MiB */
    if (mprotect(map, GUARD_BYTES, PROT_NONE) == 0) return f;
    fiber_destroy(f);
    return NULL;
}

void fiber_destroy(struct fiber *f)
{
    if (!f) return;
    forget_frames(f);
    munmap(f->map, GUARD_BYTES + STACK_BYTES);
    free(f);
}

/* makecontext passes ints. */
static void enter(unsigned high, unsigned low)
{
    struct fiber *f = (struct fiber *)((uintptr_t)high << 16 << 16 | low);
    f->fn(f->arg);
    f->returned = true;
    fiber_pause(f); /* for good */
}

void fiber_start(struct fiber *f, void (*fn)(void *arg), void *arg)
{
    uintptr_t self = (uintptr_t)f;
    f->fn = fn;
    f->arg = arg;
    f->returned = false;
    getcontext(&f->own); /* cannot fail */
    f->own.uc_stack.ss_sp = f->map + GUARD_BYTES;
    f->own.uc_stack.ss_size = STACK_BYTES;
    f->own.uc_link = NULL;
    sigfillset(&f->own.uc_sigmask);
    makecontext(&f->own, (void (*)(void))enter, 2, (unsigned)(self >> 16 >> 16), (unsigned)self);
    forget_frames(f);
#ifdef HAS_TSAN
    f->tsan[0] = __tsan_create_fiber(0);
#endif
}

bool fiber_resume(struct fiber *f)
{
    assert(!f->returned);
#ifdef HAS_TSAN
    f->tsan[1] = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(f->tsan[0], 0);
#endif
    swapcontext(&f->caller, &f->own);
    return f->returned;
}

void fiber_pause(struct fiber *f)
{
#ifdef HAS_TSAN
    __tsan_switch_to_fiber(f->tsan[1], 0);
#endif
    swapcontext(&f->own, &f->caller);
}
#else
bool fiber_available(void)
{
    return false;
}

struct fiber *fiber_create(void)
{
    return NULL;
}

void fiber_destroy(struct fiber *f)
{
    assert(!f);
}

void fiber_start(struct fiber *f, void (*fn)(void *arg), void *arg)
{
    (void)f, (void)fn, (void)arg;
    abort();
}

bool fiber_resume(struct fiber *f)
{
    (void)f;
    abort();
}

void fiber_pause(struct fiber *f)
{
    (void)f;
    abort();
}
#endif
