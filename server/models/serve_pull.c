/* SPDX-License-Identifier: MIT */
/* A pull by the server; see serve_pull.h. */
#include "server/models/serve_pull.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "server/config/config.h"
#include "server/hub/pull.h"
#include "server/hub/pull_run.h"
#include "server/log.h"
#include "server/systemd.h"

enum { NOTICE_US = 30000000, LEFT_MIN_MS = 1000, LEFT_MAX_MS = 60000, LEFT_UNKNOWN_MS = 5000 };

struct srv_pull {
    struct hub_settings settings;
    struct hub_name name;
    struct hub_pull *pull;
    atomic_bool running;
    _Atomic uint64_t began_us;
};

/* ---- events -> log -------------------------------------------------------------------------- */

static void on_event(void *ctx, const struct hub_event *e)
{
    struct srv_pull *p = ctx;
    char total[32], cached[32];
    if (e->kind == HUB_PLAN)
        srv_log(SRV_LOG_INFO,
                "pulling %s (%s, commit %.12s): %d files, %s, of which the cache has %s",
                p->name.repo, p->name.revision, e->commit, e->n_files,
                pull_format_bytes(e->n_total, total, sizeof(total)),
                pull_format_bytes(e->n_bytes, cached, sizeof(cached)));
    else if (e->text)
        srv_log(e->kind == HUB_WAIT ? SRV_LOG_INFO : SRV_LOG_WARNING, "pull: %s", e->text);
}

/* ---- life ----------------------------------------------------------------------------------- */

int srv_pull_create(struct srv_pull **ret, const struct srv_config *config, char *err)
{
    struct srv_pull *p = calloc(1, sizeof(*p));
    if (!p) return -hub_fail(err, HUB_EINTERNAL, "out of memory");
    int rc = hub_name_parse(&p->name, config->model, err);
    if (!rc) rc = hub_pull_prepare(&p->settings, NULL, err);
    p->settings.first_wait_ms = config->debug_retry_ms;
    struct hub_pull_params params = {
        .settings = &p->settings,
        .name = &p->name,
        .to_serve = true,
        .event = on_event,
        .ctx = p,
    };
    if (!rc && !(p->pull = hub_pull_create(&params)))
        rc = hub_fail(err, HUB_EINTERNAL, "out of memory");
    if (rc) {
        srv_pull_destroy(p);
        return -rc;
    }
    atomic_store(&p->running, true);
    *ret = p;
    return 0;
}

void srv_pull_destroy(struct srv_pull *p)
{
    if (!p) return;
    hub_pull_destroy(p->pull);
    explicit_bzero(&p->settings, sizeof(p->settings));
    free(p);
}

int srv_pull_run(struct srv_pull *p, char *ret_dir, size_t size, char *err)
{
    atomic_store(&p->began_us, clock_now_us());
    int rc = hub_pull_run(p->pull, err);
    struct hub_progress progress;
    char total[32];
    hub_pull_progress(p->pull, &progress);
    atomic_store(&p->running, false);
    if (rc) return -rc;
    if (progress.n_fetched > 0)
        srv_log(SRV_LOG_INFO, "pulled %s: %s", p->name.repo,
                pull_format_bytes(progress.n_total, total, sizeof(total)));
    snprintf(ret_dir, size, "%s", hub_pull_snapshot(p->pull));
    return 0;
}

int srv_pull_percent(struct srv_pull *p)
{
    struct hub_progress progress;
    if (!p || !atomic_load(&p->running)) return -1;
    hub_pull_progress(p->pull, &progress);
    return hub_progress_percent(&progress);
}

int srv_pull_left_ms(struct srv_pull *p)
{
    struct hub_progress progress;
    if (srv_pull_percent(p) < 0) return LEFT_MIN_MS;
    hub_pull_progress(p->pull, &progress);
    double spent_ms = (double)(clock_now_us() - atomic_load(&p->began_us)) / 1000;
    double left = progress.n_fetched > 0 ? (double)(progress.n_total - progress.n_bytes) /
                                               (double)progress.n_fetched * spent_ms
                                         : LEFT_UNKNOWN_MS;
    return left < LEFT_MIN_MS ? LEFT_MIN_MS : left > LEFT_MAX_MS ? LEFT_MAX_MS : (int)left;
}

bool srv_pull_note(struct srv_pull *p)
{
    struct hub_progress progress;
    char text[100];
    int percent = srv_pull_percent(p);
    if (percent < 0) return false;
    hub_pull_progress(p->pull, &progress);
    srv_notify("EXTEND_TIMEOUT_USEC=%d\nSTATUS=Pulling %s, %d %%", NOTICE_US, p->name.repo,
               percent);
    if (progress.n_total > 0)
        srv_log(SRV_LOG_INFO, "pulling %s: %s", p->name.repo,
                pull_format_progress(&progress, text, sizeof(text)));
    return true;
}
