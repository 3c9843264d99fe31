/* SPDX-License-Identifier: MIT */
/* Requests to the hub; see client.h. */
#include "server/hub/client.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/shown.h"

enum {
    MAX_SECONDS = 1 << 30,
    MAX_REDIRECTS = 5,
    MAX_TRIES = 5,
    BRIEF_MS = 3000,
    PROGRESS_BYTES = 64 << 10,
    RETRY_AFTER_MAX_S = 60,
    LOOK_MS = 50,
    DISCARD_MAX_BYTES =
        64 << 10, /* unwanted bodies are read up to this size, to keep the connection open */
    AUTHORIZATION_SIZE = HUB_TOKEN_SIZE + 32,
};

/* ---- header fields -------------------------------------------------------------------------- */

bool hub_range_is(const char *text, int64_t from, int64_t size)
{
    char wanted[80];
    snprintf(wanted, sizeof(wanted), "bytes %lld-%lld/%lld", (long long)from, (long long)size - 1,
             (long long)size);
    return strcmp(text, wanted) == 0;
}

int hub_link_next(const char *text, char *buf, size_t size)
{
    const char *end;
    for (const char *at = text; (at = strchr(at, '<')) && (end = strchr(at, '>')); at = end) {
        size_t len = (size_t)(end - ++at), n = strcspn(end, "<");
        if (!memmem(end, n, "rel=\"next\"", 10) && !memmem(end, n, "rel=next", 8)) continue;
        return len && (size_t)snprintf(buf, size, "%.*s", (int)len, at) < size ? 0 : -1;
    }
    return -1;
}

int64_t hub_retry_after(const char *text, time_t now)
{
    char *rest;
    int64_t n = isdigit((unsigned char)*text) ? strtoll(text, &rest, 10) : -1;
    if (n >= 0) return rest[strspn(rest, " \t")] || n > MAX_SECONDS ? -1 : n;
    struct tm tm = {0};
    const char *end = strptime(text, "%a, %d %b %Y %H:%M:%S GMT", &tm);
    if (!end || *end) return -1;
    int64_t seconds = (int64_t)timegm(&tm) - (int64_t)now;
    return seconds < 0 ? 0 : seconds > MAX_SECONDS ? -1 : seconds;
}

int64_t hub_rate_limit(const char *text)
{
    const char *left = strchr(text, ';');
    unsigned seconds;
    return left && sscanf(left, ";r=0;t=%9u", &seconds) == 1 ? (int64_t)seconds : -1;
}

/* ---- one exchange --------------------------------------------------------------------------- */

/* The callbacks of one exchange: wanted bodies go to the request, others are dropped. */
struct exchange {
    const struct hub_request *r;
    bool wanted;
    size_t n_discarded;
    bool refused; /* by the request's callbacks */
};

static bool take_head(void *ctx, struct transfer *t)
{
    struct exchange *x = ctx;
    x->wanted = transfer_status(t) / 100 == 2;
    x->refused = x->wanted && !x->r->on_head(x->r->ctx, t);
    return !x->refused;
}

static bool take_body(void *ctx, const char *data, size_t len)
{
    struct exchange *x = ctx;
    if (x->wanted) {
        x->refused = !x->r->on_body(x->r->ctx, data, len);
        return !x->refused;
    }
    x->n_discarded += len;
    return x->n_discarded <= DISCARD_MAX_BYTES;
}

/* Sets what a failure is. Returns the code. */
#define fail(f, code, may_retry, ...)                                                              \
    ((f)->again = (may_retry), (f)->rc = hub_fail((f)->err, code, __VA_ARGS__))

/* Checks the exchange itself, not the answer's status. */
static void judge_end(struct hub_client *c, const struct exchange *x, enum transfer_end end,
                      struct hub_failure *f)
{
    bool unreached = end == TRANSFER_UNREACHED, is_api = x->r->is_api;
    const char *reason = transfer_reason(c->transfer);
    const char *who = unreached ? is_api ? "the hub cannot be reached: " : "no connection: "
                      : is_api  ? "the hub: "
                                : "";
    f->status = transfer_status(c->transfer);
    switch (end) {
    case TRANSFER_OK: break;
    case TRANSFER_STOPPED: fail(f, HUB_ESTOPPED, false, "stopped"); break;
    case TRANSFER_REFUSED:
        f->refused = x->refused;
        if (x->refused) fail(f, HUB_EINTERNAL, false, "refused");
        break;
    case TRANSFER_UNTRUSTED:
        fail(f, HUB_ENETWORK, false, "the hub's certificate is not trusted: %s", reason);
        break;
    case TRANSFER_NOMEM: fail(f, HUB_EINTERNAL, false, "out of memory"); break;
    default: fail(f, HUB_ENETWORK, true, "%s%s", who, reason); break;
    }
}

