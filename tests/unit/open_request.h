/* SPDX-License-Identifier: MIT */
/*
 * A request without a connection: what code of the server answers is read back here. One at a time. The test is linked with
 * --wrap=eng_info.
 */
#pragma once

#include "server/api/routes.h"
#include "server/config/config.h"
#include "server/http/request.h"
#include "server/http/server.h"
#include "server/models/app.h"
#include "test.h"

static struct srv_app test_app;
static struct srv_server test_server = {
    .app = &test_app, .state = &test_app.state, .gate = &srv_gate};
static struct srv_config test_config;
static struct srv_model test_model;
static struct eng_info test_info; /* of the model's engine, which is not there */
static bool test_cut;             /* the connection was cut */

const struct eng_info *__wrap_eng_info(const struct eng *e);

const struct eng_info *__wrap_eng_info(const struct eng *e)
{
    (void)e;
    return &test_info;
}

static void note_nothing(struct srv_request *req)
{
    (void)req;
}

static void note_cut(struct srv_request *req)
{
    (void)req;
    test_cut = true;
}

/* A request for the model, of which the caller sets what is read. */
static inline struct srv_request *open_request(void)
{
    static const struct srv_transport transport = {note_nothing, note_nothing, note_cut};
    struct srv_request *req = srv_request_create(&test_server, &transport, NULL, "/");
    REQUIRE(req);
    test_server.config = test_app.config = test_model.config = &test_config;
    test_info.memory.answer_bytes = 1 << 30;
    test_cut = false;
    struct srv_facts *facts = srv_facts(req);
    facts->model = &test_model;
    req->answers = &test_model.answer_bytes;
    req->answers_limit = &test_info.memory.answer_bytes;
    snprintf(facts->id, sizeof(facts->id), "req_1");
    snprintf(facts->unique, sizeof(facts->unique), "abc");
    return req;
}

static inline void close_request(struct srv_request *req)
{
    req->facts.model = NULL;
    req->http_held = false;
    srv_request_unref(req);
}

/* What has been written of the answer since the last call, with a NUL. Owned. */
static inline char *take_answer(struct srv_request *req)
{
    enum { PIECE = 1000 };
    struct buf all;
    char piece[PIECE];
    ssize_t n;
    buf_init(&all, 64 << 20);
    if (req->reply.len) buf_add(&all, req->reply.data, req->reply.len);
    while ((n = srv_request_read(req, piece, PIECE)) > 0)
        buf_add(&all, piece, (size_t)n);
    buf_add(&all, "", 1);
    REQUIRE(!all.failed);
    return all.data;
}
