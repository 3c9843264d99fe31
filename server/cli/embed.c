/* SPDX-License-Identifier: MIT */
/*
 * hearth embed --model NAME: a vector for each line of stdin, the same numbers as /v1/embeddings
 * gives; print.c has the shapes of the lines.
 */
#include <stdio.h>

#include "base/json_writer.h"
#include "server/cli/cli.h"
#include "server/cli/rows.h"
#include "server/config/config.h"
#include "server/models/text_ids.h"
#include "tokenizer/tokenizer.h"

struct embedder {
    const struct rows_model *model;
    const json_t *prompt; /* NULL: none */
    int64_t n_unpooled;
    size_t longest;
    struct rows_filter filter;
};

static int set_prompt(struct embedder *m, const struct rows_model *model, struct filter_error *e)
{
    const char *name = model->config->prompt_name;
    char names[400];
    if (!name) name = model->files.standard_prompt;
    if (!name) return 0;
    m->prompt = srv_text_prompt(&model->files, name);
    if (!m->prompt)
        return filter_fail(e, "--prompt-name: '%s', but this model has %s", name,
                           srv_text_prompt_names(&model->files, names, sizeof(names)));
    return srv_text_unpooled(model->tok, eng_info(model->engine), json_string_value(m->prompt),
                             json_string_length(m->prompt), &m->n_unpooled, e->text,
                             sizeof(e->text));
}

static int open(void *ctx, const struct rows_model *model, int *ret_width, struct filter_error *e)
{
    struct embedder *m = ctx;
    const struct eng_info *info = eng_info(model->engine);
    int64_t dimensions = model->config->dimensions;
    if (info->n_labels > 0)
        return filter_fail(e, "this model gives scores of labels and no vectors");
    if (srv_retrieval_check_dimensions(&model->files, dimensions, info->pooled_width, e->text,
                                       sizeof(e->text)))
        return -1;
    if (!dimensions) dimensions = model->files.width;
    m->model = model;
    m->longest = (size_t)srv_text_longest(&model->files, info);
    m->filter.n_numbers =
        dimensions && dimensions < info->pooled_width ? (int)dimensions : info->pooled_width;
    *ret_width = info->pooled_width;
    return set_prompt(m, model, e);
}

static int cut(const struct embedder *m, struct tok_ids *ids, struct filter_error *e)
{
    size_t n_head, n_tail;
    if (ids->n == 0) return filter_fail(e, "the text has no tokens");
    if (ids->n <= m->longest) return 0;
    tok_special_around(m->model->tok, &n_head, &n_tail);
    if (m->model->config->truncate &&
        srv_text_cut(ids->ids, &ids->n, m->longest, false, n_head, n_tail))
        return 0;
    return filter_fail(e,
                       "the text has %zu tokens, but the longest for this model is %zu; "
                       "--truncate cuts it",
                       ids->n, m->longest);
}

static int read(void *ctx, struct rows_line *line, const json_t *value, struct filter_error *e)
{
    const struct embedder *m = ctx;
    const json_t *text = json_is_object(value) ? json_object_get(value, "text") : value;
    struct tok_ids ids = {0};
    if (!json_is_string(text))
        return filter_fail(e, "a line must be a string or an object with a string \"text\"; "
                              "--text reads lines of plain text");
    if (json_string_length(text) == 0) return filter_fail(e, "the text is empty");
    int rc = srv_text_encode(m->model->tok, m->prompt ? json_string_value(m->prompt) : "",
                             json_string_length(m->prompt), json_string_value(text),
                             json_string_length(text), &ids, e->text, sizeof(e->text));
    if (!rc) rc = cut(m, &ids, e);
    struct eng_job_params p = {.sampling = eng_sampling_default(), .n_logprobs = -1};
    p.want_pooled = true;
    p.n_unpooled = m->n_unpooled < (int64_t)ids.n ? m->n_unpooled : 0;
    if (!rc) rc = rows_reserve(line, 1, e);
    if (!rc) rc = rows_add(line, &ids, &p, e);
    tok_ids_finish(&ids);
    return rc ? -1 : 0;
}

static void finish(void *ctx, float *row)
{
    const struct embedder *m = ctx;
    if (m->model->files.normalised) srv_retrieval_scale(row, m->filter.n_numbers);
}

static void write(void *ctx, const struct rows_line *line, struct jw *w)
{
    const struct embedder *m = ctx;
    jw_open(w, "embedding", '[');
    for (int i = 0; i < m->filter.n_numbers; i++)
        jw_number(w, NULL, line->values[i]);
    jw_close(w);
}

int srv_cmd_embed(const struct srv_config *config)
{
    struct embedder m = {.filter = {.open = open,
                                    .read = read,
                                    .finish = finish,
                                    .write = write,
                                    .unit = "texts",
                                    .ctx = &m}};
    return rows_run(config, &m.filter);
}
