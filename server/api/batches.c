/* SPDX-License-Identifier: MIT */
/*
 * OpenAI's /v1/files and /v1/batches, with --batch-dir. Another key's files and batches answer as
 * those that do not exist. The batches themselves are run by batch/runner.c.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/hex.h"
#include "base/sha256.h"
#include "base/utf8.h"
#include "server/api/read/json_fields.h"
#include "server/api/routes.h"
#include "server/batch/results.h"
#include "server/batch/runner.h"
#include "server/http/multipart.h"
#include "server/http/request.h"
#include "server/models/app.h"

enum { MAX_FILES_PAGE = 10000, MAX_BATCHES_PAGE = 100, BATCHES_PAGE = 20 };
enum { MIN_KEEP_S = 3600, MAX_KEEP_S = 2592000 }; /* of a file */

/* The request is one of the endpoint "batches" from then on. */
static struct batches *batches_of(struct srv_request *req)
{
    srv_facts(req)->account.endpoint = "batches";
    return srv_facts(req)->app->batches;
}

static struct store *store_of(struct srv_request *req)
{
    return batches_store(batches_of(req));
}

static const char no_such[] = "There is no such file or batch.";

/* rc: minus the kind of the error. What has to do with the disk is for the log alone. */
static void reply_failed(struct srv_request *req, int rc, const char *param, const char *why)
{
    bool is_public = rc != STORE_EIO && rc != STORE_ENOMEM;
    if (!is_public) srv_log(SRV_LOG_ERROR, "batches: %s", why);
    srv_reply_error(req, (enum srv_error) - rc, is_public ? param : NULL, "%s",
                    is_public ? why : "It cannot be stored; see the log.");
}

/* ---- documents ----------------------------------------------------------------------------- */

/* The members of a batch that an operator sees. */
static char *outline(const json_t *doc)
{
    static const char *const names[] = {"id", "object", "status", "created_at", "request_counts"};
    json_auto_t *o = json_object();
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        json_object_set(o, names[i], json_object_get(doc, names[i]));
    json_object_set_new(o, "owner", json_stringn(store_text(doc, "owner"), 8));
    return json_dumps(o, JSON_COMPACT);
}

static void add_document(struct jw *w, const json_t *doc, bool for_operator)
{
    AUTO_FREE char *text = for_operator ? outline(doc) : store_public(doc);
    jw_json(w, NULL, text ? text : "null", text ? strlen(text) : 4);
}

/* Answers with a document, if there is one of this id. */
static void reply_document(struct srv_request *req, enum store_folder folder, const char *id)
{
    AUTO(buf_finish) struct buf b = {.max = 1 << 20};
    struct jw w = {.out = &b};
    struct store *store = store_of(req);
    {
        HOLD(store_lock(store));
        const struct store_item *i = store_find(store, folder, srv_facts(req)->tenant, id);
        if (i) add_document(&w, i->doc, false);
    }
    if (b.len)
        srv_reply(req, 200, NULL, jw_end(&w));
    else
        reply_failed(req, STORE_ENOENT, "id", no_such);
}

static void get_document(struct srv_request *req)
{
    reply_document(req, *(const enum store_folder *)srv_facts(req)->arg, srv_facts(req)->tail);
}

/* Which documents are asked for. */
struct page {
    enum store_folder folder;
    const char *after, *purpose; /* NULL: any */
    bool oldest_first, of_all;   /* of_all: the operator's list */
    long most;
};

/* Writes their list. Returns false if there is none with the id `after`. */
static bool write_page(struct store *store, const uint8_t *owner, const struct page *p,
                       struct jw *w)
{
    const char *first = NULL, *last = NULL;
    bool begun = !p->after;
    long n = 0;
    const struct store_item *i;
    HOLD(store_lock(store));
    jw_fields(w, "object %s data [", "list");
    for (size_t at = 0;
         n <= p->most && (i = store_next(store, p->folder, owner, !p->oldest_first, &at));) {
        if (p->purpose && strcmp(p->purpose, store_text(i->doc, "purpose")) != 0) continue;
        bool is_shown = begun && n++ < p->most;
        begun |= !begun && !strcmp(p->after, i->id);
        if (!is_shown) continue;
        if (n == 1) first = i->id;
        last = i->id;
        add_document(w, i->doc, p->of_all);
    }
    jw_fields(w, "} first_id %s last_id %s has_more %i", first, last, n > p->most);
    return begun;
}

