/* SPDX-License-Identifier: MIT */
/*
 * libmicrohttpd: daemon and callbacks. All callbacks of a connection run on its daemon's thread.
 *
 *   on_connection    a socket has been accepted, or is about to be closed
 *   on_target        the request line is there: the request begins
 *   on_request       first with the head alone (checks), then with pieces of the body, at its end
 *                    (dispatch), and again each time a suspended connection has been resumed
 *   on_read          the stream's next bytes
 *   on_completed     the request is over, however it ended
 *
 * Checks that this version of the library does not make, or not strictly, are in guard.c and
 * watch.c.
 */
#include "server/http/daemon.h"

#include <arpa/inet.h>
#include <microhttpd.h>
#include <stdatomic.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/os_error.h"
#include "server/http/admit.h"
#include "server/http/guard.h"
#include "server/http/keys.h"
#include "server/http/request.h"
#include "server/http/server.h"
#include "server/http/watch.h"
#include "server/log.h"
#include "server/metrics.h"

enum { READ_BLOCK_BYTES = 32 << 10, TIMEOUT_SPARE_S = 5 };

/* For GnuTLS: only TLS 1.2 and 1.3, only key exchanges with forward secrecy. */
static const char TLS_PRIORITIES[] = "PFS:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2";

struct srv_http {
    struct srv_server *server;
    struct MHD_Daemon *daemon;
    int listen_fd;
    bool admin, tls, shared, quiesced;
};

/* The library's context of one connection. */
struct connection {
    uint64_t id;  /* the watcher's */
    bool refused; /* over the connection limit: every request gets 503 */
};

/* ---- suspending ---------------------------------------------------------------------------- */

static void suspend_connection(struct srv_request *req)
{
    req->suspended = true;
    MHD_suspend_connection(req->connection);
}

static void resume_connection(struct srv_request *req)
{
    if (!req->suspended) return;
    req->suspended = false;
    MHD_resume_connection(req->connection);
}

static void cut_connection(struct srv_request *req)
{
    srv_watch_cut(req->server->watch, req->connection_id);
}

static const struct srv_transport transport = {suspend_connection, resume_connection,
                                               cut_connection};

/* ---- the head ------------------------------------------------------------------------------ */

static const struct connection *context_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

static void note_peer(struct srv_request *req, struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const struct sockaddr *addr = info ? info->client_addr : NULL;
    if (!addr) return;
    if (addr->sa_family == AF_INET) {
        inet_ntop(AF_INET, &((const struct sockaddr_in *)addr)->sin_addr, req->peer,
                  sizeof(req->peer));
    } else if (addr->sa_family == AF_INET6) {
        inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)addr)->sin6_addr, req->peer,
                  sizeof(req->peer));
    } else {
        snprintf(req->peer, sizeof(req->peer), "unix");
    }
}

struct collector {
    struct srv_request *req;
    struct srv_guard_head *head;
    bool too_many;
};

static enum MHD_Result collect(void *cls, enum MHD_ValueKind kind, const char *name,
                               size_t name_len, const char *value, size_t value_len)
{
    struct collector *c = cls;
    if (!value) value_len = 0;
    if (!srv_request_add_header(c->req, name, name_len, value ? value : "", value_len)) {
        c->too_many = true;
        return MHD_NO;
    }
    const struct srv_pair *kept = &c->req->headers[c->req->n_headers - 1];
    if (strlen(kept->name) != name_len || strlen(kept->value) != value_len)
        c->head->bad_header = true; /* with a NUL in it */
    return MHD_YES;
}

static enum MHD_Result send_answer(struct srv_request *req, struct MHD_Connection *connection);

