/* SPDX-License-Identifier: MIT */
/* See pairs.h. */
#include "server/pairs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "server/config/config.h"
#include "server/served_model.h"

enum { TEMPLATE_BYTES = 64 << 10 };

/* The recipe of Qwen3-Reranker's model card. */
static const char qwen3[] =
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
    "the Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n"
    "<|im_start|>user\n<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}"
    "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";

static const char usual_instruction[] =
    "Given a web search query, retrieve relevant passages that answer the query";

/* ---- opening ------------------------------------------------------------------------------- */

static int set_token(const struct tok *tok, const char *word, size_t len, int32_t *ret, char *err,
                     size_t errlen)
{
    *ret = tok_token_id(tok, word, len);
    if (*ret >= 0) return 0;
    snprintf(err, errlen, "--rerank-tokens: '%.*s' is no token of this model",
             (int)(len < 40 ? len : 40), word);
    return -1;
}

static int set_tokens(struct srv_model *m, const char *words, char *err, size_t errlen)
{
    const char *comma = strchr(words, ',');
    if (!comma) {
        snprintf(err, errlen,
                 "--rerank-tokens: '%.40s' must be two tokens, yes and no, with a "
                 "comma in between",
                 words);
        return -1;
    }
    m->pairs.judges = true;
    return set_token(m->tok, words, (size_t)(comma - words), &m->pairs.ids[0], err, errlen) ||
                   set_token(m->tok, comma + 1, strlen(comma + 1), &m->pairs.ids[1], err, errlen)
               ? -1
               : 0;
}

static int check_ids(const struct srv_model *m, char *err, size_t errlen)
{
    for (int i = 0; i < 2; i++) {
        if (m->pairs.ids[i] >= 0 && m->pairs.ids[i] < eng_info(m->engine)->vocab_size) continue;
        snprintf(err, errlen, "LogitScore: the ids of the %s token must be from 0 to %d",
                 i ? "false" : "true", (int)eng_info(m->engine)->vocab_size - 1);
        return -1;
    }
    return 0;
}

static int load_template(struct srv_pairs *p, const char *name, char *err, size_t errlen)
{
    if (!strcmp(name, "qwen3"))
        p->template = strdup(qwen3);
    else if (file_load(NULL, name, TEMPLATE_BYTES, &p->template, NULL, err, errlen))
        return -1;
    if (!p->template) {
        snprintf(err, errlen, "out of memory");
        return -1;
    }
    if (strstr(p->template, "{query}") && strstr(p->template, "{document}")) return 0;
    snprintf(err, errlen, "--rerank-template: %.100s must hold {query} and {document}", name);
    return -1;
}

int srv_pairs_open(struct srv_model *m, char *err, size_t errlen)
{
    struct srv_pairs *p = &m->pairs;
    const struct srv_config *c = m->config;
    const char *template = c->rerank_template;
    *p = (struct srv_pairs){.ids = {m->retrieval.yes_id, m->retrieval.no_id}};
    if (c->rerank_tokens && set_tokens(m, c->rerank_tokens, err, errlen)) return -1;
    if (!c->rerank_tokens && m->retrieval.yes_id >= 0) {
        p->judges = true;
        if (check_ids(m, err, errlen)) return -1;
    }
    if (p->judges && !template) template = "qwen3";
    return template ? load_template(p, template, err, errlen) : 0;
}

void srv_pairs_finish(struct srv_pairs *p)
{
    free(p->template);
}

/* ---- jobs ---------------------------------------------------------------------------------- */

bool srv_pairs_can(const struct srv_model *m)
{
    return m->pairs.judges || eng_info(m->engine)->n_labels == 1;
}

int srv_pairs_width(const struct srv_model *m)
{
    return m->pairs.judges ? 2 : 1;
}

void srv_pairs_describe(const struct srv_model *m, struct eng_job_params *p)
{
    p->want_pooled = !m->pairs.judges;
    if (!m->pairs.judges) return;
    p->max_tokens = 1;
    p->sampling.temperature = 0;
    p->n_logprobs = 0;
    p->listed_ids = m->pairs.ids;
    p->n_listed_ids = 2;
}

float srv_pairs_logit(const struct srv_model *m, const float *row)
{
    return m->pairs.judges ? row[0] - row[1] : row[0];
}

/* ---- prompts ------------------------------------------------------------------------------- */

/* A prompt that is being made: its text, which ranges of it are the client's, and where the
 * document ends. */
struct rendering {
    struct buf text;
    struct tok_range input[64];
    size_t n_input, document_begin, document_end;
};

