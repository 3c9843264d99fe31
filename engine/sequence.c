/* SPDX-License-Identifier: MIT */
/* A running sequence and its pages; see sequence.h for the terms. */
#include "engine/sequence.h"

#include <assert.h>
#include <string.h>

#include "engine/job.h"
#include "engine/model/hparams.h"
#include "engine/scratch.h"

void seq_init(struct seq *s, struct scratch *m, int max_pages, int32_t vocab, int d_model,
              const struct state_layout *states)
{
    size_t n = (size_t)max_pages;
    *s = (struct seq){
        .pages = scratch_take(m, n, sizeof(*s->pages)),
        .nodes = scratch_take(m, n, sizeof(*s->nodes)),
        .data = scratch_take(m, n, sizeof(*s->data)),
        .ids = scratch_take(m, n * KV_PAGE_TOKENS + 1, sizeof(*s->ids)),
        .pool = scratch_take(m, (size_t)d_model, sizeof(*s->pool)),
        .mask = scratch_take(m, seq_mask_words(vocab), sizeof(*s->mask)),
        .states = *states,
    };
    if (states->n_layers > 0) s->state = scratch_take(m, states->n_floats, sizeof(*s->state));
    sample_history_init(&s->history, m, vocab);
}

static struct draft_text text_of(const struct seq *s)
{
    const struct eng_job_params *p = &s->job->p;
    return (struct draft_text){s->ids, p->n_prompt + s->n_generated, p->prediction,
                               p->n_prediction};
}

/* The sequence goes on from where its choice was parked. */
static void resume(struct seq *s, const struct job_parked *p)
{
    const struct eng_job *job = s->job;
    memcpy(s->ids + job->p.n_prompt, job->parked_ids + s->choice * job->max_new,
           (size_t)p->n_generated * sizeof(*s->ids));
    s->n_generated = p->n_generated;
    s->n_reached = p->n_reached;
    s->slow = p->slow;
    s->untaken = p->untaken;
    s->draft = p->draft;
}

void seq_save(struct seq *s)
{
    struct eng_job *job = s->job;
    struct job_parked *p = &job->parked[s->choice];
    memcpy(job->parked_ids + s->choice * job->max_new, s->ids + job->p.n_prompt,
           (size_t)s->n_generated * sizeof(*s->ids));
    int64_t reached = s->n_generated > 0 ? job->p.n_prompt + s->n_generated : s->n_done;
    *p = (struct job_parked){.waits = true,
                             .slow = s->slow,
                             .untaken = s->untaken,
                             .n_generated = s->n_generated,
                             .n_reached = reached > s->n_reached ? reached : s->n_reached,
                             .draft = s->draft};
    job->n_parked++;
}

void seq_begin(struct seq *s, struct eng_job *job, int choice)
{
    assert(!s->job && choice >= 0 && choice < job->p.n_choices);
    s->job = job;
    s->choice = choice;
    s->n_done = s->n_generated = s->n_reached = 0;
    s->n_pages = s->n_published = 0;
    s->computing = s->broken = false;
    s->n_draft = 0;
    s->n_cached = 0;
    s->latest = PREFIX_NONE;
    s->followed = s->asked = s->restoring = false;
    memcpy(s->ids, job->p.prompt, (size_t)job->p.n_prompt * sizeof(*s->ids));
    s->drafts = job->max_new > 2 && !job->p.no_drafts;
    s->notes = s->drafts || job->p.n_prediction > 0;
    s->guide = job->p.guides ? &job->p.guides[choice] : NULL;
    s->next_known = s->awaits = s->slow = false;
    s->untaken = -1;
    if (job->parked && job->parked[choice].n_reached > 0) resume(s, &job->parked[choice]);
    s->n_given = job->p.n_prompt + s->n_generated;
    struct draft_text text = text_of(s);
    if (s->notes && s->n_generated == 0) draft_begin(&s->draft, &text);
    s->keeps_history = sample_has_penalty(&job->p.sampling);
    for (int64_t i = 0; s->keeps_history && i < s->n_given; i++)
        sample_history_add(&s->history, s->ids[i], i < job->p.n_prompt);
}

static void drop_pages(struct seq *s, int n_keep)
{
    while (s->n_pages > n_keep) {
        s->n_pages--;
        prefix_release(s->cache, s->nodes[s->n_pages], s->pages[s->n_pages]);
    }
}

