/* SPDX-License-Identifier: MIT */
/*
 * Replaces transfer.c in a build without libcurl: http and Unix sockets for `hearth chat --url`, no
 * https, no proxies. Requests are HTTP/1.0, so an answer ends with its length or its connection.
 */
#include "server/transfer.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"

enum { LOOK_MS = 50 }; /* how often the clock and the stop flag are looked at */

struct transfer {
    struct transfer_settings settings;
    const struct transfer_exchange *x; /* the one that runs */
    int fd;
    uint64_t begin_us;
    struct buf head; /* of the answer; what came of the body with it is handed over at once */
    bool head_done;
    int status;
    size_t n_body;
    char value[256]; /* of the header asked for last */
    char reason[256];
};

int transfer_load(char *err, size_t errlen)
{
    snprintf(err, errlen,
             "this build fetches no models (Meson option hub); `hf download` of huggingface_hub "
             "does");
    return -1;
}

int transfer_load_plain(char *err, size_t errlen)
{
    (void)err, (void)errlen;
    return 0;
}

struct transfer *transfer_create(const struct transfer_settings *settings)
{
    struct transfer *t = calloc(1, sizeof(*t));
    if (!t) return NULL;
    t->settings = *settings;
    buf_init(&t->head, TRANSFER_HEAD_MAX_BYTES);
    return t;
}

void transfer_destroy(struct transfer *t)
{
    if (t) buf_finish(&t->head);
    free(t);
}

int transfer_status(const struct transfer *t)
{
    return t->status;
}

const char *transfer_reason(const struct transfer *t)
{
    return t->reason;
}

const char *transfer_header(struct transfer *t, const char *name)
{
    size_t len = strlen(name);
    for (const char *p = t->head.data; p && (p = strchr(p, '\n'));) {
        if (strncasecmp(++p, name, len) != 0 || p[len] != ':') continue;
        p += len + 1;
        p += strspn(p, " \t");
        snprintf(t->value, sizeof(t->value), "%.*s", (int)strcspn(p, "\r\n"), p);
        return t->value;
    }
    return NULL;
}

/* ---- URLs ----------------------------------------------------------------------------------- */

struct place {
    char scheme[16], host[256], port[8];
    const char *path; /* in the URL */
};

/* http://host[:port][/path]; an IPv6 address is in brackets. */
static int split(const char *url, struct place *ret)
{
    const char *host = strstr(url, "://");
    if (!host || host - url >= (int)sizeof(ret->scheme)) return -1;
    *ret = (struct place){.port = "80"};
    for (int i = 0; url + i < host; i++)
        ret->scheme[i] = (char)(url[i] | 0x20);
    host += 3;
    bool is_v6 = *host == '[';
    size_t len = strcspn(host += is_v6, is_v6 ? "]" : ":/");
    const char *end = host + len + (is_v6 && host[len] == ']');
    ret->path = end + strcspn(end, "/");
    if (len == 0 || len >= sizeof(ret->host) || memchr(host, '@', (size_t)(ret->path - host)))
        return -1;
    memcpy(ret->host, host, len);
    if (*end == ':')
        snprintf(ret->port, sizeof(ret->port), "%.*s", (int)(ret->path - end - 1), end + 1);
    return *end && *end != ':' && *end != '/' ? -1 : 0;
}

int transfer_url_origin(const char *url, struct transfer_origin *ret)
{
    struct place place;
    if (split(url, &place)) return -1;
    snprintf(ret->scheme, sizeof(ret->scheme), "%s", place.scheme);
    snprintf(ret->text, sizeof(ret->text), "%s://%s:%s", place.scheme, place.host, place.port);
    ret->loopback = strcmp(place.host, "localhost") == 0 || strncmp(place.host, "127.", 4) == 0;
    return 0;
}

int transfer_url_join(const char *base, const char *relative, char *buf, size_t size)
{
    (void)base, (void)relative, (void)buf, (void)size;
    return -1; /* nothing is redirected here */
}

/* ---- one exchange --------------------------------------------------------------------------- */

__attribute__((format(printf, 3, 4))) static enum transfer_end
explain(struct transfer *t, enum transfer_end end, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(t->reason, sizeof(t->reason), format, args);
    va_end(args);
    return end;
}

/* Until the socket is ready, or the exchange must end. */
static enum transfer_end wait_for(struct transfer *t, short events)
{
    const struct transfer_exchange *x = t->x;
    struct pollfd p = {.fd = t->fd, .events = events};
    do {
        if (x->stop && atomic_load(x->stop)) return explain(t, TRANSFER_STOPPED, "stopped");
        if (!t->head_done && x->head_timeout_ms &&
            clock_now_us() - t->begin_us > (uint64_t)x->head_timeout_ms * 1000)
            return explain(t, TRANSFER_NO_HEAD, "no answer for %d s", x->head_timeout_ms / 1000);
    } while (poll(&p, 1, LOOK_MS) <= 0);
    return TRANSFER_OK;
}

