/* SPDX-License-Identifier: MIT */
/* Slots and the building of steps; see batch.h for the design. */
#include "engine/batch.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fail.h"
#include "engine/job.h"
#include "engine/pool.h"
#include "engine/kv/prefix.h"
#include "engine/sample.h"
#include "engine/scratch.h"

/* Time constant of the measured rates: they cover about the last 5 seconds of work. */
static const double RATE_WINDOW_US = 5e6;

enum { TURN_US = 10000, MIN_TURN_ROWS = 16 }; /* of a step while another engine waits */

/*
 * Rows of spare sequences lengthen the steps in which others decode by one part in SPARE_PART, and
 * each by one in SPARE_STEP_PART at most. For a while after others, who may come again, steps of
 * spare sequences alone are short.
 */
enum { SPARE_PART = 32, SPARE_STEP_PART = 8, AGAIN_US = 60 * 1000000 };

static const char *const NO_PAGE = "internal error: reserved KV page not available";

/* ---- memory -------------------------------------------------------------------------------- */

static void publish_free(struct batch *b)
{
    int n_slots = b->p.n_parallel - b->n_running, n_pages = b->stats.n_pages_total - b->n_reserved;
    for (int i = b->n_running - 1; i >= 0 && b->order[i]->job->p.spare; i--) {
        n_slots++;
        n_pages += b->order[i]->job->n_pages;
    }
    atomic_store(&b->n_free_slots, n_slots);
    atomic_store(&b->n_free_pages, n_pages);
}

/* Cuts everything out of m but the prefix cache and lanes. */
static void take_memory(struct batch *b, struct scratch *m)
{
    const struct batch_params *p = &b->p;
    size_t n = (size_t)p->n_parallel;
    b->slots = scratch_take(m, n, sizeof(*b->slots));
    b->keys = scratch_take(m, n, sizeof(*b->keys));
    b->order = scratch_take(m, n, sizeof(struct seq *));
    b->segs = scratch_take(m, n, sizeof(*b->segs));
    b->seg_seqs = scratch_take(m, n, sizeof(struct seq *));
    b->draws = scratch_take(m, n, sizeof(*b->draws));
    b->draft_mask = scratch_take(m, seq_mask_words(p->model.vocab), sizeof(*b->draft_mask));
    b->samplers = scratch_take(m, (size_t)b->n_samplers, sizeof(struct sampler *));
    for (int i = 0; i < b->n_samplers; i++) {
        struct sampler *sampler = sampler_init(m, p->model.vocab, p->kern);
        if (m->base) b->samplers[i] = sampler;
    }
    for (int i = 0; i < p->n_parallel; i++) {
        struct seq s;
        seq_init(&s, m, (int)kv_pages_of(p->ctx), p->model.vocab, p->model.d_model, &p->states);
        s.cache = b->cache;
        s.kv = p->pages;
        if (m->base) b->slots[i] = s;
    }
}

int batch_init(struct batch *b, const struct batch_params *params, char *err, size_t errlen)
{
    struct scratch count = {NULL, 0};
    *b =
        (struct batch){.p = *params, .n_samplers = params->pool ? pool_n_threads(params->pool) : 1};
    b->turn_rows = params->chunk_tokens < MIN_TURN_ROWS ? params->chunk_tokens : MIN_TURN_ROWS;
    b->stats.n_pages_total = kv_pages_total(params->pages);
    publish_free(b);
    b->cache = prefix_create(params->pages, params->hash_seed, params->n_snapshots,
                             params->states.n_kept, &b->stats);
    take_memory(b, &count);
    if (count.used < SIZE_MAX / 2) b->memory = calloc(1, count.used + SCRATCH_ALIGN);
    if (b->cache && b->memory && masks_init(&b->masks, params->pool, params->n_parallel) == 0) {
        struct scratch m = {scratch_align(b->memory), 0};
        take_memory(b, &m);
        return 0;
    }
    return fail_with(ENG_ENOMEM, err, errlen, "no memory for the state of %d parallel sequences",
                     params->n_parallel);
}

void batch_finish(struct batch *b)
{
    masks_finish(&b->masks);
    prefix_destroy(b->cache);
    free(b->memory);
    *b = (struct batch){0};
}

