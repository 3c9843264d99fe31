/* SPDX-License-Identifier: MIT */
/* The models that are alive, as one list; see model_set.h. */
#include "server/model_set.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "server/grammar_cache.h"

int srv_models_init(struct srv_models *set)
{
    pthread_condattr_t attr;
    *set = (struct srv_models){.has_lock = false};
    if (pthread_condattr_init(&attr)) return -1;
    bool made = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) == 0 &&
                pthread_cond_init(&set->released, &attr) == 0;
    pthread_condattr_destroy(&attr);
    if (!made) return -1;
    set->has_lock = pthread_mutex_init(&set->lock, NULL) == 0;
    if (!set->has_lock) pthread_cond_destroy(&set->released);
    return set->has_lock ? 0 : -1;
}

void srv_models_finish(struct srv_models *set)
{
    if (!set->has_lock) return;
    for (struct srv_model *m; (m = set->alive);) {
        set->alive = m->next;
        srv_model_close(m);
    }
    pthread_cond_destroy(&set->released);
    pthread_mutex_destroy(&set->lock);
}

/* ---- the list; with the lock held ---------------------------------------------------------- */

/* The link to the model that requests for an entry get, or to the place for it. */
static struct srv_model **find_place(struct srv_models *set, int entry)
{
    struct srv_model **link = &set->alive;
    while (*link && !(*link)->drains && (*link)->entry < entry)
        link = &(*link)->next;
    return link;
}

/* The model that requests for an entry get, or NULL. */
static struct srv_model *find(struct srv_models *set, int entry)
{
    struct srv_model *m = *find_place(set, entry);
    return m && !m->drains && m->entry == entry ? m : NULL;
}

/* The model that requests for a name get, or NULL. */
static struct srv_model *find_named(struct srv_models *set, const char *name)
{
    for (struct srv_model *m = set->alive; m && !m->drains; m = m->next)
        for (const char *const *own = m->names; *own; own++)
            if (!strcmp(*own, name)) return m;
    return NULL;
}

static void unlink_model(struct srv_models *set, const struct srv_model *model)
{
    struct srv_model **link = &set->alive;
    while (*link != model)
        link = &(*link)->next;
    *link = model->next;
}

static void append(struct srv_models *set, struct srv_model *model)
{
    struct srv_model **link = &set->alive;
    while (*link)
        link = &(*link)->next;
    *link = model;
    model->next = NULL;
}

/* ---- replacing ----------------------------------------------------------------------------- */

struct srv_model *srv_models_publish(struct srv_models *set, struct srv_model *model,
                                     int *ret_n_requests)
{
    model->set = set;
    model->created = (int64_t)time(NULL);
    pthread_mutex_lock(&set->lock);
    struct srv_model *before = find(set, model->entry);
    if (before) {
        unlink_model(set, before);
        before->drains = true;
        append(set, before);
    }
    struct srv_model **place = find_place(set, model->entry);
    model->next = *place;
    *place = model;
    *ret_n_requests = before ? before->n_refs : 0;
    pthread_mutex_unlock(&set->lock);
    return before;
}

int srv_models_wait(struct srv_models *set, const struct srv_model *model, uint64_t until_us)
{
    const struct timespec until = {(time_t)(until_us / 1000000), (long)(until_us % 1000000) * 1000};
    pthread_mutex_lock(&set->lock);
    if (model->n_refs > 0 && until_us)
        pthread_cond_timedwait(&set->released, &set->lock, &until);
    else if (model->n_refs > 0)
        pthread_cond_wait(&set->released, &set->lock);
    int n = model->n_refs;
    pthread_mutex_unlock(&set->lock);
    return n;
}

void srv_models_wake(struct srv_models *set)
{
    pthread_mutex_lock(&set->lock);
    pthread_cond_broadcast(&set->released);
    pthread_mutex_unlock(&set->lock);
}

/* Models share a directory, and one that drains has the same as its successor. */
static void add_kv_disk(struct eng_kv_disk_stats *sum, const struct eng_kv_disk_stats *s)
{
    sum->on |= s->on;
    sum->paused |= s->paused;
    if (s->bytes > sum->bytes) sum->bytes = s->bytes;
    sum->n_pages += s->n_pages;
    sum->n_restores += s->n_restores;
    sum->restore_us += s->restore_us;
    sum->n_read_bytes += s->n_read_bytes;
    sum->n_read_tokens += s->n_read_tokens;
    sum->n_written_bytes += s->n_written_bytes;
    sum->n_write_errors += s->n_write_errors;
    sum->n_dropped += s->n_dropped;
    for (int i = 0; i < ENG_KV_FAULTS; i++)
        sum->n_faults[i] += s->n_faults[i];
}

/* Adds the counters of an engine, and what it computes and has queued. */
static void add_stats(struct eng_stats *sum, const struct eng_stats *s)
{
    sum->n_running += s->n_running;
    sum->n_waiting += s->n_waiting;
    sum->n_waiting_tokens += s->n_waiting_tokens;
    sum->n_steps += s->n_steps;
    for (int i = 0; i < ENG_N_MISSES; i++)
        sum->n_misses[i] += s->n_misses[i];
    sum->n_snapshot_hits += s->n_snapshot_hits;
    sum->n_snapshots_evicted += s->n_snapshots_evicted;
    add_kv_disk(&sum->kv_disk, &s->kv_disk);
    sum->n_prompt_tokens += s->n_prompt_tokens;
    sum->n_cached_tokens += s->n_cached_tokens;
    sum->n_disk_tokens += s->n_disk_tokens;
    sum->n_computed_prompt_tokens += s->n_computed_prompt_tokens;
    sum->n_generated_tokens += s->n_generated_tokens;
    sum->n_jobs_done += s->n_jobs_done;
    sum->n_jobs_cancelled += s->n_jobs_cancelled;
    sum->n_jobs_failed += s->n_jobs_failed;
    sum->compute_us += s->compute_us;
    sum->n_late_masks += s->n_late_masks;
    for (int i = 0; i < ENG_DRAFT_SOURCES; i++) {
        sum->n_drafts[i] += s->n_drafts[i];
        sum->n_draft_tokens[i] += s->n_draft_tokens[i];
        sum->n_accepted_draft_tokens[i] += s->n_accepted_draft_tokens[i];
    }
    for (int i = 0; i < ENG_DRAFT_IDS; i++)
        sum->n_drafts_of_length[i] += s->n_drafts_of_length[i];
    sum->n_step_tokens += s->n_step_tokens;
    for (int i = 0; i < ENG_STEP_SIZES; i++)
        sum->n_steps_of_size[i] += s->n_steps_of_size[i];
}

