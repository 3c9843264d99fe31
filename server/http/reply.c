/* SPDX-License-Identifier: MIT */
/*
 * Answers: whole ones, streams, error objects and retry times, written by the API side and taken by
 * the HTTP side. Both hold the request's lock meanwhile; see request.h.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/fail.h"
#include "server/http/request.h"
#include "server/http/server.h"
#include "server/metrics.h"

/* ---- answers ------------------------------------------------------------------------------- */

static bool is_header_text(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f) return false;
    return true;
}

void srv_reply_header(struct srv_request *req, const char *name, const char *value)
{
    int i = 0;
    while (i < req->n_reply_headers && strcmp(req->reply_headers[i].name, name) != 0)
        i++;
    if (i >= SRV_REPLY_HEADERS_MAX || !is_header_text(value)) return;
    char *n = srv_request_copy_text(req, name, strlen(name));
    char *v = srv_request_copy_text(req, value, strlen(value));
    if (!n || !v) return;
    req->reply_headers[i] = (struct srv_pair){n, v};
    if (i == req->n_reply_headers) req->n_reply_headers++;
}

/* An error whose status was sent before it was known is an event. */
static void end_early_stream(struct srv_request *req, const struct buf *error)
{
    enum srv_dialect dialect = req->facts.dialect;
    bool named = dialect == SRV_DIALECT_ANTHROPIC || dialect == SRV_DIALECT_TYPED;
    bool lines = dialect == SRV_DIALECT_OLLAMA;
    const char *head = lines ? "" : named ? "event: error\ndata: " : "data: ";
    const char *end = lines ? "\n" : named ? "\n\n" : "\n\ndata: [DONE]\n\n";
    srv_stream_write(req, head, strlen(head));
    srv_stream_write(req, error->data, error->len);
    srv_stream_write(req, end, strlen(end));
    srv_stream_close(req);
}

void srv_reply(struct srv_request *req, int status, const char *content_type, struct buf *body)
{
    struct buf taken = *body;
    int64_t used;
    buf_init(body, body->max);
    bool kept = !taken.failed && (taken.len <= SRV_SMALL_ANSWER_BYTES ||
                                  srv_request_charge(req, (int64_t)taken.len, &used));
    if (!kept) {
        enum srv_error kind = taken.too_large ? SRV_ERR_TOO_LARGE : SRV_ERR_OVERLOADED;
        buf_finish(&taken);
        buf_init(&taken, 1024);
        status = srv_errors[kind].status;
        content_type = NULL;
        srv_error_write_for(req, &taken, kind, NULL,
                            kind == SRV_ERR_TOO_LARGE
                                ? "The answer is larger than this server sends."
                                : "The server is out of memory for this answer.",
                            NULL);
    }
    if (req->opened_early) {
        end_early_stream(req, &taken);
        buf_finish(&taken);
        return;
    }
    pthread_mutex_lock(&req->lock);
    if (req->answer == SRV_ANSWER_NONE) {
        assert(status >= 200 && status < 600);
        req->answer = SRV_ANSWER_WHOLE;
        req->status = status;
        req->content_type = content_type ? content_type : "application/json";
        req->reply = taken;
        buf_init(&taken, 0);
        req->transport->resume(req);
    }
    pthread_mutex_unlock(&req->lock);
    buf_finish(&taken);
}

void srv_reply_file(struct srv_request *req, int status, int fd, int64_t at, int64_t n)
{
    HOLD(&req->lock);
    assert(req->answer == SRV_ANSWER_NONE);
    req->answer = SRV_ANSWER_FILE;
    req->status = status;
    req->content_type = "application/octet-stream";
    req->file.fd = fd;
    req->file.at = at;
    req->file.bytes = n;
    req->transport->resume(req);
}

static void open_stream(struct srv_request *req, enum srv_answer answer, const char *content_type)
{
    HOLD(&req->lock);
    if (req->answer == SRV_ANSWER_NONE) {
        req->answer = answer;
        req->status = 200;
        req->content_type = content_type;
        req->last_write_us = clock_now_us();
        req->transport->resume(req);
    }
}

