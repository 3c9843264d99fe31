/* SPDX-License-Identifier: MIT */
/* Progress of a pull; see pull_progress.h. */
#include "server/hub/pull_progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/json_writer.h"
#include "base/clock.h"
#include "base/shown.h"

enum {
    SPEED_US = 3000000,
    LINE_US = 10000000,
    JSON_US = 1000000,
    REDRAW_US = 100000,
    LINE_BYTES = 1024,
    NAME_COLUMNS = 30,
    BAR_COLUMNS = 30,
    BAR_MIN_COLUMNS = 5,
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

/* Characters of UTF-8, each taken as one column. */
static int columns_of(const char *text)
{
    int n = 0;
    for (; *text; text++)
        n += (*text & 0xc0) != 0x80;
    return n;
}

/* The bytes of at most n characters. */
static int bytes_of(const char *text, int columns)
{
    int i = 0;
    for (; text[i]; i++)
        if ((text[i] & 0xc0) != 0x80 && columns-- == 0) break;
    return i;
}

static bool is_utf8_locale(void)
{
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (int i = 0; i < 3; i++) {
        const char *value = getenv(names[i]);
        if (value && *value) return strcasestr(value, "utf-8") || strcasestr(value, "utf8");
    }
    return false;
}

/* ---- life ----------------------------------------------------------------------------------- */

void pull_view_init(struct pull_view *v, const struct hub_name *name, bool json, bool no_bars)
{
    memset(v, 0, sizeof(*v));
    v->style = json                    ? PULL_JSON
               : no_bars               ? PULL_SILENT
               : isatty(STDERR_FILENO) ? PULL_BAR
                                       : PULL_LINES;
    v->name = name;
    v->utf8 = is_utf8_locale();
    v->begin_us = v->shown_us = clock_now_us();
    pthread_mutex_init(&v->lock, NULL);
}

void pull_view_finish(struct pull_view *v)
{
    pthread_mutex_destroy(&v->lock);
}

/* ---- the bar -------------------------------------------------------------------------------- */

static int screen_columns(void)
{
    const char *text = getenv("COLUMNS");
    long n = text ? strtol(text, NULL, 10) : 0;
    struct winsize size;
    if (n <= 0 && ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0) n = size.ws_col;
    return n <= 0 ? DEFAULT_COLUMNS : n > 300 ? 300 : (int)n;
}

/* Removes the bar, so that a line can be written. */
static void clear_bar(struct pull_view *v)
{
    if (v->bar_columns) fprintf(stderr, "\r%*s\r", v->bar_columns, "");
    v->bar_columns = 0;
}

/* A bar n columns wide, in eighths of a column if the terminal has the characters. */
static void draw_blocks(const struct pull_view *v, double share, int columns, char *buf,
                        size_t size)
{
    static const char *const eighths[] = {" ",      "\u258f", "\u258e", "\u258d", "\u258c",
                                          "\u258b", "\u258a", "\u2589", "\u2588"};
    size_t at = 0;
    int full = (int)(share * 8 * columns);
    for (int i = 0; i < columns && at + 4 < size; i++, full -= 8) {
        int eighth = full < 0 ? 0 : full > 8 ? 8 : full;
        const char *block = v->utf8 ? eighths[eighth] : eighth >= 4 ? "#" : ".";
        at += (size_t)snprintf(buf + at, size - at, "%s", block);
    }
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

static void draw_bar(struct pull_view *v)
{
    char figures[160], blocks[4 * BAR_COLUMNS + 8] = "", line[LINE_BYTES];
    const char *path = active_path(&v->last);
    format_figures(v, figures, sizeof(figures));
    int room = screen_columns() - 1 - columns_of(figures) - 4;
    int name = columns_of(path) < NAME_COLUMNS ? columns_of(path) : NAME_COLUMNS;
    if (name > room - BAR_MIN_COLUMNS) name = room > 0 ? room : 0;
    int bar = room - name < BAR_COLUMNS ? room - name : BAR_COLUMNS;
    if (bar >= BAR_MIN_COLUMNS)
        draw_blocks(v, (double)v->last.n_bytes / (double)v->last.n_total, bar, blocks,
                    sizeof(blocks));
    snprintf(line, sizeof(line), "%.*s%s%s%s%s", bytes_of(path, name), path, name ? "  " : "",
             blocks, blocks[0] ? "  " : "", figures);
    int columns = columns_of(line), padding = v->bar_columns - columns;
    fprintf(stderr, "\r%s%*s", line, padding > 0 ? padding : 0, "");
    v->bar_columns = columns;
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

static void on_plan(void *ctx, const struct hub_plan *plan)
{
    struct pull_view *v = ctx;
    pthread_mutex_lock(&v->lock);
    v->planned = true;
    v->last.n_bytes = plan->n_cached;
    v->last.n_total = plan->n_total;
    if (v->style == PULL_JSON) {
        struct line l;
        begin_json(&l, "start");
        jw_text(&l.w, "model", v->name->repo);
        jw_text(&l.w, "revision", v->name->revision);
        jw_text(&l.w, "commit", plan->commit);
        jw_int(&l.w, "files", plan->n_files);
        jw_int(&l.w, "total", plan->n_total);
        jw_int(&l.w, "cached", plan->n_cached);
        end_json(&l);
    }
    pthread_mutex_unlock(&v->lock);
}

static void on_file(void *ctx, const char *path, int64_t size)
{
    struct pull_view *v = ctx;
    char bytes[32];
    pthread_mutex_lock(&v->lock);
    if (v->style == PULL_JSON && v->planned) write_json_progress(v, path, size);
    if (v->style == PULL_LINES)
        shown_line(stderr, "hearth: %s: %s", path, pull_format_bytes(size, bytes, sizeof(bytes)));
    pthread_mutex_unlock(&v->lock);
}

static void on_retry(void *ctx, const char *what, const char *reason, int n_try, int wait_ms)
{
    struct pull_view *v = ctx;
    pthread_mutex_lock(&v->lock);
    clear_bar(v);
    if (v->style == PULL_JSON) {
        struct line l;
        begin_json(&l, "retry");
        jw_text(&l.w, "what", what);
        jw_text(&l.w, "reason", reason);
        jw_int(&l.w, "try", n_try);
        jw_fixed(&l.w, "wait_s", wait_ms / 1000.0, 1);
        end_json(&l);
    } else {
        shown_line(stderr, "hearth: %s; try %d follows in %.1f s", reason, n_try, wait_ms / 1000.0);
    }
    pthread_mutex_unlock(&v->lock);
}

static void on_warning(void *ctx, const char *text)
{
    struct pull_view *v = ctx;
    pthread_mutex_lock(&v->lock);
    clear_bar(v);
    shown_line(stderr, "hearth: %s", text);
    pthread_mutex_unlock(&v->lock);
}

static void on_wait(void *ctx, const char *path)
{
    char text[HUB_PATH_MAX + 80];
    snprintf(text, sizeof(text), "%s: another program is fetching it; waiting for that", path);
    on_warning(ctx, text);
}

const struct hub_pull_events pull_view_events = {
    .plan = on_plan,
    .file = on_file,
    .retry = on_retry,
    .wait = on_wait,
    .warning = on_warning,
};

/* ---- time ----------------------------------------------------------------------------------- */

static void take_sample(struct pull_view *v, struct hub_pull *p, uint64_t now_us)
{
    hub_pull_progress(p, &v->last);
    int at = v->n_samples++ % PULL_SAMPLES;
    v->samples[at].us = now_us;
    v->samples[at].n_fetched = v->last.n_fetched;
}

static void write_line(struct pull_view *v)
{
    char figures[160];
    format_figures(v, figures, sizeof(figures));
    shown_line(stderr, "hearth: %s  %s", active_path(&v->last), figures);
}

void pull_view_tick(struct pull_view *v, struct hub_pull *p)
{
    static const uint64_t interval_us[] = {
        [PULL_SILENT] = UINT64_MAX,
        [PULL_LINES] = LINE_US,
        [PULL_BAR] = REDRAW_US,
        [PULL_JSON] = JSON_US,
    };
    uint64_t now_us = clock_now_us();
    pthread_mutex_lock(&v->lock);
    if (v->planned) {
        take_sample(v, p, now_us);
        bool due = now_us - v->shown_us >= interval_us[v->style];
        if (due) v->shown_us = now_us;
        if (due && v->style == PULL_BAR && v->last.n_total > 0) draw_bar(v);
        if (due && v->style == PULL_LINES) write_line(v);
        if (due && v->style == PULL_JSON) write_json_progress(v, NULL, 0);
    }
    pthread_mutex_unlock(&v->lock);
}

void pull_view_done(struct pull_view *v, struct hub_pull *p)
{
    char all[32], per_s[32];
    double seconds = (double)(clock_now_us() - v->begin_us) * 1e-6;
    hub_pull_progress(p, &v->last);
    pull_format_bytes(v->last.n_total, all, sizeof(all));
    pull_format_bytes((int64_t)((double)v->last.n_fetched / seconds), per_s, sizeof(per_s));
    clear_bar(v);
    if (v->style == PULL_JSON) {
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

void pull_view_failed(struct pull_view *v, int exit_status, int rc, const char *message)
{
    static const char *const codes[] = {"internal",   "internal", "usage",         "not_found",
                                        "denied",     "network",  "wrong_content", "disk",
                                        "not_served", "stopped"};
    clear_bar(v);
    if (v->style == PULL_JSON) {
        struct line l;
        begin_json(&l, "error");
        jw_int(&l.w, "exit", exit_status);
        jw_text(&l.w, "code", codes[rc < 0 && rc >= -9 ? -rc : 0]);
        jw_text(&l.w, "message", message);
        end_json(&l);
    }
    shown_line(stderr, "hearth: %s", message);
}
