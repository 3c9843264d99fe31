/* SPDX-License-Identifier: MIT */
/* A request's life: references, memory, answer, and who runs when. See request.h for the rules. */
#include "server/http/request.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

#include "base/clock.h"
#include "engine/engine.h"
#include "server/http/api_error.h"
#include "server/http/server.h"
#include "server/log.h"
#include "server/metrics.h"

/* ---- memory -------------------------------------------------------------------------------- */

struct arena_block {
    struct arena_block *next;
    size_t used, size;
    _Alignas(16) unsigned char data[];
};

static struct arena_block *add_block(struct srv_request *req, size_t bytes)
{
    size_t size = bytes > SRV_ARENA_BLOCK_BYTES ? bytes : SRV_ARENA_BLOCK_BYTES;
    if (size > SRV_ARENA_MAX_BYTES - req->arena_bytes) return NULL;
    struct arena_block *block = calloc(1, sizeof(*block) + size);
    if (!block) return NULL;
    block->size = size;
    req->arena_bytes += size;
    /* A block made for one large thing goes behind the current one, which may have room left. */
    if (req->arena && bytes > SRV_ARENA_BLOCK_BYTES) {
        block->next = req->arena->next;
        req->arena->next = block;
    } else {
        block->next = req->arena;
        req->arena = block;
    }
    return block;
}

void *srv_request_alloc(struct srv_request *req, size_t bytes)
{
    if (bytes > SRV_ARENA_MAX_BYTES) return NULL;
    bytes = (bytes + 15) & ~(size_t)15;
    struct arena_block *block = req->arena;
    if (!block || bytes > block->size - block->used) block = add_block(req, bytes);
    if (!block) return NULL;
    void *p = block->data + block->used;
    block->used += bytes;
    return p;
}

bool srv_request_charge(struct srv_request *req, int64_t bytes, int64_t *ret_used)
{
    struct srv_server *s = req->server;
    int64_t limit = eng_info(s->app.engine)->memory.answer_bytes;
    long long used = atomic_load(&s->answer_bytes);
    do {
        *ret_used = used;
        if (bytes > limit - used) return false;
    } while (!atomic_compare_exchange_weak(&s->answer_bytes, &used, used + bytes));
    req->answer_bytes += bytes;
    return true;
}

static char *copy_text(struct srv_request *req, const char *text, size_t len)
{
    char *copy = srv_request_alloc(req, len + 1);
    if (copy) memcpy(copy, text, len);
    return copy;
}

static void free_arena(struct srv_request *req)
{
    while (req->arena) {
        struct arena_block *next = req->arena->next;
        free(req->arena);
        req->arena = next;
    }
}

/* ---- birth and death ----------------------------------------------------------------------- */

static void run_item(struct srv_work_item *item);

struct srv_request *srv_request_create(struct srv_server *server,
                                       const struct srv_transport *transport, void *connection,
                                       const char *target)
{
    struct srv_request *req = calloc(1, sizeof(*req));
    if (!req) return NULL;
    if (pthread_mutex_init(&req->lock, NULL)) {
        free(req);
        return NULL;
    }
    req->work.run = run_item;
    req->server = server;
    req->n_refs = 1;
    req->transport = transport;
    req->connection = connection;
    req->http_held = true;
    req->start_us = clock_now_us();
    req->account.queue_us = req->account.ttft_us = -1;
    req->query = req->tail = req->path = "";
    srv_ring_init(&req->ring);
    req->target = copy_text(req, target, strlen(target));
    if (!req->target) {
        pthread_mutex_destroy(&req->lock);
        free(req);
        return NULL;
    }
    atomic_fetch_add(&server->n_requests, 1);
    atomic_fetch_add(&server->n_requests_ever, 1);
    return req;
}

static void log_access(const struct srv_request *req)
{
    const struct srv_account *a = &req->account;
    srv_log_access(&(struct srv_log_access){
        .request_id = req->id,
        .method = req->method,
        .path = *req->path ? req->path : req->target,
        .model = a->model,
        .endpoint = a->endpoint,
        .finish_reason = a->finish_reason,
        .trace_parent = srv_request_header(req, "traceparent"),
        .session_id = srv_request_header(req, "x-session-id"),
        .peer = req->peer,
        .status = req->status,
        .gone = req->gone,
        .n_prompt_tokens = a->n_prompt_tokens,
        .n_cached_tokens = a->n_cached_tokens,
        .n_generated_tokens = a->n_generated_tokens,
        .queue_us = a->queue_us,
        .ttft_us = a->ttft_us,
        .total_us = (int64_t)(req->end_us - req->start_us),
        .sent_bytes = req->sent_bytes,
    });
}