int64_t batch_bytes(int n_parallel, int n_threads, int64_t n_pages, int64_t ctx, int32_t vocab,
                    int d_model)
{
    struct batch b = {
        .p = {.model = {.vocab = vocab, .d_model = d_model}, .n_parallel = n_parallel, .ctx = ctx},
        .n_samplers = n_threads};
    struct scratch count = {NULL, 0};
    take_memory(&b, &count);
    return (int64_t)count.used + masks_bytes(n_parallel, n_threads) + prefix_bytes(n_pages);
}

/* ---- slots --------------------------------------------------------------------------------- */

bool batch_has_room(const struct batch *b, int n_pages)
{
    return b->n_running < b->p.n_parallel && n_pages <= b->stats.n_pages_total - b->n_reserved;
}

static struct seq *free_slot(struct batch *b)
{
    struct seq *s = b->slots;
    assert(b->n_running < b->p.n_parallel);
    while (s->job)
        s++;
    assert(s < b->slots + b->p.n_parallel);
    return s;
}

/* After all of the same or a better rank, and before less urgent ones of its own key. */
static void insert_running(struct batch *b, struct seq *s)
{
    int i = b->n_running++;
    for (; i > 0 && b->order[i - 1]->job->rank > s->job->rank; i--)
        b->order[i] = b->order[i - 1];
    b->order[i] = s;
    for (int j = i - 1; j >= 0; j--) {
        if (!job_passes(s->job, b->order[j]->job)) continue;
        b->order[i] = b->order[j];
        b->order[j] = s;
        i = j;
    }
}

static void remove_running(struct batch *b, const struct seq *s)
{
    int i = 0;
    while (i < b->n_running && b->order[i] != s)
        i++;
    assert(i < b->n_running);
    b->n_running--;
    memmove(&b->order[i], &b->order[i + 1], (size_t)(b->n_running - i) * sizeof(struct seq *));
}

/* Takes the pages that are cached now; more may appear while the prompt is computed. */
static void attach_cached(struct batch *b, struct seq *s)
{
    int64_t from = s->n_done;
    seq_attach_cached(s);
    int64_t n = seq_gained(s, from);
    if (s->choice == 0) {
        s->job->usage.n_cached_tokens += n;
        b->stats.n_cached_tokens += (uint64_t)n;
    }
}

void batch_claim(struct batch *b, uint64_t fair_key)
{
    atomic_store(&b->keys[free_slot(b) - b->slots], fair_key);
}

int batch_count_key(const struct batch *b, uint64_t fair_key)
{
    int n = 0;
    for (int i = 0; i < b->p.n_parallel; i++)
        n += atomic_load(&b->keys[i]) == fair_key;
    return n;
}

void batch_admit(struct batch *b, struct eng_job *job, int choice)
{
    struct seq *s = free_slot(b);
    seq_begin(s, job, choice);
    b->n_reserved += job->n_pages;
    assert(b->n_reserved <= b->stats.n_pages_total);
    insert_running(b, s);
    publish_free(b);
    attach_cached(b, s);
    if (!job->usage.started_us) {
        b->stats.n_prompt_tokens += (uint64_t)job->p.n_prompt;
        job->usage.miss = seq_miss(s, &job->usage.n_known_tokens);
        b->stats.n_misses[job->usage.miss]++;
        job_emit_started(job, b->now_us);
    }
}

void batch_choice_done(struct batch *b, struct eng_job *job, int choice, enum eng_finish finish,
                       int32_t stop_id, const char *error)
{
    if (!job_emit_choice_done(job, choice, finish, stop_id, error, b->now_us)) return;
    b->stats.n_jobs_done++;
    b->stats.n_jobs_cancelled += job->cancelled;
    b->stats.n_jobs_failed += job->failed;
    if (job->publishes && job->scope.private_id) prefix_forget(b->cache, job->scope.private_id);
    eng_job_release(job);
}

static void leave_slot(struct batch *b, struct seq *s)
{
    remove_running(b, s);
    masks_drop(&b->masks, s);
    b->n_reserved -= s->job->n_pages;
    assert(b->n_reserved >= 0);
    seq_end(s);
    atomic_store(&b->keys[s - b->slots], 0);
    publish_free(b);
}

void batch_end_seq(struct batch *b, struct seq *s, enum eng_finish finish, int32_t stop_id,
                   const char *error)
{
    struct eng_job *job = s->job;
    int choice = s->choice;
    if (b->p.disk && job->publishes && !job->scope.private_id && !job->p.want_pooled &&
        job->p.disk != ENG_DISK_NEVER)
        kv_disk_note(b->p.disk, &(struct kv_chain){.scope = job->scope.tenant,
                                                   .ids = s->ids,
                                                   .n_pages = s->n_published,
                                                   .first = job->p.keeps[0].n_tokens > 0,
                                                   .for_a_day = job->p.disk == ENG_DISK_DAY});
    leave_slot(b, s);
    batch_choice_done(b, job, choice, finish, stop_id, error);
}

