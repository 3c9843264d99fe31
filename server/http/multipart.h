/* SPDX-License-Identifier: MIT */
/*
 * Bodies of type multipart/form-data (RFC 7578), read as they arrive: any pieces in, parts out. No
 * more than a line of a part's head is held.
 *
 * Threads: unsafe; one owner.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum {
    MULTIPART_BOUNDARY = 70, /* bytes, as RFC 2046 has it */
    MULTIPART_LINE = 8192,   /* of a part's head */
    MULTIPART_PARTS = 16,
    MULTIPART_HEADERS = 16, /* of a part */
};

/* Strings are borrowed during the call. */
struct multipart_sink {
    /* A part begins; filename NULL: it has none. Not 0: reading ends with this result. */
    int (*begin)(void *ctx, const char *name, const char *filename);
    /* Some of its bytes; likewise. */
    int (*data)(void *ctx, const char *data, size_t n);
    void *ctx;
};

struct multipart {
    struct multipart_sink sink;
    char delimiter[4 + MULTIPART_BOUNDARY + 1]; /* CR LF - - boundary */
    size_t n_delimiter, n_matched;              /* of it, at the end of what was read */
    enum { MULTIPART_DATA, MULTIPART_DELIMITED, MULTIPART_HEAD, MULTIPART_END } state;
    bool in_part;  /* data is of a part; before the first one it is dropped */
    bool at_start; /* the CR LF of what matches is none of the data's */
    int n_parts, n_headers;
    char line[MULTIPART_LINE + 1];
    size_t n_line;
    char name[MULTIPART_LINE + 1], filename[MULTIPART_LINE + 1];
    bool has_name, has_filename;
    const char *problem; /* of a body that is not well-formed: a sentence; static */
};

enum { MULTIPART_EINVAL = -1 };

/* Takes the boundary from a Content-Type. False: it is not multipart/form-data with a good one. */
bool multipart_init(struct multipart *m, const char *content_type,
                    const struct multipart_sink *sink);

/* Reads n bytes more. 0, MULTIPART_EINVAL with `problem`, or what the sink returned. */
int multipart_add(struct multipart *m, const char *data, size_t n);

/* The body is over: 0, or MULTIPART_EINVAL if it lacks its end. */
int multipart_end(struct multipart *m);