/* The head is complete. Either an answer is queued now, or the body is awaited. */
static enum MHD_Result take_head(struct srv_request *req, struct MHD_Connection *connection,
                                 const char *method, const char *version)
{
    struct srv_guard_head head = {.method = method, .version = version, .target = req->target};
    struct srv_guard_verdict verdict = {0};
    struct collector collector = {.req = req, .head = &head};
    const struct connection *context = context_of(connection);
    snprintf(req->method, sizeof(req->method), "%s", method);
    note_peer(req, connection);
    MHD_get_connection_values_n(connection, MHD_HEADER_KIND, collect, &collector);
    srv_admit_request(req, &head, context->refused, collector.too_many, &verdict);
    if (verdict.refused) {
        if (context->refused)
            srv_metrics_count(req->server->metrics, SRV_COUNT_REFUSED_CONNECTIONS);
        /* If a body may follow or the framing is in doubt, the next bytes are not a request. */
        req->close_after = context->refused || head.body_bytes != 0 || head.n_content_lengths > 1 ||
                           verdict.kind == SRV_ERR_BAD_REQUEST ||
                           verdict.kind == SRV_ERR_TOO_LARGE || verdict.kind == SRV_ERR_HEADERS;
        srv_reply_error(req, verdict.kind, NULL, "%s", verdict.message);
        return send_answer(req, connection);
    }
    if (strcmp(req->method, "OPTIONS") == 0) {
        req->close_after = head.body_bytes != 0;
        srv_admit_reply_options(req);
        return send_answer(req, connection);
    }
    buf_init(&req->body, req->route->flags & SRV_ROUTE_UPLOAD
                             ? SRV_UPLOAD_PIECE_BYTES
                             : (size_t)req->server->config->max_body_bytes);
    memcpy(&req->held.key, req->facts.tenant, sizeof(req->held.key));
    req->held.large = head.body_bytes > SRV_SMALL_BODY_BYTES;
    req->stage = SRV_STAGE_BODY;
    srv_watch_enter(req->server->watch, req->connection_id, SRV_PHASE_BODY, req);
    return MHD_YES;
}

/* ---- the body ------------------------------------------------------------------------------ */

/* Adds to the piece of a body with a sink. *ret_n: how many bytes of the data. */
static enum MHD_Result take_piece(struct srv_request *req, const char *data, size_t *ret_n)
{
    struct srv_watch *watch = req->server->watch;
    enum srv_poll poll = srv_request_piece(req, false);
    size_t n = 0;
    if (poll == SRV_POLL_READY) {
        n = SRV_UPLOAD_PIECE_BYTES - req->body.len;
        if (n > *ret_n) n = *ret_n;
        if (req->body.len == req->n_kept)
            srv_watch_enter(watch, req->connection_id, SRV_PHASE_BODY, req); /* its clock */
        buf_add(&req->body, data, n);
        if (req->body.failed) poll = SRV_POLL_GONE;
        if (req->body.len == SRV_UPLOAD_PIECE_BYTES) /* a worker's from here on */
            poll = srv_watch_enter(watch, req->connection_id, SRV_PHASE_WORKING, req)
                       ? srv_request_piece(req, true)
                       : SRV_POLL_GONE;
    }
    *ret_n = n;
    return poll == SRV_POLL_GONE ? MHD_NO : MHD_YES;
}

static enum MHD_Result take_body(struct srv_request *req, const char *data, size_t *ret_n)
{
    struct srv_server *s = req->server;
    bool in_pieces = req->route->flags & SRV_ROUTE_UPLOAD;
    int64_t most = in_pieces ? SRV_UPLOAD_MAX_BYTES : s->config->max_body_bytes;
    size_t len = *ret_n;
    if (!req->over_limit && len > (size_t)most - req->body_bytes) {
        req->over_limit = true;
        req->status = 413;
        srv_watch_refuse_body(s->watch, req->connection_id, most);
    }
    if (req->over_limit) {
        req->discarded_bytes += len;
        return req->discarded_bytes < SRV_DISCARD_MAX_BYTES ? MHD_YES : MHD_NO;
    }
    enum MHD_Result rc = in_pieces ? take_piece(req, data, ret_n) : MHD_YES;
    req->body_bytes += *ret_n;
    if (in_pieces) return rc;
    if (req->over_budget) return MHD_YES;
    req->over_budget = !srv_bodies_add(&s->bodies, &req->held, len, srv_keys_several(s->keys));
    if (!req->over_budget) buf_add(&req->body, data, len);
    req->over_budget |= req->body.failed;
    if (req->over_budget) {
        buf_finish(&req->body);
        srv_bodies_drop(&s->bodies, &req->held);
    }
    return MHD_YES;
}

static enum MHD_Result answer_or_wait(struct srv_request *req, struct MHD_Connection *connection,
                                      enum srv_poll poll)
{
    if (poll == SRV_POLL_READY) return send_answer(req, connection);
    return poll == SRV_POLL_WAIT ? MHD_YES : MHD_NO;
}

