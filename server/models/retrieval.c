/* SPDX-License-Identifier: MIT */
#include "server/models/retrieval.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/fail.h"
#include "base/shown.h"
#include "base/utf8.h"
#include "engine/engine.h"
#include "server/models/lookup.h"
#include "tokenizer/tokenizer.h"

enum { FOLDER_BYTES = 256 };

struct reading {
    struct srv_retrieval *r;
    const char *dir;
    char *err;
    size_t errlen;
};

/* *ret is owned, an object or array; NULL where the file is not there. */
static int load(struct reading *rd, const char *name, json_t **ret)
{
    return srv_json_file(ret, rd->dir, name, rd->err, rd->errlen);
}

static int wrong(struct reading *rd, const char *file, const char *key, const char *must)
{
    return fail_with(-1, rd->err, rd->errlen, "%s: %s must be %s", file, key, must);
}

/* A member that may be missing or null. Returns 0, or -1 if it has another type. */
static int member(struct reading *rd, const char *file, const json_t *object, const char *key,
                  json_type type, json_t **ret)
{
    json_t *value = json_object_get(object, key);
    *ret = NULL;
    if (!value || json_is_null(value)) return 0;
    if (json_typeof(value) != type)
        return wrong(rd, file, key,
                     type == JSON_OBJECT   ? "an object"
                     : type == JSON_STRING ? "a string"
                     : type == JSON_ARRAY  ? "an array"
                                           : "an integer");
    *ret = value;
    return 0;
}

/* ---- config_sentence_transformers.json, sentence_bert_config.json ---------------------------- */

static int read_prompts(struct reading *rd)
{
    static const char file[] = "config_sentence_transformers.json";
    struct srv_retrieval *r = rd->r;
    const char *name;
    json_t *text, *standard, *width;
    if (load(rd, file, &r->sentences)) return -1;
    if (member(rd, file, r->sentences, "prompts", JSON_OBJECT, &r->prompts) ||
        member(rd, file, r->sentences, "default_prompt_name", JSON_STRING, &standard) ||
        member(rd, file, r->sentences, "truncate_dim", JSON_INTEGER, &width))
        return -1;
    json_object_foreach(r->prompts, name, text) if (!json_is_string(text)) return wrong(
        rd, file, "a prompt", "a string");
    r->standard_prompt = json_string_value(standard);
    if (standard && !json_object_get(r->prompts, r->standard_prompt))
        return wrong(rd, file, "default_prompt_name", "the name of a prompt");
    r->width = json_integer_value(width);
    if (width && r->width < 1) return wrong(rd, file, "truncate_dim", "at least 1");
    return 0;
}

static int read_lengths(struct reading *rd)
{
    static const char file[] = "sentence_bert_config.json";
    json_auto_t *root = NULL;
    json_t *most;
    if (load(rd, file, &root) || member(rd, file, root, "max_seq_length", JSON_INTEGER, &most))
        return -1;
    rd->r->max_tokens = json_integer_value(most);
    rd->r->lower_case = json_is_true(json_object_get(root, "do_lower_case"));
    return most && rd->r->max_tokens < 2 ? wrong(rd, file, "max_seq_length", "at least 2") : 0;
}

/* ---- modules.json ---------------------------------------------------------------------------- */

static bool is_id(const json_t *value)
{
    return json_is_integer(value) && json_integer_value(value) >= 0 &&
           json_integer_value(value) <= INT32_MAX;
}

static int read_logit_score(struct reading *rd, const char *folder)
{
    char file[FOLDER_BYTES + 16];
    json_auto_t *root = NULL;
    json_t *yes, *no;
    snprintf(file, sizeof(file), "%s/config.json", folder);
    if (load(rd, file, &root) || member(rd, file, root, "true_token_id", JSON_INTEGER, &yes) ||
        member(rd, file, root, "false_token_id", JSON_INTEGER, &no))
        return -1;
    if (!is_id(yes)) return wrong(rd, file, "true_token_id", "a token id");
    if (no && !is_id(no)) return wrong(rd, file, "false_token_id", "a token id");
    rd->r->yes_id = (int32_t)json_integer_value(yes);
    if (no) rd->r->no_id = (int32_t)json_integer_value(no);
    return 0;
}

/* The engine has refused modules that it cannot compute and paths outside the model. */
static int read_modules(struct reading *rd)
{
    json_auto_t *modules = NULL;
    int rc = load(rd, "modules.json", &modules);
    rd->r->normalised = !modules;
    for (size_t i = 0; !rc && i < json_array_size(modules); i++) {
        const json_t *m = json_array_get(modules, i);
        const char *type = json_string_value(json_object_get(m, "type"));
        const char *path = json_string_value(json_object_get(m, "path"));
        if (!type || !path) continue;
        rd->r->normalised |= utf8_ends_with(type, "Normalize");
        if (utf8_ends_with(type, "LogitScore") && strlen(path) < FOLDER_BYTES)
            rc = read_logit_score(rd, path);
    }
    return rc;
}

