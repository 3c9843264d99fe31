/* SPDX-License-Identifier: MIT */
/*
 * Masks of guides, bounded per step.
 *
 * Most masks take some microseconds and are made at once, by the thread that has drawn the token
 * before them. One that takes more than MASKS_QUICK steps is given up and begun again in a lane: a
 * fiber that works for a share of each step's time and pauses in between, so that a slow guide
 * delays no other sequence. Until its mask is ready the sequence is left out of the steps.
 *
 * There are as many lanes as threads, at most MASKS_MAX_LANES, and in each one mask at a time.
 * Those that wait begin in order of the jobs whose last turn is longest ago, so one job with many
 * slow choices delays the slow masks of another by one mask per lane.
 *
 * When a mask is made changes no bit: it is a function of the guide and the ids taken.
 *
 * Threads: the scheduler thread, but for masks_ask. Between two calls of masks_run no mask is
 * under way: those in the lanes are paused.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct mask_lane;
struct pool;
struct seq;

enum {
    MASKS_QUICK = 2000, /* steps of a mask that is made at once, about 100 us */
    MASKS_MAX_LANES = 8,
};

struct masks {
    struct pool *pool; /* borrowed; NULL: everything on this thread */
    struct mask_lane *lanes;
    int n_lanes;
    /* of the run: */
    uint64_t until_us;
    pthread_mutex_t lock; /* guards the fields below during a run */
    struct seq **waiting; /* [n_parallel] in no lane yet */
    int n_waiting;
    uint64_t n_turns; /* of jobs, over all runs */
};

/* 0, or -1 if out of memory; call masks_finish in either case. */
int masks_init(struct masks *m, struct pool *pool, int n_parallel);
void masks_finish(struct masks *m);

/* Memory for the plan. */
int64_t masks_bytes(int n_parallel, int n_threads);

/*
 * Asks the guide of s for its next mask: at once, or it is awaited. Any thread, one per sequence.
 */
void masks_ask(struct seq *s);

/*
 * Works for about so long, on all threads, on the masks that some of the n sequences in `order`
 * await. Returns true if there were any. Those that are ready are no longer awaited.
 */
bool masks_run(struct masks *m, struct seq *const *order, int n, uint64_t us);

/* The sequence leaves its slot: its guide gives up the mask in hand, and is called no more. */
void masks_drop(struct masks *m, const struct seq *s);
