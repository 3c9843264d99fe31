/* SPDX-License-Identifier: MIT */
/*
 * What systemd says and hears: readiness and watchdog messages over NOTIFY_SOCKET, sockets handed
 * in by LISTEN_FDS. Without systemd all of it does nothing. Main thread.
 */
#ifndef HEARTH_SERVER_NOTIFY_H
#define HEARTH_SERVER_NOTIFY_H

#include <stdint.h>

/* Sends lines such as "READY=1\nSTATUS=...". Failures are not the server's business. */
void srv_notify(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Microseconds within which WATCHDOG=1 is expected, or 0. */
uint64_t srv_notify_watchdog_us(void);

/* The first socket handed in, set not to be inherited further, or -1. */
int srv_notify_listen_fd(void);

#endif
