/* SPDX-License-Identifier: MIT */
/*
 * A server of this process without sockets: requests of any method and head go through the same
 * checks, routes, workers and models as over HTTP. One request at a time; its answer stays until
 * the next one.
 */
#pragma once

#include <jansson.h>

#include "server/cli/offline.h"
#include "server/models/budget.h"
#include "server/http/admit.h"
#include "server/http/guard.h"
#include "server/http/request.h"
#include "server_config/command_line.h"

static struct offline local;
static struct srv_config local_config;
static struct {
    struct srv_request *req;
    struct buf text;
    json_t *json;
    int status;
} answered;

static void local_suspend(struct srv_request *req)
{
    req->suspended = true;
}

static void local_resume(struct srv_request *req)
{
    req->suspended = false;
    offline_wake(&local);
}

static void local_cut(struct srv_request *req)
{
    (void)req;
}

/* The directory of a model that comes with the program, such as "demo". */
static inline const char *carried(const char *name)
{
    static char dir[1024];
    const char *root = getenv("HEARTH_SOURCE_ROOT");
    snprintf(dir, sizeof(dir), "%s/deploy/%s", root ? root : ".", name);
    return dir;
}

/* Group setup: loads the models of a command line such as "serve --threads 1 --model DIR". */
static inline int open_server(const char *line)
{
    char err[1024] = "";
    REQUIRE_MSG(!load(&local_config, line, err, sizeof(err)), "%s", err);
    REQUIRE_EQ_INT(srv_budget_settle(&local_config), 0);
    REQUIRE_MSG(!offline_open(&local, &local_config, err, sizeof(err)), "%s", err);
    return 0;
}

static inline int open_demo(void **state)
{
    char line[1200];
    (void)state;
    snprintf(line, sizeof(line), "serve --threads 1 --model %s", carried("demo"));
    return open_server(line);
}

static inline void forget_answer(void)
{
    if (answered.req) srv_request_completed(answered.req, true);
    answered.req = NULL;
    json_decref(answered.json);
    answered.json = NULL;
    buf_finish(&answered.text);
}

static inline int close_server(void **state)
{
    (void)state;
    forget_answer();
    offline_close(&local);
    srv_config_finish(&local_config);
    return 0;
}

static inline void add_header(const char *name, const char *value)
{
    REQUIRE(srv_request_add_header(answered.req, name, strlen(name), value, strlen(value)));
}

/* Sends a request and waits for its answer. body NULL: without one. headers: names and values in
 * turn, ended by NULL; NULL: no more than a client always sends. */
static inline void send_request(const char *method, const char *target, const char *body,
                                const char *const *headers)
{
    static const struct srv_transport transport = {local_suspend, local_resume, local_cut};
    struct srv_guard_head head = {.method = method, .version = "HTTP/1.1", .target = target};
    struct srv_guard_verdict verdict = {0};
    char length[24], piece[4096];
    ssize_t n;
    forget_answer();
    struct srv_request *req = srv_request_create(&local.core.server, &transport, &local, target);
    REQUIRE(req);
    answered.req = req;
    snprintf(req->method, sizeof(req->method), "%s", method);
    snprintf(req->peer, sizeof(req->peer), "unix");
    snprintf(length, sizeof(length), "%zu", body ? strlen(body) : 0);
    add_header("Host", "localhost");
    if (body) add_header("Content-Type", "application/json");
    if (body) add_header("Content-Length", length);
    for (; headers && *headers; headers += 2)
        add_header(headers[0], headers[1]);
    buf_init(&req->body, 1 << 20);
    buf_puts(&req->body, body ? body : "");
    srv_admit_request(req, &head, false, false, &verdict);
    if (verdict.refused)
        srv_reply_error(req, verdict.kind, NULL, "%s", verdict.message);
    else
        srv_request_dispatch(req);
    while (srv_request_poll(req) == SRV_POLL_WAIT)
        offline_wait(&local, 1000);
    buf_init(&answered.text, 64 << 20);
    if (req->reply.len) buf_add(&answered.text, req->reply.data, req->reply.len);
    while (req->answer != SRV_ANSWER_WHOLE &&
           (n = srv_request_read(req, piece, sizeof(piece))) >= 0) {
        buf_add(&answered.text, piece, (size_t)n);
        if (n == 0) offline_wait(&local, 1000);
    }
    buf_add(&answered.text, "", 0);
    answered.status = req->status;
    if (answered.text.len)
        answered.json = json_loadb(answered.text.data, answered.text.len, JSON_DECODE_ANY, NULL);
}

/* A header of the answer, or NULL. */
static inline const char *header_of(const char *name)
{
    for (int i = 0; i < answered.req->n_reply_headers; i++)
        if (!strcasecmp(answered.req->reply_headers[i].name, name))
            return answered.req->reply_headers[i].value;
    return NULL;
}

/* The value at a path of the answer, such as "choices.0.text": a string as it is, anything else as
 * JSON; "-": it is not there. */
static inline const char *at(const char *path)
{
    static char shown[1 << 16];
    const json_t *value = answered.json;
    for (const char *p = path; value && *p;) {
        size_t len = strcspn(p, ".");
        char key[80];
        snprintf(key, sizeof(key), "%.*s", (int)len, p);
        value = json_is_array(value) ? json_array_get(value, strtoul(key, NULL, 10))
                                     : json_object_get(value, key);
        p += len + (p[len] == '.');
    }
    char *text =
        value && !json_is_string(value) ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    snprintf(shown, sizeof(shown), "%s", !value ? "-" : text ? text : json_string_value(value));
    free(text);
    return shown;
}

/* A request, and what its answer holds: paths with the values there; "*" is any. */
struct exchange {
    const char *body; /* NULL: a GET */
    int status;
    const char *holds[6][2];
};

static inline void require_at(const struct exchange *e, const char *path, const char *wanted)
{
    const char *found = at(path);
    bool good = strcmp(wanted, "*") == 0 ? strcmp(found, "-") != 0 : strcmp(found, wanted) == 0;
    REQUIRE_MSG(good, "%s: %s: %s", e->body ? e->body : "GET", path, found);
}

static inline void require_exchanges(const char *target, const struct exchange *e, size_t n)
{
    for (; n > 0; n--, e++) {
        send_request(e->body ? "POST" : "GET", target, e->body, NULL);
        REQUIRE_MSG(answered.status == e->status, "%s %s: %d: %s", target, e->body ? e->body : "",
                    answered.status, answered.text.data);
        for (int i = 0; i < 6 && e->holds[i][0]; i++)
            require_at(e, e->holds[i][0], e->holds[i][1]);
    }
}

#define REQUIRE_EXCHANGES(target, rows)                                                            \
    require_exchanges(target, rows, sizeof(rows) / sizeof((rows)[0]))