static void stop_restore(struct batch *b, struct seq *s)
{
    int n;
    if (s->restoring) kv_disk_cancel(b->p.disk, &s->restore);
    seq_restored(s, &n);
}

bool batch_is_spare(const struct batch *b)
{
    return b->n_running > 0 && b->order[0]->job->p.spare;
}

int batch_n_leading(const struct batch *b)
{
    int n = 0;
    while (n < b->n_running && (!b->order[n]->job->p.spare || batch_is_spare(b)))
        n++;
    return n;
}

struct eng_job *batch_park(struct batch *b)
{
    struct seq *s = b->order[b->n_running - 1];
    struct eng_job *job = s->job;
    assert(job->p.spare);
    stop_restore(b, s);
    seq_save(s);
    leave_slot(b, s);
    b->stats.n_parked++;
    return job;
}

void batch_reap(struct batch *b, bool closing)
{
    prefix_tick(b->cache, b->now_us);
    if (b->n_restoring > 0) kv_disk_expire(b->p.disk, b->now_us);
    for (int i = b->n_running - 1; i >= 0; i--) {
        struct seq *s = b->order[i];
        enum eng_finish finish = job_verdict(s->job, closing, b->now_us);
        if (!finish && atomic_load_explicit(&s->job->stop[s->choice], memory_order_relaxed))
            finish = ENG_FINISH_STOP;
        if (s->broken) {
            batch_end_seq(b, s, ENG_FINISH_ERROR, -1, NO_PAGE);
        } else if (finish) {
            stop_restore(b, s);
            batch_end_seq(b, s, finish, -1, NULL);
        }
    }
}

/* ---- building a step ----------------------------------------------------------------------- */

static void add_segment(struct batch *b, struct seq *s, int n_tokens, enum fwd_want want)
{
    s->broken = !seq_reserve(s, s->n_done + n_tokens);
    if (s->broken) return;
    assert(b->n_segs < b->p.n_parallel);
    b->segs[b->n_segs] = (struct fwd_segment){
        .tokens = s->ids + s->n_done,
        .n_tokens = n_tokens,
        .pos0 = s->n_done,
        .pages = s->data,
        .state = s->state,
        .loras = s->job->p.loras,
        .n_loras = s->job->p.n_loras,
        .want = want,
        .pool = s->job->p.want_pooled ? s->pool : NULL,
        .n_unpooled = s->job->p.n_unpooled,
        .ends = s->n_done + n_tokens == s->job->p.n_prompt,
    };
    s->segment = b->n_segs;
    b->seg_seqs[b->n_segs++] = s;
}

/* One prefill serves all choices of a job: the later ones wait for the first. */
static bool follows_sibling(const struct batch *b, int i)
{
    for (int j = 0; j < i; j++)
        if (seq_is_sibling(b->order[i], b->order[j]) && seq_in_prefill(b->order[j])) return true;
    return false;
}

/* Returns true if an earlier sequence of this step is computing the page that the i-th needs. */
static bool waits_for_page(const struct batch *b, int i)
{
    for (int j = 0; j < i; j++) {
        if (!b->order[j]->computing || !seq_same_page_ahead(b->order[i], b->order[j])) continue;
        b->order[j]->followed = true;
        return true;
    }
    return false;
}

/* Asks the disk for the rest of a prompt, once. Returns true if the sequence waits for it. */
static bool begins_restore(struct batch *b, struct seq *s)
{
    int n = b->p.disk ? seq_missing_pages(s) : 0;
    if (n < KV_DISK_LEAST_PAGES) return false;
    s->asked = true;
    if (kv_disk_pays(b->p.disk, s->job->scope.tenant, n, b->stats.prompt_tokens_per_s))
        seq_restore(s, b->p.disk, n, b->stats.prompt_tokens_per_s);
    return s->restoring;
}