/* ---- config.json ----------------------------------------------------------------------------- */

/* The function that the files name for a cross-encoder's logits, or NULL. */
static const char *named_activation(const struct srv_retrieval *r)
{
    const json_t *st = json_object_get(r->config, "sentence_transformers");
    const json_t *named[] = {json_object_get(r->sentences, "activation_fn"),
                             json_object_get(st, "activation_fn"),
                             json_object_get(r->config, "sbert_ce_default_activation_function")};
    for (size_t i = 0; i < sizeof(named) / sizeof(named[0]); i++)
        if (json_is_string(named[i])) return json_string_value(named[i]);
    return NULL;
}

static int set_activations(struct reading *rd, int n_labels)
{
    struct srv_retrieval *r = rd->r;
    const char *named = named_activation(r);
    const char *problem = json_string_value(json_object_get(r->config, "problem_type"));
    bool one = n_labels <= 1;
    r->score = one ? SRV_ACTIVATION_SIGMOID : SRV_ACTIVATION_NONE;
    if (named && utf8_ends_with(named, "Identity"))
        r->score = SRV_ACTIVATION_NONE;
    else if (named && utf8_ends_with(named, "Sigmoid"))
        r->score = SRV_ACTIVATION_SIGMOID;
    else if (named)
        return wrong(rd, "config.json", "the activation function of scores",
                     "Identity or Sigmoid; others are not supported");
    r->labels_as = one ? SRV_ACTIVATION_SIGMOID : SRV_ACTIVATION_SOFTMAX;
    if (problem && !strcmp(problem, "regression")) r->labels_as = SRV_ACTIVATION_NONE;
    if (problem && !strcmp(problem, "multi_label_classification"))
        r->labels_as = SRV_ACTIVATION_SIGMOID;
    return 0;
}

static int read_config(struct reading *rd, int n_labels)
{
    static const char file[] = "config.json";
    struct srv_retrieval *r = rd->r;
    if (load(rd, file, &r->config) ||
        member(rd, file, r->config, "matryoshka_dimensions", JSON_ARRAY, &r->dimensions) ||
        member(rd, file, r->config, "id2label", JSON_OBJECT, &r->labels))
        return -1;
    return set_activations(rd, n_labels);
}

int srv_retrieval_read(struct srv_retrieval *r, const char *dir, int n_labels, char *err,
                       size_t errlen)
{
    struct reading rd = {r, dir, err, errlen};
    *r = (struct srv_retrieval){.yes_id = -1, .no_id = -1};
    return read_prompts(&rd) || read_lengths(&rd) || read_modules(&rd) || read_config(&rd, n_labels)
               ? -1
               : 0;
}

void srv_retrieval_finish(struct srv_retrieval *r)
{
    json_decref(r->config);
    json_decref(r->sentences);
}

/* ---- vectors --------------------------------------------------------------------------------- */

int srv_retrieval_check_dimensions(const struct srv_retrieval *r, int64_t dimensions, int width,
                                   char *err, size_t errlen)
{
    bool listed = !r->dimensions || !dimensions || dimensions == width;
    char names[120] = "";
    size_t n = 0;
    if (dimensions > width)
        return fail_with(-1, err, errlen, "'dimensions' is %lld, but must be at most %d.",
                         (long long)dimensions, width);
    for (size_t i = 0; i < json_array_size(r->dimensions); i++) {
        long long d = json_integer_value(json_array_get(r->dimensions, i));
        listed |= d == dimensions;
        if (n < sizeof(names) - 1)
            n += (size_t)snprintf(names + n, sizeof(names) - n, "%s%lld", i ? ", " : "", d);
    }
    if (listed) return 0;
    return fail_with(-1, err, errlen, "'dimensions' is %lld, but this model was trained for %s.",
                     (long long)dimensions, names);
}

void srv_retrieval_scale(float *values, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += (double)values[i] * values[i];
    double scale = sum > 0 ? 1 / sqrt(sum) : 0;
    for (int i = 0; i < n; i++)
        values[i] = (float)(values[i] * scale);
}

/* ---- logits ---------------------------------------------------------------------------------- */

const char *srv_retrieval_label(const struct srv_retrieval *r, int i, char buf[24])
{
    char key[12];
    snprintf(key, sizeof(key), "%d", i);
    const char *name = json_string_value(json_object_get(r->labels, key));
    snprintf(buf, 24, "LABEL_%d", i);
    return name ? name : buf;
}