static void list_documents(struct srv_request *req)
{
    struct store *store = store_of(req);
    bool files = *(const enum store_folder *)srv_facts(req)->arg == STORE_FILES;
    const char *limit = srv_request_query(req, "limit"), *order = srv_request_query(req, "order");
    int most = files ? MAX_FILES_PAGE : MAX_BATCHES_PAGE;
    struct page page = {.folder = files ? STORE_FILES : STORE_BATCHES,
                        .after = srv_request_query(req, "after"),
                        .purpose = files ? srv_request_query(req, "purpose") : NULL,
                        .oldest_first = order && !strcmp(order, "asc"),
                        .of_all = !files && srv_request_query(req, "all"),
                        .most = files ? MAX_FILES_PAGE : BATCHES_PAGE};
    char *end = NULL;
    struct srv_object a;
    if (limit) page.most = strtol(limit, &end, 10);
    if (page.most < 1 || page.most > most || (end && *end)) {
        srv_reply_error(req, SRV_ERR_INVALID_VALUE, "limit", "'limit' must be from 1 to %d.", most);
    } else if (!write_page(store, page.of_all ? NULL : srv_facts(req)->tenant, &page,
                           srv_object_open(&a, 64 << 20))) {
        buf_finish(&a.text);
        srv_reply_error(req, SRV_ERR_INVALID_VALUE, "after", "'after' is not an id of the list.");
    } else {
        srv_object_reply(req, 200, &a);
    }
}

/* ---- uploads ------------------------------------------------------------------------------- */

enum part { FILE_PART, PURPOSE, ANCHOR, SECONDS, N_PARTS };
static const char *const part_names[N_PARTS + 1] = {"file", "purpose", "expires_after[anchor]",
                                                    "expires_after[seconds]", NULL};

struct upload {
    struct srv_request *req;
    struct multipart form;
    struct store_item *file; /* NULL: none has come */
    int part;                /* that comes; -1: an unknown one */
    char text[N_PARTS][64];  /* of those that are no files */
    char name[256];
    char id[STORE_ID_CHARS + 1];
    int rc; /* minus a srv_error: why the rest of the body is not looked at; or 0 */
    char why[500];
};

#define refuse(u, ...)                                                                             \
    ((u)->rc = fail_with(-SRV_ERR_INVALID_VALUE, (u)->why, sizeof((u)->why), __VA_ARGS__))

static void make_id(struct srv_request *req, uint8_t id[SHA256_BYTES])
{
    sha256(id, srv_facts(req)->unique, sizeof(srv_facts(req)->unique));
}

/* The name is shown and never opened: its last part, cut between characters. */
static int take_name(struct upload *u, const char *name)
{
    const char *slash = strrchr(name, '/'), *back = strrchr(name, '\\');
    if (back > slash) slash = back;
    if (slash) name = slash + 1;
    size_t n = strnlen(name, sizeof(u->name) - 1);
    if (!utf8_valid(name, strlen(name))) return refuse(u, "'filename' must be UTF-8.");
    while ((name[n] & 0xC0) == 0x80)
        n--;
    memcpy(u->name, name, n);
    return 0;
}

static int begin_part(struct upload *u)
{
    const char *name = u->form.name, *filename = u->form.filename;
    uint8_t id[SHA256_BYTES];
    u->part = param_find_word(part_names, name);
    if (u->part < 0) return 0;
    if (u->part != FILE_PART ? *u->text[u->part] : u->file != NULL)
        return refuse(u, "There is more than one part '%s'.", name);
    if (u->part != FILE_PART) return 0;
    if (!filename || !*filename) return refuse(u, "The part 'file' must have a filename.");
    make_id(u->req, id);
    hex_write(stpcpy(u->id, "file-"), id, 16);
    if (take_name(u, filename)) return u->rc;
    return u->rc = store_upload_begin(store_of(u->req), srv_facts(u->req)->tenant, u->id, &u->file,
                                      u->why, sizeof(u->why));
}

static int take_data(struct upload *u, const char *data, size_t n)
{
    if (u->part < 0) return 0;
    if (u->part == FILE_PART)
        return u->rc = store_upload_add(u->file, data, n, u->why, sizeof(u->why));
    char *text = u->text[u->part];
    size_t len = strlen(text);
    if (n >= sizeof(u->text[0]) - len || memchr(data, '\0', n))
        return refuse(u, "The part '%s' is too long.", part_names[u->part]);
    memcpy(text + len, data, n);
    return 0;
}

