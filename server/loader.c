/* SPDX-License-Identifier: MIT */
/* The thread that loads the models at the start. See loader.h. */
#include "server/loader.h"

#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/os_error.h"
#include "server/app.h"
#include "server/bounds.h"
#include "server/catalogue.h"
#include "server/config/config.h"
#include "server/hub/hub_error.h"
#include "server/log.h"
#include "server/model_lookup.h"
#include "server/serve_pull.h"
#include "server/served_model.h"

enum { ERROR_BYTES = HUB_ERR_SIZE };

struct srv_loader {
    struct srv_app *app;
    struct eng_turns *turns;
    int event_fd;
    pthread_t thread;
    char model_dir[PATH_MAX];
    bool joined;
    int status; /* exit status, once loading has ended */
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

/* An entry of the set for each model of the configuration. Returns the exit status. */
static int add_entries(struct srv_loader *l, const struct srv_plan *plans)
{
    const struct srv_config *c = l->app->config;
    struct srv_models *models = &l->app->models;
    char own[256] = "hearth-demo";
    if (!c->model_is_demo) srv_hub_model_name(c->model_shown, own, sizeof(own));
    for (int i = 0; i <= c->n_more; i++) {
        struct srv_model_params p = srv_catalogue_params(c, i, l->model_dir, &plans[i].share);
        struct srv_entry *e = NULL;
        if (!srv_catalogue_names(p.config, own, &p.names)) e = srv_models_add(models, p.config, &p);
        free(p.names.items);
        if (!e) {
            snprintf(l->error, sizeof(l->error), "out of memory");
            return EXIT_FAILURE;
        }
        e->plan_bytes = plans[i].bytes;
        srv_catalogue_facts(&e->facts, e->source.dir);
    }
    int first = c->default_model ? srv_models_find(models, c->default_model) : 0;
    if (first < 0) {
        snprintf(l->error, sizeof(l->error), "default-model: no model has the name '%.100s'",
                 c->default_model);
        return EXIT_FAILURE;
    }
    models->default_entry = first;
    return EXIT_SUCCESS;
}

/* Opens the model of an entry and publishes it. Returns the exit status. */
static int load_model(struct srv_loader *l, int entry, bool starts)
{
    struct srv_models *models = &l->app->models;
    const struct srv_entry *e = models->entries[entry];
    struct srv_model_params params = srv_entry_params(e);
    char err[ERROR_BYTES - 128] = "it is not one of those that are loaded at the start";
    struct srv_model *model;
    int n_requests, rc = -1;
    params.turns = l->turns;
    if (starts) rc = srv_model_open(&model, &params, err, sizeof(err));
    if (rc && l->app->config->n_more)
        snprintf(l->error, sizeof(l->error), "model %.100s: %s", e->source.names[0], err);
    else if (rc)
        snprintf(l->error, sizeof(l->error), "%s", err);
    else
        srv_models_publish(models, model, &n_requests);
    return rc ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* Loads all models, one after the other. Returns the exit status. */
static int load_models(struct srv_loader *l)
{
    const struct srv_config *c = l->app->config;
    struct srv_plan *plans = calloc((size_t)c->n_more + 1, sizeof(*plans));
    if (!plans) {
        snprintf(l->error, sizeof(l->error), "out of memory");
        return EXIT_FAILURE;
    }
    int status = srv_catalogue_plan(c, l->model_dir, plans, l->error, sizeof(l->error))
                     ? EXIT_FAILURE
                     : add_entries(l, plans);
    for (int i = 0; !status && i <= c->n_more; i++)
        status = load_model(l, i, plans[i].starts);
    free(plans);
    return status;
}

static void *load(void *arg)
{
    struct srv_loader *l = arg;
    while (l->app->config->debug_hold_load)
        pause();
    l->status = find_model(l);
    if (!l->status) l->status = load_models(l);
    int loading = SRV_LOADING;
    /* A drain that has begun meanwhile keeps its state. */
    atomic_compare_exchange_strong(&l->app->state, &loading, l->status ? SRV_FAILED : SRV_READY);
    uint64_t one = 1;
    if (write(l->event_fd, &one, sizeof(one)) < 0)
        srv_log(SRV_LOG_ERROR, "the loader cannot report its end");
    return NULL;
}

int srv_loader_start(struct srv_loader **ret, struct srv_app *app, struct eng_turns *turns,
                     int event_fd, char *err, size_t errlen)
{
    struct srv_loader *l = calloc(1, sizeof(*l));
    pthread_attr_t attr;
    int rc = -1;
    if (!l || pthread_attr_init(&attr)) {
        free(l);
        snprintf(err, errlen, "out of memory");
        return -1;
    }
    l->app = app;
    l->turns = turns;
    l->event_fd = event_fd;
    pthread_attr_setstacksize(&attr, SRV_WORKER_STACK_BYTES);
    rc = pthread_create(&l->thread, &attr, load, l);
    pthread_attr_destroy(&attr);
    if (rc) {
        snprintf(err, errlen, "loader thread: %s%s", strerror(rc), os_error_remedy(rc));
        free(l);
        return -1;
    }
    pthread_setname_np(l->thread, "hearth-load");
    *ret = l;
    return 0;
}

int srv_loader_result(struct srv_loader *l, char *err, size_t errlen)
{
    if (!l->joined) pthread_join(l->thread, NULL);
    l->joined = true;
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
    if (!l->joined) pthread_join(l->thread, NULL);
    free(l);
}