static enum transfer_end run(struct hub_client *c, const struct hub_request *r, const char *url,
                             bool with_token, struct exchange *x)
{
    char range[48], authorization[AUTHORIZATION_SIZE];
    const char *headers[4] = {"Accept-Encoding: identity"};
    int n = 1;
    if (r->from > 0) {
        snprintf(range, sizeof(range), "Range: bytes=%lld-", (long long)r->from);
        headers[n++] = range;
    }
    if (with_token) {
        snprintf(authorization, sizeof(authorization), "Authorization: Bearer %s",
                 c->settings->token);
        headers[n++] = authorization;
    }
    *x = (struct exchange){.r = r};
    struct transfer_exchange exchange = {
        .url = url,
        .headers = headers,
        .head_timeout_ms = c->brief && c->settings->head_timeout_ms > BRIEF_MS
                               ? BRIEF_MS
                               : c->settings->head_timeout_ms,
        .body_timeout_ms = c->settings->body_timeout_ms,
        .on_head = take_head,
        .on_body = take_body,
        .ctx = x,
        .stop = c->stop,
    };
    enum transfer_end end = transfer_run(c->transfer, &exchange);
    explicit_bzero(authorization, sizeof(authorization));
    return end;
}

/* ---- statuses as sentences ------------------------------------------------------------------- */

/* An answer to a request, while it is judged. */
struct answer {
    struct hub_client *client;
    const struct hub_request *request;
    struct hub_failure *f; /* with the status */
    bool with_token;       /* the request carried the token */
    bool from_endpoint;    /* it came from the hub itself, not from where a link led */
};

/* A header's text, or "". */
static const char *header(const struct answer *a, const char *name)
{
    const char *value = transfer_header(a->client->transfer, name);
    return value ? value : "";
}

static void say_gated(const struct answer *a)
{
    const char *repo = a->client->name->repo, *endpoint = a->client->settings->endpoint;
    if (a->with_token)
        fail(a->f, HUB_EDENIED, false,
             "%s is gated, and the account of the token in %.200s has no access: "
             "accept its licence at %s/%s",
             repo, a->client->settings->token_from, endpoint, repo);
    else
        fail(a->f, HUB_EDENIED, false,
             "%s is gated: accept its licence at %s/%s, then set HF_TOKEN", repo, endpoint, repo);
}

static void say_denied(const struct answer *a)
{
    const char *text = header(a, "X-Error-Message"); /* the hub's own explanation */
    char message[160];
    shown_text(message, sizeof(message), text, strlen(text));
    fail(a->f, HUB_EDENIED, false, "the hub refuses %s (status %d%s%s)", a->client->name->repo,
         a->f->status, message[0] ? ": " : "", message);
}

/* 401, 403, 404 of the hub itself. */
static void judge_access(const struct answer *a)
{
    const struct hub_client *c = a->client;
    const char *code = header(a, "X-Error-Code"), *what = a->request->what;
    int status = a->f->status;
    if (status == 401 && a->with_token &&
        strstr(header(a, "X-Error-Message"), "Invalid credentials"))
        fail(a->f, HUB_EDENIED, false, "the hub does not accept the token in %.300s",
             c->settings->token_from);
    else if (strcmp(code, "GatedRepo") == 0)
        say_gated(a);
    else if (strcmp(code, "RevisionNotFound") == 0)
        fail(a->f, HUB_ENOTFOUND, false, "%s has no revision '%s'", c->name->repo,
             c->name->revision);
    else if (strcmp(code, "EntryNotFound") == 0 || (status == 404 && what))
        fail(a->f, HUB_EWRONG, false, "the hub lists %.200s, but does not have it",
             what ? what : "a file");
    else if (strcmp(code, "RepoNotFound") == 0 || status == 404 ||
             (status == 401 && !a->with_token))
        fail(a->f, HUB_ENOTFOUND, false, "%s: no such model on %s, or a private one (%s)",
             c->name->repo, c->settings->endpoint,
             a->with_token ? "the token does not open it" : "no token was sent");
    else
        say_denied(a);
}