void srv_models_close(struct srv_models *set, struct srv_model *model)
{
    struct eng_stats stats;
    eng_stop(model->engine);
    pthread_mutex_lock(&set->lock);
    assert(model->drains);
    eng_stats(model->engine, &stats);
    add_stats(&set->closed_stats, &stats);
    if (model->grammars) {
        struct grammar_cache_stats grammars = grammar_cache_stats(model->grammars);
        set->n_closed_grammar_hits += grammars.n_hits;
        set->n_closed_grammar_misses += grammars.n_misses;
    }
    unlink_model(set, model);
    pthread_mutex_unlock(&set->lock);
    srv_model_close(model);
}

/* ---- looking ------------------------------------------------------------------------------- */

void srv_models_each(struct srv_models *set, void (*fn)(void *ctx, struct srv_model *model),
                     void *ctx)
{
    pthread_mutex_lock(&set->lock);
    for (struct srv_model *m = set->alive; m; m = m->next)
        fn(ctx, m);
    pthread_mutex_unlock(&set->lock);
}

static void add_pages(struct eng_stats *sum, const struct eng_stats *s)
{
    sum->n_pages_total += s->n_pages_total;
    sum->n_pages_used += s->n_pages_used;
    sum->n_pages_cached += s->n_pages_cached;
    sum->n_pages_kept += s->n_pages_kept;
    sum->n_snapshots_total += s->n_snapshots_total;
    sum->n_snapshots += s->n_snapshots;
}

static void look_at(void *ctx, struct srv_model *m)
{
    struct srv_models_view *v = ctx;
    struct eng_stats stats;
    eng_stats(m->engine, &stats);
    if (v->n_loaded++ == 0) {
        struct eng_stats sum = v->stats;
        v->stats = stats;
        add_stats(&v->stats, &sum);
    } else {
        add_stats(&v->stats, &stats);
        if (!m->drains) add_pages(&v->stats, &stats);
    }
    if (m->drains) v->n_draining += m->n_refs;
    if (!m->grammars) return;
    struct grammar_cache_stats grammars = grammar_cache_stats(m->grammars);
    v->n_grammar_hits += grammars.n_hits;
    v->n_grammar_misses += grammars.n_misses;
}

void srv_models_look(struct srv_models *set, struct srv_models_view *ret)
{
    pthread_mutex_lock(&set->lock);
    *ret = (struct srv_models_view){.stats = set->closed_stats,
                                    .n_grammar_hits = set->n_closed_grammar_hits,
                                    .n_grammar_misses = set->n_closed_grammar_misses};
    for (struct srv_model *m = set->alive; m; m = m->next)
        look_at(ret, m);
    pthread_mutex_unlock(&set->lock);
}

struct srv_model *srv_models_of(struct srv_models *set, int entry)
{
    pthread_mutex_lock(&set->lock);
    struct srv_model *model = find(set, entry);
    pthread_mutex_unlock(&set->lock);
    return model;
}

static size_t add_names(const struct srv_model *model, char *buf, size_t size, size_t len)
{
    for (const char *const *name = model->names; *name && len < size; name++)
        len += (size_t)snprintf(buf + len, size - len, "%s'%.100s'", len ? ", " : "", *name);
    return len;
}

const char *srv_models_list_names(const struct srv_model *model, char *buf, size_t size)
{
    struct srv_models *set = model->set;
    size_t len = 0;
    *buf = '\0';
    if (!set) {
        add_names(model, buf, size, len);
        return buf;
    }
    pthread_mutex_lock(&set->lock);
    for (const struct srv_model *m = set->alive; m && !m->drains; m = m->next)
        len = add_names(m, buf, size, len);
    pthread_mutex_unlock(&set->lock);
    return buf;
}

int srv_models_find(struct srv_models *set, const char *name)
{
    pthread_mutex_lock(&set->lock);
    const struct srv_model *m = find_named(set, name);
    int entry = m ? m->entry : -1;
    pthread_mutex_unlock(&set->lock);
    return entry;
}

/* ---- references ---------------------------------------------------------------------------- */

struct srv_model *srv_models_take(struct srv_models *set, const char *name)
{
    pthread_mutex_lock(&set->lock);
    struct srv_model *m = name ? find_named(set, name) : NULL;
    if (!m) m = find(set, 0);
    if (m) m->n_refs++;
    pthread_mutex_unlock(&set->lock);
    return m;
}

void srv_model_release(struct srv_model *model)
{
    if (!model) return;
    struct srv_models *set = model->set;
    pthread_mutex_lock(&set->lock);
    assert(model->n_refs > 0);
    if (--model->n_refs == 0 && model->drains) pthread_cond_broadcast(&set->released);
    pthread_mutex_unlock(&set->lock);
}
