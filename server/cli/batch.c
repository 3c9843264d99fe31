/* SPDX-License-Identifier: MIT */
/*
 * hearth batch IN -o OUT: a file of requests to a file of answers, by the routes of the server
 * without its sockets (lines.h). Lines in and out are those of OpenAI's batches:
 *
 *   {"custom_id", "method": "POST", "url": "/v1/...", "body": {...}}
 *   {"id", "custom_id", "response": {"status_code", "request_id", "body"}, "error": null}
 *
 * Answers come in the order of the lines, so a file that a kill has cut short is a beginning of the
 * whole: --resume cuts a torn line off and goes on after the last one. OUT with the suffix .hearth
 * holds the hash of IN meanwhile. The time of creation of answers is that of IN, so that two runs
 * give the same bytes. A line that cannot run is answered in its place with status 400.
 *
 * Threads: the main thread.
 */
#include <errno.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/file.h"
#include "base/hex.h"
#include "base/json_reader.h"
#include "base/json_writer.h"
#include "base/shown.h"
#include "base/utf8.h"
#include "server/cli/cli.h"
#include "server/cli/lines.h"
#include "server/http/guard.h"
#include "server/http/request.h"

enum {
    EXIT_LINES_FAILED = 3,
    MAX_CUSTOM_ID = 512,
    MAX_ANSWER_BYTES = 512 << 20, /* of a line of OUT */
    HASH_CHARS = 2 * SHA256_BYTES,
};

struct batch {
    struct lines lines;
    const struct srv_config *config;
    char *side;                /* OUT.hearth, owned; NULL: OUT is a pipe */
    char hash[HASH_CHARS + 1]; /* of IN; "" of a pipe */
    int64_t n_done;            /* lines that an earlier run has answered */
    void *ids;                 /* tsearch's, of the SHA-256 of each custom_id */
};

/* ---- a line -------------------------------------------------------------------------------- */

/* A line up to its body, which the handler reads. */
struct parsed {
    const char *id, *body; /* parts of the line; NULL: not there, or of another type */
    size_t n_id, n_body, n_custom_id;
    uint8_t id_digest[SHA256_BYTES];
    char method[8], url[256]; /* "": the same, or longer */
};

static bool is_named(const char *name, const char *key, size_t len)
{
    return strlen(name) == len && memcmp(name, key, len) == 0;
}

static void copy_text(char *to, size_t size, const char *text, size_t n)
{
    bool fits = n < size && !memchr(text, '\0', n);
    snprintf(to, size, "%.*s", fits ? (int)n : 0, text);
}

static int read_member(struct jr *r, const char *key, size_t len, struct parsed *p)
{
    bool is_id = is_named("custom_id", key, len), is_method = is_named("method", key, len),
         is_url = is_named("url", key, len), is_body = is_named("body", key, len);
    char first = jr_peek(r);
    const char *text, *from = r->text + r->pos;
    size_t n;
    int rc = first == '"' ? jr_string(r, &text, &n) : jr_skip(r, &text, &n);
    if (rc) return rc;
    if (is_id && first == '"') {
        p->id = from;
        p->n_id = (size_t)(r->text + r->pos - from);
        p->n_custom_id = n;
        sha256(p->id_digest, text, n);
    }
    if (is_method && first == '"') copy_text(p->method, sizeof(p->method), text, n);
    if (is_url && first == '"') copy_text(p->url, sizeof(p->url), text, n);
    if (is_body && first == '{') {
        p->body = text;
        p->n_body = n;
    }
    return 0;
}

/* The last "stream" counts; without one Ollama's dialect streams. */
static bool asks_for_stream(const struct srv_route *route, const struct parsed *p)
{
    const char *key, *text;
    char err[64];
    size_t len, n;
    bool stream = route->dialect == SRV_DIALECT_OLLAMA && (route->flags & SRV_ROUTE_STREAMS);
    AUTO(jr_finish) struct jr r;
    jr_init(&r, p->body, p->n_body, 0, err, sizeof(err));
    int rc = jr_open(&r, '{');
    while (!rc && jr_member(&r, &key, &len) == 1) {
        bool found = is_named("stream", key, len);
        rc = jr_skip(&r, &text, &n);
        if (!rc && found) stream = is_named("true", text, n);
    }
    return stream;
}

static int parse_line(const struct buf *line, struct parsed *p, char *err, size_t errlen)
{
    AUTO(jr_finish) struct jr r;
    const char *key;
    size_t len;
    jr_init(&r, line->data, line->len, 0, err, errlen);
    int rc = jr_open(&r, '{');
    while (!rc && (rc = jr_member(&r, &key, &len)) == 1)
        rc = read_member(&r, key, len, p);
    if (!rc) rc = jr_end(&r);
    return rc;
}

