/* SPDX-License-Identifier: MIT */
/*
 * Drafts by the twin for a step that batch.c has built: how many ids are worth writing, the steps
 * of the twin that write them, and the rows that the model then checks. See self_draft.h.
 */
#include <assert.h>

#include "base/clock.h"
#include "engine/batch.h"
#include "engine/job.h"
#include "engine/masks.h"
#include "engine/self_draft.h"

/* Without drafts for so many steps, two ids are tried: the times or the text may have changed. */
enum { PROBE_STEPS = 256, PROBE_IDS = 2 };

/* A step of the twin must bring this much more than it costs: all of this is estimated. */
static const double WORTH = 1.1;

/* Tokens come at once after all this: no longer. */
static const double MOST_US = 200e3;

/* ---- what a round may cost ----------------------------------------------------------------- */

/* The draft of one sequence, while it is written. */
struct path {
    struct seq *s;
    struct fwd_segment *seg;
    int n, most;
    double chance; /* that all n ids are right */
    bool open;     /* may have another one */
};

/* The step as it is planned so far. */
struct round {
    struct batch *b;
    const atomic_bool *stop;
    struct path paths[SELF_DRAFT_SEQS];
    int n_paths, n_open;
    int n_forced;    /* ids that are tried whatever they cost */
    double n_tokens; /* that it is expected to give */
    double us;       /* that it takes */
    double row_us;   /* for one more row */
};

static bool may_draft(const struct seq *s)
{
    if (s->n_draft > 0 || !s->drafts || s->slow) return false;
    if (!s->guide) return true;
    return s->guide->peek && (s->next == ENG_GUIDE_MASK || s->next == ENG_GUIDE_FREE);
}

static void add_path(struct round *r, int i)
{
    struct batch *b = r->b;
    struct seq *s = b->seg_seqs[i];
    int64_t left = s->job->max_new - s->n_generated - 1;
    int most = left < DRAFT_MAX ? (int)left : DRAFT_MAX;
    if (!may_draft(s) || most <= 0) return;
    if (!seq_reserve(s, s->n_done + 1 + most, b->cache, b->p.pages)) return;
    r->paths[r->n_paths++] = (struct path){s, &b->segs[i], 0, most, 1.0, true};
}

_Static_assert(SELF_DRAFT_SEQS *DRAFT_MAX <= BATCH_EXTRA_LOGIT_ROWS, "all drafts fit in a step");

/* Returns true if there is something to try. */
static bool begin_round(struct round *r)
{
    struct batch *b = r->b;
    bool always = b->p.speculate == ENG_SPECULATE_ALWAYS;
    int n_rows = 0;
    if (b->n_prompt_rows > 0 || b->n_segs == 0 || b->n_segs > SELF_DRAFT_SEQS) return false;
    for (int i = 0; i < b->n_segs; i++) {
        n_rows += b->segs[i].n_tokens;
        add_path(r, i);
    }
    r->n_tokens = n_rows;
    r->us = draft_cost_us(&b->cost, n_rows);
    r->row_us = draft_cost_row(&b->cost) * draft_cost_us(&b->cost, 1);
    r->n_forced = always ? DRAFT_MAX : b->self.n_without >= PROBE_STEPS ? PROBE_IDS : 0;
    return r->n_paths > 0 && (always || r->us > 0);
}

/* Returns true if the i-th ids are worth a step of the twin, and their rows. */
static bool is_worth_it(struct round *r, int i)
{
    double chance = 0;
    r->n_open = 0;
    for (int k = 0; k < r->n_paths; k++) {
        if (!r->paths[k].open) continue;
        chance += r->paths[k].chance;
        r->n_open++;
    }
    if (r->n_open == 0) return false;
    if (i < r->n_forced) return true;
    double more_us = self_draft_us(&r->b->self, r->n_open, &r->b->cost) + r->n_open * r->row_us;
    return r->us + more_us < MOST_US &&
           chance * (double)r->b->self.mean * r->us > WORTH * r->n_tokens * more_us;
}

/* ---- writing ahead ------------------------------------------------------------------------- */

/* One step of the twin: a row behind the last id of each open draft. */
static bool run_twin(struct round *r)
{
    struct fwd_segment segs[SELF_DRAFT_SEQS];
    struct self_draft *d = &r->b->self;
    int n = 0;
    for (int k = 0; k < r->n_paths; k++) {
        const struct path *p = &r->paths[k];
        if (!p->open) continue;
        segs[n++] = (struct fwd_segment){.tokens = p->s->ids + p->s->n_done + p->n,
                                         .n_tokens = 1,
                                         .pos0 = p->s->n_done + p->n,
                                         .pages = p->s->data,
                                         .state = p->s->state,
                                         .want = FWD_WANT_LAST};
    }
    struct fwd_step step = {segs, n, r->stop};
    uint64_t start = clock_now_us();
    if (!d->twin.run(d->twin.ctx, &step)) return false;
    double us = (double)(clock_now_us() - start);
    self_draft_took(d, n, us, &r->b->cost);
    r->us += us;
    return true;
}

