/* SPDX-License-Identifier: MIT */
/* See rows.h. */
#include "server/cli/rows.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/json_writer.h"
#include "base/shown.h"
#include "server/config/config.h"
#include "server/models/engine_params.h"
#include "server/models/text_ids.h"
#include "tokenizer/tokenizer.h"

enum {
    MAX_LINES = 1024, /* at once; of as many rows, and one line more */
    PROGRESS_US = 1000000,
    NPY_HEAD_BYTES = 128,
    MAX_LINE_BYTES = 64 << 20,
    MAX_ANSWER_BYTES = 64 << 20,
};

/* One prompt's job. */
struct row {
    struct rows_line *line;
    float *values;
};

struct rows {
    struct rows_model model;
    struct rows_filter *filter;
    int width;
    FILE *npy;            /* NULL: JSON lines on stdout */
    pthread_mutex_t lock; /* guards n_left, and what the jobs of a line write */
    pthread_cond_t ended;
    int n_left;                        /* jobs that have not ended */
    struct rows_line lines[MAX_LINES]; /* read and not yet answered */
    int n_lines, n_waiting;            /* they, and their rows */
    int64_t n_answered, n_rows, n_tokens;
    uint64_t start_us, shown_us;
};

/* ---- jobs ---------------------------------------------------------------------------------- */

static void on_event(void *ctx, const struct eng_event *ev)
{
    struct row *row = ctx;
    struct rows *r = row->line->owner;
    pthread_mutex_lock(&r->lock);
    if (ev->type == ENG_EVENT_POOLED)
        memcpy(row->values, ev->logits, (size_t)r->width * sizeof(float));
    if (ev->type == ENG_EVENT_TOKEN) /* log-probabilities of listed ids */
        for (int i = 0; i < ev->n_top && i < r->width; i++)
            row->values[i] = ev->top[i].logprob;
    if (ev->type == ENG_EVENT_LOGITS) /* the last one counts, see pairs.h */
        row->values[0] = ev->logits[r->model.pairs.ids[0]];
    if (ev->type == ENG_EVENT_CHOICE_DONE && ev->finish == ENG_FINISH_ERROR)
        filter_fail(&row->line->error, "%s", ev->error ? ev->error : "the engine failed");
    if (ev->type == ENG_EVENT_JOB_DONE && --r->n_left == 0) pthread_cond_signal(&r->ended);
    pthread_mutex_unlock(&r->lock);
}

int rows_reserve(struct rows_line *line, size_t n, struct filter_error *e)
{
    if (n == 0 || n > ROWS_MAX_OF_LINE)
        return filter_fail(e, "the line has %zu texts; 1 to %d are allowed", n, ROWS_MAX_OF_LINE);
    line->rows = calloc(n, sizeof(*line->rows));
    line->values = calloc(n * (size_t)line->owner->width, sizeof(*line->values));
    line->n_room = (int)n;
    return line->rows && line->values ? 0 : filter_fail(e, "no memory");
}

int rows_add(struct rows_line *line, const struct tok_ids *ids, struct eng_job_params *p,
             struct filter_error *e)
{
    struct rows *r = line->owner;
    struct row *row = &line->rows[line->n];
    struct eng_job *job;
    *row = (struct row){line, line->values + (size_t)line->n * (size_t)r->width};
    p->prompt = ids->ids;
    p->n_prompt = (int64_t)ids->n;
    p->n_choices = 1;
    p->n_prompt_logprobs = -1;
    p->on_event = on_event;
    p->ctx = row;
    pthread_mutex_lock(&r->lock);
    r->n_left++;
    pthread_mutex_unlock(&r->lock);
    if (eng_job_submit(r->model.engine, p, &job, e->text, sizeof(e->text))) {
        on_event(row, &(struct eng_event){.type = ENG_EVENT_JOB_DONE});
        return -1;
    }
    eng_job_release(job);
    line->n++;
    r->n_tokens += p->n_prompt;
    return 0;
}

/* ---- answers ------------------------------------------------------------------------------- */

