/* SPDX-License-Identifier: MIT */
#include "server/models/pairs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/buf.h"
#include "base/fail.h"
#include "base/file.h"
#include "server/config/config.h"

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
    return fail_with(-1, err, errlen, "--rerank-tokens: '%.*s' is not a token of this model",
                     (int)(len < 40 ? len : 40), word);
}

static int set_tokens(struct srv_pairs *m, const char *words, char *err, size_t errlen)
{
    const char *comma = strchr(words, ',');
    if (!comma)
        return fail_with(-1, err, errlen,
                         "--rerank-tokens: '%.40s' must be two tokens, yes and no, with a "
                         "comma in between",
                         words);
    m->judges = true;
    return set_token(m->tok, words, (size_t)(comma - words), &m->ids[0], err, errlen) ||
                   set_token(m->tok, comma + 1, strlen(comma + 1), &m->ids[1], err, errlen)
               ? -1
               : 0;
}

static int check_ids(const struct srv_pairs *m, char *err, size_t errlen)
{
    for (int i = 0; i < srv_pairs_width(m); i++) {
        if (m->ids[i] >= 0 && m->ids[i] < m->info->vocab_size) continue;
        return fail_with(-1, err, errlen,
                         "LogitScore: the ids of the %s token must be from 0 to %d",
                         i ? "false" : "true", (int)m->info->vocab_size - 1);
    }
    return 0;
}

static int load_template(struct srv_pairs *p, const char *name, char *err, size_t errlen)
{
    if (!strcmp(name, "qwen3"))
        p->template = strdup(qwen3);
    else if (file_load(NULL, name, TEMPLATE_BYTES, &p->template, NULL, err, errlen))
        return -1;
    if (!p->template) return fail_with(-1, err, errlen, "out of memory");
    /* encode_template reads what follows the document as the template's own text */
    const char *document = strstr(p->template, "{document}");
    const char *query = strstr(p->template, "{query}");
    if (query && document && query < document && !strstr(document + 1, "{query}") &&
        !strstr(document + 1, "{instruction}") && !strstr(document + 1, "{document}"))
        return 0;
    snprintf(
        err, errlen,
        "--rerank-template: %.100s must hold {query} and, after it and as its last placeholder, "
        "{document}",
        name);
    return -1;
}

int srv_pairs_open(struct srv_pairs *p, const struct tok *tok, const struct eng_info *info,
                   const struct srv_retrieval *files, const struct srv_config *config, char *err,
                   size_t errlen)
{
    const char *template = config->rerank_template;
    *p = (struct srv_pairs){.tok = tok, .info = info, .ids = {files->yes_id, files->no_id}};
    if (config->rerank_tokens && set_tokens(p, config->rerank_tokens, err, errlen)) return -1;
    if (!config->rerank_tokens && files->yes_id >= 0) {
        p->judges = true;
        if (check_ids(p, err, errlen)) return -1;
    }
    if (p->judges && !template) template = "qwen3";
    return template ? load_template(p, template, err, errlen) : 0;
}

/* ---- jobs ---------------------------------------------------------------------------------- */

int srv_pairs_width(const struct srv_pairs *m)
{
    return m->judges && m->ids[1] != -1 ? 2 : 1;
}

void srv_pairs_describe(const struct srv_pairs *m, struct eng_job_params *p)
{
    p->want_pooled = !m->judges;
    p->want_logits = m->judges && srv_pairs_width(m) == 1;
    if (!m->judges || p->want_logits) return;
    p->max_tokens = 1;
    p->sampling.temperature = 0;
    p->n_logprobs = 0;
    p->listed_ids = m->ids;
    p->n_listed_ids = 2;
}

float srv_pairs_logit(const struct srv_pairs *m, const float *row)
{
    return srv_pairs_width(m) == 2 ? row[0] - row[1] : row[0];
}
/* ---- prompts ------------------------------------------------------------------------------- */

/* A prompt that is being made: its text, which ranges of it are the client's, how many of these
 * come before the document, and where that is. An empty text has no range. */
