/* SPDX-License-Identifier: MIT */
/* The source of a swap, its states and its outcome; see swap.h. */
#include "server/models/swap.h"

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/auto.h"
#include "base/fail.h"
#include "engine/engine.h"
#include "server/log.h"
#include "server/models/app.h"
#include "server/models/catalogue.h"
#include "server/models/lookup.h"
#include "server/systemd.h"

struct srv_swap {
    struct srv_app *app;
    struct srv_swap_view view; /* guarded by the lock of the models */

    /* The running swap, from its start until it is idle: the loader's thread's. */
    int entry;
    struct srv_source asked; /* dir, draft_dir and names as they were given; no name: none was */
    bool until_drained;
    struct srv_wait *wait; /* until it is told, or waits for the end of the model before */
    struct srv_outcome outcome;
};

const char *const srv_swap_state_names[] = {"idle", "planning", "loading", "testing", "draining"};

static bool is_stopped(struct srv_swap *s)
{
    return atomic_load(&s->app->models.stop);
}

/* With the lock held. */
static void set_state(struct srv_swap *s, enum srv_swap_state state)
{
    s->view.state = state;
    s->view.since = (int64_t)time(NULL);
}

void srv_swap_enter(struct srv_swap *s, enum srv_swap_state state)
{
    HOLD(&s->app->models.lock);
    set_state(s, state);
}

void srv_swap_look(struct srv_swap *s, struct srv_swap_view *ret)
{
    HOLD(&s->app->models.lock);
    *ret = s->view;
}

/* Returns -1, for tail calls. */
__attribute__((format(printf, 3, 4))) static int fail(struct srv_swap *s, enum srv_swap_result why,
                                                      const char *format, ...)
{
    FORMAT_REST(s->outcome.message, sizeof(s->outcome.message), format);
    s->outcome.result = is_stopped(s) ? SWAP_GIVEN_UP : why;
    return -1;
}

static int fail_memory(struct srv_swap *s)
{
    return fail(s, SWAP_NO_MEMORY, "The server is out of memory for a swap.");
}

/* ---- planning ------------------------------------------------------------------------------ */

/* The entry, unless it has left meanwhile; its number may be another one's then. */
static const struct srv_entry *find_entry(struct srv_swap *s)
{
    const char *name = s->outcome.previous;
    const struct srv_entry *e = s->app->models.entries[s->entry];
    if (!e->gone && !strncmp(e->source.names[0], name, sizeof(s->outcome.previous) - 1)) return e;
    fail(s, SWAP_NOT_FOUND, "The model '%s' has vanished.", name);
    return NULL;
}

/* The directory of spec. asked: by the operator, who names a path or a model of the cache. */
static int resolve(const char *spec, bool asked, char dir[PATH_MAX], char *err, size_t errlen)
{
    return asked && *spec != '/' ? srv_hub_resolve_cached(spec, NULL, dir, PATH_MAX, err, errlen)
                                 : srv_hub_resolve(spec, NULL, dir, PATH_MAX, err, errlen);
}

/* The directory of the model, and in ret_name its own name. */
static int find_model(struct srv_swap *s, const struct srv_config *c, char dir[PATH_MAX],
                      char *ret_name, size_t size)
{
    const char *asked = s->asked.dir, *spec = asked ? asked : c->model_shown;
    char err[640];
    int rc = 0;
    snprintf(ret_name, size, "hearth-demo");
    if (!spec || srv_hub_is_carried(spec))
        rc = srv_hub_find_carried(spec ? spec : "demo", dir, PATH_MAX, err, sizeof(err));
    else
        rc = resolve(spec, asked != NULL, dir, err, sizeof(err));
    if (rc && asked && *spec != '/')
        return fail(s, SWAP_NOT_FOUND,
                    "The model '%.200s' is not in the cache; hearth pull %.200s fetches it", spec,
                    spec);
    if (rc) return fail(s, SWAP_NOT_FOUND, "%s", err);
    if (spec && strcmp(spec, "demo") != 0) srv_hub_model_name(spec, ret_name, size);
    rc = srv_hub_check(dir, err, sizeof(err));
    return rc ? fail(s, SWAP_INVALID, "%s", err) : 0;
}

/* The directory of the draft model, or "". */
static int find_draft_model(struct srv_swap *s, const struct srv_config *c, char dir[PATH_MAX])
{
    const char *asked = s->asked.draft_dir, *spec = asked          ? asked
                                                    : s->asked.dir ? NULL
                                                                   : c->draft_shown;
    char err[600];
    *dir = '\0';
    if (!spec) return 0;
    if (resolve(spec, asked != NULL, dir, err, sizeof(err)))
        return fail(s, SWAP_NOT_FOUND, "draft_model: %s", err);
    return srv_hub_check(dir, err, sizeof(err)) ? fail(s, SWAP_INVALID, "draft_model: %s", err) : 0;
}

static bool same_names(const struct srv_list *a, const char *const *b)
{
    int i = 0;
    while (i < a->n && b[i] && !strcmp(a->items[i], b[i]))
        i++;
    return i == a->n && !b[i];
}