/* 408, 429, 500, 502, 503, 504: another try may succeed. */
static void judge_passing(const struct answer *a)
{
    int64_t wait_s = hub_retry_after(header(a, "Retry-After"), time(NULL));
    const char *host = a->from_endpoint ? "the hub" : "the file store";
    a->f->retry_after_s = wait_s >= 0 ? wait_s : hub_rate_limit(header(a, "RateLimit"));
    if (a->f->status == 429)
        fail(a->f, HUB_ENETWORK, true, "%s limits the rate of requests (status 429)", host);
    else
        fail(a->f, HUB_ENETWORK, true, "%s answers with status %d", host, a->f->status);
}

/* Sets *a->f by the status; 2xx leaves it unchanged. */
static void judge_status(const struct answer *a)
{
    int status = a->f->status;
    if (status / 100 == 2) return;
    if (status == 408 || status == 429 || (status >= 500 && status <= 504 && status != 501))
        judge_passing(a);
    else if (a->from_endpoint && (status == 401 || status == 403 || status == 404))
        judge_access(a);
    else if (status == 403 && !a->from_endpoint)
        fail(a->f, HUB_ENETWORK, true, "the file store refuses the link (status 403)");
    else if (status == 416 && a->request->from > 0)
        fail(a->f, HUB_ENETWORK, true, "nothing from byte %lld on (status 416)",
             (long long)a->request->from);
    else
        fail(a->f, HUB_EWRONG, false, "%s answers with status %d",
             a->from_endpoint ? "the hub" : "the file store", status);
}

/* ---- one try -------------------------------------------------------------------------------- */

/* Returns true if a request may go to this URL. */
static bool check_target(const struct hub_client *c, const struct hub_request *r, const char *url,
                         struct transfer_origin *ret, struct hub_failure *f)
{
    bool is_url = transfer_url_origin(url, ret) == 0;
    bool https = is_url && strcmp(ret->scheme, "https") == 0;
    bool http = is_url && strcmp(ret->scheme, "http") == 0 && c->settings->allow_http;
    bool other = ret->scheme[0] && strcmp(ret->scheme, "https") && strcmp(ret->scheme, "http");
    if (!is_url && !other)
        fail(f, HUB_EWRONG, false, "redirected to an invalid URL");
    else if (!https && !http)
        fail(f, HUB_EWRONG, false, "redirected to %s:, which is not followed", ret->scheme);
    else if (r->is_api && strcmp(ret->text, c->settings->origin.text) != 0)
        fail(f, HUB_EWRONG, false, "the hub sends its API requests to another host (%.200s)",
             ret->text);
    return f->rc == 0;
}

void hub_client_try(struct hub_client *c, const struct hub_request *r, struct hub_failure *f)
{
    char url[TRANSFER_URL_MAX_BYTES];
    struct transfer_origin origin;
    struct exchange x;
    snprintf(url, sizeof(url), "%s", r->url);
    for (int hop = 0;; hop++) {
        *f = (struct hub_failure){.retry_after_s = -1};
        if (!check_target(c, r, url, &origin, f)) return;
        bool with_token = hub_settings_may_send_token(c->settings, &origin);
        judge_end(c, &x, run(c, r, url, with_token, &x), f);
        if (f->rc) return;
        const char *location = transfer_header(c->transfer, "Location");
        bool redirects =
            (f->status >= 301 && f->status <= 303) || f->status == 307 || f->status == 308;
        if (!redirects || !location) {
            struct answer answer = {
                .client = c,
                .request = r,
                .f = f,
                .with_token = with_token,
                .from_endpoint = strcmp(origin.text, c->settings->origin.text) == 0,
            };
            judge_status(&answer);
            return;
        }
        if (hop == MAX_REDIRECTS) {
            fail(f, HUB_ENETWORK, false, "more than %d redirects", MAX_REDIRECTS);
            return;
        }
        if (transfer_url_join(url, location, url, sizeof(url))) url[0] = '\0';
    }
}

/* ---- between tries -------------------------------------------------------------------------- */

/* Returns false if *stop was set meanwhile. */
static bool sleep_ms(const struct hub_client *c, int64_t ms)
{
    while (ms > 0 && !atomic_load(c->stop)) {
        int64_t part = ms < LOOK_MS ? ms : LOOK_MS;
        struct timespec t = {.tv_nsec = (long)part * 1000000};
        nanosleep(&t, NULL);
        ms -= part;
    }
    return !atomic_load(c->stop);
}

