/* SPDX-License-Identifier: MIT */
/* Entries and live models under one lock; see set.h. */
#include "server/models/set.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/thread.h"
#include "server/config/config.h"
#include "server/grammars/cache.h"
#include "server/log.h"
#include "server/models/loras.h"

enum { RETRY_FAILED_US = 30000000, LOOK_MS = 5, MIB = 1 << 20, BYTES_PER_MS = 1000000 };

void srv_models_init(struct srv_models *set)
{
    *set = (struct srv_models){.autoload = true};
    thread_cond_init(&set->changed);
    pthread_mutex_init(&set->lock, NULL);
    pthread_mutex_init(&set->loading, NULL);
}

void srv_source_finish(struct srv_source *s)
{
    free(s->dir);
    free(s->draft_dir);
    free(s->draft_name);
    free((void *)s->names);
    *s = (struct srv_source){0};
}

static void free_entry(struct srv_entry *e)
{
    srv_source_finish(&e->source);
    free(e->own);
    free(e);
}

/* Frees what is left of closed models whose answers have been sent. */
static void drop_sent(struct srv_models *set)
{
    for (struct srv_model **link = &set->unsent, *m; (m = *link);) {
        if (m->n_unsent) {
            link = &m->next;
            continue;
        }
        *link = m->next;
        free(m);
    }
}

void srv_models_finish(struct srv_models *set)
{
    for (struct srv_model *m = set->alive; m; m = m->next)
        eng_stop_begin(m->engine);
    srv_loras_close(set, NULL);
    for (struct srv_model *m; (m = set->alive);) {
        set->alive = m->next;
        srv_model_close(m);
    }
    drop_sent(set);
    for (int i = 0; i < set->n_entries; i++)
        free_entry(set->entries[i]);
    pthread_cond_destroy(&set->changed);
    pthread_mutex_destroy(&set->lock);
    pthread_mutex_destroy(&set->loading);
}

const char *srv_public_reason(const char *why)
{
    return strchr(why, '/') || strstr(why, "iB") ? "the server's log says why" : why;
}

/* For the one who waits. */
static void tell(const struct srv_entry *e, struct srv_wait *w)
{
    const char *why = w->by_operator ? e->reason : srv_public_reason(e->reason);
    snprintf(w->message, sizeof(w->message), "%s", why);
}

/* ---- entries ------------------------------------------------------------------------------- */

static bool copy_text(char **ret, const char *text)
{
    *ret = text ? strdup(text) : NULL;
    return *ret || !text;
}

int srv_source_copy(struct srv_source *ret, const struct srv_model_params *p)
{
    *ret = (struct srv_source){
        .is_demo = p->is_demo, .names = srv_names_copy(&p->names).items, .share = p->share};
    if (ret->names && copy_text(&ret->dir, p->dir) && copy_text(&ret->draft_dir, p->draft_dir) &&
        copy_text(&ret->draft_name, p->draft_name))
        return 0;
    srv_source_finish(ret);
    return -1;
}

/*
 * The number for a new entry; if all are taken that of the one which has been gone, with all its
 * models, for the longest: requests that found that one have asked for it. -1: there are too many.
 * On the loader's thread.
 */
static int find_free(const struct srv_models *set)
{
    int best = -1;
    if (set->n_entries < POLICY_ENTRIES) return set->n_entries;
    for (int i = 0; i < set->n_entries; i++) {
        const struct srv_entry *e = set->entries[i];
        bool used = !e->gone;
        for (const struct srv_model *m = set->alive; m; m = m->next)
            used |= m->entry == i;
        if (!used && (best < 0 || e->failed_us < set->entries[best]->failed_us)) best = i;
    }
    return best;
}

struct srv_entry *srv_models_add(struct srv_models *set, const struct srv_config *config,
                                 const struct srv_model_params *params)
{
    struct srv_entry *e = calloc(1, sizeof(*e));
    HOLD(&set->lock);
    int number = find_free(set);
    if (!e || number < 0 || srv_source_copy(&e->source, params)) {
        free(e);
        return NULL;
    }
    e->config = config;
    e->created = (int64_t)time(NULL);
    e->end = &e->first;
    e->number = number;
    if (number == set->n_entries)
        set->n_entries++;
    else
        free_entry(set->entries[number]);
    set->entries[number] = e;
    return e;
}

