/* SPDX-License-Identifier: MIT */
/* The steps of a swap, top to bottom in run(); see swap.h. */
#include "server/models/swap.h"

#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/heap.h"
#include "engine/engine.h"
#include "server/bounds.h"
#include "server/models/app.h"
#include "server/models/catalogue.h"
#include "server/grammars/compile_queue.h"
#include "server/log.h"
#include "server/models/lookup.h"
#include "server/systemd.h"

struct srv_swap {
    struct srv_app *app;
    struct eng_cores *cores;

    pthread_mutex_t lock; /* guards the fields down to the next blank line */
    pthread_cond_t stopped;
    struct srv_swap_view view;

    /* The running swap, from claim() to idle: the loader's thread's, but p.on_end, and the outcome
     * while it drains, are guarded by the lock. */
    struct srv_swap_params p;
    char *asked, *draft;       /* copies of p.model and p.draft_model */
    struct srv_list own_names; /* of the entry */
    const struct srv_entry *entry;
    const struct srv_config *config; /* of the entry */
    char dir[PATH_MAX], draft_dir[PATH_MAX];
    struct srv_swap_outcome outcome;
};

static const char *const state_names[] = {"idle", "planning", "loading", "testing", "draining"};

const char *srv_swap_state_name(enum srv_swap_state state)
{
    return state_names[state];
}

static bool is_stopped(struct srv_swap *s)
{
    return atomic_load(&s->app->models.stop);
}