static size_t take_piece(struct srv_request *req, const char *data, size_t n)
{
    struct srv_facts *f = srv_facts(req);
    struct upload *u = f->upload;
    size_t at = 0;
    if (!u) {
        f->upload = u = calloc(1, sizeof(*u));
        if (!u) return n;
        u->req = req;
        u->part = -1;
        if (!multipart_init(&u->form, srv_request_header(req, "Content-Type")))
            refuse(u, "The Content-Type has no boundary.");
    }
    while (!u->rc) {
        switch (multipart_next(&u->form, data, n, &at)) {
        case MULTIPART_PART: begin_part(u); break;
        case MULTIPART_DATA: take_data(u, u->form.data, u->form.n_data); break;
        case MULTIPART_EINVAL: refuse(u, "The body is not a form: %s.", u->form.problem); break;
        default: return at;
        }
    }
    return n;
}

static void drop_upload(void *upload)
{
    struct upload *u = upload;
    store_upload_drop(u->file);
    free(u);
}

static int check_form(struct upload *u, int64_t *ret_keep_s)
{
    static const char *const others[] = {"user_data",  "evals",  "fine-tune",
                                         "assistants", "vision", NULL};
    const char *seconds = u->text[SECONDS];
    char *end;
    if (u->rc) return u->rc;
    if (u->form.state != MULTIPART_ENDED)
        return refuse(u, "The body is not a form: the last boundary is missing.");
    if (!u->file || !u->file->bytes) return refuse(u, "The part 'file' is missing or empty.");
    if (!*u->text[PURPOSE]) return refuse(u, "The part 'purpose' is missing.");
    if (param_find_word(others, u->text[PURPOSE]) >= 0)
        return u->rc = fail_with(-SRV_ERR_UNSUPPORTED, u->why, sizeof(u->why),
                                 "'purpose' must be 'batch': files serve nothing else here.");
    if (strcmp(u->text[PURPOSE], "batch") != 0) return refuse(u, "'purpose' must be 'batch'.");
    if (*u->text[ANCHOR] && strcmp(u->text[ANCHOR], "created_at") != 0)
        return refuse(u, "'expires_after[anchor]' must be 'created_at'.");
    *ret_keep_s = *seconds ? strtol(seconds, &end, 10) : BATCHES_FILE_DAYS * BATCHES_DAY_S;
    if (*seconds && (*end || *ret_keep_s < MIN_KEEP_S || *ret_keep_s > MAX_KEEP_S))
        return refuse(u, "'expires_after[seconds]' must be from %d to %d.", MIN_KEEP_S, MAX_KEEP_S);
    return 0;
}

static void end_upload(struct srv_request *req)
{
    struct srv_facts *f = srv_facts(req);
    int64_t keep_s = 0;
    take_piece(req, f->body, f->body_len);
    struct upload *u = f->upload;
    if (u && !check_form(u, &keep_s))
        u->rc = store_upload_end(u->file, u->name, "batch", keep_s, u->why, sizeof(u->why));
    if (!u) {
        reply_failed(req, STORE_ENOMEM, NULL, "no memory for an upload");
    } else if (u->rc) {
        reply_failed(req, u->rc, u->rc == -SRV_ERR_UNSUPPORTED ? "purpose" : NULL, u->why);
    } else {
        u->file = NULL; /* somebody may remove it from now on */
        reply_document(req, STORE_FILES, u->id);
    }
}

/* ---- files --------------------------------------------------------------------------------- */

/* The id in a path that goes on with the suffix; "": it does not. */
static void take_id(const char *tail, const char *suffix, char id[STORE_ID_CHARS + 1])
{
    const char *end = strchr(tail, '/');
    bool good = end && !strcmp(end, suffix) && end - tail <= STORE_ID_CHARS;
    snprintf(id, STORE_ID_CHARS + 1, "%.*s", good ? (int)(end - tail) : 0, tail);
}

static void delete_file(struct srv_request *req)
{
    const struct srv_facts *f = srv_facts(req);
    int rc = batches_remove_file(batches_of(req), f->tenant, f->tail);
    struct srv_object a;
    if (rc) {
        reply_failed(req, rc, "id",
                     rc == STORE_ENOENT ? no_such
                     : rc == STORE_EINUSE
                         ? "A batch that has not ended needs the file: cancel it first."
                         : "a file cannot be removed");
    } else {
        jw_fields(srv_object_open(&a, 256), "id %s object %s deleted %i", f->tail, "file", true);
        srv_object_reply(req, 200, &a);
    }
}

