/* SPDX-License-Identifier: MIT */
/* The notification protocol and socket activation of systemd, without its library. */
#include "server/systemd.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fail.h"

enum { FIRST_FD = 3 };

void srv_notify(const char *format, ...)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    char text[512];
    if (!path || (path[0] != '/' && path[0] != '@') || strlen(path) >= sizeof(addr.sun_path))
        return;
    int len = FORMAT_REST(text, sizeof(text), format);
    if (len < 0 || (size_t)len >= sizeof(text)) return;
    memcpy(addr.sun_path, path, strlen(path));
    if (path[0] == '@') addr.sun_path[0] = '\0'; /* an abstract name */
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return;
    socklen_t addr_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
    if (sendto(fd, text, (size_t)len, MSG_NOSIGNAL, (struct sockaddr *)&addr, addr_len) < 0) {
        /* The manager acts on a missing message by itself. */
    }
    close(fd);
}

/* A variable that is meant for this process: its companion holds our pid, or is absent where that
 * is allowed. */
static uint64_t number_for_us(const char *name, const char *pid_name, int pid_required)
{
    const char *value = getenv(name), *pid = getenv(pid_name);
    if (!value || (!pid && pid_required)) return 0;
    if (pid && strtoull(pid, NULL, 10) != (unsigned long long)getpid()) return 0;
    return strtoull(value, NULL, 10);
}

uint64_t srv_notify_watchdog_us(void)
{
    return number_for_us("WATCHDOG_USEC", "WATCHDOG_PID", 0);
}

static bool is_listening(int fd)
{
    int listens = 0, type = 0;
    socklen_t len = sizeof(listens);
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &len)) return false;
    len = sizeof(type);
    return listens && !getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) && type == SOCK_STREAM;
}

int srv_notify_listen_fd(int *ret_fd, char *err, size_t errlen)
{
    uint64_t n = number_for_us("LISTEN_FDS", "LISTEN_PID", 1);
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDNAMES");
    *ret_fd = -1;
    if (n == 0) return 0;
    if (n > 1)
        return fail_with(-1, err, errlen, "LISTEN_FDS is %llu, but only one socket can be served",
                         (unsigned long long)n);
    if (!is_listening(FIRST_FD))
        return fail_with(-1, err, errlen,
                         "LISTEN_FDS: descriptor %d is not a listening stream socket", FIRST_FD);
    fcntl(FIRST_FD, F_SETFD, FD_CLOEXEC);
    fcntl(FIRST_FD, F_SETFL, fcntl(FIRST_FD, F_GETFL) | O_NONBLOCK);
    *ret_fd = FIRST_FD;
    return 0;
}