/* Takes pages that have been read. */
static void end_restore(struct batch *b, struct seq *s)
{
    struct eng_usage *u = &s->job->usage;
    int n;
    if (!s->restoring || !seq_restored(s, &n) || s->n_reached > 0) return;
    u->restore_us += s->restore.us;
    u->miss = seq_miss(s, &u->n_known_tokens);
    if (s->choice == 0) {
        u->n_cached_tokens += n;
        u->n_disk_tokens += (int64_t)(s->restore.n_read - s->restore.first) * KV_PAGE_TOKENS;
        b->stats.n_cached_tokens += (uint64_t)n;
        if (n > 0) b->stats.n_disk_tokens += (uint64_t)n;
    }
}

bool batch_awaits_pages(const struct batch *b)
{
    for (int i = 0; i < b->n_running; i++)
        if (b->order[i]->awaits) return false;
    return b->n_segs == 0 && b->n_restoring > 0;
}

static enum fwd_want wanted_rows(const struct seq *s, int n_tokens)
{
    const struct eng_job *job = s->job;
    bool all = job->p.n_prompt_logprobs >= 0 || job->p.want_logits;
    if (all && s->n_generated == 0) return FWD_WANT_ALL;
    bool last = s->n_done + n_tokens == s->n_given;
    return last && job->max_new > 0 ? FWD_WANT_LAST : FWD_WANT_NONE;
}

static int min_int(int64_t a, int64_t b)
{
    return (int)(a < b ? a : b);
}

/*
 * Returns true if a choice that goes on from the prompt of s still awaits its first mask: then the
 * last row of the prompt, from which all of them draw, is left to a later step.
 */
static bool lacks_mask(const struct batch *b, const struct seq *s)
{
    for (int i = 0; i < b->n_running; i++) {
        const struct seq *t = b->order[i];
        if ((t == s || seq_is_sibling(s, t)) && t->awaits && seq_in_prefill(t)) return true;
    }
    return false;
}

/* Adds prompt rows of the i-th sequence, at most budget; returns their number. */
static int add_prompt_rows(struct batch *b, int i, int budget)
{
    struct seq *s = b->order[i];
    if (follows_sibling(b, i)) return 0;
    attach_cached(b, s);
    if (waits_for_page(b, i) || begins_restore(b, s)) return 0;
    int n = min_int(budget, s->n_given - s->n_done - lacks_mask(b, s));
    if (n == 0) return 0;
    bool all = wanted_rows(s, n) == FWD_WANT_ALL;
    if (all) n = min_int(n, 1 + BATCH_EXTRA_LOGIT_ROWS - b->n_extra_rows);
    n = seq_cut(s, n);
    if (all) b->n_extra_rows += n - 1;
    s->computing = true;
    add_segment(b, s, n, wanted_rows(s, n));
    return n;
}

/* Whether the j-th is the first of another key than the job's that has prompt rows to compute. */
static bool leads_other_key(const struct batch *b, int j, const struct eng_job *job)
{
    const struct seq *s = b->order[j];
    bool other = s->job->p.fair_key != job->p.fair_key && s->job->rank == job->rank;
    if (!other || !seq_in_prefill(s) || s->restoring) return false;
    for (int i = 0; i < j; i++)
        if (b->order[i]->job->p.fair_key == s->job->p.fair_key && seq_in_prefill(b->order[i]))
            return false;
    return true;
}

/*
 * Of the prompt rows of a step: those that the i-th sequence leaves to keys that come after it, as
 * many as they need, but to each at most an equal share.
 */
static int rows_of_others(const struct batch *b, int i, int most)
{
    const struct eng_job *job = b->order[i]->job;
    int n_keys = 1, n = 0;
    for (int j = 0; j < b->n_running; j++)
        n_keys += leads_other_key(b, j, job);
    for (int j = i + 1; j < b->n_running && n_keys > 1; j++)
        if (leads_other_key(b, j, job))
            n += min_int(b->order[j]->n_given - b->order[j]->n_done, most / n_keys);
    return n;
}

static int n_rows(const struct batch *b)
{
    int n = 0;
    for (int i = 0; i < b->n_segs; i++)
        n += b->segs[i].n_tokens;
    return n;
}

