/* SPDX-License-Identifier: MIT */
/* See runner.h. */
#include "server/batch/runner.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/hex.h"
#include "base/thread.h"
#include "server/batch/line.h"
#include "server/batch/plan.h"
#include "server/batch/results.h"
#include "server/config/config.h"
#include "server/http/keys.h"
#include "server/http/local.h"
#include "server/http/request.h"
#include "server/http/server.h"
#include "server/log.h"
#include "server/models/app.h"
#include "server/models/loras.h"

enum {
    MAX_RUNNING = 64,
    SPARE_RUNNING = 2, /* more than the sequences that are computed at once */
    MAX_LINES = 50000,
    MAX_INPUTS = 50000,       /* of embeddings, in all lines */
    MAX_OWNER_LINES = 500000, /* of batches that have not ended */
    MAX_OWNER_BATCHES = 16,   /* likewise */
    MAX_OWNER_ENDED = 1000,   /* the oldest are forgotten */
    LINE_SPARE_BYTES = 4096,  /* of a line around its body */
    MAX_ANSWER_BYTES = RESULTS_MAX_BYTES - (64 << 10),
    TICK_MS = 100,
    SECOND_US = 1000000,
    PAUSE_US = 30 * SECOND_US, /* after a fault of the disk */
    GRACE_US = 10 * SECOND_US, /* for the lines that run when a batch is cancelled */
    TURN_US = 60 * SECOND_US,  /* of a key, if others wait */
    MAX_EXPIRED = 64,          /* files removed at a time */
};

/* A line that runs, or is about to. */
struct slot {
    const struct plan_line *line; /* NULL: free */
    struct srv_local request;
    bool again; /* its job has failed once */
    struct buf answer;
};

/* A batch that is worked on. */
struct work {
    json_t *doc; /* as it was at first, but for its status; owned, NULL: none */
    uint8_t owner[STORE_OWNER];
    int fd; /* of the input */
    struct plan plan;
    struct results results;
    size_t next;      /* of the plan's lines: those before have been begun */
    const char *code; /* why it ends before it is done: "batch_cancelled"; or NULL */
    uint64_t since_us, end_us;
    bool yields, changed;
};

struct batches {
    struct srv_server *server;
    struct store *store;
    pthread_t thread;
    pthread_mutex_t make; /* held while batches are added and files removed */
    pthread_mutex_t lock; /* guards the next line */
    bool woken;
    pthread_cond_t changed;
    bool started;
    atomic_bool stopping;
    atomic_int n_running;
    _Atomic uint64_t paused_until_us;
    /* The thread's. */
    struct work work; /* doc NULL: none */
    struct slot slots[MAX_RUNNING];
    uint8_t last_owner[STORE_OWNER]; /* the last one that had its turn */
    uint64_t rest_until_us, looked_us;
    bool fault_noted;
};

struct store *batches_store(struct batches *b)
{
    return b->store;
}

static int64_t number_of(const json_t *doc, const char *name)
{
    return json_integer_value(json_object_get(doc, name));
}

static bool is_in(const json_t *doc, const char *status)
{
    return !strcmp(store_text(doc, "status"), status);
}

static bool has_ended(const json_t *doc)
{
    return is_in(doc, "completed") || is_in(doc, "failed") || is_in(doc, "expired") ||
           is_in(doc, "cancelled");
}

static bool is_paused(const struct batches *b)
{
    return clock_now_us() < b->paused_until_us;
}

/* ---- documents ----------------------------------------------------------------------------- */

static bool exists(struct batches *b, enum store_folder folder, const uint8_t *owner,
                   const char *id)
{
    HOLD(store_lock(b->store));
    return store_find(b->store, folder, owner, id) != NULL;
}

struct count {
    int n_ended, n_unfinished;
    int64_t n_lines;                 /* of those that have not ended */
    char oldest[STORE_ID_CHARS + 1]; /* of those that have ended */
    bool needs_file;                 /* one of those */
};