/* Keeps the pages that the request wants to find again. */
static void keep_pages(const struct seq *s)
{
    const struct eng_job *job = s->job;
    for (int i = 0; i < s->n_published && !job->scope.private_id; i++) {
        int64_t seconds = 0;
        for (int k = 0; k < ENG_MAX_KEEPS; k++) {
            const struct eng_keep *keep = &job->p.keeps[k];
            if ((int64_t)(i + 1) * KV_PAGE_TOKENS <= keep->n_tokens && keep->seconds > seconds)
                seconds = keep->seconds;
        }
        if (!seconds || !prefix_keep(s->cache, s->nodes[i], job->p.fair_key, seconds)) return;
    }
}

void seq_end(struct seq *s)
{
    keep_pages(s);
    drop_pages(s, 0);
    if (s->keeps_history) sample_history_clear(&s->history);
    s->job = NULL;
}

bool seq_in_prefill(const struct seq *s)
{
    return s->n_done < s->n_given;
}

bool seq_is_sibling(const struct seq *s, const struct seq *t)
{
    return t->job == s->job && s->n_generated == 0 && t->n_generated == 0;
}

int64_t seq_gained(const struct seq *s, int64_t from)
{
    if (from < s->n_reached) from = s->n_reached;
    return s->n_done > from ? s->n_done - from : 0;
}

int seq_draft(struct seq *s, int most)
{
    struct draft_text text = text_of(s);
    assert(s->n_generated + most < s->job->max_new);
    return draft_copy(&s->draft, &text, most, s->ids + text.n);
}

void seq_wipe_draft(struct seq *s, int n, const struct kern *kern)
{
    for (int64_t pos = s->n_done + 1; pos <= s->n_done + n; pos++)
        kv_page_clear(s->kv, kern, s->pages[pos / KV_PAGE_TOKENS], (int)(pos % KV_PAGE_TOKENS));
    s->drafts = false;
}

/* The parent node of the next published page. */
static int32_t chain_end(const struct seq *s)
{
    return s->n_published > 0 ? s->nodes[s->n_published - 1] : PREFIX_NONE;
}

static void add_page(struct seq *s, int32_t node, int32_t page)
{
    assert(s->n_pages < s->job->n_pages);
    s->nodes[s->n_pages] = node;
    s->pages[s->n_pages] = page;
    s->data[s->n_pages] = kv_page_data(s->kv, page);
    s->n_pages++;
}

/*
 * Returns true if the sequence is at a page boundary with all before it published, may read the
 * cache, and has another whole page of prompt with a token left over to compute.
 */
static bool wants_cached_page(const struct seq *s)
{
    int64_t boundary = (int64_t)s->n_published * KV_PAGE_TOKENS;
    return s->n_done == boundary && boundary + KV_PAGE_TOKENS < s->n_given &&
           job_reads_cache(s->job);
}

/* Pages of the cache that follow and can be gone on from; sets n_cached and known_end. */
static int count_cached(struct seq *s)
{
    const struct eng_job *job = s->job;
    int n = 0, n_usable = 0;
    s->known_end = chain_end(s);
    for (s->n_cached = s->n_done; s->n_cached + KV_PAGE_TOKENS < s->n_given; n++) {
        int32_t node = prefix_find(s->cache, s->known_end, &job->scope, s->ids + s->n_cached);
        if (node == PREFIX_NONE) break;
        s->known_end = node;
        s->n_cached += KV_PAGE_TOKENS;
        if (!s->state || prefix_has_snapshot(s->cache, node)) n_usable = n + 1;
    }
    return n_usable;
}

int seq_attach_cached(struct seq *s)
{
    int n = wants_cached_page(s) ? count_cached(s) : 0;
    if (n == 0) return 0;
    drop_pages(s, s->n_published); /* taken for a step that was abandoned */
    for (int i = 0; i < n; i++) {
        int32_t node = prefix_find(s->cache, chain_end(s), &s->job->scope, s->ids + s->n_done);
        add_page(s, node, prefix_acquire(s->cache, node));
        s->n_published++;
        s->n_done += KV_PAGE_TOKENS;
    }
    if (s->state)
        state_restore(&s->states, s->state, s->n_done, prefix_use_snapshot(s->cache, chain_end(s)));
    return n * KV_PAGE_TOKENS;
}

