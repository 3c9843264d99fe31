/* SPDX-License-Identifier: MIT */
/*
 * Drafts by a second model for a step that batch.c has built: which one, how many ids are worth
 * writing, the steps that write them, and the rows that the served model then checks. And the
 * pieces in which the draft model catches up with a sequence. See drafter.h.
 */
#include <assert.h>

#include "base/auto.h"
#include "engine/batch.h"
#include "engine/job.h"
#include "engine/masks.h"
#include "engine/drafter.h"

/* Without drafts for so many steps, two ids are tried: the times or the text may have changed. */
enum { PROBE_STEPS = 256, PROBE_IDS = 2 };

/* A step of a second model must bring this much more than it costs: all of this is estimated. */
static const double WORTH = 1.1;

/* Tokens come at once after all this: no longer, in steps without drafts and in time. */
static const double MOST_STEPS = 4.2, MOST_US = 200e3;

/* Catching up takes at most one part in so many of the time of steps: if drafts pay, and if not. */
enum { CATCH_UP_PARTS = 10, HOPELESS_PARTS = 64 };

/* ---- what a round may cost ----------------------------------------------------------------- */

/* The draft of one sequence, while it is written. */
struct path {
    struct seq *s;
    struct fwd_segment *seg;
    int n, most;
    int n_lag;     /* positions to compute with the first row */
    double chance; /* that all n ids are right */
    bool open;     /* may have another one */
    uint8_t *const *pages;
};

/* The step as it is planned so far. */
struct round {
    struct batch *b;
    struct drafter *d;
    const atomic_bool *stop;
    struct path paths[DRAFTER_SEQS];
    int n_paths, n_open;
    int n_forced;    /* ids that are tried whatever they cost */
    double n_tokens; /* that it is expected to give */
    double us;       /* that it takes, */
    double most_us;  /* and may take */
    double row_us;   /* for one more row */
};

static bool may_draft(const struct seq *s)
{
    if (s->n_draft > 0 || !s->drafts || s->slow) return false;
    if (!s->guide) return true;
    return s->guide->peek && (s->next == ENG_GUIDE_MASK || s->next == ENG_GUIDE_FREE);
}

/* Positions at the start of s that the draft model has computed. */
static int64_t drafted(const struct batch *b, const struct seq *s)
{
    int64_t n = 0;
    for (int i = 0; i < s->n_pages && n == (int64_t)i * KV_PAGE_TOKENS; i++)
        n += kv_page_drafted(b->p.pages, s->pages[i]);
    return n < s->n_done ? n : s->n_done;
}

static bool can_read(const struct drafter *d, const struct seq *s, int64_t from, int64_t to)
{
    for (int64_t i = from; i < to; i++)
        if (s->ids[i] >= d->model.vocab) return false;
    return to <= d->ctx;
}

/* The draft model's pages of s; k: one of the sequences of a step. */
static uint8_t *const *own_pages(const struct drafter *d, const struct seq *s, int k)
{
    uint8_t **data = d->data + (size_t)k * (size_t)d->max_pages;
    assert(s->n_pages <= d->max_pages);
    for (int i = 0; i < s->n_pages; i++)
        data[i] = kv_page_data(d->pages, s->pages[i]);
    return data;
}

/* Positions of s below n, from the drafted ones on, are computed now. */
static void note_drafted(struct batch *b, const struct seq *s, int64_t from, int64_t n)
{
    for (int64_t i = from / KV_PAGE_TOKENS; i * KV_PAGE_TOKENS < n; i++) {
        int64_t in_page = n - i * KV_PAGE_TOKENS;
        kv_page_set_drafted(b->p.pages, s->pages[i],
                            in_page < KV_PAGE_TOKENS ? (int)in_page : KV_PAGE_TOKENS);
    }
}

/*
 * Returns true if the draft model can go on from the last id of p->s. Of two sequences that share
 * the page it writes first, one waits.
 */
