/* SPDX-License-Identifier: MIT */
/*
 * Log lines as text or as one JSON object each. The only state is how to write, fixed at start.
 */
#include "server/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "server/buf.h"
#include "server/limits.h"

static struct {
    bool json;
    enum srv_log_level level;
} how = {.json = false, .level = SRV_LOG_INFO};

static const char *const level_names[] = {"error", "warning", "info", "debug"};

void srv_log_init(const char *format, const char *level)
{
    how.json = format && strcasecmp(format, "json") == 0;
    if (!format || strcasecmp(format, "auto") == 0) how.json = !isatty(STDERR_FILENO);
    for (int i = 0; level && i <= SRV_LOG_DEBUG; i++) {
        if (strcasecmp(level, level_names[i]) == 0) how.level = (enum srv_log_level)i;
    }
}

static void add_time(struct srv_buf *b)
{
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    srv_buf_printf(b, "%04d-%02d-%02dT%02d:%02d:%02d.%03ldZ", utc.tm_year + 1900, utc.tm_mon + 1,
                   utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, now.tv_nsec / 1000000);
}

/* Text as it may stand in a line: what is not printable is written \xNN. */
static void add_escaped(struct srv_buf *b, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c < 0x20 || c >= 0x7f || c == '\\') srv_buf_printf(b, "\\x%02x", c);
        else srv_buf_add(b, text + i, 1);
    }
}

static void write_line(struct srv_buf *b)
{
    srv_buf_puts(b, "\n");
    /* A log that cannot be written is nothing the server could report anywhere. */
    if (!b->failed && write(STDERR_FILENO, b->data, b->len) < 0) return;
}

void srv_log(enum srv_log_level level, const char *format, ...)
{
    if (level > how.level) return;
    char text[SRV_LOG_LINE_MAX_BYTES / 2];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    struct srv_buf line;
    srv_buf_init(&line, 6 * sizeof(text) + 256); /* every byte of the text may need an escape */
    if (how.json) {
        srv_buf_puts(&line, "{\"time\":\"");
        add_time(&line);
        srv_buf_printf(&line, "\",\"level\":\"%s\",\"message\":", level_names[level]);
        srv_buf_json_string(&line, text, strlen(text));
        srv_buf_puts(&line, "}");
    } else {
        srv_buf_puts(&line, level <= SRV_LOG_WARNING ? level_names[level] : "hearth");
        srv_buf_puts(&line, ": ");
        add_escaped(&line, text, strlen(text));
    }
    write_line(&line);
    srv_buf_finish(&line);
}

/* ---- the access log ------------------------------------------------------------------------ */

static size_t bounded_len(const char *text)
{
    return strnlen(text, SRV_LOG_FIELD_MAX_BYTES);
}

static void add_text_field(struct srv_buf *b, const char *name, const char *value)
{
    if (!value) return;
    if (how.json) {
        srv_buf_printf(b, ",\"%s\":", name);
        srv_buf_json_string(b, value, bounded_len(value));
    } else {
        srv_buf_printf(b, " %s=", name);
        add_escaped(b, value, bounded_len(value));
    }
}

static void add_number_field(struct srv_buf *b, const char *name, int64_t value)
{
    srv_buf_printf(b, how.json ? ",\"%s\":%lld" : " %s=%lld", name, (long long)value);
}

static void add_ms_field(struct srv_buf *b, const char *name, int64_t us)
{
    if (us >= 0)
        srv_buf_printf(b, how.json ? ",\"%s\":%.3f" : " %s=%.3f", name, (double)us / 1000.0);
}

void srv_log_access(const struct srv_log_access *a)
{
    if (how.level < SRV_LOG_INFO) return;
    struct srv_buf line;
    srv_buf_init(&line, 16 * SRV_LOG_LINE_MAX_BYTES);
    srv_buf_puts(&line, how.json ? "{\"time\":\"" : "");
    add_time(&line);
    srv_buf_puts(&line, how.json ? "\",\"level\":\"info\",\"event\":\"request\"" : " request");
    add_text_field(&line, "id", a->request_id);
    add_text_field(&line, "method", a->method);
    add_text_field(&line, "path", a->path);
    add_number_field(&line, "status", a->status);
    add_text_field(&line, "endpoint", a->endpoint);
    add_text_field(&line, "model", a->model);
    if (a->endpoint) {
        add_number_field(&line, "prompt_tokens", a->n_prompt_tokens);
        add_number_field(&line, "cached_tokens", a->n_cached_tokens);
        add_number_field(&line, "generated_tokens", a->n_generated_tokens);
    }
    add_ms_field(&line, "queue_ms", a->queue_us);
    add_ms_field(&line, "ttft_ms", a->ttft_us);
    add_ms_field(&line, "total_ms", a->total_us);
    add_number_field(&line, "bytes", (int64_t)a->sent_bytes);
    add_text_field(&line, "finish_reason", a->finish_reason);
    if (a->gone) add_text_field(&line, "client", "gone");
    add_text_field(&line, "traceparent", a->trace_parent);
    add_text_field(&line, "session", a->session_id);
    add_text_field(&line, "peer", a->peer);
    srv_buf_puts(&line, how.json ? "}" : "");
    write_line(&line);
    srv_buf_finish(&line);
}
