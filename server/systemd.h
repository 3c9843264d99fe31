/* SPDX-License-Identifier: MIT */
/*
 * Messages from and to systemd: readiness and watchdog messages over NOTIFY_SOCKET, sockets handed
 * in by LISTEN_FDS. Without systemd all of it does nothing. Main thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Sends lines such as "READY=1\nSTATUS=...". Failures are ignored. */
void srv_notify(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Microseconds within which WATCHDOG=1 is expected, or 0. */
uint64_t srv_notify_watchdog_us(void);

/*
 * The listening socket handed in, or -1 in *ret_fd without one; set not to be inherited further.
 * The caller's, but the manager holds it too. Fails when it is not one listening stream socket:
 * clients would wait on whatever else was handed in.
 */
int srv_notify_listen_fd(int *ret_fd, char *err, size_t errlen);
