/* SPDX-License-Identifier: MIT */
/*
 * The results of a step, turned into tokens and events.
 *
 * Order within a step: positions of all segments advance and their full pages are published; the
 * requested prompt rows are sent; siblings of a finished prompt fork; all tokens are drawn, on all
 * threads if that pays, each with a request for its guide's next mask right after it; then they are
 * delivered one after the other. Masks that are not quick are made after all that (masks.h).
 *
 * A segment with a draft advances by one position, as if it were a single token. If the token drawn
 * is the one that its next row was computed for, that row is the sequence's next: it advances, is
 * drawn from and delivered in another round, as it would have been in the next step. Rows after a
 * wrong guess are never looked at.
 */
#include <assert.h>

#include "base/clock.h"
#include "engine/batch.h"
#include "engine/job.h"
#include "engine/kernels/kernels.h"
#include "engine/pool.h"
#include "engine/sample.h"

static const char *const BAD_GUIDE = "internal error: the guide of this choice failed";
static const char *const NOT_FINITE = "the model's logits are not finite";

/* ---- rows of the prompt -------------------------------------------------------------------- */

static void emit_logits(struct batch *b, struct seq *s, int64_t pos, const float *logits)
{
    struct eng_event e = {.type = ENG_EVENT_LOGITS,
                          .choice = s->choice,
                          .index = pos,
                          .logits = logits,
                          .n_logits = b->p.model.vocab};
    job_emit(s->job, &e, b->now_us);
}

/* The row after position pos gives the probability of prompt token pos + 1. */
static void emit_prompt_token(struct batch *b, struct seq *s, int64_t pos, const float *logits)
{
    const struct eng_job_params *p = &s->job->p;
    struct eng_logprob top[ENG_MAX_LOGPROBS];
    int32_t id = p->prompt[pos + 1];
    int n_top = p->n_prompt_logprobs < b->p.model.vocab ? p->n_prompt_logprobs : b->p.model.vocab;
    struct eng_event e = {.type = ENG_EVENT_PROMPT_TOKEN,
                          .choice = s->choice,
                          .index = pos + 1,
                          .id = id,
                          .rank = sample_rank(logits, b->p.model.vocab, id),
                          .top = n_top > 0 ? top : NULL,
                          .n_top = n_top};
    e.logprob = sampler_logprobs(b->samplers[0], logits, id, NULL, n_top, top);
    job_emit(s->job, &e, b->now_us);
}

/*
 * Rows of n_tokens prompt positions from pos0, the first in logits row `row`. Rows that another
 * choice has already sent are skipped. Returns false if one is not finite.
 */
static bool deliver_prompt_rows(struct batch *b, struct seq *s, int64_t pos0, int n_tokens, int row)
{
    struct eng_job *job = s->job;
    for (int i = 0; i < n_tokens; i++) {
        bool finite;
        int64_t pos = pos0 + i;
        b->p.model.argmax(b->p.model.ctx, row + i, &finite);
        if (!finite) return false;
        if (pos < job->n_rows_out) continue;
        const float *logits = b->p.model.logits(b->p.model.ctx, row + i);
        if (job->p.want_logits) emit_logits(b, s, pos, logits);
        if (job->p.n_prompt_logprobs >= 0 && pos + 1 < job->p.n_prompt)
            emit_prompt_token(b, s, pos, logits);
        job->n_rows_out = pos + 1;
    }
    return true;
}

/* ---- drawing ------------------------------------------------------------------------------- */

static void add_draw(struct batch *b, struct seq *s, int row, int n_left)
{
    assert(b->n_draws < b->p.n_parallel);
    struct batch_draw *d = &b->draws[b->n_draws++];
    d->seq = s;
    d->row = row;
    d->n_left = n_left;
    d->logits = b->p.model.logits(b->p.model.ctx, row);
    d->id = b->p.model.argmax(b->p.model.ctx, row, &d->finite);
    d->n_top = 0;
    d->plain = !s->guide && sample_is_argmax(&s->job->p.sampling) &&
               s->n_generated >= s->job->p.min_tokens;
    d->refused = false;
}

static bool needs_sampler(const struct batch_draw *d)
{
    return d->finite && (!d->plain || d->seq->job->p.n_logprobs >= 0);
}

