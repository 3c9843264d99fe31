/* SPDX-License-Identifier: MIT */
/* The checks of a request's head, one function per rule. See guard.h. */
#include "server/http/guard.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/fail.h"
#include "base/hex.h"
#include "base/nearest.h"
#include "server/bounds.h"
#include "server/http/keys.h"

__attribute__((format(printf, 3, 4))) static void
refuse(struct srv_guard_verdict *v, enum srv_error kind, const char *format, ...)
{
    if (v->refused) return; /* only the first reason is sent */
    FORMAT_REST(v->message, sizeof(v->message), format);
    v->refused = true;
    v->kind = kind;
}

/* ---- collecting ---------------------------------------------------------------------------- */

static bool is_name(const char *name, size_t len)
{
    static const char extra[] = "!#$%&'*+-.^_`|~";
    for (size_t i = 0; i < len; i++) {
        if (!isalnum((unsigned char)name[i]) && !strchr(extra, name[i])) return false;
        if (!name[i]) return false;
    }
    return len > 0;
}

static bool is_value(const char *value, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)value[i];
        if ((c < 0x20 && c != '\t') || c == 0x7f) return false;
    }
    return true;
}

void srv_guard_add_header(struct srv_guard_head *h, const char *name, size_t name_len,
                          const char *value, size_t value_len)
{
    const struct {
        const char *name;
        const char **value;
        int *count;
    } known[] = {
        {"Host", &h->host, &h->n_hosts},
        {"Content-Length", &h->content_length, &h->n_content_lengths},
        {"Transfer-Encoding", &h->transfer_encoding, &h->n_transfer_encodings},
        {"Authorization", &h->authorization, &h->n_authorizations},
        {"x-api-key", &h->api_key, NULL},
        {"api-key", &h->api_key, NULL},
        {"Content-Type", &h->content_type, NULL},
        {"Content-Encoding", &h->content_encoding, NULL},
        {"Origin", &h->origin, NULL},
        {"Expect", &h->expect, NULL},
        {"anthropic-version", &h->anthropic_version, NULL},
        {"Forwarded", &h->forwarded, NULL},
        {"X-Forwarded-For", &h->forwarded, NULL},
        {"X-Real-IP", &h->forwarded, NULL},
        {"Via", &h->forwarded, NULL},
    };
    if (!is_name(name, name_len) || !is_value(value, value_len)) h->bad_header = true;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strlen(known[i].name) != name_len || strncasecmp(known[i].name, name, name_len) != 0)
            continue;
        if (!*known[i].value) *known[i].value = value;
        if (known[i].count) ++*known[i].count;
    }
}

/* ---- framing ------------------------------------------------------------------------------- */

static void read_length(struct srv_guard_head *h, struct srv_guard_verdict *v)
{
    const char *text = h->content_length;
    size_t n_digits = strspn(text, "0123456789");
    if (n_digits == 0 || text[n_digits]) {
        refuse(v, SRV_ERR_BAD_REQUEST, "The Content-Length header is not a number.");
        return;
    }
    if (n_digits > 18) {
        refuse(v, SRV_ERR_TOO_LARGE, "The announced body is too large.");
        return;
    }
    h->body_bytes = 0;
    for (size_t i = 0; i < n_digits; i++)
        h->body_bytes = h->body_bytes * 10 + (text[i] - '0');
}

static bool is_host_text(const char *host)
{
    for (; *host; host++)
        if (!isalnum((unsigned char)*host) && !strchr(".-_:[]%~", *host)) return false;
    return true;
}