void srv_stream_open(struct srv_request *req)
{
    bool lines = req->facts.dialect == SRV_DIALECT_OLLAMA;
    open_stream(req, SRV_ANSWER_STREAM,
                lines ? "application/x-ndjson" : "text/event-stream; charset=utf-8");
}

void srv_reply_in_pieces(struct srv_request *req)
{
    open_stream(req, SRV_ANSWER_PIECES, "application/json");
}

static size_t n_waiting(const struct srv_request *req)
{
    return req->stream.len - req->n_taken;
}

/* All of it or nothing: false for a reader that is too slow, too large an event, or if out of
 * memory. One large event may exceed what may wait, because no reader could have been faster. */
static bool append(struct srv_request *req, const char *data, size_t len)
{
    size_t waiting = n_waiting(req);
    if (!len) return true;
    if (waiting > SRV_STREAM_MAX_BYTES || len > SRV_STREAM_EVENT_MAX_BYTES) return false;
    if (req->n_taken) memmove(req->stream.data, req->stream.data + req->n_taken, waiting);
    req->stream.len = waiting;
    req->n_taken = 0;
    buf_add(&req->stream, data, len);
    return !req->stream.failed;
}

bool srv_stream_has_room(struct srv_request *req)
{
    HOLD(&req->lock);
    bool room = req->gone || !req->http_held || n_waiting(req) < SRV_STREAM_ROOM_BYTES;
    if (!room) req->wants_room = true;
    return room;
}

/* Cuts a stream that cannot continue, so that no client takes it for complete. */
static void cut_stream(struct srv_request *req)
{
    srv_request_gone(req);
    req->transport->cut(req);
}

bool srv_stream_write(struct srv_request *req, const char *data, size_t len)
{
    pthread_mutex_lock(&req->lock);
    assert(req->answer >= SRV_ANSWER_PIECES || req->answer == SRV_ANSWER_WHOLE);
    bool open = req->http_held && !req->gone && !req->cut && !req->stream_closed;
    bool written = open && append(req, data, len);
    bool cut = open && !written;
    if (cut) req->cut = true;
    if (written) {
        req->last_write_us = clock_now_us();
        req->transport->resume(req);
    }
    pthread_mutex_unlock(&req->lock);
    if (cut) {
        srv_metrics_count(req->server->metrics, SRV_COUNT_SLOW_READERS);
        cut_stream(req);
    }
    return written;
}

void srv_stream_abort(struct srv_request *req)
{
    pthread_mutex_lock(&req->lock);
    bool open = req->http_held && !req->gone && !req->cut && !req->stream_closed;
    if (open) req->cut = true;
    pthread_mutex_unlock(&req->lock);
    if (open) cut_stream(req);
}

void srv_stream_close(struct srv_request *req)
{
    HOLD(&req->lock);
    req->stream_closed = true;
    req->transport->resume(req);
}

/* ---- errors -------------------------------------------------------------------------------- */

/* When a refused client may come back: computed from measured throughput and spread out;
 * 1000..60000. A request that asked for a queue slot gets a reservation for then. */
static int64_t retry_after_ms(struct srv_request *req)
{
    struct srv_server *s = req->server;
    const struct srv_returner *who = req->has_asked ? &req->returner : NULL;
    if (who && who->has_reservation) srv_metrics_count(s->metrics, SRV_COUNT_RETURNED_REFUSED);
    return srv_retry_next_ms(&s->retry, who, clock_now_us());
}

/*
 * How long a refused client should wait: 1 to 60 s, the time the engine needs for its queue. The
 * engine exists once the state is SRV_READY.
 */
