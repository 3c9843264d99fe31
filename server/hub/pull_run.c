/* SPDX-License-Identifier: MIT */
/* Pulling on the command line; see pull_run.h. */
#include "server/hub/pull_run.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/shown.h"
#include "server/config/config.h"

enum {
    STOP_GRACE_US = 500000, /* the bytes received are on disk in any case */
    LINE_US = 1000000,      /* between lines */
};

/* ---- texts ---------------------------------------------------------------------------------- */

const char *pull_format_bytes(int64_t n, char *buf, size_t size)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
    double x = (double)n;
    int unit = 0;
    while (x >= 999.5 && unit < 4) {
        x /= 1000;
        unit++;
    }
    snprintf(buf, size, unit && x < 9.95 ? "%.1f %s" : "%.0f %s", x, units[unit]);
    return buf;
}

const char *pull_format_progress(const struct hub_progress *p, char *buf, size_t size)
{
    char there[32], all[32];
    snprintf(buf, size, "%d %%, %s of %s", hub_progress_percent(p),
             pull_format_bytes(p->n_bytes, there, sizeof(there)),
             pull_format_bytes(p->n_total, all, sizeof(all)));
    return buf;
}

/* ---- events --------------------------------------------------------------------------------- */

void pull_view_event(void *ctx, const struct hub_event *e)
{
    struct pull_view *v = ctx;
    char bytes[32];
    if (e->kind == HUB_PLAN) v->planned = true;
    if (e->kind == HUB_BYTES) pull_view_show(v, e->progress, clock_now_us());
    if (e->kind == HUB_FILE && !v->quiet)
        shown_line(stderr, "hearth: %s: %s", e->what,
                   pull_format_bytes(e->n_total, bytes, sizeof(bytes)));
    if (e->text) shown_line(stderr, "hearth: %s", e->text);
}

void pull_view_show(struct pull_view *v, const struct hub_progress *now, uint64_t now_us)
{
    char figures[160];
    if (v->planned && !v->quiet && !v->terminal && now_us - v->shown_us >= LINE_US) {
        v->shown_us = now_us;
        shown_line(stderr, "hearth: %s: %s", now->path,
                   pull_format_progress(now, figures, sizeof(figures)));
    }
}

/* After success. */
static void show_done(struct pull_view *v, struct hub_pull *p)
{
    struct hub_progress last;
    char all[32], per_s[32];
    double seconds = (double)(clock_now_us() - v->begin_us) * 1e-6;
    hub_pull_progress(p, &last);
    pull_format_bytes(last.n_total, all, sizeof(all));
    pull_format_bytes((int64_t)((double)last.n_fetched / seconds), per_s, sizeof(per_s));
    if (last.n_fetched > 0)
        shown_line(stderr, "pulled %s: %s in %.1f s, %s/s", v->name->repo, all, seconds, per_s);
    else if (last.n_total > 0)
        shown_line(stderr, "%s is complete: %s", v->name->repo, all);
}

static int say(int rc, const char *err)
{
    shown_line(stderr, "hearth: %s", err);
    return -rc;
}

/* ---- signals -------------------------------------------------------------------------------- */

static struct hub_pull *running;
static volatile sig_atomic_t stopped_by; /* a signal, or 0 */

/*
 * The pull ends soon; if it hangs in a system call the process ends under it, since nothing is left
 * to do but that.
 */
static void on_signal(int number)
{
    if (number == SIGALRM) _exit(128 + stopped_by);
    stopped_by = number;
    hub_pull_stop(running);
    ualarm(STOP_GRACE_US, 0);
}

static int run_until_signal(struct hub_pull *p, char *err)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGALRM};
    const struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    struct sigaction before[3];
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a file that is too large is an error of its write */
    running = p;
    for (int i = 0; i < 3; i++)
        sigaction(numbers[i], &action, &before[i]);
    int rc = hub_pull_run(p, err);
    ualarm(0, 0);
    for (int i = 0; i < 3; i++)
        sigaction(numbers[i], &before[i], NULL);
    return rc;
}

/* ---- the end -------------------------------------------------------------------------------- */

/* Adds to a text how much is kept for the next pull. */
static void add_kept(struct hub_pull *p, char *text)
{
    int percent = hub_pull_kept_percent(p);
    size_t len = strlen(text);
    if (percent <= 0) return;
    snprintf(text + len, HUB_ERR_SIZE - len, "; %d %% is kept%s", percent,
             stopped_by ? "" : ", the next pull goes on from there");
}

static void list_file(void *ctx, const struct hub_file *f, bool cached)
{
    int64_t *missing = ctx;
    printf("%s\t%lld\t%s\n", f->path, (long long)f->size, cached ? "cached" : "missing");
    if (!cached) *missing += f->size;
}

/* The exit status of a pull that has failed. */
static int end_failed(struct hub_pull *p, int rc, char *err)
{
    if (stopped_by) snprintf(err, HUB_ERR_SIZE, "stopped");
    if (stopped_by || rc == HUB_ENETWORK || rc == HUB_EDISK) add_kept(p, err);
    say(rc, err);
    return stopped_by ? 128 + stopped_by : -rc;
}

static int run(const struct hub_pull_params *params, char *ret_path, size_t size, char *err)
{
    int64_t missing = 0;
    struct hub_pull *p = hub_pull_create(params);
    if (!p) return say(HUB_EINTERNAL, "out of memory");
    int rc = run_until_signal(p, err);
    int status = rc || stopped_by ? end_failed(p, rc, err) : 0;
    if (!status && params->dry_run) { /* its files, one per line, fields between tabs */
        hub_pull_visit(p, list_file, &missing);
        printf("total\t%lld\tto fetch\n", (long long)missing);
    } else if (!status) {
        show_done(params->ctx, p);
        snprintf(ret_path, size, "%s", hub_pull_snapshot(p));
    }
    hub_pull_destroy(p);
    return status;
}

int pull_run(const struct srv_config *config, bool to_serve, char *ret_path, size_t size)
{
    struct hub_settings settings;
    struct hub_name name;
    char err[HUB_ERR_SIZE] = "";
    int rc = hub_name_parse(&name, config->model, err);
    name.text_only = config->text_only;
    if (!rc) rc = hub_pull_prepare(&settings, NULL, err);
    if (rc) return say(rc, err);
    struct pull_view view = {.name = &name, .quiet = settings.no_bars || config->dry_run};
    const struct hub_pull_params params = {
        .settings = &settings,
        .name = &name,
        .force = config->force,
        .dry_run = config->dry_run,
        .to_serve = to_serve,
        .event = pull_view_event,
        .ctx = &view,
    };
    settings.first_wait_ms = config->debug_retry_ms;
    view.terminal = isatty(STDERR_FILENO);
    view.begin_us = view.shown_us = clock_now_us();
    int status = run(&params, ret_path, size, err);
    explicit_bzero(settings.token, sizeof(settings.token));
    return status;
}