struct rendering {
    struct buf text;
    struct tok_range input[64];
    size_t n_input, n_before, document_begin, document_end;
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
        r->n_before = r->n_input;
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

/* The ids that all pairs of a query have in common, encoded for the first of them. */
static struct srv_pair_front *front_of(const struct srv_pair_text *pair)
{
    struct srv_pair_front *f = pair->front;
    if (f->query == pair->query && f->instruction == pair->instruction) return f;
    tok_ids_finish(&f->ids);
    *f = (struct srv_pair_front){.query = pair->query, .instruction = pair->instruction};
    return f;
}

/* Up to the document's end, then the rest: a cut is between them. */
static int encode_template(const struct srv_pairs *m, const struct rendering *r,
                           const struct srv_pair_text *pair, struct srv_pair_ids *ret, char *err,
                           size_t errlen)
{
    const char *text = r->text.data;
    struct srv_pair_front *front = front_of(pair);
    int rc = tok_encode_marked(m->tok, text, r->document_end, r->input, r->n_input,
                               TOK_PARSE_SPECIAL, &ret->ids, err, errlen);
    if (!rc && pair->document_tokens > 0 && !front->made) {
        rc = tok_encode_marked(m->tok, text, r->document_begin, r->input, r->n_before,
                               TOK_PARSE_SPECIAL, &front->ids, err, errlen);
        front->made = !rc;
    }
    if (!rc) cut_document(pair, &ret->ids, front->ids.n);
    size_t n = ret->ids.n;
    if (!rc && r->text.len > r->document_end)
        rc = tok_encode(m->tok, text + r->document_end, r->text.len - r->document_end,
                        TOK_PARSE_SPECIAL, &ret->ids, err, errlen);
    ret->n_tail = ret->ids.n - n;
    return rc;
}

/* A head's prompt gets the special tokens that the tokenizer puts around a text. */
static int encode_for_head(const struct srv_pairs *m, const struct rendering *r,
                           const struct srv_pair_text *pair, struct srv_pair_ids *ret, char *err,
                           size_t errlen)
{
    struct srv_pair_ids plain = {0};
    size_t n_first, n_before, n_after;
    int rc = encode_template(m, r, pair, &plain, err, errlen);
    if (!rc) rc = tok_join(m->tok, &plain.ids, NULL, &ret->ids, &n_first, err, errlen);
    tok_special_around(m->tok, &n_before, &n_after);
    ret->n_tail = plain.n_tail + n_after;
    tok_ids_finish(&plain.ids);
    return rc;
}

/* As the model's tokenizer joins two texts. */
static int join_pair(const struct srv_pairs *m, const struct srv_pair_text *pair,
                     struct srv_pair_ids *ret, char *err, size_t errlen)
{
    struct srv_pair_front *front = front_of(pair);
    AUTO(tok_ids_finish) struct tok_ids b = {0};
    int64_t room = pair->most_tokens - (int64_t)tok_n_special(m->tok, true);
    int rc = front->made
                 ? 0
                 : tok_encode(m->tok, pair->query, pair->n_query, 0, &front->ids, err, errlen);
    front->made = !rc;
    struct tok_ids a = front->ids; /* cut for this document alone */
    if (!rc) rc = tok_encode(m->tok, pair->document, pair->n_document, 0, &b, err, errlen);
    cut_document(pair, &b, 0);
    ret->cut = pair->most_tokens > 0 && (int64_t)(a.n + b.n) > room;
    if (ret->cut) tok_cut_pair(room > 0 ? (size_t)room : 0, &a.n, &b.n);
    if (!rc) rc = tok_join(m->tok, &a, &b, &ret->ids, &ret->n_first, err, errlen);
    return rc;
}

int srv_pairs_encode(const struct srv_pairs *m, const struct srv_pair_text *pair,
                     struct srv_pair_ids *ret, char *err, size_t errlen)
{
    struct rendering r = {0};
    if (!m->template) return join_pair(m, pair, ret, err, errlen);
    buf_init(&r.text, SIZE_MAX);
    render(&r, m->template, pair);
    int rc = r.text.failed ? TOK_ENOMEM : 0;
    if (!rc && m->judges)
        rc = encode_template(m, &r, pair, ret, err, errlen);
    else if (!rc)
        rc = encode_for_head(m, &r, pair, ret, err, errlen);
    buf_finish(&r.text);
    return rc;
}