/* "bytes=2-5", "bytes=2-" or "bytes=-3". Returns false for another form: all is sent. */
static bool read_range(const char *text, int64_t size, int64_t *ret_from, int64_t *ret_n)
{
    long long first, last = size - 1;
    int end = 0;
    if (sscanf(text, "bytes=-%lld%n", &first, &end) == 1)
        first = first < size ? size - first : 0;
    else if (sscanf(text, "bytes=%lld-%n%lld%n", &first, &end, &last, &end) < 1)
        return false;
    if (!end || text[end] || text[strcspn(text, "- ")] != '-' || strstr(text, "--")) return false;
    if (last >= size) last = size - 1;
    *ret_from = first;
    *ret_n = last - first + 1;
    return true;
}

/* How many bytes a file has, and the header with its name. */
static bool find_file(struct srv_request *req, const char *id, int64_t *ret_bytes, char head[300])
{
    struct store *store = store_of(req);
    HOLD(store_lock(store));
    const struct store_item *i = store_find(store, STORE_FILES, srv_facts(req)->tenant, id);
    if (!i) return false;
    *ret_bytes = i->bytes;
    char *p = stpcpy(head, "attachment; filename=\"");
    for (const char *c = store_text(i->doc, "filename"); *c; c++)
        *p++ = isalnum((unsigned char)*c) || strchr("._-", *c) ? *c : '_';
    stpcpy(p, "\"");
    return true;
}

/* GET /v1/files/{id} and /v1/files/{id}/content. */
static void get_file(struct srv_request *req)
{
    const char *unless = srv_request_header(req, "If-Range");
    const char *range = srv_request_header(req, "Range");
    char id[STORE_ID_CHARS + 1], tag[STORE_ID_CHARS + 3], text[300];
    int64_t bytes, from = 0, n;
    if (!strchr(srv_facts(req)->tail, '/')) {
        get_document(req);
        return;
    }
    take_id(srv_facts(req)->tail, "/content", id);
    int fd = find_file(req, id, &bytes, text) ? store_file_open(store_of(req), id) : -1;
    if (fd < 0) {
        reply_failed(req, STORE_ENOENT, "id", no_such);
        return;
    }
    snprintf(tag, sizeof(tag), "\"%s\"", id);
    srv_reply_header(req, "ETag", tag);
    srv_reply_header(req, "Accept-Ranges", "bytes");
    srv_reply_header(req, "Content-Disposition", text);
    bool in_part =
        range && (!unless || !strcmp(unless, tag)) && read_range(range, bytes, &from, &n);
    if (!in_part) n = bytes;
    if (n <= 0)
        snprintf(text, sizeof(text), "bytes */%lld", (long long)bytes);
    else
        snprintf(text, sizeof(text), "bytes %lld-%lld/%lld", (long long)from,
                 (long long)(from + n - 1), (long long)bytes);
    if (in_part) srv_reply_header(req, "Content-Range", text);
    srv_reply_file(req, !in_part ? 200 : n > 0 ? 206 : 416, fd, from, n > 0 ? n : 0);
}

/* ---- batches ------------------------------------------------------------------------------- */

struct batch_params {
    const char *file, *endpoint, *window;
    json_t *metadata, *keep;
};

#define FIELD(name, type, member, otherwise, meaning)                                              \
    {                                                                                              \
        PARAM_FIELD(struct batch_params, name, type, member, otherwise, meaning)                   \
    }

const struct param_field srv_fields_batches[] = {
    FIELD("input_file_id", PARAM_STRING, file, NULL, "a file with the purpose `batch`"),
    FIELD("endpoint", PARAM_STRING, endpoint, NULL,
          "the `url` of all its lines: `/v1/chat/completions`, `/v1/completions`, `/v1/responses`, "
          "`/v1/embeddings`, `/v1/rerank`, `/v1/score`, `/v1/classify` or `/v1/choose`"),
    FIELD("completion_window", PARAM_STRING, window, NULL,
          "`24h`, or `1h` to `7d`: lines that have not begun by then get the error "
          "`batch_expired`"),
    FIELD("metadata", PARAM_JSON, metadata, "none",
          "up to 16 texts of up to 512 characters, by names of up to 64"),
    FIELD("output_expires_after", PARAM_JSON, keep, "30 days",
          "`{\"anchor\": \"created_at\", \"seconds\": 3600 to 2592000}`: when its files go"),
    {0},
};

