/* SPDX-License-Identifier: MIT */
/*
 * Jobs that wait for a slot, in the order they will be taken: by priority, then turn, then serial.
 *
 * Turns make the keys of a priority take turns: a job's turn is one more than that of the last
 * waiting job of its key, and at least that of the first waiting job, so that a key with a backlog
 * does not hold up the others, and one that keeps coming back does not pass those who wait.
 *
 * Threads: the scheduler thread only. Lists are intrusive; nothing is allocated.
 */
#ifndef HEARTH_ENGINE_QUEUE_H
#define HEARTH_ENGINE_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

struct eng_job;

struct queue {
    struct eng_job *head, *tail;
};

/* Whether a is to be taken before b. */
bool queue_before(const struct eng_job *a, const struct eng_job *b);

/* Sets the job's turn and puts it in its place. */
void queue_insert(struct queue *q, struct eng_job *job);
void queue_remove(struct queue *q, struct eng_job *job);

#endif