/* A terminal shows one line, over and over. */
static void show_progress(struct rows *r, bool last)
{
    uint64_t now = clock_now_us();
    bool again = isatty(STDERR_FILENO);
    if (!last && now - r->shown_us < PROGRESS_US) return;
    double seconds = (double)(now - r->start_us) / 1e6;
    fprintf(stderr, "%shearth: %lld %s, %lld tokens, %.1f s, %.0f tokens/s%s",
            again ? "\r\033[K" : "", (long long)r->n_rows, r->filter->unit, (long long)r->n_tokens,
            seconds, (double)r->n_tokens / (seconds > 0 ? seconds : 1), last || !again ? "\n" : "");
    r->shown_us = now;
}

static int cannot_write(const struct rows *r)
{
    shown_line(stderr, "hearth: %s: cannot be written", r->npy ? r->model.config->npy : "stdout");
    return -1;
}

static int write_json(struct rows *r, const struct rows_line *line)
{
    struct buf b;
    struct jw w;
    buf_init(&b, MAX_ANSWER_BYTES);
    jw_init(&w, &b);
    jw_open(&w, NULL, '{');
    if (line->error.text[0])
        jw_text(&w, "error", line->error.text);
    else
        r->filter->write(r->filter->ctx, line, &w);
    jw_close(&w);
    buf_puts(jw_end(&w), "\n");
    bool good = !b.failed && fwrite(b.data, 1, b.len, stdout) == b.len;
    buf_finish(&b);
    return good ? 0 : cannot_write(r);
}

static int write_npy(struct rows *r, const struct rows_line *line)
{
    size_t n = (size_t)r->filter->n_numbers;
    bool good = true;
    if (line->error.text[0]) {
        shown_line(stderr, "hearth: line %lld: %s", (long long)r->n_answered, line->error.text);
        return -1;
    }
    for (int i = 0; i < line->n && good; i++)
        good = fwrite(line->rows[i].values, sizeof(float), n, r->npy) == n;
    return good ? 0 : cannot_write(r);
}

static int answer_line(struct rows *r, const struct rows_line *line)
{
    r->n_answered++;
    r->n_rows += line->n;
    for (int i = 0; i < line->n; i++)
        r->filter->finish(r->filter->ctx, line->rows[i].values);
    return r->npy ? write_npy(r, line) : write_json(r, line);
}

/* Waits for the jobs of all lines and answers them. */
static int answer_lines(struct rows *r)
{
    int rc = 0;
    pthread_mutex_lock(&r->lock);
    while (r->n_left > 0)
        pthread_cond_wait(&r->ended, &r->lock);
    pthread_mutex_unlock(&r->lock);
    for (int i = 0; i < r->n_lines; i++) {
        struct rows_line *line = &r->lines[i];
        if (!rc) rc = answer_line(r, line);
        free(line->rows);
        free(line->values);
    }
    if (!rc && !r->npy && fflush(stdout)) rc = cannot_write(r);
    r->n_lines = r->n_waiting = 0;
    show_progress(r, false);
    return rc;
}

/* The head comes last: a file without one is not an array, so nobody takes a part for the whole. */
static int finish_npy(struct rows *r)
{
    char head[NPY_HEAD_BYTES], dict[NPY_HEAD_BYTES], shape[40];
    int n = r->filter->n_numbers;
    snprintf(shape, sizeof(shape), n > 1 ? "%lld, %d" : "%lld,", (long long)r->n_rows, n);
    int len = snprintf(dict, sizeof(dict),
                       "\x93NUMPY\x01 v {'descr': '<f4', 'fortran_order': False, 'shape': (%s), }",
                       shape);
    memset(head, ' ', sizeof(head));
    memcpy(head, dict, (size_t)len);
    head[7] = head[9] = 0;         /* version 1.0 */
    head[8] = NPY_HEAD_BYTES - 10; /* of the text */
    head[NPY_HEAD_BYTES - 1] = '\n';
    bool good = !fseek(r->npy, 0, SEEK_SET) && fwrite(head, sizeof(head), 1, r->npy) == 1;
    return good && !fflush(r->npy) ? 0 : cannot_write(r);
}

/* ---- lines --------------------------------------------------------------------------------- */

