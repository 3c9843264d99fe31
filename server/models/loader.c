/* SPDX-License-Identifier: MIT */
/* The thread that loads models and closes them. See loader.h. */
#include "server/models/loader.h"

#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/heap.h"
#include "base/os_error.h"
#include "base/thread.h"
#include "server/bounds.h"
#include "server/models/app.h"
#include "server/models/loras.h"
#include "server/models/catalogue.h"
#include "server/grammars/compile_queue.h"
#include "server/config/config.h"
#include "server/hub/settings.h"
#include "server/log.h"
#include "server/metrics.h"
#include "server/models/serve_pull.h"
#include "server/models/served_model.h"
#include "server/models/swap.h"

enum { ERROR_BYTES = HUB_ERR_SIZE };

struct srv_loader {
    struct srv_app *app;
    struct eng_cores *cores;
    int event_fd;
    pthread_t thread;
    struct srv_model *replaced; /* by the last swap, which lasts until it is closed; or NULL */
    char model_dir[PATH_MAX];
    int status; /* exit status, once event_fd is readable */
    char error[ERROR_BYTES];
};

/*
 * Finds the directory of the model, after fetching it if --pull is given. Returns the exit status.
 */
static int find_model(struct srv_loader *l)
{
    struct srv_pull *pull = l->app->pull;
    if (pull) return srv_pull_run(pull, l->model_dir, sizeof(l->model_dir), l->error);
    int len = snprintf(l->model_dir, sizeof(l->model_dir), "%s", l->app->config->model);
    if ((size_t)len < sizeof(l->model_dir)) return EXIT_SUCCESS;
    return fail_with(EXIT_FAILURE, l->error, sizeof(l->error), "the path of the model is too long");
}

/* ---- the entries --------------------------------------------------------------------------- */

static const double MIB = 1048576.0;

static void describe_plan(const struct srv_entry *e, const struct srv_plan *plan)
{
    srv_log(SRV_LOG_INFO, "models: %s weights=%.0fMiB kv=%.0fMiB all=%.0fMiB load=%s%s",
            e->source.names[0], (double)plan->memory.weights_bytes / MIB,
            (double)(plan->memory.kv_bytes + plan->memory.state_bytes) / MIB,
            (double)plan->bytes / MIB, plan->starts ? "start" : "demand",
            e->config->pin ? " pinned" : "");
}

/* Logs the bytes that models of the start fill once they work, and the rest of their plans: for
 * requests and answers. */
static void describe_sum(const struct srv_config *c, const struct srv_plan *plans)
{
    int64_t fixed = 0, all = 0;
    int n = 0;
    for (int i = 0; i <= c->n_more; i++) {
        const struct eng_memory *m = &plans[i].memory;
        if (!plans[i].starts) continue;
        fixed += srv_plan_bytes(m) - m->answer_bytes - m->request_bytes;
        all += srv_plan_bytes(m);
        n++;
    }
    if (n == 0) return;
    srv_log(SRV_LOG_INFO,
            "memory: %d %s %.0f MiB together, requests and answers up to %.0f MiB more; the limit "
            "is %.0f MiB",
            n, n == 1 ? "model takes" : "models take", (double)fixed / MIB,
            (double)(all - fixed) / MIB, (double)eng_memory_limit(c->memory_bytes) / MIB);
}

/* An entry of the set for each model of the configuration. Returns the exit status. */
static int add_entries(struct srv_loader *l, const struct srv_plan *plans)
{
    const struct srv_config *c = l->app->config;
    struct srv_models *models = &l->app->models;
    for (int i = 0; i <= c->n_more; i++) {
        struct srv_model_params p = srv_catalogue_params(c, i, l->model_dir, &plans[i].share);
        p.names = plans[i].names;
        struct srv_entry *e = srv_models_add(models, p.config, &p);
        if (!e) return fail_with(EXIT_FAILURE, l->error, sizeof(l->error), "out of memory");
        e->source.plan_bytes = plans[i].bytes;
        srv_catalogue_facts(&e->source.facts, e->source.dir, plans[i].memory.ctx_tokens);
        if (c->n_more) describe_plan(e, &plans[i]);
    }
    if (c->n_more) describe_sum(c, plans);
    if (c->models_dir) srv_catalogue_scan(models, c);
    char name[256] = "";
    if (c->default_model) snprintf(name, sizeof(name), "%s", c->default_model);
    srv_name_mend(name);
    int first = c->default_model ? srv_models_find(models, name) : 0;
    if (first < 0)
        return fail_with(EXIT_FAILURE, l->error, sizeof(l->error),
                         "default-model: no model has the name '%.100s'", name);
    atomic_store(&models->default_entry, first);
    return EXIT_SUCCESS;
}

/* ---- a load -------------------------------------------------------------------------------- */

struct loaded {
    struct srv_model *model, *before; /* that drains now, or NULL, */
    int n_draining;                   /* and its requests */
    int load_ms, self_test_ms;
};