void srv_guard_framing(struct srv_guard_head *h, struct srv_guard_verdict *v)
{
    bool is_1_0 = h->version && strcmp(h->version, "HTTP/1.0") == 0;
    if (h->bad_header)
        refuse(v, SRV_ERR_BAD_REQUEST,
               "A header name or value holds characters that are not allowed.");
    if (h->n_content_lengths > 1)
        refuse(v, SRV_ERR_BAD_REQUEST, "There is more than one Content-Length header.");
    if (h->n_transfer_encodings && h->n_content_lengths)
        refuse(v, SRV_ERR_BAD_REQUEST, "Content-Length and Transfer-Encoding exclude each other.");
    if (h->n_transfer_encodings) {
        bool chunked =
            h->n_transfer_encodings == 1 && strcasecmp(h->transfer_encoding, "chunked") == 0;
        if (!chunked || is_1_0)
            refuse(v, SRV_ERR_BAD_REQUEST, "The only Transfer-Encoding served is chunked.");
        h->chunked = true;
        h->body_bytes = -1;
    }
    if (h->n_content_lengths == 1 && !h->chunked) read_length(h, v);
    if (h->n_hosts > 1) refuse(v, SRV_ERR_BAD_REQUEST, "There is more than one Host header.");
    if (!h->n_hosts && !is_1_0) refuse(v, SRV_ERR_BAD_REQUEST, "The Host header is missing.");
    if (h->host && !is_host_text(h->host))
        refuse(v, SRV_ERR_BAD_REQUEST, "The Host header is not a valid host name.");
    if (!srv_guard_target_is_good(h->target))
        refuse(v, SRV_ERR_BAD_REQUEST, "The request target holds characters that are not allowed.");
}

bool srv_guard_target_is_good(const char *target)
{
    if (strlen(target) > SRV_URI_MAX_BYTES) return false;
    if (strcmp(target, "*") == 0) return true;
    bool absolute =
        strncasecmp(target, "http://", 7) == 0 || strncasecmp(target, "https://", 8) == 0;
    if (target[0] != '/' && !absolute) return false;
    for (const unsigned char *p = (const unsigned char *)target; *p; p++) {
        if (*p <= ' ' || *p == 0x7f || *p == '#') return false;
        if (*p != '%') continue;
        if (!isxdigit(p[1]) || !isxdigit(p[2])) return false;
        if (p[1] == '0' && p[2] == '0') return false;
    }
    return true;
}

void srv_guard_decode(char *text, bool is_query)
{
    char *out = text;
    for (char *p = text; *p; p++) {
        int high = *p == '%' ? hex_value(p[1]) : -1;
        int low = high >= 0 ? hex_value(p[2]) : -1;
        if (low >= 0) {
            *out++ = (char)(high * 16 + low);
            p += 2;
        } else {
            *out++ = is_query && *p == '+' ? ' ' : *p;
        }
    }
    *out = '\0';
}

const char *srv_guard_query(const char *query, const char *name, size_t *ret_len)
{
    size_t name_len = strlen(name);
    for (const char *p = query; *p; p += strspn(p, "&")) {
        size_t len = strcspn(p, "&"), key_len = strcspn(p, "=&");
        if (key_len == name_len && strncmp(p, name, name_len) == 0) {
            size_t skip = key_len < len ? key_len + 1 : key_len;
            *ret_len = len - skip;
            return p + skip;
        }
        p += len;
    }
    return NULL;
}

/* ---- Host, Origin -------------------------------------------------------------------------- */

/* The name without port, brackets and final dot, in buf. */
static void host_name(const char *host, char *buf, size_t size)
{
    size_t len;
    if (*host == '[') {
        host++;
        len = strcspn(host, "]");
    } else {
        len = strcspn(host, ":");
    }
    if (len && host[len - 1] == '.') len--;
    snprintf(buf, size, "%.*s", (int)(len < size ? len : size - 1), host);
}

static bool is_loopback_name(const char *name)
{
    size_t len = strlen(name);
    static const char suffix[] = ".localhost";
    if (strcasecmp(name, "localhost") == 0 || strcmp(name, "::1") == 0) return true;
    if (strncmp(name, "127.", 4) == 0 && strspn(name, "0123456789.") == len) return true;
    return len >= sizeof(suffix) && strcasecmp(name + len - (sizeof(suffix) - 1), suffix) == 0;
}

static bool is_listed(const struct srv_list *list, const char *text)
{
    for (int i = 0; list && i < list->n; i++)
        if (strcmp(list->items[i], "*") == 0 || strcasecmp(list->items[i], text) == 0) return true;
    return false;
}

