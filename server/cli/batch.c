/* SPDX-License-Identifier: MIT */
/*
 * hearth batch IN -o OUT: a file of requests to a file of answers, by the routes of the server
 * without its sockets. Lines in and out are those of OpenAI's batches:
 *
 *   {"custom_id", "method": "POST", "url": "/v1/...", "body": {...}}
 *   {"id", "custom_id", "response": {"status_code", "request_id", "body"}, "error": null}
 *
 * Answers come in the order of the lines, one write each, so that a file that a kill has cut short
 * is a beginning of the whole: --resume cuts a torn line off and goes on behind the last one. OUT
 * with the suffix .hearth holds the hash of IN meanwhile.
 *
 * An answer depends on its line alone: ids and, where the body has none, the seed are made of its
 * hash, the time of creation is that of the file IN. So two runs give the same bytes.
 *
 * A line that cannot run is answered in its place with status 400. Refusals for lack of room (429,
 * 503) are tried again.
 *
 * Threads: the main thread; text workers note that an answer has come.
 */
#include <errno.h>
#include <poll.h>
#include <search.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/hex.h"
#include "base/json_reader.h"
#include "base/json_writer.h"
#include "base/sha256.h"
#include "base/shown.h"
#include "base/thread.h"
#include "base/utf8.h"
#include "engine/engine.h"
#include "server/cli/cli.h"
#include "server/cli/core.h"
#include "server/cli/filter.h"
#include "server/config/config.h"
#include "server/http/api_error.h"
#include "server/http/guard.h"
#include "server/http/local.h"
#include "server/http/request.h"
#include "server/models/loader.h"
#include "server/log.h"

enum {
    EXIT_LINES_FAILED = 3,
    MAX_IN_FLIGHT = 64,
    SPARE_IN_FLIGHT = 2,     /* beyond the sequences that run at once */
    MAX_HELD = 1024,         /* lines read and not written */
    LINE_SPARE_BYTES = 4096, /* of a line around its body */
    MAX_ANSWER_BYTES = 512 << 20,
    MAX_CUSTOM_ID = 512,
    AGAIN_MS = 100, /* between two tries of a line that was refused for lack of room */
    TICK_MS = 100,
    PROGRESS_US = 1000000,
};
#define HELD_BYTES ((size_t)64 << 20)

enum state { FREE, READY, RUNS, ANSWERED };

/* A line that has been read and whose answer is not written. */
struct item {
    struct batch *batch;
    enum state state;
    struct buf text, answer; /* the line; the body of the answer, then the line of the answer */
    uint8_t digest[32];
    char *custom_id; /* owned; NULL: the line has none */
    size_t n_custom_id;
    const char *body; /* in text */
    size_t n_body;
    char url[256];
    struct srv_local request;
    uint64_t not_before_us; /* of the next try */
    bool awake;             /* the batch's lock */
};

/* A custom_id in the set of those that were read. */
struct id {
    size_t len;
    char text[];
};

struct batch {
    const struct srv_config *config;
    struct srv_core core;
    FILE *in, *out;
    char *side; /* OUT.hearth, or NULL */
    uint8_t input_digest[32];
    int64_t created_s;
    size_t max_line;
    void *ids; /* tsearch's */
    struct item items[MAX_HELD];
    int64_t n_read, n_written, n_failed; /* lines */
    int64_t n_ended;                     /* requests */
    int n_running, most_running;
    size_t held_bytes;
    bool has_digest, begun, input_ended;
    pthread_mutex_t lock; /* guards woken, and awake of the items */
    pthread_cond_t changed;
    bool woken;
    uint64_t start_us, shown_us;
    char err[1024];
};

__attribute__((format(printf, 2, 3))) static int fail(struct batch *b, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(b->err, sizeof(b->err), format, args);
    va_end(args);
    return -1;
}

static struct item *item_of(struct batch *b, int64_t line)
{
    return &b->items[line % MAX_HELD];
}

/* ---- a line -------------------------------------------------------------------------------- */

/* A line up to its body, which the handler reads. */
struct parsed {
    char *custom_id, *method, *url; /* owned; NULL: not there */
    size_t n_custom_id;
    const char *body; /* NULL: not there, or no object */
    size_t n_body;
};

