/* SPDX-License-Identifier: MIT */
/*
 * libcurl by dlopen. Each exchange runs in a multi handle of its own, because only that lets this
 * file decide when to look at the clock and at the stop flag; connections are reused through it.
 */
#include "server/hub/transfer.h"

#define CURL_DISABLE_TYPECHECK /* its macros do not work with the pointers below */
#include <curl/curl.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/fail.h"

enum {
    LOOK_MS = 50,              /* how often the clock and the stop flag are looked at */
    RECEIVE_BYTES = 512 << 10, /* the most libcurl takes */
};

/* Debian's GnuTLS flavour first: the program has that TLS library already. */
static const char *const library_names[] = {"libcurl-gnutls.so.4", "libcurl.so.4"};

/* clang-format off */
#define CURL_FUNCTIONS(X)                                                                          \
    X(curl_global_init) X(curl_easy_init) X(curl_easy_cleanup)                                     \
    X(curl_easy_reset) X(curl_easy_setopt) X(curl_easy_getinfo)                                    \
    X(curl_easy_header) X(curl_easy_strerror) X(curl_slist_append)                                 \
    X(curl_slist_free_all) X(curl_multi_init) X(curl_multi_cleanup)                                \
    X(curl_multi_add_handle) X(curl_multi_remove_handle) X(curl_multi_perform)                     \
    X(curl_multi_poll) X(curl_multi_info_read) X(curl_url)                                         \
    X(curl_url_cleanup) X(curl_url_set) X(curl_url_get)                                            \
    X(curl_free)
/* clang-format on */

#define FIELD(name) __typeof__(&name) name;
static struct {
    CURL_FUNCTIONS(FIELD)
} api;
static bool loaded;

#define FIND(name) found = (*(void **)&api.name = dlsym(library, #name)) && found;

