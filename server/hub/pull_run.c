/* SPDX-License-Identifier: MIT */
/* Pulling on the command line; see pull_run.h. */
#include "server/hub/pull_run.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/shown.h"
#include "server/config/config.h"
#include "server/hub/pull.h"
#include "server/hub/pull_progress.h"

enum { STOP_GRACE_MS = 500 }; /* what has come is on disk in any case */

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

static const char *environment(const char *name)
{
    return getenv(name);
}

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

static void give_signals_back(struct run *r)
{
    if (r->signal_fd >= 0) close(r->signal_fd);
    if (r->done_fd >= 0) close(r->done_fd);
    sigprocmask(SIG_SETMASK, &r->old_mask, NULL);
}

/* Until the pull has ended or a signal came; ms < 0: without a limit. true: it has ended. */
static bool watch(struct run *r, int ms)
{
    struct pollfd fds[] = {{.fd = r->done_fd, .events = POLLIN},
                           {.fd = r->signal_fd, .events = POLLIN}};
    for (int waited = 0; ms < 0 || waited < ms; waited += PULL_TICK_MS) {
        struct signalfd_siginfo info;
        poll(fds, 2, PULL_TICK_MS);
        if (fds[0].revents & POLLIN) return true;
        if (ms < 0) pull_view_tick(&r->view, r->pull);
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
    pull_view_failed(&r->view, 128 + r->signal, HUB_ESTOPPED, text);
    if (!ended) _exit(128 + r->signal);
    pthread_join(r->thread, NULL);
    return 128 + r->signal;
}

static bool use_cached(struct run *r)
{
    char date[11], text[HUB_ERR_SIZE + 100];
    if (r->rc != HUB_ENETWORK || r->settings.offline || !hub_pull_use_cached(r->pull, date))
        return false;
    snprintf(text, sizeof(text), "%s", r->err);
    pull_view_events.warning(&r->view, text);
    snprintf(text, sizeof(text), "the hub cannot be reached; serving the copy of %s", date);
    pull_view_events.warning(&r->view, text);
    return true;
}

static void list_file(void *ctx, const struct hub_file *f, bool cached)
{
    int64_t *missing = ctx;
    printf("%s\t%lld\t%s\n", f->path, (long long)f->size, cached ? "cached" : "missing");
    if (!cached) *missing += f->size;
}

/* The files of a dry run, one per line, fields between tabs. */
static void list_files(struct run *r)
{
    int64_t missing = 0;
    hub_pull_visit(r->pull, list_file, &missing);
    printf("total\t%lld\tto fetch\n", (long long)missing);
}

static int end_by_itself(struct run *r, bool to_serve, bool dry_run, char *ret_path, size_t size)
{
    pthread_join(r->thread, NULL);
    bool cached = r->rc && to_serve && use_cached(r);
    if (r->rc && !cached) {
        if (r->rc == HUB_ENETWORK || r->rc == HUB_EDISK) add_kept(r, r->err);
        pull_view_failed(&r->view, -r->rc, r->rc, r->err);
        return -r->rc;
    }
    if (dry_run) {
        list_files(r);
        return 0;
    }
    if (!cached) pull_view_done(&r->view, r->pull);
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
        .events = &pull_view_events,
        .ctx = &r->view,
    };
    r->pull = hub_pull_create(&params);
    if (!r->pull || take_signals(r) || pthread_create(&r->thread, NULL, run_pull, r)) {
        say(0, "out of memory or threads");
        goto out;
    }
    if (watch(r, -1))
        status = end_by_itself(r, to_serve, c->dry_run, ret_path, size);
    else
        status = end_by_signal(r);
out:
    give_signals_back(r);
    hub_pull_destroy(r->pull);
    return status;
}

int pull_run(const struct srv_config *config, bool to_serve, char *ret_path, size_t size)
{
    struct run r = {.done_fd = -1, .signal_fd = -1};
    char err[HUB_ERR_SIZE] = "";
    if (hub_name_parse(&r.name, config->model, err)) return say(HUB_EUSAGE, err);
    int rc = hub_pull_prepare(&r.settings, environment, err);
    if (rc) return say(rc, err);
    r.settings.first_wait_ms = config->debug_retry_ms;
    bool json = config->json && config->command == SRV_CMD_PULL;
    pull_view_init(&r.view, &r.name, json, r.settings.no_bars || config->dry_run);
    int status = run_in_thread(&r, config, to_serve, ret_path, size);
    pull_view_finish(&r.view);
    explicit_bzero(r.settings.token, sizeof(r.settings.token));
    return status;
}