/* The place of a name among the members of a line. */
static int find_member(const char *key, size_t len)
{
    static const char *const names[] = {"custom_id", "method", "url", "body"};
    int i = 0;
    while (i < 4 && (strlen(names[i]) != len || memcmp(key, names[i], len) != 0))
        i++;
    return i;
}

static int read_member(struct jr *r, int member, struct parsed *p)
{
    char **texts[] = {&p->custom_id, &p->method, &p->url};
    const char *text;
    size_t n;
    bool is_text = member < 3 && jr_peek(r) == '"', is_body = member == 3 && jr_peek(r) == '{';
    int rc = is_text ? jr_string(r, &text, &n) : jr_skip(r, &text, &n);
    if (rc) return rc;
    if (is_text) {
        free(*texts[member]);
        *texts[member] = strndup(text, n);
        if (member == 0) p->n_custom_id = n;
        return *texts[member] ? 0 : JR_ENOMEM;
    }
    if (is_body) {
        p->body = text;
        p->n_body = n;
    }
    return 0;
}

static int parse_line(const struct buf *line, struct parsed *p, char *err, size_t errlen)
{
    struct jr r;
    const char *key;
    size_t len;
    bool first = true;
    jr_init(&r, line->data, line->len, 0, err, errlen);
    int rc = jr_open(&r, '{');
    while (!rc && (rc = jr_more(&r, '}', &first)) == 1) {
        rc = jr_key(&r, &key, &len);
        if (!rc) rc = read_member(&r, find_member(key, len), p);
    }
    if (!rc) rc = jr_end(&r);
    jr_finish(&r);
    return rc;
}

static int compare_ids(const void *a, const void *b)
{
    const struct id *x = a, *y = b;
    if (x->len != y->len) return x->len < y->len ? -1 : 1;
    return memcmp(x->text, y->text, x->len);
}

/* Returns 1 if the id is new, 0 if an earlier line has it, -1 when out of memory. */
static int note_id(struct batch *b, const char *text, size_t len)
{
    struct id *id = malloc(sizeof(*id) + len + 1);
    if (!id) return -1;
    id->len = len;
    memcpy(id->text, text, len);
    id->text[len] = '\0';
    struct id **found = tsearch(id, &b->ids, compare_ids);
    if (found && *found == id) return 1;
    free(id);
    return found ? 0 : -1;
}

enum { ID_BYTES = 40 };

static const char *make_id(const struct item *i, const char *prefix, char buf[ID_BYTES])
{
    int at = snprintf(buf, ID_BYTES, "%s", prefix);
    hex_write(buf + at, i->digest, SRV_UNIQUE_BYTES);
    return buf;
}

/* The line of an answer in to; body: JSON text. */
static void write_answer(struct batch *b, const struct item *i, int status, const char *request_id,
                         const struct buf *body, struct buf *to)
{
    struct jw w;
    char id[ID_BYTES];
    b->n_failed += status >= 300;
    jw_init(&w, to);
    jw_open(&w, NULL, '{');
    jw_text(&w, "id", make_id(i, "batch_req_", id));
    if (i->custom_id)
        jw_string(&w, "custom_id", i->custom_id, i->n_custom_id);
    else
        jw_null(&w, "custom_id");
    jw_open(&w, "response", '{');
    jw_int(&w, "status_code", status);
    jw_text(&w, "request_id", request_id);
    jw_json(&w, "body", body->len ? body->data : "null", body->len ? body->len : 4);
    jw_close(&w);
    jw_null(&w, "error");
    jw_close(&w);
    buf_puts(jw_end(&w), "\n");
}

/* The line is answered with status 400. */
__attribute__((format(printf, 3, 4))) static void refuse(struct batch *b, struct item *i,
                                                         const char *format, ...)
{
    char message[400], id[ID_BYTES];
    struct buf body;
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof(message), format, args);
    va_end(args);
    buf_init(&body, 8192);
    srv_error_write(&body, SRV_ERR_INVALID_VALUE, NULL, message, NULL, false, NULL);
    write_answer(b, i, 400, make_id(i, "req_", id), &body, &i->answer);
    buf_finish(&body);
    i->state = ANSWERED;
}

/* Any route that takes POST but the operators'. */
static bool may_run(const struct batch *b, const char *url)
{
    struct srv_guard_route found;
    srv_guard_find_route(b->core.server.routes, "POST", url, &found);
    return found.route && !(found.route->flags & SRV_ROUTE_OPERATOR);
}

