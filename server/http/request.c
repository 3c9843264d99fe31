/* SPDX-License-Identifier: MIT */
/* A request's life: memory, references, head, wakes, and its end. See request.h for the rules. */
#include "server/http/request.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/hex.h"
#include "server/bounds.h"
#include "server/http/guard.h"
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
    /* A block for one large allocation goes behind the current one, which may have room left. */
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
    if (!req->answers) { /* a list of models has a bound of its own, too */
        int64_t most = req->server->config->answer_memory_bytes;
        *ret_used = 0;
        return most == 0 || bytes <= most;
    }
    long long used = atomic_load(req->answers);
    do {
        *ret_used = used;
        if (bytes > *req->answers_limit - used) return false;
    } while (!atomic_compare_exchange_weak(req->answers, &used, used + bytes));
    req->answer_bytes += bytes;
    assert(bytes >= 0 && req->answer_bytes >= bytes);
    return true;
}

char *srv_request_copy_text(struct srv_request *req, const char *text, size_t len)
{
    char *copy = srv_request_alloc(req, len + 1);
    if (copy) memcpy(copy, text, len);
    return copy;
}

void *srv_request_copy(struct srv_request *req, const void *from, size_t bytes)
{
    void *copy = srv_request_alloc(req, bytes ? bytes : 1);
    if (copy && bytes) memcpy(copy, from, bytes);
    return copy;
}

/* ---- birth and death ----------------------------------------------------------------------- */

void srv_request_set_ids(struct srv_request *req, const uint8_t *unique)
{
    hex_write(req->facts.unique, unique, SRV_UNIQUE_BYTES);
    snprintf(req->facts.id, sizeof(req->facts.id), "req_%s", req->facts.unique);
}

/* The id must be unique. If there are no random bytes, the address and the clock make it so. */
static void make_id(struct srv_request *req)
{
    uint8_t random[SRV_UNIQUE_BYTES];
    if (getrandom(random, sizeof(random), GRND_NONBLOCK) != (ssize_t)sizeof(random)) {
        uint64_t words[2] = {(uint64_t)(uintptr_t)req * 0x9e3779b97f4a7c15u, clock_now_us()};
        memcpy(random, words, sizeof(random));
    }
    srv_request_set_ids(req, random);
}

struct srv_request *srv_request_create(struct srv_server *server,
                                       const struct srv_transport *transport, void *connection,
                                       const char *target)
{
    struct srv_request *req = calloc(1, sizeof(*req));
    if (!req) return NULL;
    req->target = srv_request_copy_text(req, target, strlen(target));
    if (!req->target) {
        free(req);
        return NULL;
    }
    pthread_mutex_init(&req->lock, NULL);
    req->server = server;
    req->n_refs = 1;
    req->transport = transport;
    req->connection = connection;
    req->http_held = true;
    req->stream.max = SRV_STREAM_MAX_BYTES + SRV_STREAM_EVENT_MAX_BYTES;
    req->facts.start_us = clock_now_us();
    req->facts.account.queue_us = req->facts.account.ttft_us = -1;
    req->facts.app = server->app;
    req->query = req->facts.tail = req->facts.body = req->path = "";
    make_id(req);
    atomic_fetch_add(&server->n_requests, 1);
    atomic_fetch_add(&server->n_requests_ever, 1);
    return req;
}

/* The access log and the metrics learn of a request that has ended. */
static void account(const struct srv_request *req)
{
    const struct srv_account *a = &req->facts.account;
    struct srv_server *s = req->server;
    int64_t total_us = (int64_t)(req->end_us - req->facts.start_us);
    if (!req->method[0]) return; /* its head never came */
    srv_metrics_count_request(s->metrics, req->status, req->gone, a, total_us);
    if (a->spare) return; /* its batch has the answer */
    srv_log_access(&(struct srv_log_access){
        .request_id = req->facts.id,
        .method = req->method,
        .path = *req->path ? req->path : req->target,
        .trace_parent = *req->facts.trace_parent ? req->facts.trace_parent : NULL,
        .session_id = srv_request_header(req, "x-session-id"),
        .peer = req->peer,
        .status = req->status,
        .gone = req->gone,
        .account = a,
        .total_us = total_us,
        .sent_bytes = req->sent_bytes,
    });
}

/* Once; without the lock, for nobody else can get to what it frees. */
static void end_api(struct srv_request *req)
{
    struct srv_account *a = &req->facts.account;
    /* the name is of the body or of the model, which both go now; the access log comes later */
    if (req->facts.model && a->model)
        a->model = srv_request_copy_text(req, a->model, strlen(a->model));
    req->server->gate->leave(req);
}

