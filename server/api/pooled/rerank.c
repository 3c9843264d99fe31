/* SPDX-License-Identifier: MIT */
/*
 * Scores of pairs: a query with each of its documents (rerank), or texts with texts (score).
 *
 * A pair is one prompt, the query first, so that the documents of a query share its pages. What
 * the model makes of it is the logit of its one label, or how much more likely "yes" is than "no"
 * (pairs.h).
 */
#include <stdlib.h>
#include <string.h>

#include "base/json_writer.h"
#include "server/api/read/body.h"
#include "server/api/read/generation_fields.h"
#include "server/api/pooled/texts.h"
#include "server/api/routes.h"
#include "server/api/run/pooled.h"
#include "server/models/pairs.h"
#include "server/models/served_model.h"

enum { ANSWER_BYTES = 1 << 20, RESULT_BYTES = 160, JSON_FACTOR = 6 };

enum shape { SHAPE_JINA, SHAPE_COHERE, SHAPE_TEI, SHAPE_VOYAGE, SHAPE_SCORE };

struct pair_input {
    const json_t *query, *document; /* strings */
};

struct ranking {
    enum shape shape;
    const struct srv_model *served;
    struct srv_body body;
    const char *model, *model_shown, *instruction;
    json_t *query, *documents, *texts, *with_text, *raw, *truncation;
    json_t *lefts[3], *rights[3]; /* spellings of /score */
    int64_t top_n, document_tokens;
    struct texts_fields asked;
    struct texts_rules rules;
    struct pair_input *pairs;
    int n_pairs;
    struct srv_pair_score *results;
    struct srv_pooled pooled;
};

#define FIELD(name_, type_, member, otherwise_, meaning_)                                          \
    .name = name_, .type = type_, .offset = offsetof(struct ranking, member),                      \
    .otherwise = otherwise_, .meaning = meaning_
#define OTHER(name_, type_, member)                                                                \
    .name = name_, .type = type_, .offset = offsetof(struct ranking, member)

const struct param_field srv_fields_rerank[] = {
    {FIELD("query", PARAM_JSON, query, NULL, "the search")},
    {FIELD("documents", PARAM_JSON, documents, NULL,
           "1 to 1,000 texts, or objects with a member `text`")},
    {FIELD("model", PARAM_STRING, model, "served model", "as in chat")},
    {FIELD("top_n", PARAM_INT, top_n, "all", "so many results, best first; also `top_k`"), .min = 0,
     .max = 1 << 20, .also = "top_k"},
    {FIELD("return_documents", PARAM_JSON, with_text, "`false`", "results hold their texts")},
    {FIELD("raw_scores", PARAM_JSON, raw, "`false`", "logits instead of numbers from 0 to 1")},
    {FIELD("instruction", PARAM_STRING, instruction, "the template's own",
           "says which documents are relevant; only templates with {instruction} use it; also "
           "`instruct`"),
     .also = "instruct"},
    {FIELD("max_tokens_per_doc", PARAM_INT, document_tokens, "none",
           "longer documents are cut to so many tokens"),
     .min = 1, .max = 1 << 20},
    {FIELD("truncate_prompt_tokens", PARAM_INT, asked.truncate_prompt_tokens, "none",
           "longer pairs are cut to so many tokens, at the document's end; -1: to the longest"),
     .min = -1, .max = 1 << 20},
    {FIELD("truncate", PARAM_JSON, asked.truncate, "the dialect's own",
           "whether longer pairs are cut at the document's end")},
    {.name = "user", .type = PARAM_IGNORED, .meaning = "accepted, no effect"},
    /* other dialects */
    {OTHER("texts", PARAM_JSON, texts)},
    {OTHER("truncation", PARAM_JSON, truncation)},
    {OTHER("return_text", PARAM_JSON, with_text)},
    {OTHER("text_1", PARAM_JSON, lefts[0])},
    {OTHER("text_2", PARAM_JSON, rights[0])},
    {OTHER("queries", PARAM_JSON, lefts[1])},
    {OTHER("items", PARAM_JSON, rights[1])},
    {OTHER("data_1", PARAM_JSON, lefts[2])},
    {OTHER("data_2", PARAM_JSON, rights[2])},
    {.name = "priority", .type = PARAM_IGNORED},
    {.name = "return_len", .type = PARAM_IGNORED},
    {.name = "truncation_direction", .type = PARAM_IGNORED},
    {0},
};

/* ---- answer -------------------------------------------------------------------------------- */

