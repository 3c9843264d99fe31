/* SPDX-License-Identifier: MIT */
/*
 * The lines of a batch's input, checked all or nothing, in the order in which they run: those of a
 * model together, and those whose prompts begin alike next to each other, so that what they share
 * is computed once. It depends on the input alone. Of the lines only their places are kept.
 *
 * Threads: unsafe; one owner.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/sha256.h"

struct buf;
struct srv_route;
struct srv_server;

enum { PLAN_KEYS = 8 };

struct plan_line {
    int64_t at; /* in the input */
    uint32_t bytes, number;
    uint64_t keys[PLAN_KEYS]; /* hashes of the model, and of ever longer beginnings of the prompt */
};

struct plan {
    struct plan_line *lines; /* [n_lines], in the order in which they run; owned */
    size_t n_lines, room;
    char hash[2 * SHA256_BYTES + 1]; /* of the input */
    char model[200];                 /* of the first line; "": none */
    json_t *errors; /* {"code", "line", "message", "param"}, the first hundred; owned */
};

struct plan_rules {
    const struct srv_route *const *routes;
    const char *url;               /* of every line */
    size_t max_line_bytes;         /* of a line */
    int64_t max_lines, max_inputs; /* inputs: of embeddings, in all lines */
    bool (*has_model)(const struct plan_rules *rules, const char *name); /* of a line that has it */
    struct srv_server *server;                                           /* for that */
    const char *only;
};

/* Reads an input from its start; fd stays open. 0, also with errors, or -1: no memory, or it could
 * not be read. plan_finish in both cases. */
int plan_read(struct plan *p, int fd, const struct plan_rules *rules);
void plan_finish(struct plan *p); /* zeros are fine */

/* Reads the text of a line. 0, or -1 as above. */
int plan_line_text(const struct plan_line *l, int fd, struct buf *text);