/* The last reference has gone: account for it, then free. */
static void destroy(struct srv_request *req)
{
    struct srv_server *s = req->server;
    if (req->method[0]) {
        srv_metrics_count_request(s->metrics, req->status, req->gone, &req->account,
                                  (int64_t)(req->end_us - req->start_us));
        log_access(req);
        if (req->account.queue_us >= 0) {
            struct eng_stats stats;
            eng_stats(s->app.engine, &stats);
            srv_retry_note_end(&s->retry, clock_now_us(), stats.n_waiting > 0);
        }
    }
    if (req->callbacks.on_free) req->callbacks.on_free(req);
    atomic_fetch_sub(&s->body_bytes, (long long)req->charged_bytes);
    atomic_fetch_sub(&s->answer_bytes, req->answer_bytes);
    buf_finish(&req->body);
    buf_finish(&req->reply);
    srv_ring_finish(&req->ring);
    free_arena(req);
    pthread_mutex_destroy(&req->lock);
    free(req);
    atomic_fetch_sub(&s->n_requests, 1);
}

void srv_request_ref(struct srv_request *req)
{
    atomic_fetch_add(&req->n_refs, 1);
}

void srv_request_unref(struct srv_request *req)
{
    if (atomic_fetch_sub(&req->n_refs, 1) == 1) destroy(req);
}

/* ---- facts of the head --------------------------------------------------------------------- */

bool srv_request_add_header(struct srv_request *req, const char *name, size_t name_len,
                            const char *value, size_t value_len)
{
    if (req->n_headers >= SRV_HEADERS_MAX) return false;
    char *n = copy_text(req, name, name_len);
    char *v = copy_text(req, value, value_len);
    if (!n || !v) return false;
    req->headers[req->n_headers++] = (struct srv_pair){n, v};
    return true;
}

static bool is_sane_id(const char *id)
{
    size_t len = strlen(id);
    if (len == 0 || len > SRV_REQUEST_ID_MAX) return false;
    for (size_t i = 0; i < len; i++) {
        if (id[i] <= ' ' || id[i] > '~') return false;
    }
    return true;
}

void srv_request_choose_id(struct srv_request *req)
{
    unsigned char random[12];
    /* Only uniqueness is wanted; the address and the clock give it where random bytes fail. */
    if (getrandom(random, sizeof(random), GRND_NONBLOCK) != (ssize_t)sizeof(random)) {
        uint64_t words[2] = {(uint64_t)(uintptr_t)req * 0x9e3779b97f4a7c15u, clock_now_us()};
        memcpy(random, words, sizeof(random));
    }
    for (size_t i = 0; i < sizeof(random); i++)
        snprintf(req->unique + 2 * i, 3, "%02x", random[i]);
    const char *given = srv_request_header(req, "x-request-id");
    if (given && is_sane_id(given))
        snprintf(req->id, sizeof(req->id), "%s", given);
    else
        snprintf(req->id, sizeof(req->id), "req_%s", req->unique);
}

void srv_request_suggest_id(struct srv_request *req, const char *id)
{
    const char *given = srv_request_header(req, "x-request-id");
    if (!id || !is_sane_id(id) || (given && is_sane_id(given))) return;
    snprintf(req->id, sizeof(req->id), "%s", id);
}

const struct srv_app *srv_request_app(const struct srv_request *req)
{
    return &req->server->app;
}

enum srv_state srv_request_server_state(const struct srv_request *req)
{
    return (enum srv_state)atomic_load(&req->server->app.state);
}

const char *srv_request_tail(const struct srv_request *req)
{
    return req->tail;
}

const char *srv_request_header(const struct srv_request *req, const char *name)
{
    for (int i = 0; i < req->n_headers; i++) {
        if (strcasecmp(req->headers[i].name, name) == 0) return req->headers[i].value;
    }
    return NULL;
}

const char *srv_request_query(const struct srv_request *req, const char *name)
{
    size_t name_len = strlen(name);
    for (const char *p = req->query; *p; p += strspn(p, "&")) {
        size_t len = strcspn(p, "&");
        size_t key_len = strcspn(p, "=&");
        if (key_len == name_len && strncmp(p, name, name_len) == 0) {
            size_t skip = key_len < len ? key_len + 1 : key_len;
            /* Borrowed from the request's own memory, which is not part of what callers see as
             * const. */
            char *value = copy_text((struct srv_request *)req, p + skip, len - skip);
            if (value) srv_guard_decode(value, true);
            return value;
        }
        p += len;
    }
    return NULL;
}