static void set_state(struct srv_swap *s, enum srv_swap_state state)
{
    const char *hold = s->app->config->debug_hold_swap;
    pthread_mutex_lock(&s->lock);
    s->view.state = state;
    s->view.since = (int64_t)time(NULL);
    while (hold && !strcmp(hold, state_names[state]) && !is_stopped(s))
        pthread_cond_wait(&s->stopped, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

/* Returns -1, for tail calls. */
__attribute__((format(printf, 3, 4))) static int fail(struct srv_swap *s, enum srv_swap_result why,
                                                      const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(s->outcome.message, sizeof(s->outcome.message), format, args);
    va_end(args);
    s->outcome.result = is_stopped(s) ? SWAP_GIVEN_UP : why;
    return -1;
}

static int fail_engine(struct srv_swap *s, int rc, enum srv_swap_result why, const char *err)
{
    return fail(s, rc == ENG_ENOMEM ? SWAP_NO_MEMORY : why, "%s", err);
}

/* ---- planning ------------------------------------------------------------------------------ */

static const char *environment(const char *name)
{
    return getenv(name);
}

/* The entry, unless it has left meanwhile; its number may be another one's then. */
static int find_entry(struct srv_swap *s)
{
    const char *name = s->outcome.previous;
    s->entry = s->app->models.entries[s->p.entry];
    s->config = s->entry->config;
    if (s->entry->gone || strncmp(s->entry->source.names[0], name, sizeof(s->outcome.previous) - 1))
        return fail(s, SWAP_NOT_FOUND, "The model '%s' has vanished.", name);
    return 0;
}

/* The directory of the model, and in ret_name its own name. */
static int find_model(struct srv_swap *s, char *ret_name, size_t size)
{
    const struct srv_config *c = s->config;
    const char *spec = s->asked ? s->asked : c->model_shown;
    char err[640];
    int rc = 0;
    snprintf(ret_name, size, "hearth-demo");
    if (!spec || srv_hub_is_carried(spec))
        rc = srv_hub_find_carried(spec ? spec : "demo", s->dir, sizeof(s->dir), err, sizeof(err));
    else if (s->asked && *spec != '/')
        rc = srv_hub_resolve_cached(spec, environment, s->dir, sizeof(s->dir), err, sizeof(err));
    else
        rc = srv_hub_resolve(spec, environment, s->dir, sizeof(s->dir), err, sizeof(err));
    if (rc && s->asked && *spec != '/')
        return fail(s, SWAP_NOT_FOUND,
                    "The model '%.200s' is not in the cache; hearth pull %.200s fetches it", spec,
                    spec);
    if (rc) return fail(s, SWAP_NOT_FOUND, "%s", err);
    if (spec && strcmp(spec, "demo") != 0) srv_hub_model_name(spec, ret_name, size);
    rc = srv_hub_check(s->dir, err, sizeof(err));
    return rc ? fail(s, SWAP_INVALID, "%s", err) : 0;
}

/* The directory of the draft model, or "". */
static int find_draft_model(struct srv_swap *s)
{
    const struct srv_config *c = s->config;
    const char *spec = s->draft ? s->draft : s->asked ? NULL : c->draft_shown;
    char err[640];
    int rc = 0;
    *s->draft_dir = '\0';
    if (!spec) return 0;
    if (s->draft && *spec != '/')
        rc = srv_hub_resolve_cached(spec, environment, s->draft_dir, sizeof(s->draft_dir), err,
                                    sizeof(err));
    else
        rc = srv_hub_resolve(spec, environment, s->draft_dir, sizeof(s->draft_dir), err,
                             sizeof(err));
    if (rc) return fail(s, SWAP_NOT_FOUND, "draft_model: %s", err);
    rc = srv_hub_check(s->draft_dir, err, sizeof(err));
    return rc ? fail(s, SWAP_INVALID, "draft_model: %s", err) : 0;
}

static bool same_names(const struct srv_list *a, const char *const *b)
{
    int i = 0;
    while (i < a->n && b[i] && !strcmp(a->items[i], b[i]))
        i++;
    return i == a->n && !b[i];
}

static void add_plan(void *ctx, struct srv_model *model)
{
    *(int64_t *)ctx += srv_plan_bytes(&eng_info(model->engine)->memory);
}

/* The plan of the new model and those of the running ones must not exceed the limit together. */
static int check_memory(struct srv_swap *s, struct srv_model_params *params,
                        const struct srv_model *current)
{
    char err[512];
    int64_t in_use = 0, kv = current ? eng_info(current->engine)->memory.kv_bytes : 0;
    srv_models_each(&s->app->models, add_plan, &in_use);
    int rc = fit_beside(&s->outcome.memory, params, in_use, kv, s->app->models.n_entries == 1, err,
                        sizeof(err));
    return rc ? fail_engine(s, rc, SWAP_INVALID, err) : 0;
}

/* A name must not be that of another entry's model. */
static int check_names(struct srv_swap *s, const struct srv_list *names)
{
    for (int i = 0; i < names->n; i++) {
        int entry = srv_models_find(&s->app->models, names->items[i]);
        if (entry >= 0 && entry != s->p.entry)
            return fail(s, SWAP_INVALID,
                        "another model answers to the name '%.200s'; choose one "
                        "by 'alias'",
                        names->items[i]);
    }
    return 0;
}

/* Returns 0 to go on; -1 if the swap ends here, with the outcome set. */
static int plan(struct srv_swap *s, struct srv_model_params *params)
{
    uint8_t source[32];
    int rc = -1;
    if (srv_model_source(s->dir, params->draft_dir, source))
        return fail(s, SWAP_NOT_FOUND, "the directory of the model cannot be read");
    struct srv_model *current = srv_models_of(&s->app->models, s->p.entry);
    if (current && !memcmp(source, current->source, sizeof(source)) &&
        same_names(&params->names, current->names))
        s->outcome.result = SWAP_UNCHANGED;
    else
        rc = check_memory(s, params, current);
    srv_model_release(current, false);
    return rc;
}

/* ---- loading and testing ------------------------------------------------------------------- */

static void begin_test(void *arg)
{
    set_state(arg, SWAP_TESTING);
}

static enum srv_swap_state state_of(struct srv_swap *s)
{
    struct srv_swap_view view;
    srv_swap_look(s, &view);
    return view.state;
}

/* Returns the model, or NULL with the outcome set. */
static struct srv_model *load(struct srv_swap *s, const struct srv_model_params *params)
{
    struct srv_swap_outcome *o = &s->outcome;
    struct srv_model *model = NULL;
    char err[512];
    uint64_t start_us = clock_now_us();
    set_state(s, SWAP_LOADING);
    int rc = srv_model_open(&model, params, err, sizeof(err));
    if (rc) {
        bool tested = state_of(s) == SWAP_TESTING && rc == ENG_EFAILED;
        fail_engine(s, rc, tested ? SWAP_SELF_TEST : SWAP_INVALID, err);
        return NULL;
    }
    uint64_t loaded_us = clock_now_us();
    int test_ms = (int)(eng_info(model->engine)->self_test_seconds * 1000 + 0.5);
    rc = srv_model_try_text(model, err, sizeof(err));
    if (rc)
        fail(s, SWAP_SELF_TEST, "%s", err);
    else if (is_stopped(s))
        rc = fail(s, SWAP_GIVEN_UP, "the server is shutting down");
    if (rc) {
        srv_model_close(model);
        return NULL;
    }
    o->load_ms = (int)((loaded_us - start_us) / 1000) - test_ms;
    o->self_test_ms = test_ms + (int)((clock_now_us() - loaded_us) / 1000);
    return model;
}

/* ---- switching and draining ---------------------------------------------------------------- */

/* The outcome is known: it is counted and shown. */
static void settle(struct srv_swap *s)
{
    const struct srv_swap_outcome *o = &s->outcome;
    bool failed = o->result > SWAP_UNCHANGED;
    srv_metrics_count_swap(s->app->metrics, o->result, (uint64_t)o->load_ms * 1000);
    if (failed) srv_log(SRV_LOG_WARNING, "swap: %s stays: %s", o->previous, o->message);
    pthread_mutex_lock(&s->lock);
    snprintf(s->view.last_error, sizeof(s->view.last_error), "%s",
             failed ? srv_public_reason(o->message) : "");
    pthread_mutex_unlock(&s->lock);
}

/* The one who waits, and the outcome for him: the swap may be another one once the lock is free. */
struct listener {
    void (*on_end)(void *ctx, const struct srv_swap_outcome *outcome);
    void *ctx;
    struct srv_swap_outcome outcome;
};

/* With the lock held. */
static struct listener take_listener(struct srv_swap *s)
{
    struct listener l = {s->p.on_end, s->p.ctx, s->outcome};
    s->p.on_end = NULL;
    return l;
}

static void tell(const struct listener *l)
{
    if (l->on_end) l->on_end(l->ctx, &l->outcome);
}

/* From now on a swap may be started, and who waited for this one is told. */
static void become_idle(struct srv_swap *s)
{
    pthread_mutex_lock(&s->lock);
    s->view.state = SWAP_IDLE;
    s->view.since = (int64_t)time(NULL);
    const struct listener listener = take_listener(s);
    pthread_mutex_unlock(&s->lock);
    tell(&listener);
}

/* Tells who waits for a swap that drains. */
static void tell_switched(struct srv_swap *s)
{
    struct listener listener = {0};
    pthread_mutex_lock(&s->lock);
    if (s->view.state == SWAP_DRAINING) listener = take_listener(s);
    pthread_mutex_unlock(&s->lock);
    tell(&listener);
}

/* Background: those that are already there stay. */
static void load_drafts(struct srv_swap *s)
{
    for (int i = 0; i < s->app->models.n_entries; i++) {
        struct srv_model *m = srv_models_of(&s->app->models, i);
        if (m) eng_load_drafts(m->engine, m->draft_ids);
        srv_model_release(m, false);
    }
}

static void end(void *arg)
{
    struct srv_swap *s = arg;
    if (!is_stopped(s)) load_drafts(s);
    become_idle(s);
}

/* Returns 0, or -1 if the model could not take its place. */
static int publish(struct srv_swap *s, struct srv_model *model,
                   const struct srv_model_params *params)
{
    struct srv_swap_outcome *o = &s->outcome;
    char before[sizeof(o->fingerprint)];
    snprintf(before, sizeof(before), "%s", o->fingerprint);
    struct srv_model_facts facts;
    struct srv_model *old;
    srv_catalogue_facts(&facts, params->dir, eng_info(model->engine)->ctx_tokens);
    if (srv_models_replace(&s->app->models, model, params, &facts, &old, &o->n_draining))
        return fail(s, SWAP_NO_MEMORY, "The server is out of memory for a swap.");
    if (old) old->on_closed = end;
    if (old) old->on_closed_ctx = s;
    snprintf(o->fingerprint, sizeof(o->fingerprint), "%s", model->fingerprint);
    srv_log(SRV_LOG_INFO, "swap: %s %s -> %s %s: loaded %.2f s, tested %.2f s, %d requests drain",
            o->previous, before, o->model, o->fingerprint, o->load_ms * 1e-3,
            o->self_test_ms * 1e-3, o->n_draining);
    srv_notify("STATUS=Serving %s", o->model);
    pthread_mutex_lock(&s->lock);
    snprintf(s->view.previous, sizeof(s->view.previous), "%s", o->previous);
    pthread_mutex_unlock(&s->lock);
    settle(s);
    set_state(s, SWAP_DRAINING);
    if (!s->p.until_drained) tell_switched(s);
    if (!old) end(s);
    return 0;
}

/* ---- the whole ----------------------------------------------------------------------------- */

static struct srv_model_params model_params(struct srv_swap *s)
{
    const struct srv_config *c = s->config;
    return (struct srv_model_params){
        .config = c,
        .dir = s->dir,
        .draft_dir = *s->draft_dir ? s->draft_dir : NULL,
        .draft_name = s->draft ? s->draft : c->draft_shown,
        .names = s->p.names.n ? s->p.names : s->own_names,
        .entry = s->p.entry,
        .is_demo = !s->asked && c->model_is_demo,
        .cores = s->cores,
        .kv_bans = s->app->kv_bans,
        .in_background = true,
        .stop = &s->app->models.stop,
        .on_self_test = begin_test,
        .on_self_test_ctx = s,
    };
}

/* The twins of all models are not in the sum of their plans. */
static void drop_twins(struct srv_swap *s)
{
    for (int i = 0; i < s->app->models.n_entries; i++) {
        struct srv_model *m = srv_models_of(&s->app->models, i);
        if (m) eng_drop_twin(m->engine);
        srv_model_release(m, false);
    }
}

/* Up to the switch. Returns the new model, or NULL with the outcome set; params borrow `own`. */
static struct srv_model *prepare(struct srv_swap *s, struct srv_model_params *params, char *own,
                                 size_t size)
{
    set_state(s, SWAP_PLANNING);
    if (is_stopped(s)) {
        fail(s, SWAP_GIVEN_UP, "the server is shutting down");
        return NULL;
    }
    if (find_entry(s) || find_model(s, own, size) || find_draft_model(s)) return NULL;
    if (srv_catalogue_names(s->config, own, &s->own_names)) {
        fail(s, SWAP_NO_MEMORY, "The server is out of memory for a swap.");
        return NULL;
    }
    *params = model_params(s);
    snprintf(s->outcome.model, sizeof(s->outcome.model), "%s", params->names.items[0]);
    pthread_mutex_lock(&s->lock);
    snprintf(s->view.model, sizeof(s->view.model), "%s", s->outcome.model);
    pthread_mutex_unlock(&s->lock);
    if (check_names(s, &params->names) || plan(s, params)) return NULL;
    drop_twins(s);
    return load(s, params);
}

void srv_swap_run(struct srv_swap *s)
{
    struct srv_model_params params;
    char own[256];
    struct srv_model *model = prepare(s, &params, own, sizeof(own));
    if (model && publish(s, model, &params) == 0) return;
    srv_model_close(model);
    settle(s);
    end(s);
}

static void forget(struct srv_swap *s)
{
    free(s->p.names.items);
    free(s->own_names.items);
    free(s->asked);
    free(s->draft);
    s->p.names = s->own_names = (struct srv_list){0};
    s->asked = s->draft = NULL;
}

/* The names and fingerprint of what is replaced; with the lock of the set held. */
static void note_previous(void *ctx, const struct srv_entry *e)
{
    struct srv_swap *s = ctx;
    struct srv_swap_outcome *o = &s->outcome;
    if (e->number != s->p.entry) return;
    snprintf(o->previous, sizeof(o->previous), "%s", e->source.names[0]);
    snprintf(o->model, sizeof(o->model), "%s", e->source.names[0]);
    snprintf(o->fingerprint, sizeof(o->fingerprint), "%s", e->model ? e->model->fingerprint : "");
}

/* Keeps the parameters. Returns 0, or -1 when out of memory. */
static int remember(struct srv_swap *s, const struct srv_swap_params *p)
{
    s->p = *p;
    s->p.names = srv_names_copy(&p->names);
    s->outcome = (struct srv_swap_outcome){.result = SWAP_OK};
    srv_models_each_entry(&s->app->models, note_previous, s);
    if (p->model && !(s->asked = strdup(p->model))) return -1;
    if (p->draft_model && !(s->draft = strdup(p->draft_model))) return -1;
    return s->p.names.items ? 0 : -1;
}

/* Returns true if the caller may start a swap, which then is in its first state. */
static bool claim(struct srv_swap *s)
{
    pthread_mutex_lock(&s->lock);
    bool idle = s->view.state == SWAP_IDLE;
    if (idle) s->view.state = SWAP_PLANNING;
    pthread_mutex_unlock(&s->lock);
    return idle;
}

static enum srv_swap_result refuse_stopped(char *err, size_t errlen)
{
    snprintf(err, errlen, "The server is shutting down.");
    return SWAP_GIVEN_UP;
}

enum srv_swap_result srv_swap_start(struct srv_swap *s, const struct srv_swap_params *params,
                                    char *err, size_t errlen)
{
    if (is_stopped(s)) return refuse_stopped(err, errlen);
    if (!claim(s)) {
        srv_metrics_count_swap(s->app->metrics, SWAP_BUSY, 0);
        snprintf(err, errlen, "Another swap is %s.", srv_swap_state_name(state_of(s)));
        return SWAP_BUSY;
    }
    forget(s);
    bool kept = remember(s, params) == 0;
    if (kept && srv_models_post(&s->app->models, SRV_TASK_SWAP)) return SWAP_OK;
    set_state(s, SWAP_IDLE);
    if (kept) return refuse_stopped(err, errlen);
    srv_metrics_count_swap(s->app->metrics, SWAP_NO_MEMORY, 0);
    snprintf(err, errlen, "The server is out of memory for a swap.");
    return SWAP_NO_MEMORY;
}

/* ---- lifecycle ----------------------------------------------------------------------------- */

struct srv_swap *srv_swap_create(struct srv_app *app, struct eng_cores *cores)
{
    struct srv_swap *s = calloc(1, sizeof(*s));
    if (!s) return NULL;
    if (pthread_mutex_init(&s->lock, NULL)) goto no_lock;
    if (pthread_cond_init(&s->stopped, NULL)) goto no_cond;
    s->app = app;
    s->cores = cores;
    return s;
no_cond:
    pthread_mutex_destroy(&s->lock);
no_lock:
    free(s);
    return NULL;
}

void srv_swap_destroy(struct srv_swap *s)
{
    if (!s) return;
    forget(s);
    pthread_cond_destroy(&s->stopped);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

void srv_swap_give_up(struct srv_swap *s)
{
    pthread_mutex_lock(&s->lock);
    pthread_cond_broadcast(&s->stopped);
    pthread_mutex_unlock(&s->lock);
    tell_switched(s); /* nobody waits longer than the server */
}

void srv_swap_look(struct srv_swap *s, struct srv_swap_view *ret)
{
    pthread_mutex_lock(&s->lock);
    *ret = s->view;
    pthread_mutex_unlock(&s->lock);
}
