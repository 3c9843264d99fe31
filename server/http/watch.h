/* SPDX-License-Identifier: MIT */
/*
 * The registry of connections and the thread that watches them. The HTTP library does not look at a
 * suspended connection, misses some closes, and has only an idle timeout; this thread therefore
 * keeps every socket in an epoll set of its own and a clock on each:
 *
 *   phase       bound by                          what happens when it is late or the peer leaves
 *   HEAD        header-timeout-ms, total          408 and shutdown
 *   BODY        body-timeout-ms, total; or        408 and shutdown
 *               SRV_UPLOAD_PIECE_MS for a piece
 *   WORKING     nothing (the engine's deadlines)  the request hears that the client left
 *   ANSWERING   send-timeout-ms for each          shutdown; a streaming request is notified
 *               SRV_SEND_MIN_BYTES
 *   IDLE        idle-timeout-ms                   shutdown
 *
 * While the server drains, a head or body that is not complete within SRV_DRAIN_UNFINISHED_MS ends
 * with 503.
 *
 * A half-close counts as leaving while a request works or streams. Connections are named by ids
 * (slot and generation), never by pointers: an event may be read after its connection has ended. A
 * socket is shut down, never closed here; the library sees that and closes it.
 *
 * Threads: safe. The registry lock is taken before a request's, never the other way round.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct srv_config;
struct srv_metrics;
struct srv_request;
struct srv_watch;

enum srv_phase {
    SRV_PHASE_HEAD,
    SRV_PHASE_BODY,
    SRV_PHASE_WORKING,
    SRV_PHASE_ANSWERING,
    SRV_PHASE_IDLE
};

/* Starts the thread. Of more than max_connections each is refused, unless an idle one gives way.
 * Borrows config and metrics. Returns owned: srv_watch_destroy. */
int srv_watch_create(struct srv_watch **ret, const struct srv_config *config,
                     struct srv_metrics *metrics, int max_connections, char *err, size_t errlen);
void srv_watch_destroy(struct srv_watch *w);

/*
 * Adds an accepted connection. Beyond max-connections the one that has been idle for longest is
 * shut down; if none is idle *ret_refused is set, and the caller answers 503. admin connections are
 * not counted. Returns the id, or 0 if there is no slot.
 */
uint64_t srv_watch_add(struct srv_watch *w, int fd, bool admin, bool tls, bool *ret_refused);
/* Removes a connection, before the library closes the socket. */
void srv_watch_remove(struct srv_watch *w, uint64_t id);

/*
 * The connection enters a phase, with its request, which the watcher borrows until SRV_PHASE_IDLE
 * with NULL. From the thread that holds the request's HTTP reference. Returns false if the peer has
 * closed its sending side.
 */
bool srv_watch_enter(struct srv_watch *w, uint64_t id, enum srv_phase phase,
                     struct srv_request *req);

/* Shuts the socket down. */
void srv_watch_cut(struct srv_watch *w, uint64_t id);

/*
 * Sends a whole 413 over the bare socket, for a body that turned out too large while it came: the
 * library takes no answer at that moment. Closes the sending side; the caller discards what still
 * comes for a while, so that the client has the time to read the answer, and then ends the
 * connection.
 */
void srv_watch_refuse_body(struct srv_watch *w, uint64_t id, int64_t max_bytes);

/* Calls visit for every bound request, with a reference held, no lock held. */
void srv_watch_visit(struct srv_watch *w, void (*visit)(struct srv_request *req));

/* Shuts down the connections without a request. from_now_on (the server drains): also those that
 * become idle later, and soon those whose request is incomplete. */
void srv_watch_close_idle(struct srv_watch *w, bool from_now_on);

/* Shuts down every connection. */
void srv_watch_close_all(struct srv_watch *w);

int srv_watch_n_connections(struct srv_watch *w);