/* Takes what was parsed; the line is READY, or refused. 0, or -1 when out of memory. */
static int accept(struct batch *b, struct item *i, const struct parsed *p)
{
    int is_new = p->custom_id ? note_id(b, p->custom_id, p->n_custom_id) : 1;
    if (is_new < 0) return fail(b, "no memory");
    i->n_custom_id = p->n_custom_id;
    i->state = READY;
    if (!p->custom_id)
        refuse(b, i, "'custom_id' is missing: each line needs one of its own.");
    else if (p->n_custom_id == 0 || p->n_custom_id > MAX_CUSTOM_ID)
        refuse(b, i, "'custom_id' has %zu bytes, but must have 1 to %d.", p->n_custom_id,
               MAX_CUSTOM_ID);
    else if (!is_new)
        refuse(b, i, "an earlier line has this 'custom_id' too.");
    else if (!p->method || strcmp(p->method, "POST") != 0)
        refuse(b, i, "'method' must be 'POST'.");
    else if (!p->url || strlen(p->url) >= sizeof(i->url) || !may_run(b, p->url))
        refuse(b, i, "'url' must be a route that takes POST, such as /v1/chat/completions.");
    else if (!p->body)
        refuse(b, i, "'body' must be an object.");
    else
        snprintf(i->url, sizeof(i->url), "%s", p->url);
    i->body = p->body;
    i->n_body = p->n_body;
    if (i->state == READY && srv_body_asks_for_stream(i->body, i->n_body))
        refuse(b, i, "'stream' must not be true: the answer is one line.");
    return 0;
}

static int take_line(struct batch *b, struct item *i)
{
    struct parsed p = {0};
    char err[200] = "";
    int rc = 0;
    struct sha256 h;
    sha256_init(&h);
    sha256_update(&h, i->text.data, i->text.len);
    sha256_final(&h, i->digest);
    i->custom_id = NULL;
    i->not_before_us = 0;
    if (i->text.too_large) {
        refuse(b, i, "the line is longer than %zu bytes.", b->max_line);
    } else if (!utf8_valid(i->text.data, i->text.len)) {
        refuse(b, i, "the line is not UTF-8.");
    } else if (parse_line(&i->text, &p, err, sizeof(err))) {
        refuse(b, i, "the line is not a JSON object: %s.", err);
    } else {
        i->custom_id = p.custom_id;
        rc = accept(b, i, &p);
        p.custom_id = NULL;
    }
    free(p.custom_id);
    free(p.method);
    free(p.url);
    b->held_bytes += i->text.len;
    return rc;
}

/* ---- running ------------------------------------------------------------------------------- */

/* Any thread, with locks held. */
static void note_awake(void *ctx)
{
    struct item *i = ctx;
    struct batch *b = i->batch;
    pthread_mutex_lock(&b->lock);
    i->awake = b->woken = true;
    pthread_cond_signal(&b->changed);
    pthread_mutex_unlock(&b->lock);
}

static int start(struct batch *b, struct item *i)
{
    i->request = (struct srv_local){.wake = note_awake, .ctx = i};
    i->awake = true;
    if (srv_local_begin(&i->request, &b->core.server, i->url, i->body, i->n_body, i->digest,
                        b->created_s))
        return fail(b, "no memory");
    i->state = RUNS;
    b->n_running++;
    return 0;
}

static int start_lines(struct batch *b)
{
    uint64_t now = clock_now_us();
    for (int64_t n = b->n_written; n < b->n_read && b->n_running < b->most_running; n++) {
        struct item *i = item_of(b, n);
        if (i->state == READY && now >= i->not_before_us && start(b, i)) return -1;
    }
    return 0;
}

/* Refused for lack of room, which may be there later. */
static bool is_passing(const struct item *i, int status)
{
    const char *final = srv_error_code(SRV_ERR_MODEL_FAILED);
    return status == 429 ||
           (status == 503 && !memmem(i->answer.data, i->answer.len, final, strlen(final)));
}

