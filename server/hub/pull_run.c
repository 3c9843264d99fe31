/* SPDX-License-Identifier: MIT */
/* Pulling on the command line; see pull_run.h. */
#include "server/hub/pull_run.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/json_writer.h"
#include "base/shown.h"
#include "base/thread.h"
#include "server/config/config.h"

enum {
    STOP_GRACE_MS = 500, /* the bytes received are on disk in any case */
    TICK_MS = 100,       /* between looks at the progress, and redrawings on a terminal */
    LINE_US = 1000000,   /* between lines elsewhere */
    SPEED_US = 3000000,  /* the speed is the mean of so long */
    DEFAULT_COLUMNS = 80,
    JSON_MAX_BYTES = 64 << 10,
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

/* "111/269 MB": both in the unit of the second. */
static void format_share(int64_t n, int64_t total, char *buf, size_t size)
{
    static const struct {
        const char *name;
        double factor;
    } units[] = {{"B", 1}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}};
    int unit = total >= 100000000000 ? 3 : total >= 1000000 ? 2 : total >= 1000 ? 1 : 0;
    int digits = unit && (double)total / units[unit].factor < 10 ? 1 : 0;
    snprintf(buf, size, "%.*f/%.*f %s", digits, (double)n / units[unit].factor, digits,
             (double)total / units[unit].factor, units[unit].name);
}