void srv_guard_host(const struct srv_guard_head *h, const struct srv_guard_rules *r,
                    struct srv_guard_verdict *v)
{
    char name[256];
    bool listed_only = r->allowed_hosts && r->allowed_hosts->n > 0;
    if (!listed_only && !r->only_loopback_hosts) return;
    host_name(h->host ? h->host : "", name, sizeof(name));
    if (listed_only && is_listed(r->allowed_hosts, name)) return;
    if (!listed_only && (is_loopback_name(name) || (!h->host && !h->n_hosts))) return;
    refuse(v, SRV_ERR_FORBIDDEN,
           "The host '%.60s' is not served here; allowed-hosts names those that are.", name);
}

/* An item may end in a *: after a scheme for any host, after a host for any port or none. */
static bool is_origin_of(const char *item, const char *origin)
{
    size_t n = strcspn(item, "*");
    if (!item[n]) return strcasecmp(item, origin) == 0;
    n -= n > 0 && item[n - 1] == ':';
    if (strncasecmp(item, origin, n) != 0) return false;
    const char *rest = origin + n;
    if (item[n] == '*') return *rest != '\0';
    return !*rest || (*rest == ':' && rest[1] && !rest[1 + strspn(rest + 1, "0123456789")]);
}

const char *srv_guard_cors(const char *origin, const struct srv_guard_rules *r)
{
    if (!origin || !r->cors_origins) return NULL;
    for (int i = 0; i < r->cors_origins->n; i++) {
        if (strcmp(r->cors_origins->items[i], "*") == 0) return "*";
        if (is_origin_of(r->cors_origins->items[i], origin)) return origin;
    }
    return NULL;
}

/* Returns true if the page that sent the request is one of this server. */
static bool is_own_origin(const struct srv_guard_head *h)
{
    const char *host = h->origin ? strstr(h->origin, "://") : NULL;
    return host && h->host && strcasecmp(host + 3, h->host) == 0;
}

bool srv_guard_is_foreign(const struct srv_guard_head *h, const struct srv_guard_rules *r)
{
    return h->origin && !is_own_origin(h) && !srv_guard_cors(h->origin, r);
}

/*
 * The browser asks first only for some requests, hides only the answer, and may be told to go on by
 * a proxy: what another site's page sent is not run at all.
 */
void srv_guard_origin(const struct srv_guard_head *h, const struct srv_guard_rules *r,
                      struct srv_guard_verdict *v)
{
    if (!strcmp(h->method, "GET") || !strcmp(h->method, "HEAD") || !srv_guard_is_foreign(h, r))
        return;
    refuse(v, SRV_ERR_FORBIDDEN,
           "A web page of %.60s sent this, which is not this server's: name it in --cors-origins, "
           "or let the proxy pass the browser's Host with its port.",
           h->origin);
}

/* ---- the body ------------------------------------------------------------------------------ */

/* Parameters of the type do not count. */
static bool is_type(const char *type, const char *wanted)
{
    size_t len = strcspn(type, "; \t");
    return len == strlen(wanted) && strncasecmp(type, wanted, len) == 0;
}

static bool is_json_type(const char *type)
{
    size_t len = strcspn(type, "; \t");
    static const char suffix[] = "+json";
    if (is_type(type, "application/json")) return true;
    return len > sizeof(suffix) && strncasecmp(type, "application/", 12) == 0 &&
           strncasecmp(type + len - (sizeof(suffix) - 1), suffix, sizeof(suffix) - 1) == 0;
}

