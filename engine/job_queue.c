/* SPDX-License-Identifier: MIT */
/* The waiting jobs: one sorted list, searched from its end; see job_queue.h for the order. */
#include "engine/job_queue.h"

#include <assert.h>
#include <stddef.h>

#include "engine/job.h"

/* Returns true if a is admitted before b. */
static bool is_before(const struct eng_job *a, const struct eng_job *b)
{
    if (a->rank != b->rank) return a->rank < b->rank;
    if (a->turn != b->turn) return a->turn < b->turn;
    return a->place < b->place;
}

static uint64_t next_turn(const struct queue *q, const struct eng_job *job)
{
    const struct eng_job *first = NULL;
    uint64_t turn = 0;
    for (const struct eng_job *j = q->head; j; j = j->next) {
        if (j->rank != job->rank) continue;
        if (!first) {
            first = j;
            turn = j->turn;
        }
        if (j->p.fair_key == job->p.fair_key) turn = j->turn + 1;
    }
    return turn;
}

static void link_in(struct queue *q, struct eng_job *job)
{
    struct eng_job *after = q->tail;
    while (after && is_before(job, after))
        after = after->prev;
    job->prev = after;
    job->next = after ? after->next : q->head;
    if (job->next)
        job->next->prev = job;
    else
        q->tail = job;
    if (after)
        after->next = job;
    else
        q->head = job;
    assert(!after || !is_before(job, after));
    assert(!job->next || is_before(job, job->next));
}

static void swap_places(struct queue *q, struct eng_job *a, struct eng_job *b)
{
    uint64_t turn = a->turn, place = a->place;
    queue_remove(q, a);
    queue_remove(q, b);
    a->turn = b->turn;
    a->place = b->place;
    b->turn = turn;
    b->place = place;
    link_in(q, a);
    link_in(q, b);
}

void queue_insert(struct queue *q, struct eng_job *job)
{
    job->rank = job->p.spare ? QUEUE_SPARE : q->global_priority ? job->p.priority : 0;
    job->turn = next_turn(q, job);
    job->place = job->serial;
    link_in(q, job);
    for (struct eng_job *j = job->prev; j;) {
        if (job_passes(job, j)) {
            swap_places(q, j, job);
            j = job->prev;
        } else {
            j = j->prev;
        }
    }
}

static void link_as(struct queue *q, struct eng_job *job, int rank)
{
    job->rank = rank;
    job->turn = 0;
    link_in(q, job);
}

void queue_promote(struct queue *q, struct eng_job *job)
{
    queue_remove(q, job);
    link_as(q, job, QUEUE_PROMOTED);
}

void queue_park(struct queue *q, struct eng_job *job)
{
    if (job_n_waiting(job) > 1) queue_remove(q, job);
    link_as(q, job, QUEUE_PARKED);
}

void queue_remove(struct queue *q, struct eng_job *job)
{
    assert((job->prev ? job->prev->next : q->head) == job);
    assert((job->next ? job->next->prev : q->tail) == job);
    if (job->prev)
        job->prev->next = job->next;
    else
        q->head = job->next;
    if (job->next)
        job->next->prev = job->prev;
    else
        q->tail = job->prev;
    job->next = job->prev = NULL;
}