static void format_time(double seconds, char *buf, size_t size)
{
    long s = seconds < 0 ? 0 : seconds > 360000 ? 360000 : (long)(seconds + 0.5);
    if (s >= 3600)
        snprintf(buf, size, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(buf, size, "%ld:%02ld", s / 60, s % 60);
}

/* ---- the line of progress ------------------------------------------------------------------- */

static int screen_columns(void)
{
    const char *text = getenv("COLUMNS");
    long n = text ? strtol(text, NULL, 10) : 0;
    struct winsize size;
    if (n <= 0 && ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0) n = size.ws_col;
    return n <= 0 ? DEFAULT_COLUMNS : n > 300 ? 300 : (int)n;
}

/* Removes the line from a terminal, so that another one can be written. */
static void clear_line(struct pull_view *v)
{
    if (v->columns) fprintf(stderr, "\r%*s\r", v->columns, "");
    v->columns = 0;
}

/* The bytes of at most n characters of UTF-8, each taken as one column; *ret_n: how many. */
static int fit(const char *text, int columns, int *ret_n)
{
    int i = 0;
    for (*ret_n = 0; text[i]; i++) {
        bool begins = (text[i] & 0xc0) != 0x80;
        if (begins && *ret_n >= columns) break;
        *ret_n += begins;
    }
    return i;
}

/* Bytes per second over the last seconds. */
static double speed(const struct pull_view *v)
{
    if (v->n_samples < 2) return 0;
    int newest = (v->n_samples - 1) % PULL_SAMPLES, oldest = newest;
    for (int i = 1; i < PULL_SAMPLES && i < v->n_samples; i++) {
        int at = (newest + PULL_SAMPLES - i) % PULL_SAMPLES;
        if (v->samples[newest].us - v->samples[at].us > SPEED_US) break;
        oldest = at;
    }
    double us = (double)(v->samples[newest].us - v->samples[oldest].us);
    double n = (double)(v->samples[newest].n_fetched - v->samples[oldest].n_fetched);
    return us > 0 ? n * 1e6 / us : 0;
}

/* Seconds left at this speed; -1: not known. */
static double seconds_left(const struct pull_view *v)
{
    double per_s = speed(v);
    return per_s > 0 ? (double)(v->last.n_total - v->last.n_bytes) / per_s : -1;
}

/* The largest of the files being fetched. */
static const char *active_path(const struct hub_progress *p)
{
    int best = 0;
    for (int i = 1; i < p->n_active; i++)
        if (p->active[i].n_total > p->active[best].n_total) best = i;
    return p->n_active ? p->active[best].path : "";
}

/* " 41%  111/269 MB  54 MB/s  0:03" */
static void format_figures(const struct pull_view *v, char *buf, size_t size)
{
    char share[64], per_s[32], left[32] = "-:--";
    format_share(v->last.n_bytes, v->last.n_total, share, sizeof(share));
    pull_format_bytes((int64_t)speed(v), per_s, sizeof(per_s));
    if (seconds_left(v) >= 0) format_time(seconds_left(v), left, sizeof(left));
    snprintf(buf, size, "%3d%%  %s  %s/s  %s", hub_progress_percent(&v->last), share, per_s, left);
}

/* Draws the line again on a terminal, as wide as that is; elsewhere writes one more. */
static void show_line(struct pull_view *v)
{
    char figures[160];
    const char *path = active_path(&v->last);
    int n_path, n_figures, before = v->columns;
    format_figures(v, figures, sizeof(figures));
    if (!v->terminal) {
        shown_line(stderr, "hearth: %s  %s", path, figures);
        return;
    }
    int room = screen_columns() - 1;
    int figures_len = fit(figures, room, &n_figures);
    int path_len = fit(path, room - n_figures - 2, &n_path);
    v->columns = n_path + (n_path > 0) * 2 + n_figures;
    fprintf(stderr, "\r%.*s%s%.*s%*s", path_len, path, n_path ? "  " : "", figures_len, figures,
            before > v->columns ? before - v->columns : 0, "");
}

/* ---- JSON ----------------------------------------------------------------------------------- */

/* Writes one line to stdout from its own buffer. */
struct line {
    struct buf b;
    struct jw w;
};

static void begin_json(struct line *l, const char *event)
{
    buf_init(&l->b, JSON_MAX_BYTES);
    jw_init(&l->w, &l->b);
    jw_open(&l->w, NULL, '{');
    jw_text(&l->w, "event", event);
}

static void end_json(struct line *l)
{
    jw_close(&l->w);
    jw_end(&l->w);
    buf_puts(&l->b, "\n");
    if (!l->b.failed) fwrite(l->b.data, 1, l->b.len, stdout);
    fflush(stdout);
    buf_finish(&l->b);
}

static void add_file(struct jw *w, const char *path, int64_t n_bytes, int64_t n_total)
{
    jw_open(w, NULL, '{');
    jw_text(w, "path", path);
    jw_int(w, "bytes", n_bytes);
    jw_int(w, "total", n_total);
    jw_close(w);
}

/* ended: a file that has just been completed; else the active ones are named. */
static void write_json_progress(const struct pull_view *v, const char *ended, int64_t size)
{
    struct line l;
    const struct hub_progress *p = &v->last;
    double left = seconds_left(v);
    begin_json(&l, "progress");
    jw_int(&l.w, "bytes", p->n_bytes);
    jw_int(&l.w, "total", p->n_total);
    jw_int(&l.w, "bytes_per_s", (int64_t)speed(v));
    if (left >= 0)
        jw_fixed(&l.w, "eta_s", left, 1);
    else
        jw_null(&l.w, "eta_s");
    jw_open(&l.w, "files", '[');
    if (ended) add_file(&l.w, ended, size, size);
    for (int i = 0; !ended && i < p->n_active; i++)
        add_file(&l.w, p->active[i].path, p->active[i].n_bytes, p->active[i].n_total);
    jw_close(&l.w);
    end_json(&l);
}

/* ---- events --------------------------------------------------------------------------------- */

static void write_jspull_view_event(const struct pull_view *v, const struct hub_event *e)
{
    struct line l;
    if (e->kind == HUB_PLAN) {
        begin_json(&l, "start");
        jw_text(&l.w, "model", v->name->repo);
        jw_text(&l.w, "revision", v->name->revision);
        jw_text(&l.w, "commit", e->commit);
        jw_int(&l.w, "files", e->n_files);
        jw_int(&l.w, "total", e->n_total);
        jw_int(&l.w, "cached", e->n_bytes);
        end_json(&l);
    } else if (e->kind == HUB_RETRY) {
        begin_json(&l, "retry");
        jw_text(&l.w, "what", e->what);
        jw_text(&l.w, "reason", e->reason);
        jw_int(&l.w, "try", e->n_try);
        jw_fixed(&l.w, "wait_s", e->wait_ms / 1000.0, 1);
        end_json(&l);
    } else if (e->kind == HUB_FILE && v->planned) {
        write_json_progress(v, e->what, e->n_total);
    }
}

void pull_view_event(void *ctx, const struct hub_event *e)
{
    struct pull_view *v = ctx;
    char bytes[32];
    pthread_mutex_lock(&v->lock);
    if (e->kind == HUB_PLAN) {
        v->planned = true;
        v->last.n_bytes = e->n_bytes;
        v->last.n_total = e->n_total;
    }
    if (v->json) write_jspull_view_event(v, e);
    clear_line(v);
    if (e->kind == HUB_FILE && !v->json && !v->quiet)
        shown_line(stderr, "hearth: %s: %s", e->what,
                   pull_format_bytes(e->n_total, bytes, sizeof(bytes)));
    if (e->text && !(v->json && e->kind == HUB_RETRY)) shown_line(stderr, "hearth: %s", e->text);
    pthread_mutex_unlock(&v->lock);
}

static void init_view(struct pull_view *v, const struct hub_name *name, bool json, bool quiet)
{
    v->name = name;
    v->json = json;
    v->quiet = quiet;
    v->terminal = isatty(STDERR_FILENO);
    v->begin_us = v->shown_us = clock_now_us();
    pthread_mutex_init(&v->lock, NULL);
}

void pull_view_show(struct pull_view *v, const struct hub_progress *now, uint64_t now_us)
{
    pthread_mutex_lock(&v->lock);
    if (v->planned) {
        int at = v->n_samples++ % PULL_SAMPLES;
        v->last = *now;
        v->samples[at].us = now_us;
        v->samples[at].n_fetched = now->n_fetched;
        bool redraws = v->terminal && !v->json;
        bool due = redraws || now_us - v->shown_us >= LINE_US;
        if (due) v->shown_us = now_us;
        if (due && v->json)
            write_json_progress(v, NULL, 0);
        else if (due && !v->quiet && now->n_active)
            show_line(v);
    }
    pthread_mutex_unlock(&v->lock);
}

/* After success: removes the line and writes a summary, of JSON the last object. */
static void show_done(struct pull_view *v, struct hub_pull *p)
{
    char all[32], per_s[32];
    double seconds = (double)(clock_now_us() - v->begin_us) * 1e-6;
    hub_pull_progress(p, &v->last);
    pull_format_bytes(v->last.n_total, all, sizeof(all));
    pull_format_bytes((int64_t)((double)v->last.n_fetched / seconds), per_s, sizeof(per_s));
    clear_line(v);
    if (v->json) {
        struct line l;
        begin_json(&l, "done");
        jw_text(&l.w, "path", hub_pull_snapshot(p));
        jw_int(&l.w, "bytes", v->last.n_total);
        jw_fixed(&l.w, "seconds", seconds, 3);
        end_json(&l);
    } else if (v->last.n_fetched > 0) {
        shown_line(stderr, "pulled %s: %s in %.1f s, %s/s", v->name->repo, all, seconds, per_s);
    } else if (v->last.n_total > 0) {
        shown_line(stderr, "%s is complete: %s", v->name->repo, all);
    }
}

static void show_failed(struct pull_view *v, int exit_status, int rc, const char *message)
{
    static const char *const codes[] = {"internal",   "internal", "usage",         "not_found",
                                        "denied",     "network",  "wrong_content", "disk",
                                        "not_served", "stopped"};
    clear_line(v);
    if (v->json) {
        struct line l;
        begin_json(&l, "error");
        jw_int(&l.w, "exit", exit_status);
        jw_text(&l.w, "code", codes[rc < 0 && rc >= -9 ? -rc : 0]);
        jw_text(&l.w, "message", message);
        end_json(&l);
    }
    shown_line(stderr, "hearth: %s", message);
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
    show_failed(&r->view, 128 + r->signal, HUB_ESTOPPED, text);
    if (!ended) _exit(128 + r->signal);
    pthread_join(r->thread, NULL);
    return 128 + r->signal;
}

static bool use_cached(struct run *r)
{
    char date[11], text[80];
    if (r->rc != HUB_ENETWORK || r->settings.offline || !hub_pull_use_cached(r->pull, date))
        return false;
    pull_view_event(&r->view, &(struct hub_event){.kind = HUB_WARNING, .text = r->err});
    snprintf(text, sizeof(text), "the hub cannot be reached; serving the copy of %s", date);
    pull_view_event(&r->view, &(struct hub_event){.kind = HUB_WARNING, .text = text});
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
        show_failed(&r->view, -r->rc, r->rc, r->err);
        return -r->rc;
    }
    if (dry_run) {
        list_files(r);
        return 0;
    }
    if (!cached) show_done(&r->view, r->pull);
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
    int rc = hub_name_parse(&r.name, config->model, err);
    if (!rc) rc = hub_pull_prepare(&r.settings, environment, err);
    if (rc) return say(rc, err);
    r.settings.first_wait_ms = config->debug_retry_ms;
    bool json = config->json && config->command == SRV_CMD_PULL;
    init_view(&r.view, &r.name, json, r.settings.no_bars || config->dry_run);
    int status = run_in_thread(&r, config, to_serve, ret_path, size);
    pthread_mutex_destroy(&r.view.lock);
    explicit_bzero(r.settings.token, sizeof(r.settings.token));
    return status;
}