void srv_guard_body(const struct srv_guard_head *h, const struct srv_guard_rules *r,
                    struct srv_guard_verdict *v)
{
    bool is_upload = v->route && (v->route->flags & SRV_ROUTE_UPLOAD);
    int64_t most = is_upload ? SRV_UPLOAD_MAX_BYTES : r->max_body_bytes;
    if (h->body_bytes > most)
        refuse(v, SRV_ERR_TOO_LARGE, "The body has %lld bytes; at most %lld are read.",
               (long long)h->body_bytes, (long long)most);
    if (h->body_bytes == 0 || strcmp(h->method, "POST") != 0) return;
    if (h->content_encoding && strcasecmp(h->content_encoding, "identity") != 0)
        refuse(v, SRV_ERR_MEDIA_TYPE, "Compressed bodies are not read (Content-Encoding: %.40s).",
               h->content_encoding);
    if (is_upload) {
        if (!h->content_type || !is_type(h->content_type, "multipart/form-data"))
            refuse(v, SRV_ERR_MEDIA_TYPE, "The body's type must be multipart/form-data.");
        return;
    }
    bool form = v->dialect == SRV_DIALECT_OLLAMA && h->content_type &&
                is_type(h->content_type, "application/x-www-form-urlencoded");
    if (h->content_type && !form && !is_json_type(h->content_type))
        refuse(v, SRV_ERR_MEDIA_TYPE,
               "The body's type is %.60s, but must be application/json "
               "(with curl: -H 'Content-Type: application/json').",
               h->content_type);
}

/* ---- keys ---------------------------------------------------------------------------------- */

const char *srv_guard_key(const struct srv_guard_head *h, size_t *ret_len)
{
    const char *key = h->api_key;
    if (h->n_authorizations > 1) return NULL;
    if (h->authorization) {
        if (strncasecmp(h->authorization, "Bearer ", 7) != 0) return NULL;
        key = h->authorization + 7;
    }
    if (!key) return NULL;
    key += strspn(key, " \t");
    size_t len = strlen(key);
    while (len && (key[len - 1] == ' ' || key[len - 1] == '\t'))
        len--;
    if (len == 0 || len > SRV_KEY_MAX_BYTES || memchr(key, ' ', len) || memchr(key, '\t', len))
        return NULL;
    *ret_len = len;
    return key;
}

/* ---- paths and routes ---------------------------------------------------------------------- */

/* Returns what comes after the one of the route's one or two paths that the path is or begins with,
 * or NULL if it is another path. Offers them to nearest, NULL: to nobody. */
static const char *match_path(const struct srv_route *r, const char *path,
                              struct srv_nearest *nearest)
{
    static const size_t skipped[] = {0, sizeof("/v1") - 1};
    bool is_prefix = r->flags & SRV_ROUTE_PREFIX;
    const char *tail = NULL;
    for (int i = 0; i <= !!(r->flags & SRV_ROUTE_BARE); i++) {
        const char *own = r->path + skipped[i];
        size_t len = strlen(own);
        if (nearest) srv_nearest_offer(nearest, own, len);
        if (!strncmp(path, own, len) && !path[len] == !is_prefix) tail = path + len;
    }
    return tail;
}

static void note_method(struct srv_guard_route *found, const char *method)
{
    size_t len = strlen(found->allow);
    if (strstr(found->allow, method)) return;
    bool is_get = strcmp(method, "GET") == 0;
    snprintf(found->allow + len, sizeof(found->allow) - len, "%s%s%s", len ? ", " : "", method,
             is_get ? ", HEAD" : "");
}

/* The route's path that is nearest to an unknown one, or NULL. */
static const char *nearest_path(const struct srv_route *const *tables, const char *path)
{
    struct srv_nearest nearest;
    /* Whole paths are compared, but what counts as near depends on the last word alone. */
    const char *last = strrchr(path, '/');
    if (!last) last = path;
    srv_nearest_init(&nearest, last, strlen(last));
    nearest.typed = path;
    nearest.typed_len = strlen(path);
    for (; *tables; tables++)
        for (const struct srv_route *r = *tables; r->method; r++)
            match_path(r, path, &nearest);
    return nearest.name;
}