static int32_t draw_token(struct batch *b, const struct batch_draw *d, struct sampler *sampler)
{
    const struct seq *s = d->seq;
    const uint64_t *mask = s->guide && s->next == ENG_GUIDE_MASK ? s->mask : NULL;
    struct sample_row row = seq_sample_row(s, s->n_generated, mask, b->p.model.eos);
    row.logits = d->logits;
    return sampler_draw(sampler, &row);
}

/* Returns true if the guide allows no id at all, not even an end. */
static bool guide_is_over(const struct seq *s)
{
    return s->guide && s->next_known &&
           (s->next == ENG_GUIDE_END || s->next == ENG_GUIDE_CUT || s->next == ENG_GUIDE_FAIL);
}

/*
 * Passes the id drawn to the guide, which may want another, and asks at once for the next mask: an
 * answer that can only end ends without another step.
 */
static void guide_token(struct batch *b, struct batch_draw *d)
{
    struct seq *s = d->seq;
    if (job_is_stop_id(s->job, b->p.model.eos, d->id)) return;
    if (s->guide->settle) d->id = s->guide->settle(s->guide->ctx, d->id);
    if (d->id == SAMPLE_NOTHING)
        d->refused = false;
    else if (s->slow)
        s->untaken = d->id;
    else
        d->refused = !s->guide->take(s->guide->ctx, d->id);
    if (!d->refused) masks_ask(s);
}

/* The chain and the log-probabilities of one token; items of one pool phase. */
static void draw_one(void *arg, int item, int thread)
{
    struct batch *b = arg;
    struct batch_draw *d = &b->draws[item];
    struct seq *s = d->seq;
    if (!needs_sampler(d)) return;
    int n_top = s->job->p.n_logprobs;
    assert(!s->guide || s->next_known);
    if (guide_is_over(s))
        d->id = SAMPLE_NOTHING;
    else if (!d->plain)
        d->id = draw_token(b, d, b->samplers[thread]);
    if (s->guide && d->id != SAMPLE_NOTHING) guide_token(b, d);
    if (d->id == SAMPLE_NOTHING || n_top < 0) return;
    d->n_top = n_top < b->p.model.vocab ? n_top : b->p.model.vocab;
    d->logprob = sampler_logprobs(b->samplers[thread], d->logits, d->id, NULL, d->n_top, d->top);
}

static void draw_all(struct batch *b)
{
    int n_heavy = 0;
    for (int i = 0; i < b->n_draws; i++)
        n_heavy += needs_sampler(&b->draws[i]);
    if (n_heavy > 1 && b->p.pool) {
        struct pool_phase phase = {draw_one, b, b->n_draws};
        pool_run(b->p.pool, &phase, 1, NULL);
        return;
    }
    for (int i = 0; i < b->n_draws; i++)
        draw_one(b, i, 0);
}

/* ---- delivering ---------------------------------------------------------------------------- */

static void emit_token(struct batch *b, const struct batch_draw *d, int predicted)
{
    struct seq *s = d->seq;
    struct eng_job *job = s->job;
    if (job->usage.first_token_us == 0) job->usage.first_token_us = b->now_us;
    job->usage.n_generated_tokens++;
    b->stats.n_generated_tokens++;
    int n_listed = job->p.n_logprobs >= 0 ? job->p.n_listed_ids : 0;
    if (n_listed > 0)
        sampler_logprobs(b->samplers[0], d->logits, d->id, job->p.listed_ids, n_listed, b->listed);
    struct eng_event e = {.type = ENG_EVENT_TOKEN,
                          .choice = s->choice,
                          .index = s->n_generated - 1,
                          .id = d->id,
                          .logprob = job->p.n_logprobs >= 0 ? d->logprob : 0.0f,
                          .top = n_listed > 0   ? b->listed
                                 : d->n_top > 0 ? d->top
                                                : NULL,
                          .n_top = n_listed > 0 ? n_listed : d->n_top,
                          .predicted = predicted};
    job_emit(job, &e, b->now_us);
}

static bool has_bans(const struct seq *s)
{
    const struct eng_job_params *p = &s->job->p;
    return p->sampling.n_bias > 0 || p->sampling.allowed_ids || s->n_generated < p->min_tokens;
}

