/* SPDX-License-Identifier: MIT */
/*
 * One thread, one epoll set, one array of slots under one mutex. Events report leaving peers at
 * once. A sweep, several times within the shortest timeout, checks the deadlines; it takes the lock
 * once per slot, so that no connection waits for it.
 */
#include "server/http/watch.h"

#include <assert.h>
#include <errno.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/os_error.h"
#include "base/thread.h"
#include "server/bounds.h"
#include "server/config/config.h"
#include "server/http/api_error.h"
#include "server/http/request.h"
#include "server/http/server.h"
#include "server/log.h"
#include "server/metrics.h"

enum { MAX_EVENTS = 64, MIN_TICK_MS = 10, MAX_TICK_MS = 1000 };
#define WAKE_ID UINT64_MAX

struct slot {
    int fd; /* -1: free */
    uint32_t generation;
    enum srv_phase phase;
    struct srv_request *req; /* bound, or NULL */
    uint64_t since_us;       /* when the phase began, or last progress while answering */
    uint64_t progress;   /* bytes received (idle) or taken by the peer (answering) at since_us */
    uint64_t hung_up_us; /* when the peer closed its sending side; 0: not */
    bool refused, admin, tls, counted, shut, is_unix;
};

struct srv_watch {
    pthread_mutex_t lock; /* guards the slots and the counts */
    struct slot *slots;
    int max_connections; /* that count: of the main listener, and not refused */
    int n_slots, n_counted, n_open;
    uint64_t drain_us; /* since when connections without a whole request are ended; 0: not */
    const struct srv_config *config;
    struct srv_metrics *metrics;
    int epoll_fd, wake_fd;
    int tick_ms;
    atomic_bool stopping;
    pthread_t thread;
    bool started;
};

/* ---- slots --------------------------------------------------------------------------------- */

static uint64_t id_of(const struct srv_watch *w, const struct slot *s)
{
    return (uint64_t)s->generation << 32 | (uint64_t)(s - w->slots + 1);
}

/* The connection's slot if it is still that connection. With the lock held. */
static struct slot *find(struct srv_watch *w, uint64_t id)
{
    uint64_t index = (id & UINT32_MAX) - 1;
    if (index >= (uint64_t)w->n_slots) return NULL;
    struct slot *s = &w->slots[index];
    return s->fd >= 0 && s->generation == id >> 32 ? s : NULL;
}

static void shut(struct slot *s)
{
    if (s->shut) return;
    s->shut = true;
    shutdown(s->fd, SHUT_RDWR);
}