/* The whole answer is there. */
static int end_request(struct batch *b, struct item *i)
{
    int status = srv_local_status(&i->request);
    struct buf line;
    b->n_running--;
    b->n_ended++;
    if (is_passing(i, status)) {
        srv_local_end(&i->request);
        buf_clear(&i->answer);
        i->not_before_us = clock_now_us() + AGAIN_MS * 1000;
        i->state = READY;
        return 0;
    }
    buf_init(&line, MAX_ANSWER_BYTES);
    write_answer(b, i, status, srv_local_id(&i->request), &i->answer, &line);
    srv_local_end(&i->request);
    bool failed = line.failed || i->answer.failed;
    buf_finish(&i->answer);
    i->answer = line;
    i->state = ANSWERED;
    b->held_bytes += line.len;
    return failed ? fail(b, "no memory for an answer") : 0;
}

static int take_answers(struct batch *b)
{
    for (int64_t n = b->n_written; n < b->n_read; n++) {
        struct item *i = item_of(b, n);
        if (i->state != RUNS) continue;
        pthread_mutex_lock(&b->lock);
        bool awake = i->awake;
        i->awake = false;
        pthread_mutex_unlock(&b->lock);
        if (awake && srv_local_take(&i->request, &i->answer) && end_request(b, i)) return -1;
    }
    return 0;
}

static int write_lines(struct batch *b)
{
    for (; b->n_written < b->n_read && item_of(b, b->n_written)->state == ANSWERED;
         b->n_written++) {
        struct item *i = item_of(b, b->n_written);
        if (fwrite(i->answer.data, 1, i->answer.len, b->out) != i->answer.len || fflush(b->out))
            return fail(b, "%s cannot be written: %s", b->config->output, strerror(errno));
        b->held_bytes -= i->answer.len < b->held_bytes ? i->answer.len : b->held_bytes;
        b->held_bytes -= i->text.len < b->held_bytes ? i->text.len : b->held_bytes;
        free(i->custom_id);
        buf_finish(&i->text);
        buf_finish(&i->answer);
        i->state = FREE;
    }
    return 0;
}

/* Reading waits for a pipe only while nothing else is to be done. */
static bool may_read(const struct batch *b)
{
    struct pollfd in = {.fd = fileno(b->in), .events = POLLIN};
    if (b->input_ended || b->held_bytes > HELD_BYTES) return false;
    return b->n_read == b->n_written || poll(&in, 1, 0) != 0;
}

/* The next line that is not blank, into the item. 1, 0 at the end, or -1. */
static int read_line(struct batch *b, struct item *i)
{
    static const char mark[] = "\xef\xbb\xbf"; /* of byte order */
    int more;
    *i = (struct item){.batch = b};
    buf_init(&i->text, b->max_line);
    buf_init(&i->answer, MAX_ANSWER_BYTES);
    while ((more = filter_read_line(b->in, &i->text)) == 1) {
        struct buf *text = &i->text;
        bool marked = !b->begun && text->len >= 3 && memcmp(text->data, mark, 3) == 0;
        b->begun = true;
        if (marked) memmove(text->data, text->data + 3, text->len -= 3);
        if (text->len && text->data[text->len - 1] == '\r') text->len--;
        if (text->len || text->too_large) break;
    }
    if (more != 1) buf_finish(&i->text);
    b->input_ended = more == 0;
    return more < 0 ? fail(b, "%s cannot be read", b->config->batch_in) : more;
}

static int read_lines(struct batch *b)
{
    /* Some are read ahead: while one is slow, those after it run. */
    while (b->n_read - b->n_written < MAX_HELD && may_read(b)) {
        struct item *i = item_of(b, b->n_read);
        int more = read_line(b, i);
        if (more != 1) return more;
        if (take_line(b, i)) return -1;
        b->n_read++;
    }
    return 0;
}

/* Lines that an earlier run has answered: only their ids count. */
static int skip_lines(struct batch *b, int64_t n)
{
    while (n-- > 0) {
        struct item *i = item_of(b, 0);
        int more = read_line(b, i);
        if (more == 0) fail(b, "%s has more lines than %s", b->config->output, b->config->batch_in);
        if (more != 1 || take_line(b, i)) return -1;
        free(i->custom_id);
        buf_finish(&i->text);
        buf_finish(&i->answer);
        b->held_bytes = 0;
    }
    return 0;
}

/* Until something has changed, or it is time to look around. */
static void wait_for_change(struct batch *b)
{
    struct timespec until = clock_after_ms(TICK_MS);
    pthread_mutex_lock(&b->lock);
    if (!b->woken) pthread_cond_timedwait(&b->changed, &b->lock, &until);
    b->woken = false;
    pthread_mutex_unlock(&b->lock);
    srv_models_tick(&b->core.server.app.models);
}

