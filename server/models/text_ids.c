/* SPDX-License-Identifier: MIT */
/* See text_ids.h. */
#include "server/models/text_ids.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/shown.h"
#include "engine/engine.h"
#include "server/models/retrieval.h"
#include "tokenizer/tokenizer.h"

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
    snprintf(err, errlen,
             "sentence_bert_config.json: do_lower_case is true, which is supported only if the "
             "tokenizer makes capital letters small itself");
    return -1;
}

int srv_text_encode(const struct tok *tok, const char *prompt, size_t n_prompt, const char *text,
                    size_t n_text, struct tok_ids *ret, char *err, size_t errlen)
{
    char *all = malloc(n_prompt + n_text + 1);
    if (!all) return TOK_ENOMEM;
    memcpy(all, prompt, n_prompt);
    memcpy(all + n_prompt, text, n_text);
    int rc = tok_encode(tok, all, n_prompt + n_text, TOK_ADD_SPECIAL | TOK_PARSE_SPECIAL, ret, err,
                        errlen);
    free(all);
    return rc;
}

int srv_text_unpooled(const struct tok *tok, const struct eng_info *info, const char *prompt,
                      size_t n_prompt, int64_t *ret, char *err, size_t errlen)
{
    struct tok_ids ids = {0};
    size_t head, tail;
    *ret = 0;
    if (!info->unpooled_prompt || n_prompt == 0) return 0;
    int rc = srv_text_encode(tok, prompt, n_prompt, "", 0, &ids, err, errlen);
    tok_special_around(tok, &head, &tail);
    if (!rc) *ret = (int64_t)(ids.n - tail);
    tok_ids_finish(&ids);
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