/* Of an owner's batches, NULL: of all; file: an id, or NULL. */
static struct count count_batches(struct batches *b, const uint8_t *owner, const char *file)
{
    struct count c = {0};
    const struct store_item *i;
    HOLD(store_lock(b->store));
    for (size_t at = 0; (i = store_next(b->store, STORE_BATCHES, owner, false, &at));) {
        if (has_ended(i->doc)) {
            if (!c.n_ended++) memcpy(c.oldest, i->id, sizeof(c.oldest));
            continue;
        }
        c.n_unfinished++;
        c.n_lines += number_of(json_object_get(i->doc, "request_counts"), "total");
        c.needs_file |= file && !strcmp(file, store_text(i->doc, "input_file_id"));
    }
    return c;
}

int batches_add(struct batches *b, const uint8_t *owner, json_t *doc, char *err, size_t errlen)
{
    HOLD(&b->make);
    int rc = 0;
    struct count c = count_batches(b, owner, NULL);
    if (exists(b, STORE_BATCHES, owner, store_text(doc, "id")))
        rc = 1;
    else if (!exists(b, STORE_FILES, owner, store_text(doc, "input_file_id")))
        rc = STORE_ENOENT;
    else if (c.n_unfinished >= MAX_OWNER_BATCHES || c.n_lines >= MAX_OWNER_LINES)
        rc = fail_with(STORE_EQUOTA, err, errlen,
                       "%d batches of this key have not ended, with %lld lines, and the limits are "
                       "%d and %d.",
                       c.n_unfinished, (long long)c.n_lines, MAX_OWNER_BATCHES, MAX_OWNER_LINES);
    if (rc) {
        json_decref(doc);
        return rc;
    }
    if (c.n_ended >= MAX_OWNER_ENDED) store_remove(b->store, STORE_BATCHES, owner, c.oldest);
    rc = store_add(b->store, STORE_BATCHES, doc, err, errlen);
    batches_wake(b);
    return rc;
}

/* Takes members, and gives them a status with its time. */
static json_t *with_status(json_t *members, const char *status)
{
    char name[32];
    snprintf(name, sizeof(name), "%s_at", status);
    json_object_set_new(members, "status", json_string(status));
    json_object_set_new(members, name, json_integer(store_now_s()));
    return members;
}

int batches_cancel(struct batches *b, const uint8_t *owner, const char *id, char *err,
                   size_t errlen)
{
    char status[16];
    int rc = 1;
    while (rc == 1) { /* it may go on meanwhile */
        {
            HOLD(store_lock(b->store));
            const struct store_item *i = store_find(b->store, STORE_BATCHES, owner, id);
            snprintf(status, sizeof(status), "%s", i ? store_text(i->doc, "status") : "");
        }
        if (!strcmp(status, "cancelling")) return 0;
        if (*status && strcmp(status, "validating") != 0 && strcmp(status, "in_progress") != 0)
            return fail_with(-SRV_ERR_INVALID_VALUE, err, errlen,
                             "The batch is %s: only one that is validating or in progress can be "
                             "cancelled.",
                             status);
        rc = store_update(b->store, STORE_BATCHES, owner, id, status,
                          with_status(json_object(), "cancelling"), true, err, errlen);
    }
    batches_wake(b);
    return rc;
}

int batches_remove_file(struct batches *b, const uint8_t *owner, const char *id)
{
    HOLD(&b->make);
    if (!exists(b, STORE_FILES, owner, id)) return STORE_ENOENT;
    if (count_batches(b, NULL, id).needs_file) return STORE_EINUSE;
    return store_remove(b->store, STORE_FILES, owner, id);
}

/* A fault of the disk or of memory: nothing runs for a while, and all is tried again. */
static int pause_for(struct batches *b, const char *what)
{
    b->paused_until_us = clock_now_us() + PAUSE_US;
    if (!b->fault_noted)
        srv_log(SRV_LOG_ERROR, "batches rest, and are tried again every %d s: %s",
                PAUSE_US / SECOND_US, what);
    b->fault_noted = true;
    return -1;
}

/* Looks at a batch as it is now: only its status changes under a work. Returns false if it is not
 * there. */
