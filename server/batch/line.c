/* SPDX-License-Identifier: MIT */
/* See line.h. */
#include "server/batch/line.h"

#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/buf.h"
#include "base/fail.h"
#include "base/hex.h"
#include "base/json_reader.h"
#include "base/json_writer.h"
#include "base/utf8.h"
#include "server/http/guard.h"
#include "server/http/request.h"

enum { MAX_CUSTOM_ID = 512 }; /* characters */

static bool is_named(const char *name, const char *key, size_t len)
{
    return strlen(name) == len && memcmp(name, key, len) == 0;
}

static void copy_text(char *to, size_t size, const char *text, size_t n)
{
    bool fits = n < size && !memchr(text, '\0', n);
    snprintf(to, size, "%.*s", fits ? (int)n : 0, text);
}

static void read_member(struct jr *r, const char *key, size_t len, struct batch_line *p)
{
    bool is_id = is_named("custom_id", key, len), is_method = is_named("method", key, len),
         is_url = is_named("url", key, len), is_body = is_named("body", key, len);
    char first = jr_peek(r);
    const char *text, *from = r->text + r->pos;
    size_t n;
    (first == '"' ? jr_string : jr_skip)(r, &text, &n);
    if (is_id && first == '"') {
        p->id = from;
        p->n_id = (size_t)(r->text + r->pos - from);
        p->n_custom_id = utf8_count(text, n);
        sha256(p->id_digest, text, n);
    }
    if (is_method && first == '"') copy_text(p->method, sizeof(p->method), text, n);
    if (is_url && first == '"') copy_text(p->url, sizeof(p->url), text, n);
    if (is_body && first == '{') {
        p->body = text;
        p->n_body = n;
    }
}

static void find_key(struct batch_line *p)
{
    static const char *const names[] = {"\"messages\"", "\"prompt\"", "\"input\""};
    for (size_t k = 0; !p->key && k < sizeof(names) / sizeof(names[0]); k++)
        p->key = memmem(p->body, p->n_body, names[k], strlen(names[k]));
    if (!p->key) p->key = p->body;
    p->n_key = (size_t)(p->body + p->n_body - p->key);
}

/* Takes the inputs of an embedding, and counts them: ids in an array are one. */
static int count_inputs(struct jr *r, size_t *ret)
{
    const char *text;
    size_t len;
    *ret = jr_peek(r) != '[';
    if (*ret) return jr_skip(r, &text, &len);
    jr_open(r, '[');
    while (jr_more(r, ']') == 1) {
        *ret = strchr("-0123456789", jr_peek(r)) ? 1 : *ret + 1;
        jr_skip(r, &text, &len);
    }
    return r->failed;
}

/* Takes the model and counts the inputs. Returns true for a stream: the last "stream" counts;
 * without one Ollama's dialect streams. */
static bool read_body(struct batch_line *p, const struct srv_route *route)
{
    const char *key, *text = NULL;
    char err[64];
    size_t len, n = 0;
    bool stream = route->dialect == SRV_DIALECT_OLLAMA && (route->flags & SRV_ROUTE_STREAMS);
    AUTO(jr_finish) struct jr r;
    jr_init(&r, p->body, p->n_body, 0, err, sizeof(err));
    jr_open(&r, '{');
    while (jr_member(&r, &key, &len) > 0) {
        bool found = is_named("stream", key, len), is_input = is_named("input", key, len),
             is_model = is_named("model", key, len) && jr_peek(&r) == '"';
        int rc = is_input   ? count_inputs(&r, &p->n_inputs)
                 : is_model ? jr_string(&r, &text, &n)
                            : jr_skip(&r, &text, &n);
        if (!rc && found) stream = is_named("true", text, n);
        if (!rc && is_model) copy_text(p->model, sizeof(p->model), text, n);
    }
    find_key(p);
    return stream;
}

static int parse(const char *text, size_t n, struct batch_line *p, char *err, size_t errlen)
{
    AUTO(jr_finish) struct jr r;
    const char *key;
    size_t len;
    jr_init(&r, text, n, 0, err, errlen);
    jr_open(&r, '{');
    while (jr_member(&r, &key, &len) > 0)
        read_member(&r, key, len, p);
    return jr_end(&r);
}

static int compare_digests(const void *a, const void *b)
{
    return memcmp(a, b, SHA256_BYTES);
}

/* Returns 1 if the id is new, 0 if an earlier line has it, -1 when out of memory. */
static int note_id(void **ids, const uint8_t *digest)
{
    uint8_t *id = malloc(SHA256_BYTES);
    if (!id) return -1;
    memcpy(id, digest, SHA256_BYTES);
    uint8_t **found = tsearch(id, ids, compare_digests);
    if (found && *found == id) return 1;
    free(id);
    return found ? 0 : -1;
}

