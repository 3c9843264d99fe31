/* SPDX-License-Identifier: MIT */
/*
 * The part of a model's files that is about its use for search and labels, besides that by which
 * the engine computes: prompts, the longest text, dimensions, the names of labels, how logits
 * become scores, and the two tokens of a model that judges by yes and no.
 *
 * Sources: the files that sentence-transformers 5 and transformers 5 write.
 *
 * Threads: const once read.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

struct eng_info;
struct tok;
struct tok_ids;

enum srv_activation { SRV_ACTIVATION_NONE, SRV_ACTIVATION_SIGMOID, SRV_ACTIVATION_SOFTMAX };

struct srv_retrieval {
    json_t *config;              /* config.json */
    json_t *prompts;             /* name to text; NULL: the files have none */
    json_t *dimensions;          /* the widths that the model was trained for; NULL: no list */
    json_t *labels;              /* "0" to name; NULL: none */
    const char *standard_prompt; /* its name; NULL: none */
    int64_t max_tokens;          /* of a text, special tokens included; 0: the context */
    int64_t width;   /* vectors are cut to it unless the request says otherwise; 0: whole */
    bool lower_case; /* texts are lower-cased first */
    bool normalised; /* vectors have length 1 */
    enum srv_activation score;     /* of a pair */
    enum srv_activation labels_as; /* of a text's labels */
    int32_t yes_id, no_id; /* -1: the model does not judge by tokens; no_id -1: the logit of yes */
    json_t *sentences;     /* owned: the tree that the strings above are of */
};

/*
 * Reads them; n_labels: of the engine, 0 without such a head. Returns 0, or -1 with a sentence that
 * names the file; to be finished in both cases.
 */
int srv_retrieval_read(struct srv_retrieval *r, const char *dir, int n_labels, char *err,
                       size_t errlen);
void srv_retrieval_finish(struct srv_retrieval *r);

/* The name of label i, "LABEL_i" where the files have none; buf: for that. */
const char *srv_retrieval_label(const struct srv_retrieval *r, int i, char buf[24]);

/* Checks a number of dimensions to cut vectors of `width` to; 0: none. Returns 0, or -1 with
 * a sentence. */
int srv_retrieval_check_dimensions(const struct srv_retrieval *r, int64_t dimensions, int width,
                                   char *err, size_t errlen);

/* Scales a vector to length 1. */
void srv_retrieval_scale(float *values, int n);

/* Turns n logits into scores, in place. */
void srv_retrieval_activate(enum srv_activation how, float *values, int n);

/* ---- a text that becomes a vector --------------------------------------------------------- */

/* The text that the model's files have for the name or one of its side, or NULL. */
const json_t *srv_text_prompt(const struct srv_retrieval *files, const char *name);

/* Writes what the model has: "the prompts 'query', 'document'", or "no prompts". Returns buf. */
const char *srv_text_prompt_names(const struct srv_retrieval *files, char *buf, size_t size);

/* The most tokens of a text. */
int64_t srv_text_longest(const struct srv_retrieval *files, const struct eng_info *info);

/* Returns 0, or -1 with a sentence if the files want texts in lower case and the tokenizer does not
 * see to that itself. */
int srv_text_check_case(const struct srv_retrieval *files, const struct tok *tok, char *err,
                        size_t errlen);

/* Prompt and text tokenized as one. Returns 0, or an enum tok_error with a sentence. */
int srv_text_encode(const struct tok *tok, const char *prompt, size_t n_prompt, const char *text,
                    size_t n_text, struct tok_ids *ret, char *err, size_t errlen);

/* The ids of a prompt that the model leaves out of means; 0 if it leaves none out. Returns 0, or an
 * enum tok_error with a sentence. */
int srv_text_unpooled(const struct tok *tok, const struct eng_info *info, const char *prompt,
                      size_t n_prompt, int64_t *ret, char *err, size_t errlen);

/* Takes ids out so that `most` are left: not of the first n_head or the last n_tail, of the others
 * those at the end or, to keep that, at the beginning. Returns false if these are too many. */
bool srv_text_cut(int32_t *ids, size_t *n, size_t most, bool keep_end, size_t n_head,
                  size_t n_tail);
