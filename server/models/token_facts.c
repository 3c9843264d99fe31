/* SPDX-License-Identifier: MIT */
#include "server/models/token_facts.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_tree.h"
#include "engine/engine.h"
#include "server/models/lookup.h"
#include "server/log.h"
#include "tokenizer/tokenizer.h"

enum { CONFIG, GENERATION, TOKENIZER, SPECIAL_MAP, N_FILES };

static const char *const file_names[N_FILES] = {"config.json", "generation_config.json",
                                                "tokenizer_config.json", "special_tokens_map.json"};

/* The value of "bos", "pad", ... in a file: an id, a token as text, or an object with its
 * "content". -1: nothing, a list, or a token that tokenizer.json has not. */
static int32_t id_in_file(const struct tok *tok, const json_t *root, int file, const char *token)
{
    char key[32];
    snprintf(key, sizeof(key), file < TOKENIZER ? "%s_token_id" : "%s_token", token);
    const json_t *value = json_object_get(root, key);
    if (!value) value = json_object_get(json_object_get(root, "text_config"), key);
    if (json_is_object(value)) value = json_object_get(value, "content");
    if (json_is_string(value))
        return tok_token_id(tok, json_string_value(value), json_string_length(value));
    json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
    return id >= 0 && id <= INT32_MAX ? (int32_t)id : -1;
}

/* Logs a token that the files from `first` on name differently; `used`: the one that counts. */
static void log_difference(const struct tok *tok, json_t *const roots[N_FILES], int first,
                           const char *token, int32_t used)
{
    char text[200] = "";
    int32_t one = -1;
    bool differ = false;
    for (int i = first, at = 0; i < N_FILES; i++) {
        int32_t id = id_in_file(tok, roots[i], i, token);
        if (id < 0) continue;
        differ = differ || (one >= 0 && one != id);
        at += snprintf(text + at, sizeof(text) - (size_t)at, "%s%d in %s", at ? ", " : "", (int)id,
                       file_names[i]);
        one = id;
    }
    if (differ)
        srv_log(SRV_LOG_WARNING, "the model's files name different %s tokens: %s; %d is used",
                token, text, (int)used);
}

static int32_t id_in_info(const struct tok *tok, const char *info, const char *token)
{
    json_auto_t *root = NULL;
    char err[64];
    if (jt_read_file(&root, "", info, strlen(info), JT_REPEATS, err, sizeof(err))) return -1;
    return id_in_file(tok, root, TOKENIZER, token);
}

int32_t srv_tokenizer_eos(const struct tok *tok, const char *info)
{
    return id_in_info(tok, info, "eos");
}

/* Ids of a generation_config.json that the engine has not read: that beside a GGUF file. */
static void add_ends(struct eng *engine, const json_t *root)
{
    const json_t *ends = json_object_get(root, "eos_token_id");
    for (size_t i = 0; i < (json_is_array(ends) ? json_array_size(ends) : 1); i++) {
        const json_t *id = json_is_array(ends) ? json_array_get(ends, i) : ends;
        if (json_is_integer(id) && json_integer_value(id) <= INT32_MAX)
            eng_add_end_id(engine, (int32_t)json_integer_value(id));
    }
}

void srv_token_facts(struct eng *engine, const struct tok *tok, const char *info, const char *dir)
{
    json_t *roots[N_FILES] = {NULL};
    int32_t eos = srv_tokenizer_eos(tok, info);
    char err[64]; /* a file that must be right has been read by its own reader */
    for (int i = 0; i < N_FILES; i++)
        if (srv_json_file(&roots[i], dir, file_names[i], err, sizeof(err))) roots[i] = NULL;
    if (eng_add_end_id(engine, eos))
        srv_log(SRV_LOG_INFO, "id %d ends a sequence too: eos_token of tokenizer_config.json",
                (int)eos);
    add_ends(engine, roots[GENERATION]);
    log_difference(tok, roots, TOKENIZER, "eos", eos);
    log_difference(tok, roots, CONFIG, "bos", id_in_info(tok, info, "bos"));
    log_difference(tok, roots, CONFIG, "pad", id_in_file(tok, roots[CONFIG], CONFIG, "pad"));
    for (int i = 0; i < N_FILES; i++)
        json_decref(roots[i]);
}

/* ---- of a draft model ---------------------------------------------------------------------- */

int srv_draft_ids(uint64_t **ret, const struct eng *engine, const struct tok *tok, const char *dir,
                  char *err, size_t errlen)
{
    struct tok *other = NULL;
    char why[300] = "out of memory";
    *ret = NULL;
    if (!dir || (engine && eng_draft_state(engine, NULL) != ENG_DRAFTS_LOADING)) return 0;
    int32_t n_rows = engine ? eng_info(engine)->vocab_size : 0, n_ids = tok_vocab_size(tok);
    size_t n = (size_t)(n_ids > n_rows ? n_ids : n_rows);
    uint64_t *bits = calloc((n + 63) / 64, sizeof(*bits));
    bool read = bits && !tok_open(&other, dir, why, sizeof(why));
    bool fits = read && tok_fits(tok, other, bits, why, sizeof(why));
    tok_close(other);
    if (fits) {
        *ret = bits;
        return 0;
    }
    free(bits);
    if (read)
        snprintf(
            err, errlen,
            "draft model %.100s does not fit the model: %s; choose one with the same tokenizer",
            dir, why);
    else
        snprintf(err, errlen,
                 "draft model %.100s: %s; fetch it again, or start without a draft model", dir,
                 why);
    return -1;
}
