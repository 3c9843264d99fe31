/* SPDX-License-Identifier: MIT */
/*
 * The subcommands that are filters: JSON lines on stdin to JSON lines on stdout, in order, one
 * answer per line, written at once. A line that cannot be answered gets {"error": "..."}.
 *
 * Threads: the main thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include <jansson.h>

struct buf;
struct jw;

/* The reason why a line has no answer. */
struct filter_error {
    char text[1024];
};

struct filter {
    size_t max_line_bytes, max_answer_bytes;
    /* Writes the answer, one value, and returns 0; or -1 with e filled, whatever it has written. */
    int (*answer)(void *ctx, const char *line, size_t len, struct jw *out, struct filter_error *e);
    /* Writes the answer to a line that has none; NULL: {"error": message}. */
    void (*error)(struct jw *out, const char *message);
    void *ctx;
};

/* Answers every line. Returns the exit status, after a message on stderr if it is not 0. */
int filter_run(const struct filter *f);

/* Fills e and returns -1. */
int filter_fail(struct filter_error *e, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* A member that is true or false; absent and null mean the preset. 0 or -1 with e. */
int filter_flag(const json_t *request, const char *name, bool preset, bool *ret,
                struct filter_error *e);
