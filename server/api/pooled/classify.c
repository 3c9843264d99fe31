/* SPDX-License-Identifier: MIT */
/*
 * Labels of texts, by a model with a head of labels: vLLM's /classify and the /predict of
 * text-embeddings-inference, which also takes pairs of texts.
 */
#include <stdlib.h>
#include <string.h>

#include "base/json_writer.h"
#include "server/api/read/body.h"
#include "server/api/read/generation_fields.h"
#include "server/api/routes.h"
#include "server/api/run/pooled.h"
#include "server/api/pooled/texts.h"
#include "server/models/served_model.h"

enum { ANSWER_BYTES = 1 << 20, LABEL_BYTES = 64, JSON_FACTOR = 6 };

struct label {
    int index;
    float score;
};

struct classifying {
    const struct srv_model *served;
    int n_labels;
    struct srv_body body;
    const char *model, *model_shown;
    json_t *input, *raw;
    bool activate;
    bool pairs;          /* /predict */
    bool one;            /* of it: a text or a pair that is not in a list */
    struct label *order; /* [n_labels] of the input that is written */
    struct texts_fields asked;
    struct texts_rules rules;
    struct srv_pooled pooled; /* a row of logits per input */
};

#define FIELD(name_, type_, member, otherwise_, meaning_)                                          \
    .name = name_, .type = type_, .offset = offsetof(struct classifying, member),                  \
    .otherwise = otherwise_, .meaning = meaning_

const struct param_field srv_fields_classify[] = {
    {FIELD("input", PARAM_JSON, input, NULL,
           "a text, token ids, or an array of at most 2,048 such inputs")},
    {FIELD("model", PARAM_STRING, model, "served model", "as in chat")},
    {FIELD("use_activation", PARAM_BOOL, activate, NULL, "false: logits instead of probabilities"),
     .preset = 1, .also = "activation"},
    {FIELD("truncate_prompt_tokens", PARAM_INT, asked.truncate_prompt_tokens, "none",
           "longer texts are cut to so many tokens; -1: to the model's longest"),
     .min = -1, .max = 1 << 20},
    {FIELD("truncation_side", PARAM_STRING, asked.truncation_side, "`right`",
           "`left`: the end is kept")},
    {.name = "user", .type = PARAM_IGNORED, .meaning = "accepted, no effect"},
    {.name = "messages", .type = PARAM_UNSUPPORTED},
    {.name = "labels", .type = PARAM_UNSUPPORTED},
    /* of /predict */
    {FIELD("inputs", PARAM_JSON, input, NULL, NULL)},
    {FIELD("raw_scores", PARAM_JSON, raw, NULL, NULL)},
    {FIELD("truncate", PARAM_JSON, asked.truncate, NULL, NULL)},
    {FIELD("truncation_direction", PARAM_STRING, asked.truncation_side, NULL, NULL)},
    {0},
};

/* ---- answer -------------------------------------------------------------------------------- */

/* A pair has the one score of /score; labels have probabilities as the files say. */
static void activate(const struct classifying *c, int i)
{
    const struct srv_retrieval *files = &c->served->retrieval;
    bool scored = c->n_labels == 1 && c->pooled.rows[i].n_first > 0;
    if (!c->activate || json_is_true(c->raw)) return;
    srv_retrieval_activate(scored ? files->score : files->labels_as, c->pooled.rows[i].values,
                           c->n_labels);
}

static int by_score(const void *a, const void *b)
{
    const struct label *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->index - y->index;
}

static void sort_labels(struct classifying *c, int i)
{
    activate(c, i);
    for (int k = 0; k < c->n_labels; k++)
        c->order[k] = (struct label){k, c->pooled.rows[i].values[k]};
    qsort(c->order, (size_t)c->n_labels, sizeof(*c->order), by_score);
}

static const char *label_of(const struct classifying *c, int k, char buf[24])
{
    return srv_retrieval_label(&c->served->retrieval, c->order[k].index, buf);
}

static void write_prediction(struct classifying *c, struct jw *w)
{
    char name[24];
    jw_open(w, NULL, '[');
    for (int k = 0; k < c->n_labels; k++) {
        jw_open(w, NULL, '{');
        jw_number(w, "score", c->order[k].score);
        jw_text(w, "label", label_of(c, k, name));
        jw_close(w);
    }
    jw_close(w);
}

static void write_class(struct classifying *c, struct jw *w, int i)
{
    char name[24];
    jw_open(w, NULL, '{');
    jw_int(w, "index", i);
    jw_text(w, "label", label_of(c, 0, name));
    jw_open(w, "probs", '[');
    for (int k = 0; k < c->n_labels; k++)
        jw_number(w, NULL, c->pooled.rows[i].values[k]);
    jw_close(w);
    jw_int(w, "num_classes", c->n_labels);
    jw_close(w);
}

static void write_head(const struct classifying *c, struct jw *w)
{
    if (c->pairs && c->one) return;
    if (!c->pairs) {
        jw_open(w, NULL, '{');
        jw_text(w, "id", srv_facts(c->pooled.req)->id);
        jw_text(w, "object", "list");
        jw_text(w, "model", c->model_shown);
    }
    jw_open(w, c->pairs ? NULL : "data", '[');
}

static void write_tail(const struct classifying *c, struct jw *w)
{
    if (c->pairs && c->one) return;
    jw_close(w);
    if (c->pairs) return;
    jw_open(w, "usage", '{');
    jw_int(w, "prompt_tokens", c->pooled.n_tokens);
    jw_int(w, "total_tokens", c->pooled.n_tokens);
    jw_close(w);
    jw_close(w);
}