void srv_request_unref_api(struct srv_request *req)
{
    int before = atomic_fetch_sub(&req->n_api_refs, 1);
    assert(before > 0);
    if (before == 1) end_api(req);
}

static void destroy(struct srv_request *req)
{
    struct srv_server *s = req->server;
    assert(!req->http_held && !req->api_held && req->run <= SRV_RUN_IDLE);
    end_api(req); /* unless it has: of one that was never dispatched */
    if (req->facts.upload) ((const struct srv_sink *)req->route->arg)->drop(req->facts.upload);
    if (req->answer == SRV_ANSWER_FILE) file_close(&req->file.fd);
    srv_bodies_drop(&s->bodies, &req->held);
    buf_finish(&req->body);
    buf_finish(&req->reply);
    buf_finish(&req->stream);
    if (req->charged) s->gate->drop_answer(req->charged, req->answer_bytes);
    account(req);
    while (req->arena) {
        struct arena_block *next = req->arena->next;
        free(req->arena);
        req->arena = next;
    }
    pthread_mutex_destroy(&req->lock);
    free(req);
    int others = atomic_fetch_sub(&s->n_requests, 1);
    assert(others > 0);
    (void)others;
}

void srv_request_ref(struct srv_request *req)
{
    int before = atomic_fetch_add(&req->n_refs, 1);
    assert(before > 0);
    (void)before;
}

void srv_request_unref(struct srv_request *req)
{
    int before = atomic_fetch_sub(&req->n_refs, 1);
    assert(before > 0);
    if (before == 1) destroy(req);
}

/* ---- facts of the head --------------------------------------------------------------------- */

static bool is_sane_id(const char *id)
{
    size_t len = strlen(id);
    if (len == 0 || len > SRV_REQUEST_ID_MAX) return false;
    for (size_t i = 0; i < len; i++)
        if (id[i] <= ' ' || id[i] > '~') return false;
    return true;
}

/*
 * A header traceparent of W3C Trace Context: 00-<32 hex>-<16 hex>-<2 hex>, that is version, trace
 * id, id of the caller's span, and flags. A later version may go on after a '-'.
 */
static bool is_trace_parent(const char *value, size_t len)
{
    static const char hex[] = "0123456789abcdef";
    bool has_form = strspn(value, hex) == 2 && value[2] == '-' && strspn(value + 3, hex) == 32 &&
                    value[35] == '-' && strspn(value + 36, hex) == 16 && value[52] == '-' &&
                    strspn(value + 53, hex) == 2;
    if (!has_form || strncmp(value, "ff", 2) == 0) return false;
    if (strspn(value + 3, "0") == 32 || strspn(value + 36, "0") == 16) return false;
    return len == 55 || (value[55] == '-' && strncmp(value, "00", 2) != 0);
}

bool srv_request_add_header(struct srv_request *req, const char *name, size_t name_len,
                            const char *value, size_t value_len)
{
    if (req->n_headers >= SRV_HEADERS_MAX) return false;
    char *n = srv_request_copy_text(req, name, name_len);
    char *v = srv_request_copy_text(req, value, value_len);
    if (!n || !v) return false;
    bool is_first = !srv_request_header(req, n);
    bool names_id = is_first && !strcasecmp(n, "x-request-id");
    if (names_id && is_sane_id(v)) snprintf(req->facts.id, sizeof(req->facts.id), "%s", v);
    if (!strcasecmp(n, "traceparent")) {
        /* Of two, neither is the caller's for certain. */
        bool is_kept = is_first && is_trace_parent(v, value_len);
        snprintf(req->facts.trace_parent, sizeof(req->facts.trace_parent), "%s", is_kept ? v : "");
    }
    req->headers[req->n_headers++] = (struct srv_pair){n, v};
    return true;
}

void srv_request_suggest_id(struct srv_request *req, const char *id)
{
    const char *given = srv_request_header(req, "x-request-id");
    if (!id || !is_sane_id(id) || (given && is_sane_id(given))) return;
    snprintf(req->facts.id, sizeof(req->facts.id), "%s", id);
}

const char *srv_request_header(const struct srv_request *req, const char *name)
{
    for (int i = 0; i < req->n_headers; i++)
        if (strcasecmp(req->headers[i].name, name) == 0) return req->headers[i].value;
    return NULL;
}

