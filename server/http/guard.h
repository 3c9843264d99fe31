/* SPDX-License-Identifier: MIT */
/*
 * The checks of a request's head, before its body is read. The HTTP library is lax about framing:
 * requests that a proxy and this server could read differently are refused here. The rules are pure
 * functions on text, so that each has its test; admit.h applies them to a request.
 *
 * Threads: safe; they keep no state.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/config/config.h"
#include "server/http/endpoint.h"
#include "server/state.h"

/* Rules of the configuration for every head. Strings are borrowed. */
struct srv_guard_rules {
    const struct srv_list *allowed_hosts; /* checked when not empty; "*" allows all */
    const struct srv_list *cors_origins;  /* "*" allows all */
    bool only_loopback_hosts; /* bound to loopback without a key: names of loopback only */
    int64_t max_body_bytes;
};

/* Facts of a head, collected header by header. */
struct srv_guard_head {
    const char *method, *version, *target;
    const char *host, *origin, *content_type, *content_length, *transfer_encoding,
        *content_encoding, *expect;
    const char *authorization, *api_key; /* Authorization, x-api-key or api-key */
    const char *anthropic_version;
    const char *forwarded; /* a header that a proxy adds, or NULL */
    int n_hosts, n_content_lengths, n_transfer_encodings, n_authorizations;
    bool bad_header; /* a name with blanks, a value with control characters */
    /* filled by srv_guard_framing */
    bool chunked;
    int64_t body_bytes; /* announced; 0 without a body, -1 for chunked */
};

struct srv_guard_verdict {
    bool refused;
    enum srv_error kind;
    char message[256];
    /* filled by srv_guard_check */
    const struct srv_route *route; /* NULL: none, or refused before it was looked for */
    enum srv_dialect dialect;      /* of the answer, also if it is a refusal */
    const char *tail;              /* of a prefix route: points into the path; else "" */
    const char *query;             /* raw, after '?': points into the target; else "" */
    char allow[64];                /* with SRV_ERR_METHOD: the methods of the path */
    bool may_operate; /* in Ollama's dialect: a route for the operator would have been open to it */
    uint8_t tenant[32]; /* of the key; zeros without one */
};

/* Adds one header; strings are borrowed for as long as the head is used. */
void srv_guard_add_header(struct srv_guard_head *h, const char *name, size_t name_len,
                          const char *value, size_t value_len);

struct srv_key_words;
struct srv_keys;

/* Input of srv_guard_check. Borrowed. */
struct srv_guard_input {
    const struct srv_route *const *routes; /* NULL-terminated list of tables */
    const struct srv_guard_rules *rules;
    struct srv_keys *keys;          /* NULL: no key is asked for */
    struct srv_key_words *words;    /* zeroed; set to those of the key that was sent */
    struct srv_keys *operator_keys; /* NULL: the rules for clients of this machine */
    bool operator_open;             /* routes for the operator are served */
    bool peer_is_local;             /* loopback or the Unix socket */
    enum srv_state state;
    int percent;   /* of a model that is being downloaded, or -1 */
    bool refusing; /* draining, and past the delay */
    bool admin;    /* came in on the metrics listener */
    bool too_many_connections, too_many_headers;
};

/*
 * Makes all checks, cheapest first; later ones rely on earlier ones. path: a buffer for the decoded
 * path of h->target, 2 bytes longer than the target; NULL is refused as out of memory, as are keys
 * without room for words. An OPTIONS request is checked up to its Host.
 */
void srv_guard_check(struct srv_guard_head *h, const struct srv_guard_input *in, char *path,
                     struct srv_guard_verdict *v);

/* The steps, in order of cost. Each sets the verdict when it refuses. */
void srv_guard_framing(struct srv_guard_head *h, struct srv_guard_verdict *v);
void srv_guard_host(const struct srv_guard_head *h, const struct srv_guard_rules *r,
                    struct srv_guard_verdict *v);
void srv_guard_origin(const struct srv_guard_head *h, const struct srv_guard_rules *r,
                      struct srv_guard_verdict *v);
void srv_guard_body(const struct srv_guard_head *h, const struct srv_guard_rules *r,
                    struct srv_guard_verdict *v);

/*
 * Returns true if the raw target is printable, starts with '/', and has valid escapes without %00.
 */
bool srv_guard_target_is_good(const char *target);

/* Decodes %XX in place (and '+' as a blank in queries); malformed escapes stay. */
void srv_guard_decode(char *text, bool is_query);

/* The raw value of a parameter of a raw query, the first of that name; NULL: there is none. */
const char *srv_guard_query(const char *query, const char *name, size_t *ret_len);

/* The key of Authorization: Bearer KEY, x-api-key or api-key; NULL without a well-formed one. */
const char *srv_guard_key(const struct srv_guard_head *h, size_t *ret_len);

/* Returns true if a web page of an origin that is not allowed sent the request. */
bool srv_guard_is_foreign(const struct srv_guard_head *h, const struct srv_guard_rules *r);

/* The value for Access-Control-Allow-Origin, or NULL. Borrowed. */
const char *srv_guard_cors(const char *origin, const struct srv_guard_rules *r);

/* ---- routes -------------------------------------------------------------------------------- */

struct srv_guard_route {
    const struct srv_route *route; /* NULL: the path is unknown, or knows another method */
    const char *tail;              /* of a prefix route: points into path */
    bool path_known;
    enum srv_dialect path_dialect; /* of the path's routes: the first other than OpenAI's */
    char allow[64];                /* methods of the path, for Allow */
    const char *nearest;           /* of an unknown path: one a few letters off, or NULL */
};

/* tables: a NULL-terminated list; path decoded, without trailing slash. HEAD finds GET's route. */
void srv_guard_find_route(const struct srv_route *const *tables, const char *method,
                          const char *path, struct srv_guard_route *ret);