void srv_guard_find_route(const struct srv_route *const *tables, const char *method,
                          const char *path, struct srv_guard_route *ret)
{
    *ret = (struct srv_guard_route){.tail = ""};
    bool is_head = strcmp(method, "HEAD") == 0;
    for (const struct srv_route *const *t = tables; *t; t++) {
        for (const struct srv_route *r = *t; r->method; r++) {
            const char *tail = match_path(r, path, NULL);
            if (!tail) continue;
            /* Models have no POST routes: the last word of this path is not a model's name. */
            if ((r->flags & SRV_ROUTE_PREFIX) && !strcmp(method, "POST") &&
                strcmp(r->method, method))
                continue;
            ret->path_known = true;
            if (!ret->path_dialect) ret->path_dialect = r->dialect;
            note_method(ret, r->method);
            if (strcmp(r->method, is_head ? "GET" : method) != 0 || ret->route) continue;
            ret->route = r;
            ret->tail = tail;
        }
    }
    if (ret->path_known)
        note_method(ret, "OPTIONS");
    else
        ret->nearest = nearest_path(tables, path);
}

/* ---- all of them --------------------------------------------------------------------------- */

/* Splits the raw target into decoded path and raw query; an absolute one loses its host. */
static const char *split_target(const char *target, char *path)
{
    const char *scheme = strstr(target, "://");
    if (target[0] != '/' && scheme) target = scheme + 3 + strcspn(scheme + 3, "/?");
    size_t len = strcspn(target, "?");
    memcpy(path, target, len);
    path[len] = '\0';
    srv_guard_decode(path, false);
    len = strlen(path);
    while (len > 1 && path[len - 1] == '/')
        path[--len] = '\0';
    if (len == 0) memcpy(path, "/", 2);
    const char *query = strchr(target, '?');
    return query ? query + 1 : "";
}

/* Of a request to a route. */
static enum srv_dialect dialect_of(const struct srv_guard_head *h, enum srv_dialect route)
{
    if (route != SRV_DIALECT_EITHER) return route;
    return h->anthropic_version ? SRV_DIALECT_ANTHROPIC : SRV_DIALECT_OPENAI;
}

/* Whether a request is for the operator alone. */
static bool is_operators(const char *query, unsigned flags)
{
    size_t len;
    return (flags & SRV_ROUTE_OPERATOR) ||
           ((flags & SRV_ROUTE_ALL) && srv_guard_query(query, "all", &len)) ||
           ((flags & SRV_ROUTE_RELOADS) && srv_guard_query(query, "reload", &len));
}

static void check_route(const struct srv_guard_head *h, const struct srv_guard_input *in,
                        const char *path, const struct srv_guard_route *found,
                        struct srv_guard_verdict *v)
{
    unsigned flags = found->route ? found->route->flags : SRV_ROUTE_EARLY;
    bool hidden = (in->admin && !(flags & SRV_ROUTE_EARLY)) ||
                  (is_operators(v->query, flags) && !in->operator_open && !(flags & SRV_ROUTE_ALL));
    if (!found->path_known || hidden) {
        char hint[80] = "/openapi.json lists what there is.";
        if (found->nearest) snprintf(hint, sizeof(hint), "did you mean %.60s?", found->nearest);
        refuse(v, SRV_ERR_UNKNOWN_URL, "There is no %.12s %.80s here; %s", h->method, path, hint);
        return;
    }
    if (!found->route) {
        memcpy(v->allow, found->allow, sizeof(v->allow));
        refuse(v, SRV_ERR_METHOD, "%.60s does not take %.12s; it takes %s.", path, h->method,
               found->allow);
        return;
    }
    v->route = found->route;
    v->tail = found->tail;
    v->dialect = dialect_of(h, found->route->dialect);
}

static void check_key(const struct srv_guard_head *h, const struct srv_guard_input *in,
                      struct srv_guard_verdict *v)
{
    if (!in->keys) return;
    size_t len = 0;
    const char *key = srv_guard_key(h, &len);
    bool known = key && srv_keys_check(in->keys, key, len, v->tenant, in->words);
    if (known || (v->route->flags & SRV_ROUTE_OPEN)) return;
    refuse(v, SRV_ERR_API_KEY,
           h->authorization || h->api_key ? "The API key is not valid."
                                          : "An API key is needed: Authorization: Bearer KEY.");
}

/*
 * Routes for the operator: with an operator key only that key opens them, from anywhere. Without,
 * they are for clients of this machine while no key is set at all. Behind a proxy everybody is such
 * a client, so a request that came through one is refused.
 */