/* On a terminal; the last one elsewhere too. */
static void show_progress(struct batch *b, bool last)
{
    uint64_t now = clock_now_us();
    bool again = isatty(STDERR_FILENO);
    if (!last && (!again || now - b->shown_us < PROGRESS_US)) return;
    b->shown_us = now;
    fprintf(stderr, "%shearth: %lld lines, %lld failed, %.1f s%s", again ? "\r\033[K" : "",
            (long long)b->n_written, (long long)b->n_failed, (double)(now - b->start_us) / 1e6,
            last ? "\n" : "");
}

static int answer_all(struct batch *b)
{
    int rc = 0;
    int64_t n_ended = 0;
    b->start_us = b->shown_us = clock_now_us();
    while (!rc) {
        rc = read_lines(b) || start_lines(b) || take_answers(b) || write_lines(b) ? -1 : 0;
        if (rc || (b->input_ended && b->n_written == b->n_read)) break;
        if (b->n_ended == n_ended) wait_for_change(b); /* else others can begin at once */
        n_ended = b->n_ended;
        show_progress(b, false);
    }
    show_progress(b, true);
    return rc;
}

/* ---- files --------------------------------------------------------------------------------- */

static bool is_pipe(const char *name)
{
    return strcmp(name, "-") == 0;
}

static int open_input(struct batch *b)
{
    const char *name = b->config->batch_in;
    struct stat st;
    b->in = is_pipe(name) ? stdin : fopen(name, "rbe");
    if (!b->in || fstat(fileno(b->in), &st)) return fail(b, "%s: %s", name, strerror(errno));
    if (!S_ISREG(st.st_mode)) return 0;
    char piece[64 << 10];
    struct sha256 h;
    size_t n;
    sha256_init(&h);
    while ((n = fread(piece, 1, sizeof(piece), b->in)) > 0)
        sha256_update(&h, piece, n);
    sha256_final(&h, b->input_digest);
    b->created_s = st.st_mtime;
    b->has_digest = true;
    return fseek(b->in, 0, SEEK_SET) || ferror(b->in) ? fail(b, "%s cannot be read", name) : 0;
}

/* The text of OUT.hearth. */
static void name_input(const struct batch *b, char text[65])
{
    hex_write(text, b->input_digest, sizeof(b->input_digest));
}

static int check_side(struct batch *b)
{
    char wanted[65], found[65] = "";
    FILE *f = fopen(b->side, "rbe");
    name_input(b, wanted);
    if (f && fread(found, 1, 64, f) != 64) found[0] = '\0';
    if (f) fclose(f);
    if (b->config->resume && !f)
        return fail(b, "%s: no run was begun that could go on: %s is not there", b->config->output,
                    b->side);
    if (b->config->resume && strcmp(found, wanted) != 0)
        return fail(b, "%s was begun with another input than %s, or that has changed",
                    b->config->output, b->config->batch_in);
    if (f && !b->config->resume)
        return fail(b,
                    "%s was begun by a run that has not ended: --resume goes on with it; remove "
                    "%s to begin again",
                    b->config->output, b->side);
    return 0;
}

static int write_side(struct batch *b)
{
    char text[65];
    FILE *f = fopen(b->side, "wbe");
    name_input(b, text);
    bool good = f && fwrite(text, 1, 64, f) == 64;
    if (f && fclose(f)) good = false;
    return good ? 0 : fail(b, "%s cannot be written: %s", b->side, strerror(errno));
}

/* Counts whole lines of the answers, and those that failed; cuts off a torn one. */
static int count_answers(struct batch *b, int64_t *ret_n)
{
    static const char failed[] = "\"status_code\":2";
    struct buf line;
    long end = 0;
    buf_init(&line, MAX_ANSWER_BYTES);
    *ret_n = 0;
    while (filter_read_line(b->out, &line) == 1) {
        long at = ftell(b->out);
        if (fseek(b->out, at - 1, SEEK_SET) || getc(b->out) != '\n') break;
        end = at;
        ++*ret_n;
        b->n_failed += !memmem(line.data, line.len, failed, sizeof(failed) - 1);
    }
    buf_finish(&line);
    if (ferror(b->out) || ftruncate(fileno(b->out), end) || fseek(b->out, end, SEEK_SET))
        return fail(b, "%s cannot be read or cut: %s", b->config->output, strerror(errno));
    return 0;
}

