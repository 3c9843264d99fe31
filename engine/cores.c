/* SPDX-License-Identifier: MIT */
/* A pool, and turns by used time per share under a mutex; see cores.h. */
#include "engine/cores.h"

#include <assert.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/thread.h"
#include "engine/eng_error.h"
#include "engine/params.h"
#include "engine/pool.h"

enum {
    CREDIT_US = 10000, /* a step of the others at most */
    MOMENT_US = 300,   /* to deliver a step's tokens and plan the next one */
};

struct cores_member {
    struct eng_cores *c;
    int share;
    pthread_cond_t go;
    double pass;       /* used time per share, in us */
    uint64_t began_us; /* while it has the turn */
    bool gives_way;
    struct cores_member *next; /* in the list of those that want a turn */
};

struct eng_cores {
    struct pool *pool;
    pthread_mutex_t lock;
    struct cores_member *wanting;  /* in the order of asking */
    struct cores_member *holder;   /* that has the turn, or NULL */
    struct cores_member *expected; /* it has until expected_us to ask again, or NULL */
    uint64_t expected_us;
    double pass; /* of the last holder */
    int n_members;
};

int eng_cores_create(struct eng_cores **ret, int n_threads, char *err, size_t errlen)
{
    struct eng_cores *c = calloc(1, sizeof(*c));
    if (!c) return fail_with(ENG_ENOMEM, err, errlen, "no memory for the compute threads");
    pthread_mutex_init(&c->lock, NULL);
    int rc = pool_create(&c->pool, n_threads ? n_threads : pool_usable_cores(""), err, errlen);
    if (rc)
        eng_cores_destroy(c);
    else
        *ret = c;
    return rc;
}

void eng_cores_destroy(struct eng_cores *c)
{
    if (!c) return;
    assert(!c->n_members);
    pool_destroy(c->pool);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

struct pool *cores_pool(const struct eng_cores *c)
{
    return c->pool;
}

int cores_join(struct eng_cores *c, int share, struct cores_member **ret)
{
    struct cores_member *s = calloc(1, sizeof(*s));
    if (!s) return ENG_ENOMEM;
    thread_cond_init(&s->go);
    s->c = c;
    s->share = share > 0 ? share : 1;
    *ret = s;
    HOLD(&c->lock);
    c->n_members++;
    return 0;
}

void cores_quit(struct cores_member *s)
{
    if (!s) return;
    struct eng_cores *c = s->c;
    pthread_mutex_lock(&c->lock);
    assert(c->holder != s);
    if (c->expected == s) c->expected = NULL;
    c->n_members--;
    pthread_mutex_unlock(&c->lock);
    pthread_cond_destroy(&s->go);
    free(s);
}

static bool comes_before(const struct cores_member *a, const struct cores_member *b)
{
    return a->gives_way != b->gives_way ? b->gives_way : a->pass < b->pass;
}

/* The one that is next, or NULL. With the lock held, as below. */
static struct cores_member *find_next(const struct eng_cores *c)
{
    struct cores_member *best = c->wanting;
    for (struct cores_member *s = best; s; s = s->next)
        if (comes_before(s, best)) best = s;
    return best;
}

static void add_wanting(struct eng_cores *c, struct cores_member *s)
{
    struct cores_member **link = &c->wanting;
    while (*link)
        link = &(*link)->next;
    *link = s;
    s->next = NULL;
}

static void remove_wanting(struct eng_cores *c, struct cores_member *s)
{
    struct cores_member **link = &c->wanting;
    while (*link != s)
        link = &(*link)->next;
    *link = s->next;
}

/* Whether the turn is kept for another one, which is about to ask. */
static bool is_kept(struct eng_cores *c, const struct cores_member *s)
{
    return c->expected && c->expected != s && clock_now_us() < c->expected_us;
}

void cores_enter(struct cores_member *s)
{
    if (!s) return;
    struct eng_cores *c = s->c;
    HOLD(&c->lock);
    double least = c->pass - (double)CREDIT_US / s->share;
    if (s->pass < least) s->pass = least;
    if (c->expected == s) c->expected = NULL;
    add_wanting(c, s);
    for (;;) {
        struct cores_member *next = c->holder ? NULL : find_next(c);
        const struct timespec until = {(time_t)(c->expected_us / 1000000),
                                       (long)(c->expected_us % 1000000) * 1000};
        if (next == s && !is_kept(c, s)) break;
        if (next && next != s) pthread_cond_signal(&next->go);
        if (next == s)
            pthread_cond_timedwait(&s->go, &c->lock, &until);
        else
            pthread_cond_wait(&s->go, &c->lock);
    }
    remove_wanting(c, s);
    c->expected = NULL;
    c->holder = s;
    c->pass = s->pass;
    s->began_us = clock_now_us();
}

void cores_give_way(struct cores_member *s, bool gives_way)
{
    if (!s) return;
    struct eng_cores *c = s->c;
    HOLD(&c->lock);
    s->gives_way = gives_way;
    if (c->wanting && !c->holder) pthread_cond_signal(&find_next(c)->go);
}

bool cores_leave(struct cores_member *s, bool more)
{
    if (!s) return false;
    struct eng_cores *c = s->c;
    HOLD(&c->lock);
    uint64_t now_us = clock_now_us();
    s->pass += (double)(now_us - s->began_us) / s->share;
    c->holder = NULL;
    struct cores_member *next = find_next(c);
    c->expected = more && next && comes_before(s, next) ? s : NULL;
    c->expected_us = now_us + MOMENT_US;
    if (next) pthread_cond_signal(&next->go);
    return next && (s->gives_way || !next->gives_way);
}