static long wait_ms(struct srv_request *req, enum srv_error kind)
{
    if (kind == SRV_ERR_SHUTTING_DOWN) return 5000;
    if (kind == SRV_ERR_SWAP_IN_PROGRESS || kind == SRV_ERR_MODEL_UNLOADED) return 1000;
    if (kind == SRV_ERR_MODEL_FAILED) return 30000;
    if (req->load_ms) return req->load_ms < 1000 ? 1000 : (long)req->load_ms;
    const struct srv_server *s = req->server;
    return atomic_load(s->state) == SRV_READY ? (long)retry_after_ms(req)
                                              : s->gate->pull_left_ms(s->pull);
}

static void add_retry_headers(struct srv_request *req, enum srv_error kind)
{
    int status = srv_errors[kind].status;
    if (status != 429 && status != 503 && kind != SRV_ERR_SWAP_IN_PROGRESS) return;
    long ms = wait_ms(req, kind);
    char text[32];
    snprintf(text, sizeof(text), "%ld", (ms + 999) / 1000);
    srv_reply_header(req, "Retry-After", text);
    snprintf(text, sizeof(text), "%ld", ms);
    srv_reply_header(req, "retry-after-ms", text);
}

void srv_error_write_for(const struct srv_request *req, struct buf *b, enum srv_error kind,
                         const char *param, const char *message,
                         const struct srv_error_number *numbers)
{
    enum srv_dialect dialect = req->facts.dialect;
    if (dialect == SRV_DIALECT_TYPED && !req->opened_early) dialect = SRV_DIALECT_OPENAI;
    srv_error_write(b, &(struct srv_error_object){.dialect = dialect,
                                                  .kind = kind,
                                                  .param = param,
                                                  .message = message,
                                                  .numbers = numbers,
                                                  .request_id = req->facts.id,
                                                  .trace_parent = req->facts.trace_parent});
}

void srv_reply_error(struct srv_request *req, enum srv_error kind, const char *param,
                     const char *format, ...)
{
    char message[512];
    FORMAT_REST(message, sizeof(message), format);
    struct buf b = {.max = 8192};
    srv_error_write_for(req, &b, kind, param, message, NULL);
    add_retry_headers(req, kind);
    if (kind == SRV_ERR_API_KEY) srv_reply_header(req, "WWW-Authenticate", "Bearer");
    srv_reply(req, srv_errors[kind].status, NULL, &b);
}

/* ---- the HTTP side ------------------------------------------------------------------------- */

ssize_t srv_request_read(struct srv_request *req, char *buf, size_t max)
{
    ssize_t n;
    bool wake = false;
    pthread_mutex_lock(&req->lock);
    if (req->gone || req->cut) {
        n = SRV_READ_CUT;
    } else if (n_waiting(req)) {
        n = (ssize_t)(max < n_waiting(req) ? max : n_waiting(req));
        memcpy(buf, req->stream.data + req->n_taken, (size_t)n);
        req->n_taken += (size_t)n;
        req->sent_bytes += (size_t)n;
        wake = req->wants_room && n_waiting(req) <= SRV_STREAM_LOW_BYTES;
        if (wake) req->wants_room = false;
    } else if (req->stream_closed) {
        n = SRV_READ_END;
    } else {
        n = 0;
        req->transport->suspend(req);
    }
    pthread_mutex_unlock(&req->lock);
    if (wake) srv_request_wake(req);
    return n;
}

const char *srv_request_beat(const struct srv_request *req)
{
    return req->facts.dialect == SRV_DIALECT_OLLAMA ? " " : ": keep-alive\n";
}

void srv_request_heartbeat(struct srv_request *req, uint64_t now_us, uint64_t silent_since_us)
{
    const char *beat = srv_request_beat(req);
    HOLD(&req->lock);
    bool idle = req->answer == SRV_ANSWER_STREAM && !req->stream_closed && !n_waiting(req) &&
                req->suspended && req->last_write_us <= silent_since_us;
    if (idle && append(req, beat, strlen(beat))) {
        req->last_write_us = now_us;
        req->transport->resume(req);
    }
}
