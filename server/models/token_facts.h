/* SPDX-License-Identifier: MIT */
/* Tokens that several files of a model name: end of sequence, begin of text, padding. */
#ifndef HEARTH_SERVER_MODELS_TOKEN_FACTS_H
#define HEARTH_SERVER_MODELS_TOKEN_FACTS_H

#include <stdint.h>

struct eng;
struct tok;

/*
 * The id of the token that ends a sequence by the tokenizer's files; info is from
 * tok_chat_info_read. -1: they name none, or one that tokenizer.json has not.
 */
int32_t srv_tokenizer_eos(const struct tok *tok, const char *info);

/* Adds it to the engine's. Logs where the files of dir name different tokens and one is used. */
void srv_token_facts(struct eng *engine, const struct tok *tok, const char *info, const char *dir);

#endif
