/* SPDX-License-Identifier: MIT */
#include "server/cli/lines.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/hex.h"
#include "base/shown.h"
#include "engine/engine.h"
#include "server/batch/line.h"
#include "server/http/api_error.h"
#include "server/http/request.h"
#include "server/log.h"
#include "server/models/served_model.h"
#include "server/models/set.h"

enum {
    MAX_HELD = 8192,  /* lines read and not written, */
    MAX_AHEAD = 1024, /* if the order of computing is theirs */
    MAX_RUNNING = REMOTE_MAX,
    SPARE_RUNNING = 2,       /* more than the sequences that are computed at once */
    LINE_SPARE_BYTES = 4096, /* of a line around its body */
    MAX_ANSWER_BYTES = 512 << 20,
    AGAIN_MS = 100,   /* after a refusal for lack of room */
    REMOTE_MS = 500,  /* elsewhere, if it does not say; twice that each time, up to 16 s */
    FULL_TRIES = 30,  /* of a line that was refused elsewhere or lost on the way, */
    BROKEN_TRIES = 4, /* that failed there, */
    LOCAL_TRIES = 2,  /* or here */
    TICK_MS = 100,
    PROGRESS_US = 1000000,
};
#define HELD_BYTES ((size_t)64 << 20)

void lines_refuse(struct line *i, const char *format, ...)
{
    char message[400];
    FORMAT_REST(message, sizeof(message), format);
    srv_error_write(&i->answer,
                    &(struct srv_error_object){.kind = SRV_ERR_INVALID_VALUE, .message = message});
    i->status = 400;
}

static struct line *line_of(struct lines *l, int64_t n)
{
    return &l->held[n % MAX_HELD];
}

/* ---- reading ------------------------------------------------------------------------------- */

/* The next line that counts. As batch_line_next. */
static int read_text(struct lines *l, struct buf *text)
{
    bool first;
    int more;
    do {
        first = !l->begun;
        l->begun = true;
    } while ((more = batch_line_next(l->in, text)) == 1 && !l->as_is &&
             !batch_line_trim(text, first));
    return more;
}

static int read_line(struct lines *l, struct line *i)
{
    *i = (struct line){0};
    buf_init(&i->text, (size_t)l->offline.config.max_body_bytes + LINE_SPARE_BYTES);
    buf_init(&i->answer, MAX_ANSWER_BYTES);
    int more = read_text(l, &i->text);
    l->ended = more != 1;
    if (l->ended) buf_finish(&i->text);
    if (l->ended) return more ? lines_fail(l, "the lines cannot be read") : 0;
    sha256(i->digest, i->text.data, i->text.len);
    hex_write(stpcpy(i->request_id, "req_"), i->digest, SRV_UNIQUE_BYTES);
    if (i->text.too_large) lines_refuse(i, "the line is longer than %zu bytes.", i->text.max);
    l->n_read++;
    int rc = i->status ? 0 : l->read(l, i);
    l->held_bytes += i->text.len;
    return rc;
}

/* Reading waits for a pipe only while nothing else is to be done. */
static bool may_read(const struct lines *l)
{
    struct pollfd in = {.fd = fileno(l->in), .events = POLLIN};
    /* Some are read ahead: while one is slow, those after it run. */
    if (l->ended || l->held_bytes > HELD_BYTES ||
        l->n_read - l->n_written >= (l->by_key ? MAX_HELD : MAX_AHEAD))
        return false;
    if (l->n_read > l->n_written && l->by_key && l->n_started) return false;
    return l->n_read == l->n_written || poll(&in, 1, 0) != 0;
}

static int read_lines(struct lines *l)
{
    int rc = 0;
    while (!rc && may_read(l))
        rc = read_line(l, line_of(l, l->n_read));
    return rc;
}

/* ---- running ------------------------------------------------------------------------------- */

static int start_line(struct lines *l, struct line *i)
{
    const char *body = i->parts.body ? i->parts.body : i->text.data;
    size_t n_body = i->parts.body ? i->parts.n_body : i->text.len;
    l->n_started++;
    l->n_running++;
    if (l->is_remote)
        return remote_begin(&l->remote, &i->call, i->parts.url, body, n_body, &i->answer)
                   ? lines_fail(l, "no thread or no memory for a request to %s", i->parts.url)
                   : 0;
    i->request = (struct srv_local){.wake = offline_wake, .ctx = &l->offline};
    if (srv_local_begin(&i->request, &l->offline.core.server, i->parts.url, body, n_body, i->digest,
                        l->created_s))
        return lines_fail(l, "no memory");
    return 0;
}

