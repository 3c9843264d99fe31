/* SPDX-License-Identifier: MIT */
/*
 * Jobs that wait for a slot, in the order of admission: by rank, then turn, then age.
 *
 * Turns let the keys (eng_job_params.fair_key) alternate: a job's turn is one more than that of the
 * last waiting job of its key, and at least that of the first waiting job, so that a key with a
 * backlog does not hold up the others, and a key that keeps submitting does not pass waiting ones.
 * Within a key, priority decides which of its jobs takes which of its turns. Ranks are all 0, so no
 * priority passes another key; with global_priority a job's rank is its priority. Spare jobs come
 * after all others, those of which choices were parked first.
 *
 * Threads: unsafe; the scheduler's lock is held. Lists are intrusive; nothing is allocated.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>

struct eng_job;

enum { QUEUE_PROMOTED = INT_MIN, QUEUE_PARKED = INT_MAX - 1, QUEUE_SPARE };

struct queue {
    struct eng_job *head, *tail;
    bool global_priority; /* set before the first insert */
};

/* Sets the job's rank and turn, and inserts it in order. */
void queue_insert(struct queue *q, struct eng_job *job);
void queue_remove(struct queue *q, struct eng_job *job);

/* Moves a waiting job to the front, whatever its priority; its rank is QUEUE_PROMOTED then. */
void queue_promote(struct queue *q, struct eng_job *job);

/* Inserts a job of which a choice has been parked, or moves it to the others of that kind. */
void queue_park(struct queue *q, struct eng_job *job);
