/* SPDX-License-Identifier: MIT */
#include "server/cli/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/auto.h"
#include "base/buf.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/shown.h"
#include "engine/engine.h"
#include "server/cli/offline.h"
#include "server/models/served_model.h"
#include "server/models/set.h"

enum {
    BODY_MAX_BYTES = 16 << 20, /* of an answer in one piece, or a line of a stream */
    LIST_TIMEOUT_MS = 10000,
    MAX_GRAMMAR_BYTES = 1 << 20, /* the compiler's own limits are lower */
};

struct client {
    struct transfer *transfer; /* NULL: the model is in this process */
    struct offline *offline;
    struct srv_model *served;
    char *dir;        /* of that */
    bool has_relaxed; /* that a constraint is only approximated has been said */
    const atomic_bool *stop;
    struct client_address to;
    char *model;    /* its name */
    json_t *models; /* the server's list, or NULL */

    /* the exchange in progress */
    const struct client_calls *calls;
    struct client_result result;
    bool is_stream, done; /* done: the end mark came */
    struct buf line;      /* of a stream; else the whole body */
    char problem[1024];
};

/* ---- the address ---------------------------------------------------------------------------- */

static int set_base(struct client_address *c, const char *url, char *err, size_t errlen)
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
    int n = snprintf(c->base, sizeof(c->base), "%.*s%s", (int)len, base, has_version ? "" : "/v1");
    bool fits = n > 0 && n < (int)sizeof(c->base);
    if (fits && !transfer_url_origin(c->base, &origin) &&
        (strcmp(origin.scheme, "http") == 0 || strcmp(origin.scheme, "https") == 0))
        return 0;
    return fail_with(-1, err, errlen, "'%.200s' is not an http://, https:// or unix: address", url);
}

static int set_key(struct client_address *c, const char *key, char *err, size_t errlen)
{
    for (const char *p = key; p && *p; p++)
        if (*p < 0x21 || *p > 0x7E || p - key > (long)sizeof(c->authorization) - 32)
            return fail_with(-1, err, errlen,
                             "the API key is too long or has a character that no key has");
    snprintf(c->authorization, sizeof(c->authorization), "Authorization: Bearer %s",
             key ? key : "");
    if (!key) c->authorization[0] = '\0';
    return 0;
}

int client_address(struct client_address *ret, const char *url, const char *key, char *err,
                   size_t errlen)
{
    ret->settings = (struct transfer_settings){
        .ca_file = getenv("CURL_CA_BUNDLE"),
        .ca_dir = getenv("SSL_CERT_DIR"),
        .unix_socket = strncmp(url, "unix:", 5) == 0 ? url + 5 : NULL,
    };
    if (!ret->settings.ca_file) ret->settings.ca_file = getenv("SSL_CERT_FILE");
    return transfer_load(err, errlen) || set_base(ret, url, err, errlen) ||
                   set_key(ret, key, err, errlen)
               ? -1
               : 0;
}