static enum transfer_end connect_to(struct transfer *t, const struct sockaddr *addr, socklen_t len)
{
    int error = 0;
    socklen_t size = sizeof(error);
    t->fd = socket(addr->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (t->fd < 0) return explain(t, TRANSFER_UNREACHED, "%s", strerror(errno));
    if (connect(t->fd, addr, len) == 0) return TRANSFER_OK;
    if (errno != EINPROGRESS) return explain(t, TRANSFER_UNREACHED, "%s", strerror(errno));
    enum transfer_end end = wait_for(t, POLLOUT);
    if (end) return end;
    getsockopt(t->fd, SOL_SOCKET, SO_ERROR, &error, &size);
    return error ? explain(t, TRANSFER_UNREACHED, "%s", strerror(error)) : TRANSFER_OK;
}

static enum transfer_end connect_tcp(struct transfer *t, const struct place *place)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *list;
    enum transfer_end end = TRANSFER_UNREACHED;
    int rc = getaddrinfo(place->host, place->port, &hints, &list);
    if (rc) return explain(t, end, "%s: %s", place->host, gai_strerror(rc));
    for (const struct addrinfo *ai = list; ai && end == TRANSFER_UNREACHED; ai = ai->ai_next) {
        if (t->fd >= 0) close(t->fd);
        end = connect_to(t, ai->ai_addr, ai->ai_addrlen);
    }
    freeaddrinfo(list);
    return end;
}

static enum transfer_end connect_any(struct transfer *t, const struct place *place)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    const char *path = t->settings.unix_socket;
    if (strcmp(place->scheme, "http") != 0)
        return explain(t, TRANSFER_UNREACHED, "%s needs a build with libcurl", place->scheme);
    if (!path) return connect_tcp(t, place);
    if (strlen(path) >= sizeof(addr.sun_path))
        return explain(t, TRANSFER_UNREACHED, "the path of the socket is too long");
    memcpy(addr.sun_path, path, strlen(path));
    return connect_to(t, (struct sockaddr *)&addr, sizeof(addr));
}

static enum transfer_end send_all(struct transfer *t, const char *data, size_t len)
{
    while (len) {
        enum transfer_end end = wait_for(t, POLLOUT);
        if (end) return end;
        ssize_t n = send(t->fd, data, len, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN) return explain(t, TRANSFER_BROKEN, "%s", strerror(errno));
        data += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
    }
    return TRANSFER_OK;
}

static enum transfer_end send_request(struct transfer *t, const struct place *place)
{
    const struct transfer_exchange *x = t->x;
    struct buf b;
    buf_init(&b, TRANSFER_HEAD_MAX_BYTES);
    buf_printf(&b, "%s %s HTTP/1.0\r\nHost: %s\r\nUser-Agent: hearth/" HEARTH_VERSION "\r\n",
               x->body ? "POST" : "GET", *place->path ? place->path : "/", place->host);
    for (const char *const *line = x->headers; line && *line; line++)
        buf_printf(&b, "%s\r\n", *line);
    if (x->body) buf_printf(&b, "Content-Length: %zu\r\n", x->body_len);
    buf_puts(&b, "\r\n");
    enum transfer_end end =
        b.failed ? explain(t, TRANSFER_NOMEM, "out of memory") : send_all(t, b.data, b.len);
    if (b.data) explicit_bzero(b.data, b.len); /* the key */
    buf_finish(&b);
    return end || !x->body ? end : send_all(t, x->body, x->body_len);
}

static enum transfer_end give_body(struct transfer *t, const char *data, size_t len)
{
    t->n_body += len;
    return !len || t->x->on_body(t->x->ctx, data, len) ? TRANSFER_OK
                                                       : explain(t, TRANSFER_REFUSED, "not wanted");
}

static enum transfer_end take(struct transfer *t, const char *data, size_t len)
{
    if (t->head_done) return give_body(t, data, len);
    buf_add(&t->head, data, len);
    if (t->head.failed) return explain(t, TRANSFER_BROKEN, "the head of the answer is too large");
    char *end = memmem(t->head.data, t->head.len, "\r\n\r\n", 4);
    if (!end) return TRANSFER_OK;
    size_t n_rest = t->head.len - (size_t)(end + 4 - t->head.data);
    end[2] = '\0'; /* the rest stays behind it */
    t->head_done = true;
    if (sscanf(t->head.data, "HTTP/1.%*d %3d", &t->status) != 1 ||
        transfer_header(t, "transfer-encoding"))
        return explain(t, TRANSFER_BROKEN, "the answer is not HTTP/1.0");
    if (!t->x->on_head(t->x->ctx, t)) return explain(t, TRANSFER_REFUSED, "not wanted");
    return give_body(t, end + 4, n_rest);
}

static enum transfer_end receive(struct transfer *t)
{
    char block[16384];
    for (;;) {
        const char *length = t->head_done ? transfer_header(t, "content-length") : NULL;
        bool is_whole = length && t->n_body >= strtoull(length, NULL, 10);
        enum transfer_end end = is_whole ? TRANSFER_OK : wait_for(t, POLLIN);
        if (is_whole || end) return end;
        ssize_t n = recv(t->fd, block, sizeof(block), 0);
        if (n < 0 && errno == EAGAIN) continue;
        if (n <= 0 && t->head_done && !length) return TRANSFER_OK;
        if (n <= 0) return explain(t, TRANSFER_BROKEN, "the connection ended early");
        if ((end = take(t, block, (size_t)n))) return end;
    }
}

enum transfer_end transfer_run(struct transfer *t, const struct transfer_exchange *x)
{
    struct place place;
    t->x = x;
    t->fd = -1;
    t->begin_us = clock_now_us();
    t->head_done = false;
    t->status = 0;
    t->n_body = 0;
    t->reason[0] = '\0';
    buf_clear(&t->head);
    if (split(x->url, &place)) return explain(t, TRANSFER_UNREACHED, "not an address");
    enum transfer_end end = connect_any(t, &place);
    if (!end) end = send_request(t, &place);
    if (!end) end = receive(t);
    if (t->fd >= 0) close(t->fd);
    return end;
}
