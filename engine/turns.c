/* SPDX-License-Identifier: MIT */
/* Turns by used time per share, under a mutex; see turns.h. */
#include "engine/turns.h"

#include <assert.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "engine/engine.h"

enum {
    CREDIT_US = 10000, /* a step of the others at most */
    MOMENT_US = 300,   /* to deliver a step's tokens and plan the next one */
};

struct turns_seat {
    struct eng_turns *t;
    int share;
    pthread_cond_t go;
    double pass;             /* used time per share, in us */
    uint64_t began_us;       /* while it has the turn */
    struct turns_seat *next; /* in the list of those that want a turn */
};

struct eng_turns {
    pthread_mutex_t lock;
    struct turns_seat *wanting;  /* in the order of asking */
    struct turns_seat *holder;   /* that has the turn, or NULL */
    struct turns_seat *expected; /* it has until expected_us to ask again, or NULL */
    uint64_t expected_us;
    double pass; /* of the last holder */
    int n_seats;
};

int eng_turns_create(struct eng_turns **ret)
{
    struct eng_turns *t = calloc(1, sizeof(*t));
    if (!t) return ENG_ENOMEM;
    if (pthread_mutex_init(&t->lock, NULL)) {
        free(t);
        return ENG_ENOMEM;
    }
    *ret = t;
    return 0;
}

void eng_turns_destroy(struct eng_turns *t)
{
    if (!t) return;
    assert(!t->n_seats);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

int turns_sit(struct eng_turns *t, int share, struct turns_seat **ret)
{
    pthread_condattr_t attr;
    *ret = NULL;
    if (!t) return 0;
    struct turns_seat *s = calloc(1, sizeof(*s));
    if (!s || pthread_condattr_init(&attr)) goto failed;
    bool made = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) == 0 &&
                pthread_cond_init(&s->go, &attr) == 0;
    pthread_condattr_destroy(&attr);
    if (!made) goto failed;
    s->t = t;
    s->share = share > 0 ? share : 1;
    pthread_mutex_lock(&t->lock);
    t->n_seats++;
    pthread_mutex_unlock(&t->lock);
    *ret = s;
    return 0;
failed:
    free(s);
    return ENG_ENOMEM;
}

void turns_stand(struct turns_seat *s)
{
    if (!s) return;
    struct eng_turns *t = s->t;
    pthread_mutex_lock(&t->lock);
    assert(t->holder != s);
    if (t->expected == s) t->expected = NULL;
    t->n_seats--;
    pthread_mutex_unlock(&t->lock);
    pthread_cond_destroy(&s->go);
    free(s);
}

/* The one that is next, or NULL. With the lock held, as below. */
static struct turns_seat *find_next(const struct eng_turns *t)
{
    struct turns_seat *best = t->wanting;
    for (struct turns_seat *s = best; s; s = s->next)
        if (s->pass < best->pass) best = s;
    return best;
}

static void add_wanting(struct eng_turns *t, struct turns_seat *s)
{
    struct turns_seat **link = &t->wanting;
    while (*link)
        link = &(*link)->next;
    *link = s;
    s->next = NULL;
}

static void remove_wanting(struct eng_turns *t, struct turns_seat *s)
{
    struct turns_seat **link = &t->wanting;
    while (*link != s)
        link = &(*link)->next;
    *link = s->next;
}

/* Whether the turn is kept for another one, which is about to ask. */
static bool is_kept(struct eng_turns *t, const struct turns_seat *s)
{
    return t->expected && t->expected != s && clock_now_us() < t->expected_us;
}

void turns_enter(struct turns_seat *s)
{
    if (!s) return;
    struct eng_turns *t = s->t;
    pthread_mutex_lock(&t->lock);
    double least = t->pass - (double)CREDIT_US / s->share;
    if (s->pass < least) s->pass = least;
    if (t->expected == s) t->expected = NULL;
    add_wanting(t, s);
    for (struct turns_seat *next; t->holder || (next = find_next(t)) != s || is_kept(t, s);) {
        const struct timespec until = {(time_t)(t->expected_us / 1000000),
                                       (long)(t->expected_us % 1000000) * 1000};
        if (!t->holder && next != s) pthread_cond_signal(&next->go);
        if (!t->holder && next == s)
            pthread_cond_timedwait(&s->go, &t->lock, &until);
        else
            pthread_cond_wait(&s->go, &t->lock);
    }
    remove_wanting(t, s);
    t->expected = NULL;
    t->holder = s;
    t->pass = s->pass;
    s->began_us = clock_now_us();
    pthread_mutex_unlock(&t->lock);
}

bool turns_leave(struct turns_seat *s, bool more)
{
    if (!s) return false;
    struct eng_turns *t = s->t;
    pthread_mutex_lock(&t->lock);
    uint64_t now_us = clock_now_us();
    s->pass += (double)(now_us - s->began_us) / s->share;
    t->holder = NULL;
    struct turns_seat *next = find_next(t);
    t->expected = more && next && s->pass < next->pass ? s : NULL;
    t->expected_us = now_us + MOMENT_US;
    if (next) pthread_cond_signal(&next->go);
    pthread_mutex_unlock(&t->lock);
    return next != NULL;
}
