/* SPDX-License-Identifier: MIT */
/*
 * Log lines as text or as one JSON object each, and the queue between the threads that log and the
 * one that writes. Lines wait in one of two buffers under one mutex; the writing thread takes that,
 * leaves the other one, and writes without the lock.
 */
#include "server/log.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/json_writer.h"
#include "base/os_error.h"
#include "base/thread.h"
#include "server/bounds.h"

static struct {
    bool json;
    bool brief; /* for a person who watches: requests on a terminal, unless a format is asked for */
    enum srv_log_level level;
} how = {.json = false, .level = SRV_LOG_INFO};

static const char *const level_names[] = {"error", "warning", "info", "debug"};

enum { BRIEF_COLUMNS = 100 };

static struct {
    pthread_mutex_t lock; /* guards the fields below */
    pthread_cond_t filled, drained;
    char buffers[2][SRV_LOG_QUEUE_BYTES];
    int filling; /* the buffer that lines are added to */
    size_t len;
    bool started, writing;
    uint64_t n_dropped, n_reported; /* lines; of these, reported in a line of the log */
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER, .filled = PTHREAD_COND_INITIALIZER};

void srv_log_init(const char *format, const char *level)
{
    how.json = format && strcasecmp(format, "json") == 0;
    how.brief = !format || strcasecmp(format, "auto") == 0;
    if (how.brief) how.json = !isatty(STDERR_FILENO);
    for (int i = 0; level && i <= SRV_LOG_DEBUG; i++)
        if (strcasecmp(level, level_names[i]) == 0) how.level = (enum srv_log_level)i;
}

/* A line while it is written: its JSON object, or text. */
struct line {
    struct buf text;
    struct jw w;
};

static void format_time(char *text, size_t size)
{
    int64_t now_ms = clock_date_ms();
    time_t seconds = (time_t)(now_ms / 1000);
    struct tm utc;
    gmtime_r(&seconds, &utc);
    snprintf(text, size, "%04d-%02d-%02dT%02d:%02d:%02d.%03ldZ", utc.tm_year + 1900, utc.tm_mon + 1,
             utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, (long)(now_ms % 1000));
}

/* Text for a line. Bytes that are not printable or are in `also` become \xNN. */
static void add_escaped(struct buf *b, const char *text, size_t len, const char *also)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c < 0x20 || c >= 0x7f || c == '\\' || strchr(also, c))
            buf_printf(b, "\\x%02x", c);
        else
            buf_add(b, text + i, 1);
    }
}

/* ---- the queue ----------------------------------------------------------------------------- */

/* Writes all of it, waiting if needed. Returns the bytes left if stderr accepts no more. */
static size_t write_all(const char *data, size_t len)
{
    while (len) {
        ssize_t n = write(STDERR_FILENO, data, len);
        if (n >= 0) {
            data += n;
            len -= (size_t)n;
        } else if (errno == EAGAIN) { /* a process that shares stderr has made it non-blocking */
            poll(&(struct pollfd){.fd = STDERR_FILENO, .events = POLLOUT}, 1, -1);
        } else if (errno != EINTR) {
            break;
        }
    }
    return len;
}

/* Returns false if there is no room. The lock is held. */
static bool append(const char *data, size_t len)
{
    if (len > SRV_LOG_QUEUE_BYTES - queue.len) return false;
    memcpy(queue.buffers[queue.filling] + queue.len, data, len);
    queue.len += len;
    pthread_cond_signal(&queue.filled);
    return true;
}

static bool write_line(struct buf *b)
{
    buf_puts(b, "\n");
    pthread_mutex_lock(&queue.lock);
    bool by_thread = queue.started;
    bool kept = !by_thread || (!b->failed && append(b->data, b->len));
    if (!kept) queue.n_dropped++;
    pthread_mutex_unlock(&queue.lock);
    /* A failure to write the log cannot be reported anywhere. */
    if (!by_thread && !b->failed) write_all(b->data, b->len);
    return kept;
}

static uint64_t count_lines(const char *text, size_t len)
{
    uint64_t n = 0;
    for (const char *end = text + len; (text = memchr(text, '\n', (size_t)(end - text))); text++)
        n++;
    return n;
}