struct srv_list srv_names_list(const char *const *names)
{
    struct srv_list list = {(const char **)names, 0};
    while (names[list.n])
        list.n++;
    return list;
}

struct srv_model_params srv_source_params(const struct srv_entry *e, const struct srv_source *s)
{
    return (struct srv_model_params){
        .config = e->config,
        .dir = s->dir,
        .draft_dir = s->draft_dir,
        .draft_name = s->draft_name,
        .names = srv_names_list(s->names),
        .entry = e->number,
        .share = s->share,
        .is_demo = s->is_demo,
    };
}

void srv_models_each_entry(struct srv_models *set,
                           void (*fn)(void *ctx, const struct srv_entry *entry), void *ctx)
{
    HOLD(&set->lock);
    for (int i = 0; i < set->n_entries; i++)
        if (!set->entries[i]->gone) fn(ctx, set->entries[i]);
}

const char *srv_entry_state_name(const struct srv_entry *e)
{
    static const char *const names[] = {"unloaded", "loading", "loaded", "failed"};
    return e->state == SRV_UNLOADED && e->first ? "queued" : names[e->state];
}

int64_t srv_entry_ctx(const struct srv_entry *e)
{
    return e->model ? srv_model_longest(e->model) : e->source.facts.ctx_tokens;
}

bool srv_is_tagged(const char *asked, const char *name)
{
    size_t len = strlen(name);
    return !strncmp(asked, name, len) && !strcmp(asked + len, ":latest");
}

bool srv_entry_is_of(const struct srv_entry *e, const char *only)
{
    for (const char *name = only; name && *name; name += strlen(name) + 1)
        for (const char *const *own = e->source.names; *own; own++)
            if (!strcmp(name, *own)) return true;
    return !only;
}

/* tagged: the name without the tag that `asked` has. */
static int find(struct srv_models *set, const char *only, const char *asked, bool tagged)
{
    int found = -1;
    HOLD(&set->lock);
    for (int i = 0; i < set->n_entries && found < 0; i++) {
        const struct srv_entry *e = set->entries[i];
        for (const char *const *own = e->source.names; !e->gone && *own; own++)
            if (tagged ? srv_is_tagged(asked, *own) : !strcmp(*own, asked))
                found = srv_entry_is_of(e, only) ? i : -1;
    }
    return found;
}

int srv_models_find(struct srv_models *set, const char *name)
{
    return find(set, NULL, name, false);
}

int srv_models_find_of(struct srv_models *set, const char *only, const char *name, bool tagged)
{
    int found = find(set, only, name, false);
    return found < 0 && tagged ? find(set, only, name, true) : found;
}

void srv_models_note(struct srv_models *set, int entry, const char *dir, unsigned abilities,
                     const uint8_t digest[32])
{
    HOLD(&set->lock);
    struct srv_source *s = &set->entries[entry]->source;
    if (!strcmp(s->dir, dir)) {
        s->facts.is_known = true;
        s->facts.abilities = abilities;
        memcpy(s->facts.digest, digest, sizeof(s->facts.digest));
    }
}

int srv_models_count(struct srv_models *set)
{
    int n = 0;
    HOLD(&set->lock);
    for (int i = 0; i < set->n_entries; i++)
        n += !set->entries[i]->gone;
    return n;
}

bool srv_models_is_loaded(struct srv_models *set, int entry)
{
    HOLD(&set->lock);
    return entry >= 0 && entry < set->n_entries && set->entries[entry]->model;
}

const char *srv_models_name(struct srv_models *set, int entry, char *buf, size_t size)
{
    HOLD(&set->lock);
    snprintf(buf, size, "%s", set->entries[entry]->source.names[0]);
    return buf;
}

bool srv_is_placeholder(const char *name)
{
    return !strcmp(name, "default") || !strcmp(name, "tgi") || !strcmp(name, "dummy");
}