static bool comes_before(const struct batch_line *a, const struct batch_line *b)
{
    int order = memcmp(a->key, b->key, a->n_key < b->n_key ? a->n_key : b->n_key);
    return order ? order < 0 : a->n_key < b->n_key;
}

/* The next to start, or NULL. */
static struct line *choose_line(struct lines *l)
{
    struct line *best = NULL;
    for (int64_t n = l->n_written; n < l->n_read && (!best || l->by_key); n++) {
        struct line *i = line_of(l, n);
        bool waits = !i->status && !i->request.req && !i->call.remote;
        if (waits && (!best || comes_before(&i->parts, &best->parts))) best = i;
    }
    return best;
}

static int start_lines(struct lines *l)
{
    struct line *i;
    int rc = 0;
    if (clock_now_us() < l->pause_us) return 0;
    while (!rc && l->n_running < l->most_running && (i = choose_line(l)))
        rc = start_line(l, i);
    return rc;
}

/* Refused for lack of room, which may be there later, or failed: it is tried again after wait_ms,
 * -1: soon. */
static bool is_passing(struct lines *l, struct line *i, int status, int wait_ms)
{
    bool waits = batch_answer_is_passing(status, i->answer.data, i->answer.len) ||
                 (status == 0 && l->reached);
    int most = 1, *n = waits ? &i->n_refused : &i->n_failed;
    if (waits)
        most = l->is_remote ? FULL_TRIES : INT_MAX;
    else if (l->is_remote && (status == 408 || status >= 500))
        most = BROKEN_TRIES;
    else if (status == 500)
        most = LOCAL_TRIES;
    if (++*n >= most) return false;
    if (wait_ms < 0) wait_ms = l->is_remote ? REMOTE_MS << (*n < 6 ? *n - 1 : 5) : AGAIN_MS;
    uint64_t until = clock_now_us() + 1000ull * (uint64_t)wait_ms;
    if (until > l->pause_us) l->pause_us = until;
    buf_clear(&i->answer);
    return true;
}

/* The whole answer is there. */
static void end_line(struct lines *l, struct line *i)
{
    int status = srv_local_status(&i->request);
    l->n_running--;
    if (!is_passing(l, i, status, -1)) {
        i->status = status;
        snprintf(i->request_id, sizeof(i->request_id), "%s", srv_local_id(&i->request));
        l->held_bytes += i->answer.len;
    }
    srv_local_end(&i->request, true);
}

/* The answer of another server becomes a line, whatever it is. */
static void flatten(struct line *i)
{
    json_error_t why;
    json_auto_t *value = json_loadb(i->answer.data, i->answer.len, JSON_ALLOW_NUL, &why);
    AUTO_FREE char *text = value ? json_dumps(value, JSON_COMPACT) : NULL;
    int status = i->status;
    buf_clear(&i->answer);
    if (text) {
        buf_puts(&i->answer, text);
    } else {
        lines_refuse(i, "the server's answer of status %d is not JSON: %s", status, why.text);
        i->status = status < 300 ? 502 : status;
    }
}

/* 0, or -1: the server elsewhere is not to be reached. */
static int end_remote(struct lines *l, struct line *i)
{
    struct transfer *t = i->call.transfer;
    const char *url = l->offline.config.chat_url;
    remote_end(&i->call);
    int status = i->call.end == TRANSFER_OK ? transfer_status(t) : 0;
    const char *wait = transfer_header(t, "retry-after"), *id = transfer_header(t, "x-request-id");
    bool says = status && wait && *wait >= '0' && *wait <= '9' && strlen(wait) < 5;
    l->n_running--;
    l->reached |= status != 0;
    if (is_passing(l, i, status, says ? 1000 * (int)strtol(wait, NULL, 10) : -1)) {
        if (!status && i->n_refused == 1)
            shown_line(stderr, "hearth: %s: %s; trying again", url, transfer_reason(t));
        return 0;
    }
    if (!status) return lines_fail(l, "%s: %s", url, transfer_reason(t));
    if (id) snprintf(i->request_id, sizeof(i->request_id), "%s", id);
    i->status = status;
    flatten(i);
    l->held_bytes += i->answer.len;
    return 0;
}

int lines_ask(struct lines *l, struct line *i)
{
    if (start_line(l, i)) return -1;
    while (!srv_local_take(&i->request, &i->answer))
        offline_wait(&l->offline, TICK_MS);
    end_line(l, i);
    return 0;
}

static int take_answers(struct lines *l)
{
    int rc = 0;
    for (int64_t n = l->n_written; !rc && n < l->n_read; n++) {
        struct line *i = line_of(l, n);
        if (i->request.req && srv_local_take(&i->request, &i->answer)) end_line(l, i);
        if (i->call.remote && atomic_load(&i->call.ended)) rc = end_remote(l, i);
    }
    return rc;
}