/* The request is complete. */
static enum MHD_Result finish_body(struct srv_request *req, struct MHD_Connection *connection)
{
    struct srv_watch *watch = req->server->watch;
    bool is_inline = req->route->flags & SRV_ROUTE_INLINE;
    bool in_pieces = req->route->flags & SRV_ROUTE_UPLOAD;
    enum srv_poll poll = in_pieces ? srv_request_piece(req, false) : SRV_POLL_READY;
    if (req->over_limit || poll == SRV_POLL_GONE) return MHD_NO;
    if (poll == SRV_POLL_WAIT) return MHD_YES;
    req->stage = SRV_STAGE_DISPATCHED;
    if (req->over_budget) {
        srv_reply_error(req, SRV_ERR_OVERLOADED, NULL,
                        "The server is out of memory for the request's body.");
        return send_answer(req, connection);
    }
    if (!is_inline && !srv_watch_enter(watch, req->connection_id, SRV_PHASE_WORKING, req))
        return MHD_NO;
    if (req->server->config->log_prompts && req->body.len &&
        !in_pieces) /* cut to the length of a log line */
        srv_log(SRV_LOG_INFO, "request %s body: %s", req->facts.id, req->body.data);
    return answer_or_wait(req, connection, srv_request_dispatch(req));
}

/* ---- the answer ---------------------------------------------------------------------------- */

static ssize_t on_read(void *cls, uint64_t pos, char *buf, size_t max)
{
    struct srv_request *req = cls;
    ssize_t n = srv_request_read(req, buf, max);
    if (n >= 0) return n;
    /*
     * A cut stream ends like any other, on a socket that is shut, so that no client takes it for
     * whole: after END_WITH_ERROR this version completes the request but forgets to close the
     * socket until its idle timeout. Other negative numbers make it send what lies behind the
     * buffer.
     */
    if (n != SRV_READ_END) cut_connection(req);
    return MHD_CONTENT_READER_END_OF_STREAM;
}

static void add_times(struct srv_request *req, struct MHD_Response *response)
{
    char text[160];
    double total_ms = (double)(clock_now_us() - req->facts.start_us) / 1000.0;
    const struct srv_account *a = &req->facts.account;
    snprintf(text, sizeof(text), "%.0f", total_ms);
    MHD_add_response_header(response, "openai-processing-ms", text);
    if (req->answer != SRV_ANSWER_WHOLE || a->queue_us < 0 || a->ttft_us < a->queue_us) return;
    snprintf(text, sizeof(text), "queue;dur=%.3f, prefill;dur=%.3f, total;dur=%.3f",
             (double)a->queue_us / 1000.0, (double)(a->ttft_us - a->queue_us) / 1000.0, total_ms);
    MHD_add_response_header(response, "Server-Timing", text);
}

static void add_headers(struct srv_request *req, struct MHD_Response *response)
{
    bool draining = atomic_load(req->server->state) == SRV_DRAINING;
    bool has_body = req->status != 204 && req->status != 304;
    if (has_body) MHD_add_response_header(response, "Content-Type", req->content_type);
    MHD_add_response_header(response, "x-request-id", req->facts.id);
    if (req->facts.dialect == SRV_DIALECT_ANTHROPIC)
        MHD_add_response_header(response, "request-id", req->facts.id);
    add_times(req, response);
    if (req->answer == SRV_ANSWER_STREAM) {
        MHD_add_response_header(response, "Cache-Control", "no-cache, no-store");
        MHD_add_response_header(response, "X-Accel-Buffering", "no");
    }
    for (int i = 0; i < req->n_reply_headers; i++)
        MHD_add_response_header(response, req->reply_headers[i].name, req->reply_headers[i].value);
    if (req->close_after || draining) MHD_add_response_header(response, "Connection", "close");
}

static struct MHD_Response *make_response(struct srv_request *req)
{
    if (req->answer >= SRV_ANSWER_PIECES)
        return MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, READ_BLOCK_BYTES, on_read, req,
                                                 NULL);
    if (req->answer == SRV_ANSWER_FILE) {
        int fd = req->file.fd;
        req->file.fd = -1; /* owned by the library now */
        return MHD_create_response_from_fd_at_offset64((uint64_t)req->file.bytes, fd,
                                                       (uint64_t)req->file.at);
    }
    if (!req->reply.len)
        return MHD_create_response_from_buffer(0, (char[1]){0}, MHD_RESPMEM_MUST_COPY);
    struct MHD_Response *response =
        MHD_create_response_from_buffer(req->reply.len, req->reply.data, MHD_RESPMEM_MUST_FREE);
    if (response) req->reply.data = NULL; /* owned by the library now */
    return response;
}