static void add_input(struct rendering *r, const char *text, size_t n)
{
    size_t begin = r->text.len;
    buf_add(&r->text, text, n);
    if (n > 0) r->input[r->n_input++] = (struct tok_range){begin, begin + n};
}

/* Fills one placeholder at `at`, if there is one; returns the place after it. */
static const char *fill(struct rendering *r, const char *at, const struct srv_pair_text *pair)
{
    if (r->n_input == sizeof(r->input) / sizeof(r->input[0])) return NULL;
    if (!strncmp(at, "{query}", 7)) {
        add_input(r, pair->query, pair->n_query);
        return at + 7;
    }
    if (!strncmp(at, "{document}", 10)) {
        r->document_begin = r->text.len;
        add_input(r, pair->document, pair->n_document);
        r->document_end = r->text.len;
        return at + 10;
    }
    if (!strncmp(at, "{instruction}", 13)) {
        const char *text = pair->instruction ? pair->instruction : usual_instruction;
        add_input(r, text, strlen(text));
        return at + 13;
    }
    return NULL;
}

/* The template is gone through once: what the client's text holds is never a placeholder. */
static void render(struct rendering *r, const char *template, const struct srv_pair_text *pair)
{
    while (*template) {
        const char *next = *template == '{' ? fill(r, template, pair) : NULL;
        if (!next) {
            buf_add(&r->text, template, 1);
            next = template + 1;
        }
        template = next;
    }
}

/* Takes so many tokens off the document that document_tokens are left. */
static void cut_document(const struct srv_pair_text *pair, struct tok_ids *ids, size_t n_before)
{
    size_t most = n_before + (size_t)pair->document_tokens;
    if (pair->document_tokens > 0 && ids->n > most) ids->n = most;
}

/* Up to the document's end, then the rest: a cut is between them. */
static int encode_template(const struct srv_model *m, const struct rendering *r,
                           const struct srv_pair_text *pair, unsigned flags,
                           struct srv_pair_ids *ret, char *err, size_t errlen)
{
    const char *text = r->text.data;
    struct tok_ids before = {0};
    int rc = tok_encode_marked(m->tok, text, r->document_end, r->input, r->n_input, flags,
                               &ret->ids, err, errlen);
    if (!rc && pair->document_tokens > 0)
        rc = tok_encode_marked(m->tok, text, r->document_begin, r->input, r->n_input - 1, flags,
                               &before, err, errlen);
    if (!rc) cut_document(pair, &ret->ids, before.n);
    tok_ids_finish(&before);
    size_t n = ret->ids.n;
    if (!rc && r->text.len > r->document_end)
        rc = tok_encode(m->tok, text + r->document_end, r->text.len - r->document_end, flags,
                        &ret->ids, err, errlen);
    ret->n_tail = ret->ids.n - n;
    return rc;
}

/* A head's prompt gets the special tokens that the tokenizer puts around a text. */
static int encode_for_head(const struct srv_model *m, const struct rendering *r,
                           struct srv_pair_ids *ret, char *err, size_t errlen)
{
    struct tok_ids none = {0};
    int rc = tok_encode_marked(m->tok, r->text.data, r->text.len, r->input, r->n_input,
                               TOK_PARSE_SPECIAL | TOK_ADD_SPECIAL, &ret->ids, err, errlen);
    if (!rc) rc = tok_encode(m->tok, "", 0, TOK_ADD_SPECIAL, &none, err, errlen);
    const struct tok_ids *ids = &ret->ids;
    while (!rc && ret->n_tail < none.n && ret->n_tail < ids->n &&
           none.ids[none.n - 1 - ret->n_tail] == ids->ids[ids->n - 1 - ret->n_tail])
        ret->n_tail++;
    tok_ids_finish(&none);
    return rc;
}

int srv_pairs_encode(const struct srv_model *m, const struct srv_pair_text *pair,
                     struct srv_pair_ids *ret, char *err, size_t errlen)
{
    struct rendering r = {0};
    buf_init(&r.text, SIZE_MAX);
    render(&r, m->pairs.template ? m->pairs.template : "{query}{document}", pair);
    int rc = r.text.failed ? TOK_ENOMEM : 0;
    if (!rc && m->pairs.judges)
        rc = encode_template(m, &r, pair, TOK_PARSE_SPECIAL, ret, err, errlen);
    else if (!rc)
        rc = encode_for_head(m, &r, ret, err, errlen);
    buf_finish(&r.text);
    return rc;
}