const char *srv_request_query(const struct srv_request *req, const char *name)
{
    size_t len;
    const char *raw = srv_guard_query(req->query, name, &len);
    /* Borrowed from the request's own memory, which is not part of what callers see as const. */
    char *value = raw ? srv_request_copy_text((struct srv_request *)req, raw, len) : NULL;
    if (value) srv_guard_decode(value, true);
    return value;
}

/* ---- the API side --------------------------------------------------------------------------- */

int srv_request_ask_place(struct srv_request *req, int n_slots, bool busy)
{
    struct srv_server *s = req->server;
    if (req->facts.account.spare) return 0;
    req->returner = srv_retry_name(&s->retry, req->facts.tenant, req->path,
                                   req->body.data ? req->body.data : "", req->body.len);
    req->has_asked = true;
    int n_kept = srv_retry_ask(&s->retry, &req->returner, clock_now_us(), n_slots, busy);
    if (req->returner.has_reservation) srv_metrics_count(s->metrics, SRV_COUNT_RETURNED);
    return n_kept;
}

bool srv_request_set_callbacks(struct srv_request *req, const struct srv_callbacks *callbacks,
                               void *api_data)
{
    HOLD(&req->lock);
    req->callbacks = *callbacks;
    req->api_data = api_data;
    return req->gone;
}

void srv_request_push(struct srv_request *req, enum srv_work_class class)
{
    req->work.class = class;
    memcpy(&req->work.key, req->facts.tenant, sizeof(req->work.key));
    srv_work_push(req->server->work, &req->work);
}

void srv_request_wake(struct srv_request *req)
{
    HOLD(&req->lock);
    if (req->api_held && req->callbacks.on_wake) {
        if (req->run == SRV_RUN_ACTIVE) req->run = SRV_RUN_AGAIN;
        if (req->run == SRV_RUN_IDLE) {
            req->run = SRV_RUN_QUEUED;
            srv_request_ref(req);
            atomic_fetch_add(&req->n_api_refs, 1);
            srv_request_push(req, SRV_WORK_WAKE);
        }
    }
}

void srv_request_yield(struct srv_request *req)
{
    HOLD(&req->lock);
    assert(req->run == SRV_RUN_ACTIVE || req->run == SRV_RUN_AGAIN);
    req->yields = true;
}

bool srv_request_is_stopped(struct srv_request *req)
{
    HOLD(&req->lock);
    return req->stop_called;
}

/* ---- the HTTP side ------------------------------------------------------------------------- */

/* A callback and its data, taken together with a reference of the API side, which may set others at
 * any time. */
struct call {
    void (*fn)(void *);
    void *data;
};

/* With the lock held: the call of a callback that is to be made once; none otherwise. */
static struct call take_call(struct srv_request *req, void (*fn)(void *), bool *called)
{
    if (!req->api_held || *called || !fn) return (struct call){0};
    *called = true;
    atomic_fetch_add(&req->n_api_refs, 1);
    return (struct call){fn, req->api_data};
}

static void tell(struct srv_request *req, struct call call)
{
    if (!call.fn) return;
    call.fn(call.data);
    srv_request_wake(req);
    srv_request_unref_api(req);
}

void srv_request_completed(struct srv_request *req, bool finished)
{
    pthread_mutex_lock(&req->lock);
    assert(req->http_held);
    req->end_us = clock_now_us();
    req->connection = NULL;
    req->http_held = req->suspended = false;
    if (!finished) req->gone = true;
    if (req->answer == SRV_ANSWER_WHOLE && finished) req->sent_bytes = req->reply.len;
    if (req->answer == SRV_ANSWER_FILE && finished) req->sent_bytes = (size_t)req->file.bytes;
    struct call on_gone = {0};
    if (req->gone) on_gone = take_call(req, req->callbacks.on_gone, &req->gone_called);
    pthread_mutex_unlock(&req->lock);
    tell(req, on_gone);
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
    req->transport->resume(req);
    struct call on_gone = take_call(req, req->callbacks.on_gone, &req->gone_called);
    pthread_mutex_unlock(&req->lock);
    tell(req, on_gone);
}

void srv_request_stop(struct srv_request *req)
{
    pthread_mutex_lock(&req->lock);
    struct call on_stop = take_call(req, req->callbacks.on_stop, &req->stop_called);
    req->stop_called = true;
    pthread_mutex_unlock(&req->lock);
    tell(req, on_stop);
}
