/* SPDX-License-Identifier: MIT */
/*
 * Listening sockets: TCP by name, Unix by path. Main thread, at start.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Opens and listens. "localhost" is IPv4, "::" takes IPv4 too. The descriptor is the caller's. */
int srv_listen_tcp(int *ret_fd, const char *host, int port, char *err, size_t errlen);

/* The same at a path; a socket file of a server that has ended is replaced. */
int srv_listen_unix(int *ret_fd, const char *path, char *err, size_t errlen);

/* Returns 0 if the name has an address, or -1 with a sentence in err. */
int srv_listen_check_host(const char *host, char *err, size_t errlen);

/* Returns 0 if a socket file can have this path, or -1 with a sentence in err. */
int srv_listen_check_path(const char *path, char *err, size_t errlen);

/* Returns true if only this machine can reach the address; false for unresolved names. */
bool srv_listen_is_local(const char *host);

/* The same for an open socket. */
bool srv_listen_socket_is_local(int fd);

/* Where the socket listens: "http://127.0.0.1:8080" or "unix:/run/x.sock". Writes into buf and
 * returns it. */
const char *srv_listen_url(int fd, bool tls, char *buf, size_t size);
