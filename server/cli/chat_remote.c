/* SPDX-License-Identifier: MIT */
/* A model behind an OpenAI-style HTTP API; see chat_remote.h. */
#include "server/cli/chat_remote.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "server/hub/transfer.h"

enum {
    BODY_MAX_BYTES = 16 << 20, /* of an answer in one piece, or a line of a stream */
    KEY_MAX_BYTES = 4096,
    LIST_TIMEOUT_MS = 10000,
};

struct remote {
    struct transfer *transfer;
    const atomic_bool *stop;
    char base[TRANSFER_URL_MAX_BYTES / 2]; /* up to /v1 */
    char authorization[KEY_MAX_BYTES + 32];
    char *model;
    json_t *models; /* the list, or NULL */

    /* the exchange in progress */
    const struct remote_calls *calls;
    struct remote_result result;
    bool is_stream, done; /* done: the end mark came */
    struct buf line;      /* of a stream; else the whole body */
    char problem[1024];
};

/* ---- the address ---------------------------------------------------------------------------- */

static int refuse_url(const char *url, char *err, size_t errlen)
{
    snprintf(err, errlen, "'%.200s' is not an http://, https:// or unix: address", url);
    return -1;
}

static int set_base(struct remote *r, const char *url, char *err, size_t errlen)
{
    struct transfer_origin origin;
    bool is_unix = strncmp(url, "unix:", 5) == 0;
    const char *base = is_unix ? "http://localhost" : url;
    size_t len = strcspn(base, "?#");
    while (len && base[len - 1] == '/')
        len--;
    bool has_version = false;
    for (const char *p = base; (p = strstr(p, "/v1")) && p < base + len; p++)
        has_version = true;
    int n = snprintf(r->base, sizeof(r->base), "%.*s%s", (int)len, base, has_version ? "" : "/v1");
    bool fits = n > 0 && n < (int)sizeof(r->base);
    if (!fits || transfer_url_origin(r->base, &origin) ||
        (strcmp(origin.scheme, "http") != 0 && strcmp(origin.scheme, "https") != 0))
        return refuse_url(url, err, errlen);
    return 0;
}

static int set_key(struct remote *r, const char *key, char *err, size_t errlen)
{
    for (const char *p = key; p && *p; p++)
        if (*p < 0x21 || *p > 0x7E || p - key > KEY_MAX_BYTES) {
            snprintf(err, errlen, "the API key is too long or has a character that no key has");
            return -1;
        }
    snprintf(r->authorization, sizeof(r->authorization), "Authorization: Bearer %s",
             key ? key : "");
    if (!key) r->authorization[0] = '\0';
    return 0;
}

/* ---- answers -------------------------------------------------------------------------------- */

/* The sentence in an error body, whatever its shape. */
static const char *message_of(json_t *error)
{
    static const char *const names[] = {"error", "message", "detail"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        json_t *value = json_object_get(error, names[i]);
        if (json_is_string(value)) return json_string_value(value);
        if (json_is_object(value)) return message_of(value);
    }
    return NULL;
}

static void take_number(json_t *object, const char *name, int64_t *ret)
{
    json_t *value = json_object_get(object, name);
    if (json_is_integer(value)) *ret = json_integer_value(value);
}

static void take_counts(struct remote *r, json_t *chunk)
{
    json_t *usage = json_object_get(chunk, "usage");
    json_t *progress = json_object_get(chunk, "prompt_progress");
    int64_t n_done = 0, n_prompt = 0;
    take_number(usage, "prompt_tokens", &r->result.n_prompt);
    take_number(usage, "completion_tokens", &r->result.n_generated);
    take_number(json_object_get(usage, "prompt_tokens_details"), "cached_tokens",
                &r->result.n_cached);
    take_number(progress, "processed", &n_done);
    take_number(progress, "total", &n_prompt);
    if (n_prompt > 0) r->calls->on_progress(r->calls->ctx, n_done, n_prompt);
}