const char *srv_models_names(struct srv_models *set, const char *only, char *buf, size_t size)
{
    size_t len = 0;
    *buf = '\0';
    HOLD(&set->lock);
    for (int i = 0; i < set->n_entries; i++) {
        const struct srv_entry *e = set->entries[i];
        if (e->gone || !srv_entry_is_of(e, only)) continue;
        for (const char *const *name = e->source.names; *name && len < size; name++)
            len += (size_t)snprintf(buf + len, size - len, "%s'%.100s'", len ? ", " : "", *name);
    }
    if (!len) snprintf(buf, size, "none that this key may use");
    return buf;
}

/* ---- the list of live models; with the lock held ------------------------------------------- */

static void unlink_model(struct srv_models *set, const struct srv_model *model)
{
    struct srv_model **link = &set->alive;
    while (*link != model)
        link = &(*link)->next;
    *link = model->next;
}

/* Those that requests get by entry, then those that drain. */
static void link_model(struct srv_models *set, struct srv_model *model)
{
    struct srv_model **link = &set->alive;
    while (*link && (model->drains || (!(*link)->drains && (*link)->entry < model->entry)))
        link = &(*link)->next;
    model->next = *link;
    *link = model;
}

/* From now on no request gets the entry's model. */
static struct srv_model *close_door(struct srv_models *set, struct srv_entry *e,
                                    enum srv_eviction why)
{
    struct srv_model *m = e->model;
    uint64_t drain_us = (uint64_t)e->config->swap_drain_ms * 1000;
    unlink_model(set, m);
    m->drains = true;
    m->cut_us = drain_us ? clock_now_us() + drain_us : 0;
    link_model(set, m);
    e->model = NULL;
    e->state = SRV_UNLOADED;
    e->n_evictions[why]++;
    pthread_cond_signal(&set->changed);
    return m;
}

/* ---- waits --------------------------------------------------------------------------------- */

/* Ended waits, to be woken without the lock. */
struct woken {
    struct srv_wait *first, **end;
};

/* They are woken at the end of the scope; a lock that is held until then is taken after this. */
#define WOKEN(name) AUTO(wake) struct woken name = {NULL, &name.first}

static void add_woken(struct woken *woken, struct srv_wait *w)
{
    w->next = NULL;
    *woken->end = w;
    woken->end = &w->next;
}

/* Takes a wait out of its entry's; with the lock held. Its end is set before the next step. */
static void end_wait(struct srv_entry *e, struct srv_wait **link, enum srv_wait_end how,
                     struct woken *woken)
{
    struct srv_wait *w = *link;
    *link = w->next;
    if (e->end == &w->next) e->end = link;
    e->n_waiters--;
    add_woken(woken, w);
    if (how == SRV_WAIT_GIVEN) {
        w->model = e->model;
        e->model->n_refs++;
    }
    if (how == SRV_WAIT_FAILED) tell(e, w);
    atomic_store(&w->end, how);
}

static void end_waits(struct srv_entry *e, enum srv_wait_end how, struct woken *woken)
{
    while (e->first)
        end_wait(e, &e->first, how, woken);
}

static void wake(const struct woken *woken)
{
    for (struct srv_wait *w = woken->first, *next; w; w = next) {
        next = w->next;
        w->wake(w, true);
    }
}

void srv_wait_done(struct srv_wait *w)
{
    if (!w) return;
    atomic_store(&w->end, SRV_WAIT_DONE);
    w->wake(w, true);
}

static struct fit_room room_of(const struct srv_models *set)
{
    return (struct fit_room){set->limit_bytes ? set->limit_bytes : INT64_MAX / 2, set->max_models};
}

/* The oldest waiter for whom others may be evicted, or NULL. */
static const struct srv_wait *find_evictor(const struct srv_models *set, const struct srv_entry *e,
                                           uint64_t now_us)
{
    const struct srv_wait *w = e->first;
    while (w && !policy_may_evict(&set->keys, w->key, now_us))
        w = w->next;
    return w;
}