/* Some clients write booleans as words. */
static bool is_true(const json_t *value)
{
    const char *word = json_string_value(value);
    return json_is_true(value) || (word && !strcmp(word, "true"));
}

static float score_of(const struct ranking *r, int i)
{
    float value = srv_pairs_logit(&r->served->pairs, r->pooled.rows[i].values);
    enum srv_activation how = SRV_ACTIVATION_SIGMOID;
    if (is_true(r->raw))
        how = SRV_ACTIVATION_NONE;
    else if (r->shape == SHAPE_SCORE && !r->served->pairs.judges)
        how = r->served->retrieval.score;
    srv_retrieval_activate(how, &value, 1);
    return value;
}

static void write_result(const struct ranking *r, struct jw *w, const struct srv_pair_score *one)
{
    const json_t *text = r->pairs[one->index].document;
    jw_open(w, NULL, '{');
    jw_int(w, "index", one->index);
    if (r->shape == SHAPE_SCORE) jw_text(w, "object", "score");
    jw_number(w, r->shape == SHAPE_TEI || r->shape == SHAPE_SCORE ? "score" : "relevance_score",
              one->score);
    if (is_true(r->with_text) && r->shape == SHAPE_TEI)
        jw_string(w, "text", json_string_value(text), json_string_length(text));
    if (is_true(r->with_text) && r->shape == SHAPE_VOYAGE)
        jw_string(w, "document", json_string_value(text), json_string_length(text));
    if (is_true(r->with_text) && r->shape == SHAPE_JINA) {
        jw_open(w, "document", '{');
        jw_string(w, "text", json_string_value(text), json_string_length(text));
        jw_close(w);
    }
    jw_close(w);
}

static void write_meta(struct jw *w)
{
    jw_open(w, "meta", '{');
    jw_open(w, "api_version", '{');
    jw_text(w, "version", "2");
    jw_close(w);
    jw_open(w, "billed_units", '{');
    jw_int(w, "search_units", 1);
    jw_close(w);
    jw_close(w);
}

static void write_usage(const struct ranking *r, struct jw *w)
{
    jw_open(w, "usage", '{');
    jw_int(w, "prompt_tokens", r->pooled.n_tokens);
    jw_int(w, "total_tokens", r->pooled.n_tokens);
    jw_close(w);
}

static void write_head(const struct ranking *r, struct jw *w)
{
    if (r->shape == SHAPE_TEI) return;
    jw_open(w, NULL, '{');
    jw_text(w, "id", srv_facts(r->pooled.req)->id);
    if (r->shape != SHAPE_COHERE) jw_text(w, "object", "list");
    if (r->shape != SHAPE_COHERE) jw_text(w, "model", r->model_shown);
}

static void write_answer(const struct ranking *r, struct buf *b, int n)
{
    struct jw w;
    jw_init(&w, b);
    write_head(r, &w);
    bool data = r->shape == SHAPE_SCORE || r->shape == SHAPE_VOYAGE;
    jw_open(&w, r->shape == SHAPE_TEI ? NULL : data ? "data" : "results", '[');
    for (int i = 0; i < n; i++)
        write_result(r, &w, &r->results[i]);
    jw_close(&w);
    if (r->shape == SHAPE_COHERE) write_meta(&w);
    if (r->shape != SHAPE_TEI && r->shape != SHAPE_COHERE) write_usage(r, &w);
    if (r->shape != SHAPE_TEI) jw_close(&w);
    jw_end(&w);
}

static bool answer(void *ctx)
{
    struct ranking *r = ctx;
    struct buf b;
    size_t bytes = ANSWER_BYTES;
    for (int i = 0; i < r->n_pairs; i++) {
        r->results[i] = (struct srv_pair_score){i, score_of(r, i)};
        bytes += RESULT_BYTES + JSON_FACTOR * json_string_length(r->pairs[i].document);
    }
    bool sorted = r->shape != SHAPE_SCORE;
    if (sorted) srv_pairs_sort(r->results, (size_t)r->n_pairs);
    int n = sorted && r->top_n && r->top_n < r->n_pairs ? (int)r->top_n : r->n_pairs;
    buf_init(&b, bytes);
    write_answer(r, &b, n);
    srv_reply(r->pooled.req, 200, NULL, &b);
    return true;
}