/* Bytes received, or taken by the peer, since the connection began; 0 if not known. */
static uint64_t bytes_moved(const struct slot *s, bool incoming)
{
    struct tcp_info info;
    socklen_t len = sizeof(info);
    if (getsockopt(s->fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0)
        return incoming ? info.tcpi_bytes_received : info.tcpi_bytes_acked;
    int waiting = 0;
    /* On a Unix socket the waiting bytes fall when the peer reads; their negative counts up. */
    if (!incoming && ioctl(s->fd, SIOCOUTQ, &waiting) == 0) return (uint64_t)(INT32_MAX - waiting);
    return 0;
}

static bool is_unix_socket(int fd)
{
    int domain = 0;
    socklen_t len = sizeof(domain);
    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 && domain == AF_UNIX;
}

/* Bytes that the peer has not acknowledged (SIOCOUTQ), or that are not even sent (SIOCOUTQNSD). */
static int n_queued(const struct slot *s, unsigned long which)
{
    int n = 0;
    return ioctl(s->fd, which, &n) == 0 ? n : 0;
}

static void enter(struct slot *s, enum srv_phase phase)
{
    s->phase = phase;
    s->since_us = clock_now_us();
    if (phase == SRV_PHASE_IDLE || phase == SRV_PHASE_ANSWERING)
        s->progress = bytes_moved(s, phase == SRV_PHASE_IDLE);
}

static struct slot *free_slot(struct srv_watch *w)
{
    for (int i = 0; i < w->n_slots; i++)
        if (w->slots[i].fd < 0) return &w->slots[i];
    return NULL;
}

/* Closes the connection that has been idle for longest, to make room for a new one. */
static bool evict_idle(struct srv_watch *w)
{
    struct slot *oldest = NULL;
    for (int i = 0; i < w->n_slots; i++) {
        struct slot *s = &w->slots[i];
        if (s->fd < 0 || s->admin || s->shut || !s->counted || s->phase != SRV_PHASE_IDLE) continue;
        if (!oldest || s->since_us < oldest->since_us) oldest = s;
    }
    if (!oldest) return false;
    shut(oldest);
    oldest->counted = false;
    w->n_counted--;
    assert(w->n_counted >= 0);
    return true;
}

uint64_t srv_watch_add(struct srv_watch *w, int fd, bool admin, bool tls, bool *ret_refused)
{
    uint64_t id = 0;
    *ret_refused = false;
    HOLD(&w->lock);
    struct slot *s = free_slot(w);
    if (s) {
        uint32_t generation = s->generation + 1;
        bool full = !admin && w->n_counted >= w->max_connections;
        if (full) *ret_refused = !evict_idle(w);
        *s = (struct slot){.fd = fd,
                           .generation = generation,
                           .refused = *ret_refused,
                           .admin = admin,
                           .tls = tls,
                           .counted = !admin && !*ret_refused,
                           .is_unix = is_unix_socket(fd)};
        w->n_counted += s->counted;
        w->n_open++;
        assert(w->n_open <= w->n_slots && w->n_counted <= w->n_open);
        enter(s, SRV_PHASE_HEAD);
        id = id_of(w, s);
        struct epoll_event event = {.events = EPOLLRDHUP | EPOLLET, .data.u64 = id};
        epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD, fd, &event);
    }
    return id;
}

void srv_watch_remove(struct srv_watch *w, uint64_t id)
{
    HOLD(&w->lock);
    struct slot *s = find(w, id);
    if (s) {
        epoll_ctl(w->epoll_fd, EPOLL_CTL_DEL, s->fd, NULL);
        w->n_counted -= s->counted;
        w->n_open--;
        assert(w->n_counted >= 0 && w->n_open >= w->n_counted);
        s->fd = -1;
        s->req = NULL;
    }
}

bool srv_watch_enter(struct srv_watch *w, uint64_t id, enum srv_phase phase,
                     struct srv_request *req)
{
    HOLD(&w->lock);
    struct slot *s = find(w, id);
    if (s) {
        assert(!s->req || s->req == req || !req); /* one request at a time per connection */
        s->req = req;
        /* The first head's clock has run since the connection was made. */
        if (phase != SRV_PHASE_HEAD || s->phase != SRV_PHASE_HEAD) enter(s, phase);
        if (phase == SRV_PHASE_IDLE && w->drain_us && !s->admin) s->hung_up_us = s->since_us;
    }
    bool hung_up = s && s->hung_up_us;
    return !hung_up;
}

void srv_watch_cut(struct srv_watch *w, uint64_t id)
{
    HOLD(&w->lock);
    struct slot *s = find(w, id);
    if (s) shut(s);
}

int srv_watch_n_connections(struct srv_watch *w)
{
    HOLD(&w->lock);
    return w->n_open;
}

/* Sends an error object over the bare socket. With the lock held, in phases in which no part of an
 * answer has been sent. Bytes that cannot be sent at once are dropped: the client misbehaves. */
