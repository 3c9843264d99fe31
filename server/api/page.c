/* SPDX-License-Identifier: MIT */
/*
 * GET /: the chat page, server/api/page.html as it was built in, to who accepts HTML. Others get
 * the words by which they know a server of Ollama's dialect.
 *
 * It holds no secret, so it is served without a key and while the model loads. Its policy lets the
 * browser run only the script and the style that were hashed at build time, and lets them talk only
 * to the server they came from.
 */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "server/api/routes.h"
#include "server/config/config.h"
#include "server/embedded.h"
#include "server/http/api_error.h"
#include "server/http/request.h"
#include "server/models/app.h"

/* One of the two copies of the page. */
struct representation {
    const char *data;
    size_t len;
    const char *etag;
    const char *encoding; /* NULL: as it is */
};

/* Returns true if an element of Accept-Encoding, up to `end`, refuses its coding: q=0, 0.0, ... */
static bool is_refused(const char *p, const char *end)
{
    const char *semicolon = memchr(p, ';', (size_t)(end - p));
    if (!semicolon) return false;
    p = semicolon + 1 + strspn(semicolon + 1, " \t");
    if (strncasecmp(p, "q=", 2) != 0) return false;
    p += 2;
    return p < end && *p == '0' && strspn(p, "0.") >= strcspn(p, ", \t");
}

/* Returns true if the header Accept-Encoding (NULL: none) names gzip and does not refuse it. */
static bool accepts_gzip(const char *header)
{
    const char *p = header ? header : "";
    while (*(p += strspn(p, " \t,"))) {
        const char *end = p + strcspn(p, ",");
        size_t len = strcspn(p, "; \t,");
        if (len == 4 && strncasecmp(p, "gzip", 4) == 0) return !is_refused(p, end);
        p = end;
    }
    return false;
}

/* Returns true if the header If-None-Match (NULL: none) names the tag; weak tags compare alike. */
static bool matches(const char *header, const char *etag)
{
    size_t len = strlen(etag);
    const char *p = header ? header : "";
    while (*(p += strspn(p, " \t,"))) {
        if (*p == '*') return true;
        if (strncmp(p, "W/", 2) == 0) p += 2;
        if (strncmp(p, etag, len) == 0) return true;
        p += strcspn(p, ",");
    }
    return false;
}

static struct representation choose(const struct srv_request *req)
{
    if (accepts_gzip(srv_request_header(req, "Accept-Encoding")))
        return (struct representation){(const char *)srv_embedded_page_html_gzip,
                                       srv_embedded_page_html_gzip_bytes,
                                       srv_embedded_page_html_gzip_etag, "gzip"};
    return (struct representation){(const char *)srv_embedded_page_html,
                                   srv_embedded_page_html_bytes, srv_embedded_page_html_etag, NULL};
}

static void add_security_headers(struct srv_request *req)
{
    char policy[512];
    snprintf(policy, sizeof(policy),
             "default-src 'none'; script-src %s; style-src %s; connect-src 'self'; img-src data:; "
             "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
             "require-trusted-types-for 'script'; trusted-types 'none'",
             srv_embedded_page_html_script_hash, srv_embedded_page_html_style_hash);
    srv_reply_header(req, "Content-Security-Policy", policy);
    srv_reply_header(req, "X-Content-Type-Options", "nosniff");
    srv_reply_header(req, "Referrer-Policy", "no-referrer");
    srv_reply_header(req, "X-Frame-Options", "DENY");
    srv_reply_header(req, "Cross-Origin-Opener-Policy", "same-origin");
    srv_reply_header(req, "Cross-Origin-Resource-Policy", "same-origin");
    srv_reply_header(req, "Permissions-Policy", "camera=(), microphone=(), geolocation=()");
}

static void greet(struct srv_request *req)
{
    struct buf b = {.max = 64};
    buf_puts(&b, "Ollama is running");
    srv_reply(req, 200, "text/plain; charset=utf-8", &b);
}

static void page(struct srv_request *req)
{
    const char *accept = srv_request_header(req, "Accept");
    srv_facts(req)->account.endpoint = "page";
    srv_reply_header(req, "Vary", "Accept, Accept-Encoding");
    if (!req->admin && !(accept && strstr(accept, "text/html"))) {
        greet(req);
        return;
    }
    if (req->admin || !srv_facts(req)->app->config->page) {
        srv_reply_error(req, SRV_ERR_UNKNOWN_URL, NULL,
                        req->admin ? "There is no page on the metrics listener."
                                   : "The chat page is off (option page).");
        return;
    }
    struct representation r = choose(req);
    bool is_known = matches(srv_request_header(req, "If-None-Match"), r.etag);
    struct buf b = {.max = r.len + 1};
    if (!is_known) buf_add(&b, r.data, r.len);
    add_security_headers(req);
    srv_reply_header(req, "Cache-Control", "no-cache");
    srv_reply_header(req, "ETag", r.etag);
    if (r.encoding && !is_known) srv_reply_header(req, "Content-Encoding", r.encoding);
    srv_reply(req, is_known ? 304 : 200, "text/html; charset=utf-8", &b);
}

const struct srv_route srv_routes_page[] = {
    {"GET", "/", SRV_ROUTE_OPEN | SRV_ROUTE_INLINE | SRV_ROUTE_EARLY, SRV_DIALECT_OPENAI, page,
     NULL},
    {0},
};