static bool look(struct batches *b, struct work *w, const char *id)
{
    HOLD(store_lock(b->store));
    const struct store_item *i = store_find(b->store, STORE_BATCHES, NULL, id);
    if (i && !w->doc) w->doc = json_deep_copy(i->doc);
    if (!i || !w->doc) return false;
    memcpy(w->owner, i->owner, sizeof(w->owner));
    json_object_set_new(w->doc, "status", json_string(store_text(i->doc, "status")));
    bool cancelling = is_in(w->doc, "cancelling");
    if (!w->code && (cancelling || number_of(w->doc, "expires_at") <= store_now_s())) {
        w->code = cancelling ? "batch_cancelled" : "batch_expired";
        w->end_us = clock_now_us() + GRACE_US;
    }
    return true;
}

/* Takes members of the document. Durable if the status changes. 0, 1: the status was another one;
 * or -1. */
static int set(struct batches *b, struct work *w, json_t *members)
{
    const char *id = store_text(w->doc, "id");
    char err[500] = "no memory";
    bool durable = json_object_get(members, "status");
    int rc = store_update(b->store, STORE_BATCHES, NULL, id,
                          durable ? store_text(w->doc, "status") : NULL, members, durable, err,
                          sizeof(err));
    if (rc < 0) pause_for(b, err);
    look(b, w, id);
    return rc;
}

/* ---- beginning and ending ------------------------------------------------------------------ */

static void close_work(struct work *w)
{
    file_close(&w->fd);
    plan_finish(&w->plan);
    results_close(&w->results);
    json_decref(w->doc);
    *w = (struct work){.fd = -1, .results.fd = -1};
}

/* Gives up what runs; it is begun again later. */
static void drop_lines(struct batches *b)
{
    for (int i = 0; i < MAX_RUNNING; i++) {
        struct slot *s = &b->slots[i];
        srv_local_end(&s->request, false);
        buf_finish(&s->answer);
        *s = (struct slot){0};
    }
    b->work.next = 0;
    b->n_running = 0;
}

static void remove_results(const struct batches *b, const char *id)
{
    char name[STORE_NAME_CHARS];
    store_name(name, id, ".results");
    unlinkat(store_dir(b->store, STORE_BATCHES), name, 0);
}

static bool has_model(const struct plan_rules *rules, const char *name)
{
    struct srv_models *models = &rules->server->app->models;
    const struct srv_config *config = rules->server->config;
    int entry;
    return config->accept_any_model || (srv_is_placeholder(name) && !config->strict_model) ||
           srv_models_find_of(models, rules->only, name, false) >= 0 ||
           (srv_loras_look(models, name), srv_loras_find(models, rules->only, name, &entry));
}

static int read_plan(struct batches *b, struct work *w)
{
    struct srv_key_words words = {0};
    srv_keys_find(b->server->keys, w->owner, &words);
    int64_t most = MAX_OWNER_LINES - count_batches(b, w->owner, NULL).n_lines;
    const char *url = store_text(w->doc, "endpoint");
    struct plan_rules rules = {
        .routes = b->server->routes,
        .url = url,
        .max_line_bytes = (size_t)b->server->config->max_body_bytes + LINE_SPARE_BYTES,
        .max_lines = is_in(w->doc, "validating") && most < MAX_LINES ? most : MAX_LINES,
        .max_inputs = strcmp(url, "/v1/embeddings") ? INT64_MAX : MAX_INPUTS,
        .has_model = has_model,
        .server = b->server,
        .only = *words.models ? words.models : NULL};
    return plan_read(&w->plan, w->fd, &rules);
}

/* Ends a batch whose input cannot be run. */
static int fail_batch(struct batches *b, struct work *w)
{
    bool cancelled = is_in(w->doc, "cancelling");
    json_t *members = cancelled ? json_object()
                                : json_pack("{s:{s:s,s:o}}", "errors", "object", "list", "data",
                                            json_deep_copy(w->plan.errors));
    remove_results(b, store_text(w->doc, "id"));
    return set(b, w, with_status(members, cancelled ? "cancelled" : "failed"));
}