static void send_error(struct slot *s, enum srv_error kind, const char *reason, const char *message)
{
    AUTO(buf_finish) struct buf body = {.max = 2048}, head = {.max = 4096};
    if (s->tls || s->shut) return;
    srv_error_write(&body, &(struct srv_error_object){.kind = kind, .message = message});
    buf_printf(&head,
               "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n"
               "Connection: close\r\n\r\n",
               srv_errors[kind].status, reason, body.len);
    if (!body.failed) buf_add(&head, body.data, body.len);
    if (!head.failed && send(s->fd, head.data, head.len, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
        srv_log(SRV_LOG_DEBUG, "an error answer could not be sent: %s", strerror(errno));
}

void srv_watch_refuse_body(struct srv_watch *w, uint64_t id, int64_t max_bytes)
{
    char message[100];
    snprintf(message, sizeof(message), "The body has more than the %lld bytes that are read.",
             (long long)max_bytes);
    HOLD(&w->lock);
    struct slot *s = find(w, id);
    if (s) {
        send_error(s, SRV_ERR_TOO_LARGE, "Content Too Large", message);
        if (!s->tls) shutdown(s->fd, SHUT_WR);
    }
}

/* ---- leaving peers ------------------------------------------------------------------------- */

/* A reference to the slot's request, or NULL. With the lock held. */
static struct srv_request *take_request(struct slot *s)
{
    if (s->req) srv_request_ref(s->req);
    return s->req;
}

static void tell_gone(struct srv_request *req)
{
    if (!req) return;
    srv_request_gone(req);
    srv_request_unref(req);
}

static bool is_streaming(const struct slot *s)
{
    return s->phase == SRV_PHASE_ANSWERING && s->req && s->req->answer == SRV_ANSWER_STREAM;
}

/*
 * RDHUP alone is a half-close. While a request is computed or streamed it counts as a disconnect. A
 * whole answer that is being sent is finished, and so is a request whose last bytes came with the
 * close, within SRV_HALF_CLOSE_GRACE_MS.
 */
static void handle_event(struct srv_watch *w, const struct epoll_event *event)
{
    struct srv_request *req = NULL;
    pthread_mutex_lock(&w->lock);
    struct slot *s = find(w, event->data.u64);
    if (s) {
        bool closed = event->events & (EPOLLHUP | EPOLLERR);
        if (!s->hung_up_us) s->hung_up_us = clock_now_us();
        if (closed || s->phase == SRV_PHASE_WORKING || is_streaming(s)) {
            shut(s);
            if (s->phase >= SRV_PHASE_WORKING) req = take_request(s);
        }
    }
    pthread_mutex_unlock(&w->lock);
    tell_gone(req);
}

/* ---- the clocks ---------------------------------------------------------------------------- */

static bool late(uint64_t now_us, uint64_t since_us, int64_t limit_ms)
{
    return now_us > since_us && now_us - since_us >= (uint64_t)limit_ms * 1000;
}

/*
 * Returns true if the peer has taken too few bytes within the limit: none, or fewer than
 * SRV_SEND_MIN_BYTES while bytes wait to be sent. On a Unix socket only the number of waiting bytes
 * is known, so any change counts as progress.
 */
static bool is_stalled(struct slot *s, uint64_t now_us, int limit_ms)
{
    uint64_t progress = bytes_moved(s, false);
    uint64_t taken = progress - s->progress;
    bool enough = taken >= (s->is_unix ? 1 : SRV_SEND_MIN_BYTES) ||
                  (taken && !n_queued(s, SIOCOUTQNSD)) || !n_queued(s, SIOCOUTQ);
    if (enough) {
        s->progress = progress;
        s->since_us = now_us;
    }
    return late(now_us, s->since_us, limit_ms);
}

/* A request that is not complete when the server drains is ended soon. */
static bool is_late_for_drain(const struct srv_watch *w, const struct slot *s, uint64_t now_us)
{
    uint64_t since_us = s->since_us > w->drain_us ? s->since_us : w->drain_us;
    return w->drain_us && !s->admin && late(now_us, since_us, SRV_DRAIN_UNFINISHED_MS);
}

/* Ends a request that did not arrive in time. With the lock held. */
static void end_unfinished(struct srv_watch *w, struct slot *s, const char *part,
                           enum srv_count count, bool draining)
{
    char message[100];
    enum srv_error kind = draining ? SRV_ERR_SHUTTING_DOWN : SRV_ERR_TIMEOUT;
    snprintf(message, sizeof(message), "The request's %s did not arrive %s.", part,
             draining ? "before the server shut down" : "in time");
    srv_metrics_count(w->metrics, count);
    send_error(s, kind, draining ? "Service Unavailable" : "Request Timeout", message);
    shut(s);
    if (s->req) s->req->status = srv_errors[kind].status;
}

/* On a Unix socket the first bytes of the next head cannot be seen, so the head's deadline limits
 * the idle time too. */
static int idle_limit_ms(const struct srv_config *c, const struct slot *s)
{
    bool short_one = s->is_unix && c->header_timeout_ms < c->idle_timeout_ms;
    return short_one ? c->header_timeout_ms : c->idle_timeout_ms;
}

/* Of a whole body, or of a piece for a sink. */
static int body_limit_ms(const struct srv_config *c, const struct slot *s)
{
    bool in_pieces = s->req && (s->req->route->flags & SRV_ROUTE_UPLOAD);
    return in_pieces && SRV_UPLOAD_PIECE_MS < c->body_timeout_ms ? SRV_UPLOAD_PIECE_MS
                                                                 : c->body_timeout_ms;
}

/* Returns the request if its client was cut, with a reference. With the lock held. */
static struct srv_request *check(struct srv_watch *w, struct slot *s, uint64_t now_us)
{
    const struct srv_config *c = w->config;
    bool waiting =
        s->phase == SRV_PHASE_IDLE || s->phase == SRV_PHASE_HEAD || s->phase == SRV_PHASE_BODY;
    if (s->shut) return NULL;
    if (waiting && s->hung_up_us && late(now_us, s->hung_up_us, SRV_HALF_CLOSE_GRACE_MS)) {
        shut(s);
        return NULL;
    }
    bool draining = is_late_for_drain(w, s, now_us);
    switch (s->phase) {
    case SRV_PHASE_HEAD:
        if (late(now_us, s->since_us, s->refused ? SRV_REFUSED_HEADER_MS : c->header_timeout_ms) ||
            draining)
            end_unfinished(w, s, "head", SRV_COUNT_HEADER_TIMEOUTS, draining);
        break;
    case SRV_PHASE_BODY:
        if (late(now_us, s->since_us, body_limit_ms(c, s)) || draining)
            end_unfinished(w, s, "body", SRV_COUNT_BODY_TIMEOUTS, draining);
        break;
    case SRV_PHASE_IDLE:
        if (bytes_moved(s, true) != s->progress)
            enter(s, SRV_PHASE_HEAD);
        else if (late(now_us, s->since_us, idle_limit_ms(c, s)))
            shut(s);
        break;
    case SRV_PHASE_ANSWERING:
        if (!is_stalled(s, now_us, c->send_timeout_ms)) break;
        srv_metrics_count(w->metrics, SRV_COUNT_SLOW_READERS);
        shut(s);
        return take_request(s);
    case SRV_PHASE_WORKING: break;
    }
    return NULL;
}

static void sweep(struct srv_watch *w)
{
    uint64_t now_us = clock_now_us();
    uint64_t heartbeat_us = (uint64_t)w->config->heartbeat_ms * 1000;
    for (int i = 0; i < w->n_slots; i++) {
        struct slot *s = &w->slots[i];
        struct srv_request *cut = NULL, *stream = NULL;
        pthread_mutex_lock(&w->lock);
        if (s->fd >= 0) {
            cut = check(w, s, now_us);
            if (!cut && heartbeat_us && s->phase == SRV_PHASE_ANSWERING) stream = take_request(s);
        }
        pthread_mutex_unlock(&w->lock);
        tell_gone(cut);
        if (!stream) continue;
        if (now_us > heartbeat_us) srv_request_heartbeat(stream, now_us, now_us - heartbeat_us);
        srv_request_unref(stream);
    }
}

static void *watch_thread(void *arg)
{
    struct srv_watch *w = arg;
    uint64_t next_sweep_us = 0;
    while (!atomic_load(&w->stopping)) {
        struct epoll_event events[MAX_EVENTS];
        int n = epoll_wait(w->epoll_fd, events, MAX_EVENTS, w->tick_ms);
        for (int i = 0; i < n; i++)
            if (events[i].data.u64 != WAKE_ID) handle_event(w, &events[i]);
        uint64_t now_us = clock_now_us();
        if (now_us < next_sweep_us) continue;
        sweep(w);
        next_sweep_us = now_us + (uint64_t)w->tick_ms * 1000;
    }
    return NULL;
}

/* ---- all of them --------------------------------------------------------------------------- */

void srv_watch_visit(struct srv_watch *w, void (*visit)(struct srv_request *req))
{
    for (int i = 0; i < w->n_slots; i++) {
        pthread_mutex_lock(&w->lock);
        struct slot *s = &w->slots[i];
        struct srv_request *req = s->fd >= 0 ? take_request(s) : NULL;
        pthread_mutex_unlock(&w->lock);
        if (!req) continue;
        visit(req);
        srv_request_unref(req);
    }
}

void srv_watch_close_idle(struct srv_watch *w, bool from_now_on)
{
    HOLD(&w->lock);
    if (from_now_on && !w->drain_us) w->drain_us = clock_now_us();
    for (int i = 0; i < w->n_slots; i++) {
        struct slot *s = &w->slots[i];
        if (s->fd >= 0 && !s->admin && !s->req) shut(s);
    }
}

void srv_watch_close_all(struct srv_watch *w)
{
    HOLD(&w->lock);
    for (int i = 0; i < w->n_slots; i++)
        if (w->slots[i].fd >= 0) shut(&w->slots[i]);
}

/* ---- birth and death ----------------------------------------------------------------------- */

/* A quarter of the shortest timeout, within bounds. */
static int choose_tick(const struct srv_config *c)
{
    const int clocks[] = {c->header_timeout_ms, c->body_timeout_ms, c->idle_timeout_ms,
                          c->send_timeout_ms, c->heartbeat_ms ? c->heartbeat_ms : MAX_TICK_MS * 4};
    int tick = MAX_TICK_MS;
    for (size_t i = 0; i < sizeof(clocks) / sizeof(clocks[0]); i++)
        if (clocks[i] / 4 < tick) tick = clocks[i] / 4;
    return tick < MIN_TICK_MS ? MIN_TICK_MS : tick;
}

static int open_fds(struct srv_watch *w)
{
    w->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    w->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (w->epoll_fd < 0 || w->wake_fd < 0) return -1;
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = WAKE_ID};
    return epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD, w->wake_fd, &event);
}