static bool answer(void *ctx)
{
    struct classifying *c = ctx;
    struct buf b;
    struct jw w;
    char name[24];
    size_t bytes = LABEL_BYTES;
    for (int k = 0; k < c->n_labels; k++)
        bytes +=
            LABEL_BYTES + JSON_FACTOR * strlen(srv_retrieval_label(&c->served->retrieval, k, name));
    buf_init(&b, ANSWER_BYTES + bytes * (size_t)c->pooled.n);
    jw_init(&w, &b);
    write_head(c, &w);
    for (int i = 0; i < c->pooled.n; i++) {
        sort_labels(c, i);
        if (c->pairs)
            write_prediction(c, &w);
        else
            write_class(c, &w, i);
    }
    write_tail(c, &w);
    srv_reply(c->pooled.req, 200, NULL, jw_end(&w));
    return true;
}

static void describe(void *ctx, struct eng_job_params *p)
{
    (void)ctx;
    p->want_pooled = true;
}

static void release(void *ctx)
{
    struct classifying *c = ctx;
    texts_rules_finish(&c->rules);
    srv_body_finish(&c->body);
}

/* ---- request ------------------------------------------------------------------------------- */

/* Of /predict: a string, or an array of one or two. */
static int add_texts(struct classifying *c, const json_t *value, const char *path,
                     struct param_error *err)
{
    const json_t *a = json_array_get(value, 0), *b = json_array_get(value, 1);
    size_t n = json_array_size(value);
    if (json_is_string(value)) return texts_add(&c->pooled, &c->rules, value, path, err);
    if (n < 1 || n > 2 || !json_is_string(a) || (b && !json_is_string(b)))
        return param_fail(err, SRV_ERR_INVALID_TYPE, path,
                          "'%s' must be a string, or an array of one string or two.", path);
    if (!b) return texts_add(&c->pooled, &c->rules, a, path, err);
    const struct srv_pair_text pair = {.query = json_string_value(a),
                                       .n_query = json_string_length(a),
                                       .document = json_string_value(b),
                                       .n_document = json_string_length(b)};
    return texts_add_pair(&c->pooled, &c->rules, &c->served->pairs, &pair, path, err);
}

static int add(void *ctx, int i, struct param_error *err)
{
    struct classifying *c = ctx;
    const json_t *value = c->one ? c->input : json_array_get(c->input, (size_t)i);
    char path[PARAM_PATH_MAX];
    snprintf(path, sizeof(path), c->one ? "%s" : "%s[%d]", c->pooled.field, i);
    return c->pairs ? add_texts(c, value, path, err)
                    : texts_add(&c->pooled, &c->rules, value, path, err);
}

static int read_inputs(struct classifying *c, struct srv_request *req, struct param_error *err)
{
    const char *field = c->pairs ? "inputs" : "input";
    const json_t *first = json_array_get(c->input, 0);
    if (!c->input)
        return param_fail(err, SRV_ERR_MISSING, field, "The parameter '%s' is required.", field);
    c->one = !json_is_array(c->input) || (c->pairs ? json_is_string(first) : json_is_number(first));
    size_t n = c->one ? 1 : json_array_size(c->input);
    if (n == 0 || n > TEXTS_MAX_INPUTS)
        return param_fail(err, SRV_ERR_INVALID_VALUE, field,
                          "'%s' holds %zu inputs; 1 to %d are allowed.", field, n,
                          TEXTS_MAX_INPUTS);
    return srv_pooled_open(&c->pooled, req, field, n, c->n_labels, err);
}

static int read_body(struct classifying *c, struct srv_request *req, struct param_error *err)
{
    const struct srv_facts *facts = srv_facts(req);
    struct param_unknown unknown = {0};
    c->served = facts->model;
    c->n_labels = eng_info(c->served->engine)->n_labels;
    params_preset(srv_fields_classify, c);
    if (srv_body_read(&c->body, facts->body, facts->body_len, TEXTS_MAX_VALUES, err) ||
        params_read(c->body.root, srv_fields_classify, c, &unknown, err))
        return -1;
    if (c->n_labels == 0)
        return param_fail(err, SRV_ERR_UNSUPPORTED_TASK, "model",
                          "This model has no head that gives labels; /v1/choose gives the "
                          "probabilities of a list of answers.");
    c->model_shown = srv_gen_model_name(c->served, c->model, err);
    c->order = srv_request_alloc(req, (size_t)c->n_labels * sizeof(*c->order));
    c->rules.cut = TEXTS_REFUSE;
    if (!c->model_shown || (!c->order && param_no_memory(err)) ||
        texts_rules_set(&c->rules, &c->asked, req, &unknown, err) || read_inputs(c, req, err))
        return -1;
    return param_name_ignored(req, &unknown, err);
}

static void handle(struct srv_request *req, bool pairs)
{
    static const struct srv_pooled_ops ops = {add, describe, answer, release};
    struct param_error err = {0};
    struct classifying *c = srv_request_alloc(req, sizeof(*c));
    srv_facts(req)->account.endpoint = "classify";
    if (c) c->pairs = pairs;
    if (c && !read_body(c, req, &err)) {
        srv_pooled_start(&c->pooled, &ops, c);
        return;
    }
    if (!c) param_no_memory(&err);
    if (c) srv_body_finish(&c->body);
    param_reply(req, &err);
}

static void handle_classify(struct srv_request *req)
{
    handle(req, false);
}

static void handle_predict(struct srv_request *req)
{
    handle(req, true);
}

const struct srv_route srv_routes_classify[] = {
    {"POST", "/v1/classify", SRV_ROUTE_BARE, SRV_DIALECT_OPENAI, handle_classify, NULL},
    {"POST", "/predict", 0, SRV_DIALECT_TEI, handle_predict, NULL},
    {0},
};