static int add(void *ctx, int i, struct param_error *err)
{
    struct ranking *r = ctx;
    const struct pair_input *p = &r->pairs[i];
    char path[PARAM_PATH_MAX];
    struct srv_pair_text pair = {
        .query = json_string_value(p->query),
        .n_query = json_string_length(p->query),
        .document = json_string_value(p->document),
        .n_document = json_string_length(p->document),
        .instruction = r->instruction,
        .document_tokens = r->document_tokens,
    };
    snprintf(path, sizeof(path), "%s[%d]", r->pooled.field, i);
    return texts_add_pair(&r->pooled, &r->rules, &r->served->pairs, &pair, path, err);
}

static void describe(void *ctx, struct eng_job_params *p)
{
    const struct ranking *r = ctx;
    srv_pairs_describe(&r->served->pairs, p);
}

static void release(void *ctx)
{
    struct ranking *r = ctx;
    texts_rules_finish(&r->rules);
    srv_body_finish(&r->body);
}

/* ---- request ------------------------------------------------------------------------------- */

static int check_model(struct ranking *r, struct param_error *err)
{
    if (!srv_pairs_can(&r->served->pairs))
        return param_fail(
            err, SRV_ERR_UNSUPPORTED_TASK, "model", "This model has no head that scores pairs%s",
            eng_info(r->served->engine)->generates
                ? ". A reranker that answers yes or no is served with --rerank-tokens yes,no and "
                  "--rerank-template."
                : ": it is not a reranker.");
    r->model_shown = srv_gen_model_name(r->served, r->model, err);
    return r->model_shown ? 0 : -1;
}

/* A string, or an object with one in "text". */
static int text_of(const json_t *value, const char *path, const json_t **ret,
                   struct param_error *err)
{
    const json_t *text = json_is_object(value) ? json_object_get(value, "text") : value;
    if (!json_is_string(text))
        return param_fail(err, SRV_ERR_INVALID_TYPE, path,
                          "'%s' must be a string or an object with a string 'text'.", path);
    *ret = text;
    return 0;
}

static int make_pairs(struct ranking *r, struct srv_request *req, const char *field, size_t n,
                      struct param_error *err)
{
    if (n == 0 || n > TEXTS_MAX_PAIRS)
        return param_fail(err, SRV_ERR_INVALID_VALUE, field,
                          "'%s' holds %zu texts; 1 to %d are allowed.", field, n, TEXTS_MAX_PAIRS);
    r->pairs = srv_request_alloc(req, n * sizeof(*r->pairs));
    r->results = srv_request_alloc(req, n * sizeof(*r->results));
    if (!r->pairs || !r->results) return param_no_memory(err);
    r->n_pairs = (int)n;
    return srv_pooled_open(&r->pooled, req, field, n, srv_pairs_width(&r->served->pairs), err);
}

static int read_documents(struct ranking *r, struct srv_request *req, struct param_error *err)
{
    const char *field = r->texts ? "texts" : "documents";
    const json_t *list = r->texts ? r->texts : r->documents, *query;
    char path[PARAM_PATH_MAX];
    if (!r->query || !list)
        return param_fail(err, SRV_ERR_MISSING, r->query ? field : "query",
                          "The parameter '%s' is required.", r->query ? field : "query");
    if (!json_is_array(list))
        return param_fail(err, SRV_ERR_INVALID_TYPE, field, "'%s' must be an array.", field);
    if (text_of(r->query, "query", &query, err) ||
        make_pairs(r, req, field, json_array_size(list), err))
        return -1;
    for (int i = 0; i < r->n_pairs; i++) {
        snprintf(path, sizeof(path), "%s[%d]", field, i);
        r->pairs[i].query = query;
        if (text_of(json_array_get(list, (size_t)i), path, &r->pairs[i].document, err)) return -1;
    }
    return 0;
}

static const json_t *item(const json_t *value, size_t i)
{
    if (!json_is_array(value)) return value;
    return json_array_get(value, json_array_size(value) == 1 ? 0 : i);
}