static void *write_thread(void *arg)
{
    pthread_mutex_lock(&queue.lock);
    for (;;) {
        while (!queue.len) {
            queue.writing = false;
            pthread_cond_broadcast(&queue.drained);
            pthread_cond_wait(&queue.filled, &queue.lock);
        }
        queue.writing = true;
        const char *lines = queue.buffers[queue.filling];
        size_t len = queue.len;
        queue.filling = !queue.filling;
        queue.len = 0;
        pthread_mutex_unlock(&queue.lock);
        size_t left = write_all(lines, len);
        uint64_t n_lost = count_lines(lines + len - left, left);
        pthread_mutex_lock(&queue.lock);
        queue.n_dropped += n_lost;
        assert(queue.n_reported <= queue.n_dropped);
        uint64_t n_unreported = left ? 0 : queue.n_dropped - queue.n_reported;
        if (!n_unreported) continue;
        pthread_mutex_unlock(&queue.lock);
        bool kept =
            srv_log(SRV_LOG_WARNING, "dropped %llu log lines: stderr did not accept them in time",
                    (unsigned long long)n_unreported);
        pthread_mutex_lock(&queue.lock);
        if (kept) queue.n_reported += n_unreported; /* else after the lines that take its room */
    }
    return arg;
}

int srv_log_start(char *err, size_t errlen)
{
    pthread_t thread;
    thread_cond_init(&queue.drained);
    int rc = thread_start(&thread, "hearth-log", 0, write_thread, NULL);
    if (rc)
        return fail_with(-1, err, errlen, "log thread: %s%s", strerror(rc), os_error_remedy(rc));
    pthread_detach(thread);
    HOLD(&queue.lock);
    queue.started = true;
    return 0;
}

void srv_log_flush(int limit_ms)
{
    struct timespec end = clock_after_ms(limit_ms);
    HOLD(&queue.lock);
    int rc = 0;
    while (queue.started && (queue.len || queue.writing) && rc == 0)
        rc = pthread_cond_timedwait(&queue.drained, &queue.lock, &end);
}

uint64_t srv_log_n_dropped(void)
{
    HOLD(&queue.lock);
    return queue.n_dropped;
}

/* ---- lines --------------------------------------------------------------------------------- */

static void begin_json(struct line *l, enum srv_log_level level)
{
    char now[80];
    format_time(now, sizeof(now));
    jw_init(&l->w, &l->text);
    jw_fields(&l->w, "{ time %s level %s", now, level_names[level]);
}

static bool end_line(struct line *l)
{
    if (how.json) jw_close(&l->w);
    if (how.json) jw_end(&l->w);
    bool kept = write_line(&l->text);
    buf_finish(&l->text);
    return kept;
}

/* ---- messages ------------------------------------------------------------------------------ */

bool srv_log(enum srv_log_level level, const char *format, ...)
{
    if (level > how.level) return true;
    char text[SRV_LOG_LINE_MAX_BYTES / 2];
    FORMAT_REST(text, sizeof(text), format);
    struct line line;
    buf_init(&line.text, 6 * sizeof(text) + 256); /* every byte of the text may need an escape */
    if (how.json) {
        begin_json(&line, level);
        jw_text(&line.w, "message", text);
    } else {
        buf_puts(&line.text, level <= SRV_LOG_WARNING ? level_names[level] : "hearth");
        buf_puts(&line.text, ": ");
        add_escaped(&line.text, text, strlen(text), "");
    }
    return end_line(&line);
}

/* ---- the access log ------------------------------------------------------------------------ */

static size_t bounded_len(const char *text)
{
    size_t len = 0;
    /* Not strnlen: with link-time optimisation gcc sees texts in fields shorter than the bound. */
    while (len < SRV_LOG_FIELD_MAX_BYTES && text[len])
        len++;
    return len;
}

static void add_text_field(struct line *l, const char *name, const char *value)
{
    if (!value) return;
    if (how.json) {
        jw_string(&l->w, name, value, bounded_len(value));
    } else {
        buf_printf(&l->text, " %s=", name);
        add_escaped(&l->text, value, bounded_len(value), " =");
    }
}