static void begin_test(void *swap)
{
    srv_swap_enter(swap, SWAP_TESTING);
}

static int ms_since(uint64_t us)
{
    return (int)((clock_now_us() - us) / 1000);
}

/*
 * Opens the model of an entry, tries it and publishes it. next: the source that the entry has from
 * then on, which is taken; NULL: its own. Returns 0, or an enum eng_error with the reason in err.
 */
static int load_model(struct srv_loader *l, const struct srv_entry *e, struct srv_source *next,
                      bool at_start, struct loaded *ret, char *err, size_t errlen)
{
    struct srv_models *models = &l->app->models;
    struct srv_model_params params = srv_source_params(e, next ? next : &e->source);
    struct srv_models_view view;
    struct srv_model *model;
    uint64_t start_us = clock_now_us();
    srv_models_look(models, &view);
    params.cores = l->cores;
    params.kv_bans = l->app->kv_bans;
    params.beside_others = !at_start && view.n_loaded > 0;
    params.in_background = next != NULL;
    params.stop = at_start ? NULL : next ? &models->stop : &models->give_up;
    params.on_self_test = next ? begin_test : NULL;
    params.on_self_test_ctx = l->app->swap;
    int rc = srv_model_open(&model, &params, err, errlen);
    if (rc) return rc;
    int test_ms = (int)(eng_info(model->engine)->self_test_seconds * 1000 + 0.5);
    *ret = (struct loaded){.model = model, .load_ms = ms_since(start_us) - test_ms};
    start_us = clock_now_us();
    if (!at_start && srv_model_try_text(model, err, errlen)) {
        rc = ENG_EFAILED;
    } else if (next && atomic_load(&models->stop)) {
        snprintf(err, errlen, "the server is shutting down");
        rc = ENG_EFAILED;
    }
    if (rc) {
        srv_model_close(model);
        return rc;
    }
    ret->self_test_ms = test_ms + ms_since(start_us);
    if (next) srv_catalogue_facts(&next->facts, next->dir, eng_info(model->engine)->ctx_tokens);
    ret->before = srv_models_publish(models, model, next, &ret->n_draining);
    return 0;
}

/* Those that requests get. */
static void each_loaded(struct srv_loader *l, void (*fn)(struct srv_model *m))
{
    for (int i = 0; i < l->app->models.n_entries; i++) {
        struct srv_model *m = srv_models_of(&l->app->models, i);
        if (m) fn(m);
        srv_model_release(m, false);
    }
}

/* In the background; those that are already there stay. */
static void load_drafts(struct srv_model *m)
{
    eng_load_drafts(m->engine, m->draft_ids);
}

/* Loads those of the start, one after the other. Returns the exit status. */
static int load_models(struct srv_loader *l)
{
    const struct srv_config *c = l->app->config;
    struct srv_plan *plans = calloc((size_t)c->n_more + 1, sizeof(*plans));
    struct loaded loaded;
    char err[ERROR_BYTES - 128];
    if (!plans) return fail_with(EXIT_FAILURE, l->error, sizeof(l->error), "out of memory");
    int status = srv_catalogue_plan(c, l->model_dir, plans, l->error, sizeof(l->error))
                     ? EXIT_FAILURE
                     : add_entries(l, plans);
    for (int i = 0; !status && i <= c->n_more; i++) {
        if (!plans[i].starts) continue;
        srv_models_begin(&l->app->models, i);
        const struct srv_entry *e = l->app->models.entries[i];
        if (load_model(l, e, NULL, true, &loaded, err, sizeof(err)) == 0) continue;
        status = EXIT_FAILURE;
        if (c->n_more)
            snprintf(l->error, sizeof(l->error), "model %.100s: %s", e->source.names[0], err);
        else
            snprintf(l->error, sizeof(l->error), "%s", err);
    }
    for (int i = 0; !status && i <= c->n_more; i++)
        if (srv_loras_start(&l->app->models, l->app->models.entries[i], l->error, sizeof(l->error)))
            status = EXIT_FAILURE;
    for (int i = 0; i <= c->n_more; i++)
        free(plans[i].names.items);
    free(plans);
    return status;
}

/* ---- while the server runs ----------------------------------------------------------------- */

static void load_on_demand(struct srv_loader *l, int entry)
{
    struct srv_models *models = &l->app->models;
    const struct srv_entry *e = models->entries[entry];
    struct loaded loaded;
    char err[ERROR_BYTES - 128] = "";
    uint64_t start_us = clock_now_us();
    if (load_model(l, e, NULL, false, &loaded, err, sizeof(err)) == 0) {
        srv_metrics_observe(l->app->metrics, SRV_TIME_MODEL_LOAD, clock_now_us() - start_us);
        srv_log(SRV_LOG_INFO, "models: %s is loaded, %lld MiB in %.2f s", e->source.names[0],
                (long long)(e->source.plan_bytes >> 20),
                (double)(clock_now_us() - start_us) * 1e-6);
        load_drafts(loaded.model);
        return;
    }
    bool given_up = atomic_load(&models->give_up);
    heap_trim();
    if (given_up)
        srv_log(SRV_LOG_INFO, "models: the load of %s is given up: nobody waits for it",
                e->source.names[0]);
    else
        srv_log(SRV_LOG_ERROR, "models: %s cannot be loaded: %s", e->source.names[0], err);
    srv_models_fail(models, entry, err, given_up);
}

