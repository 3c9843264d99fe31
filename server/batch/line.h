/* SPDX-License-Identifier: MIT */
/*
 * A line of requests in the form of OpenAI's batches, up to its body, which the route's handler
 * reads:
 *
 *     {"custom_id", "method": "POST", "url": "/v1/...", "body": {...}}
 *
 * Threads: unsafe; one owner.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/sha256.h"

struct buf;
struct srv_route;

struct batch_line {
    const char *id, *body; /* parts of the line; NULL: not there, or of another type */
    size_t n_id, n_body, n_custom_id, n_inputs; /* inputs: texts of an embeddings body */
    const char *key; /* the body from its prompt on: equal beginnings are computed once */
    size_t n_key;
    uint8_t id_digest[SHA256_BYTES];
    char method[8], url[256], model[200]; /* "": the same, or longer */
};

/* Why a line cannot run. */
struct batch_refusal {
    const char *code; /* as "invalid_json_line"; NULL: it can */
    char message[400];
};

/*
 * Reads a line. routes: those of the server; ids: zero before the first line, the custom_ids of
 * those before, NULL: they are not looked at. 0, also with a refusal, or -1 when out of memory.
 */
int batch_line_read(struct batch_line *ret, const char *text, size_t n,
                    const struct srv_route *const *routes, void **ids, struct batch_refusal *why);

/* Lets go of the ids. */
void batch_line_forget(void **ids);

/* Reads the text of a line without its end. 1: there is one, cut and b->too_large set if it does
 * not fit; 0: the end of the input; -1: no memory, or the input failed. */
int batch_line_next(FILE *in, struct buf *b);
/* Takes a carriage return off its end, and off the first line a mark of byte order. Returns false
 * if nothing is left: such a line does not count. */
bool batch_line_trim(struct buf *text, bool first);

/* An answer, as a line of the output. */
struct batch_answer {
    const uint8_t *digest;         /* of the line as it was read */
    const struct batch_line *line; /* of which the id counts */
    int status;                    /* 0: it was never started, and has the error below */
    const char *request_id;        /* of the request */
    const char *body;              /* JSON; "": null */
    size_t n_body;
    const char *code, *message;
};
/* Appends it, with its end. */
void batch_answer_write(struct buf *to, const struct batch_answer *a);

/* Whether a request was refused for lack of room, which may be there later. */
bool batch_answer_is_passing(int status, const char *body, size_t n);