enum eng_miss seq_miss(const struct seq *s, int64_t *ret_n_known)
{
    const struct eng_job_params *p = &s->job->p;
    int n_equal = 0;
    *ret_n_known = s->n_done;
    if (p->want_pooled) return ENG_MISS_NONE;
    if (p->n_prompt <= KV_PAGE_TOKENS) return ENG_MISS_TOO_SHORT;
    if (s->job->scope.private_id || !job_reads_cache(s->job)) return ENG_MISS_SCOPE;
    if (!wants_cached_page(s)) return ENG_MISS_NONE;
    if (s->n_cached > s->n_done) { /* pages, but no snapshot after them */
        *ret_n_known = s->n_cached;
        return ENG_MISS_EVICTED;
    }
    enum eng_miss miss =
        prefix_why(s->cache, chain_end(s), &s->job->scope, s->ids + s->n_done, &n_equal);
    *ret_n_known += n_equal;
    return miss;
}

bool seq_same_page_ahead(const struct seq *s, const struct seq *t)
{
    int64_t boundary = (int64_t)t->n_published * KV_PAGE_TOKENS;
    return wants_cached_page(s) && t->job->publishes && s->n_cached == boundary &&
           s->known_end == chain_end(t) && boundary + KV_PAGE_TOKENS < s->n_given &&
           boundary + KV_PAGE_TOKENS <= t->n_given &&
           prefix_scope_equal(&s->job->scope, &t->job->scope) &&
           memcmp(s->ids + boundary, t->ids + boundary, KV_PAGE_TOKENS * sizeof(int32_t)) == 0;
}

/* Where a snapshot of the prompt is wanted next, if it has not been passed. */
static int64_t next_snapshot(const struct seq *s)
{
    int64_t end = (s->n_given - 1) / KV_PAGE_TOKENS * KV_PAGE_TOKENS;
    int64_t next = (s->n_done / SEQ_SNAPSHOT_TOKENS + 1) * SEQ_SNAPSHOT_TOKENS;
    if (end > s->n_done && end < next) next = end;
    for (int i = 0; i < s->job->p.n_marks; i++) {
        int64_t at = s->job->p.marks[i] / KV_PAGE_TOKENS * KV_PAGE_TOKENS;
        if (at > s->n_done && at < next) next = at;
    }
    return s->n_cached > s->n_done && s->n_cached < next ? s->n_cached : next;
}

int seq_cut(const struct seq *s, int n)
{
    if (!s->state || !s->job->publishes) return n;
    int64_t end = s->n_done + n, wanted = next_snapshot(s);
    int64_t page = end / KV_PAGE_TOKENS * KV_PAGE_TOKENS;
    if (wanted <= end) return (int)(wanted - s->n_done);
    return page > s->n_done && end < s->n_given ? (int)(page - s->n_done) : n;
}

bool seq_reserve(struct seq *s, int64_t n_positions)
{
    while ((int64_t)s->n_pages * KV_PAGE_TOKENS < n_positions) {
        int32_t page = prefix_page_get(s->cache);
        if (page < 0) return false;
        add_page(s, PREFIX_NONE, page);
    }
    return true;
}

/*
 * Publishes the pages that have become full. Private scopes keep prompt pages only: no other
 * sequence could use more.
 */
static void publish(struct seq *s)
{
    struct eng_job *job = s->job;
    int64_t end = job->scope.private_id ? job->p.n_prompt : INT64_MAX;
    end = end < s->n_done ? end : s->n_done;
    while (job->publishes && (int64_t)(s->n_published + 1) * KV_PAGE_TOKENS <= end) {
        int i = s->n_published;
        const int32_t *tokens = s->ids + (int64_t)i * KV_PAGE_TOKENS;
        int32_t own = s->pages[i];
        s->nodes[i] = prefix_publish(s->cache, chain_end(s), &job->scope, tokens, &s->pages[i]);
        s->data[i] = kv_page_data(s->kv, s->pages[i]);
        s->n_published++;
        bool of_prompt = (int64_t)s->n_published * KV_PAGE_TOKENS <= job->p.n_prompt;
        if (s->pages[i] == own && of_prompt && !job->scope.private_id &&
            (int64_t)s->n_published * KV_PAGE_TOKENS > s->n_reached)
            job->usage.n_written_tokens += KV_PAGE_TOKENS;
    }
}

int seq_missing_pages(const struct seq *s)
{
    const struct eng_job *job = s->job;
    if (s->asked || !wants_cached_page(s) || !job->publishes || job->scope.private_id) return 0;
    return (int)((s->n_given - 1) / KV_PAGE_TOKENS) - s->n_published;
}

