/* SPDX-License-Identifier: MIT */
#include "server/cli/core.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/os_error.h"
#include "base/thread.h"
#include "engine/engine.h"
#include "server/api/routes.h"
#include "server/models/catalogue.h"
#include "server/grammars/compile_queue.h"
#include "server/config/config.h"
#include "server/http/text_workers.h"
#include "server/models/kv_bans.h"
#include "server/models/loader.h"
#include "server/log.h"
#include "server/metrics.h"
#include "server/models/swap.h"

enum {
    CLOSED_MS = 5000,   /* for a load to notice the end, */
    WRITTEN_MS = 12000, /* and for pages to be written to kv-disk */
    LOOK_US = 100,      /* between two looks at that */
};

void srv_core_init(struct srv_core *c, const struct srv_config *config)
{
    uint64_t key[2];
    /* Random bytes may be missing in a sandbox; then the key is only hard to guess. */
    if (getrandom(key, sizeof(key), 0) != (ssize_t)sizeof(key)) {
        key[0] = clock_now_us();
        key[1] = (uintptr_t)c;
    }
    *c = (struct srv_core){.loaded_fd = -1};
    c->server.app = &c->app;
    c->server.state = &c->app.state;
    c->server.config = c->app.config = config;
    c->server.routes = srv_route_tables + (config->batch_dir ? 0 : SRV_BATCH_TABLES);
    c->server.gate = &srv_gate;
    c->server.rules.max_body_bytes = config->max_body_bytes;
    c->server.start_time_s = (double)clock_date_ms() / 1000;
    srv_retry_init(&c->server.retry, key);
    srv_bodies_init(&c->server.bodies, config->max_body_bytes);
    srv_models_init(&c->app.models);
}

/* Any thread. */
static bool engines_compute(void *models)
{
    struct srv_models_view view;
    srv_models_look(models, &view);
    return view.stats.n_running > 0;
}

static int create_models(struct srv_core *c, char *err, size_t errlen)
{
    const struct srv_config *config = c->server.config;
    struct srv_app *app = &c->app;
    struct srv_models *models = &app->models;
    models->limit_bytes = srv_catalogue_limit(config);
    models->max_models = config->models_max;
    models->autoload = config->models_autoload;
    models->wait_us = (uint64_t)config->load_wait_ms * 1000;
    models->notice_us = (uint64_t)config->heartbeat_ms * 1000;
    if (eng_cores_create(&c->cores, config->threads, err, errlen) ||
        srv_kv_bans_create(&app->kv_bans, config, err, errlen))
        return -1;
    app->swap = srv_swap_create(app);
    if (app->swap) return 0;
    return fail_with(-1, err, errlen, "no memory for swapping the model");
}

int srv_core_create(struct srv_core *c, char *err, size_t errlen)
{
    struct srv_server *s = &c->server;
    c->loaded_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (c->loaded_fd < 0)
        return fail_with(-1, err, errlen, "cannot wait for the model: %s%s", strerror(errno),
                         os_error_remedy(errno));
    s->pull = c->app.pull;
    s->metrics = c->app.metrics = srv_metrics_create();
    if (!s->metrics) return fail_with(-1, err, errlen, "no memory for the metrics");
    return create_models(c, err, errlen) ||
                   compile_queue_create(&c->app.compiles, engines_compute, &c->app.models, err,
                                        errlen) ||
                   srv_work_create(&s->work, s->config->text_workers, err, errlen)
               ? -1
               : 0;
}

static void stop_engine(void *ctx, struct srv_model *model)
{
    *(bool *)ctx |= !eng_stop_begin(model->engine);
}

/* These may wait for a disk: a load, pages that are written or erased. */
static void *close_models(void *arg)
{
    struct srv_core *c = arg;
    struct srv_app *app = &c->app;
    srv_loader_finish(c->loader);
    compile_queue_destroy(app->compiles);
    srv_swap_destroy(app->swap);
    srv_models_finish(&app->models);
    srv_kv_bans_destroy(app->kv_bans);
    return NULL;
}

/* Returns false if a disk holds them too long: what waits for it is left to itself. */
static bool end_models(struct srv_core *c)
{
    struct srv_models *models = &c->app.models;
    const struct srv_config *o = c->app.config;
    /* Of one model and without kv-disk, a command at a terminal waits as for its start. */
    bool waits = o->command != SRV_CMD_SERVE && !o->kv_disk && !o->n_more, writes = false;
    pthread_t thread;
    srv_models_stop(models);
    srv_models_each(models, stop_engine, &writes);
    const uint64_t end_us = clock_now_us() + 1000ull * (writes ? WRITTEN_MS : CLOSED_MS);
    if (waits || !c->loader || thread_start(&thread, "hearth-close", 0, close_models, c)) {
        close_models(c);
        return true;
    }
    while (pthread_tryjoin_np(thread, NULL)) { /* a join that the thread sanitizer knows */
        usleep(LOOK_US);
        if (clock_now_us() < end_us) continue;
        srv_log(SRV_LOG_WARNING, "a disk does not answer: what waits for it is abandoned");
        return false;
    }
    return true;
}

/* No job may live without its request. */
bool srv_core_close(struct srv_core *c)
{
    struct srv_server *s = &c->server;
    srv_work_destroy(s->work);
    if (!end_models(c)) return false;
    eng_cores_destroy(c->cores);
    srv_metrics_destroy(s->metrics);
    srv_retry_finish(&s->retry);
    srv_bodies_finish(&s->bodies);
    if (c->loaded_fd >= 0) close(c->loaded_fd);
    return true;
}