/* A piece of a stream, or the whole answer. Returns false to end the exchange. */
static bool take_chunk(struct remote *r, json_t *chunk)
{
    json_t *choice = json_array_get(json_object_get(chunk, "choices"), 0);
    json_t *part = json_object_get(choice, r->is_stream ? "delta" : "message");
    json_t *text = json_object_get(part, "content");
    json_t *finish = json_object_get(choice, "finish_reason");
    if (json_object_get(chunk, "error")) {
        const char *message = message_of(chunk);
        snprintf(r->problem, sizeof(r->problem), "%s", message ? message : "the server failed");
        return false;
    }
    take_counts(r, chunk);
    if (json_is_string(finish))
        snprintf(r->result.finish, sizeof(r->result.finish), "%s", json_string_value(finish));
    if (!json_string_length(text)) return true;
    if (r->calls->on_text(r->calls->ctx, json_string_value(text), json_string_length(text)))
        return true;
    snprintf(r->problem, sizeof(r->problem), "the text cannot be written");
    return false;
}

static bool take_json(struct remote *r, const char *text, size_t len)
{
    json_error_t why;
    json_t *chunk = json_loadb(text, len, JSON_ALLOW_NUL, &why);
    bool good = chunk && take_chunk(r, chunk);
    if (!chunk) snprintf(r->problem, sizeof(r->problem), "the server sent bad JSON: %s", why.text);
    json_decref(chunk);
    return good;
}

static bool take_line(struct remote *r)
{
    struct buf *line = &r->line;
    bool good = true;
    size_t from = 5;
    if (line->len && line->data[line->len - 1] == '\r') line->len--;
    if (line->len > from && memcmp(line->data, "data:", from) == 0 && !r->done) {
        if (line->data[from] == ' ') from++;
        r->done = line->len - from == 6 && memcmp(line->data + from, "[DONE]", 6) == 0;
        if (!r->done) good = take_json(r, line->data + from, line->len - from);
    }
    buf_clear(line);
    return good;
}

static bool take_head(void *ctx, struct transfer *t)
{
    struct remote *r = ctx;
    const char *type = transfer_header(t, "content-type");
    r->is_stream =
        transfer_status(t) == 200 && type && strncasecmp(type, "text/event-stream", 17) == 0;
    return true;
}

static bool take_body(void *ctx, const char *data, size_t len)
{
    struct remote *r = ctx;
    while (len && !r->line.failed) {
        const char *end = r->is_stream ? memchr(data, '\n', len) : NULL;
        size_t n = end ? (size_t)(end - data) : len;
        buf_add(&r->line, data, n);
        data += n + (end != NULL);
        len -= n + (end != NULL);
        if (end && !r->line.failed && !take_line(r)) return false;
    }
    if (r->line.failed) snprintf(r->problem, sizeof(r->problem), "the answer is too large");
    return !r->line.failed;
}

/* The error of an answer with another status than 200. */
static int judge_status(struct remote *r, int status, char *err, size_t errlen)
{
    const char *wait = transfer_header(r->transfer, "retry-after");
    json_t *body = json_loadb(r->line.len ? r->line.data : "", r->line.len, 0, NULL);
    const char *message = message_of(body);
    const char *code = json_string_value(json_object_get(json_object_get(body, "error"), "code"));
    bool is_full = code && strcmp(code, "context_length_exceeded") == 0;
    if (status == 401)
        snprintf(err, errlen, "the server does not accept the API key; set HEARTH_API_KEY");
    else if (message)
        snprintf(err, errlen, "%s%s", message, is_full ? ": /new, /undo or /clear" : "");
    else
        snprintf(err, errlen, "the server answers with status %d", status);
    if (wait && *wait >= '0' && *wait <= '9') {
        size_t len = strlen(err);
        snprintf(err + len, errlen - len, " (try again in %.10s s)", wait);
    }
    json_decref(body);
    return -1;
}

/* GET, or POST of a body. A stopped exchange is good. */
static int exchange(struct remote *r, const char *path, const char *body, char *err, size_t errlen)
{
    char url[TRANSFER_URL_MAX_BYTES];
    const char *headers[] = {body ? "Content-Type: application/json" : "Accept: application/json",
                             *r->authorization ? r->authorization : NULL, NULL};
    const struct transfer_exchange x = {.url = url,
                                        .headers = headers,
                                        .body = body,
                                        .body_len = body ? strlen(body) : 0,
                                        .head_timeout_ms = body ? 0 : LIST_TIMEOUT_MS,
                                        .on_head = take_head,
                                        .on_body = take_body,
                                        .ctx = r,
                                        .stop = r->stop};
    snprintf(url, sizeof(url), "%s%s", r->base, path);
    buf_clear(&r->line);
    r->problem[0] = '\0';
    r->is_stream = r->done = false;
    enum transfer_end end = transfer_run(r->transfer, &x);
    int status = transfer_status(r->transfer);
    if (end == TRANSFER_STOPPED) return 0;
    if (r->problem[0])
        snprintf(err, errlen, "%s", r->problem);
    else if (end != TRANSFER_OK)
        snprintf(err, errlen, "%s: %s", r->base, transfer_reason(r->transfer));
    else
        return status == 200 ? 0 : judge_status(r, status, err, errlen);
    return -1;
}

