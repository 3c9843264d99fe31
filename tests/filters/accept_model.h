/* SPDX-License-Identifier: MIT */
/*
 * The part of a model directory that `hearth-filter accept` uses: the tokenizer, its vocabulary as
 * grammars see it, and the ids that end an answer. Main thread only.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct tok;
struct tok_ids;
struct gram_vocab;

enum { ACCEPT_MAX_END_IDS = 32 };

struct accept_model {
    struct tok *tok;
    struct gram_vocab *vocab;
    int32_t end_ids[ACCEPT_MAX_END_IDS];
    size_t n_end_ids;
};

/*
 * Reads DIR/tokenizer.json. End ids are those of generation_config.json, else of config.json, else
 * the token that is usually called so, if there is one. -1 with a sentence in err.
 */
int accept_model_open(struct accept_model *m, const char *dir, char *err, size_t errlen);
void accept_model_close(struct accept_model *m);

/*
 * The ids of a text by itself, special tokens in it being plain text. If the tokenizer's own ids do
 * not spell exactly the text (it puts a blank in front), the longest tokens that do, from the left.
 * 0 or a negative tok_error.
 */
int accept_model_encode(const struct accept_model *m, const char *text, size_t n,
                        struct tok_ids *ret, char *err, size_t errlen);
