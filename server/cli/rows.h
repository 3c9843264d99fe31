/* SPDX-License-Identifier: MIT */
/*
 * The filters whose answers are rows of numbers. Lines that are there at once become jobs of the
 * engine together; answers come in the order of the lines, before more input is waited for: JSON
 * lines, or all rows as a NumPy array of float32 in a file. stderr has a line of progress.
 *
 * Threads: the main thread; the engine's fills rows.
 */
#ifndef HEARTH_SERVER_CLI_ROWS_H
#define HEARTH_SERVER_CLI_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/engine.h"
#include "server/cli/filter.h"
#include "server/models/pairs.h"
#include "server/models/retrieval.h"

enum { ROWS_MAX_OF_LINE = 1000 };

struct rows;
struct srv_config;

struct rows_model {
    const struct srv_config *config;
    struct tok *tok;
    struct eng *engine;
    struct srv_retrieval files;
    struct srv_pairs pairs;
};

/* A line: its prompts' jobs and, when it is written, their rows. */
struct rows_line {
    struct rows *owner;
    struct row *rows; /* [n_room] */
    float *values;    /* [n, width of a job's row] */
    int n, n_room;
    bool many;     /* the line is a list */
    int64_t top_n; /* of it are wanted; 0: all */
    struct filter_error error;
};

struct rows_filter {
    /* After the model has been loaded: whether it can do this, and *ret_width, the numbers of a
     * job's row. 0, or -1 with a sentence. */
    int (*open)(void *ctx, const struct rows_model *m, int *ret_width, struct filter_error *e);
    /* Reserves and adds the prompts of a line: its JSON value, with --text a string. */
    int (*read)(void *ctx, struct rows_line *line, const json_t *value, struct filter_error *e);
    void (*finish)(void *ctx, float *row); /* makes the numbers of the answer of it, in place */
    int n_numbers;                         /* of them; set by open */
    void (*write)(void *ctx, const struct rows_line *line, struct jw *w); /* finished rows */
    const char *unit;                                                     /* "texts" */
    void *ctx;
};

/* Answers every line. Returns the exit status. */
int rows_run(const struct srv_config *config, struct rows_filter *f);

/* Makes room for n prompts, 1 to ROWS_MAX_OF_LINE. 0, or -1 with e. */
int rows_reserve(struct rows_line *line, size_t n, struct filter_error *e);

/* Submits the ids as the next prompt; *p says what is wanted of it, no more. 0, or -1 with e. */
int rows_add(struct rows_line *line, const struct tok_ids *ids, struct eng_job_params *p,
             struct filter_error *e);

#endif
