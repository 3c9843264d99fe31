/* SPDX-License-Identifier: MIT */
/* A body in one dialect and the chat messages it means, or the error. */
#pragma once

#include <jansson.h>

#include "base/buf.h"
#include "server/api/read/json_fields.h"
#include "test.h"

struct input_meaning {
    const char *body;
    const char *chat; /* compact JSON of the messages */
};

/* The same of histories of other providers: what is left out, as x-ignored-params names it. */
struct input_history {
    const char *body, *chat;
    const char *ignored; /* NULL: nothing */
};

struct input_refusal {
    const char *body;
    enum srv_error kind;
    const char *path, *words; /* the message holds */
};

/* Returns a new reference, or NULL with err. */
typedef json_t *(*input_fn)(const struct srv_body *body, struct param_unknown *ignored);

static inline json_t *convert_text(const char *text, input_fn convert,
                                   struct param_unknown *ignored)
{
    struct srv_body body;
    int rc = srv_body_read(&body, text, strlen(text), PARAM_MAX_VALUES);
    REQUIRE_MSG(!rc, "%.200s: %s", text, param_error.message);
    json_t *list = convert(&body, ignored);
    srv_body_finish(&body);
    return list;
}

/* head, n times the item with commas between, tail. Returns owned. */
static inline char *repeated_body(const char *head, const char *item, int n, const char *tail)
{
    struct buf b;
    buf_init(&b, 64 << 20);
    buf_puts(&b, head);
    for (int i = 0; i < n; i++) {
        if (i > 0) buf_puts(&b, ",");
        buf_puts(&b, item);
    }
    buf_puts(&b, tail);
    REQUIRE(!b.failed);
    return b.data;
}

static inline void check_history(const struct input_history *c, input_fn convert)
{
    struct param_unknown ignored = {0};
    json_t *list = convert_text(c->body, convert, &ignored);
    REQUIRE_MSG(list, "%s: %s", c->body, param_error.message);
    char *chat = json_dumps(list, JSON_COMPACT | JSON_ENCODE_ANY);
    REQUIRE_EQ_STR(chat, c->chat);
    REQUIRE_EQ_STR(ignored.list, c->ignored ? c->ignored : "");
    REQUIRE_EQ_INT(ignored.n > 0, c->ignored != NULL); /* strict-params refuses it */
    free(chat);
    json_decref(list);
}

static inline void check_histories(const struct input_history *histories, size_t n,
                                   input_fn convert)
{
    for (size_t i = 0; i < n; i++)
        check_history(&histories[i], convert);
}

static inline void check_meaning(const struct input_meaning *c, input_fn convert)
{
    check_history(&(struct input_history){c->body, c->chat, NULL}, convert);
}

static inline void check_refusal(const struct input_refusal *c, input_fn convert)
{
    struct param_unknown ignored = {0};
    json_t *list = convert_text(c->body, convert, &ignored);
    REQUIRE_MSG(!list && param_error.kind == c->kind && !strcmp(param_error.path, c->path) &&
                    strstr(param_error.message, c->words),
                "%s: %d '%s' %s", c->body, param_error.kind, param_error.path, param_error.message);
}

static inline void check_inputs(const struct input_meaning *meanings, size_t n_meanings,
                                const struct input_refusal *refusals, size_t n_refusals,
                                input_fn convert)
{
    for (size_t i = 0; i < n_meanings; i++)
        check_meaning(&meanings[i], convert);
    for (size_t i = 0; i < n_refusals; i++)
        check_refusal(&refusals[i], convert);
}
