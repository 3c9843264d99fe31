/* SPDX-License-Identifier: MIT */
/*
 * The answers to the lines of a batch as they come: a file that is only appended to, and that alone
 * says which lines are done. A record is
 *
 *     {sum, bytes of text, line, kind, tokens}  text of the output line, with its end
 *
 * A line is done when its record is whole: opening cuts the file at the first one that is not, as
 * after a kill or a full disk, and of two records of a line the first counts. So nothing can
 * disagree with it, and each line is done once whatever happens. Numbers are in this machine's
 * order of bytes.
 *
 * Threads: unsafe; one owner. Errors: -1, with errno or a sentence.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum results_kind {
    RESULTS_NONE,
    RESULTS_GOOD,   /* for the output file */
    RESULTS_FAILED, /* for the file of errors */
    RESULTS_UNRUN,  /* there too: it was never started */
    RESULTS_KINDS
};

enum { RESULTS_PROMPT, RESULTS_CACHED, RESULTS_GENERATED, RESULTS_TOKENS };

enum { RESULTS_MAX_BYTES = 64 << 20 }; /* of a text */

struct results_line {
    int64_t at; /* of its text in the file */
    uint32_t bytes;
    enum results_kind kind;
};

struct results {
    int fd;
    struct results_line *lines; /* [n_lines] */
    int64_t n_lines;
    int64_t n_of[RESULTS_KINDS]; /* lines of each kind */
    int64_t tokens[RESULTS_TOKENS];
    int64_t bytes; /* of the whole records */
    bool unsynced;
};

/* Opens, or makes, the file of a batch of n_lines in a directory. 0, or -1 with a sentence;
 * results_close in both cases. */
int results_open(struct results *r, int dir_fd, const char *name, int64_t n_lines, char *err,
                 size_t errlen);
void results_close(struct results *r);

/* Adds the answer to a line that has none; tokens: of its request, NULL: none. After -1 the line
 * has none, whatever the disk kept. */
int results_add(struct results *r, int64_t line, enum results_kind kind, const char *text,
                size_t bytes, const uint32_t tokens[RESULTS_TOKENS]);

/* Makes those that were added durable. */
int results_sync(struct results *r);

/* Writes the texts of the good lines, or of all others that are done, in the order of the lines. */
int results_write(const struct results *r, bool good, int fd);

/* "request_counts" and "usage" of the batch; zeros are fine. Owned, or NULL: no memory. */
json_t *results_members(const struct results *r);