static int read_both_sides(struct ranking *r, struct srv_request *req, struct param_error *err)
{
    static const char *const names[3] = {"text_2", "documents", "data_2"};
    json_t *left = NULL, *right = NULL;
    int k = 0;
    for (int i = 0; i < 3 && !left; i++)
        left = r->lefts[i], k = i;
    right = r->rights[k] ? r->rights[k] : k == 1 ? r->documents : NULL;
    if (!left || !right)
        return param_fail(err, SRV_ERR_MISSING, "text_1",
                          "'text_1' and 'text_2' are required, or 'queries' and 'documents', or "
                          "'data_1' and 'data_2'.");
    size_t n_left = json_is_array(left) ? json_array_size(left) : 1;
    size_t n_right = json_is_array(right) ? json_array_size(right) : 1;
    if (n_left != 1 && n_left != n_right)
        return param_fail(err, SRV_ERR_INVALID_VALUE, names[k],
                          "%zu texts on the left cannot be paired with %zu on the right; one with "
                          "many, or as many.",
                          n_left, n_right);
    if (make_pairs(r, req, names[k], n_right, err)) return -1;
    for (int i = 0; i < r->n_pairs; i++) {
        struct pair_input *p = &r->pairs[i];
        if (text_of(item(left, (size_t)i), "text_1", &p->query, err) ||
            text_of(item(right, (size_t)i), names[k], &p->document, err))
            return -1;
    }
    return 0;
}

/* In a template all texts are tokenized as one, since ids may depend on what follows. */
static int check_joined(const struct ranking *r, struct param_error *err)
{
    size_t n_instruction = r->instruction ? strlen(r->instruction) : 0, n_bytes = 0;
    if (!r->served->pairs.template) return 0;
    for (int i = 0; i < r->n_pairs; i++)
        n_bytes += json_string_length(r->pairs[i].query) + n_instruction;
    return texts_check_joined(&r->pooled, n_bytes, err);
}

static int read_body(struct ranking *r, struct srv_request *req, struct param_error *err)
{
    const struct srv_facts *facts = srv_facts(req);
    struct param_unknown unknown = {0};
    r->served = facts->model;
    if (srv_body_read(&r->body, facts->body, facts->body_len, PARAM_MAX_VALUES, err) ||
        params_read(r->body.root, srv_fields_rerank, r, &unknown, err))
        return -1;
    if (r->shape == SHAPE_JINA && r->texts) {
        r->shape = SHAPE_TEI;
        srv_facts(req)->dialect = SRV_DIALECT_TEI;
    }
    if (r->shape == SHAPE_JINA && (r->truncation || json_object_get(r->body.root, "top_k")))
        r->shape = SHAPE_VOYAGE;
    if (r->truncation) r->asked.truncate = r->truncation;
    r->rules.cut = r->shape == SHAPE_COHERE ? TEXTS_KEEP_FIRST : TEXTS_REFUSE;
    if (check_model(r, err) || texts_rules_set(&r->rules, &r->asked, req, &unknown, err)) return -1;
    if (r->instruction && !srv_pairs_instructs(&r->served->pairs))
        param_note(&unknown,
                   json_object_get(r->body.root, "instruct") ? "instruct" : "instruction");
    int rc = r->shape == SHAPE_SCORE ? read_both_sides(r, req, err) : read_documents(r, req, err);
    if (rc || check_joined(r, err)) return -1;
    return param_name_ignored(req, &unknown, err);
}

static void handle(struct srv_request *req, enum shape shape)
{
    static const struct srv_pooled_ops ops = {add, describe, answer, release};
    struct param_error err = {0};
    struct ranking *r = srv_request_alloc(req, sizeof(*r));
    srv_facts(req)->account.endpoint = shape == SHAPE_SCORE ? "score" : "rerank";
    if (r) r->shape = shape;
    if (r && !read_body(r, req, &err)) {
        srv_pooled_start(&r->pooled, &ops, r);
        return;
    }
    if (!r) param_no_memory(&err);
    if (r) srv_body_finish(&r->body);
    param_reply(req, &err);
}

static void handle_jina(struct srv_request *req)
{
    handle(req, SHAPE_JINA);
}

static void handle_cohere(struct srv_request *req)
{
    handle(req, SHAPE_COHERE);
}

static void handle_score(struct srv_request *req)
{
    handle(req, SHAPE_SCORE);
}

const struct srv_route srv_routes_rerank[] = {
    {"POST", "/v1/rerank", SRV_ROUTE_BARE, SRV_DIALECT_DETAIL, handle_jina, NULL},
    {"POST", "/v1/reranking", SRV_ROUTE_BARE, SRV_DIALECT_DETAIL, handle_jina, NULL},
    {"POST", "/v2/rerank", 0, SRV_DIALECT_COHERE, handle_cohere, NULL},
    {"POST", "/cohere/v2/rerank", 0, SRV_DIALECT_COHERE, handle_cohere, NULL},
    {"POST", "/v1/score", SRV_ROUTE_BARE, SRV_DIALECT_OPENAI, handle_score, NULL},
    {0},
};
