/* SPDX-License-Identifier: MIT */
/*
 * A text that becomes a vector: the prompt that the model's files have for its side of a search,
 * prompt and text as ids, and how they are cut.
 *
 * Threads: pure; any thread.
 */
#ifndef HEARTH_SERVER_MODELS_TEXT_IDS_H
#define HEARTH_SERVER_MODELS_TEXT_IDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

struct eng_info;
struct srv_retrieval;
struct tok;
struct tok_ids;

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

#endif