/* Spreads the waits of clients that failed together: 80 to 120 %. */
static int spread(int ms)
{
    unsigned char random = 128;
    if (getrandom(&random, 1, GRND_NONBLOCK) < 0) random = 128;
    return ms * 4 / 5 + ms * 2 / 5 * random / 255;
}

static int say_later(struct hub_failure *f)
{
    int64_t s = f->retry_after_s;
    if (s < 120) return fail(f, HUB_ENETWORK, false, "the hub asks to come back in %d s", (int)s);
    return fail(f, HUB_ENETWORK, false, "the hub asks to come back in %lld min",
                (long long)(s + 59) / 60);
}

int hub_client_wait(struct hub_client *c, struct hub_tries *tries, int64_t reached,
                    struct hub_failure *f)
{
    char reason[HUB_ERR_SIZE];
    if (!f->again || c->brief) return f->rc;
    if (reached >= tries->best + PROGRESS_BYTES) tries->n = 0;
    if (reached > tries->best) tries->best = reached;
    tries->n++;
    if (f->retry_after_s > RETRY_AFTER_MAX_S) return say_later(f);
    if (tries->n >= MAX_TRIES) {
        snprintf(reason, sizeof(reason), "%s", f->err);
        return fail(f, f->rc, false, "%.400s, %d tries", reason, MAX_TRIES);
    }
    int wait_ms = f->retry_after_s >= 0 ? (int)f->retry_after_s * 1000
                                        : spread(c->settings->first_wait_ms << (tries->n - 1));
    if (c->on_retry) c->on_retry(c->ctx, f->err, tries->n + 1, wait_ms);
    if (sleep_ms(c, wait_ms)) return 0;
    return fail(f, HUB_ESTOPPED, false, "stopped");
}

/* ---- API requests --------------------------------------------------------------------------- */

struct get {
    struct buf *body;
    char *next;
    size_t next_size;
};

static bool take_api_head(void *ctx, struct transfer *t)
{
    struct get *g = ctx;
    buf_clear(g->body);
    if (!g->next) return true;
    g->next[0] = '\0';
    const char *link = transfer_header(t, "Link");
    if (link) hub_link_next(link, g->next, g->next_size);
    return true;
}

static bool take_api_body(void *ctx, const char *data, size_t len)
{
    struct get *g = ctx;
    buf_add(g->body, data, len);
    return !g->body->failed;
}

int hub_client_get(struct hub_client *c, const char *url, const char *what, struct buf *body,
                   char *next, size_t next_size, char *err)
{
    struct get g = {.body = body, .next = next, .next_size = next_size};
    struct hub_request r = {
        .url = url,
        .what = what,
        .is_api = !what,
        .on_head = take_api_head,
        .on_body = take_api_body,
        .ctx = &g,
    };
    struct hub_tries tries = {0};
    struct hub_failure f;
    do {
        hub_client_try(c, &r, &f);
        if (f.rc == 0) return 0;
        if (f.refused && body->too_large)
            fail(&f, HUB_EWRONG, false, "an answer of the hub has more than %zu bytes", body->max);
        else if (f.refused)
            fail(&f, HUB_EINTERNAL, false, "out of memory");
    } while (hub_client_wait(c, &tries, 0, &f) == 0);
    return hub_fail(err, f.rc, "%s", f.err);
}

/* Appends text with all but unreserved characters as %XX; '/' too if asked. */
static size_t add_encoded(char *buf, size_t size, size_t at, const char *text, bool slash)
{
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    for (; *text && at + 4 < size; text++) {
        bool keep = strchr(plain, *text) || (*text == '/' && !slash);
        at += (size_t)snprintf(buf + at, size - at, keep ? "%c" : "%%%02X", (unsigned char)*text);
    }
    return *text ? size : at;
}

int hub_client_url(const struct hub_client *c, char *buf, size_t size, const char *prefix,
                   const char *middle, const char *last, bool encode_slash)
{
    int n = snprintf(buf, size, "%s%s%s%s", c->settings->endpoint, prefix, c->name->repo, middle);
    if (n < 0 || (size_t)n >= size) return -1;
    return add_encoded(buf, size, (size_t)n, last, encode_slash) < size ? 0 : -1;
}