/* No id can follow: all are banned, or the guide ends the answer. */
static void end_without_token(struct batch *b, struct seq *s)
{
    bool masked = s->guide && s->next == ENG_GUIDE_MASK;
    enum eng_finish finish = ENG_FINISH_STOP;
    if (s->guide && s->next == ENG_GUIDE_CUT)
        finish = ENG_FINISH_LENGTH;
    else if (s->guide && s->next == ENG_GUIDE_FAIL)
        finish = ENG_FINISH_ERROR;
    else if (masked && !s->guide->complete(s->guide->ctx))
        finish = has_bans(s) ? ENG_FINISH_NO_TOKEN : ENG_FINISH_ERROR;
    batch_end_seq(b, s, finish, -1, finish == ENG_FINISH_ERROR ? BAD_GUIDE : NULL);
}

/* Ends the sequence if nothing may follow its last token, as far as that is known. */
static void end_if_over(struct batch *b, struct seq *s)
{
    if (s->awaits) return;
    if (guide_is_over(s))
        end_without_token(b, s);
    else if (s->n_generated >= s->job->max_new)
        batch_end_seq(b, s, ENG_FINISH_LENGTH, -1, NULL);
}

static void deliver_draw(struct batch *b, const struct batch_draw *d)
{
    struct seq *s = d->seq;
    struct eng_job *job = s->job;
    assert(job);
    if (!d->finite) {
        batch_end_seq(b, s, ENG_FINISH_ERROR, -1, NOT_FINITE);
        return;
    }
    if (job->p.want_logits && s->n_done > job->p.n_prompt) /* the prompt's rows are sent */
        emit_logits(b, s, s->n_done - 1, d->logits);
    if (d->refused) {
        batch_end_seq(b, s, ENG_FINISH_ERROR, -1, BAD_GUIDE);
        return;
    }
    if (d->id == SAMPLE_NOTHING) {
        end_without_token(b, s);
        return;
    }
    emit_token(b, d, seq_push(s, d->id));
    if (job_is_stop_id(job, b->p.model.eos, d->id))
        batch_end_seq(b, s, ENG_FINISH_STOP, d->id, NULL);
    else
        end_if_over(b, s);
}

/* A job without generated tokens ends with its prompt. */
static void end_prefill_only(struct batch *b, struct seq *s)
{
    const struct batch_model *m = &b->p.model;
    if (s->job->p.want_pooled &&
        !job_emit_pooled(s->job, m->pooled(m->ctx, s->segment), m->pooled_width, b->now_us))
        batch_end_seq(b, s, ENG_FINISH_ERROR, -1, NOT_FINITE);
    else
        batch_end_seq(b, s, ENG_FINISH_LENGTH, -1, NULL);
}

/*
 * The prompt of s is computed, its last logits are in `row`: s continues from there, and so do the
 * siblings that waited for it.
 */
static void finish_prefill(struct batch *b, struct seq *s, int row)
{
    struct eng_job *job = s->job;
    bool draws = job->max_new > 0;
    if (draws) add_draw(b, s, row, 0);
    for (int i = 0; i < b->p.n_parallel; i++) {
        struct seq *t = &b->slots[i];
        if (!seq_is_sibling(s, t) || !seq_in_prefill(t)) continue;
        if (!draws)
            batch_end_seq(b, t, ENG_FINISH_LENGTH, -1, NULL);
        else if (seq_fork(t, s, b->p.page_bytes))
            add_draw(b, t, row, 0);
        else
            t->broken = true;
    }
    if (!draws) end_prefill_only(b, s);
}

static void emit_progress(struct batch *b, struct seq *s)
{
    struct eng_event e = {.type = ENG_EVENT_PROGRESS,
                          .choice = s->choice,
                          .index = s->n_done,
                          .usage = &s->job->usage};
    job_emit(s->job, &e, b->now_us);
}

/*
 * Returns true if all rows of a draft are finite. Else its values could reach other rows (0 x NaN):
 * they are wiped out, and the step is done again without a draft.
 */
static bool draft_is_finite(struct batch *b, struct seq *s, int row)
{
    bool finite = true, one;
    for (int i = 0; i <= s->n_draft; i++) {
        b->p.model.argmax(b->p.model.ctx, row + i, &one);
        finite = finite && one;
    }
    if (finite) return true;
    seq_wipe_draft(s, s->n_draft, b->p.kern);
    return false;
}

/* The position of the row is done, its token can be drawn. */
static void decode_row(struct batch *b, struct seq *s, int row, int n_left)
{
    if (s->n_done < s->n_written)
        kv_page_set_drafted(b->p.pages, s->pages[s->n_done / KV_PAGE_TOKENS],
                            (int)(s->n_done % KV_PAGE_TOKENS) + 1);
    seq_advance(s, 1);
    add_draw(b, s, row, n_left);
    b->n_decoded++;
}

