/* SPDX-License-Identifier: MIT */
/*
 * The signals of an interactive subcommand as flags and a descriptor, and the terminal's settings:
 * saved at the start, restored at the end. One per process; handlers run on any thread.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

/* Returns 0, or -1 if no descriptor is available. */
int interrupt_begin(void);
void interrupt_end(void); /* restores the terminal */

/* Set by SIGINT until it is taken, by SIGTERM and SIGHUP for good. */
const atomic_bool *interrupt_stop(void);

/* Readable after a signal, until interrupt_take. */
int interrupt_fd(void);

/* The next signal to handle, or 0: SIGTERM and SIGHUP (every time), SIGWINCH, SIGINT. */
int interrupt_take(void);

/*
 * While nobody looks at the flags, as when a model loads: the n-th SIGINT and the first of the
 * other signals end the process. 0: none does.
 */
void interrupt_ends(int n);
