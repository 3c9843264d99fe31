/* SPDX-License-Identifier: MIT */
/*
 * Variables that are released at the end of their block, on every way out of it:
 *
 *   AUTO(buf_finish) struct buf b;     made by an init function before anything can return
 *   AUTO_FREE char *text = NULL;       for each variable of the declaration
 *   HOLD(&set->lock);                  a lock, held from here on
 */
#pragma once

#include <pthread.h>
#include <stdlib.h>

#define AUTO(release) __attribute__((cleanup(release), unused))
#define AUTO_FREE AUTO(auto_free)
#define HOLD(lock) AUTO(auto_unlock) pthread_mutex_t *held = (pthread_mutex_lock(lock), (lock))

static inline void auto_free(void *pointer)
{
    free(*(void **)pointer);
}

static inline void auto_unlock(pthread_mutex_t **lock)
{
    pthread_mutex_unlock(*lock);
}