/* Notes in the document what was read of the input, or fails the batch. 1: it has ended. */
static int check_input(struct batches *b, struct work *w)
{
    const char *hash = store_text(w->doc, "_hash");
    bool changed = w->fd < 0 || (*hash && strcmp(hash, w->plan.hash) != 0);
    if (changed || *hash)
        json_array_clear(w->plan.errors); /* models may have gone since: their lines fail */
    if (changed)
        json_array_append_new(w->plan.errors,
                              json_pack("{s:s,s:n,s:s,s:n}", "code", "input_changed", "line",
                                        "message", "The input file is not as it was validated.",
                                        "param"));
    if (json_array_size(w->plan.errors)) return fail_batch(b, w) ? -1 : 1;
    if (*hash) return 0;
    json_t *members = results_members(&(struct results){.n_lines = (int64_t)w->plan.n_lines});
    json_object_set_new(members, "_hash", json_string(w->plan.hash));
    json_object_set_new(members, "model",
                        *w->plan.model ? json_string(w->plan.model) : json_null());
    if (is_in(w->doc, "validating")) with_status(members, "in_progress");
    return set(b, w, members);
}

/* Opens a batch, and validates it if that has not been done. 0: it may run; 1: it has ended, or its
 * status has changed; or -1. */
static int open_work(struct batches *b, struct work *w, const char *id)
{
    char name[STORE_NAME_CHARS], err[500] = "";
    *w = (struct work){.fd = -1, .results.fd = -1, .since_us = clock_now_us()};
    if (!look(b, w, id)) return 1;
    store_name(name, id, ".results");
    w->fd = store_file_open(b->store, store_text(w->doc, "input_file_id"));
    int rc = w->fd < 0 ? !(w->plan.errors = json_array()) : read_plan(b, w);
    if (!rc) rc = check_input(b, w);
    if (rc < 0 && !is_paused(b)) pause_for(b, "an input cannot be read");
    if (rc) return rc;
    if (results_open(&w->results, store_dir(b->store, STORE_BATCHES), name,
                     (int64_t)w->plan.n_lines, err, sizeof(err)))
        return pause_for(b, err);
    w->changed = true;
    return 0;
}

static bool is_done(const struct work *w)
{
    const int64_t *n = w->results.n_of;
    return n[RESULTS_GOOD] + n[RESULTS_FAILED] + n[RESULTS_UNRUN] == w->results.n_lines;
}

/* Reads a line's text and parts. */
static int read_line(const struct batches *b, const struct work *w, const struct plan_line *l,
                     struct buf *text, struct batch_line *ret, uint8_t digest[SHA256_BYTES])
{
    struct batch_refusal why = {0};
    buf_init(text, (size_t)b->server->config->max_body_bytes + LINE_SPARE_BYTES);
    int rc = plan_line_text(l, w->fd, text);
    if (!rc) rc = batch_line_read(ret, text->data, text->len, b->server->routes, NULL, &why);
    if (!rc) sha256(digest, text->data, text->len);
    return rc || why.code ? -1 : 0;
}

/* The answer is filled in but for what the line has. */
static int record(const struct batches *b, struct work *w, const struct plan_line *l,
                  struct batch_answer *a, const uint32_t *tokens)
{
    AUTO(buf_finish) struct buf text = {0};
    AUTO(buf_finish) struct buf to = {.max = RESULTS_MAX_BYTES};
    struct batch_line p;
    uint8_t digest[SHA256_BYTES];
    enum results_kind kind = !a->status         ? RESULTS_UNRUN
                             : a->status >= 300 ? RESULTS_FAILED
                                                : RESULTS_GOOD;
    if (read_line(b, w, l, &text, &p, digest)) return -1;
    a->digest = digest;
    a->line = &p;
    batch_answer_write(&to, a);
    w->changed = true;
    return to.failed ? -1 : results_add(&w->results, l->number, kind, to.data, to.len, tokens);
}