const char *srv_request_body(const struct srv_request *req, size_t *ret_len)
{
    *ret_len = req->body.len;
    return req->body.data ? req->body.data : "";
}

const char *srv_request_id(const struct srv_request *req)
{
    return req->id;
}

const char *srv_request_unique(const struct srv_request *req)
{
    return req->unique;
}

enum srv_dialect srv_request_dialect(const struct srv_request *req)
{
    unsigned flags = req->route ? req->route->flags : SRV_ROUTE_EITHER;
    bool either = (flags & SRV_ROUTE_EITHER) && srv_request_header(req, "anthropic-version");
    return either || (flags & SRV_ROUTE_ANTHROPIC) ? SRV_DIALECT_ANTHROPIC : SRV_DIALECT_OPENAI;
}

int srv_request_ask_place(struct srv_request *req, int n_slots)
{
    struct srv_server *s = req->server;
    req->returner = srv_retry_name(&s->retry, req->tenant, req->path,
                                   req->body.data ? req->body.data : "", req->body.len);
    req->has_asked = true;
    struct eng_stats stats;
    eng_stats(s->app.engine, &stats);
    int n_kept =
        srv_retry_ask(&s->retry, &req->returner, clock_now_us(), n_slots, stats.n_waiting > 0);
    if (req->returner.redeems) srv_metrics_count(s->metrics, SRV_COUNT_RETURNED);
    return n_kept;
}

int64_t srv_retry_after_ms(struct srv_request *req)
{
    struct srv_server *s = req->server;
    const struct srv_returner *who = req->has_asked ? &req->returner : NULL;
    if (who && who->redeems) srv_metrics_count(s->metrics, SRV_COUNT_RETURNED_REFUSED);
    return srv_retry_next_ms(&s->retry, who, clock_now_us());
}

uint64_t srv_request_start_us(const struct srv_request *req)
{
    return req->start_us;
}

const uint8_t *srv_request_tenant(const struct srv_request *req)
{
    return req->tenant;
}

struct srv_account *srv_request_account(struct srv_request *req)
{
    return &req->account;
}

/* ---- running the API side ------------------------------------------------------------------ */

static void resume(struct srv_request *req)
{
    if (!req->suspended) return;
    req->suspended = false;
    req->transport->resume(req->connection);
}

static void push(struct srv_request *req, enum srv_work_class class)
{
    req->work.class = class;
    memcpy(&req->work.key, req->tenant, sizeof(req->work.key));
    srv_work_push(req->server->work, &req->work);
}

/* A handler that set no on_wake is over; what it left open is closed. True: give its reference
 * back. */
static bool settle_handler(struct srv_request *req, bool *ret_unanswered)
{
    *ret_unanswered = false;
    if (!req->api_held || req->callbacks.on_wake) return false;
    req->api_held = false;
    *ret_unanswered = req->answer == SRV_ANSWER_NONE && !req->gone;
    if (req->answer >= SRV_ANSWER_PIECES) req->stream_closed = true;
    return true;
}

static void reply_unanswered(struct srv_request *req)
{
    srv_log(SRV_LOG_ERROR, "request %s ended without an answer", req->id);
    srv_reply_error(req, SRV_ERR_INTERNAL, NULL, "The server gave no answer (request %s).",
                    req->id);
}

static void run_item(struct srv_work_item *item)
{
    struct srv_request *req = (struct srv_request *)item;
    bool is_new = item->class != SRV_WORK_WAKE, unanswered;
    pthread_mutex_lock(&req->lock);
    req->run = SRV_RUN_ACTIVE;
    void (*callback)(struct srv_request *) = is_new ? req->route->handle : req->callbacks.on_wake;
    if ((is_new && req->gone) || !req->api_held) callback = NULL; /* dropped before it started */
    pthread_mutex_unlock(&req->lock);
    if (callback) callback(req);

    pthread_mutex_lock(&req->lock);
    bool over = settle_handler(req, &unanswered);
    bool again = req->run == SRV_RUN_AGAIN && req->api_held;
    req->run = again ? SRV_RUN_QUEUED : SRV_RUN_IDLE;
    if (again)
        push(req, SRV_WORK_WAKE);
    else if (over)
        resume(req); /* the stream may just have been closed */
    pthread_mutex_unlock(&req->lock);
    if (unanswered) reply_unanswered(req);
    if (over) srv_request_unref(req);
    if (!again) srv_request_unref(req);
}

