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
    const char *path = url + strcspn(url, "/");
    int n = 0; /* up to the host's end; an IPv6 address has brackets */
    sscanf(url, *url == '[' ? "[%255[^]]]%n" : "%255[^:/]%n", t->host, &n);
    if (n == 0) return -1;
    sscanf(url + n, ":%7[^/]", t->port);
    if (path[0] && path[1]) snprintf(t->path, sizeof(t->path), "%s", path);
    return 0;
}

/* Returns a descriptor, or -1 with *ret_why. */
static int connect_to(const struct target *t, const char **ret_why)
{
    struct sockaddr_un path = {.sun_family = AF_UNIX};
    struct addrinfo local = {
        .ai_family = AF_UNIX, .ai_addr = (struct sockaddr *)&path, .ai_addrlen = sizeof(path)};
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    struct timeval limit = {.tv_sec = LIMIT_S};
    int fd = -1, rc = 0;
    if (!t->unix_path)
        rc = getaddrinfo(t->host, t->port, &hints, &list);
    else if (snprintf(path.sun_path, sizeof(path.sun_path), "%s", t->unix_path) >=
             (int)sizeof(path.sun_path))
        rc = EAI_OVERFLOW;
    *ret_why = rc == EAI_OVERFLOW ? "the path is too long" : rc ? gai_strerror(rc) : "no socket";
    for (const struct addrinfo *ai = list ? list : &local; !rc && ai && fd < 0; ai = ai->ai_next) {
        fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0) continue;
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
        if (connect(fd, ai->ai_addr, ai->ai_addrlen) == 0) continue;
        *ret_why = strerror(errno);
        file_close(&fd);
    }
    if (list) freeaddrinfo(list);
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
    ssize_t n;
    do
        n = recv(fd, text, 12, MSG_WAITALL);
    while (n < 0 && errno == EINTR); /* it was stopped for a moment */
    text[n > 0 ? n : 0] = '\0';
    int status;
    return sscanf(text, "HTTP/1.%*d %3d", &status) == 1 ? status : -1;
}

int srv_cmd_healthcheck(const struct srv_config *config)
{
    struct target t;
    if (parse(config, &t))
        return srv_cmd_fail(
            EXIT_FAILURE, "healthcheck: '%.100s' is not an http:// or unix: address", config->url);
    alarm(2 * LIMIT_S); /* a name server that does not answer must not delay the check */
    const char *why;
    AUTO(file_close) int fd = connect_to(&t, &why);
    if (fd < 0) return srv_cmd_fail(EXIT_FAILURE, "healthcheck: no server answers there: %s", why);
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