static void deliver_decoding(struct batch *b, struct seq *s, int row)
{
    if (s->n_draft > 0) {
        b->stats.n_drafts[s->source]++;
        b->stats.n_drafts_of_length[s->n_draft - 1]++;
        b->stats.n_draft_tokens[s->source] += (uint64_t)s->n_draft;
        s->job->usage.n_draft_tokens += s->n_draft;
    }
    if (s->n_draft == 0 || draft_is_finite(b, s, row)) decode_row(b, s, row, s->n_draft);
}

static void deliver_prefill(struct batch *b, struct seq *s, const struct fwd_segment *seg, int row)
{
    int64_t from = s->n_done;
    seq_advance(s, seg->n_tokens);
    int64_t n_new = seq_gained(s, from);
    s->job->usage.n_computed_prompt_tokens += n_new;
    b->stats.n_recomputed_tokens += (uint64_t)(seg->n_tokens - n_new);
    if (seg->want == FWD_WANT_ALL && !deliver_prompt_rows(b, s, seg->pos0, seg->n_tokens, row)) {
        batch_end_seq(b, s, ENG_FINISH_ERROR, -1, NOT_FINITE);
        return;
    }
    if (s->job->p.want_progress && n_new > 0) emit_progress(b, s);
    int last = seg->want == FWD_WANT_ALL ? row + seg->n_tokens - 1 : row;
    if (!seq_in_prefill(s)) finish_prefill(b, s, last);
}

/* Returns true unless the sequence has ended, was asked to, or awaits a mask. */
static bool continues(const struct seq *s)
{
    return s->job && !s->awaits && !atomic_load_explicit(&s->job->cancel, memory_order_relaxed) &&
           !atomic_load_explicit(&s->job->stop[s->choice], memory_order_relaxed);
}

/* Draws and delivers a token for each entry; those whose draft goes on are the next round's. */
static void deliver_round(struct batch *b)
{
    struct drafters *ds = b->p.drafters;
    draw_all(b);
    int n = b->n_draws;
    b->n_draws = 0;
    for (int i = 0; i < n; i++) {
        const struct batch_draw *d = &b->draws[i]; /* entries up to i are free once delivered */
        struct seq *s = d->seq;
        int row = d->row, n_left = d->n_left;
        bool right = n_left > 0 && s->ids[s->n_done] == d->id;
        if (right) s->job->usage.n_accepted_draft_tokens++;
        if (n_left > 0 && s->source >= ENG_DRAFT_SELF)
            drafter_note(s->source == ENG_DRAFT_SELF ? &ds->twin : &ds->model,
                         s->margins[s->n_draft - n_left], right);
        deliver_draw(b, d);
        if (!right || !continues(s)) continue;
        b->stats.n_accepted_draft_tokens[s->source]++;
        decode_row(b, s, row + 1, n_left - 1);
    }
}

void batch_deliver(struct batch *b)
{
    int row = 0;
    uint64_t n_generated = b->stats.n_generated_tokens;
    b->n_draws = b->n_decoded = 0;
    for (int i = 0; i < b->n_segs; i++) {
        const struct fwd_segment *seg = &b->segs[i];
        if (b->seg_seqs[i]->computing)
            deliver_prefill(b, b->seg_seqs[i], seg, row);
        else
            deliver_decoding(b, b->seg_seqs[i], row);
        row += seg->want == FWD_WANT_ALL ? seg->n_tokens : seg->want == FWD_WANT_LAST;
    }
    while (b->n_draws > 0)
        deliver_round(b);
    batch_count_decoded(b);
    n_generated = b->stats.n_generated_tokens - n_generated;
    eng_stats_count_step(&b->stats, (uint64_t)b->n_prompt_rows + n_generated);
}

/* The share of a step's time that masks may take on each thread, and their time without a step. */
enum { MASK_SHARE = 4, MIN_MASK_US = 50, ALONE_MASK_US = 1000 };

void batch_make_masks(struct batch *b)
{
    uint64_t us = b->n_segs > 0 ? (uint64_t)b->step_us / MASK_SHARE : ALONE_MASK_US;
    if (!masks_run(&b->masks, b->order, b->n_running, us > MIN_MASK_US ? us : MIN_MASK_US)) return;
    b->now_us = clock_now_us();
    for (int i = b->n_running - 1; i >= 0; i--)
        if (!seq_in_prefill(b->order[i])) end_if_over(b, b->order[i]);
}