void srv_request_dispatch(struct srv_request *req)
{
    pthread_mutex_lock(&req->lock);
    req->api_held = true;
    atomic_fetch_add(&req->n_refs, 2); /* the API side's, and that of the run */
    bool is_inline = req->route->flags & SRV_ROUTE_INLINE;
    req->run = SRV_RUN_QUEUED;
    req->work.class = req->body.len > SRV_SMALL_BODY_BYTES ? SRV_WORK_LARGE : SRV_WORK_SMALL;
    if (!is_inline) push(req, req->work.class);
    pthread_mutex_unlock(&req->lock);
    if (is_inline) run_item(&req->work);
}

void srv_request_wake(struct srv_request *req)
{
    pthread_mutex_lock(&req->lock);
    if (req->api_held && req->callbacks.on_wake) {
        if (req->run == SRV_RUN_ACTIVE) req->run = SRV_RUN_AGAIN;
        if (req->run == SRV_RUN_IDLE) {
            req->run = SRV_RUN_QUEUED;
            srv_request_ref(req);
            push(req, SRV_WORK_WAKE);
        }
    }
    pthread_mutex_unlock(&req->lock);
}

void srv_request_set_callbacks(struct srv_request *req, const struct srv_callbacks *callbacks,
                               void *api_data)
{
    pthread_mutex_lock(&req->lock);
    req->callbacks = *callbacks;
    req->api_data = api_data;
    pthread_mutex_unlock(&req->lock);
}

void *srv_request_api_data(const struct srv_request *req)
{
    return req->api_data;
}

void srv_request_done(struct srv_request *req)
{
    pthread_mutex_lock(&req->lock);
    bool held = req->api_held;
    bool unanswered = held && req->answer == SRV_ANSWER_NONE && !req->gone;
    req->api_held = false;
    if (req->answer >= SRV_ANSWER_PIECES) req->stream_closed = true;
    if (!unanswered) resume(req);
    pthread_mutex_unlock(&req->lock);
    if (unanswered) reply_unanswered(req);
    if (held) srv_request_unref(req);
}

bool srv_request_is_gone(const struct srv_request *req)
{
    struct srv_request *r =
        (struct srv_request *)req; /* the lock is not part of what callers see as const */
    pthread_mutex_lock(&r->lock);
    bool gone = r->gone;
    pthread_mutex_unlock(&r->lock);
    return gone;
}

/* ---- answers ------------------------------------------------------------------------------- */

static bool is_header_text(const char *text)
{
    for (; *text; text++) {
        if ((unsigned char)*text < 0x20 || *text == 0x7f) return false;
    }
    return true;
}

void srv_reply_header(struct srv_request *req, const char *name, const char *value)
{
    if (req->n_reply_headers >= SRV_REPLY_HEADERS_MAX || !is_header_text(value)) return;
    char *n = copy_text(req, name, strlen(name));
    char *v = copy_text(req, value, strlen(value));
    if (n && v) req->reply_headers[req->n_reply_headers++] = (struct srv_pair){n, v};
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
        status = srv_error_status(kind);
        content_type = NULL;
        srv_error_write_for(req, &taken, kind, NULL,
                            kind == SRV_ERR_TOO_LARGE
                                ? "The answer is larger than this server sends."
                                : "There is no memory for the answer.",
                            NULL);
    }
    pthread_mutex_lock(&req->lock);
    if (req->answer == SRV_ANSWER_NONE) {
        req->answer = SRV_ANSWER_WHOLE;
        req->status = status;
        req->content_type = content_type ? content_type : "application/json";
        req->reply = taken;
        buf_init(&taken, 0);
        resume(req);
    }
    pthread_mutex_unlock(&req->lock);
    buf_finish(&taken);
}

static void open_ring(struct srv_request *req, enum srv_answer answer, const char *content_type)
{
    pthread_mutex_lock(&req->lock);
    if (req->answer == SRV_ANSWER_NONE) {
        req->answer = answer;
        req->status = 200;
        req->content_type = content_type;
        req->last_write_us = clock_now_us();
        resume(req);
    }
    pthread_mutex_unlock(&req->lock);
}

void srv_stream_open(struct srv_request *req)
{
    open_ring(req, SRV_ANSWER_STREAM, "text/event-stream; charset=utf-8");
}

void srv_reply_in_pieces(struct srv_request *req)
{
    open_ring(req, SRV_ANSWER_PIECES, "application/json");
}

bool srv_stream_has_room(struct srv_request *req)
{
    pthread_mutex_lock(&req->lock);
    bool room = req->gone || !req->http_held || req->ring.len < SRV_STREAM_FIRST_BYTES;
    if (!room) req->wants_room = true;
    pthread_mutex_unlock(&req->lock);
    return room;
}

/* A stream that cannot go on; no client may take it for whole. */
static void cut_stream(struct srv_request *req)
{
    srv_request_gone(req);
    req->transport->cut(req);
}