/* With a state the pages are read from the start: what it was up to now may be lost meanwhile. */
void seq_restore(struct seq *s, struct kv_disk *disk, int n_missing, double tokens_per_s)
{
    int n = s->n_published + n_missing;
    s->n_before = s->n_done;
    if (s->state) {
        drop_pages(s, 0);
        s->n_published = 0;
        s->n_done = 0;
    }
    s->restoring = seq_reserve(s, (int64_t)n * KV_PAGE_TOKENS);
    if (!s->restoring) return;
    s->restore = (struct kv_restore){.scope = s->job->scope.tenant,
                                     .ids = s->ids,
                                     .pages = s->data,
                                     .state = s->state,
                                     .first = s->n_published,
                                     .n_pages = n,
                                     .tokens_per_s = tokens_per_s};
    kv_disk_ask(disk, &s->restore);
}

/* The numbers of a snapshot have been read into s->state. */
static void take_state(struct seq *s)
{
    float *kept = prefix_keep_snapshot(s->cache, chain_end(s));
    if (kept) memcpy(kept, s->state, s->states.n_kept * sizeof(*kept));
    state_restore(&s->states, s->state, s->n_done, prefix_use_snapshot(s->cache, chain_end(s)));
}

bool seq_restored(struct seq *s, int *ret_tokens)
{
    int64_t written = s->job->usage.n_written_tokens;
    *ret_tokens = 0;
    if (!s->restoring) return true;
    if (!kv_disk_done(&s->restore)) return false;
    s->restoring = false;
    s->n_done = (int64_t)s->restore.n_read * KV_PAGE_TOKENS;
    publish(s);
    for (int i = s->restore.first; i < s->n_published; i++)
        prefix_note_disk(s->cache, s->nodes[i]);
    if (s->state && s->n_done > 0) take_state(s);
    s->job->usage.n_written_tokens = written;
    drop_pages(s, s->n_published); /* pages that were not read have arbitrary contents */
    *ret_tokens = (int)(s->n_done - s->n_before);
    return true;
}

/* Keeps a snapshot of the positions done, which end with a page that has just been published. */
static void keep_snapshot(struct seq *s)
{
    int32_t node = chain_end(s);
    bool of_prompt = s->n_done < s->n_given;
    if (!of_prompt && s->latest != PREFIX_NONE) prefix_drop_snapshot(s->cache, s->latest);
    float *kept = prefix_keep_snapshot(s->cache, node);
    if (kept) state_save(&s->states, s->state, s->n_done, kept);
    if (!of_prompt) s->latest = kept ? node : PREFIX_NONE;
}

void seq_advance(struct seq *s, int n_tokens)
{
    int64_t wanted = next_snapshot(s);
    s->n_done += n_tokens;
    assert(n_tokens > 0 && s->n_done <= (int64_t)s->n_pages * KV_PAGE_TOKENS);
    publish(s);
    if (!s->state || s->n_done != (int64_t)s->n_published * KV_PAGE_TOKENS) return;
    if (s->n_done == wanted || s->followed || s->n_done >= s->n_given) keep_snapshot(s);
}

int seq_push(struct seq *s, int32_t id)
{
    assert(s->n_generated < s->job->max_new);
    s->ids[s->job->p.n_prompt + s->n_generated++] = id;
    if (s->keeps_history) sample_history_add(&s->history, id, false);
    struct draft_text text = text_of(s);
    return s->notes ? draft_note(&s->draft, &text) : 0;
}

bool seq_fork(struct seq *s, const struct seq *from, size_t page_bytes)
{
    assert(s->job == from->job && s->n_done <= from->n_done);
    drop_pages(s, 0);
    for (int i = 0; i < from->n_published; i++)
        add_page(s, from->nodes[i], prefix_acquire(s->cache, from->nodes[i]));
    s->n_published = from->n_published;
    s->n_done = from->n_done;
    for (int i = from->n_published; i < from->n_pages; i++) {
        if (!seq_reserve(s, (int64_t)(i + 1) * KV_PAGE_TOKENS)) return false;
        memcpy(s->data[i], from->data[i], page_bytes);
    }
    if (s->state) memcpy(s->state, from->state, s->states.n_floats * sizeof(*s->state));
    return true;
}

struct sample_row seq_sample_row(const struct seq *s, int64_t index, const uint64_t *mask,
                                 const struct eng_end_ids *eos)
{
    const struct eng_job_params *p = &s->job->p;
    struct sample_row row = {
        .chain = &p->sampling,
        .mask = mask,
        .history = s->keeps_history ? &s->history : NULL,
        .choice = p->first_choice + s->choice,
        .index = index,
    };
    if (index < p->min_tokens) {
        row.banned[0] = p->stop_ids;
        row.n_banned[0] = p->n_stop_ids;
        row.banned[1] = eos->ids;
        row.n_banned[1] = eos->n;
    }
    return row;
}