static int check_metadata(const json_t *metadata)
{
    const char *key;
    json_t *value;
    bool good = json_is_object(metadata) && json_object_size(metadata) <= 16;
    json_object_foreach((json_t *)metadata, key, value) good &=
        utf8_count(key, strlen(key)) <= 64 && json_is_string(value) &&
        utf8_count(json_string_value(value), json_string_length(value)) <= 512;
    return good ? 0
                : param_fail(SRV_ERR_INVALID_VALUE, "metadata",
                             "'metadata' must be at most 16 texts of at most 512 characters, by "
                             "names of at most 64.");
}

/* Returns the seconds, or 0. */
static int64_t read_window(const char *text)
{
    char *end;
    long n = isdigit((unsigned char)*text) ? strtol(text, &end, 10) : 0;
    if (n < 1 || n > 168 || strlen(end) != 1 || !strchr("hd", *end)) return 0;
    int64_t seconds = n * (*end == 'h' ? 3600 : BATCHES_DAY_S);
    return seconds <= 7 * BATCHES_DAY_S ? seconds : 0;
}

static int check_params(const struct batch_params *p, int64_t *ret_window_s, int64_t *ret_keep_s)
{
    static const char *const endpoints[] = {
        "/v1/chat/completions", "/v1/completions", "/v1/responses",
        "/v1/embeddings",       "/v1/rerank",      "/v1/score",
        "/v1/classify",         "/v1/choose",      NULL};
    const struct param_field *f = srv_fields_batches;
    const char *const given[] = {p->file, p->endpoint, p->window};
    const json_t *seconds = json_object_get(p->keep, "seconds");
    for (int i = 0; i < 3; i++)
        if (!given[i]) return param_fail(SRV_ERR_MISSING, f[i].name, "'%s' is missing.", f[i].name);
    if (param_find_word(endpoints, p->endpoint) < 0)
        return param_fail(SRV_ERR_INVALID_VALUE, "endpoint",
                          "'endpoint' must be a route such as /v1/chat/completions.");
    if (!(*ret_window_s = read_window(p->window)))
        return param_fail(SRV_ERR_INVALID_VALUE, "completion_window",
                          "'completion_window' must be '24h', or '1h' to '7d'.");
    *ret_keep_s = p->keep ? json_integer_value(seconds) : BATCHES_FILE_DAYS * BATCHES_DAY_S;
    if (strcmp(p->keep ? store_text(p->keep, "anchor") : "created_at", "created_at") != 0 ||
        *ret_keep_s < MIN_KEEP_S || *ret_keep_s > MAX_KEEP_S)
        return param_fail(SRV_ERR_INVALID_VALUE, "output_expires_after",
                          "'output_expires_after' must be {\"anchor\": \"created_at\", "
                          "\"seconds\": %d to %d}.",
                          MIN_KEEP_S, MAX_KEEP_S);
    return p->metadata ? check_metadata(p->metadata) : 0;
}

/* With the header Idempotency-Key, the id is made of it and the body. */
static void name_batch(struct srv_request *req, char id[STORE_ID_CHARS + 1])
{
    const struct srv_facts *f = srv_facts(req);
    const char *key = srv_request_header(req, "Idempotency-Key");
    uint8_t digest[SHA256_BYTES];
    struct sha256 h;
    make_id(req, digest);
    if (key) {
        sha256_init(&h);
        sha256_update(&h, f->tenant, sizeof(f->tenant));
        sha256_update(&h, key, strlen(key) + 1);
        sha256_update(&h, f->body, f->body_len);
        sha256_final(&h, digest);
    }
    hex_write(stpcpy(id, "batch_"), digest, 16);
}

