/* SPDX-License-Identifier: MIT */
/* Threads and conditions as the whole program makes them. Any thread. */
#pragma once

#include <pthread.h>
#include <stddef.h>

/*
 * Starts a thread in which the signals of the process are blocked, so that those go to the threads
 * that wait for them; faults of the thread itself still end it. name: of at most 15 bytes.
 * stack_bytes: 0 for the usual size. Returns 0, or the errno for which os_error_remedy has advice.
 */
int thread_start(pthread_t *ret, const char *name, size_t stack_bytes, void *(*run)(void *arg),
                 void *arg);

/*
 * Makes a condition whose timed waits take the times of clock_after_ms. It cannot fail, as making a
 * lock cannot: neither allocates.
 */
void thread_cond_init(pthread_cond_t *ret);
