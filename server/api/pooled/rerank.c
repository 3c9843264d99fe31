/* SPDX-License-Identifier: MIT */
/*
 * Scores of pairs: a query with each of its documents (rerank), or texts with texts (score).
 *
 * A pair is one prompt, the query first, so that the documents of a query share its pages. What
 * the model makes of it is the logit of its one label, or how much more likely "yes" is than "no"
 * (pairs.h).
 */
#include <string.h>

#include "server/api/pooled/pooled.h"
#include "server/api/routes.h"
#include "server/models/pairs.h"
#include "server/models/served_model.h"

enum { RESULT_BYTES = 160, JSON_FACTOR = 6 };

/* Flags of the dialects. */
enum { JINA, COHERE, TEI, VOYAGE, SCORE };

struct pair_input {
    const json_t *query, *document; /* strings */
};

struct result {
    int index; /* of the document */
    float score;
};

struct ranking {
    struct srv_pooled p;
    const char *instruction;
    json_t *with_text, *raw, *truncation;
    int64_t top_n, document_tokens;
    struct pair_input *pairs; /* [p.n_max] */
    struct result *results;   /* [p.n_max] */
};

#define FIELD(...) PARAM_FIELD(struct ranking, __VA_ARGS__)

const struct param_field srv_fields_rerank[] = {
    /* find_sides reads these */
    GEN_NAME("query", PARAM_IGNORED, NULL, "the search"),
    GEN_NAME("documents", PARAM_IGNORED, NULL, "1 to 1,000 texts, or objects with a member `text`"),
    {FIELD("model", PARAM_STRING, p.model, "served model", "as in chat")},
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
    {FIELD("truncate_prompt_tokens", PARAM_INT, p.asked.truncate_prompt_tokens, "none",
           "longer pairs are cut to so many tokens, at the document's end; -1: to the longest"),
     .min = -1, .max = 1 << 20},
    {FIELD("truncate", PARAM_JSON, p.asked.truncate, "the dialect's own",
           "whether longer pairs are cut at the document's end")},
    {.name = "user", .type = PARAM_IGNORED, .meaning = "accepted, no effect"},
    /* other dialects */
    {FIELD("truncation", PARAM_JSON, truncation, NULL, NULL)},
    {FIELD("return_text", PARAM_JSON, with_text, NULL, NULL)},
    /* clang-format off */
    GEN_IGNORED("texts"), GEN_IGNORED("text_1"), GEN_IGNORED("text_2"), GEN_IGNORED("queries"),
    GEN_IGNORED("items"), GEN_IGNORED("data_1"), GEN_IGNORED("data_2"), GEN_IGNORED("priority"),
    GEN_IGNORED("return_len"), GEN_IGNORED("truncation_direction"),
    /* clang-format on */
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
    const struct srv_model *model = r->p.served;
    float value = srv_pairs_logit(&model->pairs, r->p.rows[i].values);
    enum srv_activation how = SRV_ACTIVATION_SIGMOID;
    if (is_true(r->raw))
        how = SRV_ACTIVATION_NONE;
    else if (r->p.dialect->flags == SCORE && !model->pairs.judges)
        how = model->retrieval.score;
    srv_retrieval_activate(how, &value, 1);
    return value;
}

/* In the order of the request. */
static void score(struct srv_pooled *p)
{
    struct ranking *r = (struct ranking *)p;
    for (int i = 0; i < p->n; i++)
        r->results[i] = (struct result){i, score_of(r, i)};
}

/* Best first, ties by index. NaN cannot come, the engine refuses such rows. */
static int by_score(const void *a, const void *b)
{
    const struct result *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->index - y->index;
}

static void rank(struct srv_pooled *p)
{
    const struct ranking *r = (const struct ranking *)p;
    score(p);
    qsort(r->results, (size_t)p->n, sizeof(*r->results), by_score);
    if (r->top_n && r->top_n < p->n) p->n_items = (int)r->top_n;
}

static void write_result(struct srv_pooled *p, struct jw *w, int i)
{
    const struct ranking *r = (const struct ranking *)p;
    const struct result *one = &r->results[i];
    const json_t *text = is_true(r->with_text) ? r->pairs[one->index].document : NULL;
    unsigned kind = p->dialect->flags;
    jw_fields(w, "{ index %d", one->index);
    if (kind == SCORE) jw_text(w, "object", "score");
    jw_number(w, kind == SCORE || kind == TEI ? "score" : "relevance_score", one->score);
    if (text && kind == JINA) jw_open(w, "document", '{');
    if (text && (kind == JINA || kind == TEI || kind == VOYAGE))
        jw_string(w, kind == VOYAGE ? "document" : "text", json_string_value(text),
                  json_string_length(text));
    if (text && kind == JINA) jw_close(w);
    jw_close(w);
}

