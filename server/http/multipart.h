/* SPDX-License-Identifier: MIT */
/*
 * Bodies of type multipart/form-data (RFC 7578), read as they arrive: any pieces in, parts out. The
 * library's own reader keeps pointers into a connection that may have ended, and takes no names
 * without quotes, as .NET sends them.
 *
 * Threads: unsafe; one owner.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum {
    MULTIPART_BOUNDARY = 70, /* bytes, as RFC 2046 has it */
    MULTIPART_HEAD = 8192,   /* of a part */
    MULTIPART_PARTS = 16,
};

enum multipart_event {
    MULTIPART_MORE,   /* nothing else can be said of these bytes alone */
    MULTIPART_END,    /* the last boundary has come; what follows does not count */
    MULTIPART_PART,   /* a part begins: `name`, and `filename` or NULL */
    MULTIPART_DATA,   /* some bytes: `data`, `n_data`; before the first part: of none */
    MULTIPART_EINVAL, /* the body is not well-formed: `problem`, a sentence; static */
};

/* Pointers are good until the next call. */
struct multipart {
    char delimiter[4 + MULTIPART_BOUNDARY + 1]; /* CR LF - - boundary */
    size_t n_delimiter;
    enum { MULTIPART_IN_DATA, MULTIPART_IN_HEAD, MULTIPART_ENDED } state;
    bool at_start; /* of data: the CR LF of a delimiter has been read */
    int n_parts;
    char head[MULTIPART_HEAD + 1];
    const char *name, *filename, *data, *problem;
    size_t n_data;
};

/* Takes the boundary from a Content-Type. False: it is not multipart/form-data with a good one. */
bool multipart_init(struct multipart *m, const char *content_type);

/*
 * Reads on in n bytes of the body from *at, which it advances. The bytes that MORE leaves, at most
 * MULTIPART_HEAD, are to come again with those that follow.
 */
enum multipart_event multipart_next(struct multipart *m, const char *body, size_t n, size_t *at);
