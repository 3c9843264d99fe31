/* SPDX-License-Identifier: MIT */
/* Quick masks, and the lanes of slow ones; see masks.h. */
#include "engine/masks.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/fiber.h"
#include "engine/job.h"
#include "engine/job_types.h"
#include "engine/pool.h"
#include "engine/sequence.h"

enum {
    GRANT = 500, /* steps between two looks at the clock */
    TOUCHED_STACK_BYTES = 512 << 10,
};

struct mask_lane {
    struct eng_pace pace; /* of the mask in hand; first, so that one is the other */
    const struct masks *masks;
    struct fiber *fiber;
    struct seq *seq; /* whose mask is in hand; NULL: none */
    int n_grants;    /* that it has taken */
    bool gives_up;
};

static int count_lanes(int n_parallel, int n_threads)
{
    if (!fiber_available()) return 0;
    int n = n_parallel < n_threads ? n_parallel : n_threads;
    return n < MASKS_MAX_LANES ? n : MASKS_MAX_LANES;
}

int64_t masks_bytes(int n_parallel, int n_threads)
{
    return (int64_t)count_lanes(n_parallel, n_threads) * TOUCHED_STACK_BYTES;
}

int masks_init(struct masks *m, struct pool *pool, int n_parallel)
{
    int n = count_lanes(n_parallel, pool ? pool_n_threads(pool) : 1);
    *m = (struct masks){.pool = pool};
    pthread_mutex_init(&m->lock, NULL);
    m->waiting = calloc((size_t)n_parallel, sizeof(struct seq *));
    m->lanes = calloc((size_t)n + 1, sizeof(*m->lanes));
    if (!m->waiting || !m->lanes) return -1;
    for (; m->n_lanes < n; m->n_lanes++) {
        struct mask_lane *l = &m->lanes[m->n_lanes];
        l->masks = m;
        l->fiber = fiber_create();
        if (!l->fiber) return -1;
    }
    return 0;
}

void masks_finish(struct masks *m)
{
    for (int i = 0; i < m->n_lanes; i++)
        fiber_destroy(m->lanes[i].fiber);
    free(m->lanes);
    free(m->waiting);
    pthread_mutex_destroy(&m->lock);
    *m = (struct masks){0};
}

/* A mask that is not quick is for a lane; without lanes it is made whatever it takes. */
static bool past_quick(struct eng_pace *pace)
{
    pace->left = GRANT;
    return !fiber_available();
}

void masks_ask(struct seq *s)
{
    struct eng_pace pace = {MASKS_QUICK, past_quick};
    s->next = s->slow ? ENG_GUIDE_LATER : s->guide->mask(s->guide->ctx, s->mask, &pace);
    s->slow = s->awaits = s->next == ENG_GUIDE_LATER;
    s->next_known = !s->awaits;
}

/* ---- lanes --------------------------------------------------------------------------------- */

/* Called by the guide inside the fiber: it goes on here, now or in a later run. */
static bool more(struct eng_pace *pace)
{
    struct mask_lane *l = (struct mask_lane *)pace;
    l->n_grants++;
    while (!l->gives_up && clock_now_us() >= l->masks->until_us)
        fiber_pause(l->fiber);
    pace->left = GRANT;
    return !l->gives_up;
}

static void make_mask(void *arg)
{
    struct mask_lane *l = arg;
    struct seq *s = l->seq;
    bool taken = s->untaken < 0 || s->guide->take(s->guide->ctx, s->untaken);
    s->untaken = -1;
    s->next = taken ? s->guide->mask(s->guide->ctx, s->mask, &l->pace) : ENG_GUIDE_FAIL;
    assert(l->gives_up || s->next != ENG_GUIDE_LATER);
}

/* Takes out the sequence whose job's last turn is longest ago, or returns NULL. */
static struct seq *take_waiting(struct masks *m)
{
    struct seq *s = NULL;
    int at = 0;
    HOLD(&m->lock);
    for (int i = 0; i < m->n_waiting; i++)
        if (m->waiting[i]->job->mask_turn < m->waiting[at]->job->mask_turn) at = i;
    if (m->n_waiting > 0) {
        s = m->waiting[at];
        s->job->mask_turn = ++m->n_turns;
        m->n_waiting--;
        memmove(&m->waiting[at], &m->waiting[at + 1],
                (size_t)(m->n_waiting - at) * sizeof(struct seq *));
    }
    return s;
}

static bool begin_next(struct masks *m, struct mask_lane *l)
{
    l->seq = take_waiting(m);
    if (!l->seq) return false;
    l->pace = (struct eng_pace){GRANT, more};
    l->n_grants = 1;
    fiber_start(l->fiber, make_mask, l);
    return true;
}

/* A mask that turned out quick is made at once the next time. */
static void end_mask(struct mask_lane *l)
{
    struct seq *s = l->seq;
    s->awaits = false;
    s->next_known = true;
    s->slow = l->n_grants * GRANT > MASKS_QUICK;
    l->seq = NULL;
}

static void run_lane(void *arg, int item, int thread)
{
    struct masks *m = arg;
    struct mask_lane *l = &m->lanes[item];
    (void)thread;
    do {
        if (!l->seq && !begin_next(m, l)) return;
        if (fiber_resume(l->fiber)) end_mask(l);
    } while (clock_now_us() < m->until_us);
}

static bool in_lane(const struct masks *m, const struct seq *s)
{
    for (int i = 0; i < m->n_lanes; i++)
        if (m->lanes[i].seq == s) return true;
    return false;
}

bool masks_run(struct masks *m, struct seq *const *order, int n, uint64_t us)
{
    bool any = false;
    m->n_waiting = 0;
    for (int i = 0; i < n; i++) {
        if (!order[i]->awaits) continue;
        any = true;
        if (!in_lane(m, order[i])) m->waiting[m->n_waiting++] = order[i];
    }
    if (!any) return false;
    struct pool_phase phase = {run_lane, m, m->n_lanes};
    m->until_us = clock_now_us() + us;
    if (m->pool)
        pool_run(m->pool, &phase, 1, NULL);
    else
        run_lane(m, 0, 0);
    return true;
}

void masks_drop(struct masks *m, const struct seq *s)
{
    for (int i = 0; i < m->n_lanes; i++) {
        struct mask_lane *l = &m->lanes[i];
        if (l->seq != s) continue;
        l->gives_up = true;
        bool ended = fiber_resume(l->fiber);
        assert(ended);
        (void)ended;
        l->gives_up = false;
        l->seq = NULL;
    }
}