/* As many ids of a draft as are worth their rows; n_tokens and rows as for draft_length. */
static int choose_draft(struct batch *b, struct seq *s, double row_cost, double *n_tokens,
                        int *rows)
{
    int32_t forced[DRAFT_MAX];
    int most = BATCH_EXTRA_LOGIT_ROWS - b->n_extra_rows;
    most = min_int(most, s->job->max_new - s->n_generated - 1);
    if (s->job->p.max_draft > 0) most = min_int(most, s->job->p.max_draft);
    if (s->guide && s->guide->propose)
        draft_force(&s->draft, forced, s->guide->propose(s->guide->ctx, forced, DRAFT_MAX));
    int n = seq_draft(s, min_int(most, DRAFT_MAX));
    s->source = draft_source(&s->draft);
    if (n > 0 && draft_value(&s->draft, n, row_cost) < batch_draft_promise(b, s)) return 0;
    if (b->p.speculate != ENG_SPECULATE_ALWAYS)
        n = draft_length(&s->draft, n, row_cost, n_tokens, rows);
    if (n > 0 && s->guide)
        n = s->guide->foresee ? s->guide->foresee(s->guide->ctx, s->ids + s->n_done + 1, n) : 0;
    return n;
}

/*
 * Lengthens the segments of decoding sequences by their drafts. Each row that is there already is
 * worth a token, so a step with many of them takes likely ids only.
 */
static void add_drafts(struct batch *b)
{
    int rows = n_rows(b);
    double n_tokens = rows, row_cost = draft_cost_row(&b->cost);
    for (int i = 0; i < b->n_segs; i++) {
        struct seq *s = b->seg_seqs[i];
        if (s->computing || !s->drafts || s->slow) continue;
        int n = choose_draft(b, s, row_cost, &n_tokens, &rows);
        if (n == 0 || !seq_reserve(s, s->n_done + 1 + n)) continue;
        s->n_draft = n;
        b->n_extra_rows += n;
        b->segs[i].n_tokens = 1 + n;
        b->segs[i].want = FWD_WANT_ALL;
    }
}

/* The masks of first tokens, so that they are there when the prompts are computed. */
static void ask_first_masks(struct batch *b)
{
    for (int i = 0; i < b->n_running; i++) {
        struct seq *s = b->order[i];
        if (!s->guide || s->next_known || s->awaits || s->job->max_new == 0) continue;
        if (s->n_generated == 0)
            s->slow = i > 0 && b->order[i - 1]->job == s->job && b->order[i - 1]->slow;
        masks_ask(s);
    }
}

/* Adds a row of each sequence in [from, end) that decodes, at most n; returns their number. */
static int add_decoding(struct batch *b, int from, int end, int n)
{
    int n_added = 0;
    for (int i = from; i < end && n_added < n; i++) {
        if (seq_in_prefill(b->order[i]) || b->order[i]->awaits) continue;
        add_segment(b, b->order[i], 1, FWD_WANT_LAST);
        n_added++;
    }
    return n_added;
}

static void add_prompts(struct batch *b, int from, int end, int most)
{
    for (int i = from; i < end && b->n_prompt_rows < most; i++) {
        if (!seq_in_prefill(b->order[i]) || b->order[i]->restoring) continue;
        int left = most - b->n_prompt_rows - rows_of_others(b, i, most);
        b->n_prompt_rows += add_prompt_rows(b, i, left > 0 ? left : 0);
    }
    assert(b->n_prompt_rows <= b->p.chunk_tokens);
}

/* Adds rows of the spare sequences from the i-th on to a step in which others decode. */
static void add_spare_rows(struct batch *b, int i)
{
    double us = draft_cost_us(&b->cost, n_rows(b)), row_us = draft_cost_more_us(&b->cost);
    int n = min_int(b->most_spare_rows + 1, b->p.chunk_tokens), n_extra = b->n_extra_rows;
    b->spare_us = fmin(b->spare_us, us / SPARE_STEP_PART);
    if (b->spare_us <= 0) return;
    if (n * row_us > b->spare_us) n = (int)(b->spare_us / row_us);
    int n_decoding = add_decoding(b, i, b->n_running, n);
    b->n_extra_rows = BATCH_EXTRA_LOGIT_ROWS; /* drafts by a second model may take all of them */
    add_prompts(b, i, b->n_running, n - n_decoding);
    b->n_extra_rows = n_extra;
    b->n_spare_rows = n_decoding + b->n_prompt_rows;
    if (b->n_spare_rows > 0) b->most_spare_rows = b->n_spare_rows;
}