bool srv_stream_write(struct srv_request *req, const char *data, size_t len)
{
    pthread_mutex_lock(&req->lock);
    bool open = req->http_held && !req->gone && !req->cut && !req->stream_closed;
    bool written = open && srv_ring_write(&req->ring, data, len);
    bool cut = open && !written;
    if (cut) req->cut = true;
    if (written) {
        req->last_write_us = clock_now_us();
        resume(req);
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
    pthread_mutex_lock(&req->lock);
    req->stream_closed = true;
    resume(req);
    pthread_mutex_unlock(&req->lock);
}

/* ---- the HTTP side ------------------------------------------------------------------------- */

enum srv_poll srv_request_poll(struct srv_request *req)
{
    enum srv_poll poll = SRV_POLL_READY;
    pthread_mutex_lock(&req->lock);
    if (req->gone) {
        poll = SRV_POLL_GONE;
    } else if (req->answer == SRV_ANSWER_NONE) {
        poll = SRV_POLL_WAIT;
        req->suspended = true;
        req->transport->suspend(req->connection);
    }
    pthread_mutex_unlock(&req->lock);
    return poll;
}

ssize_t srv_request_read(struct srv_request *req, char *buf, size_t max)
{
    ssize_t n;
    bool wake = false;
    pthread_mutex_lock(&req->lock);
    if (req->gone || req->cut) {
        n = SRV_READ_CUT;
    } else if (req->ring.len) {
        n = (ssize_t)srv_ring_read(&req->ring, buf, max);
        req->sent_bytes += (size_t)n;
        wake = req->wants_room && req->ring.len <= SRV_STREAM_LOW_BYTES;
        if (wake) req->wants_room = false;
    } else if (req->stream_closed) {
        n = SRV_READ_END;
    } else {
        n = 0;
        req->suspended = true;
        req->transport->suspend(req->connection);
    }
    pthread_mutex_unlock(&req->lock);
    if (wake) srv_request_wake(req);
    return n;
}

/* With the lock held: the callback to make for a client that left, once; NULL otherwise. */
static void (*take_gone_callback(struct srv_request *req))(struct srv_request *)
{
    if (!req->api_held || req->gone_called || !req->callbacks.on_gone) return NULL;
    req->gone_called = true;
    return req->callbacks.on_gone;
}

static void tell_gone(struct srv_request *req, void (*on_gone)(struct srv_request *))
{
    if (!on_gone) return;
    on_gone(req);
    srv_request_wake(req);
}

void srv_request_completed(struct srv_request *req, bool finished)
{
    pthread_mutex_lock(&req->lock);
    req->end_us = clock_now_us();
    req->connection = NULL;
    req->http_held = req->suspended = false;
    if (!finished) req->gone = true;
    if (req->answer == SRV_ANSWER_WHOLE && finished) req->sent_bytes = req->reply.len;
    void (*on_gone)(struct srv_request *) = req->gone ? take_gone_callback(req) : NULL;
    bool gone = req->gone;
    pthread_mutex_unlock(&req->lock);
    if (gone) srv_metrics_count(req->server->metrics, SRV_COUNT_GONE);
    tell_gone(req, on_gone);
    srv_request_unref(req);
}

void srv_request_gone(struct srv_request *req)
{
    pthread_mutex_lock(&req->lock);
    if (!req->http_held || req->gone) {
        pthread_mutex_unlock(&req->lock);
        return;
    }
    req->gone = true;
    resume(req);
    void (*on_gone)(struct srv_request *) = take_gone_callback(req);
    pthread_mutex_unlock(&req->lock);
    tell_gone(req, on_gone);
}

void srv_request_stop(struct srv_request *req)
{
    pthread_mutex_lock(&req->lock);
    void (*on_stop)(struct srv_request *) = NULL;
    if (req->api_held && !req->stop_called) on_stop = req->callbacks.on_stop;
    req->stop_called = true;
    pthread_mutex_unlock(&req->lock);
    if (!on_stop) return;
    on_stop(req);
    srv_request_wake(req);
}

void srv_request_heartbeat(struct srv_request *req, uint64_t now_us, uint64_t silent_since_us)
{
    static const char comment[] = ": keep-alive\n";
    pthread_mutex_lock(&req->lock);
    bool idle = req->answer == SRV_ANSWER_STREAM && !req->stream_closed && !req->ring.len &&
                req->suspended && req->last_write_us <= silent_since_us;
    if (idle && srv_ring_write(&req->ring, comment, sizeof(comment) - 1)) {
        req->last_write_us = now_us;
        resume(req);
    }
    pthread_mutex_unlock(&req->lock);
}