/* The entries as the policy sees them. Returns their number. */
static int look_for_policy(const struct srv_models *set, struct policy_entry to[POLICY_ENTRIES],
                           struct policy_room *room, uint64_t now_us)
{
    *room = (struct policy_room){.all = room_of(set)};
    for (int i = 0; i < set->n_entries; i++) {
        const struct srv_entry *e = set->entries[i];
        const struct srv_wait *evictor = find_evictor(set, e, now_us);
        to[i] = (struct policy_entry){.loaded = e->model != NULL,
                                      .pinned = e->config->pin,
                                      .bytes = e->source.plan_bytes,
                                      .waits_since_us = e->first ? e->first->since_us : 0,
                                      .evicts_since_us = evictor ? evictor->since_us : 0,
                                      .n_refs = e->model ? e->model->n_refs : 0,
                                      .load_us = e->load_us,
                                      .loaded_us = e->loaded_us,
                                      .admitted_us = e->admitted_us,
                                      .used_us = e->used_us};
    }
    for (const struct srv_model *m = set->alive; m; m = m->next)
        if (m->drains) fit_add(&room->draining, m->plan_bytes);
    for (struct srv_model *m = set->unsent; m; m = m->next)
        room->draining.bytes += atomic_load(&m->answer_bytes);
    return set->n_entries;
}

/* The pinned ones but for the entry. */
static struct fit_sum pinned_beside(const struct srv_models *set, const struct srv_entry *e)
{
    struct fit_sum sum = {0};
    for (int i = 0; i < set->n_entries; i++)
        if (set->entries[i] != e && set->entries[i]->config->pin)
            fit_add(&sum, set->entries[i]->source.plan_bytes);
    return sum;
}

/* Whether the entry fits next to the pinned ones; else says why not. */
static bool can_fit(const struct srv_models *set, const struct srv_entry *e, struct srv_wait *w)
{
    const struct fit_room room = room_of(set);
    struct fit_sum sum = pinned_beside(set, e);
    char *why = w->message;
    const size_t size = sizeof(w->message);
    if (e->is_unavailable) {
        tell(e, w);
        return false;
    }
    fit_add(&sum, e->source.plan_bytes);
    if (fit_holds(&room, sum)) return true;
    if (!w->by_operator) {
        snprintf(why, size, "there is no room for it next to the pinned models");
        return false;
    }
    size_t len = (size_t)snprintf(
        why, size, "It takes %lld MiB, the limit is %lld MiB, and pinned models have theirs:",
        (long long)(e->source.plan_bytes / MIB), (long long)(room.limit_bytes / MIB));
    for (int i = 0; i < set->n_entries && len < size; i++)
        if (set->entries[i] != e && set->entries[i]->config->pin)
            len +=
                (size_t)snprintf(why + len, size - len, " %.60s", set->entries[i]->source.names[0]);
    return false;
}

static bool has_place(const struct srv_entry *e, const struct srv_wait *w)
{
    const struct srv_config *c = e->config;
    int most = c->parallel + (c->max_queue ? c->max_queue : 4 * c->parallel), n_own = 0;
    if (w->by_operator) return true;
    for (const struct srv_wait *other = e->first; other; other = other->next)
        n_own += other->key == w->key && !other->by_operator;
    return e->n_waiters < most && (!w->several_keys || n_own < most / 2);
}

/* Nobody waits any longer for the load of an entry. */
static void bar_evictor(struct srv_models *set, struct srv_entry *e, uint64_t now_us)
{
    uint64_t known_us =
                 e->load_us ? e->load_us : (uint64_t)e->source.plan_bytes / BYTES_PER_MS * 1000,
             so_far_us = e->began_us ? now_us - e->began_us : 0;
    if (e->has_evicted)
        policy_bar(&set->keys, e->evictor, so_far_us > known_us ? so_far_us : known_us, now_us);
    e->has_evicted = false;
}

static enum srv_ask ask(struct srv_models *set, struct srv_entry *e, struct srv_wait *w)
{
    uint64_t now_us = clock_now_us();
    if (e->model) {
        e->admitted_us = e->used_us = now_us;
        w->model = e->model;
        w->model->n_refs++;
        return SRV_ASK_GIVEN;
    }
    if (atomic_load(&set->stop)) return SRV_ASK_CLOSED;
    if (!w->by_operator && (w->no_load || !set->autoload)) return SRV_ASK_UNLOADED;
    if (!w->by_operator && e->state == SRV_LOAD_FAILED && now_us < e->failed_us + RETRY_FAILED_US) {
        tell(e, w);
        return SRV_ASK_FAILED;
    }
    if (e->gone) tell(e, w);
    if (e->gone || !can_fit(set, e, w)) return SRV_ASK_UNAVAILABLE;
    if (!has_place(e, w)) return SRV_ASK_FULL;
    if (e->state == SRV_LOAD_FAILED) e->state = SRV_UNLOADED;
    w->entry = e->number;
    w->since_us = now_us;
    w->noticed = false;
    w->next = NULL;
    *e->end = w;
    e->end = &w->next;
    e->n_waiters++;
    pthread_cond_signal(&set->changed);
    return SRV_ASK_WAITS;
}