int srv_watch_create(struct srv_watch **ret, const struct srv_config *config,
                     struct srv_metrics *metrics, int max_connections, char *err, size_t errlen)
{
    int n_slots = max_connections + SRV_CONNECTION_MARGIN + SRV_ADMIN_CONNECTIONS;
    struct srv_watch *w = calloc(1, sizeof(*w));
    if (!w) return fail_with(-1, err, errlen, "no memory for the connection watcher");
    pthread_mutex_init(&w->lock, NULL);
    w->epoll_fd = w->wake_fd = -1;
    w->config = config;
    w->metrics = metrics;
    w->max_connections = max_connections;
    w->n_slots = n_slots;
    w->tick_ms = choose_tick(config);
    w->slots = calloc((size_t)n_slots, sizeof(*w->slots));
    for (int i = 0; w->slots && i < n_slots; i++)
        w->slots[i].fd = -1;
    int failed = w->slots ? 0 : ENOMEM;
    if (!failed && open_fds(w)) failed = errno;
    if (!failed) failed = thread_start(&w->thread, "hearth-watch", 0, watch_thread, w);
    if (failed) {
        srv_watch_destroy(w);
        return fail_with(-1, err, errlen, "the connection watcher cannot start: %s%s",
                         strerror(failed), os_error_remedy(failed));
    }
    w->started = true;
    *ret = w;
    return 0;
}

void srv_watch_destroy(struct srv_watch *w)
{
    if (!w) return;
    atomic_store(&w->stopping, true);
    if (w->started) {
        uint64_t one = 1;
        if (write(w->wake_fd, &one, sizeof(one)) < 0)
            srv_log(SRV_LOG_DEBUG, "eventfd: %s", strerror(errno));
        pthread_join(w->thread, NULL);
    }
    if (w->epoll_fd >= 0) close(w->epoll_fd);
    if (w->wake_fd >= 0) close(w->wake_fd);
    pthread_mutex_destroy(&w->lock);
    free(w->slots);
    free(w);
}
