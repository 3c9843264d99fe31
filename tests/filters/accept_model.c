/* SPDX-License-Identifier: MIT */
/* The part of a model directory that `hearth-filter accept` uses; see accept_model.h. */
#include "tests/filters/accept_model.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "server/grammars/cache.h"
#include "tokenizer/grammar/grammar.h"
#include "tokenizer/tokenizer.h"

enum { MAX_CONFIG_BYTES = 4 << 20 };

/* ---- end ids ------------------------------------------------------------------------------- */

static void add_end_id(struct accept_model *m, const json_t *id)
{
    json_int_t v = json_integer_value(id);
    if (json_is_integer(id) && v >= 0 && v <= INT32_MAX && m->n_end_ids < ACCEPT_MAX_END_IDS)
        m->end_ids[m->n_end_ids++] = (int32_t)v;
}

/* eos_token_id of one file: an id or a list of them. A file that cannot be read has none. */
static void read_end_ids(struct accept_model *m, const char *dir, const char *name)
{
    char *text, err[256];
    const json_t *id;
    size_t i, len;

    if (file_load(dir, name, MAX_CONFIG_BYTES, &text, &len, err, sizeof(err))) return;
    json_t *root = json_loadb(text, len, 0, NULL);
    const json_t *eos = json_object_get(root, "eos_token_id");
    if (json_is_array(eos)) {
        json_array_foreach(eos, i, id) add_end_id(m, id);
    } else {
        add_end_id(m, eos);
    }
    json_decref(root);
    free(text);
}

static void guess_end_ids(struct accept_model *m)
{
    static const char *const names[] = {"<|endoftext|>", "</s>",  "<|end_of_text|>",
                                        "<|im_end|>",    "<eos>", "<|eot_id|>"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && !m->n_end_ids; i++) {
        int32_t id = tok_token_id(m->tok, names[i], strlen(names[i]));
        if (id >= 0) m->end_ids[m->n_end_ids++] = id;
    }
}

/* ---- the model ----------------------------------------------------------------------------- */

int accept_model_open(struct accept_model *m, const char *dir, char *err, size_t errlen)
{
    *m = (struct accept_model){.tok = NULL};
    if (tok_open(&m->tok, dir, err, errlen)) return -1;
    read_end_ids(m, dir, "generation_config.json");
    if (!m->n_end_ids) read_end_ids(m, dir, "config.json");
    if (!m->n_end_ids) guess_end_ids(m);
    struct gram_vocab_params params = {.n_ids = tok_vocab_size(m->tok),
                                       .bytes = grammar_token_bytes,
                                       .ctx = m->tok,
                                       .end_ids = m->end_ids,
                                       .n_end_ids = m->n_end_ids};
    int rc = gram_vocab_create(&m->vocab, &params);
    if (!rc) return 0;
    snprintf(err, errlen, "%s: %s", dir,
             rc == GRAM_ENOMEM ? "no memory for the vocabulary" : "no token spells a single byte");
    accept_model_close(m);
    return -1;
}

void accept_model_close(struct accept_model *m)
{
    gram_vocab_destroy(m->vocab);
    tok_close(m->tok);
    *m = (struct accept_model){.tok = NULL};
}

/* ---- texts --------------------------------------------------------------------------------- */

static bool spells(const struct accept_model *m, const struct tok_ids *ids, const char *text,
                   size_t n)
{
    char buf[1024];
    size_t at = 0;

    for (size_t i = 0; i < ids->n; i++) {
        size_t len = grammar_token_bytes(m->tok, ids->ids[i], buf, sizeof(buf));
        if (len == 0 || len > sizeof(buf) || n - at < len || memcmp(text + at, buf, len) != 0)
            return false;
        at += len;
    }
    return at == n;
}

/* The longest token that a text begins with, or -1. */
static int32_t longest_token(const struct accept_model *m, const char *text, size_t n,
                             size_t *ret_len)
{
    char buf[1024];
    int32_t best = -1;

    *ret_len = 0;
    for (int32_t id = 0; id < tok_vocab_size(m->tok); id++) {
        size_t len = grammar_token_bytes(m->tok, id, buf, sizeof(buf));
        if (len <= *ret_len || len > n || len > sizeof(buf) || memcmp(buf, text, len) != 0)
            continue;
        best = id;
        *ret_len = len;
    }
    return best;
}

static int spell_longest(const struct accept_model *m, const char *text, size_t n,
                         struct tok_ids *ret)
{
    ret->n = 0;
    for (size_t at = 0, len; at < n; at += len) {
        int32_t id = longest_token(m, text + at, n - at, &len);
        if (id < 0) return TOK_EINVAL;
        if (ret->n == ret->cap) {
            size_t cap = ret->cap ? ret->cap * 2 : 64;
            int32_t *p = realloc(ret->ids, cap * sizeof(*p));
            if (!p) return TOK_ENOMEM;
            ret->ids = p;
            ret->cap = cap;
        }
        ret->ids[ret->n++] = id;
    }
    return 0;
}

int accept_model_encode(const struct accept_model *m, const char *text, size_t n,
                        struct tok_ids *ret, char *err, size_t errlen)
{
    int rc = tok_encode(m->tok, text, n, 0, ret, err, errlen);

    if (rc || spells(m, ret, text, n)) return rc;
    rc = spell_longest(m, text, n, ret);
    if (rc) snprintf(err, errlen, "the tokenizer cannot spell the text");
    return rc;
}
