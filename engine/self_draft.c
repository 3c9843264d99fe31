/* SPDX-License-Identifier: MIT */
/* Drafts by a twin of the model; see self_draft.h. */
#include "engine/self_draft.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "engine/batch.h"
#include "engine/job.h"
#include "engine/masks.h"

/* Upper ends of the margins' classes; the last class has none. */
static const float MARGIN_ENDS[SELF_DRAFT_MARGINS - 1] = {0.05f, 0.1f, 0.2f, 0.4f,
                                                          0.8f,  1.6f, 3.2f};

/* A time that is shorter than was thought is believed sooner: a longer one may be a neighbour's. */
static const float LEARNING = 1.0f / 16;
static const double LEARNING_SHORTER = 1.0 / 4;
static const float FIRST_MEAN = 0.8f;

/* A step of the twin, as a share of the model's, before one was measured. */
static const double FIRST_SHARE = 0.45;

/* Without drafts for so many steps, two ids are tried: the times or the text may have changed. */
enum { PROBE_STEPS = 256, PROBE_IDS = 2 };

/* A step of the twin must bring this much more than it costs: all of this is estimated. */
static const double WORTH = 1.1;

/* Tokens come at once after all this: no longer. */
static const double MOST_US = 200e3;

static size_t mask_words(int32_t vocab)
{
    return ((size_t)vocab + 63) / 64;
}

int self_draft_init(struct self_draft *d, int32_t vocab)
{
    *d = (struct self_draft){.mean = FIRST_MEAN};
    for (int i = 0; i < SELF_DRAFT_MARGINS; i++)
        d->right[i] = 0.5f + 0.5f * (float)i / SELF_DRAFT_MARGINS;
    d->mask = calloc(mask_words(vocab), sizeof(*d->mask));
    d->has_lock = pthread_mutex_init(&d->lock, NULL) == 0;
    return d->mask && d->has_lock ? 0 : -1;
}

void self_draft_finish(struct self_draft *d)
{
    if (d->has_lock) pthread_mutex_destroy(&d->lock);
    free(d->mask);
    d->mask = NULL;
    d->has_lock = false;
}

int64_t self_draft_bytes(int32_t vocab)
{
    return (int64_t)(mask_words(vocab) * sizeof(uint64_t));
}

void self_draft_set(struct self_draft *d, const struct batch_model *twin)
{
    pthread_mutex_lock(&d->lock);
    d->twin = twin ? *twin : (struct batch_model){.run = NULL};
    atomic_store(&d->ready, twin != NULL);
    pthread_mutex_unlock(&d->lock);
}

/* The time of a step of the twin of n_rows rows, as far as it is known. */
static double twin_us(const struct self_draft *d, int n_rows, const struct draft_cost *cost)
{
    double us = d->us[n_rows];
    return us > 0 ? us : FIRST_SHARE * draft_cost_us(cost, 1);
}

bool self_draft_yields(const struct self_draft *d, double value, const struct draft_cost *cost)
{
    double chance = 1, n_tokens = 1, step_us = draft_cost_us(cost, 1);
    if (!atomic_load_explicit(&d->ready, memory_order_relaxed) || step_us <= 0) return true;
    double share = draft_cost_row(cost) + twin_us(d, 1, cost) / step_us;
    for (int n = 1; n <= DRAFT_MAX; n++) {
        chance *= (double)d->mean;
        n_tokens += chance;
        if (n_tokens > value * (1 + share * n)) return false;
    }
    return true;
}

static int class_of(float margin)
{
    int i = 0;
    while (i < SELF_DRAFT_MARGINS - 1 && margin > MARGIN_ENDS[i])
        i++;
    return i;
}

static void learn_mean(struct self_draft *d, bool right)
{
    d->mean += LEARNING * ((right ? 1.0f : 0.0f) - d->mean);
}

void self_draft_note(struct self_draft *d, int margin, bool right)
{
    d->right[margin] += LEARNING * ((right ? 1.0f : 0.0f) - d->right[margin]);
    learn_mean(d, right);
}

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
    double more_us = twin_us(&r->b->self, r->n_open, &r->b->cost) + r->n_open * r->row_us;
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
                                         .want = FWD_WANT_LAST};
    }
    struct fwd_step step = {segs, n, r->stop};
    uint64_t start = clock_now_us();
    if (!d->twin.run(d->twin.ctx, &step)) return false;
    double us = (double)(clock_now_us() - start), known = twin_us(d, n, &r->b->cost);
    d->us[n] = known + (us < known ? LEARNING_SHORTER : (double)LEARNING) * (us - known);
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
    struct sample_row draw = batch_sample_row(r->b, s, s->n_generated + p->n, mask);
    draw.logits = d->twin.logits(d->twin.ctx, row);
    draw.ret_margin = &margin;
    int32_t id = sampler_draw(r->b->samplers[0], &draw);
    if (id == SAMPLE_NOTHING) return;
    int class = class_of(margin);
    double chance = p->chance * (double)d->right[class];
    if (p->n >= r->n_forced && chance * r->us <= r->n_tokens * r->row_us) {
        learn_mean(d, false); /* the step brought nothing */
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

void self_draft_round(struct batch *b, const atomic_bool *stop)
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