/* The lines that have no answer will not have one. */
static int end_lines(struct batches *b, struct work *w)
{
    bool expired = w->code && !strcmp(w->code, "batch_expired");
    struct batch_answer a = {.code = w->code,
                             .message = expired ? "The batch expired before the line began."
                                                : "The batch was cancelled before it began."};
    for (size_t i = 0; i < w->plan.n_lines; i++) {
        const struct plan_line *l = &w->plan.lines[i];
        if (w->results.lines[l->number].kind) continue;
        if (record(b, w, l, &a, NULL)) return -1;
        srv_metrics_count(b->server->metrics,
                          expired ? SRV_COUNT_BATCH_EXPIRED : SRV_COUNT_BATCH_CANCELLED);
    }
    return 0;
}

/* Writes the file of the good lines or of the others, if there are any, and adds its id to the
 * members. That is made of the batch's, so what an earlier try has written stays. */
static int write_file(struct batches *b, struct work *w, bool good, json_t *members)
{
    const struct results *r = &w->results;
    struct store_item *u;
    char name[100], id[STORE_ID_CHARS + 1], err[500];
    uint8_t digest[SHA256_BYTES];
    if (good ? !r->n_of[RESULTS_GOOD] : r->n_of[RESULTS_GOOD] == r->n_lines) return 0;
    snprintf(name, sizeof(name), "%s_%s.jsonl", store_text(w->doc, "id"),
             good ? "output" : "error");
    sha256(digest, name, strlen(name));
    hex_write(stpcpy(id, "file-"), digest, 16);
    json_object_set_new(members, good ? "output_file_id" : "error_file_id", json_string(id));
    if (exists(b, STORE_FILES, w->owner, id)) return 0;
    int rc = store_upload_begin(b->store, w->owner, id, &u, err, sizeof(err));
    if (rc) return pause_for(b, err);
    if (results_write(r, good, u->fd))
        rc = fail_with(-1, err, sizeof(err), "an output cannot be written: %s", strerror(errno));
    else
        rc = store_upload_end(u, name, "batch_output", number_of(w->doc, "_keep_s"), err,
                              sizeof(err));
    if (!rc) return 0;
    store_upload_drop(u);
    return pause_for(b, err);
}

/* Ends a batch of which nothing runs. 0, or -1: it is tried again. */
static int settle(struct batches *b, struct work *w)
{
    /* Durable before the first file has its name: the second is to have all other lines. */
    if ((!is_done(w) && end_lines(b, w)) || results_sync(&w->results))
        return pause_for(b, "answers cannot be written");
    if (is_in(w->doc, "in_progress") && set(b, w, with_status(json_object(), "finalizing")))
        return -1;
    const char *status = is_in(w->doc, "cancelling")      ? "cancelled"
                         : w->results.n_of[RESULTS_UNRUN] ? "expired"
                                                          : "completed";
    json_t *members = with_status(results_members(&w->results), status);
    bool failed = write_file(b, w, true, members) || write_file(b, w, false, members);
    if (failed) json_decref(members);
    if (failed || set(b, w, members)) return -1;
    remove_results(b, store_text(w->doc, "id"));
    b->fault_noted = false;
    srv_log(SRV_LOG_INFO, "batch %s: %s, %lld of %lld lines are good", store_text(w->doc, "id"),
            status, (long long)w->results.n_of[RESULTS_GOOD], (long long)w->results.n_lines);
    return 0;
}

/* ---- lines --------------------------------------------------------------------------------- */

static int start_line(struct batches *b, struct slot *s)
{
    struct work *w = &b->work;
    struct batch_line p;
    uint8_t digest[SHA256_BYTES];
    AUTO(buf_finish) struct buf text = {0};
    if (read_line(b, w, s->line, &text, &p, digest)) return -1;
    buf_init(&s->answer, MAX_ANSWER_BYTES);
    s->request =
        (struct srv_local){.wake = batches_wake, .ctx = b, .tenant = w->owner, .spare = true};
    return srv_local_begin(&s->request, b->server, p.url, p.body, p.n_body, digest,
                           number_of(w->doc, "created_at"));
}

