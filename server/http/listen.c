/* SPDX-License-Identifier: MIT */
/* Opening listening sockets. No state. */
#include "server/http/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/os_error.h"

enum { BACKLOG = 1024 };

static int resolve(const char *host, int port, struct addrinfo **ret, char *err, size_t errlen)
{
    char service[16];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    snprintf(service, sizeof(service), "%d", port);
    if (strcmp(host, "localhost") == 0) hints.ai_family = AF_INET;
    int rc = getaddrinfo(host, service, &hints, ret);
    if (!rc) return 0;
    return fail_with(-1, err, errlen, "host '%.100s': %s", host, gai_strerror(rc));
}

int srv_listen_check_host(const char *host, char *err, size_t errlen)
{
    struct addrinfo *list = NULL;
    if (resolve(host, 0, &list, err, errlen)) return -1;
    freeaddrinfo(list);
    return 0;
}

/* Returns the descriptor, or -1 with errno. */
static int open_at(const struct addrinfo *ai)
{
    int on = 1, off = 0;
    int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (ai->ai_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    if (bind(fd, ai->ai_addr, ai->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0) return fd;
    file_close(&fd);
    return -1;
}

int srv_listen_tcp(int *ret_fd, const char *host, int port, char *err, size_t errlen)
{
    struct addrinfo *list = NULL;
    int fd = -1;
    if (resolve(host, port, &list, err, errlen)) return -1;
    for (const struct addrinfo *ai = list; ai && fd < 0; ai = ai->ai_next)
        fd = open_at(ai);
    if (fd < 0)
        snprintf(err, errlen, "cannot listen on %.100s port %d: %s%s", host, port, strerror(errno),
                 os_error_remedy(errno));
    freeaddrinfo(list);
    if (fd < 0) return -1;
    *ret_fd = fd;
    return 0;
}

/* The socket file of a server that has ended refuses connections and may be removed. connect does
 * not block, so that a full backlog does not make it wait: EAGAIN means that the server is
 * running. */
static void remove_stale(const struct sockaddr_un *addr)
{
    struct stat st;
    if (lstat(addr->sun_path, &st) || !S_ISSOCK(st.st_mode)) return;
    AUTO(file_close) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return;
    if (connect(fd, (const struct sockaddr *)addr, sizeof(*addr)) && errno == ECONNREFUSED)
        unlink(addr->sun_path);
}

int srv_listen_check_path(const char *path, char *err, size_t errlen)
{
    const size_t max = sizeof(((struct sockaddr_un *)NULL)->sun_path) - 1;
    if (strlen(path) <= max) return 0;
    return fail_with(-1, err, errlen, "unix-socket: the path is longer than %zu bytes", max);
}

int srv_listen_unix(int *ret_fd, const char *path, char *err, size_t errlen)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    if (srv_listen_check_path(path, err, errlen)) return -1;
    memcpy(addr.sun_path, path, strlen(path) + 1);
    remove_stale(&addr);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&addr, sizeof(addr)) || listen(fd, BACKLOG)) {
        snprintf(err, errlen, "cannot listen on %.200s: %s%s", path, strerror(errno),
                 os_error_remedy(errno));
        file_close(&fd);
        return -1;
    }
    *ret_fd = fd;
    return 0;
}

static bool is_local_address(const struct sockaddr *addr)
{
    if (addr->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)addr)->sin_addr.s_addr) >> 24 == 127;
    return addr->sa_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)addr)->sin6_addr);
}

bool srv_listen_is_local(const char *host)
{
    struct addrinfo *list = NULL;
    if (resolve(host, 0, &list, NULL, 0)) return false;
    bool local = list != NULL;
    for (const struct addrinfo *ai = list; ai; ai = ai->ai_next)
        local &= is_local_address(ai->ai_addr);
    freeaddrinfo(list);
    return local;
}

bool srv_listen_socket_is_local(int fd)
{
    struct sockaddr_storage addr = {0};
    socklen_t len = sizeof(addr);
    if (getsockname(fd, (struct sockaddr *)&addr, &len)) return false;
    return addr.ss_family == AF_UNIX || is_local_address((const struct sockaddr *)&addr);
}

const char *srv_listen_url(int fd, bool tls, char *buf, size_t size)
{
    struct sockaddr_storage addr = {0};
    socklen_t len = sizeof(addr);
    char host[INET6_ADDRSTRLEN] = "?";
    const char *scheme = tls ? "https" : "http";
    getsockname(fd, (struct sockaddr *)&addr, &len);
    if (addr.ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)&addr;
        inet_ntop(AF_INET, &in->sin_addr, host, sizeof(host));
        snprintf(buf, size, "%s://%s:%d", scheme, host, ntohs(in->sin_port));
    } else if (addr.ss_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&addr;
        inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof(host));
        snprintf(buf, size, "%s://[%s]:%d", scheme, host, ntohs(in6->sin6_port));
    } else {
        snprintf(buf, size, "unix:%s", ((const struct sockaddr_un *)&addr)->sun_path);
    }
    return buf;
}