enum srv_ask srv_models_ask(struct srv_models *set, int entry, struct srv_wait *w)
{
    atomic_store(&w->end, SRV_WAITS);
    HOLD(&set->lock);
    return ask(set, set->entries[entry], w);
}

void srv_models_leave(struct srv_models *set, struct srv_wait *w)
{
    WOKEN(woken);
    HOLD(&set->lock);
    struct srv_entry *e = set->entries[w->entry];
    for (struct srv_wait **link = &e->first; *link; link = &(*link)->next) {
        if (*link != w) continue;
        end_wait(e, link, SRV_WAIT_LEFT, &woken);
        break;
    }
    if (woken.first && !e->first) {
        if (e->state == SRV_LOADING_MODEL)
            atomic_store(&set->give_up, true);
        else
            bar_evictor(set, e, clock_now_us());
    }
}

struct fit_bytes srv_models_room(struct srv_models *set, int entry)
{
    HOLD(&set->lock);
    const struct srv_entry *e = set->entries[entry];
    struct fit_bytes bytes = {e->source.plan_bytes, set->limit_bytes - pinned_beside(set, e).bytes,
                              set->limit_bytes};
    return bytes;
}

int64_t srv_models_load_ms(struct srv_models *set, int entry)
{
    HOLD(&set->lock);
    const struct srv_entry *e = set->entries[entry];
    return e->load_us ? (int64_t)(e->load_us / 1000) : e->source.plan_bytes / BYTES_PER_MS;
}

/* ---- references ---------------------------------------------------------------------------- */

void srv_model_release(struct srv_model *model, bool used)
{
    if (!model) return;
    struct srv_models *set = model->set;
    HOLD(&set->lock);
    assert(model->n_refs > 0);
    if (used && !model->drains) set->entries[model->entry]->used_us = clock_now_us();
    if (--model->n_refs == 0) pthread_cond_signal(&set->changed);
}

void srv_model_keep_answer(struct srv_model *model)
{
    HOLD(&model->set->lock);
    model->n_unsent++;
}

void srv_model_drop_answer(struct srv_model *model, int64_t bytes)
{
    struct srv_models *set = model->set;
    HOLD(&set->lock);
    long long before = atomic_fetch_sub(&model->answer_bytes, bytes);
    assert(before >= bytes && model->n_unsent > 0);
    (void)before;
    if (--model->n_unsent == 0) pthread_cond_signal(&set->changed);
}

/* ---- loading and leaving ------------------------------------------------------------------- */

struct srv_model *srv_models_publish(struct srv_models *set, struct srv_model *model,
                                     struct srv_source *next, int *ret_n_requests)
{
    WOKEN(woken);
    struct srv_model *before = NULL;
    model->set = set;
    model->created = (int64_t)time(NULL);
    HOLD(&set->lock);
    struct srv_entry *e = set->entries[model->entry];
    if (next) {
        srv_source_finish(&e->source);
        e->source = *next;
    }
    if (e->model) before = close_door(set, e, SRV_EVICT_REPLACED);
    link_model(set, model);
    e->model = model;
    model->plan_bytes = e->source.plan_bytes;
    e->state = SRV_LOADED;
    e->reason[0] = '\0';
    e->n_loads++;
    e->loaded_us = e->used_us = clock_now_us();
    if (!e->first && atomic_load(&set->give_up)) bar_evictor(set, e, e->loaded_us);
    e->has_evicted = false;
    if (e->began_us) e->load_us = e->loaded_us - e->began_us;
    e->began_us = 0;
    if (e->first) e->admitted_us = e->loaded_us;
    end_waits(e, SRV_WAIT_GIVEN, &woken);
    *ret_n_requests = before ? before->n_refs : 0;
    return before;
}

