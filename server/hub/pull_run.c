/* SPDX-License-Identifier: MIT */
/* Pulling on the command line; see pull_run.h. */
#include "server/hub/pull_run.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/shown.h"
#include "base/thread.h"
#include "server/config/config.h"

enum {
    STOP_GRACE_MS = 500, /* the bytes received are on disk in any case */
    TICK_MS = 100,       /* between looks at the progress */
    LINE_US = 1000000,   /* between lines */
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

static void format_time(double seconds, char *buf, size_t size)
{
    long s = seconds < 0 ? 0 : seconds > 360000 ? 360000 : (long)(seconds + 0.5);
    if (s >= 3600)
        snprintf(buf, size, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(buf, size, "%ld:%02ld", s / 60, s % 60);
}

/* " 41%  111 MB of 269 MB  54 MB/s  0:03": the speed is the mean of the pull. */
static void format_figures(const struct pull_view *v, uint64_t now_us, char *buf, size_t size)
{
    char there[32], all[32], per_s[32], left[32] = "-:--";
    double seconds = (double)(now_us - v->begin_us) * 1e-6;
    double speed = seconds > 0 ? (double)v->last.n_fetched / seconds : 0;
    pull_format_bytes(v->last.n_bytes, there, sizeof(there));
    pull_format_bytes(v->last.n_total, all, sizeof(all));
    pull_format_bytes((int64_t)speed, per_s, sizeof(per_s));
    if (speed > 0)
        format_time((double)(v->last.n_total - v->last.n_bytes) / speed, left, sizeof(left));
    snprintf(buf, size, "%3d%%  %s of %s  %s/s  %s", hub_progress_percent(&v->last), there, all,
             per_s, left);
}

/* ---- events --------------------------------------------------------------------------------- */

void pull_view_event(void *ctx, const struct hub_event *e)
{
    struct pull_view *v = ctx;
    char bytes[32];
    pthread_mutex_lock(&v->lock);
    if (e->kind == HUB_PLAN) v->planned = true;
    if (e->kind == HUB_FILE && !v->quiet)
        shown_line(stderr, "hearth: %s: %s", e->what,
                   pull_format_bytes(e->n_total, bytes, sizeof(bytes)));
    if (e->text) shown_line(stderr, "hearth: %s", e->text);
    pthread_mutex_unlock(&v->lock);
}

static void init_view(struct pull_view *v, const struct hub_name *name, bool quiet)
{
    v->name = name;
    v->quiet = quiet;
    v->terminal = isatty(STDERR_FILENO);
    v->begin_us = v->shown_us = clock_now_us();
    pthread_mutex_init(&v->lock, NULL);
}

void pull_view_show(struct pull_view *v, const struct hub_progress *now, uint64_t now_us)
{
    char figures[160];
    pthread_mutex_lock(&v->lock);
    v->last = *now;
    if (v->planned && now->path && !v->quiet && !v->terminal && now_us - v->shown_us >= LINE_US) {
        v->shown_us = now_us;
        format_figures(v, now_us, figures, sizeof(figures));
        shown_line(stderr, "hearth: %s  %s", now->path, figures);
    }
    pthread_mutex_unlock(&v->lock);
}

/* After success. */
static void show_done(struct pull_view *v, struct hub_pull *p)
{
    char all[32], per_s[32];
    double seconds = (double)(clock_now_us() - v->begin_us) * 1e-6;
    hub_pull_progress(p, &v->last);
    pull_format_bytes(v->last.n_total, all, sizeof(all));
    pull_format_bytes((int64_t)((double)v->last.n_fetched / seconds), per_s, sizeof(per_s));
    if (v->last.n_fetched > 0)
        shown_line(stderr, "pulled %s: %s in %.1f s, %s/s", v->name->repo, all, seconds, per_s);
    else if (v->last.n_total > 0)
        shown_line(stderr, "%s is complete: %s", v->name->repo, all);
}

struct run {
    struct hub_settings settings;
    struct hub_name name;
    struct hub_pull *pull;
    struct pull_view view;
    pthread_t thread;
    int done_fd, signal_fd;
    sigset_t old_mask;
    int rc;     /* of the pull, once done_fd is readable */
    int signal; /* that ended it, or 0 */
    char err[HUB_ERR_SIZE];
};

static int say(int rc, const char *err)
{
    shown_line(stderr, "hearth: %s", err);
    return -rc;
}

/* ---- the thread that pulls, and the one that watches ---------------------------------------- */

static void *run_pull(void *arg)
{
    struct run *r = arg;
    uint64_t one = 1;
    r->rc = hub_pull_run(r->pull, r->err);
    if (write(r->done_fd, &one, sizeof(one)) < 0) abort(); /* an eventfd takes a one */
    return NULL;
}

static int take_signals(struct run *r)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a file that is too large is an error of its write */
    if (sigprocmask(SIG_BLOCK, &set, &r->old_mask)) return -1;
    r->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    r->done_fd = eventfd(0, EFD_CLOEXEC);
    return r->signal_fd < 0 || r->done_fd < 0 ? -1 : 0;
}

/* Until the pull has ended or a signal came; ms < 0: without a limit. true: it has ended. */
static bool watch(struct run *r, int ms)
{
    struct pollfd fds[] = {{.fd = r->done_fd, .events = POLLIN},
                           {.fd = r->signal_fd, .events = POLLIN}};
    struct hub_progress now;
    for (int waited = 0; ms < 0 || waited < ms; waited += TICK_MS) {
        struct signalfd_siginfo info;
        poll(fds, 2, TICK_MS);
        if (fds[0].revents & POLLIN) return true;
        if (ms < 0) {
            hub_pull_progress(r->pull, &now);
            pull_view_show(&r->view, &now, clock_now_us());
        }
        if (ms < 0 && read(r->signal_fd, &info, sizeof(info)) == sizeof(info)) {
            r->signal = (int)info.ssi_signo;
            return false;
        }
    }
    return false;
}

/* ---- the end -------------------------------------------------------------------------------- */

/* Adds to a text how much is kept for the next pull. */
static void add_kept(const struct run *r, char *text)
{
    int percent = hub_pull_kept_percent(r->pull);
    size_t len = strlen(text);
    if (percent <= 0) return;
    snprintf(text + len, HUB_ERR_SIZE - len, "; %d %% is kept%s", percent,
             r->signal ? "" : ", the next pull goes on from there");
}

/*
 * A signal asked for the end. The threads get half a second; if one hangs in a system call the
 * process ends under it, since nothing is left to do but that.
 */
static int end_by_signal(struct run *r)
{
    char text[HUB_ERR_SIZE] = "stopped"; /* r->err is the thread's until it has ended */
    hub_pull_stop(r->pull);
    bool ended = watch(r, STOP_GRACE_MS);
    add_kept(r, text);
    say(HUB_ESTOPPED, text);
    if (!ended) _exit(128 + r->signal);
    pthread_join(r->thread, NULL);
    return 128 + r->signal;
}

static void list_file(void *ctx, const struct hub_file *f, bool cached)
{
    int64_t *missing = ctx;
    printf("%s\t%lld\t%s\n", f->path, (long long)f->size, cached ? "cached" : "missing");
    if (!cached) *missing += f->size;
}

static int end_by_itself(struct run *r, bool dry_run, char *ret_path, size_t size)
{
    pthread_join(r->thread, NULL);
    if (r->rc) {
        if (r->rc == HUB_ENETWORK || r->rc == HUB_EDISK) add_kept(r, r->err);
        return say(r->rc, r->err);
    }
    if (dry_run) { /* its files, one per line, fields between tabs */
        int64_t missing = 0;
        hub_pull_visit(r->pull, list_file, &missing);
        printf("total\t%lld\tto fetch\n", (long long)missing);
        return 0;
    }
    show_done(&r->view, r->pull);
    snprintf(ret_path, size, "%s", hub_pull_snapshot(r->pull));
    return 0;
}

static int run_in_thread(struct run *r, const struct srv_config *c, bool to_serve, char *ret_path,
                         size_t size)
{
    int status = -HUB_EINTERNAL;
    struct hub_pull_params params = {
        .settings = &r->settings,
        .name = &r->name,
        .force = c->force,
        .dry_run = c->dry_run,
        .to_serve = to_serve,
        .event = pull_view_event,
        .ctx = &r->view,
    };
    r->pull = hub_pull_create(&params);
    if (!r->pull || take_signals(r) || thread_start(&r->thread, "hearth-pull", 0, run_pull, r)) {
        say(0, "out of memory or threads");
        goto out;
    }
    if (watch(r, -1))
        status = end_by_itself(r, c->dry_run, ret_path, size);
    else
        status = end_by_signal(r);
out:
    if (r->signal_fd >= 0) close(r->signal_fd);
    if (r->done_fd >= 0) close(r->done_fd);
    sigprocmask(SIG_SETMASK, &r->old_mask, NULL);
    hub_pull_destroy(r->pull);
    return status;
}

int pull_run(const struct srv_config *config, bool to_serve, char *ret_path, size_t size)
{
    struct run r = {.done_fd = -1, .signal_fd = -1};
    char err[HUB_ERR_SIZE] = "";
    int rc = hub_name_parse(&r.name, config->model, err);
    r.name.text_only = config->text_only;
    if (!rc) rc = hub_pull_prepare(&r.settings, NULL, err);
    if (rc) return say(rc, err);
    r.settings.first_wait_ms = config->debug_retry_ms;
    init_view(&r.view, &r.name, r.settings.no_bars || config->dry_run);
    int status = run_in_thread(&r, config, to_serve, ret_path, size);
    pthread_mutex_destroy(&r.view.lock);
    explicit_bzero(r.settings.token, sizeof(r.settings.token));
    return status;
}
