/* SPDX-License-Identifier: MIT */
/*
 * Lines in, lines out: each line of a file becomes a request of this process, several run at once,
 * and the answers are written in the order of the lines.
 *
 * An answer depends on its line alone: ids and, where the body has none, the seed are made of the
 * line's hash. Refusals for lack of room (429, 503) are tried again. With --url the requests go to
 * a server elsewhere, and those that fail on the way are tried again too.
 *
 * Threads: the main thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/fail.h"
#include "base/sha256.h"
#include "server/batch/line.h"
#include "server/bounds.h"
#include "server/cli/offline.h"
#include "server/cli/remote.h"
#include "server/http/local.h"

/* A line that has been read and whose answer is not written. */
struct line {
    struct buf text;              /* without its end */
    uint8_t digest[SHA256_BYTES]; /* of text as it was read */
    struct batch_line parts;      /* of text, which may be replaced; without a body: text is it */
    int status;                   /* of the answer; 0: it is not there yet */
    char request_id[SRV_REQUEST_ID_MAX + 1];
    struct buf answer;        /* its body */
    size_t n_texts;           /* the reader's, for its writer */
    int n_refused, n_failed;  /* tries for lack of room, and others */
    struct srv_local request; /* while it runs here, */
    struct remote_call call;  /* or elsewhere */
};

struct lines {
    struct offline offline;
    FILE *in, *out;
    const char *out_name;
    const char *unit;  /* "lines" */
    int64_t created_s; /* of answers that say when they were made */
    bool as_is;        /* blank lines, carriage returns and a mark of byte order count too */
    /* Makes a request of a line, or refuses it. 0, or -1 with err, which ends the run. */
    int (*read)(struct lines *l, struct line *i);
    /* Appends to *to what the answer becomes in the output, and counts it. 0 or -1 as above. */
    int (*write)(struct lines *l, struct line *i, struct buf *to);
    void *ctx;
    /* written, for the line of progress; all_bytes: of the input, 0 if that is not known */
    int64_t n_units, n_failed, n_tokens, n_bytes, all_bytes;
    int64_t n_read, n_written; /* lines */
    char err[1024];

    /* of lines.c */
    struct remote remote;
    struct line *held; /* a ring, owned */
    int n_running, most_running;
    int64_t n_started; /* since all that was read was written */
    size_t held_bytes;
    bool begun, ended; /* reading */
    bool is_remote, by_key;
    bool reached; /* the server elsewhere: it has answered */
    uint64_t pause_us, start_us, shown_us;
};

/* Loads the models, if they are to be here. 0, or -1 with err; lines_close in both cases. */
int lines_open(struct lines *l, const struct srv_config *config);

/* Answers a line of the caller's own, which is not one of the lines. 0, or -1 with err. */
int lines_ask(struct lines *l, struct line *i);

/* Answers all lines. 0, or -1 with err. */
int lines_run(struct lines *l);

/* Says why the run ended, if rc is not 0; in and out stay open. */
void lines_close(struct lines *l, int rc);

/* Fills err and returns -1. */
#define lines_fail(l, ...) fail_with(-1, (l)->err, sizeof((l)->err), __VA_ARGS__)

/* The answer is status 400 with the error object. */
void lines_refuse(struct line *i, const char *format, ...) __attribute__((format(printf, 2, 3)));