static void add_number_field(struct line *l, const char *name, int64_t value)
{
    if (how.json)
        jw_int(&l->w, name, value);
    else
        buf_printf(&l->text, " %s=%lld", name, (long long)value);
}

static void add_ms_field(struct line *l, const char *name, int64_t us)
{
    if (us < 0) return;
    if (how.json)
        jw_fixed(&l->w, name, (double)us / 1000.0, 3);
    else
        buf_printf(&l->text, " %s=%.3f", name, (double)us / 1000.0);
}

/* A request in at most BRIEF_COLUMNS: when, what, how it went. */
static void log_access_briefly(const struct srv_log_access *a)
{
    const struct srv_account *account = a->account;
    struct line line;
    struct tm now;
    time_t seconds = (time_t)(clock_date_ms() / 1000);
    char text[BRIEF_COLUMNS + 1];
    buf_init(&line.text, 16 * SRV_LOG_LINE_MAX_BYTES);
    localtime_r(&seconds, &now);
    buf_printf(&line.text, "%02d:%02d:%02d %d %s ", now.tm_hour, now.tm_min, now.tm_sec, a->status,
               a->method ? a->method : "-");
    if (a->path) add_escaped(&line.text, a->path, strnlen(a->path, BRIEF_COLUMNS / 3), "");
    if (account->n_prompt_tokens || account->n_generated_tokens)
        buf_printf(&line.text, ", %d + %d tokens", (int)account->n_prompt_tokens,
                   (int)account->n_generated_tokens);
    if (account->ttft_us >= 0)
        buf_printf(&line.text, ", first %.3f s", (double)account->ttft_us / 1e6);
    if (a->total_us >= 0) buf_printf(&line.text, ", all %.3f s", (double)a->total_us / 1e6);
    if (account->finish_reason) buf_printf(&line.text, ", %s", account->finish_reason);
    if (a->gone) buf_puts(&line.text, ", client gone");
    if (a->status >= 400 && a->request_id) buf_printf(&line.text, ", %s", a->request_id);
    snprintf(text, sizeof(text), "%s", line.text.data ? line.text.data : "");
    buf_clear(&line.text);
    buf_puts(&line.text, text);
    end_line(&line);
}

void srv_log_access(const struct srv_log_access *a)
{
    if (how.level < SRV_LOG_INFO) return;
    if (how.brief && !how.json) return log_access_briefly(a);
    const struct srv_account *account = a->account;
    struct line line;
    char now[80];
    buf_init(&line.text, 16 * SRV_LOG_LINE_MAX_BYTES);
    if (how.json) {
        begin_json(&line, SRV_LOG_INFO);
        jw_text(&line.w, "event", "request");
    } else {
        format_time(now, sizeof(now));
        buf_printf(&line.text, "%s request", now);
    }
    add_text_field(&line, "id", a->request_id);
    add_text_field(&line, "method", a->method);
    add_text_field(&line, "path", a->path);
    add_number_field(&line, "status", a->status);
    add_text_field(&line, "endpoint", account->endpoint);
    add_text_field(&line, "model", account->model);
    if (account->endpoint) {
        add_number_field(&line, "prompt_tokens", account->n_prompt_tokens);
        add_number_field(&line, "cached_tokens", account->n_cached_tokens);
        add_number_field(&line, "generated_tokens", account->n_generated_tokens);
    }
    if (account->n_dropped_items > 0) add_number_field(&line, "dropped", account->n_dropped_items);
    add_ms_field(&line, "queue_ms", account->queue_us);
    add_ms_field(&line, "ttft_ms", account->ttft_us);
    add_ms_field(&line, "total_ms", a->total_us);
    add_number_field(&line, "bytes", (int64_t)a->sent_bytes);
    add_text_field(&line, "finish_reason", account->finish_reason);
    if (a->gone) add_text_field(&line, "client", "gone");
    add_text_field(&line, "key", account->key);
    add_text_field(&line, "traceparent", a->trace_parent);
    add_text_field(&line, "session", a->session_id);
    add_text_field(&line, "peer", a->peer);
    end_line(&line);
}