static void check_operator(const struct srv_guard_head *h, const struct srv_guard_input *in,
                           struct srv_guard_verdict *v)
{
    size_t len = 0;
    const char *key = srv_guard_key(h, &len);
    bool reloads = strcmp(h->method, "POST") != 0; /* a GET, which any page may send */
    const char *why = in->keys             ? "an API key is set"
                      : reloads            ? "a web page may have asked for it"
                      : !in->peer_is_local ? "the client is not on this machine"
                      : h->forwarded       ? "the request came through a proxy"
                      : h->origin && !is_own_origin(h)
                          ? "it was sent by a web page of another origin"
                          : NULL;
    if (in->operator_keys && !(key && srv_keys_check(in->operator_keys, key, len, v->tenant, NULL)))
        refuse(v, SRV_ERR_API_KEY, "An operator key is needed: Authorization: Bearer KEY.");
    else if (!in->operator_keys && why)
        refuse(v, SRV_ERR_FORBIDDEN,
               "Only an operator key opens this, since %s: set --operator-key-file.", why);
    else if (!h->content_type && !reloads)
        refuse(v, SRV_ERR_MEDIA_TYPE, "The Content-Type must be application/json.");
}

static void check_state(const struct srv_guard_input *in, struct srv_guard_verdict *v)
{
    if (v->route->flags & SRV_ROUTE_EARLY) return;
    if (in->state == SRV_LOADING && in->percent >= 0)
        refuse(v, SRV_ERR_LOADING, "The model is being downloaded, %d %%.", in->percent);
    else if (in->state == SRV_LOADING)
        refuse(v, SRV_ERR_LOADING, "The model is still loading.");
    else if (in->state == SRV_FAILED)
        refuse(v, SRV_ERR_INTERNAL, "The model could not be loaded.");
    else if (in->refusing)
        refuse(v, SRV_ERR_SHUTTING_DOWN, "The server is shutting down.");
}

void srv_guard_check(struct srv_guard_head *h, const struct srv_guard_input *in, char *path,
                     struct srv_guard_verdict *v)
{
    *v = (struct srv_guard_verdict){
        .query = "", .tail = "", .dialect = dialect_of(h, SRV_DIALECT_EITHER)};
    if (in->too_many_headers) refuse(v, SRV_ERR_HEADERS, "There are too many headers.");
    if (!path || (in->keys && !in->words))
        refuse(v, SRV_ERR_OVERLOADED, "The server is out of memory for this request.");
    if (v->refused) return;
    struct srv_guard_route found;
    v->query = split_target(h->target, path);
    srv_guard_find_route(in->routes, h->method, path, &found);
    /* Of an error before there is a route: as the headers say, or the path's other routes. */
    if (!v->dialect) v->dialect = dialect_of(h, found.path_dialect);
    if (!found.path_known && !strncmp(path, "/api/", 5)) v->dialect = SRV_DIALECT_OLLAMA;
    bool any_host = found.route && (found.route->flags & SRV_ROUTE_ANY_HOST);
    if (in->too_many_connections) refuse(v, SRV_ERR_OVERLOADED, "There are too many connections.");
    if (!v->refused) srv_guard_framing(h, v);
    if (!v->refused && !any_host) srv_guard_host(h, in->rules, v);
    if (v->refused || strcmp(h->method, "OPTIONS") == 0) return;
    check_route(h, in, path, &found, v);
    if (!v->refused) srv_guard_origin(h, in->rules, v);
    if (!v->refused && is_operators(v->query, v->route->flags))
        check_operator(h, in, v);
    else if (!v->refused)
        check_key(h, in, v);
    if (!v->refused && v->dialect == SRV_DIALECT_OLLAMA && in->operator_open) {
        struct srv_guard_verdict asked = *v;
        check_operator(h, in, &asked);
        v->may_operate = !asked.refused;
    }
    if (!v->refused) check_state(in, v);
    if (!v->refused) srv_guard_body(h, in->rules, v);
}