void batch_build(struct batch *b)
{
    b->n_segs = b->n_extra_rows = b->n_prompt_rows = b->n_spare_rows = 0;
    int n_late = 0, n_leading = batch_n_leading(b);
    ask_first_masks(b);
    for (int i = 0; i < b->n_running; i++) {
        struct seq *s = b->order[i];
        end_restore(b, s);
        s->computing = s->restoring;
        s->followed = false;
        s->n_draft = 0;
        s->n_written = 0;
        n_late += !seq_in_prefill(s) && s->awaits;
    }
    if (b->n_running > 0 && !batch_is_spare(b)) b->others_us = b->now_us;
    bool lately = batch_is_spare(b) && b->others_us && b->now_us - b->others_us < AGAIN_US;
    add_decoding(b, 0, n_leading, n_leading);
    add_prompts(b, 0, n_leading, b->shared || lately ? b->turn_rows : b->p.chunk_tokens);
    for (int i = b->n_restoring = 0; i < b->n_running; i++)
        b->n_restoring += b->order[i]->restoring;
    if (b->p.speculate != ENG_SPECULATE_OFF) add_drafts(b);
    b->n_draft_segs = b->n_prompt_rows > 0 ? 0 : b->n_segs;
    if (b->n_draft_segs > 0 && !b->seg_seqs[0]->job->p.spare) add_spare_rows(b, n_leading);
    if (b->n_segs > 0) b->stats.n_late_masks += (uint64_t)n_late;
}

/* ---- running it ---------------------------------------------------------------------------- */

struct eng_job *batch_solo_job(const struct batch *b)
{
    for (int i = 1; i < b->n_segs; i++)
        if (b->seg_seqs[i]->job != b->seg_seqs[0]->job) return NULL;
    return b->n_segs > 0 ? b->seg_seqs[0]->job : NULL;
}

/* Sums that decay with the time worked, for rates over the last seconds of work. */
static void decay_add(double *tokens, double *us, double n, double took_us)
{
    double keep = 1.0 / (1.0 + took_us / RATE_WINDOW_US);
    *tokens = *tokens * keep + n;
    *us = *us * keep + took_us;
}

int batch_fit_turn(int n, int most, double step_us)
{
    if (step_us > TURN_US) n = n / 2 > MIN_TURN_ROWS ? n / 2 : MIN_TURN_ROWS;
    if (step_us < TURN_US / 2) n *= 2;
    return min_int(n, most);
}

/* After a step of others: how much longer spare rows made it, as far as the costs tell. */
static void count_spare(struct batch *b, double model_us)
{
    double us = draft_cost_us(&b->cost, n_rows(b) - b->n_spare_rows);
    b->spare_us += model_us / SPARE_PART;
    if (b->n_spare_rows > 0) b->spare_us -= fmin(model_us - us, us);
}

static void count_rows(struct batch *b, double model_us)
{
    if (!b->seg_seqs[0]->job->p.spare) count_spare(b, model_us);
    if (b->n_prompt_rows == b->turn_rows)
        b->turn_rows = batch_fit_turn(b->turn_rows, b->p.chunk_tokens, model_us);
    if (b->n_prompt_rows > 0 && b->n_spare_rows == 0)
        decay_add(&b->prompt_tokens, &b->prompt_us, b->n_prompt_rows, b->step_us);
    else
        draft_cost_note(&b->cost, n_rows(b), model_us);
    b->stats.prompt_tokens_per_s = b->prompt_us > 0 ? 1e6 * b->prompt_tokens / b->prompt_us : 0;
    b->stats.n_computed_prompt_tokens += (uint64_t)b->n_prompt_rows;
}

void batch_count_decoded(struct batch *b)
{
    if (b->n_decoded > 0)
        decay_add(&b->generated_tokens, &b->generated_us, b->n_decoded, b->step_us);
    b->stats.generated_tokens_per_s =
        b->generated_us > 0 ? 1e6 * b->generated_tokens / b->generated_us : 0;
}

bool batch_compute(struct batch *b, const atomic_bool *closing)
{
    uint64_t start = clock_now_us();
    const struct eng_job *solo = batch_solo_job(b);
    struct fwd_step step = {b->segs, b->n_segs, solo ? &solo->cancel : closing};
    if (b->p.speculate != ENG_SPECULATE_OFF) batch_draft(b, step.stop);
    double model_us;
    bool complete = batch_model_run(&b->p.model, &step, &model_us);
    b->stats.last_step_us = b->now_us = clock_now_us();
    b->stats.n_steps++;
    b->stats.compute_us += b->now_us - start;
    b->step_us = (double)(b->now_us - start);
    if (complete) count_rows(b, model_us);
    return complete;
}
