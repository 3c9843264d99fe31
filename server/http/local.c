/* SPDX-License-Identifier: MIT */
#include "server/http/local.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "server/http/admit.h"
#include "server/http/guard.h"
#include "server/http/request.h"
#include "server/http/server.h"

/* ---- the transport ------------------------------------------------------------------------- */

static void suspend(struct srv_request *req)
{
    req->suspended = true;
}

static void resume(struct srv_request *req)
{
    const struct srv_local *l = req->connection;
    if (!req->suspended) return;
    req->suspended = false;
    l->wake(l->ctx);
}

/* A stream that nobody reads fast enough; the owner reads until it has all. */
static void cut(struct srv_request *req)
{
}

static const struct srv_transport transport = {suspend, resume, cut};

/* ---- the request --------------------------------------------------------------------------- */

static void fix_facts(const struct srv_local *l, const uint8_t *digest, int64_t created_s)
{
    struct srv_request *req = l->req;
    struct srv_facts *f = &req->facts;
    srv_request_set_ids(req, digest);
    memcpy(&f->seed, digest + 16, sizeof(f->seed));
    f->seed &= INT64_MAX;
    f->is_fixed = true;
    f->created_s = created_s;
    f->account.spare = l->spare;
    if (l->tenant) memcpy(f->tenant, l->tenant, sizeof(f->tenant));
    memcpy(&req->held.key, f->tenant, sizeof(req->held.key));
}

/* The head that a client would send. Returns false if it is refused, and has its answer. */
static bool take_head(struct srv_request *req, size_t n_body)
{
    char length[24];
    const char *const headers[][2] = {
        {"Host", "localhost"}, {"Content-Type", "application/json"}, {"Content-Length", length}};
    struct srv_guard_head head = {.method = "POST", .version = "HTTP/1.1", .target = req->target};
    struct srv_guard_verdict verdict = {0};
    bool too_many = false;
    snprintf(length, sizeof(length), "%zu", n_body);
    for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]); i++)
        too_many |= !srv_request_add_header(req, headers[i][0], strlen(headers[i][0]),
                                            headers[i][1], strlen(headers[i][1]));
    snprintf(req->method, sizeof(req->method), "POST");
    srv_admit_request(req, &head, false, too_many, &verdict);
    if (verdict.refused) srv_reply_error(req, verdict.kind, NULL, "%s", verdict.message);
    return !verdict.refused;
}

int srv_local_begin(struct srv_local *l, struct srv_server *server, const char *target,
                    const char *body, size_t len, const uint8_t *digest, int64_t created_s)
{
    struct srv_request *req = srv_request_create(server, &transport, l, target);
    if (!req) return -1;
    l->req = req;
    fix_facts(l, digest, created_s);
    buf_init(&req->body, len + 1);
    buf_add(&req->body, body, len);
    if (req->body.failed) {
        srv_local_end(l, false);
        return -1;
    }
    if (take_head(req, len)) srv_request_dispatch(req);
    return 0;
}

bool srv_local_take(struct srv_local *l, struct buf *to)
{
    struct srv_request *req = l->req;
    char piece[16 << 10];
    ssize_t n;
    if (srv_request_poll(req) == SRV_POLL_WAIT) return false;
    if (req->answer == SRV_ANSWER_WHOLE) {
        buf_add(to, req->reply.len ? req->reply.data : "", req->reply.len);
        return true;
    }
    while ((n = srv_request_read(req, piece, sizeof(piece))) > 0)
        buf_add(to, piece, (size_t)n);
    return n < 0;
}

int srv_local_status(const struct srv_local *l)
{
    return l->req->status;
}

const char *srv_local_id(const struct srv_local *l)
{
    return l->req->facts.id;
}

const char *srv_local_header(const struct srv_local *l, const char *name)
{
    const struct srv_request *req = l->req;
    for (int i = 0; i < req->n_reply_headers; i++)
        if (!strcasecmp(req->reply_headers[i].name, name)) return req->reply_headers[i].value;
    return NULL;
}

void srv_local_end(struct srv_local *l, bool whole)
{
    if (l->req) srv_request_completed(l->req, whole);
    l->req = NULL;
}