static enum MHD_Result send_answer(struct srv_request *req, struct MHD_Connection *connection)
{
    struct MHD_Response *response = make_response(req);
    if (!response) return MHD_NO;
    add_headers(req, response);
    req->stage = SRV_STAGE_ANSWERED;
    srv_watch_enter(req->server->watch, req->connection_id, SRV_PHASE_ANSWERING, req);
    enum MHD_Result rc = MHD_queue_response(connection, (unsigned)req->status, response);
    MHD_destroy_response(response);
    return rc;
}

/* ---- callbacks ----------------------------------------------------------------------------- */

static void *on_target(void *cls, const char *target, struct MHD_Connection *connection)
{
    struct srv_http *h = cls;
    const struct connection *context = context_of(connection);
    if (!context) return NULL;
    struct srv_request *req = srv_request_create(h->server, &transport, connection, target);
    if (!req) return NULL;
    req->admin = h->admin;
    req->connection_id = context->id;
    srv_watch_enter(h->server->watch, context->id, SRV_PHASE_HEAD, req);
    return req;
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *upload_data,
                                  size_t *upload_data_size, void **con_cls)
{
    struct srv_request *req = *con_cls;
    if (!req) return MHD_NO;
    switch (req->stage) {
    case SRV_STAGE_HEAD: return take_head(req, connection, method, version);
    case SRV_STAGE_BODY:
        if (!*upload_data_size) return finish_body(req, connection);
        size_t n = *upload_data_size;
        enum MHD_Result rc = take_body(req, upload_data, &n);
        *upload_data_size -= n;
        return rc;
    case SRV_STAGE_DISPATCHED: return answer_or_wait(req, connection, srv_request_poll(req));
    case SRV_STAGE_ANSWERED: break;
    }
    return MHD_YES;
}

static void on_completed(void *cls, struct MHD_Connection *connection, void **con_cls,
                         enum MHD_RequestTerminationCode code)
{
    struct srv_request *req = *con_cls;
    if (!req) return;
    *con_cls = NULL;
    srv_watch_enter(req->server->watch, req->connection_id, SRV_PHASE_IDLE, NULL);
    srv_request_completed(req, code == MHD_REQUEST_TERMINATED_COMPLETED_OK);
}

static void begin_connection(struct srv_http *h, int fd, void **socket_context)
{
    int bytes = SRV_SEND_BUFFER_BYTES;
    /* If this fails, a client that stops reading only costs more memory. */
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
    struct connection *context = calloc(1, sizeof(*context));
    if (context)
        context->id = srv_watch_add(h->server->watch, fd, h->admin, h->tls, &context->refused);
    if (!context || !context->id) {
        free(context);
        context = NULL;
        shutdown(fd, SHUT_RDWR);
    }
    *socket_context = context;
}

static void on_connection(void *cls, struct MHD_Connection *connection, void **socket_context,
                          enum MHD_ConnectionNotificationCode code)
{
    struct srv_http *h = cls;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        begin_connection(h, info->connect_fd, socket_context);
        return;
    }
    struct connection *context = *socket_context;
    if (context) srv_watch_remove(h->server->watch, context->id);
    free(context);
    *socket_context = NULL;
}

__attribute__((format(printf, 2, 0))) static void on_log(void *cls, const char *format,
                                                         va_list args)
{
    char text[512];
    vsnprintf(text, sizeof(text), format, args);
    text[strcspn(text, "\n")] = '\0';
    srv_log(SRV_LOG_DEBUG, "http: %s", text);
}

static void on_panic(void *cls, const char *file, unsigned int line, const char *reason)
{
    srv_log(SRV_LOG_ERROR, "the HTTP library gave up at %s:%u: %s", file, line,
            reason ? reason : "no reason given");
    srv_log_flush(1000);
    abort();
}

/* ---- the daemon ---------------------------------------------------------------------------- */