static int compare_digests(const void *a, const void *b)
{
    return memcmp(a, b, SHA256_BYTES);
}

/* Returns 1 if the id is new, 0 if an earlier line has it, -1 when out of memory. */
static int note_id(struct batch *b, const uint8_t *digest)
{
    uint8_t *id = malloc(SHA256_BYTES);
    if (!id) return -1;
    memcpy(id, digest, SHA256_BYTES);
    uint8_t **found = tsearch(id, &b->ids, compare_digests);
    if (found && *found == id) return 1;
    free(id);
    return found ? 0 : -1;
}

/* Any route that takes POST but the operators', or NULL. */
static const struct srv_route *find_route(const struct batch *b, const char *url)
{
    struct srv_guard_route found;
    srv_guard_find_route(b->lines.offline.core.server.routes, "POST", url, &found);
    return found.route && (found.route->flags & SRV_ROUTE_OPERATOR) ? NULL : found.route;
}

static void take_parsed(struct batch *b, struct line *i, const struct parsed *p, bool is_new)
{
    const struct srv_route *route = find_route(b, p->url);
    i->id = p->id;
    i->n_id = p->n_id;
    i->body = p->body;
    i->n_body = p->n_body;
    memcpy(i->url, p->url, sizeof(i->url));
    if (!p->id)
        lines_refuse(i, "'custom_id' is missing: each line needs one of its own.");
    else if (p->n_custom_id == 0 || p->n_custom_id > MAX_CUSTOM_ID)
        lines_refuse(i, "'custom_id' has %zu bytes, but must have 1 to %d.", p->n_custom_id,
                     MAX_CUSTOM_ID);
    else if (!is_new)
        lines_refuse(i, "an earlier line has this 'custom_id' too.");
    else if (strcmp(p->method, "POST") != 0)
        lines_refuse(i, "'method' must be 'POST'.");
    else if (!route)
        lines_refuse(i, "'url' must be a route that takes POST, such as /v1/chat/completions.");
    else if (!p->body)
        lines_refuse(i, "'body' must be an object.");
    else if (asks_for_stream(route, p))
        lines_refuse(i, "'stream' must not be true (in /api/chat and /api/generate: be false): the "
                        "answer is one line.");
}

static int read_line(struct lines *l, struct line *i)
{
    struct batch *b = l->ctx;
    struct parsed p = {0};
    char err[200] = "";
    if (!utf8_valid(i->text.data, i->text.len)) {
        lines_refuse(i, "the line is not UTF-8.");
    } else if (parse_line(&i->text, &p, err, sizeof(err))) {
        lines_refuse(i, "the line is not a JSON object: %s.", err);
    } else {
        int is_new = p.id ? note_id(b, p.id_digest) : 1;
        if (is_new < 0) return lines_fail(l, "no memory");
        take_parsed(b, i, &p, is_new);
    }
    if (l->n_read <= b->n_done) i->status = 200; /* its answer is in OUT */
    return 0;
}

static int write_line(struct lines *l, struct line *i, struct buf *to)
{
    const struct batch *b = l->ctx;
    struct jw w = {.out = to};
    char id[sizeof("batch_req_") + 2 * SRV_UNIQUE_BYTES];
    l->n_units++;
    if (l->n_written < b->n_done) return 0;
    l->n_failed += i->status >= 300;
    hex_write(stpcpy(id, "batch_req_"), i->digest, SRV_UNIQUE_BYTES);
    jw_open(&w, NULL, '{');
    jw_text(&w, "id", id);
    jw_json(&w, "custom_id", i->id ? i->id : "null", i->id ? i->n_id : 4);
    jw_open(&w, "response", '{');
    jw_int(&w, "status_code", i->status);
    jw_text(&w, "request_id", i->request_id);
    jw_json(&w, "body", i->answer.len ? i->answer.data : "null", i->answer.len ? i->answer.len : 4);
    jw_close(&w);
    jw_null(&w, "error");
    jw_close(&w);
    buf_puts(jw_end(&w), "\n");
    return 0;
}

/* ---- files --------------------------------------------------------------------------------- */

static bool is_pipe(const char *name)
{
    return strcmp(name, "-") == 0;
}

