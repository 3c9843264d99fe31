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
#include "base/heap.h"
#include "base/os_error.h"
#include "base/thread.h"
#include "server/bounds.h"
#include "server/models/app.h"
#include "server/models/catalogue.h"
#include "server/grammars/compile_queue.h"
#include "server/config/config.h"
#include "server/hub/hub_error.h"
#include "server/log.h"
#include "server/metrics.h"
#include "server/models/lookup.h"
#include "server/models/scan.h"
#include "server/models/serve_pull.h"
#include "server/models/served_model.h"
#include "server/models/swap.h"

enum { ERROR_BYTES = HUB_ERR_SIZE };

struct srv_loader {
    struct srv_app *app;
    struct eng_cores *cores;
    int event_fd;
    pthread_t thread;
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
    snprintf(l->error, sizeof(l->error), "the path of the model is too long");
    return EXIT_FAILURE;
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
        if (!e) {
            snprintf(l->error, sizeof(l->error), "out of memory");
            return EXIT_FAILURE;
        }
        e->plan_bytes = plans[i].bytes;
        srv_catalogue_facts(&e->facts, e->source.dir, plans[i].memory.ctx_tokens);
        if (c->n_more) describe_plan(e, &plans[i]);
    }
    if (c->n_more) describe_sum(c, plans);
    if (c->models_dir) srv_scan_models(models, c);
    char name[256] = "";
    if (c->default_model) snprintf(name, sizeof(name), "%s", c->default_model);
    srv_name_mend(name);
    int first = c->default_model ? srv_models_find(models, name) : 0;
    if (first < 0) {
        snprintf(l->error, sizeof(l->error), "default-model: no model has the name '%.100s'", name);
        return EXIT_FAILURE;
    }
    srv_models_set_default(models, first);
    return EXIT_SUCCESS;
}

static int64_t mib_of(int64_t bytes)
{
    return bytes >> 20;
}

/* Opens the model of an entry and publishes it. Returns 0, or -1 with the reason in err. */
static int load_entry(struct srv_loader *l, int entry, bool at_start, char *err, size_t errlen)
{
    struct srv_models *models = &l->app->models;
    const struct srv_entry *e = models->entries[entry];
    struct srv_model_params params = srv_entry_params(e);
    struct srv_model *model;
    int n_drains;
    params.cores = l->cores;
    params.kv_bans = l->app->kv_bans;
    if (!at_start) {
        struct srv_models_view view;
        srv_models_look(models, &view);
        params.stop = &models->give_up;
        params.beside_others = view.n_loaded > 0;
    }
    int rc = srv_model_open(&model, &params, err, errlen);
    if (!rc && !at_start && (rc = srv_model_try_text(model, err, errlen))) srv_model_close(model);
    if (rc) return -1;
    srv_models_publish(models, model, &n_drains);
    return 0;
}

/* Loads those of the start, one after the other. Returns the exit status. */
static int load_models(struct srv_loader *l)
{
    const struct srv_config *c = l->app->config;
    struct srv_plan *plans = calloc((size_t)c->n_more + 1, sizeof(*plans));
    char err[ERROR_BYTES - 128];
    if (!plans) {
        snprintf(l->error, sizeof(l->error), "out of memory");
        return EXIT_FAILURE;
    }
    int status = srv_catalogue_plan(c, l->model_dir, plans, l->error, sizeof(l->error))
                     ? EXIT_FAILURE
                     : add_entries(l, plans);
    for (int i = 0; !status && i <= c->n_more; i++) {
        if (!plans[i].starts) continue;
        srv_models_begin(&l->app->models, i);
        if (load_entry(l, i, true, err, sizeof(err)) == 0) continue;
        status = EXIT_FAILURE;
        if (c->n_more)
            snprintf(l->error, sizeof(l->error), "model %.100s: %s",
                     l->app->models.entries[i]->source.names[0], err);
        else
            snprintf(l->error, sizeof(l->error), "%s", err);
    }
    for (int i = 0; i <= c->n_more; i++)
        free(plans[i].names.items);
    free(plans);
    return status;
}

/* ---- on demand ----------------------------------------------------------------------------- */

static void load_on_demand(struct srv_loader *l, int entry)
{
    struct srv_models *models = &l->app->models;
    const struct srv_entry *e = models->entries[entry];
    char err[ERROR_BYTES - 128] = "";
    uint64_t start_us = clock_now_us();
    if (load_entry(l, entry, false, err, sizeof(err)) == 0) {
        srv_metrics_observe(l->app->metrics, SRV_TIME_MODEL_LOAD, clock_now_us() - start_us);
        struct srv_model *m = srv_models_of(models, entry);
        srv_log(SRV_LOG_INFO, "models: %s is loaded, %lld MiB in %.2f s", e->source.names[0],
                (long long)mib_of(e->plan_bytes), (double)(clock_now_us() - start_us) * 1e-6);
        if (m) eng_load_drafts(m->engine, m->draft_ids);
        srv_model_release(m, false);
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

/* Its requests end with an error. */
static void cut(struct srv_loader *l, struct srv_model *m)
{
    srv_log(SRV_LOG_WARNING, "swap: the time to drain is over: stopping requests of %s",
            m->names[0]);
    atomic_store(&m->unloaded, true);
    eng_stop_begin(m->engine);
    compile_queue_cancel(l->app->compiles, m->grammars);
}

/* Nobody waits longer than the server; with the lock of the set held. */
static void tell_closed(void *ctx, struct srv_model *m)
{
    (void)ctx;
    if (m->on_closed) m->on_closed(m->on_closed_ctx);
    m->on_closed = NULL;
}

/* Until the server ends. */
static void serve_models(struct srv_loader *l)
{
    struct srv_models *models = &l->app->models;
    struct srv_task task;
    for (int i = 0; i < models->n_entries; i++) {
        struct srv_model *m = srv_models_of(models, i);
        if (m) eng_load_drafts(m->engine, m->draft_ids);
        srv_model_release(m, false);
    }
    while ((task = srv_models_await(models)).kind != SRV_TASK_STOP) {
        switch (task.kind) {
        case SRV_TASK_SWAP: srv_swap_run(l->app->swap); break;
        case SRV_TASK_SCAN: srv_scan_models(models, l->app->config); break;
        case SRV_TASK_LOAD: load_on_demand(l, task.entry); break;
        case SRV_TASK_CUT: cut(l, task.model); break;
        case SRV_TASK_FREE:
            srv_models_close(models, task.model);
            heap_trim();
            break;
        case SRV_TASK_STOP: break;
        }
    }
    srv_models_each(models, tell_closed, NULL);
}

static void *load(void *arg)
{
    struct srv_loader *l = arg;
    while (l->app->config->debug_hold_load)
        pause();
    l->status = find_model(l);
    if (!l->status) l->status = load_models(l);
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
    if (!l) {
        snprintf(err, errlen, "out of memory");
        return -1;
    }
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