void batch_line_forget(void **ids)
{
    tdestroy(*ids, free);
    *ids = NULL;
}

/* Any route that takes POST but the operators', or NULL. */
static const struct srv_route *find_route(const struct srv_route *const *routes, const char *url)
{
    struct srv_guard_route found;
    srv_guard_find_route(routes, "POST", url, &found);
    return found.route && (found.route->flags & SRV_ROUTE_OPERATOR) ? NULL : found.route;
}

#define refuse(why, name, ...)                                                                     \
    ((why)->code = (name), fail_with(0, (why)->message, sizeof((why)->message), __VA_ARGS__))

static int check(struct batch_line *p, bool is_new, const struct srv_route *route,
                 struct batch_refusal *why)
{
    static const char missing[] = "missing_required_parameter";
    if (!p->id)
        return refuse(why, missing, "'custom_id' is missing: each line needs one of its own.");
    if (p->n_custom_id == 0 || p->n_custom_id > MAX_CUSTOM_ID)
        return refuse(why, "invalid_value", "'custom_id' has %zu characters, not 1 to %d.",
                      p->n_custom_id, MAX_CUSTOM_ID);
    if (!is_new)
        return refuse(why, "duplicate_custom_id", "an earlier line has this 'custom_id' too.");
    if (strcmp(p->method, "POST") != 0)
        return refuse(why, "invalid_method", "'method' must be 'POST'.");
    if (!route)
        return refuse(why, "url_mismatch",
                      "'url' must be a route that takes POST, such as /v1/chat/completions.");
    if (!p->body) return refuse(why, missing, "'body' must be an object.");
    if (read_body(p, route))
        return refuse(why, "stream_not_supported",
                      "'stream' must not be true (in /api/chat and /api/generate: be false): the "
                      "answer is one line.");
    return 0;
}

int batch_line_read(struct batch_line *ret, const char *text, size_t n,
                    const struct srv_route *const *routes, void **ids, struct batch_refusal *why)
{
    char err[200] = "";
    *ret = (struct batch_line){0};
    *why = (struct batch_refusal){0};
    if (!utf8_valid(text, n)) return refuse(why, "invalid_json_line", "the line is not UTF-8.");
    if (parse(text, n, ret, err, sizeof(err))) {
        *ret = (struct batch_line){0};
        return refuse(why, "invalid_json_line", "the line is not a JSON object: %s.", err);
    }
    int is_new = ids && ret->id ? note_id(ids, ret->id_digest) : 1;
    return is_new < 0 ? -1 : check(ret, is_new, find_route(routes, ret->url), why);
}

int batch_line_next(FILE *in, struct buf *b)
{
    char chunk[4096];
    size_t n = 0;
    int c;
    buf_clear(b);
    while ((c = getc_unlocked(in)) != EOF && c != '\n') {
        chunk[n++] = (char)c;
        if (n < sizeof(chunk)) continue;
        buf_add(b, chunk, n);
        n = 0;
    }
    buf_add(b, chunk, n);
    if (ferror(in) || (b->failed && !b->too_large)) return -1;
    return c == '\n' || b->len > 0 || b->failed;
}

bool batch_line_trim(struct buf *text, bool first)
{
    static const char mark[] = "\xef\xbb\xbf"; /* of byte order */
    bool marked = first && text->len >= 3 && memcmp(text->data, mark, 3) == 0;
    if (marked) memmove(text->data, text->data + 3, text->len -= 3);
    if (text->len && text->data[text->len - 1] == '\r') text->len--;
    return text->len || text->too_large;
}

void batch_answer_write(struct buf *to, const struct batch_answer *a)
{
    struct jw w = {.out = to};
    char id[sizeof("batch_req_") + 2 * SRV_UNIQUE_BYTES];
    hex_write(stpcpy(id, "batch_req_"), a->digest, SRV_UNIQUE_BYTES);
    jw_fields(&w, "{ id %s", id);
    jw_json(&w, "custom_id", a->line->id ? a->line->id : "null", a->line->id ? a->line->n_id : 4);
    if (a->status) {
        jw_fields(&w, "response { status_code %d request_id %s", a->status, a->request_id);
        jw_json(&w, "body", a->n_body ? a->body : "null", a->n_body ? a->n_body : 4);
        jw_fields(&w, "} error null }");
    } else {
        jw_fields(&w, "response null error { code %s message %s } }", a->code, a->message);
    }
    buf_puts(jw_end(&w), "\n");
}

bool batch_answer_is_passing(int status, const char *body, size_t n)
{
    const char *final = srv_errors[SRV_ERR_MODEL_FAILED].code;
    return status == 429 || (status == 503 && !memmem(body, n, final, strlen(final)));
}
