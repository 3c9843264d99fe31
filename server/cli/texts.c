/* SPDX-License-Identifier: MIT */
/*
 * hearth embed and hearth rerank: lines of stdin as requests to /v1/embeddings and /v1/rerank, and
 * of the answers the numbers, as JSON lines or with --npy FILE as a NumPy array of all rows.
 * config/print.c has the shapes of the lines. Main thread.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "server/cli/cli.h"
#include "server/cli/lines.h"

enum { HEAD_BYTES = 128, BEFORE_TEXT_BYTES = 10 }; /* of a NumPy file, format 1.0 */

struct texts {
    struct lines lines;
    bool scores; /* else vectors */
    int width;   /* numbers of a row */
};

static json_t *ask_vector(const struct srv_config *c, struct line *i, const json_t *value)
{
    const json_t *text = json_is_object(value) ? json_object_get(value, "text") : value;
    if (json_is_string(text))
        return json_pack("{s:O, s:s*, s:o*}", "input", text, "prompt_name", c->prompt_name,
                         "dimensions", c->dimensions ? json_integer(c->dimensions) : NULL);
    lines_refuse(i, "a line must be a string or have a string \"text\"; --text reads plain lines");
    return NULL;
}

static json_t *ask_scores(const struct srv_config *c, struct line *i, const json_t *value)
{
    json_t *list = json_object_get(value, "documents"), *query = json_object_get(value, "query");
    i->n_texts = json_array_size(list);
    return json_pack("{s:O*, s:s*, s:o, s:O*}", "query", query, "query", query ? NULL : c->query,
                     "documents", list ? json_incref(list) : json_pack("[O]", value), "top_n",
                     c->npy ? NULL : json_object_get(value, "top_n"));
}

/* The request takes the place of the line's text. */
static int read_line(struct lines *l, struct line *i)
{
    const struct texts *t = l->ctx;
    const struct srv_config *c = &l->offline.config;
    json_error_t why = {.text = "the line is not UTF-8"};
    const char *text = i->text.len ? i->text.data : "";
    size_t flags = JSON_DECODE_ANY | JSON_REJECT_DUPLICATES;
    json_auto_t *value =
        c->text ? json_stringn(text, i->text.len) : json_loadb(text, i->text.len, flags, &why);
    json_auto_t *body = !value      ? NULL
                        : t->scores ? ask_scores(c, i, value)
                                    : ask_vector(c, i, value);
    if (!value) lines_refuse(i, "%s", why.text);
    if (c->truncate) json_object_set_new(body, "truncate", json_true());
    char *request = json_dumps(body, JSON_COMPACT);
    buf_finish(&i->text);
    i->text = (struct buf){.data = request, .len = request ? strlen(request) : 0};
    stpcpy(i->parts.url, t->scores ? "/v1/rerank" : "/v1/embeddings");
    return request || i->status ? 0 : lines_fail(l, "no memory, or text that is not UTF-8");
}

/* The parts of an answer. Returns the body, which owns them, or NULL. */
static json_t *parse(const struct line *i, const json_t **error, const json_t **list)
{
    json_t *body = json_loadb(i->answer.data, i->answer.len, 0, NULL);
    *error = json_object_get(json_object_get(body, "error"), "message");
    *list = json_object_get(json_array_get(json_object_get(body, "data"), 0), "embedding");
    if (!*list) *list = json_object_get(body, "results");
    return body;
}

/* Numbers, or scores in the order of their documents. */
static void add_row(const json_t *list, struct buf *to)
{
    size_t n = json_array_size(list);
    AUTO_FREE float *row = calloc(n + 1, sizeof(*row));
    for (size_t k = 0; row && k < n; k++) {
        json_t *item = json_array_get(list, k), *index = json_object_get(item, "index");
        if (index) item = json_object_get(item, "relevance_score");
        row[index ? (size_t)json_integer_value(index) : k] = (float)json_number_value(item);
    }
    if (row) buf_add(to, (const char *)row, n * sizeof(*row));
    to->failed |= !row;
}

static void add_json(const char *name, const json_t *value, struct buf *to)
{
    AUTO_FREE char *text =
        json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
    buf_printf(to, "{\"%s\":%s}\n", name, text ? text : "null");
    to->failed |= !text;
}

