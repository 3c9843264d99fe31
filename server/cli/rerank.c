/* SPDX-License-Identifier: MIT */
/*
 * hearth rerank --model NAME: how well documents answer a query, as /v1/rerank scores them. A line
 * of stdin holds a query with its documents, or with --query TEXT one document; print.c has the
 * shapes. With --npy FILE all scores go into that file, in the order of the documents.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/json_writer.h"
#include "server/cli/cli.h"
#include "server/cli/rows.h"
#include "server/config/config.h"
#include "server/models/text_ids.h"
#include "tokenizer/tokenizer.h"

struct ranker {
    const struct rows_model *model;
    size_t longest;
    json_t *query; /* of --query, owned; NULL: lines have their own */
    struct rows_filter filter;
};

static int open(void *ctx, const struct rows_model *model, int *ret_width, struct filter_error *e)
{
    struct ranker *m = ctx;
    const char *query = model->config->query;
    if (!srv_pairs_can(&model->pairs))
        return filter_fail(e, "this model has no head that scores pairs; a reranker that answers "
                              "yes or no needs --rerank-tokens yes,no and --rerank-template");
    if (query && !(m->query = json_string(query))) return filter_fail(e, "--query is not UTF-8");
    m->model = model;
    m->longest = (size_t)srv_text_longest(&model->files, eng_info(model->engine));
    m->filter.n_numbers = 1;
    *ret_width = srv_pairs_width(&model->pairs);
    return 0;
}

static int cut(const struct ranker *m, struct srv_pair_ids *ids, struct filter_error *e)
{
    if (ids->ids.n <= m->longest ||
        (m->model->config->truncate &&
         srv_text_cut(ids->ids.ids, &ids->ids.n, m->longest, false, 0, ids->n_tail)))
        return 0;
    return filter_fail(e,
                       "query and document have %zu tokens, but the longest pair for this model "
                       "has %zu; --truncate cuts it",
                       ids->ids.n, m->longest);
}

static int add_pair(const struct ranker *m, struct rows_line *line, const json_t *query,
                    const json_t *document, struct filter_error *e)
{
    const json_t *text = json_is_object(document) ? json_object_get(document, "text") : document;
    if (!json_is_string(query) || !json_is_string(text))
        return filter_fail(e, "query and documents must be strings, or objects with a string "
                              "\"text\"");
    struct srv_pair_front front = {0};
    struct srv_pair_text pair = {.query = json_string_value(query),
                                 .n_query = json_string_length(query),
                                 .document = json_string_value(text),
                                 .n_document = json_string_length(text),
                                 .most_tokens =
                                     m->model->config->truncate ? (int64_t)m->longest : 0,
                                 .front = &front};
    struct srv_pair_ids ids = {0};
    int rc = srv_pairs_encode(&m->model->pairs, &pair, &ids, e->text, sizeof(e->text));
    if (!rc) rc = cut(m, &ids, e);
    struct eng_job_params p = {.sampling = eng_sampling_default(), .n_logprobs = -1};
    p.n_first = (int64_t)ids.n_first;
    srv_pairs_describe(&m->model->pairs, &p);
    if (!rc) rc = rows_add(line, &ids.ids, &p, e);
    tok_ids_finish(&front.ids);
    tok_ids_finish(&ids.ids);
    return rc ? -1 : 0;
}

static int read(void *ctx, struct rows_line *line, const json_t *value, struct filter_error *e)
{
    const struct ranker *m = ctx;
    const json_t *list = json_object_get(value, "documents"),
                 *own = json_object_get(value, "query"), *query = own ? own : m->query,
                 *top = json_object_get(value, "top_n");
    if (!query) return filter_fail(e, "the line has no \"query\", and --query is not given");
    if (!list) return rows_reserve(line, 1, e) || add_pair(m, line, query, value, e) ? -1 : 0;
    if (!json_is_array(list)) return filter_fail(e, "documents must be a list");
    if (top && (!json_is_integer(top) || json_integer_value(top) < 0))
        return filter_fail(e, "top_n must be a number of documents");
    line->many = true;
    line->top_n = json_integer_value(top);
    if (rows_reserve(line, json_array_size(list), e)) return -1;
    for (size_t i = 0; i < json_array_size(list); i++)
        if (add_pair(m, line, query, json_array_get(list, i), e)) return -1;
    return 0;
}

static void finish(void *ctx, float *row)
{
    const struct ranker *m = ctx;
    row[0] = srv_pairs_logit(&m->model->pairs, row);
    srv_retrieval_activate(SRV_ACTIVATION_SIGMOID, row, 1);
}

static void write(void *ctx, const struct rows_line *line, struct jw *w)
{
    const struct ranker *m = ctx;
    struct srv_pair_score ranked[ROWS_MAX_OF_LINE];
    int width = srv_pairs_width(&m->model->pairs);
    if (!line->many) {
        jw_number(w, "relevance_score", line->values[0]);
        return;
    }
    for (int i = 0; i < line->n; i++)
        ranked[i] = (struct srv_pair_score){i, line->values[i * width]};
    srv_pairs_sort(ranked, (size_t)line->n);
    int n = line->top_n && line->top_n < line->n ? (int)line->top_n : line->n;
    jw_open(w, "results", '[');
    for (int i = 0; i < n; i++) {
        jw_open(w, NULL, '{');
        jw_int(w, "index", ranked[i].index);
        jw_number(w, "relevance_score", ranked[i].score);
        jw_close(w);
    }
    jw_close(w);
}

int srv_cmd_rerank(const struct srv_config *config)
{
    struct ranker m = {.filter = {.open = open,
                                  .read = read,
                                  .finish = finish,
                                  .write = write,
                                  .unit = "pairs",
                                  .ctx = &m}};
    int status = rows_run(config, &m.filter);
    json_decref(m.query);
    return status;
}