/* The ids that the guide allows after those of the draft; *ret_mask NULL: any. */
static bool look_ahead(struct round *r, const struct path *p, const uint64_t **ret_mask)
{
    struct seq *s = p->s;
    uint64_t *mask = r->b->self.mask;
    enum eng_guide_next next = s->guide ? s->next : ENG_GUIDE_FREE;
    if (s->guide && p->n > 0)
        next = s->guide->peek(s->guide->ctx, s->ids + s->n_done + 1, p->n, mask);
    *ret_mask = next != ENG_GUIDE_MASK ? NULL : p->n > 0 ? mask : s->mask;
    return next == ENG_GUIDE_MASK || next == ENG_GUIDE_FREE;
}

/* Values that are not finite could reach other rows (0 x NaN): they are wiped out. */
static void give_up(struct round *r, struct path *p)
{
    struct seq *s = p->s;
    for (int64_t pos = s->n_done + 1; pos <= s->n_done + p->n; pos++)
        kv_page_clear(r->b->p.pages, r->b->p.kern, s->pages[pos / KV_PAGE_TOKENS],
                      (int)(pos % KV_PAGE_TOKENS));
    s->drafts = false;
    p->open = false;
    p->most = 0;
}

/* Draws the next id of a draft from row `row` of the twin, and decides whether it is tried. */
static void draw_next(struct round *r, struct path *p, int row)
{
    struct self_draft *d = &r->b->self;
    struct seq *s = p->s;
    const uint64_t *mask;
    float margin;
    bool finite;
    d->twin.argmax(d->twin.ctx, row, &finite);
    if (!finite) {
        give_up(r, p);
        return;
    }
    p->open = false;
    if (!look_ahead(r, p, &mask)) return;
    struct sample_row draw = seq_sample_row(s, s->n_generated + p->n, mask, r->b->p.model.eos_ids,
                                            r->b->p.model.n_eos_ids);
    draw.logits = d->twin.logits(d->twin.ctx, row);
    draw.ret_margin = &margin;
    int32_t id = sampler_draw(r->b->samplers[0], &draw);
    if (id == SAMPLE_NOTHING) return;
    int class = self_draft_class(margin);
    double chance = p->chance * (double)d->right[class];
    if (p->n >= r->n_forced && chance * r->us <= r->n_tokens * r->row_us) {
        self_draft_missed(d); /* the step brought nothing */
        return;
    }
    if (s->keeps_history) sample_history_add(&s->history, id, false);
    s->ids[s->n_done + 1 + p->n] = id;
    s->margins[p->n++] = (uint8_t) class;
    p->chance = chance;
    p->open = p->n < p->most &&
              !job_is_stop_id(s->job, r->b->p.model.eos_ids, r->b->p.model.n_eos_ids, id);
    r->n_tokens += chance;
    r->us += r->row_us;
}

/* The rows of the drafts become part of the step. */
static void end_round(struct round *r)
{
    bool any = false;
    for (int k = 0; k < r->n_paths; k++) {
        struct path *p = &r->paths[k];
        struct seq *s = p->s;
        for (int i = p->n; i > 0 && s->keeps_history; i--)
            sample_history_pop(&s->history, s->ids[s->n_done + i]);
        if (p->n == 0 || p->most == 0) continue;
        s->n_draft = p->n;
        s->source = ENG_DRAFT_SELF;
        r->b->n_extra_rows += p->n;
        p->seg->n_tokens = 1 + p->n;
        p->seg->want = FWD_WANT_ALL;
        any = true;
    }
    r->b->self.n_without = any ? 0 : r->b->self.n_without + 1;
}

void batch_draft(struct batch *b, const atomic_bool *stop)
{
    struct round r = {.b = b, .stop = stop};
    pthread_mutex_lock(&b->self.lock);
    if (b->self.twin.run && begin_round(&r)) {
        for (int i = 0; is_worth_it(&r, i) && run_twin(&r); i++) {
            int row = 0;
            for (int k = 0; k < r.n_paths; k++)
                if (r.paths[k].open) draw_next(&r, &r.paths[k], row++);
        }
        end_round(&r);
    }
    pthread_mutex_unlock(&b->self.lock);
}
