/* SPDX-License-Identifier: MIT */
/*
 * hearth healthcheck [URL]: exit 0 when a server answers 200, for container health checks without
 * another program in the image. URL: http://HOST[:PORT][/PATH] (default path /readyz) or unix:PATH;
 * without one, or with a path alone, the place that the configuration says a server listens at, its
 * metrics listener first. Main thread.
 */
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/file.h"
#include "base/shown.h"
#include "server/cli/cli.h"
#include "server/config/config.h"

enum { LIMIT_S = 5 };

struct target {
    char host[256], port[8], path[256];
    const char *unix_path;
};

/* Where the configured server listens. */
static void choose_default(const struct srv_config *c, struct target *t)
{
    bool admin = c->metrics_port > 0;
    const char *host = admin ? c->metrics_host : c->host;
    int port = admin ? c->metrics_port : c->port;
    bool any = strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0;
    *t = (struct target){.path = "/readyz", .unix_path = admin ? NULL : c->unix_socket};
    snprintf(t->host, sizeof(t->host), "%s", any ? "127.0.0.1" : host);
    snprintf(t->port, sizeof(t->port), "%d", port);
}

static int parse(const struct srv_config *c, struct target *t)
{
    const char *url = c->url;
    choose_default(c, t);
    if (url && *url == '/') snprintf(t->path, sizeof(t->path), "%s", url);
    if (!url || *url == '/') return 0;
    *t = (struct target){.host = "127.0.0.1", .port = "80", .path = "/readyz"};
    if (strncmp(url, "unix:", 5) == 0) {
        t->unix_path = url + 5;
        return 0;
    }
    if (strncasecmp(url, "http://", 7) == 0)
        url += 7;
    else if (strstr(url, "://"))
        return -1;
    size_t host_len = strcspn(url, "/");
    const char *path = url + host_len;
    if (*url == '[') { /* an IPv6 address */
        const char *end = strchr(url, ']');
        if (!end) return -1;
        snprintf(t->host, sizeof(t->host), "%.*s", (int)(end - url - 1), url + 1);
        if (end[1] == ':')
            snprintf(t->port, sizeof(t->port), "%.*s", (int)(path - end - 2), end + 2);
    } else {
        size_t name_len = strcspn(url, ":/");
        if (name_len >= sizeof(t->host) || name_len == 0) return -1;
        snprintf(t->host, sizeof(t->host), "%.*s", (int)name_len, url);
        const char *port = url + name_len + 1;
        if (url[name_len] == ':')
            snprintf(t->port, sizeof(t->port), "%.*s", (int)(path - port), port);
    }
    if (path[0] && path[1]) snprintf(t->path, sizeof(t->path), "%s", path);
    return 0;
}

/* Both return a descriptor, or -1 with *ret_why. */
static int connect_unix(const char *path, const char **ret_why)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    *ret_why = "the path is too long";
    if (strlen(path) >= sizeof(addr.sun_path)) return -1;
    memcpy(addr.sun_path, path, strlen(path));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0) return fd;
    *ret_why = strerror(errno);
    file_close(&fd);
    return -1;
}

static int connect_tcp(const struct target *t, const char **ret_why)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    struct timeval limit = {.tv_sec = LIMIT_S};
    int fd = -1, rc = getaddrinfo(t->host, t->port, &hints, &list);
    if (rc) {
        *ret_why = gai_strerror(rc);
        return -1;
    }
    for (const struct addrinfo *ai = list; ai && fd < 0; ai = ai->ai_next) {
        fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0) continue;
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
        if (connect(fd, ai->ai_addr, ai->ai_addrlen) == 0) continue;
        *ret_why = strerror(errno);
        file_close(&fd);
    }
    freeaddrinfo(list);
    return fd;
}

/* The answer's status, or -1. */
static int ask(int fd, const struct target *t)
{
    char text[1024];
    struct timeval limit = {.tv_sec = LIMIT_S};
    int len =
        snprintf(text, sizeof(text), "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n",
                 t->path, t->unix_path ? "localhost" : t->host);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    if (len < 0 || (size_t)len >= sizeof(text) || send(fd, text, (size_t)len, MSG_NOSIGNAL) != len)
        return -1;
    size_t n = 0;
    while (n < 12) {
        ssize_t got = recv(fd, text + n, sizeof(text) - 1 - n, 0);
        if (got > 0)
            n += (size_t)got;
        else if (got == 0 || errno != EINTR) /* it was stopped for a moment */
            break;
    }
    text[n] = '\0';
    int status;
    return sscanf(text, "HTTP/1.%*d %3d", &status) == 1 ? status : -1;
}

int srv_cmd_healthcheck(const struct srv_config *config)
{
    struct target t;
    if (parse(config, &t)) {
        shown_line(stderr, "hearth: healthcheck: '%.100s' is not an http:// or unix: address",
                   config->url);
        return EXIT_FAILURE;
    }
    alarm(2 * LIMIT_S); /* a name server that does not answer must not delay the check */
    const char *why = "no socket";
    AUTO(file_close) int fd = t.unix_path ? connect_unix(t.unix_path, &why) : connect_tcp(&t, &why);
    if (fd < 0) {
        shown_line(stderr, "hearth: healthcheck: no server answers there: %s", why);
        return EXIT_FAILURE;
    }
    int status = ask(fd, &t);
    bool here = !config->url || *config->url == '/';
    bool tls = status != 200 && here && config->metrics_port <= 0 && config->tls_cert_file;
    if (tls)
        shown_line(stderr, "hearth: healthcheck: the server speaks TLS, which this check does not; "
                           "--metrics-port opens a listener without it");
    else if (status < 0)
        shown_line(stderr, "hearth: healthcheck: no answer in HTTP within %d s", (int)LIMIT_S);
    else if (status != 200)
        shown_line(stderr, "hearth: healthcheck: status %d", status);
    return status == 200 ? EXIT_SUCCESS : EXIT_FAILURE;
}