void srv_retrieval_activate(enum srv_activation how, float *values, int n)
{
    float most = values[0];
    double sum = 0;
    if (how == SRV_ACTIVATION_SIGMOID)
        for (int i = 0; i < n; i++)
            values[i] = (float)(1 / (1 + exp(-(double)values[i])));
    if (how != SRV_ACTIVATION_SOFTMAX) return;
    for (int i = 1; i < n; i++)
        if (values[i] > most) most = values[i];
    for (int i = 0; i < n; i++)
        sum += exp((double)values[i] - most);
    for (int i = 0; i < n; i++)
        values[i] = (float)(exp((double)values[i] - most) / sum);
}

/* ---- prompts ------------------------------------------------------------------------------- */

/* Names that clients give to the two sides of a search; a model's files use one of each group. */
static const char *const sides[2][5] = {
    {"query", "search_query", "retrieval.query", NULL},
    {"document", "passage", "search_document", "retrieval.passage", NULL}};

static bool is_in(const char *const *names, const char *name)
{
    for (; *names; names++)
        if (!strcmp(*names, name)) return true;
    return false;
}

const json_t *srv_text_prompt(const struct srv_retrieval *files, const char *name)
{
    const json_t *text = json_object_get(files->prompts, name);
    for (int side = 0; !text && side < 2; side++)
        for (int i = 0; is_in(sides[side], name) && sides[side][i] && !text; i++)
            text = json_object_get(files->prompts, sides[side][i]);
    return text;
}

const char *srv_text_prompt_names(const struct srv_retrieval *files, char *buf, size_t size)
{
    char word[64];
    const char *key;
    json_t *text;
    bool any = json_object_size(files->prompts) > 0;
    size_t n = (size_t)snprintf(buf, size, any ? "the prompts " : "no prompts"), n_names = 0;
    json_object_foreach(files->prompts, key, text)
    {
        shown_text(word, sizeof(word), key, strlen(key));
        int more = snprintf(buf + n, size - n, "%s'%s'", n_names++ ? ", " : "", word);
        if (n + (size_t)more >= size) {
            buf[n] = '\0';
            break;
        }
        n += (size_t)more;
    }
    return buf;
}

/* ---- ids ----------------------------------------------------------------------------------- */

int64_t srv_text_longest(const struct srv_retrieval *files, const struct eng_info *info)
{
    int64_t own = files->max_tokens;
    return own && own < info->ctx_tokens ? own : info->ctx_tokens;
}

int srv_text_check_case(const struct srv_retrieval *files, const struct tok *tok, char *err,
                        size_t errlen)
{
    static const char capitals[] = "THE \xc3\x89", small[] = "the \xc3\xa9";
    struct tok_ids a = {0}, b = {0};
    if (!files->lower_case) return 0;
    bool same = !tok_encode(tok, capitals, sizeof(capitals) - 1, 0, &a, err, errlen) &&
                !tok_encode(tok, small, sizeof(small) - 1, 0, &b, err, errlen) && a.n == b.n &&
                !memcmp(a.ids, b.ids, a.n * sizeof(*a.ids));
    tok_ids_finish(&a);
    tok_ids_finish(&b);
    if (same) return 0;
    return fail_with(
        -1, err, errlen,
        "sentence_bert_config.json: do_lower_case is true, which is supported only if the "
        "tokenizer makes capital letters small itself");
}

int srv_text_encode(const struct tok *tok, const char *prompt, size_t n_prompt, const char *text,
                    size_t n_text, struct tok_ids *ret, char *err, size_t errlen)
{
    AUTO_FREE char *all = malloc(n_prompt + n_text + 1);
    if (!all) return TOK_ENOMEM;
    memcpy(all, prompt, n_prompt);
    memcpy(all + n_prompt, text, n_text);
    return tok_encode(tok, all, n_prompt + n_text, TOK_ADD_SPECIAL | TOK_PARSE_SPECIAL, ret, err,
                      errlen);
}

int srv_text_unpooled(const struct tok *tok, const struct eng_info *info, const char *prompt,
                      size_t n_prompt, int64_t *ret, char *err, size_t errlen)
{
    AUTO(tok_ids_finish) struct tok_ids ids = {0};
    size_t head, tail;
    *ret = 0;
    if (!info->unpooled_prompt || n_prompt == 0) return 0;
    int rc = srv_text_encode(tok, prompt, n_prompt, "", 0, &ids, err, errlen);
    tok_special_around(tok, &head, &tail);
    if (!rc) *ret = (int64_t)(ids.n - tail);
    return rc;
}

bool srv_text_cut(int32_t *ids, size_t *n, size_t most, bool keep_end, size_t n_head, size_t n_tail)
{
    if (*n <= most) return true;
    if (n_head + n_tail >= most) return false;
    size_t n_cut = *n - most, at = keep_end ? n_head : most - n_tail;
    memmove(ids + at, ids + at + n_cut, (most - at) * sizeof(*ids));
    *n = most;
    return true;
}