static void cohere_end(struct srv_pooled *p, struct jw *w)
{
    jw_close(w);
    srv_pooled_write_meta(w, "search_units", 1);
    jw_close(w);
}

/* ---- request ------------------------------------------------------------------------------- */

/* A member of the body; NULL: it is absent or null. */
static const json_t *member(const struct srv_pooled *p, const char *name)
{
    const json_t *value = json_object_get(p->body.root, name);
    return json_is_null(value) ? NULL : value;
}

static const struct pooled_dialect tei, voyage;

/* Dialects share a path; some are known by their fields. */
static int check(struct srv_pooled *p)
{
    struct ranking *r = (struct ranking *)p;
    const struct srv_pairs *pairs = &p->served->pairs;
    bool is_jina = p->dialect->flags == JINA;
    if (is_jina && member(p, "texts")) {
        p->dialect = &tei;
        srv_facts(p->req)->dialect = SRV_DIALECT_TEI;
    } else if (is_jina && (r->truncation || json_object_get(p->body.root, "top_k"))) {
        p->dialect = &voyage;
    }
    if (r->truncation) p->asked.truncate = r->truncation;
    if (r->instruction && !(pairs->template && strstr(pairs->template, "{instruction}")))
        param_note(&p->unknown,
                   json_object_get(p->body.root, "instruct") ? "instruct" : "instruction");
    if (pairs->judges || p->info->n_labels == 1) return 0;
    return param_fail(
        SRV_ERR_UNSUPPORTED_TASK, "model", "This model has no head that scores pairs%s",
        p->info->generates
            ? ". A reranker that answers yes or no is served with --rerank-tokens yes,no and "
              "--rerank-template."
            : ": it is not a reranker.");
}

/* A string, or an object with one in "text". */
static int text_of(const json_t *value, const char *path, const json_t **ret)
{
    *ret = json_is_object(value) ? json_object_get(value, "text") : value;
    if (json_is_string(*ret)) return 0;
    return param_wrong_type(path, "a string or an object with a string 'text'");
}

/* The value that pair i has of a side: its own, or the only one. */
static const json_t *item(const json_t *side, size_t i)
{
    if (!json_is_array(side)) return side;
    return json_array_get(side, json_array_size(side) == 1 ? 0 : i);
}

/* In a template all texts are tokenized as one, since ids may depend on what follows. */
static int check_joined(const struct ranking *r)
{
    size_t n_instruction = r->instruction ? strlen(r->instruction) : 0, n_bytes = 0;
    if (!r->p.served->pairs.template) return 0;
    for (int i = 0; i < r->p.n_max; i++)
        n_bytes += json_string_length(r->pairs[i].query) + n_instruction;
    return texts_check_joined(&r->p, n_bytes);
}

static int open_pairs(struct ranking *r, const char *left_name, const char *right_name)
{
    struct srv_pooled *p = &r->p;
    const json_t *left = member(p, left_name), *right = member(p, right_name);
    size_t n_left = json_is_array(left) ? json_array_size(left) : 1;
    size_t n = json_is_array(right) ? json_array_size(right) : 1;
    char path[PARAM_PATH_MAX];
    if (n_left != 1 && n_left != n)
        return param_fail(SRV_ERR_INVALID_VALUE, right_name,
                          "%zu texts on the left cannot be paired with %zu on the right; one with "
                          "many, or as many.",
                          n_left, n);
    if (n == 0 || n > TEXTS_MAX_PAIRS)
        return param_fail(SRV_ERR_INVALID_VALUE, right_name,
                          "'%s' holds %zu texts; 1 to %d are allowed.", right_name, n,
                          TEXTS_MAX_PAIRS);
    r->pairs = srv_request_alloc(p->req, n * sizeof(*r->pairs));
    r->results = srv_request_alloc(p->req, n * sizeof(*r->results));
    if (!r->pairs || !r->results) return param_no_memory();
    if (srv_pooled_open(p, right_name, n, srv_pairs_width(&p->served->pairs))) return -1;
    for (size_t i = 0; i < n; i++) {
        struct pair_input *pair = &r->pairs[i];
        snprintf(path, sizeof(path), p->dialect->flags == SCORE ? "%s" : "%s[%zu]", right_name, i);
        if (text_of(item(left, i), left_name, &pair->query) ||
            text_of(item(right, i), path, &pair->document))
            return -1;
        p->answer_bytes += RESULT_BYTES + JSON_FACTOR * json_string_length(pair->document);
    }
    return check_joined(r);
}

