/* SPDX-License-Identifier: MIT */
/*
 * HTTP exchanges through libcurl: the only part of the program that knows it. The library is opened
 * when a command needs it, so that a server which does not use it maps none of its dependencies.
 *
 * An exchange is one request and one answer. Redirects are answers like any other: the caller
 * decides whether to follow. Certificates are always verified; no cookies, no .netrc; proxies as
 * the environment has them, but never for loopback addresses.
 *
 * Threads: transfer_load runs before any other thread exists; a struct transfer has one owner at a
 * time, and callbacks run on the thread of transfer_run.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

enum {
    TRANSFER_HEAD_MAX_BYTES = 64 << 10,
    TRANSFER_URL_MAX_BYTES = 8 << 10,
    TRANSFER_BODY_MIN_BYTES = 1024, /* a body must bring this much per body_timeout_ms */
};

/*
 * Opens libcurl, before anything else here is called. 0, or -1 with a sentence: it is not
 * installed, or this build is without it.
 */
int transfer_load(char *err, size_t errlen);

struct transfer;

/* Shared by all exchanges of a struct transfer. Borrowed for its life; NULL: the library's own. */
struct transfer_settings {
    const char *ca_file, *ca_dir; /* PEM certificates trusted instead of the system's */
    const char *unix_socket;      /* connects to this socket whatever the URL's host is */
};

/* Returns owned, or NULL when out of memory. */
struct transfer *transfer_create(const struct transfer_settings *settings);
void transfer_destroy(struct transfer *t);

enum transfer_end {
    TRANSFER_OK,        /* the whole answer came, and the callbacks took it */
    TRANSFER_STOPPED,   /* *stop was set */
    TRANSFER_REFUSED,   /* a callback returned false */
    TRANSFER_NO_HEAD,   /* no whole head within head_timeout_ms */
    TRANSFER_SLOW,      /* less than TRANSFER_BODY_MIN_BYTES within body_timeout_ms */
    TRANSFER_UNREACHED, /* the name was not found, or nothing answers there */
    TRANSFER_UNTRUSTED, /* the certificate, or the file of trusted ones */
    TRANSFER_BROKEN,    /* reset, ended early, not HTTP, a head that is too large */
    TRANSFER_NOMEM,
};

struct transfer_exchange {
    const char *url;            /* http or https */
    const char *const *headers; /* "Name: value", NULL-terminated; NULL: none */
    const char *body;           /* POST this; NULL: GET */
    size_t body_len;
    int head_timeout_ms, body_timeout_ms; /* 0: none */
    /* NULL, or: the final head is there, see transfer_status, transfer_header. false: the end. */
    bool (*on_head)(void *ctx, struct transfer *t);
    /* The next bytes of the body, as they were sent: no encoding is undone but chunks. */
    bool (*on_body)(void *ctx, const char *data, size_t len);
    void *ctx;
    const atomic_bool *stop; /* looked at several times a second; NULL: never stops */
};

/* Borrows x during the call. After any end but TRANSFER_OK transfer_reason has a sentence. */
enum transfer_end transfer_run(struct transfer *t, const struct transfer_exchange *x);

/* About the last exchange; strings are borrowed until the next one. */
int transfer_status(const struct transfer *t); /* 0: no head came */
const char *transfer_header(struct transfer *t,
                            const char *name); /* the first of this name, or NULL */
const char *transfer_reason(const struct transfer *t);

/* ---- URLs: libcurl's own parser, so that what is checked is what is connected to ------------ */

enum { TRANSFER_ORIGIN_MAX_BYTES = 300 };

/*
 * The URL that `relative` (which may be absolute) means on a page at `base`; either may be the same
 * buffer. Returns 0, or -1 for what is not a URL or longer than size.
 */
int transfer_url_join(const char *base, const char *relative, char *buf, size_t size);

struct transfer_origin {
    char text[TRANSFER_ORIGIN_MAX_BYTES]; /* "https://host:443", lower case */
    char scheme[16];
    bool loopback; /* the host is localhost or an address of this machine */
};

/*
 * 0, or -1 for what is not a URL, has no host, or has a user name in it; scheme is set if it has
 * one.
 */
int transfer_url_origin(const char *url, struct transfer_origin *ret);