static bool catches_up(struct round *r, struct path *p)
{
    const struct drafter *d = r->d;
    struct seq *s = p->s;
    int64_t from = drafted(r->b, s);
    if (s->n_done - from > DRAFTER_LAG || !can_read(d, s, from, s->n_done + 1)) return false;
    for (int k = 0; k < r->n_paths; k++) {
        const struct path *q = &r->paths[k];
        int64_t first = q->s->n_done - q->n_lag;
        if (q->s->pages[first / KV_PAGE_TOKENS] == s->pages[from / KV_PAGE_TOKENS]) return false;
    }
    p->n_lag = (int)(s->n_done - from);
    if (p->most > d->ctx - s->n_done) p->most = (int)(d->ctx - s->n_done);
    p->pages = own_pages(d, s, r->n_paths);
    return true;
}

static void add_path(struct round *r, int i)
{
    struct batch *b = r->b;
    struct seq *s = b->seg_seqs[i];
    int64_t left = s->job->max_new - s->n_generated - 1;
    int most = left < DRAFT_MAX ? (int)left : DRAFT_MAX;
    if (s->job->p.max_draft > 0 && most > s->job->p.max_draft) most = s->job->p.max_draft;
    if (!may_draft(s) || most <= 0) return;
    if (!seq_reserve(s, s->n_done + 1 + most)) return;
    struct path p = {.s = s, .seg = &b->segs[i], .most = most, .chance = 1.0, .open = true};
    p.pages = s->data;
    if (!r->d->pages || catches_up(r, &p)) r->paths[r->n_paths++] = p;
}

_Static_assert(DRAFTER_SEQS *DRAFT_MAX <= BATCH_EXTRA_LOGIT_ROWS, "all drafts fit in a step");

/* Returns true if there is something to try. */
static bool begin_round(struct round *r)
{
    struct batch *b = r->b;
    bool always = b->p.speculate == ENG_SPECULATE_ALWAYS;
    int n_rows = 0;
    if (b->n_draft_segs == 0 || b->n_draft_segs > DRAFTER_SEQS) return false;
    if (b->shared && !always) return false; /* a turn is short while others want it */
    for (int i = 0; i < b->n_draft_segs; i++) {
        n_rows += b->segs[i].n_tokens;
        add_path(r, i);
    }
    r->n_tokens = n_rows;
    r->us = draft_cost_us(&b->cost, n_rows);
    r->most_us = MOST_STEPS * draft_cost_us(&b->cost, b->n_draft_segs);
    if (r->most_us > MOST_US) r->most_us = MOST_US;
    r->row_us = draft_cost_row(&b->cost) * draft_cost_us(&b->cost, 1);
    r->n_forced = always ? DRAFT_MAX : r->d->n_without >= PROBE_STEPS ? PROBE_IDS : 0;
    return r->n_paths > 0 && (always || r->us > 0);
}

/* Returns true if the i-th ids are worth a step of the second model, and their rows. */
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
    double more_us = drafter_us(r->d, r->n_open, &r->b->cost) + r->n_open * r->row_us;
    return r->us + more_us < r->most_us &&
           chance * (double)r->d->mean * r->us > WORTH * r->n_tokens * more_us;
}

/* ---- writing ahead ------------------------------------------------------------------------- */

/* The positions that a step has computed for p are known to the pages. */
static void note_path(struct round *r, struct path *p)
{
    struct seq *s = p->s;
    if (!r->d->pages) return;
    if (p->n_lag > 0) note_drafted(r->b, s, s->n_done - p->n_lag, s->n_done);
    p->n_lag = 0;
    s->n_written = s->n_done + p->n + 1;
}

/* One step of the second model: a row after the last id of each open draft. */
static bool run_drafter(struct round *r)
{
    struct fwd_segment segs[DRAFTER_SEQS];
    struct drafter *d = r->d;
    int n = 0;
    for (int k = 0; k < r->n_paths; k++) {
        const struct path *p = &r->paths[k];
        if (!p->open) continue;
        int64_t pos0 = p->s->n_done + p->n - p->n_lag;
        segs[n++] = (struct fwd_segment){.tokens = p->s->ids + pos0,
                                         .n_tokens = 1 + p->n_lag,
                                         .pos0 = pos0,
                                         .pages = p->pages,
                                         .state = d->pages ? NULL : p->s->state,
                                         .loras = p->s->job->p.loras,
                                         .n_loras = d->pages ? 0 : p->s->job->p.n_loras,
                                         .drafts = true,
                                         .want = FWD_WANT_LAST};
    }
    struct fwd_step step = {segs, n, r->stop};
    double us;
    if (!batch_model_run(&d->model, &step, &us)) return false;
    drafter_took(d, n, us, &r->b->cost);
    r->us += us;
    for (int k = 0; k < r->n_paths; k++)
        if (r->paths[k].open) note_path(r, &r->paths[k]);
    return true;
}

