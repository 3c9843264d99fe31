/* SPDX-License-Identifier: MIT */
/* Turns as numbered tickets under a mutex; see turns.h. */
#include "engine/turns.h"

#include <assert.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

#include "engine/engine.h"

struct eng_turns {
    pthread_mutex_t lock;
    pthread_cond_t next;
    uint64_t n_tickets; /* given out */
    uint64_t n_done;    /* ended turns: the ticket whose turn it is */
};

int eng_turns_create(struct eng_turns **ret)
{
    struct eng_turns *t = calloc(1, sizeof(*t));
    if (!t) return ENG_ENOMEM;
    if (pthread_mutex_init(&t->lock, NULL)) goto no_lock;
    if (pthread_cond_init(&t->next, NULL)) goto no_cond;
    *ret = t;
    return 0;
no_cond:
    pthread_mutex_destroy(&t->lock);
no_lock:
    free(t);
    return ENG_ENOMEM;
}

void eng_turns_destroy(struct eng_turns *t)
{
    if (!t) return;
    assert(t->n_tickets == t->n_done);
    pthread_cond_destroy(&t->next);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

void turns_enter(struct eng_turns *t)
{
    if (!t) return;
    pthread_mutex_lock(&t->lock);
    uint64_t own = t->n_tickets++;
    while (t->n_done != own)
        pthread_cond_wait(&t->next, &t->lock);
    pthread_mutex_unlock(&t->lock);
}

bool turns_leave(struct eng_turns *t)
{
    if (!t) return false;
    pthread_mutex_lock(&t->lock);
    t->n_done++;
    bool waits = t->n_done != t->n_tickets;
    if (waits) pthread_cond_broadcast(&t->next);
    pthread_mutex_unlock(&t->lock);
    return waits;
}