const char *client_key(const struct srv_config *config)
{
    const char *key = config->api_key ? config->api_key : getenv("OPENAI_API_KEY");
    return key && *key ? key : NULL;
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

static void take_ms(json_t *chunk, const char *name, double *ret)
{
    json_t *value = json_object_get(json_object_get(chunk, "timings"), name);
    if (json_is_number(value)) *ret = json_number_value(value);
}

static void take_counts(struct client *c, json_t *chunk)
{
    json_t *usage = json_object_get(chunk, "usage");
    json_t *progress = json_object_get(chunk, "prompt_progress");
    int64_t n_done = 0, n_prompt = 0;
    take_number(usage, "prompt_tokens", &c->result.n_prompt);
    take_number(usage, "completion_tokens", &c->result.n_generated);
    take_number(json_object_get(usage, "prompt_tokens_details"), "cached_tokens",
                &c->result.n_cached);
    take_number(progress, "processed", &n_done);
    take_number(progress, "total", &n_prompt);
    take_ms(chunk, "prompt_ms", &c->result.prompt_ms);
    take_ms(chunk, "predicted_ms", &c->result.generated_ms);
    if (n_prompt > 0 && c->calls->on_progress)
        c->calls->on_progress(c->calls->ctx, n_done, n_prompt);
}

/* A piece of a stream, or the whole answer. Returns false to end the exchange. */
static bool take_chunk(struct client *c, json_t *chunk)
{
    json_t *choice = json_array_get(json_object_get(chunk, "choices"), 0);
    json_t *part = json_object_get(choice, c->is_stream ? "delta" : "message");
    json_t *text = json_object_get(part ? part : choice, part ? "content" : "text");
    json_t *finish = json_object_get(choice, "finish_reason");
    if (json_object_get(chunk, "error")) {
        const char *message = message_of(chunk);
        snprintf(c->problem, sizeof(c->problem), "%s", message ? message : "the server failed");
        return false;
    }
    take_counts(c, chunk);
    if (json_is_string(finish))
        snprintf(c->result.finish, sizeof(c->result.finish), "%s", json_string_value(finish));
    if (!json_string_length(text)) return true;
    if (c->calls->on_text(c->calls->ctx, json_string_value(text), json_string_length(text)))
        return true;
    snprintf(c->problem, sizeof(c->problem), "the text cannot be written");
    return false;
}

static bool take_json(struct client *c, const char *text, size_t len)
{
    json_error_t why;
    json_auto_t *chunk = json_loadb(text, len, JSON_ALLOW_NUL, &why);
    bool good = chunk && take_chunk(c, chunk);
    if (!chunk) snprintf(c->problem, sizeof(c->problem), "the server sent bad JSON: %s", why.text);
    return good;
}

static bool take_line(struct client *c)
{
    struct buf *line = &c->line;
    bool good = true;
    size_t from = 5;
    if (line->len && line->data[line->len - 1] == '\r') line->len--;
    if (line->len > from && memcmp(line->data, "data:", from) == 0 && !c->done) {
        if (line->data[from] == ' ') from++;
        c->done = line->len - from == 6 && memcmp(line->data + from, "[DONE]", 6) == 0;
        if (!c->done) good = take_json(c, line->data + from, line->len - from);
    }
    buf_clear(line);
    return good;
}

static bool take_head(void *ctx, struct transfer *t)
{
    struct client *c = ctx;
    const char *type = transfer_header(t, "content-type");
    c->is_stream =
        transfer_status(t) == 200 && type && strncasecmp(type, "text/event-stream", 17) == 0;
    return true;
}

static bool take_body(void *ctx, const char *data, size_t len)
{
    struct client *c = ctx;
    while (len && !c->line.failed) {
        const char *end = c->is_stream ? memchr(data, '\n', len) : NULL;
        size_t n = end ? (size_t)(end - data) : len;
        buf_add(&c->line, data, n);
        data += n + (end != NULL);
        len -= n + (end != NULL);
        if (end && !c->line.failed && !take_line(c)) return false;
    }
    if (c->line.failed) snprintf(c->problem, sizeof(c->problem), "the answer is too large");
    return !c->line.failed;
}

/* The error of an answer with another status than 200. */
static int judge_status(struct client *c, int status, char *err, size_t errlen)
{
    const char *wait = c->transfer ? transfer_header(c->transfer, "retry-after") : NULL;
    json_auto_t *body = json_loadb(c->line.len ? c->line.data : "", c->line.len, 0, NULL);
    json_t *error = json_object_get(body, "error");
    const char *message = message_of(body);
    const char *code = json_string_value(json_object_get(error, "code"));
    c->result.is_full = code && strcmp(code, "context_length_exceeded") == 0;
    take_number(error, "n_prompt_tokens", &c->result.n_prompt);
    if (status == 401)
        snprintf(err, errlen, "the server does not accept the API key; set HEARTH_API_KEY");
    else if (message)
        snprintf(err, errlen, "%s", message);
    else
        snprintf(err, errlen, "the server answers with status %d", status);
    if (wait && *wait >= '0' && *wait <= '9') {
        size_t len = strlen(err);
        snprintf(err + len, errlen - len, " (try again in %.10s s)", wait);
    }
    return -1;
}

static enum transfer_end send(struct client *c, const char *path, const char *body, int *ret_status)
{
    char url[TRANSFER_URL_MAX_BYTES];
    const char *headers[] = {body ? "Content-Type: application/json" : "Accept: application/json",
                             *c->to.authorization ? c->to.authorization : NULL, NULL};
    const struct transfer_exchange x = {.url = url,
                                        .headers = headers,
                                        .body = body,
                                        .body_len = body ? strlen(body) : 0,
                                        .head_timeout_ms = body ? 0 : LIST_TIMEOUT_MS,
                                        .on_head = take_head,
                                        .on_body = take_body,
                                        .ctx = c,
                                        .stop = c->stop};
    snprintf(url, sizeof(url), "%s%s", c->to.base, path);
    enum transfer_end end = transfer_run(c->transfer, &x);
    *ret_status = transfer_status(c->transfer);
    return end;
}

static bool take_here(void *ctx, const struct srv_local *from, const char *data, size_t len)
{
    struct client *c = ctx;
    const char *relaxed = srv_local_header(from, "x-schema-relaxed");
    if (relaxed && !c->has_relaxed)
        shown_line(stderr, "hearth: the schema is only approximated: %s", relaxed);
    c->has_relaxed |= relaxed != NULL;
    c->is_stream = srv_local_status(from) == 200;
    return take_body(c, data, len);
}

static enum transfer_end post_here(struct client *c, const char *path, const char *body,
                                   int *ret_status)
{
    char url[64];
    const struct offline_post p = {url, body, c->stop, take_here, c};
    snprintf(url, sizeof(url), "/v1%s", path);
    *ret_status = offline_post(c->offline, &p);
    return atomic_load(c->stop) ? TRANSFER_STOPPED : TRANSFER_OK;
}

/* GET, or POST of a body. A stopped exchange is good. */
static int exchange(struct client *c, const char *path, const char *body, char *err, size_t errlen)
{
    int status;
    buf_clear(&c->line);
    c->problem[0] = '\0';
    c->is_stream = c->done = false;
    enum transfer_end end =
        c->transfer ? send(c, path, body, &status) : post_here(c, path, body, &status);
    if (end == TRANSFER_STOPPED) return 0;
    if (c->problem[0]) return fail_with(-1, err, errlen, "%s", c->problem);
    if (end != TRANSFER_OK)
        return fail_with(-1, err, errlen, "%s: %s", c->to.base, transfer_reason(c->transfer));
    return status == 200 ? 0 : judge_status(c, status, err, errlen);
}

static void complete_body(const struct client *c, json_t *body)
{
    json_t *first = json_array_get(c->models, 0);
    const char *owner = json_string_value(json_object_get(first, "owned_by"));
    json_object_set_new(body, "stream", json_true());
    json_object_set_new(body, "stream_options", json_pack("{s:b}", "include_usage", 1));
    if (c->transfer) json_object_set_new(body, "model", json_string(c->model));
    if (c->transfer && (!owner || strcmp(owner, "hearth") != 0)) return;
    /* others may refuse what they do not know */
    json_object_set_new(body, "return_progress", json_true());
    json_object_set_new(body, "timings", json_true());
}

int client_answer(struct client *c, const char *path, json_t *body,
                  const struct client_calls *calls, struct client_result *ret, char *err,
                  size_t errlen)
{
    c->calls = calls;
    c->result = (struct client_result){.n_prompt = -1, .n_cached = -1, .n_generated = -1};
    c->result.prompt_ms = c->result.generated_ms = -1;
    complete_body(c, body);
    AUTO_FREE char *text = json_dumps(body, JSON_COMPACT);
    if (!text) return fail_with(-1, err, errlen, "out of memory");
    int rc = exchange(c, path, text, err, errlen);
    bool stopped = atomic_load(c->stop);
    if (!rc && !stopped && !c->is_stream && !take_json(c, c->line.data, c->line.len))
        rc = fail_with(-1, err, errlen, "%s", c->problem);
    else if (!rc && !stopped && c->is_stream && !c->done && !c->result.finish[0])
        rc = fail_with(-1, err, errlen, "the stream ended early");
    if (stopped) c->result.finish[0] = '\0';
    *ret = c->result;
    return rc;
}

/* ---- models --------------------------------------------------------------------------------- */

static int list_models(struct client *c, char *err, size_t errlen)
{
    if (exchange(c, "/models", NULL, err, errlen)) return -1;
    json_auto_t *body = json_loadb(c->line.len ? c->line.data : "", c->line.len, 0, NULL);
    c->models = json_incref(json_object_get(body, "data"));
    return 0;
}

int client_choose(struct client *c, const char *model, char *err, size_t errlen)
{
    json_t *first = json_array_get(c->models, 0);
    if (!model) model = json_string_value(json_object_get(first, "id"));
    char *copy = model ? strdup(model) : NULL;
    if (!copy) return fail_with(-1, err, errlen, "the server lists no models: name one by --model");
    free(c->model);
    c->model = copy;
    return 0;
}

const char *client_model(const struct client *c)
{
    return c->model;
}

struct client *client_open(const char *url, const char *key, const char *model,
                           const atomic_bool *stop, char *err, size_t errlen)
{
    struct client *c = calloc(1, sizeof(*c));
    if (!c) {
        snprintf(err, errlen, "out of memory");
        return NULL;
    }
    c->stop = stop;
    buf_init(&c->line, BODY_MAX_BYTES);
    if (client_address(&c->to, url, key, err, errlen)) goto failed;
    c->transfer = transfer_create(&c->to.settings);
    if (!c->transfer) {
        snprintf(err, errlen, "out of memory");
        goto failed;
    }
    bool is_listed = list_models(c, err, errlen) == 0;
    bool has_no_list = transfer_status(c->transfer) == 404;
    if (!is_listed && !(model && has_no_list)) goto failed;
    if (client_choose(c, model, err, errlen)) goto failed;
    return c;
failed:
    client_close(c);
    return NULL;
}

/* ---- in this process ------------------------------------------------------------------------ */

static int load(struct client *c, const struct srv_config *config, char *err, size_t errlen)
{
    struct srv_config own = *config;
    own.model = c->dir;
    own.parallel = own.max_choices = own.text_workers = 1;
    if (offline_open(c->offline, &own, err, errlen)) return -1;
    c->served = srv_models_of(&c->offline->core.app.models, 0);
    if (own.draft_model) eng_await_drafts(c->served->engine);
    return 0;
}

struct client *client_open_here(const struct srv_config *config, const char *name,
                                const atomic_bool *stop, char *err, size_t errlen)
{
    static const atomic_bool never;
    struct client *c = calloc(1, sizeof(*c));
    if (!c) {
        snprintf(err, errlen, "out of memory");
        return NULL;
    }
    c->stop = stop ? stop : &never;
    c->model = strdup(name);
    c->dir = strdup(config->model);
    c->offline = calloc(1, sizeof(*c->offline));
    buf_init(&c->line, BODY_MAX_BYTES);
    if (!c->model || !c->dir || !c->offline)
        snprintf(err, errlen, "out of memory");
    else if (!load(c, config, err, errlen))
        return c;
    client_close(c);
    return NULL;
}

int client_constrain(const struct srv_config *config, json_t *body, char *err, size_t errlen)
{
    const char *file = config->json_schema ? config->json_schema : config->grammar;
    AUTO_FREE char *text = NULL;
    size_t len = config->regex ? strlen(config->regex) : 0;
    if (!!config->json_schema + !!config->regex + !!config->grammar > 1)
        return fail_with(-1, err, errlen,
                         "at most one of --json-schema, --regex and --grammar may be given");
    if (file && file_load(NULL, file, MAX_GRAMMAR_BYTES, &text, &len, err, errlen)) return -1;
    if (!file && !config->regex) return 0;
    int rc = json_object_set_new(body,
                                 config->json_schema ? "guided_json"
                                 : file              ? "guided_grammar"
                                                     : "guided_regex",
                                 json_stringn(file ? text : config->regex, len));
    if (rc) snprintf(err, errlen, "%s is not UTF-8", file ? file : "--regex");
    return rc;
}

const struct eng_info *client_info(const struct client *c)
{
    return c->served ? eng_info(c->served->engine) : NULL;
}

void client_close(struct client *c)
{
    if (!c) return;
    transfer_destroy(c->transfer);
    explicit_bzero(c->to.authorization, sizeof(c->to.authorization));
    srv_model_release(c->served, false);
    if (c->offline) offline_close(c->offline);
    json_decref(c->models);
    buf_finish(&c->line);
    free(c->offline);
    free(c->dir);
    free(c->model);
    free(c);
}