/* The library's own idle timeout is a backup of the watcher's. */
static unsigned idle_timeout_s(const struct srv_config *c)
{
    int longest = c->idle_timeout_ms > c->send_timeout_ms ? c->idle_timeout_ms : c->send_timeout_ms;
    if (c->body_timeout_ms > longest) longest = c->body_timeout_ms;
    return (unsigned)longest / 1000 + TIMEOUT_SPARE_S;
}

static struct MHD_Daemon *start_daemon(struct srv_http *h, const struct srv_http_params *p)
{
    const struct srv_config *c = h->server->config;
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG;
    unsigned limit = h->admin ? SRV_ADMIN_CONNECTIONS
                              : (unsigned)h->server->max_connections + SRV_CONNECTION_MARGIN;
    struct MHD_OptionItem tls[] = {
        {MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)p->tls_cert},
        {MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)p->tls_key},
        {MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)TLS_PRIORITIES},
        {MHD_OPTION_END, 0, NULL},
    };
    struct MHD_OptionItem none[] = {{MHD_OPTION_END, 0, NULL}};
    if (h->tls) flags |= MHD_USE_TLS;
    return MHD_start_daemon(flags, 0, NULL, NULL, on_request, h, MHD_OPTION_EXTERNAL_LOGGER, on_log,
                            NULL, MHD_OPTION_LISTEN_SOCKET, p->listen_fd,
                            MHD_OPTION_CONNECTION_LIMIT, limit, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                            (size_t)SRV_CONNECTION_POOL_BYTES, MHD_OPTION_CONNECTION_TIMEOUT,
                            idle_timeout_s(c), MHD_OPTION_STRICT_FOR_CLIENT, 1,
                            MHD_OPTION_URI_LOG_CALLBACK, on_target, h, MHD_OPTION_NOTIFY_CONNECTION,
                            on_connection, h, MHD_OPTION_NOTIFY_COMPLETED, on_completed, h,
                            MHD_OPTION_ARRAY, h->tls ? tls : none, MHD_OPTION_END);
}

int srv_http_check_tls(const char *cert, const char *key, char *err, size_t errlen)
{
    struct MHD_Daemon *daemon = MHD_start_daemon(
        MHD_USE_TLS | MHD_USE_NO_LISTEN_SOCKET | MHD_USE_ERROR_LOG, 0, NULL, NULL, on_request, NULL,
        MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL, MHD_OPTION_HTTPS_MEM_CERT, cert,
        MHD_OPTION_HTTPS_MEM_KEY, key, MHD_OPTION_END);
    if (!daemon)
        return fail_with(-1, err, errlen, "TLS cannot be served; are certificate and key good?");
    MHD_stop_daemon(daemon);
    return 0;
}

int srv_http_start(struct srv_http **ret, struct srv_server *server,
                   const struct srv_http_params *params, char *err, size_t errlen)
{
    struct srv_http *h = calloc(1, sizeof(*h));
    if (!h) {
        close(params->listen_fd);
        return fail_with(-1, err, errlen, "no memory for the HTTP daemon");
    }
    MHD_set_panic_func(on_panic, NULL);
    *h = (struct srv_http){.server = server,
                           .listen_fd = params->listen_fd,
                           .admin = params->admin,
                           .tls = params->tls_cert != NULL,
                           .shared = params->shared};
    errno = 0;
    h->daemon = start_daemon(h, params);
    if (!h->daemon) {
        snprintf(err, errlen, "the HTTP daemon cannot start: %s%s",
                 errno    ? strerror(errno)
                 : h->tls ? "are certificate and key good?"
                          : "out of memory",
                 os_error_remedy(errno));
        close(h->listen_fd);
        free(h);
        return -1;
    }
    *ret = h;
    return 0;
}

void srv_http_quiesce(struct srv_http *h)
{
    if (h->quiesced) return;
    h->quiesced = MHD_quiesce_daemon(h->daemon) != MHD_INVALID_SOCKET;
    if (!h->quiesced) return;
    /*
     * Without the shutdown the kernel would still take connections, which nobody accepts. A
     * shutdown ends the socket in every process that holds it, so a socket shared with the next
     * server is left open.
     */
    if (!h->shared) shutdown(h->listen_fd, SHUT_RDWR);
}

void srv_http_stop(struct srv_http *h)
{
    if (!h) return;
    /* Takes the socket back: the library would shut it down even if it is shared. */
    srv_http_quiesce(h);
    MHD_stop_daemon(h->daemon);
    if (h->quiesced) close(h->listen_fd);
    free(h);
}