/* The twins of all models are not in the sum of their plans. */
static void drop_twin(struct srv_model *m)
{
    eng_drop_twin(m->engine);
}

static void end_swap(struct srv_loader *l)
{
    if (!atomic_load(&l->app->models.stop)) each_loaded(l, load_drafts);
    srv_swap_end(l->app->swap);
}

/* The next source of an entry, beside its model. */
static void load_next(struct srv_loader *l)
{
    struct srv_swap *s = l->app->swap;
    struct srv_source next;
    struct loaded loaded = {0};
    char err[512];
    const struct srv_entry *e = srv_swap_plan(s, &next);
    if (e) {
        each_loaded(l, drop_twin);
        srv_swap_enter(s, SWAP_LOADING);
        int rc = load_model(l, e, &next, false, &loaded, err, sizeof(err));
        if (rc) {
            srv_swap_fail(s, rc, err);
            srv_source_finish(&next);
        } else {
            srv_swap_switched(s, loaded.model, loaded.before, loaded.n_draining, loaded.load_ms,
                              loaded.self_test_ms);
        }
    }
    l->replaced = loaded.before;
    if (!l->replaced) end_swap(l);
}

static void close_model(struct srv_loader *l, struct srv_model *m)
{
    bool ends_swap = m == l->replaced;
    struct srv_wait *w = srv_models_close(&l->app->models, m);
    heap_trim();
    if (ends_swap) {
        l->replaced = NULL;
        end_swap(l);
    }
    srv_wait_done(w);
}

/* Its requests end with an error. */
static void cut(struct srv_loader *l, struct srv_model *m)
{
    srv_log(SRV_LOG_WARNING, "swap: the time to drain is over: stopping requests of %s",
            m->names[0]);
    atomic_store(&m->unloaded, true);
    eng_stop_begin(m->engine);
    compile_leave(l->app->compiles, NULL, m->grammars);
}

/* Until the server ends. */
static void serve_models(struct srv_loader *l)
{
    struct srv_models *models = &l->app->models;
    struct srv_task task;
    while ((task = srv_models_await(models)).kind != SRV_TASK_STOP) {
        switch (task.kind) {
        case SRV_TASK_SWAP: load_next(l); break;
        case SRV_TASK_SCAN: srv_catalogue_scan(models, l->app->config); break;
        case SRV_TASK_LOAD: load_on_demand(l, task.entry); break;
        case SRV_TASK_CUT: cut(l, task.model); break;
        case SRV_TASK_FREE: close_model(l, task.model); break;
        case SRV_TASK_STOP: break;
        }
    }
}

static void *load(void *arg)
{
    struct srv_loader *l = arg;
    while (l->app->config->debug_hold_load)
        pause();
    l->status = find_model(l);
    if (!l->status) l->status = load_models(l);
    if (!l->status) each_loaded(l, load_drafts); /* begun before its end is reported */
    bool failed = l->status != EXIT_SUCCESS;
    int loading = SRV_LOADING;
    /* A drain that has begun meanwhile keeps its state. */
    atomic_compare_exchange_strong(&l->app->state, &loading, failed ? SRV_FAILED : SRV_READY);
    uint64_t one = 1;
    if (write(l->event_fd, &one, sizeof(one)) < 0)
        srv_log(SRV_LOG_ERROR, "the loader cannot report its end");
    if (!failed) serve_models(l);
    return NULL;
}

int srv_loader_start(struct srv_loader **ret, struct srv_app *app, struct eng_cores *cores,
                     int event_fd, char *err, size_t errlen)
{
    struct srv_loader *l = calloc(1, sizeof(*l));
    if (!l) return fail_with(-1, err, errlen, "out of memory");
    l->app = app;
    l->cores = cores;
    l->event_fd = event_fd;
    int rc = thread_start(&l->thread, "hearth-load", SRV_WORKER_STACK_BYTES, load, l);
    if (rc) {
        snprintf(err, errlen, "loader thread: %s%s", strerror(rc), os_error_remedy(rc));
        free(l);
        return -1;
    }
    *ret = l;
    return 0;
}

int srv_loader_result(struct srv_loader *l, char *err, size_t errlen)
{
    if (l->status) snprintf(err, errlen, "%s", l->error);
    return l->status;
}

void srv_loader_abandon(struct srv_loader *l)
{
    pthread_detach(l->thread);
}

void srv_loader_finish(struct srv_loader *l)
{
    if (!l) return;
    pthread_join(l->thread, NULL);
    free(l);
}
