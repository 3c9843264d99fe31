/* SPDX-License-Identifier: MIT */
/* See body.h. */
#include "server/api/read/body.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/json_reader.h"
#include "base/utf8.h"

enum { MAX_DEPTH = 160 };

/* Where an object or array stands. */
struct body_place {
    const json_t *value;
    size_t begin, len;
};

struct open {
    json_t *value; /* borrowed: its parent or the body has it */
    size_t place;  /* of the body's */
    bool first;
};

/* A body on its way. */
struct reader {
    struct srv_body *body;
    struct jr json;
    struct open stack[MAX_DEPTH];
    int depth;
    size_t n_values, max_values;
    struct buf key; /* of the member being read, NUL-terminated */
    struct param_error *err;
    char problem[160];
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

/* ---- errors -------------------------------------------------------------------------------- */

/* At the reader's position; `name`: a key of the body that it is about, or NULL. */
static int refuse_text(struct reader *r, const char *problem, const char *name)
{
    char shown[PARAM_WORD_MAX];
    const char *text = r->json.text;
    size_t end = r->json.pos < r->json.len ? r->json.pos + 1 : r->json.len;
    int line = 1, column = 0;
    for (size_t i = 0; i < end; i++) {
        bool newline = i > 0 && text[i - 1] == '\n';
        line += newline;
        column = (newline ? 0 : column) + ((text[i] & 0xC0) != 0x80);
    }
    return param_fail(r->err, SRV_ERR_INVALID_JSON, NULL,
                      "The request body is not valid JSON (line %d, column %d): %s%s%s%s.", line,
                      column, problem, name ? " '" : "", name ? param_word(name, shown) : "",
                      name ? "'" : "");
}

static int check(struct reader *r, int rc)
{
    if (rc >= 0) return rc;
    return rc == JR_ENOMEM ? param_no_memory(r->err) : refuse_text(r, r->json.problem, NULL);
}

static int count_value(struct reader *r)
{
    if (++r->n_values <= r->max_values) return 0;
    return param_fail(r->err, SRV_ERR_INVALID_JSON, NULL,
                      "The request body holds more than %zu values.", r->max_values);
}

/* ---- values -------------------------------------------------------------------------------- */

/* An integer beyond 64 bits becomes a real near its value, beyond them too, whatever its size. */
static int read_number(struct reader *r, json_t **ret)
{
    const char *s;
    size_t len;
    if (check(r, jr_number(&r->json, &s, &len))) return -1;
    bool integer = !memchr(s, '.', len) && !memchr(s, 'e', len) && !memchr(s, 'E', len);
    errno = 0;
    long long whole = integer ? strtoll(s, NULL, 10) : 0;
    if (integer && !errno) {
        *ret = json_integer(whole);
        return 0;
    }
    double value = strtod(s, NULL);
    if (!isfinite(value) && !integer) return refuse_text(r, "a number out of range", NULL);
    if (!isfinite(value)) value = value > 0 ? DBL_MAX / 2 : -DBL_MAX / 2;
    if (integer && value == (double)INT64_MIN) value = nextafter(value, -DBL_MAX);
    *ret = json_real(value);
    return 0;
}

static int read_scalar(struct reader *r, char first, json_t **ret)
{
    const char *s;
    size_t len;
    bool truth;
    switch (first) {
    case '"':
        if (check(r, jr_string(&r->json, &s, &len))) return -1;
        *ret = json_stringn_nocheck(s, len);
        break;
    case 't':
    case 'f':
        if (check(r, jr_bool(&r->json, &truth))) return -1;
        *ret = json_boolean(truth);
        break;
    case 'n':
        if (check(r, jr_null(&r->json))) return -1;
        *ret = json_null();
        break;
    default:
        if (read_number(r, ret)) return -1;
    }
    return *ret ? 0 : param_no_memory(r->err);
}

static int read_key(struct reader *r)
{
    const char *s;
    size_t len;
    if (check(r, jr_key(&r->json, &s, &len))) return -1;
    if (memchr(s, '\0', len)) return refuse_text(r, "a key holds \\u0000", NULL);
    buf_clear(&r->key);
    buf_add(&r->key, s, len);
    buf_add(&r->key, "", 1);
    return r->key.failed ? param_no_memory(r->err) : 0;
}

/* Gives a value to the innermost open one, or to the body. */
static int attach(struct reader *r, json_t *value)
{
    if (r->depth == 0) {
        r->body->root = value;
        return 0;
    }
    json_t *parent = r->stack[r->depth - 1].value;
    size_t n = json_object_size(parent);
    int rc = json_is_array(parent) ? json_array_append_new(parent, value)
                                   : json_object_set_new_nocheck(parent, r->key.data, value);
    if (rc) return param_no_memory(r->err);
    if (json_is_array(parent) || json_object_size(parent) > n) return 0;
    return refuse_text(r, "a key that comes twice,", r->key.data);
}

static int add_place(struct reader *r, const json_t *value)
{
    struct srv_body *b = r->body;
    if (b->n_places == b->cap) {
        size_t cap = b->cap ? 2 * b->cap : 64;
        struct body_place *p = realloc(b->places, cap * sizeof(*p));
        if (!p) return param_no_memory(r->err);
        b->places = p;
        b->cap = cap;
    }
    b->places[b->n_places++] = (struct body_place){value, r->json.pos - 1, 0};
    return 0;
}

static int open_value(struct reader *r, char bracket)
{
    if (r->depth == MAX_DEPTH)
        return param_fail(r->err, SRV_ERR_INVALID_JSON, NULL,
                          "The request body nests deeper than %d levels.", MAX_DEPTH);
    if (check(r, jr_open(&r->json, bracket)) || count_value(r)) return -1;
    json_t *value = bracket == '{' ? json_object() : json_array();
    if (!value) return param_no_memory(r->err);
    if (attach(r, value) || add_place(r, value)) return -1;
    r->stack[r->depth++] = (struct open){value, r->body->n_places - 1, true};
    return 0;
}

static int read_value(struct reader *r)
{
    json_t *value = NULL;
    char c = jr_peek(&r->json);
    if (c == '{' || c == '[') return open_value(r, c);
    return read_scalar(r, c, &value) || attach(r, value) ? -1 : 0;
}

/* The next member or element of the innermost open value, or its end. */
static int step(struct reader *r)
{
    struct open *top = &r->stack[r->depth - 1];
    bool object = json_is_object(top->value), first = top->first;
    int more = check(r, jr_more(&r->json, object ? '}' : ']', &top->first));
    if (more < 0) return -1;
    if (more == 0) {
        struct body_place *place = &r->body->places[top->place];
        place->len = r->json.pos - place->begin;
        r->depth--;
        return 0;
    }
    if (!first && count_value(r)) return -1;
    return (object && read_key(r)) || read_value(r) ? -1 : 0;
}

/* ---- the body ------------------------------------------------------------------------------ */

static int by_value(const void *x, const void *y)
{
    const struct body_place *a = x, *b = y;
    return (a->value > b->value) - (a->value < b->value);
}

/* At the first byte that is not UTF-8. */
static int refuse_bytes(struct reader *r)
{
    const char *text = r->json.text;
    int n = 1;
    while (n > 0) {
        r->json.pos += utf8_ascii_prefix(text + r->json.pos, r->json.len - r->json.pos);
        n = utf8_classify((const unsigned char *)text + r->json.pos, r->json.len - r->json.pos);
        if (n > 0) r->json.pos += (size_t)n;
    }
    return refuse_text(r, "bytes that are not UTF-8", NULL);
}

static int read_all(struct reader *r)
{
    if (!utf8_valid(r->json.text, r->json.len)) return refuse_bytes(r);
    if (read_value(r)) return -1;
    while (r->depth > 0)
        if (step(r)) return -1;
    return check(r, jr_end(&r->json));
}

int srv_body_read(struct srv_body *body, const char *text, size_t len, size_t max_values,
                  struct param_error *err)
{
    *body = (struct srv_body){.text = text, .len = len};
    struct reader r = {.body = body, .n_values = 1, .max_values = max_values, .err = err};
    jr_init(&r.json, text, len, JR_NUL, r.problem, sizeof(r.problem));
    buf_init(&r.key, len + 1);
    out_of_memory = false; /* of an earlier use */
    int rc = read_all(&r);
    jr_finish(&r.json);
    buf_finish(&r.key);
    if (!rc && !json_is_object(body->root))
        rc = param_fail(err, SRV_ERR_INVALID_JSON, NULL, "The request body must be a JSON object.");
    if (rc) srv_body_finish(body);
    if (!rc) qsort(body->places, body->n_places, sizeof(*body->places), by_value);
    return rc;
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
    struct buf b;
    if (body) span = srv_body_span(body, list);
    if (span.text) return strndup(span.text, span.len);
    if (!body) return json_dumps(list, JSON_COMPACT);
    buf_init(&b, SIZE_MAX / 2);
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