static int open_input(struct batch *b)
{
    struct lines *l = &b->lines;
    const char *name = b->config->batch_in;
    char piece[64 << 10];
    uint8_t digest[SHA256_BYTES];
    struct stat st;
    struct sha256 h;
    size_t n;
    l->in = is_pipe(name) ? stdin : fopen(name, "rbe");
    if (!l->in || fstat(fileno(l->in), &st)) return lines_fail(l, "%s: %s", name, strerror(errno));
    if (!S_ISREG(st.st_mode)) return 0;
    sha256_init(&h);
    while ((n = fread(piece, 1, sizeof(piece), l->in)) > 0)
        sha256_update(&h, piece, n);
    sha256_final(&h, digest);
    hex_write(b->hash, digest, sizeof(digest));
    l->created_s = st.st_mtime;
    bool good = !ferror(l->in) && !fseek(l->in, 0, SEEK_SET);
    return good ? 0 : lines_fail(l, "%s cannot be read", name);
}

/* OUT.hearth says that the answers in OUT are those of IN. */
static int check_side(struct batch *b)
{
    struct lines *l = &b->lines;
    char *found = NULL;
    if (file_load_optional(NULL, b->side, HASH_CHARS, &found, NULL, l->err, sizeof(l->err)))
        return -1;
    bool is_there = found != NULL, is_same = found && strcmp(found, b->hash) == 0;
    free(found);
    if (b->config->resume && !is_there)
        return lines_fail(l, "%s: no run was begun that could go on: %s is not there", l->out_name,
                          b->side);
    if (b->config->resume && !is_same)
        return lines_fail(l, "%s was begun with another input than %s, or that has changed",
                          l->out_name, b->config->batch_in);
    if (is_there && !b->config->resume)
        return lines_fail(l,
                          "%s was begun by a run that has not ended: --resume goes on with it; "
                          "remove %s to begin again",
                          l->out_name, b->side);
    return 0;
}

static int write_side(struct batch *b)
{
    FILE *f = fopen(b->side, "wbe");
    bool good = f && fputs(b->hash, f) >= 0;
    if (f && fclose(f)) good = false;
    return good ? 0 : lines_fail(&b->lines, "%s cannot be written: %s", b->side, strerror(errno));
}

/* Counts whole lines of the answers, and those that failed; cuts off a torn one. */
static int count_answers(struct batch *b)
{
    static const char good[] = "\"status_code\":2";
    struct lines *l = &b->lines;
    AUTO(buf_finish) struct buf line = {.max = MAX_ANSWER_BYTES};
    long end = 0;
    while (lines_read_line(l->out, &line) == 1) {
        long at = ftell(l->out);
        if (fseek(l->out, at - 1, SEEK_SET) || getc(l->out) != '\n') break;
        end = at;
        b->n_done++;
        l->n_failed += !memmem(line.data, line.len, good, sizeof(good) - 1);
    }
    if (ferror(l->out) || ftruncate(fileno(l->out), end) || fseek(l->out, end, SEEK_SET))
        return lines_fail(l, "%s cannot be read or cut: %s", l->out_name, strerror(errno));
    return 0;
}

static int open_output(struct batch *b)
{
    struct lines *l = &b->lines;
    bool resume = b->config->resume;
    if (resume && (is_pipe(l->out_name) || !*b->hash))
        return lines_fail(l, "--resume needs files, not -");
    if (is_pipe(l->out_name)) l->out = stdout;
    if (l->out) return 0;
    if (asprintf(&b->side, "%s.hearth", l->out_name) < 0) return lines_fail(l, "no memory");
    if (check_side(b) || (!resume && write_side(b))) return -1;
    l->out = fopen(l->out_name, resume ? "r+be" : "wbe");
    if (!l->out) return lines_fail(l, "%s: %s", l->out_name, strerror(errno));
    return resume ? count_answers(b) : 0;
}

static int run(struct batch *b)
{
    struct lines *l = &b->lines;
    if (open_input(b) || open_output(b) || lines_open(l, b->config) || lines_run(l)) return -1;
    if (l->n_read < b->n_done)
        return lines_fail(l, "%s has more lines than %s", l->out_name, b->config->batch_in);
    if (fclose(l->out))
        return lines_fail(l, "%s cannot be written: %s", l->out_name, strerror(errno));
    if (b->side) unlink(b->side);
    return 0;
}

int srv_cmd_batch(const struct srv_config *config)
{
    struct batch b = {.config = config,
                      .lines = {.out_name = config->output,
                                .unit = "lines",
                                .read = read_line,
                                .write = write_line,
                                .ctx = &b}};
    if (!config->batch_in || !config->output) {
        shown_line(stderr, "hearth: batch needs a file of requests and -o with one of answers; -: "
                           "stdin, stdout");
        return SRV_EXIT_USAGE;
    }
    int rc = run(&b);
    lines_close(&b.lines, rc);
    tdestroy(b.ids, free);
    free(b.side);
    return rc ? EXIT_FAILURE : b.lines.n_failed ? EXIT_LINES_FAILED : EXIT_SUCCESS;
}