static json_t *make_batch(const struct batch_params *p, const char *id, const uint8_t *tenant,
                          int64_t window_s, int64_t keep_s)
{
    char owner[2 * STORE_OWNER + 1];
    json_int_t now = store_now_s();
    hex_write(owner, tenant, STORE_OWNER);
    json_t *doc =
        json_pack("{s:s,s:s,s:s,s:n,s:n,s:s,s:s,s:s,s:n,s:n,s:I,s:n,s:I,s:n,s:n,s:n,s:n,s:n,s:n}",
                  "id", id, "object", "batch", "endpoint", p->endpoint, "model", "errors",
                  "input_file_id", p->file, "completion_window", p->window, "status", "validating",
                  "output_file_id", "error_file_id", "created_at", now, "in_progress_at",
                  "expires_at", now + (json_int_t)window_s, "finalizing_at", "completed_at",
                  "failed_at", "expired_at", "cancelling_at", "cancelled_at");
    json_t *rest = json_pack("{s:o?,s:s,s:I}", "metadata", json_deep_copy(p->metadata), "owner",
                             owner, "_keep_s", (json_int_t)keep_s);
    bool failed = json_object_update_new(doc, results_members(&(struct results){0}));
    failed |= json_object_update_new(doc, rest) != 0;
    if (!failed) return doc;
    json_decref(doc);
    return NULL;
}

static void create_batch(struct srv_request *req)
{
    const struct srv_facts *f = srv_facts(req);
    struct batches *batches = batches_of(req);
    struct batch_params p = {0};
    struct param_unknown unknown = {0};
    struct srv_body body;
    AUTO(buf_finish) struct buf b = {.max = 1 << 20};
    struct jw w = {.out = &b};
    char id[STORE_ID_CHARS + 1], why[500] = "no memory";
    int64_t window_s = 0, keep_s = 0;
    int rc = srv_body_take(&body, srv_facts(req), PARAM_MAX_VALUES) ||
             params_read(body.root, srv_fields_batches, &p, &unknown) ||
             check_params(&p, &window_s, &keep_s) || param_name_ignored(req, &unknown);
    if (rc) {
        param_reply(req);
    } else {
        name_batch(req, id);
        json_t *doc = make_batch(&p, id, f->tenant, window_s, keep_s);
        if (doc) add_document(&w, doc, false); /* it may have gone on before the next look at it */
        rc = doc ? batches_add(batches, f->tenant, doc, why, sizeof(why)) : STORE_ENOMEM;
        if (!rc)
            srv_reply(req, 200, NULL, jw_end(&w));
        else if (rc == 1)
            reply_document(req, STORE_BATCHES, id);
        else if (rc == STORE_ENOENT)
            reply_failed(req, rc, "input_file_id", "There is no such file.");
        else
            reply_failed(req, rc, NULL, why);
    }
    srv_body_finish(&body);
}

/* POST /v1/batches/{id}/cancel */
static void cancel_batch(struct srv_request *req)
{
    const struct srv_facts *f = srv_facts(req);
    char id[STORE_ID_CHARS + 1], why[500];
    take_id(f->tail, "/cancel", id);
    int rc = batches_cancel(batches_of(req), f->tenant, id, why, sizeof(why));
    if (rc)
        reply_failed(req, rc, "id", rc == STORE_ENOENT ? no_such : why);
    else
        reply_document(req, STORE_BATCHES, id);
}

#define ROUTE(method, path, flags, handle, arg)                                                    \
    {                                                                                              \
        method, path, SRV_ROUTE_NO_MODEL | SRV_ROUTE_BARE | (flags), SRV_DIALECT_OPENAI, handle,   \
            arg                                                                                    \
    }

static const enum store_folder files = STORE_FILES, batches = STORE_BATCHES;
static const struct srv_sink upload_sink = {take_piece, drop_upload};

const struct srv_route srv_routes_files[] = {
    ROUTE("POST", "/v1/files", SRV_ROUTE_UPLOAD, end_upload, &upload_sink),
    ROUTE("GET", "/v1/files", 0, list_documents, &files),
    ROUTE("GET", "/v1/files/", SRV_ROUTE_PREFIX, get_file, &files),
    ROUTE("DELETE", "/v1/files/", SRV_ROUTE_PREFIX, delete_file, &files),
    {0},
};

const struct srv_route srv_routes_batches[] = {
    ROUTE("POST", "/v1/batches", 0, create_batch, &batches),
    ROUTE("GET", "/v1/batches", SRV_ROUTE_ALL, list_documents, &batches),
    ROUTE("GET", "/v1/batches/", SRV_ROUTE_PREFIX | SRV_ROUTE_INLINE, get_document, &batches),
    ROUTE("POST", "/v1/batches/", SRV_ROUTE_PREFIX, cancel_batch, &batches),
    {0},
};