int remote_answer(struct remote *r, json_t *body, const struct remote_calls *calls,
                  struct remote_result *ret, char *err, size_t errlen)
{
    r->calls = calls;
    r->result = (struct remote_result){.n_prompt = -1, .n_cached = -1, .n_generated = -1};
    json_object_set_new(body, "model", json_string(r->model));
    json_object_set_new(body, "stream", json_true());
    json_object_set_new(body, "stream_options", json_pack("{s:b}", "include_usage", 1));
    json_t *first = json_array_get(r->models, 0);
    const char *owner = json_string_value(json_object_get(first, "owned_by"));
    if (owner && strcmp(owner, "hearth") == 0) /* others may refuse what they do not know */
        json_object_set_new(body, "return_progress", json_true());
    char *text = json_dumps(body, JSON_COMPACT);
    if (!text) {
        snprintf(err, errlen, "out of memory");
        return -1;
    }
    int rc = exchange(r, "/chat/completions", text, err, errlen);
    free(text);
    bool stopped = atomic_load(r->stop);
    if (!rc && !stopped && !r->is_stream && !take_json(r, r->line.data, r->line.len)) {
        snprintf(err, errlen, "%s", r->problem);
        rc = -1;
    } else if (!rc && !stopped && r->is_stream && !r->done && !r->result.finish[0]) {
        snprintf(err, errlen, "the stream ended early");
        rc = -1;
    }
    if (stopped) r->result.finish[0] = '\0';
    *ret = r->result;
    return rc;
}

/* ---- models --------------------------------------------------------------------------------- */

static int list_models(struct remote *r, char *err, size_t errlen)
{
    if (exchange(r, "/models", NULL, err, errlen)) return -1;
    json_t *body = json_loadb(r->line.len ? r->line.data : "", r->line.len, 0, NULL);
    r->models = json_incref(json_object_get(body, "data"));
    json_decref(body);
    return 0;
}

int remote_choose(struct remote *r, const char *model, char *err, size_t errlen)
{
    json_t *first = json_array_get(r->models, 0);
    if (!model) model = json_string_value(json_object_get(first, "id"));
    char *copy = model ? strdup(model) : NULL;
    if (!copy) {
        snprintf(err, errlen, "the server lists no models: name one by --model");
        return -1;
    }
    free(r->model);
    r->model = copy;
    return 0;
}

const char *remote_model(const struct remote *r)
{
    return r->model;
}

struct remote *remote_open(const char *url, const char *key, const char *model,
                           const atomic_bool *stop, char *err, size_t errlen)
{
    struct transfer_settings settings = {
        .ca_file = getenv("CURL_CA_BUNDLE"),
        .ca_dir = getenv("SSL_CERT_DIR"),
        .unix_socket = strncmp(url, "unix:", 5) == 0 ? url + 5 : NULL,
    };
    if (!settings.ca_file) settings.ca_file = getenv("SSL_CERT_FILE");
    if (transfer_load(err, errlen)) return NULL;
    struct remote *r = calloc(1, sizeof(*r));
    if (r) r->transfer = transfer_create(&settings);
    if (!r || !r->transfer) {
        snprintf(err, errlen, "out of memory");
        goto failed;
    }
    r->stop = stop;
    buf_init(&r->line, BODY_MAX_BYTES);
    if (set_base(r, url, err, errlen) || set_key(r, key, err, errlen)) goto failed;
    bool is_listed = list_models(r, err, errlen) == 0;
    bool has_no_list = transfer_status(r->transfer) == 404;
    if (!is_listed && !(model && has_no_list)) goto failed;
    if (remote_choose(r, model, err, errlen)) goto failed;
    return r;
failed:
    remote_close(r);
    return NULL;
}

void remote_close(struct remote *r)
{
    if (!r) return;
    transfer_destroy(r->transfer);
    explicit_bzero(r->authorization, sizeof(r->authorization));
    json_decref(r->models);
    buf_finish(&r->line);
    free(r->model);
    free(r);
}