static void begin(struct srv_models *set, struct srv_entry *e)
{
    e->state = SRV_LOADING_MODEL;
    e->began_us = clock_now_us();
    atomic_store(&set->give_up, atomic_load(&set->stop));
}

void srv_models_begin(struct srv_models *set, int entry)
{
    HOLD(&set->lock);
    begin(set, set->entries[entry]);
}

void srv_models_fail(struct srv_models *set, int entry, const char *why, bool given_up)
{
    WOKEN(woken);
    HOLD(&set->lock);
    struct srv_entry *e = set->entries[entry];
    e->state = given_up ? SRV_UNLOADED : SRV_LOAD_FAILED;
    if (given_up) bar_evictor(set, e, clock_now_us());
    e->has_evicted = false;
    e->began_us = 0;
    if (!given_up) {
        snprintf(e->reason, sizeof(e->reason), "%s", why);
        e->failed_us = clock_now_us();
        e->n_failed_loads++;
        end_waits(e, SRV_WAIT_FAILED, &woken);
    }
}

bool srv_model_await_end(struct srv_model *model, struct srv_wait *w)
{
    if (!w || atomic_load(&model->set->stop)) return false;
    model->awaits_end = w;
    return true;
}

enum srv_unload srv_models_unload(struct srv_models *set, int entry, int *ret_n_requests,
                                  struct srv_wait *w)
{
    HOLD(&set->lock);
    struct srv_entry *e = set->entries[entry];
    if (!e->model) return SRV_UNLOAD_NOT_LOADED;
    if (e->config->pin) return SRV_UNLOAD_PINNED;
    struct srv_model *m = close_door(set, e, SRV_EVICT_REQUEST);
    *ret_n_requests = m->n_refs;
    srv_log(SRV_LOG_INFO, "models: %s is unloaded: an operator asked for it, %d requests drain",
            m->names[0], m->n_refs);
    return srv_model_await_end(m, w) ? SRV_UNLOAD_WAITS : SRV_UNLOAD_OK;
}

void srv_models_settle(struct srv_models *set, struct srv_entry *e, struct srv_config *own,
                       const struct srv_share *share, const struct srv_model_facts *facts,
                       int64_t plan_bytes, const char *why, const uint8_t digest[32])
{
    HOLD(&set->lock);
    if (own) e->own = own;
    if (e->model) close_door(set, e, SRV_EVICT_REPLACED);
    e->state = SRV_UNLOADED;
    e->source.share = *share;
    e->source.facts = *facts;
    e->source.plan_bytes = plan_bytes;
    e->is_unavailable = why != NULL;
    snprintf(e->reason, sizeof(e->reason), "%s", why ? why : "");
    memcpy(e->digest, digest, sizeof(e->digest));
}

void srv_models_remove(struct srv_models *set, int entry)
{
    WOKEN(woken);
    HOLD(&set->lock);
    struct srv_entry *e = set->entries[entry];
    srv_log(SRV_LOG_INFO, "models: %s has vanished", e->source.names[0]);
    if (e->model) close_door(set, e, SRV_EVICT_REQUEST);
    e->gone = true;
    if (set->default_entry == entry) set->default_entry = -1;
    e->failed_us = clock_now_us();
    snprintf(e->reason, sizeof(e->reason), "its directory has vanished");
    end_waits(e, SRV_WAIT_FAILED, &woken);
}

bool srv_models_post(struct srv_models *set, enum srv_task_kind job)
{
    HOLD(&set->lock);
    bool stopped = atomic_load(&set->stop);
    *(job == SRV_TASK_SWAP ? &set->has_swap : &set->has_scan) |= !stopped;
    pthread_cond_signal(&set->changed);
    return !stopped;
}

void srv_models_stop(struct srv_models *set)
{
    WOKEN(woken);
    HOLD(&set->lock);
    atomic_store(&set->stop, true);
    atomic_store(&set->give_up, true);
    for (int i = 0; i < set->n_entries; i++)
        end_waits(set->entries[i], SRV_WAIT_CLOSED, &woken);
    for (struct srv_model *m = set->alive; m; m = m->next) {
        if (!m->awaits_end) continue;
        atomic_store(&m->awaits_end->end, SRV_WAIT_DONE);
        add_woken(&woken, m->awaits_end);
        m->awaits_end = NULL;
    }
    pthread_cond_signal(&set->changed);
}