/* The ids that the guide allows after those of the draft; *ret_mask NULL: any. */
static bool look_ahead(struct round *r, const struct path *p, const uint64_t **ret_mask)
{
    struct seq *s = p->s;
    uint64_t *mask = r->b->draft_mask;
    enum eng_guide_next next = s->guide ? s->next : ENG_GUIDE_FREE;
    if (s->guide && p->n > 0)
        next = s->guide->peek(s->guide->ctx, s->ids + s->n_done + 1, p->n, mask);
    *ret_mask = next != ENG_GUIDE_MASK ? NULL : p->n > 0 ? mask : s->mask;
    return next == ENG_GUIDE_MASK || next == ENG_GUIDE_FREE;
}

/*
 * Values that are not finite could reach other rows (0 x NaN): those of the twin are wiped out, and
 * a draft model is not used any more.
 */
static void give_up(struct round *r, struct path *p)
{
    struct seq *s = p->s;
    if (r->d->pages) {
        for (int k = 0; k < r->n_paths; k++)
            r->paths[k].open = false;
        drafter_fail(r->d, "its numbers are not finite");
        return;
    }
    seq_wipe_draft(s, p->n, r->b->p.kern);
    p->open = false;
    p->most = 0;
}

/* Draws the next id of a draft from row `row` of the second model; decides if it is tried. */
static void draw_next(struct round *r, struct path *p, int row)
{
    struct drafter *d = r->d;
    struct seq *s = p->s;
    const uint64_t *mask;
    float margin;
    bool finite;
    d->model.argmax(d->model.ctx, row, &finite);
    if (!finite) {
        give_up(r, p);
        return;
    }
    p->open = false;
    if (!look_ahead(r, p, &mask)) return;
    struct sample_row draw = seq_sample_row(s, s->n_generated + p->n, mask, r->b->p.model.eos);
    draw.logits = drafter_logits(d, row, r->b->p.model.vocab);
    draw.ret_margin = &margin;
    int32_t id = sampler_draw(r->b->samplers[0], &draw);
    if (id == SAMPLE_NOTHING) return;
    int class = drafter_class(margin);
    double chance = p->chance * (double)d->right[class];
    if (p->n >= r->n_forced && chance * r->us <= r->n_tokens * r->row_us) {
        drafter_missed(d); /* the step brought nothing */
        return;
    }
    if (s->keeps_history) sample_history_add(&s->history, id, false);
    s->ids[s->n_done + 1 + p->n] = id;
    s->margins[p->n++] = (uint8_t) class;
    p->chance = chance;
    p->open = p->n < p->most && !job_is_stop_id(s->job, r->b->p.model.eos, id);
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
        s->source = r->d == &r->b->p.drafters->twin ? ENG_DRAFT_SELF : ENG_DRAFT_MODEL;
        r->b->n_extra_rows += p->n;
        p->seg->n_tokens = 1 + p->n;
        p->seg->want = FWD_WANT_ALL;
        any = true;
    }
    r->d->n_without = any ? 0 : r->d->n_without + 1;
}

static void note_without(struct drafter *d)
{
    if (d->n_without < PROBE_STEPS) d->n_without++;
}

/* Returns true if this one could draft, whether it was worth it or not. */
static bool draft_with(struct batch *b, struct drafter *d, const atomic_bool *stop)
{
    struct round r = {.b = b, .d = d, .stop = stop};
    bool could = drafter_is_on(d) && begin_round(&r);
    if (could) {
        for (int i = 0; is_worth_it(&r, i) && run_drafter(&r); i++) {
            int row = 0;
            for (int k = 0; k < r.n_paths; k++)
                if (r.paths[k].open) draw_next(&r, &r.paths[k], row++);
        }
        end_round(&r);
    } else {
        note_without(d);
    }
    return could;
}

