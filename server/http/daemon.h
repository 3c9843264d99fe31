/* SPDX-License-Identifier: MIT */
/*
 * The HTTP side: one libmicrohttpd daemon for each listening socket, each with one thread that
 * moves bytes and does nothing else. daemon.c is the only file that knows the library.
 *
 * A connection with nothing to do is suspended: without an answer yet in the access handler,
 * without bytes to send in the content reader, both in request.c under the request's lock. Whoever
 * has something for it resumes it. Every end of a request comes to the completion callback, once.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct srv_http;
struct srv_server;

struct srv_http_params {
    int listen_fd; /* owned by the daemon, also on failure */
    bool shared;   /* a service manager holds the socket too: it stays open at the end */
    bool admin;    /* health and metrics only, without a key, with connections of its own */
    const char *tls_cert, *tls_key; /* PEM text, borrowed while the daemon runs; NULL: no TLS */
};

/* Starts serving. Borrows the server. Returns owned: srv_http_stop. */
int srv_http_start(struct srv_http **ret, struct srv_server *server,
                   const struct srv_http_params *params, char *err, size_t errlen);

/* Checks that TLS can be served with these PEM texts. Returns 0, or -1 with a sentence in err. */
int srv_http_check_tls(const char *cert, const char *key, char *err, size_t errlen);

/* Accepts no more connections; open ones continue. New ones are refused, except on a shared socket,
 * where they wait for the next server. */
void srv_http_quiesce(struct srv_http *h);

/* Stops the daemon and closes its connections, none of which may be suspended. NULL is fine. */
void srv_http_stop(struct srv_http *h);