/* A name must not be that of another entry's model. */
static int check_names(struct srv_swap *s, const struct srv_list *names)
{
    for (int i = 0; i < names->n; i++) {
        int entry = srv_models_find(&s->app->models, names->items[i]);
        if (entry >= 0 && entry != s->entry)
            return fail(s, SWAP_INVALID,
                        "another model answers to the name '%.200s'; choose one "
                        "by 'alias'",
                        names->items[i]);
    }
    return 0;
}

static void add_plan(void *ctx, struct srv_model *model)
{
    *(int64_t *)ctx += srv_plan_bytes(&eng_info(model->engine)->memory);
}

/* Whether params are another model than the entry has, which fits beside all that live. The outcome
 * is set if not. */
static int check_model(struct srv_swap *s, struct srv_model_params *params, struct fit_bytes *ret)
{
    struct srv_models *models = &s->app->models;
    uint8_t source[32];
    int64_t in_use = 0, kv = 0;
    char err[512];
    if (srv_model_source(params->dir, params->draft_dir, source))
        return fail(s, SWAP_NOT_FOUND, "the directory of the model cannot be read");
    struct srv_model *current = srv_models_of(models, s->entry);
    bool same = current && !memcmp(source, current->source, sizeof(source)) &&
                same_names(&params->names, current->names);
    if (current) kv = eng_info(current->engine)->memory.kv_bytes;
    srv_model_release(current, false);
    if (same) {
        s->outcome.result = SWAP_UNCHANGED;
        return -1;
    }
    srv_models_each(models, add_plan, &in_use);
    int rc = fit_beside(ret, params, in_use, kv, models->n_entries == 1, err, sizeof(err));
    if (rc == ENG_ENOMEM) s->outcome.memory = *ret;
    return rc ? fail(s, rc == ENG_ENOMEM ? SWAP_NO_MEMORY : SWAP_INVALID, "%s", err) : 0;
}

/* Names the model; checks it, and makes the source of its parameters. */
static int take_source(struct srv_swap *s, struct srv_model_params *params, struct srv_source *ret)
{
    struct fit_bytes bytes;
    snprintf(s->outcome.model, sizeof(s->outcome.model), "%s", params->names.items[0]);
    pthread_mutex_lock(&s->app->models.lock);
    snprintf(s->view.model, sizeof(s->view.model), "%s", s->outcome.model);
    pthread_mutex_unlock(&s->app->models.lock);
    if (check_names(s, &params->names) || check_model(s, params, &bytes)) return -1;
    if (srv_source_copy(ret, params)) return fail_memory(s);
    ret->plan_bytes = bytes.needed;
    return 0;
}

const struct srv_entry *srv_swap_plan(struct srv_swap *s, struct srv_source *ret)
{
    char dir[PATH_MAX], draft_dir[PATH_MAX], own[256];
    srv_swap_enter(s, SWAP_PLANNING);
    if (is_stopped(s)) {
        fail(s, SWAP_GIVEN_UP, "the server is shutting down");
        return NULL;
    }
    const struct srv_entry *e = find_entry(s);
    if (!e || find_model(s, e->config, dir, own, sizeof(own)) ||
        find_draft_model(s, e->config, draft_dir))
        return NULL;
    const struct srv_config *c = e->config;
    struct srv_model_params params = {.config = c,
                                      .dir = dir,
                                      .draft_dir = *draft_dir ? draft_dir : NULL,
                                      .draft_name =
                                          s->asked.draft_dir ? s->asked.draft_dir : c->draft_shown,
                                      .entry = s->entry,
                                      .is_demo = !s->asked.dir && c->model_is_demo};
    struct srv_list names = {0};
    bool named = *s->asked.names;
    if (!named && srv_catalogue_names(c, own, &names)) {
        fail_memory(s);
        return NULL;
    }
    params.names = named ? srv_names_list(s->asked.names) : names;
    int rc = take_source(s, &params, ret);
    free(names.items);
    return rc ? NULL : e;
}

/* ---- the end ------------------------------------------------------------------------------- */

/* The outcome is known: it is counted and shown. With the lock held. */
static void settle(struct srv_swap *s)
{
    const struct srv_outcome *o = &s->outcome;
    bool failed = o->result > SWAP_UNCHANGED;
    srv_metrics_count_swap(s->app->metrics, o->result, (uint64_t)o->load_ms * 1000);
    if (failed) srv_log(SRV_LOG_WARNING, "swap: %s stays: %s", o->previous, o->message);
    snprintf(s->view.last_error, sizeof(s->view.last_error), "%s",
             failed ? srv_public_reason(o->message) : "");
}

/* The one who waits, who has the outcome now; or NULL. With the lock held. */
static struct srv_wait *take_wait(struct srv_swap *s)
{
    struct srv_wait *w = s->wait;
    if (w) *w->outcome = s->outcome;
    s->wait = NULL;
    return w;
}