/* The one expected to give more per time, but one that was not tried for long comes first. */
void batch_draft(struct batch *b, const atomic_bool *stop)
{
    struct drafters *ds = b->p.drafters;
    if (!ds) return;
    struct drafter *d = &ds->twin, *other = &ds->model;
    bool due = d->n_without >= PROBE_STEPS, other_due = other->n_without >= PROBE_STEPS;
    if (due != other_due ? other_due
                         : drafter_promise(other, &b->cost) > drafter_promise(d, &b->cost)) {
        d = &ds->model;
        other = &ds->twin;
    }
    HOLD(&ds->lock);
    if (!draft_with(b, d, stop))
        draft_with(b, other, stop);
    else
        note_without(other);
}

double batch_draft_promise(const struct batch *b, const struct seq *s)
{
    const struct drafters *ds = b->p.drafters;
    if (!ds) return 0;
    double twin = drafter_promise(&ds->twin, &b->cost);
    double model = drafter_promise(&ds->model, &b->cost);
    if (model <= twin || s->n_done - drafted(b, s) > DRAFTER_LAG) return twin;
    return model;
}

/* ---- catching up --------------------------------------------------------------------------- */

/* The sequence of which the draft model has the least to compute before it can draft, or NULL. */
static struct seq *find_lagging(const struct batch *b, int n_seqs, int64_t *ret_from)
{
    const struct drafter *d = &b->p.drafters->model;
    struct seq *best = NULL;
    int64_t least = INT64_MAX;
    for (int i = 0; i < n_seqs; i++) {
        struct seq *s = b->order[i];
        if (seq_in_prefill(s) || !s->drafts || s->n_done >= d->ctx) continue;
        int64_t from = drafted(b, s), n = s->n_done - from;
        int64_t end = n < DRAFTER_PIECE ? s->n_done : from + DRAFTER_PIECE;
        if (n <= DRAFTER_LAG || n >= least || !can_read(d, s, from, end)) continue;
        best = s;
        least = n;
        *ret_from = from;
    }
    return best;
}

/* Returns true if a step of n rows is within the time that the steps so far allow. */
static bool may_take(struct batch *b, int n)
{
    struct drafter *d = &b->p.drafters->model;
    bool pays = drafter_promise(d, &b->cost) > 1;
    if (b->p.speculate == ENG_SPECULATE_ALWAYS) return true;
    d->credit_us += b->step_us / (pays ? CATCH_UP_PARTS : HOPELESS_PARTS);
    return d->credit_us >= draft_cost_us(&d->catch_up, n);
}

static void compute_piece(struct batch *b, struct seq *s, int64_t from)
{
    struct drafter *d = &b->p.drafters->model;
    int n = s->n_done - from < DRAFTER_PIECE ? (int)(s->n_done - from) : DRAFTER_PIECE;
    struct fwd_segment seg = {.tokens = s->ids + from,
                              .n_tokens = n,
                              .pos0 = from,
                              .pages = own_pages(d, s, 0),
                              .want = FWD_WANT_NONE};
    struct fwd_step step = {&seg, 1, &s->job->cancel};
    double us;
    if (!may_take(b, n) || !batch_model_run(&d->model, &step, &us)) return;
    draft_cost_note(&d->catch_up, n, us);
    d->credit_us -= us;
    note_drafted(b, s, from, from + n);
}

void batch_catch_up(struct batch *b)
{
    struct drafters *ds = b->p.drafters;
    int64_t from;
    int n_seqs = batch_n_leading(b);
    if (!ds || b->n_segs == 0 || n_seqs == 0 || n_seqs > DRAFTER_SEQS) return;
    HOLD(&ds->lock);
    struct seq *s = drafter_is_on(&ds->model) ? find_lagging(b, n_seqs, &from) : NULL;
    if (s)
        compute_piece(b, s, from);
    else
        ds->model.credit_us = 0;
}