/* Waits that have lasted long enough: too long, or to be heard of. */
static void look_at_waits(const struct srv_models *set, struct srv_entry *e, uint64_t now_us,
                          struct woken *late)
{
    for (struct srv_wait **link = &e->first, *w; (w = *link);) {
        uint64_t waited_us = now_us - w->since_us;
        if (set->wait_us && waited_us >= set->wait_us && !w->by_operator) {
            end_wait(e, link, SRV_WAIT_LATE, late);
            continue;
        }
        bool notice = set->notice_us && !w->noticed && waited_us >= set->notice_us;
        link = &w->next;
        if (!notice) continue;
        w->noticed = true;
        w->wake(w, false);
    }
}

void srv_models_tick(struct srv_models *set)
{
    WOKEN(late);
    HOLD(&set->lock);
    uint64_t now_us = clock_now_us(); /* later than any wait began */
    for (int i = 0; i < set->n_entries; i++)
        look_at_waits(set, set->entries[i], now_us, &late);
    pthread_cond_signal(&set->changed);
}

/* A model that has drained, or one whose time for that is over. */
static bool find_drained(const struct srv_models *set, uint64_t now_us, struct srv_task *ret)
{
    for (struct srv_model *m = set->alive; m; m = m->next) {
        if (!m->drains) continue;
        bool late = m->cut_us && now_us >= m->cut_us;
        if (m->n_refs > 0 && !late) continue;
        if (m->n_refs == 0 && !eng_stop_begin(m->engine)) continue; /* its pages go to a disk */
        *ret = (struct srv_task){m->n_refs ? SRV_TASK_CUT : SRV_TASK_FREE, m->entry, m};
        m->cut_us = 0;
        return true;
    }
    return false;
}

static void close_idle(struct srv_models *set, uint64_t now_us)
{
    for (int i = 0; i < set->n_entries; i++) {
        struct srv_entry *e = set->entries[i];
        uint64_t idle_us = (uint64_t)e->config->idle_unload_s * 1000000;
        if (!e->model || !idle_us || e->config->pin || e->model->n_refs ||
            now_us < e->used_us + idle_us)
            continue;
        srv_log(SRV_LOG_INFO, "models: %s is unloaded: idle for %llu s", e->source.names[0],
                (unsigned long long)((now_us - e->used_us) / 1000000));
        close_door(set, e, SRV_EVICT_IDLE);
    }
}

/* Closes the doors of those that make room. Returns true if an entry is to be loaded. */
static bool find_load(struct srv_models *set, uint64_t now_us, struct srv_task *ret)
{
    struct policy_entry entries[POLICY_ENTRIES];
    struct policy_room room;
    int n = look_for_policy(set, entries, &room, now_us);
    const struct policy_step step = policy_next(entries, n, &room, now_us);
    if (step.act == POLICY_CLOSE) {
        struct srv_entry *e = set->entries[step.entry], *by = set->entries[step.on_behalf];
        by->has_evicted = true;
        by->evictor = find_evictor(set, by, now_us)->key;
        srv_log(SRV_LOG_INFO,
                "models: %s drains for %s (needs %lld MiB), %d requests, used %.1f s ago",
                e->source.names[0], by->source.names[0], (long long)(by->source.plan_bytes / MIB),
                e->model->n_refs, (double)(now_us - e->used_us) * 1e-6);
        close_door(set, e, SRV_EVICT_MEMORY);
        return find_load(set, now_us, ret);
    }
    if (step.act != POLICY_LOAD) return false;
    begin(set, set->entries[step.entry]);
    *ret = (struct srv_task){SRV_TASK_LOAD, step.entry, NULL};
    return true;
}

/* While somebody waits, or a model ends, what that waits for is looked at often. */
static void wait_for_change(struct srv_models *set)
{
    const struct timespec until = clock_after_ms(LOOK_MS);
    bool anyone = false;
    for (int i = 0; i < set->n_entries; i++)
        anyone |= set->entries[i]->first != NULL;
    for (const struct srv_model *m = set->alive; m; m = m->next)
        anyone |= m->drains && m->n_refs == 0;
    if (anyone)
        pthread_cond_timedwait(&set->changed, &set->lock, &until);
    else
        pthread_cond_wait(&set->changed, &set->lock);
}