static int open_documents(struct srv_pooled *p)
{
    const char *list = member(p, "texts") ? "texts" : "documents";
    const char *missing = !member(p, "query") ? "query" : !member(p, list) ? list : NULL;
    const json_t *query;
    if (missing)
        return param_fail(SRV_ERR_MISSING, missing, "The parameter '%s' is required.", missing);
    if (!json_is_array(member(p, list))) return param_wrong_type(list, "an array");
    if (text_of(member(p, "query"), "query", &query)) return -1;
    return open_pairs((struct ranking *)p, "query", list);
}

static int open_sides(struct srv_pooled *p)
{
    static const char *const names[][3] = {{"text_1", "text_2", "text_2"},
                                           {"queries", "items", "documents"},
                                           {"data_1", "data_2", "data_2"}};
    size_t i = 0;
    while (i < 2 && !member(p, names[i][0]))
        i++;
    const char *right = names[i][member(p, names[i][1]) ? 1 : 2];
    if (!member(p, names[i][0]) || !member(p, right))
        return param_fail(SRV_ERR_MISSING, "text_1",
                          "'text_1' and 'text_2' are required, or 'queries' and 'documents', or "
                          "'data_1' and 'data_2'.");
    return open_pairs((struct ranking *)p, names[i][0], right);
}

static int add(struct srv_pooled *p, int i)
{
    const struct ranking *r = (const struct ranking *)p;
    const struct pair_input *pair = &r->pairs[i];
    char path[PARAM_PATH_MAX];
    struct srv_pair_text text = {
        .query = json_string_value(pair->query),
        .n_query = json_string_length(pair->query),
        .document = json_string_value(pair->document),
        .n_document = json_string_length(pair->document),
        .instruction = r->instruction,
        .document_tokens = r->document_tokens,
    };
    snprintf(path, sizeof(path), "%s[%d]", p->field, i);
    return texts_add_pair(p, &text, path);
}

static void describe(struct srv_pooled *p, int i, struct eng_job_params *job)
{
    srv_pairs_describe(&p->served->pairs, job);
}

static const struct pooled_endpoint rerank = {
    .name = "rerank",
    .bytes = sizeof(struct ranking),
    .fields = srv_fields_rerank,
    .check = check,
    .open = open_documents,
    .add = add,
    .describe = describe,
    .sort = rank,
};

static const struct pooled_endpoint scoring = {
    .name = "score",
    .bytes = sizeof(struct ranking),
    .fields = srv_fields_rerank,
    .check = check,
    .open = open_sides,
    .add = add,
    .describe = describe,
    .sort = score,
};

#define DIALECT(name, ...) static const struct pooled_dialect name = {__VA_ARGS__}

DIALECT(jina, &rerank, NULL, TEXTS_REFUSE, JINA, "results", write_result, NULL, NULL);
DIALECT(voyage, &rerank, NULL, TEXTS_REFUSE, VOYAGE, "data", write_result, NULL, NULL);
DIALECT(tei, &rerank, NULL, TEXTS_REFUSE, TEI, NULL, write_result, NULL, NULL);
DIALECT(cohere, &rerank, NULL, TEXTS_KEEP_FIRST, COHERE, "results", write_result, NULL, cohere_end);
DIALECT(vllm, &scoring, NULL, TEXTS_REFUSE, SCORE, "data", write_result, NULL, NULL);

const struct srv_route srv_routes_rerank[] = {
    {"POST", "/v1/rerank", SRV_ROUTE_BARE, SRV_DIALECT_DETAIL, srv_pooled_handle, &jina},
    {"POST", "/v2/rerank", 0, SRV_DIALECT_COHERE, srv_pooled_handle, &cohere},
    {"POST", "/v1/score", SRV_ROUTE_BARE, SRV_DIALECT_OPENAI, srv_pooled_handle, &vllm},
    {0},
};