static void free_line(struct lines *l, struct line *i)
{
    srv_local_end(&i->request, false);
    if (i->call.remote) remote_end(&i->call);
    l->n_bytes += (int64_t)i->text.len + 1;
    l->held_bytes -= i->answer.len + i->text.len;
    buf_finish(&i->text);
    buf_finish(&i->answer);
}

/* Whole lines alone reach the output. */
static int write_line(struct lines *l, struct line *i)
{
    AUTO(buf_finish) struct buf to = {.max = MAX_ANSWER_BYTES};
    int rc = l->write(l, i, &to);
    if (!rc && (to.failed || i->answer.failed)) rc = lines_fail(l, "no memory for an answer");
    if (!rc && fwrite(to.len ? to.data : "", 1, to.len, l->out) != to.len)
        rc = lines_fail(l, "%s cannot be written: %s", l->out_name, strerror(errno));
    return rc;
}

static int write_lines(struct lines *l)
{
    int rc = 0;
    while (!rc && l->n_written < l->n_read && line_of(l, l->n_written)->status) {
        rc = write_line(l, line_of(l, l->n_written));
        free_line(l, line_of(l, l->n_written++));
    }
    if (!rc && fflush(l->out))
        rc = lines_fail(l, "%s cannot be written: %s", l->out_name, strerror(errno));
    return rc;
}

/* On a terminal; the last one elsewhere too. */
static void show_progress(struct lines *l, bool last)
{
    uint64_t now = clock_now_us();
    bool again = isatty(STDERR_FILENO);
    if (!last && (!again || now - l->shown_us < PROGRESS_US)) return;
    double seconds = (double)(now - l->start_us) / 1e6;
    l->shown_us = now;
    fprintf(stderr, "%shearth: %lld %s, %lld failed, ", again ? "\r\033[K" : "",
            (long long)l->n_units, l->unit, (long long)l->n_failed);
    if (l->n_tokens)
        fprintf(stderr, "%lld tokens, %.0f tokens/s, ", (long long)l->n_tokens,
                (double)l->n_tokens / (seconds > 0 ? seconds : 1));
    if (!last && l->n_bytes > 0 && l->all_bytes > l->n_bytes)
        fprintf(stderr, "%.0f s to go, ",
                seconds * (double)(l->all_bytes - l->n_bytes) / (double)l->n_bytes);
    fprintf(stderr, "%.1f s%s", seconds, last ? "\n" : "");
}

int lines_run(struct lines *l)
{
    int rc = 0;
    l->start_us = l->shown_us = clock_now_us();
    while (!rc && (!l->ended || l->n_written < l->n_read)) {
        rc = read_lines(l) || start_lines(l) ? -1 : 0;
        if (!rc && l->n_written < l->n_read && !line_of(l, l->n_written)->status)
            offline_wait(&l->offline, TICK_MS);
        if (!rc) rc = take_answers(l);
        if (!rc) rc = write_lines(l);
        if (l->n_written == l->n_read) l->n_started = 0;
        show_progress(l, false);
    }
    show_progress(l, true);
    return rc;
}

int lines_open(struct lines *l, const struct srv_config *config)
{
    srv_log_init("text", "warning");
    l->held = calloc(MAX_HELD, sizeof(*l->held));
    if (!l->held) return lines_fail(l, "no memory");
    l->is_remote = config->chat_url != NULL;
    l->remote.wake = offline_wake;
    l->remote.ctx = &l->offline;
    if ((l->is_remote && client_address(&l->remote.address, config->chat_url, client_key(config),
                                        l->err, sizeof(l->err))) ||
        offline_open(&l->offline, config, l->err, sizeof(l->err)))
        return -1;
    struct srv_model *m = srv_models_of(&l->offline.core.app.models, 0);
    l->most_running = m ? eng_info(m->engine)->n_parallel : config->parallel;
    if (!l->is_remote) l->most_running += SPARE_RUNNING;
    if (l->most_running > MAX_RUNNING) l->most_running = MAX_RUNNING;
    srv_model_release(m, false);
    return 0;
}

void lines_close(struct lines *l, int rc)
{
    atomic_store(&l->remote.stop, true);
    for (int64_t n = l->n_written; n < l->n_read; n++)
        free_line(l, line_of(l, n));
    if (rc) shown_line(stderr, "hearth: %s", l->err);
    remote_close(&l->remote);
    offline_close(&l->offline);
    free(l->held);
}