struct srv_task srv_models_await(struct srv_models *set)
{
    struct srv_task task = {SRV_TASK_STOP, -1, NULL};
    HOLD(&set->lock);
    for (;;) {
        uint64_t now_us = clock_now_us();
        drop_sent(set);
        if (set->has_swap) {
            set->has_swap = false;
            return (struct srv_task){SRV_TASK_SWAP, -1, NULL};
        }
        if (atomic_load(&set->stop)) return task;
        if (set->has_scan) {
            set->has_scan = false;
            return (struct srv_task){SRV_TASK_SCAN, -1, NULL};
        }
        close_idle(set, now_us);
        if (find_drained(set, now_us, &task) || find_load(set, now_us, &task)) return task;
        wait_for_change(set);
    }
}

struct srv_wait *srv_models_close(struct srv_models *set, struct srv_model *model)
{
    struct eng_stats stats;
    eng_stop(model->engine);
    pthread_mutex_lock(&set->lock);
    assert(model->drains);
    eng_stats(model->engine, &stats);
    eng_stats_add(&set->entries[model->entry]->closed_stats, &stats, false);
    if (model->grammars) {
        struct grammar_cache_stats grammars = grammar_cache_stats(model->grammars);
        set->n_closed_grammar_hits += grammars.n_hits;
        set->n_closed_grammar_misses += grammars.n_misses;
    }
    unlink_model(set, model);
    struct srv_wait *w = model->awaits_end;
    pthread_mutex_unlock(&set->lock);
    srv_loras_close(set, model);
    srv_model_empty(model);
    pthread_mutex_lock(&set->lock);
    model->next = set->unsent;
    set->unsent = model;
    drop_sent(set);
    pthread_mutex_unlock(&set->lock);
    return w;
}

/* ---- looking ------------------------------------------------------------------------------- */

void srv_models_each(struct srv_models *set, void (*fn)(void *ctx, struct srv_model *model),
                     void *ctx)
{
    HOLD(&set->lock);
    for (struct srv_model *m = set->alive; m; m = m->next)
        fn(ctx, m);
}

static void add_engine(struct eng_stats *sum, const struct srv_model *m, bool with_pages,
                       bool with_speeds)
{
    struct eng_stats stats;
    eng_stats(m->engine, &stats);
    eng_stats_add(sum, &stats, with_pages);
    if (!with_speeds) return;
    sum->prompt_tokens_per_s = stats.prompt_tokens_per_s;
    sum->generated_tokens_per_s = stats.generated_tokens_per_s;
}

void srv_models_look(struct srv_models *set, struct srv_models_view *ret)
{
    HOLD(&set->lock);
    *ret = (struct srv_models_view){.n_grammar_hits = set->n_closed_grammar_hits,
                                    .n_grammar_misses = set->n_closed_grammar_misses};
    for (int i = 0; i < set->n_entries; i++)
        eng_stats_add(&ret->stats, &set->entries[i]->closed_stats, false);
    for (const struct srv_model *m = set->alive; m; m = m->next) {
        bool first = ret->n_loaded++ == 0;
        add_engine(&ret->stats, m, first || !m->drains, first);
        if (m->drains) ret->n_draining += m->n_refs;
        if (!m->grammars) continue;
        struct grammar_cache_stats grammars = grammar_cache_stats(m->grammars);
        ret->n_grammar_hits += grammars.n_hits;
        ret->n_grammar_misses += grammars.n_misses;
    }
}

void srv_entry_stats(const struct srv_models *set, const struct srv_entry *e, struct eng_stats *ret)
{
    *ret = e->closed_stats;
    for (const struct srv_model *m = set->alive; m; m = m->next)
        if (m->entry == e->number) add_engine(ret, m, !m->drains, !m->drains);
}

struct srv_model *srv_models_of(struct srv_models *set, int entry)
{
    HOLD(&set->lock);
    struct srv_model *model =
        entry >= 0 && entry < set->n_entries ? set->entries[entry]->model : NULL;
    if (model) model->n_refs++;
    return model;
}