void srv_swap_fail(struct srv_swap *s, int rc, const char *err)
{
    bool tested = s->view.state == SWAP_TESTING && rc == ENG_EFAILED;
    fail(s, rc == ENG_ENOMEM ? SWAP_NO_MEMORY : tested ? SWAP_SELF_TEST : SWAP_INVALID, "%s", err);
}

void srv_swap_switched(struct srv_swap *s, const struct srv_model *model, struct srv_model *before,
                       int n_draining, int load_ms, int self_test_ms)
{
    struct srv_outcome *o = &s->outcome;
    srv_log(SRV_LOG_INFO, "swap: %s %s -> %s %s: loaded %.2f s, tested %.2f s, %d requests drain",
            o->previous, o->fingerprint, o->model, model->fingerprint, load_ms * 1e-3,
            self_test_ms * 1e-3, n_draining);
    srv_notify("STATUS=Serving %s", o->model);
    snprintf(o->fingerprint, sizeof(o->fingerprint), "%s", model->fingerprint);
    o->load_ms = load_ms;
    o->self_test_ms = self_test_ms;
    o->n_draining = n_draining;
    pthread_mutex_lock(&s->app->models.lock);
    snprintf(s->view.previous, sizeof(s->view.previous), "%s", o->previous);
    settle(s);
    set_state(s, SWAP_DRAINING);
    struct srv_wait *w = NULL;
    if (before || !s->until_drained) w = take_wait(s);
    if (s->until_drained && before && srv_model_await_end(before, w)) w = NULL;
    pthread_mutex_unlock(&s->app->models.lock);
    srv_wait_done(w);
}

void srv_swap_end(struct srv_swap *s)
{
    pthread_mutex_lock(&s->app->models.lock);
    if (s->view.state != SWAP_DRAINING) settle(s);
    set_state(s, SWAP_IDLE);
    struct srv_wait *w = take_wait(s);
    pthread_mutex_unlock(&s->app->models.lock);
    srv_wait_done(w);
}

/* ---- the start ----------------------------------------------------------------------------- */

/* The names and fingerprint of the model that is replaced; with the lock of the set held. */
static void note_previous(void *ctx, const struct srv_entry *e)
{
    struct srv_swap *s = ctx;
    struct srv_outcome *o = &s->outcome;
    if (e->number != s->entry) return;
    snprintf(o->previous, sizeof(o->previous), "%s", e->source.names[0]);
    snprintf(o->model, sizeof(o->model), "%s", e->source.names[0]);
    snprintf(o->fingerprint, sizeof(o->fingerprint), "%s", e->model ? e->model->fingerprint : "");
}

/* Keeps the parameters. Returns 0, or -1 when out of memory. */
static int remember(struct srv_swap *s, const struct srv_swap_params *p)
{
    const struct srv_model_params asked = {
        .dir = p->model, .draft_dir = p->draft_model, .names = p->names};
    s->entry = p->entry;
    s->until_drained = p->until_drained;
    s->wait = p->wait;
    s->outcome = (struct srv_outcome){.result = SWAP_OK};
    srv_models_each_entry(&s->app->models, note_previous, s);
    srv_source_finish(&s->asked);
    return srv_source_copy(&s->asked, &asked);
}

static enum srv_swap_result refuse(struct srv_swap *s, enum srv_swap_result why, char *err,
                                   size_t errlen)
{
    srv_metrics_count_swap(s->app->metrics, why, 0);
    snprintf(err, errlen,
             why == SWAP_GIVEN_UP ? "The server is shutting down."
                                  : "The server is out of memory for a swap.");
    return why;
}

enum srv_swap_result srv_swap_start(struct srv_swap *s, const struct srv_swap_params *params,
                                    char *err, size_t errlen)
{
    if (is_stopped(s)) return refuse(s, SWAP_GIVEN_UP, err, errlen);
    pthread_mutex_lock(&s->app->models.lock);
    enum srv_swap_state state = s->view.state;
    if (state == SWAP_IDLE) s->view.state = SWAP_PLANNING;
    pthread_mutex_unlock(&s->app->models.lock);
    if (state != SWAP_IDLE) {
        srv_metrics_count_swap(s->app->metrics, SWAP_BUSY, 0);
        snprintf(err, errlen, "Another swap is %s.", srv_swap_state_names[state]);
        return SWAP_BUSY;
    }
    bool kept = remember(s, params) == 0;
    if (kept && srv_models_post(&s->app->models, SRV_TASK_SWAP)) return SWAP_OK;
    s->wait = NULL;
    srv_swap_enter(s, SWAP_IDLE);
    return refuse(s, kept ? SWAP_GIVEN_UP : SWAP_NO_MEMORY, err, errlen);
}

/* ---- lifecycle ----------------------------------------------------------------------------- */

struct srv_swap *srv_swap_create(struct srv_app *app)
{
    struct srv_swap *s = calloc(1, sizeof(*s));
    if (s) s->app = app;
    return s;
}

void srv_swap_destroy(struct srv_swap *s)
{
    if (s) srv_source_finish(&s->asked);
    free(s);
}
