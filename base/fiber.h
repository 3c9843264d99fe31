/* SPDX-License-Identifier: MIT */
/*
 * A fiber: a function on a stack of its own that can be left in the middle and entered again later,
 * on any thread. What it does between two resumptions is seen by the next one.
 *
 * Threads: one at a time per fiber. It runs with all signals blocked.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct fiber;

/* Returns false where the C library cannot switch stacks (musl): then no fiber can be created. */
bool fiber_available(void);

/* Returns owned (fiber_destroy), or NULL if out of memory. The stack takes memory when touched. */
struct fiber *fiber_create(void);
void fiber_destroy(struct fiber *f); /* NULL is fine; what it was doing is dropped */

/*
 * Makes fn(arg) what the next resumption begins with. A function that paused is dropped where it
 * is: it must hold nothing that would have to be released.
 */
void fiber_start(struct fiber *f, void (*fn)(void *arg), void *arg);

/* Goes on with the function until it pauses or returns; true if it has returned. */
bool fiber_resume(struct fiber *f);

/* Called by the function: goes back to the caller of fiber_resume. */
void fiber_pause(struct fiber *f);