int transfer_load(char *err, size_t errlen)
{
    if (loaded) return 0;
    void *library = NULL;
    for (size_t i = 0; !library && i < sizeof(library_names) / sizeof(library_names[0]); i++)
        library = dlopen(library_names[i], RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return fail_with(-1, err, errlen,
                         "libcurl is not installed (Debian: libcurl3-gnutls); `hf download` of "
                         "huggingface_hub fetches models too");
    bool found = true;
    CURL_FUNCTIONS(FIND)
    if (!found)
        return fail_with(-1, err, errlen, "the libcurl that is installed is older than 7.85");
    if (api.curl_global_init(CURL_GLOBAL_ALL))
        return fail_with(-1, err, errlen, "libcurl cannot be initialized");
    loaded = true;
    return 0;
}

/* ---- one exchange --------------------------------------------------------------------------- */

struct transfer {
    CURL *easy;
    CURLM *multi;
    struct transfer_settings settings;
    const struct transfer_exchange *x; /* the one that runs */
    bool head_done, refused;
    size_t head_bytes;
    uint64_t begin_us;
    uint64_t window_us;  /* when the present window of the body timeout began */
    size_t window_bytes; /* received in it */
    char detail[CURL_ERROR_SIZE];
    char reason[CURL_ERROR_SIZE + 64];
};

struct transfer *transfer_create(const struct transfer_settings *settings)
{
    struct transfer *t = calloc(1, sizeof(*t));
    if (!t) return NULL;
    t->settings = *settings;
    t->easy = api.curl_easy_init();
    t->multi = api.curl_multi_init();
    if (t->easy && t->multi) return t;
    transfer_destroy(t);
    return NULL;
}

void transfer_destroy(struct transfer *t)
{
    if (!t) return;
    if (t->easy) api.curl_easy_cleanup(t->easy);
    if (t->multi) api.curl_multi_cleanup(t->multi);
    free(t);
}

int transfer_status(const struct transfer *t)
{
    long status = 0;
    if (t->head_done) api.curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
    return (int)status;
}

const char *transfer_header(struct transfer *t, const char *name)
{
    struct curl_header *h;
    return api.curl_easy_header(t->easy, name, 0, CURLH_HEADER, -1, &h) == CURLHE_OK ? h->value
                                                                                     : NULL;
}

const char *transfer_reason(const struct transfer *t)
{
    return t->reason;
}

/* The blank line that ends the head, but not those of 1xx answers before it. */
static bool ends_head(struct transfer *t, const char *line, size_t len)
{
    long status = 0;
    if (len > 2 || (line[0] != '\r' && line[0] != '\n')) return false;
    api.curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
    return status >= 200;
}

static size_t take_header(char *line, size_t size, size_t n, void *ctx)
{
    struct transfer *t = ctx;
    size_t len = size * n;
    t->head_bytes += len;
    if (t->head_bytes > TRANSFER_HEAD_MAX_BYTES) {
        snprintf(t->reason, sizeof(t->reason), "more than %d bytes of headers",
                 TRANSFER_HEAD_MAX_BYTES);
        return 0;
    }
    if (t->head_done || !ends_head(t, line, len)) return len;
    t->head_done = true;
    t->window_us = clock_now_us();
    t->refused = t->x->on_head && !t->x->on_head(t->x->ctx, t);
    return t->refused ? 0 : len;
}

static size_t take_body(char *data, size_t size, size_t n, void *ctx)
{
    struct transfer *t = ctx;
    size_t len = size * n;
    t->window_bytes += len;
    t->refused = !t->x->on_body(t->x->ctx, data, len);
    return t->refused ? 0 : len;
}

/* https_proxy and similar variables do not apply to this machine. */
static const char *proxy_for(const char *url)
{
    struct transfer_origin origin;
    return transfer_url_origin(url, &origin) == 0 && origin.loopback ? "" : NULL;
}

static void set_options(struct transfer *t, struct curl_slist *headers)
{
    const struct transfer_exchange *x = t->x;
    CURL *e = t->easy;
    api.curl_easy_reset(e);
#define SET(option, value) api.curl_easy_setopt(e, CURLOPT_##option, value)
    SET(URL, x->url);
    SET(HTTPHEADER, headers);
    SET(USERAGENT, "hearth/" HEARTH_VERSION);
    SET(PROTOCOLS_STR, "http,https");
    SET(REDIR_PROTOCOLS_STR, "http,https");
    SET(FOLLOWLOCATION, 0L);
    SET(DISALLOW_USERNAME_IN_URL, 1L);
    SET(PATH_AS_IS, 1L);
    SET(HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(HTTP_CONTENT_DECODING, 0L);
    SET(SUPPRESS_CONNECT_HEADERS, 1L);
    SET(PROXY, proxy_for(x->url));
    SET(SSL_VERIFYPEER, 1L);
    SET(SSL_VERIFYHOST, 2L);
    SET(SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    SET(NOSIGNAL, 1L);
    SET(TCP_KEEPALIVE, 1L);
    SET(BUFFERSIZE, (long)RECEIVE_BYTES);
    SET(ERRORBUFFER, t->detail);
    SET(HEADERFUNCTION, take_header);
    SET(HEADERDATA, t);
    SET(WRITEFUNCTION, take_body);
    SET(WRITEDATA, t);
    if (t->settings.ca_file) SET(CAINFO, t->settings.ca_file);
    if (t->settings.ca_dir) SET(CAPATH, t->settings.ca_dir);
    if (t->settings.unix_socket) SET(UNIX_SOCKET_PATH, t->settings.unix_socket);
    if (!x->body) return;
    SET(POST, 1L);
    SET(POSTFIELDSIZE_LARGE, (curl_off_t)x->body_len);
    SET(POSTFIELDS, x->body);
#undef SET
}

#define explain(t, end, ...) fail_with(end, (t)->reason, sizeof((t)->reason), __VA_ARGS__)

/* TRANSFER_OK: the exchange may go on; else why it must end. */
static enum transfer_end look_at_clock(struct transfer *t)
{
    const struct transfer_exchange *x = t->x;
    uint64_t now_us = clock_now_us();
    if (x->stop && atomic_load(x->stop)) return explain(t, TRANSFER_STOPPED, "stopped");
    if (!t->head_done) {
        if (!x->head_timeout_ms || now_us - t->begin_us < (uint64_t)x->head_timeout_ms * 1000)
            return TRANSFER_OK;
        return explain(t, TRANSFER_NO_HEAD, "no answer for %d s", x->head_timeout_ms / 1000);
    }
    if (!x->body_timeout_ms || now_us - t->window_us < (uint64_t)x->body_timeout_ms * 1000)
        return TRANSFER_OK;
    size_t n = t->window_bytes;
    t->window_us = now_us;
    t->window_bytes = 0;
    if (n >= TRANSFER_BODY_MIN_BYTES) return TRANSFER_OK;
    return explain(t, TRANSFER_SLOW, "%s byte for %d s", n ? "hardly a" : "no",
                   x->body_timeout_ms / 1000);
}

static enum transfer_end end_of_code(struct transfer *t, CURLcode code)
{
    if (code == CURLE_OK) return TRANSFER_OK;
    if (t->refused) return explain(t, TRANSFER_REFUSED, "not wanted");
    if (!t->reason[0])
        snprintf(t->reason, sizeof(t->reason), "%s",
                 t->detail[0] ? t->detail : api.curl_easy_strerror(code));
    switch (code) {
    case CURLE_OUT_OF_MEMORY: return TRANSFER_NOMEM;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT: return TRANSFER_UNREACHED;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_ISSUER_ERROR: return TRANSFER_UNTRUSTED;
    default: return TRANSFER_BROKEN;
    }
}

static enum transfer_end drive(struct transfer *t)
{
    int n_running = 1, n_left;
    while (n_running) {
        enum transfer_end end = look_at_clock(t);
        if (end) return end;
        if (api.curl_multi_perform(t->multi, &n_running)) return TRANSFER_NOMEM;
        if (n_running) api.curl_multi_poll(t->multi, NULL, 0, LOOK_MS, NULL);
    }
    CURLMsg *message = api.curl_multi_info_read(t->multi, &n_left);
    return message ? end_of_code(t, message->data.result) : TRANSFER_NOMEM;
}

static int make_headers(const char *const *lines, struct curl_slist **ret)
{
    for (; lines && *lines; lines++) {
        struct curl_slist *list = api.curl_slist_append(*ret, *lines);
        if (!list) return -1;
        *ret = list;
    }
    return 0;
}

enum transfer_end transfer_run(struct transfer *t, const struct transfer_exchange *x)
{
    struct curl_slist *headers = NULL;
    enum transfer_end end = TRANSFER_NOMEM;
    t->x = x;
    t->head_done = t->refused = false;
    t->head_bytes = t->window_bytes = 0;
    t->begin_us = clock_now_us();
    t->detail[0] = t->reason[0] = '\0';
    if (make_headers(x->headers, &headers) == 0) {
        set_options(t, headers);
        if (api.curl_multi_add_handle(t->multi, t->easy) == CURLM_OK) {
            end = drive(t);
            api.curl_multi_remove_handle(t->multi, t->easy);
        }
    }
    if (end == TRANSFER_NOMEM) snprintf(t->reason, sizeof(t->reason), "out of memory");
    api.curl_easy_setopt(t->easy, CURLOPT_HTTPHEADER, NULL);
    api.curl_slist_free_all(headers);
    return end;
}

/* ---- URLs ----------------------------------------------------------------------------------- */

/* One part of a URL, into buf; an empty text where it has none. */
static int get_part(CURLU *u, CURLUPart part, unsigned flags, char *buf, size_t size)
{
    char *text = NULL;
    buf[0] = '\0';
    if (api.curl_url_get(u, part, &text, flags)) return -1;
    int len = snprintf(buf, size, "%s", text);
    api.curl_free(text);
    return len >= 0 && (size_t)len < size ? 0 : -1;
}

int transfer_url_join(const char *base, const char *relative, char *buf, size_t size)
{
    CURLU *u = api.curl_url();
    int rc = -1;
    if (u && !api.curl_url_set(u, CURLUPART_URL, base, 0) &&
        !api.curl_url_set(u, CURLUPART_URL, relative, CURLU_NON_SUPPORT_SCHEME))
        rc = get_part(u, CURLUPART_URL, 0, buf, size);
    if (u) api.curl_url_cleanup(u);
    return rc;
}

static bool is_loopback(const char *host)
{
    unsigned a, b, c, d;
    char rest;
    return strcasecmp(host, "localhost") == 0 || strcmp(host, "[::1]") == 0 ||
           (sscanf(host, "%u.%u.%u.%u%c", &a, &b, &c, &d, &rest) == 4 && a == 127);
}

int transfer_url_origin(const char *url, struct transfer_origin *ret)
{
    CURLU *u = api.curl_url();
    char host[256], port[8], user[8];
    int rc = -1;
    *ret = (struct transfer_origin){0};
    if (u && !api.curl_url_set(u, CURLUPART_URL, url, CURLU_NON_SUPPORT_SCHEME) &&
        !get_part(u, CURLUPART_SCHEME, 0, ret->scheme, sizeof(ret->scheme)) &&
        get_part(u, CURLUPART_USER, 0, user, sizeof(user)) && !user[0] &&
        !get_part(u, CURLUPART_HOST, 0, host, sizeof(host))) {
        get_part(u, CURLUPART_PORT, CURLU_DEFAULT_PORT, port, sizeof(port));
        int len = snprintf(ret->text, sizeof(ret->text), "%s://%s:%s", ret->scheme, host, port);
        for (char *p = ret->text; *p; p++)
            if (*p >= 'A' && *p <= 'Z') *p = (char)(*p - 'A' + 'a');
        ret->loopback = is_loopback(host);
        rc = len >= 0 && (size_t)len < sizeof(ret->text) ? 0 : -1;
    }
    if (u) api.curl_url_cleanup(u);
    return rc;
}
