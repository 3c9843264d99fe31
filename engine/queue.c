/* SPDX-License-Identifier: MIT */
/* The waiting jobs: one sorted list, searched from its end; see queue.h for the order. */
#include "engine/queue.h"

#include <stddef.h>

#include "engine/job.h"

bool queue_before(const struct eng_job *a, const struct eng_job *b)
{
    if (a->p.priority != b->p.priority) return a->p.priority < b->p.priority;
    if (a->turn != b->turn) return a->turn < b->turn;
    return a->serial < b->serial;
}

static uint64_t next_turn(const struct queue *q, const struct eng_job *job)
{
    const struct eng_job *first = NULL;
    uint64_t turn = 0;
    for (const struct eng_job *j = q->head; j; j = j->next) {
        if (j->p.priority != job->p.priority) continue;
        if (!first) {
            first = j;
            turn = j->turn;
        }
        if (j->p.fair_key == job->p.fair_key) turn = j->turn + 1;
    }
    return turn;
}

void queue_insert(struct queue *q, struct eng_job *job)
{
    job->turn = next_turn(q, job);
    struct eng_job *after = q->tail;
    while (after && queue_before(job, after))
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
}

void queue_remove(struct queue *q, struct eng_job *job)
{
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
