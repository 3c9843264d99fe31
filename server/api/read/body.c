/* SPDX-License-Identifier: MIT */
#include "server/api/read/body.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/json_reader.h"
#include "base/json_tree.h"

/* Where an object or array stands. */
struct body_place {
    const json_t *value;
    size_t begin, len;
};

/* ---- memory -------------------------------------------------------------------------------- */

static _Thread_local bool out_of_memory;

static void *json_alloc(size_t size)
{
    void *p = malloc(size);
    if (!p) out_of_memory = true;
    return p;
}

void srv_json_watch_memory(void)
{
    json_set_alloc_funcs(json_alloc, free);
}

bool srv_json_ran_out(void)
{
    bool was = out_of_memory;
    out_of_memory = false;
    return was;
}

/* ---- the body ------------------------------------------------------------------------------ */

static int add_place(void *ctx, const json_t *value, size_t begin, size_t len)
{
    struct srv_body *b = ctx;
    if (ARRAY_ROOM(b->places, b->cap, b->n_places + 1, 64)) return -1;
    b->places[b->n_places++] = (struct body_place){value, begin, len};
    return 0;
}

static int by_value(const void *x, const void *y)
{
    const struct body_place *a = x, *b = y;
    return (a->value > b->value) - (a->value < b->value);
}

static int refuse(const struct jt_fault *f)
{
    char shown[PARAM_WORD_MAX];
    const char *quote = *f->key ? "'" : "";
    if (!*f->problem) return param_no_memory();
    return param_fail(SRV_ERR_INVALID_JSON, NULL,
                      "The request body is not valid JSON (line %d, column %d): %s%s%s%s%s.",
                      f->line, f->column, f->problem, *f->key ? " " : "", quote,
                      param_word(f->key, shown), quote);
}

int srv_body_read(struct srv_body *body, const char *text, size_t len, size_t max_values)
{
    const struct jt_params params = {
        .flags = JR_NUL | JT_ANY, .max_values = max_values, .complete = add_place, .ctx = body};
    struct jt_fault fault;
    *body = (struct srv_body){.text = text, .len = len};
    out_of_memory = false; /* of an earlier use */
    int rc = jt_read(&body->root, text, len, &params, &fault) ? refuse(&fault) : 0;
    if (!rc && !json_is_object(body->root))
        rc = param_fail(SRV_ERR_INVALID_JSON, NULL, "The request body must be a JSON object.");
    if (rc) srv_body_finish(body);
    if (!rc) qsort(body->places, body->n_places, sizeof(*body->places), by_value);
    return rc;
}

int srv_body_take(struct srv_body *body, struct srv_facts *facts, size_t max_values)
{
    if (!facts->read) return srv_body_read(body, facts->body, facts->body_len, max_values);
    *body = *facts->read;
    facts->read = NULL;
    return 0;
}

void srv_body_finish(struct srv_body *body)
{
    json_decref(body->root);
    free(body->places);
    *body = (struct srv_body){0};
}

struct srv_span srv_body_span(const struct srv_body *body, const json_t *value)
{
    const struct body_place key = {.value = value};
    if (json_is_true(value)) return (struct srv_span){"true", 4};
    if (json_is_false(value)) return (struct srv_span){"false", 5};
    if (json_is_null(value)) return (struct srv_span){"null", 4};
    const struct body_place *p = bsearch(&key, body->places, body->n_places, sizeof(key), by_value);
    return p ? (struct srv_span){body->text + p->begin, p->len} : (struct srv_span){NULL, 0};
}

char *srv_body_list_text(const struct srv_body *body, const json_t *list)
{
    struct srv_span span = {NULL, 0};
    struct buf b = {.max = SIZE_MAX / 2};
    if (body) span = srv_body_span(body, list);
    if (span.text) return strndup(span.text, span.len);
    if (!body) return json_dumps(list, JSON_COMPACT);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *value = json_array_get(list, i);
        span = srv_body_span(body, value);
        char *made = span.text ? NULL : json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
        bool none = !span.text && !made;
        if (made) span = (struct srv_span){made, strlen(made)};
        buf_puts(&b, i ? "," : "[");
        if (!none) buf_add(&b, span.text, span.len);
        free(made);
        if (none) {
            buf_finish(&b);
            return NULL;
        }
    }
    buf_puts(&b, b.len ? "]" : "[]");
    if (b.failed) buf_finish(&b);
    return b.data;
}
