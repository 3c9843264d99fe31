/* SPDX-License-Identifier: MIT */
/* Labels of texts, by a model with a head of labels: vLLM's /classify. */
#include <string.h>

#include "server/api/pooled/pooled.h"
#include "server/api/routes.h"
#include "server/models/served_model.h"

enum { LABEL_BYTES = 64, JSON_FACTOR = 6 };

struct classifying {
    struct srv_pooled p; /* a row of logits per input */
    bool activate;
};

#define FIELD(...) PARAM_FIELD(struct classifying, __VA_ARGS__)

const struct param_field srv_fields_classify[] = {
    {FIELD("input", PARAM_JSON, p.input, NULL,
           "a text, token ids, or an array of at most 2,048 such inputs")},
    {FIELD("model", PARAM_STRING, p.model, "served model", "as in chat")},
    {FIELD("use_activation", PARAM_BOOL, activate, NULL, "false: logits instead of probabilities"),
     .preset = 1, .also = "activation"},
    {FIELD("truncate_prompt_tokens", PARAM_INT, p.asked.truncate_prompt_tokens, "none",
           "longer texts are cut to so many tokens; -1: to the model's longest"),
     .min = -1, .max = 1 << 20},
    {FIELD("truncation_side", PARAM_STRING, p.asked.truncation_side, "`right`",
           "`left`: the end is kept")},
    {.name = "user", .type = PARAM_IGNORED, .meaning = "accepted, no effect"},
    {.name = "messages", .type = PARAM_UNSUPPORTED},
    {.name = "labels", .type = PARAM_UNSUPPORTED},
    {0},
};

static int check(struct srv_pooled *p)
{
    if (p->info->n_labels > 0) return 0;
    return param_fail(SRV_ERR_UNSUPPORTED_TASK, "model",
                      "This model has no head that gives labels; /v1/choose gives the "
                      "probabilities of a list of answers.");
}

static int open_texts(struct srv_pooled *p)
{
    int n = p->info->n_labels;
    size_t longest = 0;
    char name[24];
    for (int k = 0; k < n; k++) {
        size_t len = strlen(srv_retrieval_label(&p->served->retrieval, k, name));
        if (len > longest) longest = len;
    }
    if (texts_open(p, n)) return -1;
    p->answer_bytes = (size_t)p->n_max * (LABEL_BYTES * (1 + (size_t)n) + JSON_FACTOR * longest);
    return 0;
}

static void describe(struct srv_pooled *p, int i, struct eng_job_params *job)
{
    job->want_pooled = true;
}

static void write_class(struct srv_pooled *p, struct jw *w, int i)
{
    const struct srv_retrieval *files = &p->served->retrieval;
    float *row = p->rows[i].values;
    int likeliest = 0;
    char name[24];
    if (((struct classifying *)p)->activate)
        srv_retrieval_activate(files->labels_as, row, p->width);
    for (int k = 1; k < p->width; k++)
        if (row[k] > row[likeliest]) likeliest = k;
    jw_fields(w, "{ index %d label %s probs [", i, srv_retrieval_label(files, likeliest, name));
    for (int k = 0; k < p->width; k++)
        jw_number(w, NULL, row[k]);
    jw_fields(w, "} num_classes %d }", p->width);
}

static const struct pooled_endpoint classify = {
    .name = "classify",
    .bytes = sizeof(struct classifying),
    .fields = srv_fields_classify,
    .check = check,
    .open = open_texts,
    .add = texts_add,
    .describe = describe,
};

static const struct pooled_dialect vllm = {
    .endpoint = &classify, .input = "input", .list = "data", .item = write_class};

const struct srv_route srv_routes_classify[] = {
    {"POST", "/v1/classify", SRV_ROUTE_BARE, SRV_DIALECT_OPENAI, srv_pooled_handle, &vllm},
    {0},
};