static void take_line(struct rows *r, const struct buf *b)
{
    struct rows_line *line = &r->lines[r->n_lines++];
    struct filter_error e = {""};
    json_error_t error = {.text = "the line is not UTF-8"};
    const char *text = b->len ? b->data : "";
    *line = (struct rows_line){.owner = r};
    json_t *value =
        r->model.config->text
            ? json_stringn(text, b->len)
            : json_loadb(text, b->len, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &error);
    int rc = b->too_large ? filter_fail(&e, "the line is longer than %d bytes", MAX_LINE_BYTES)
             : value      ? r->filter->read(r->filter->ctx, line, value, &e)
                          : filter_fail(&e, "%s", error.text);
    json_decref(value);
    r->n_waiting += line->n_room;
    pthread_mutex_lock(&r->lock);
    if (rc) line->error = e;
    pthread_mutex_unlock(&r->lock);
}

/* Returns true if a line can be read now, or the input has ended. */
static bool has_input(void)
{
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    return poll(&in, 1, 0) != 0;
}

static int answer_all(struct rows *r)
{
    struct buf line;
    int more, rc = 0;
    buf_init(&line, MAX_LINE_BYTES);
    r->start_us = r->shown_us = clock_now_us();
    while (!rc && (more = filter_read_line(stdin, &line)) == 1) {
        take_line(r, &line);
        if (r->n_lines == MAX_LINES || r->n_waiting >= MAX_LINES || !has_input())
            rc = answer_lines(r);
    }
    if (!rc && more < 0) shown_line(stderr, "hearth: cannot read the lines");
    buf_finish(&line);
    if (!rc) rc = answer_lines(r) || more < 0 ? -1 : 0;
    show_progress(r, true);
    return rc || !r->npy ? rc : finish_npy(r);
}

/* ---- the whole ----------------------------------------------------------------------------- */

static int open_model(struct rows_model *m, struct filter_error *e)
{
    struct eng_params p = srv_engine_params(m->config);
    p.n_parallel = m->config->parallel;
    p.max_queued_jobs = 2 * (MAX_LINES + ROWS_MAX_OF_LINE);
    p.max_queued_tokens = INT64_MAX / 2;
    p.speculate = ENG_SPECULATE_OFF;
    p.reads_only = true;
    return tok_open(&m->tok, m->config->model, e->text, sizeof(e->text)) ||
                   eng_open(&m->engine, &p, e->text, sizeof(e->text)) ||
                   srv_retrieval_read(&m->files, m->config->model, eng_info(m->engine)->n_labels,
                                      e->text, sizeof(e->text)) ||
                   srv_text_check_case(&m->files, m->tok, e->text, sizeof(e->text)) ||
                   srv_pairs_open(&m->pairs, m->tok, eng_info(m->engine), &m->files, m->config,
                                  e->text, sizeof(e->text))
               ? -1
               : 0;
}

static int open_npy(struct rows *r, struct filter_error *e)
{
    static const char hole[NPY_HEAD_BYTES];
    const char *path = r->model.config->npy;
    if (!path) return 0;
    r->npy = fopen(path, "wb");
    if (r->npy && fwrite(hole, sizeof(hole), 1, r->npy) == 1 && !fseek(r->npy, 0, SEEK_CUR))
        return 0;
    return filter_fail(e, "--npy: %s cannot be written; it must be a file", path);
}

int rows_run(const struct srv_config *config, struct rows_filter *f)
{
    static struct rows rows;
    struct rows *r = &rows;
    struct filter_error e = {""};
    *r = (struct rows){.model = {.config = config}, .filter = f};
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->ended, NULL);
    int rc =
        open_model(&r->model, &e) || f->open(f->ctx, &r->model, &r->width, &e) || open_npy(r, &e);
    if (rc)
        shown_line(stderr, "hearth: %s", e.text);
    else
        rc = answer_all(r);
    if (r->npy && fclose(r->npy)) rc = -1;
    eng_close(r->model.engine);
    srv_pairs_finish(&r->model.pairs);
    srv_retrieval_finish(&r->model.files);
    tok_close(r->model.tok);
    pthread_cond_destroy(&r->ended);
    pthread_mutex_destroy(&r->lock);
    return rc ? EXIT_FAILURE : EXIT_SUCCESS;
}
