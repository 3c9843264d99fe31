/* SPDX-License-Identifier: MIT */
/*
 * The scheduler: one thread that admits jobs, steps the batch, and ends jobs.
 *
 * Each round: cancelled, stopped and late jobs end; waiting jobs are admitted in order while slots
 * and pages last (the first that does not fit holds back the later ones, so that big jobs are not
 * starved; one whose key has all its slots does not); one step runs. With nothing to do the thread
 * sleeps.
 *
 * Spare jobs are admitted when no other waits that could run; batch.h says which rows they get.
 * Where a slot or pages lack for another job, their sequences are parked, the youngest first: the
 * job waits again, and its ids so far are as a prompt to it. What is still cached is shared, the
 * rest computed again, to the same bits.
 *
 * Other threads share with it the inbox (inbox.h) and the atomic flags of a job. The forward pass
 * comes as function pointers, so all of this is tested without a model.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "engine/batch.h"
#include "engine/inbox.h"
#include "engine/job_types.h"

struct sched;

/* Borrowed parts live as long as the scheduler. */
struct sched_params {
    struct batch_params batch;
    struct inbox_params in;
    uint64_t starving_us; /* global_priority: a key that was not served for so long comes next */
    const struct kv_disk_params *disk; /* all but wake; NULL: none. Borrowed for sched_create */
    struct cores_member *member; /* each step waits for its turn; NULL: no other engine computes */
};

/* Starts the thread. Returns owned. */
int sched_create(struct sched **ret, const struct sched_params *params, char *err, size_t errlen);

/* Cancels running jobs, delivers the last events, joins. Not on the thread itself. NULL is fine. */
void sched_destroy(struct sched *s);

/* To submit, watch, drain, pause and stop. Borrowed. */
struct inbox *sched_inbox(struct sched *s);

/* Whether pages are still to be written, or may come to be: false some seconds after inbox_close at
 * the latest. */
bool sched_writes(const struct sched *s);
/* Sets *ret if there are pages on disk. */
void sched_disk_stats(struct sched *s, struct eng_kv_disk_stats *ret);