static int open_output(struct batch *b)
{
    const char *name = b->config->output;
    int64_t n = 0;
    if (is_pipe(name)) {
        b->out = stdout;
        return b->config->resume ? fail(b, "--resume needs files, not -") : 0;
    }
    if (b->config->resume && !b->has_digest) return fail(b, "--resume needs files, not -");
    if (asprintf(&b->side, "%s.hearth", name) < 0) return fail(b, "no memory");
    if (check_side(b) || (!b->config->resume && write_side(b))) return -1;
    b->out = fopen(name, b->config->resume ? "r+be" : "wbe");
    if (!b->out) return fail(b, "%s: %s", name, strerror(errno));
    if (!b->config->resume) return 0;
    int64_t n_failed = b->n_failed;
    if (count_answers(b, &n)) return -1;
    n_failed = b->n_failed;
    int rc = skip_lines(b, n);
    b->n_failed = n_failed; /* those of the skipped lines were counted in the file */
    return rc;
}

/* ---- the whole ----------------------------------------------------------------------------- */

/* Waits for the models of the start. */
static int load(struct batch *b)
{
    struct srv_core *c = &b->core;
    uint64_t count;
    if (srv_core_create(c, b->err, sizeof(b->err)) || srv_core_load(c, b->err, sizeof(b->err)))
        return -1;
    struct pollfd fd = {.fd = c->loaded_fd, .events = POLLIN};
    while (read(c->loaded_fd, &count, sizeof(count)) != sizeof(count)) /* the loader has ended */
        poll(&fd, 1, -1);
    if (srv_loader_result(c->loader, b->err, sizeof(b->err))) return -1;
    struct srv_model *m = srv_models_of(&c->server.app.models, 0);
    b->most_running = (m ? eng_info(m->engine)->n_parallel : b->config->parallel) + SPARE_IN_FLIGHT;
    if (b->most_running > MAX_IN_FLIGHT) b->most_running = MAX_IN_FLIGHT;
    srv_model_release(m, false);
    return 0;
}

/* Requests whose answer is there may still be ending their jobs. */
static void end_all(struct batch *b)
{
    for (int64_t n = b->n_written; n < b->n_read; n++)
        if (item_of(b, n)->state == RUNS) srv_local_end(&item_of(b, n)->request);
    while (atomic_load(&b->core.server.n_requests) > 0)
        poll(NULL, 0, 1);
}

static void free_id(void *id)
{
    free(id);
}

static int run(struct batch *b)
{
    int rc = open_input(b) || open_output(b) || load(b) || answer_all(b) ? -1 : 0;
    if (b->core.loader) end_all(b);
    if (b->out && fclose(b->out) && !rc)
        rc = fail(b, "%s cannot be written: %s", b->config->output, strerror(errno));
    if (!rc && b->side) unlink(b->side);
    return rc;
}

int srv_cmd_batch(const struct srv_config *config)
{
    static struct batch batch;
    struct batch *b = &batch;
    struct srv_config own = *config;
    if (!config->batch_in || !config->output) {
        shown_line(stderr, "hearth: batch needs a file of requests and -o with one of answers; -: "
                           "stdin, stdout");
        return SRV_EXIT_USAGE;
    }
    own.queue_timeout_ms = own.request_timeout_ms = 0;
    srv_log_init("text", "warning");
    *b = (struct batch){.config = &own, .max_line = (size_t)own.max_body_bytes + LINE_SPARE_BYTES};
    srv_core_init(&b->core, &own);
    pthread_mutex_init(&b->lock, NULL);
    thread_cond_init(&b->changed);
    int rc = run(b);
    if (rc) shown_line(stderr, "hearth: %s", b->err);
    if (!srv_core_close(&b->core)) _exit(EXIT_FAILURE);
    tdestroy(b->ids, free_id);
    free(b->side);
    pthread_cond_destroy(&b->changed);
    pthread_mutex_destroy(&b->lock);
    return rc ? EXIT_FAILURE : b->n_failed ? EXIT_LINES_FAILED : EXIT_SUCCESS;
}