static const struct plan_line *next_line(struct work *w)
{
    while (w->next < w->plan.n_lines && w->results.lines[w->plan.lines[w->next].number].kind)
        w->next++;
    return w->next < w->plan.n_lines ? &w->plan.lines[w->next++] : NULL;
}

/* Returns the number of lines that run or are about to. */
static int start_lines(struct batches *b)
{
    int n = 0, n_running = 0, most = b->server->config->parallel + SPARE_RUNNING;
    bool begins = !b->work.code && !b->work.yields;
    for (int i = 0; i < MAX_RUNNING && i < most; i++) {
        struct slot *s = &b->slots[i];
        if (!s->line && begins) s->line = next_line(&b->work);
        if (!s->request.req && !begins) *s = (struct slot){0};
        bool waits = s->line && !s->request.req && clock_now_us() >= b->rest_until_us;
        if (waits && start_line(b, s)) pause_for(b, "a line cannot be read");
        n_running += s->request.req != NULL;
        n += s->line != NULL;
    }
    b->n_running = n_running;
    return n;
}

/* The whole answer of a line is there. Returns true if that ends it. */
static bool end_line(struct batches *b, struct slot *s)
{
    struct work *w = &b->work;
    struct srv_metrics *m = b->server->metrics;
    const struct srv_account *acc = &s->request.req->facts.account;
    int status = srv_local_status(&s->request);
    const uint32_t tokens[RESULTS_TOKENS] = {(uint32_t)acc->n_prompt_tokens,
                                             (uint32_t)acc->n_cached_tokens,
                                             (uint32_t)acc->n_generated_tokens};
    if (s->answer.failed) {
        status = srv_errors[SRV_ERR_TOO_LARGE].status;
        buf_finish(&s->answer);
        buf_init(&s->answer, 1024);
        srv_error_write(&s->answer, &(struct srv_error_object){
                                        .kind = SRV_ERR_TOO_LARGE,
                                        .message = "The answer is too large for a batch."});
    }
    if (batch_answer_is_passing(status, s->answer.data, s->answer.len)) {
        b->rest_until_us = clock_now_us() + SECOND_US;
        return false;
    }
    bool failed = status == srv_errors[SRV_ERR_INTERNAL].status && !s->again;
    s->again |= failed;
    if (failed) return false;
    struct batch_answer a = {.status = status,
                             .request_id = srv_local_id(&s->request),
                             .body = s->answer.data,
                             .n_body = s->answer.len};
    if (record(b, w, s->line, &a, tokens)) {
        pause_for(b, "an answer cannot be written");
        return false;
    }
    b->fault_noted = false;
    srv_metrics_count(m, status < 300 ? SRV_COUNT_BATCH_COMPLETED : SRV_COUNT_BATCH_FAILED);
    for (int i = 0; i < RESULTS_TOKENS; i++)
        srv_metrics_add(m, (enum srv_count)(SRV_COUNT_BATCH_PROMPT + i), (int)tokens[i]);
    return true;
}

static void take_answers(struct batches *b)
{
    for (int i = 0; i < MAX_RUNNING; i++) {
        struct slot *s = &b->slots[i];
        if (!s->request.req || !srv_local_take(&s->request, &s->answer)) continue;
        bool ended = end_line(b, s);
        srv_local_end(&s->request, true);
        buf_finish(&s->answer);
        if (ended) *s = (struct slot){0};
    }
}

/* ---- which batch --------------------------------------------------------------------------- */

struct choice {
    enum { NOW, AFTER, BEFORE, NONE } rank;
    bool others; /* wait for their turn */
    char id[STORE_ID_CHARS + 1];
    uint8_t owner[STORE_OWNER];
};