static int write_line(struct lines *l, struct line *i, struct buf *to)
{
    const json_t *error, *list;
    json_auto_t *body = parse(i, &error, &list);
    const json_t *usage = json_object_get(body, "usage");
    const json_t *score = json_object_get(json_array_get(list, 0), "relevance_score");
    const char *name = error ? "error" : !score ? "embedding" : "results";
    if (score && !i->n_texts) name = "relevance_score"; /* of one document */
    l->n_tokens += json_integer_value(json_object_get(usage, "total_tokens"));
    l->n_units += error ? 0 : i->n_texts ? (int64_t)i->n_texts : 1;
    l->n_failed += error != NULL;
    int rc = 0;
    if (l->out == stdout)
        add_json(name, error ? error : score && !i->n_texts ? score : list, to);
    else if (!error)
        add_row(list, to);
    else
        rc = lines_fail(l, "line %lld: %s", (long long)l->n_written + 1, json_string_value(error));
    return rc;
}

/* A line of our own shows whether model and options can do this. */
static int try(struct texts *t, const char *text)
{
    const json_t *error, *list;
    struct line i = {.text.max = 64, .answer.max = 1 << 20};
    buf_puts(&i.text, text);
    int rc = read_line(&t->lines, &i) || (!i.status && lines_ask(&t->lines, &i)) ? -1 : 0;
    json_t *body = parse(&i, &error, &list);
    t->width = (int)json_array_size(list);
    if (!rc && !list) rc = lines_fail(&t->lines, "%s", json_string_value(error));
    json_decref(body);
    buf_finish(&i.text);
    buf_finish(&i.answer);
    return rc;
}

/* Opens the file with a hole for its head; the rows follow, in the machine's little-endian order.
 * NULL with errno: it cannot be written, or is a pipe. */
static FILE *npy_open(const char *path)
{
    FILE *f = fopen(path, "wbe");
    if (!f || !fseek(f, HEAD_BYTES, SEEK_SET)) return f;
    fclose(f);
    return NULL;
}

/* Writes the head, and closes the file: n_rows of width numbers, or of width 1 a list of n_rows. A
 * file without a head is not an array, so nobody takes a part for the whole. 0 or -1. */
static int npy_finish(FILE *f, int64_t n_rows, int width)
{
    char shape[48], text[HEAD_BYTES];
    snprintf(shape, sizeof(shape), width > 1 ? "%lld, %d" : "%lld,", (long long)n_rows, width);
    snprintf(text, sizeof(text), "{'descr': '<f4', 'fortran_order': False, 'shape': (%s), }",
             shape);
    /* version 1.0, the length of the text, which blanks and a line feed fill up */
    bool good = !fseek(f, 0, SEEK_SET) &&
                fprintf(f, "\x93NUMPY%c%c%c%c%-*s\n", 1, 0, HEAD_BYTES - BEFORE_TEXT_BYTES, 0,
                        HEAD_BYTES - BEFORE_TEXT_BYTES - 1, text) == HEAD_BYTES;
    return fclose(f) || !good ? -1 : 0;
}

static int run(const struct srv_config *c, bool scores, const char *first)
{
    struct texts t = {.scores = scores,
                      .lines = {.in = stdin,
                                .out = c->npy ? npy_open(c->npy) : stdout,
                                .out_name = c->npy ? c->npy : "stdout",
                                .unit = scores ? "pairs" : "texts",
                                .as_is = true,
                                .read = read_line,
                                .write = write_line,
                                .ctx = &t}};
    struct lines *l = &t.lines;
    int rc = l->out ? lines_open(l, c) || try(&t, first) || lines_run(l)
                    : lines_fail(l, "--npy: %s cannot be written; it must be a file", c->npy);
    if (!rc && c->npy && npy_finish(l->out, l->n_units, t.width))
        rc = lines_fail(l, "%s cannot be written", c->npy);
    lines_close(l, rc);
    return rc ? EXIT_FAILURE : EXIT_SUCCESS;
}

int srv_cmd_embed(const struct srv_config *config)
{
    return run(config, false, "\"a\"");
}

int srv_cmd_rerank(const struct srv_config *config)
{
    return run(config, true, "{\"query\": \"a\", \"documents\": [\"a\"]}");
}