/* The best of those that are not worked on. */
static struct choice choose(struct batches *b)
{
    const struct work *w = &b->work;
    const struct store_item *i;
    struct choice c = {.rank = NONE};
    HOLD(store_lock(b->store));
    for (size_t at = 0; (i = store_next(b->store, STORE_BATCHES, NULL, false, &at));) {
        if (has_ended(i->doc) || !strcmp(i->id, store_text(w->doc, "id"))) continue;
        /* Those that are to be checked or ended do not wait for others. */
        bool runs = is_in(i->doc, "in_progress") && number_of(i->doc, "expires_at") > store_now_s();
        int rank = !runs ? NOW : memcmp(i->owner, b->last_owner, STORE_OWNER) > 0 ? AFTER : BEFORE;
        c.others |= runs && memcmp(i->owner, w->owner, STORE_OWNER) != 0;
        if (rank > (int)c.rank ||
            (rank == (int)c.rank && (!rank || memcmp(i->owner, c.owner, STORE_OWNER) >= 0)))
            continue;
        c.rank = rank;
        memcpy(c.id, i->id, sizeof(c.id));
        memcpy(c.owner, i->owner, sizeof(c.owner));
    }
    return c;
}

/* Runs the batch that is open. */
static void run_work(struct batches *b, bool others_wait)
{
    struct work *w = &b->work;
    struct srv_models_view models;
    uint64_t now_us = clock_now_us();
    look(b, w, store_text(w->doc, "id"));
    w->yields |= others_wait && now_us > w->since_us + TURN_US;
    take_answers(b);
    srv_models_look(&b->server->app->models, &models);
    bool rests = is_paused(b) || models.n_draining;
    if (rests || (w->code && now_us > w->end_us)) drop_lines(b);
    if (rests) return;
    int n = start_lines(b);
    if (w->changed) set(b, w, results_members(&w->results));
    w->changed = false;
    if (n) return;
    if (is_done(w) || w->code ? settle(b, w) == 0 : w->yields) close_work(w);
}

/* Returns true if there may be more to do at once. */
static bool step(struct batches *b)
{
    struct work *w = &b->work, other;
    bool is_free = !w->doc;
    if (is_free && is_paused(b)) return false;
    struct choice c = choose(b);
    if (!is_free) run_work(b, c.others);
    if (c.rank == NONE || (c.rank && !is_free) || is_paused(b)) return !is_free && !w->doc;
    int rc = open_work(b, &other, c.id);
    if (!rc && (other.code || is_done(&other))) rc = settle(b, &other) ? -1 : 1;
    if (rc || !is_free) {
        close_work(&other);
    } else {
        *w = other;
        memcpy(b->last_owner, w->owner, sizeof(b->last_owner));
    }
    return rc >= 0;
}

/* ---- looking after ------------------------------------------------------------------------- */

/* Ends a batch whose key has gone. */
static void cancel_orphan(struct batches *b)
{
    char id[STORE_ID_CHARS + 1] = "";
    const struct store_item *i;
    if (!b->server->keys) return;
    {
        HOLD(store_lock(b->store));
        for (size_t at = 0; (i = store_next(b->store, STORE_BATCHES, NULL, false, &at));)
            if (!has_ended(i->doc) && !is_in(i->doc, "cancelling") &&
                !srv_keys_find(b->server->keys, i->owner, NULL))
                memcpy(id, i->id, sizeof(id));
    }
    if (*id) batches_cancel(b, NULL, id, NULL, 0);
}

static void remove_expired(struct batches *b)
{
    char ids[MAX_EXPIRED][STORE_ID_CHARS + 1];
    const struct store_item *i;
    int n = 0;
    {
        HOLD(store_lock(b->store));
        for (size_t at = 0; (i = store_next(b->store, STORE_FILES, NULL, false, &at));)
            if (n < MAX_EXPIRED && number_of(i->doc, "expires_at") <= store_now_s())
                memcpy(ids[n++], i->id, sizeof(ids[0]));
    }
    while (n--)
        batches_remove_file(b, NULL, ids[n]);
}

/* Once a second. */
static void look_after(struct batches *b)
{
    b->looked_us = clock_now_us();
    cancel_orphan(b);
    remove_expired(b);
    if (b->work.doc && results_sync(&b->work.results)) pause_for(b, "answers cannot be written");
}

void batches_look(struct batches *b, struct srv_metrics_batches *ret)
{
    static const char *const statuses[SRV_BATCH_STATUSES] = {SRV_BATCH_STATUS_NAMES};
    const struct store_item *item;
    *ret = (struct srv_metrics_batches){.n_running = b->n_running, .is_paused = is_paused(b)};
    HOLD(store_lock(b->store));
    for (size_t at = 0; (item = store_next(b->store, STORE_BATCHES, NULL, false, &at));) {
        const json_t *doc = item->doc, *counts = json_object_get(doc, "request_counts");
        for (int i = 0; i < SRV_BATCH_STATUSES; i++)
            ret->by_status[i] += is_in(doc, statuses[i]);
        if (has_ended(doc)) continue;
        int64_t age_s = store_now_s() - number_of(doc, "created_at");
        ret->n_waiting += number_of(counts, "total") - number_of(counts, "completed") -
                          number_of(counts, "failed");
        if (age_s > ret->age_s) ret->age_s = age_s;
    }
    for (size_t at = 0; (item = store_next(b->store, STORE_FILES, NULL, false, &at));)
        ret->bytes[strcmp(store_text(item->doc, "purpose"), "batch") != 0] += item->bytes;
}

/* ---- the thread ---------------------------------------------------------------------------- */

void batches_wake(void *batches)
{
    struct batches *b = batches;
    HOLD(&b->lock);
    b->woken = true;
    pthread_cond_signal(&b->changed);
}

/* Waits for something to do. Returns false if the server ends. */
static bool wait_for_work(struct batches *b, bool at_once)
{
    struct timespec until = clock_after_ms(TICK_MS);
    HOLD(&b->lock);
    if (!b->woken && !b->stopping && !at_once)
        pthread_cond_timedwait(&b->changed, &b->lock, &until);
    b->woken = false;
    return !b->stopping;
}

static void *run(void *arg)
{
    struct batches *b = arg;
    bool more = false;
    while (wait_for_work(b, more)) {
        more = atomic_load(b->server->state) == SRV_READY && step(b);
        if (clock_now_us() >= b->looked_us + SECOND_US) look_after(b);
    }
    drop_lines(b);
    if (b->work.doc) results_sync(&b->work.results);
    close_work(&b->work);
    return NULL;
}

/* A process that was killed may have left the results of a batch that has ended. */
static void clean(struct batches *b)
{
    const struct store_item *i;
    HOLD(store_lock(b->store));
    for (size_t at = 0; (i = store_next(b->store, STORE_BATCHES, NULL, false, &at));)
        if (has_ended(i->doc)) remove_results(b, i->id);
}

int batches_create(struct batches **ret, struct srv_server *server, const char *dir,
                   int64_t most_bytes, char *err, size_t errlen)
{
    struct batches *b = calloc(1, sizeof(*b));
    if (!b) return fail_with(-1, err, errlen, "no memory for batches");
    b->server = server;
    pthread_mutex_init(&b->make, NULL);
    pthread_mutex_init(&b->lock, NULL);
    thread_cond_init(&b->changed);
    close_work(&b->work);
    int rc = store_open(&b->store, dir, most_bytes, err, errlen);
    if (!rc) clean(b);
    int failed = rc ? 0 : thread_start(&b->thread, "hearth-batches", 0, run, b);
    b->started = !rc && !failed;
    if (!b->started) batches_destroy(b);
    if (failed) return fail_with(-1, err, errlen, "batches cannot start: %s", strerror(failed));
    if (!rc) *ret = b;
    return rc ? -1 : 0;
}

void batches_stop(struct batches *b)
{
    if (!b || !b->started) return;
    b->stopping = true;
    batches_wake(b);
    pthread_join(b->thread, NULL);
    b->started = false;
}

void batches_destroy(struct batches *b)
{
    if (!b) return;
    batches_stop(b);
    store_close(b->store);
    pthread_cond_destroy(&b->changed);
    pthread_mutex_destroy(&b->lock);
    pthread_mutex_destroy(&b->make);
    free(b);
}
